"""A pass under torch.compile beside the same pass in eager torch: launches, bytes, buffers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, OperatorRow
from roofline.foundation import schema
from roofline.foundation.rows import cells_of, csv_text, finite, frame_of, json_text
from roofline.foundation.text import printable
from roofline.foundation.units import format_bytes
from roofline.workload.compiled_kernels import CompiledGraph, CompiledKernel, CompiledPass
from roofline.workload.operators import Phase, State

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1

KIND = "compilation"
"""What such a JSON file says it is."""

_LOSS = "<loss>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one way of running a pass launches and moves.

    ``traffic_bytes`` is a sum over the launches whose bytes are known; ``unknown`` is how many there
    are besides.
    """

    launches: int
    traffic_bytes: int
    unknown: int = 0

    @property
    def traffic(self) -> str:
        """The bytes in words; at least so many where some are not known."""
        return f"{'≥ ' * bool(self.unknown)}{format_bytes(self.traffic_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compilation:
    """What torch.compile makes of a model, beside its eager pass.

    ``analysis`` is of the eager pass. Sides leave out the loss and the update of a training step:
    torch.compile(model) compiles neither.
    """

    analysis: Analysis
    compiled: CompiledPass

    def __repr__(self) -> str:
        return f"<Compilation: {self.summary}>"

    @property
    def model(self) -> str:
        """What the model is called."""
        return self.analysis.model

    @property
    def is_available(self) -> bool:
        """Whether Inductor's schedule is known."""
        return not self.compiled.why_not

    def eager(self, phase: Phase | None = None) -> Side:
        """The operators that eager torch calls, free ones left out; one is taken as one launch."""
        rows = self._eager_rows(phase)
        return Side(launches=len(rows), traffic_bytes=sum(row.traffic_bytes for row in rows))

    def fused(self, phase: Phase | None = None) -> Side | None:
        """What this project's own rules of fusion make of them; None where it is not known."""
        rows = self._eager_rows(phase)
        byte = [row.fused_bytes for row in rows]
        known = [each for each in byte if each is not None]
        if len(known) < len(byte):
            return None
        kernels = {row.chain for row in rows if row.fused_bytes}
        return Side(launches=len(kernels), traffic_bytes=sum(known))

    def inductor(self, phase: Phase | None = None) -> Side | None:
        """What Inductor launches, and in the forward pass what is between its graphs."""
        if not self.is_available:
            return None
        compiled = self.compiled
        between = compiled.called_outside("forward") if phase in (None, "forward") else 0
        return Side(
            launches=compiled.launches(phase) + between,
            traffic_bytes=compiled.known_bytes(phase),
            unknown=compiled.unknown_launches(phase) + between,
        )

    @property
    def summary(self) -> str:
        """The verdict, in a sentence."""
        name = printable(self.model)
        eager, inductor = self.eager(), self.inductor()
        if inductor is None:
            return f"{name}: what Inductor makes of it is not known: {self.compiled.why_not}"
        said = f"{name} under torch.compile: {inductor.launches:,} launches move {inductor.traffic}"
        beside = f"eager torch ({eager.launches:,} operators, {eager.traffic})"
        if inductor.unknown or not eager.traffic_bytes:
            return f"{said}, beside {beside}"
        ratio = inductor.traffic_bytes / eager.traffic_bytes
        return f"{said}, {ratio:.2f} × the bytes of {beside}"

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel of every graph; what is unknown is missing, never 0."""
        return frame_of(COLUMNS, cells_of(COLUMNS, self._rows()))

    def to_csv(self) -> str:
        """One line a kernel of every graph; what is unknown is empty, never 0."""
        return csv_text(COLUMNS, cells_of(COLUMNS, self._rows()))

    def to_json(self) -> str:
        """All of it as JSON text, the analysis whole."""
        sides = {
            name: None if side is None else schema.to_data(side)
            for name, side in (
                ("eager", self.eager()),
                ("fused", self.fused()),
                ("inductor", self.inductor()),
            )
        }
        data = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "model": self.model,
            "summary": self.summary,
            **sides,
            "compiled": schema.to_data(self.compiled),
            "analysis": schema.to_data(self.analysis),
        }
        return json_text(finite(data))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes it to a file whose suffix says how: .json .csv .md .html.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.compilation_output import write_compilation

        write_compilation(self, [Path(path)], overwrite=overwrite)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.compilation_report import compilation_html

        return compilation_html(self)

    def _eager_rows(self, phase: Phase | None) -> list[OperatorRow]:
        return [
            row
            for row in self.analysis.operators
            if row.state is not State.FREE
            and row.phase != "optimizer"
            and row.module_path != _LOSS
            and phase in (None, row.phase)
        ]

    def _rows(self) -> list[dict[str, Any]]:
        return [
            _row(number, graph, place, kernel)
            for number, graph in enumerate(self.compiled.graphs)
            for place, kernel in enumerate(graph.kernels)
        ]


COLUMNS = {
    "graph": "Int64",
    "phase": "string",
    "calls": "Int64",
    "launch": "Int64",
    "kernel": "string",
    "kind": "string",
    "loops": "Int64",
    "operators": "string",
    "modules": "string",
    "read_bytes": "Int64",
    "written_bytes": "Int64",
    "traffic_bytes": "Int64",
}
"""The columns of `Compilation.to_frame` and of CSV files, with pandas' types."""


def _row(number: int, graph: CompiledGraph, place: int, kernel: CompiledKernel) -> dict[str, Any]:
    return {
        "graph": number,
        "phase": graph.phase,
        "calls": graph.calls,
        "launch": place,
        "kernel": kernel.name,
        "kind": kernel.kind,
        "loops": kernel.loops,
        "operators": " ".join(kernel.operators),
        "modules": " ".join(kernel.modules),
        "read_bytes": kernel.read_bytes,
        "written_bytes": kernel.written_bytes,
        "traffic_bytes": kernel.traffic_bytes,
    }
