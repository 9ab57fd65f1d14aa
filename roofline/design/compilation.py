"""Result of `compile`: a pass under torch.compile against eager torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from roofline.analysis import Analysis, OperatorRow, fit_warnings
from roofline.analysis.words import machine_fact, model_fact, run_fact
from roofline.core.blocks import (
    Block,
    Column,
    Grid,
    KeyValueBlock,
    View,
    notes,
    number_column,
    warning_notes,
)
from roofline.core.text import counted
from roofline.core.units import MISSING, format_bytes
from roofline.result import Result
from roofline.workload.compiled_kernels import CompiledKernel, CompiledPass, Part
from roofline.workload.operators import Phase, State

_LOSS = "<loss>"

_NAMED = 4  # Operators or modules named per kernel

_WHEN: dict[Part, str] = {
    "forward": "between graphs",
    "loss": "the loss",
    "backward": "backward of the loss and between graphs",
    "optimizer": "the update",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Launches and bytes of a pass; bytes of ``unknown`` launches are in no sum."""

    launches: int
    traffic_bytes: int
    unknown: int = 0

    @property
    def traffic(self) -> str:
        """Bytes as text; a lower limit with unknown launches."""
        return f"{'≥ ' * bool(self.unknown)}{format_bytes(self.traffic_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compilation(Result):
    """Kernels of torch.compile, and the eager pass of ``analysis``.

    Loss and optimizer step are left out: torch.compile(model) compiles neither.
    """

    kind: ClassVar = "compilation"
    made_by: ClassVar = "roofline compile MODEL -o FILE.json"
    suffixes: ClassVar = (".json", ".csv", ".md", ".html")
    columns: ClassVar = {
        "graph": "Int64",
        "phase": "string",
        "calls": "Int64",
        "launch": "Int64",
        "kernel": "string",
        "kind": "string",
        "loops": "Int64",
        **dict.fromkeys(("operators", "modules"), "string"),
        **dict.fromkeys(("read_bytes", "written_bytes", "traffic_bytes"), "Int64"),
    }
    ALSO_WRITTEN: ClassVar = ("model", "summary", "sides")

    analysis: Analysis
    compiled: CompiledPass

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.analysis.model

    @property
    def is_available(self) -> bool:
        """True if Inductor's schedule is known."""
        return not self.compiled.why_not

    @property
    def sides(self) -> Mapping[str, Side | None]:
        """The pass in eager torch, with operator fusion, and by Inductor; None if unknown."""
        return {"eager": self.eager(), "fused": self.fused(), "inductor": self.inductor()}

    def eager(self, phase: Phase | None = None) -> Side:
        """Return the eager operators that are not free, one launch each."""
        rows = self._eager_rows(phase)
        return Side(launches=len(rows), traffic_bytes=sum(row.traffic_bytes for row in rows))

    def fused(self, phase: Phase | None = None) -> Side | None:
        """Return the kernels of the fused minimum; None if unknown."""
        rows = self._eager_rows(phase)
        known = [row.fused_bytes for row in rows if row.fused_bytes is not None]
        if len(known) < len(rows):
            return None
        kernels = {row.chain for row in rows if row.fused_bytes}
        return Side(launches=len(kernels), traffic_bytes=sum(known))

    def inductor(self, phase: Phase | None = None) -> Side | None:
        """Return the launches of Inductor, with operators between graphs in the forward pass."""
        if not self.is_available:
            return None
        compiled = self.compiled
        between = compiled.called_outside("forward") if phase in (None, "forward") else 0
        return Side(
            launches=compiled.launches(phase) + between,
            traffic_bytes=compiled.known_bytes(phase),
            unknown=compiled.unknown_launches(phase) + between,
        )

    def _eager_rows(self, phase: Phase | None) -> list[OperatorRow]:
        return [
            row
            for row in self.analysis.operators
            if row.state is not State.FREE
            and row.phase != "optimizer"
            and row.module_path != _LOSS
            and phase in (None, row.phase)
        ]

    @property
    def summary(self) -> str:
        """Verdict: launches and traffic against eager torch."""
        eager, inductor = self.eager(), self.inductor()
        if inductor is None:
            return f"{self.model} under torch.compile: unknown: {self.compiled.why_not}"
        said = f"{self.model} under torch.compile: {inductor.launches:,} launches"
        known = f"{eager.launches:,} launches and {eager.traffic} in eager torch"
        if inductor.unknown or not eager.traffic_bytes:
            return f"{said}, {inductor.traffic} of traffic, against {known}"
        ratio = inductor.traffic_bytes / eager.traffic_bytes
        return f"{said}, {inductor.traffic} of traffic ({ratio:.2f}×), against {known}"

    def contradictions(self) -> Iterable[str]:
        """Return what does not follow from the rows of the analysis."""
        return self.analysis.contradictions()

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row per kernel of every graph."""
        for number, graph in enumerate(self.compiled.graphs):
            for launch, each in enumerate(graph.kernels):
                yield [
                    *(number, graph.phase, graph.calls, launch, each.name, each.kind, each.loops),
                    *(" ".join(each.operators), " ".join(each.modules)),
                    *(each.read_bytes, each.written_bytes, each.traffic_bytes),
                ]

    def page(self, view: View) -> str:
        """Return an HTML page with the roofline of the eager pass and the report."""
        from roofline.render.pages import page_html

        return page_html(self.report(view), str(self.analysis.render("svg")))

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, launches and traffic, and the top kernels by traffic."""
        yield KeyValueBlock(lines=tuple(self._facts(view)))
        yield self._sides_grid()
        compiled, analysis = self.compiled, self.analysis
        if compiled.graphs:
            yield self._kernels_grid(view.rows())
        warnings = [*fit_warnings(analysis), *analysis.warnings]
        if compiled.breaks and analysis.run.train:
            warnings.insert(
                0,
                "operators between graphs have their backward pass outside of Inductor's graphs",
            )
        yield from notes("Graph breaks", dict.fromkeys(compiled.breaks))
        yield from notes("Notes", dict.fromkeys(compiled.notes))
        yield from warning_notes(warnings, view)

    def _facts(self, view: View) -> Iterable[tuple[str, str]]:
        compiled = self.compiled
        yield model_fact(self.analysis)
        yield from run_fact(self.analysis)
        yield machine_fact(self.analysis, view)
        yield "Compiler", compiled.compiler
        if not self.is_available:
            yield "Compiled", f"unknown: {compiled.why_not}"
            return
        graphs = compiled.graphs
        phases = [each.phase for each in graphs]
        of_phases = [
            counted(phases.count(phase), "graph") + f" {phase}" * ("backward" in phases)
            for phase in dict.fromkeys(phases)
        ]
        calls = sum(each.calls for each in graphs)
        again = f", {calls:,} calls per pass" if calls > len(graphs) else ""
        yield "Graphs", " · ".join(of_phases) + again
        kernels = ((each, graph.calls) for graph in graphs for each in graph.kernels)
        loops = sum(each.loops * calls for each, calls in kernels if each.kind == "generated")
        generated = counted(compiled.launches_of("generated"), "generated function")
        parts = [
            f"{generated} with {counted(loops, 'loop nest')}",
            counted(compiled.launches_of("library"), "library call"),
        ]
        if unknown := compiled.unknown_launches():
            parts.append(f"unknown bytes of {counted(unknown, 'launch', 'launches')}")
        yield "Launches", " · ".join(parts)
        buffers, reused = sum(each.buffers for each in graphs), sum(each.reused for each in graphs)
        allocated = format_bytes(sum(each.allocated_bytes * each.calls for each in graphs))
        said = f"{counted(buffers, 'buffer')}, {reused:,} reused · {allocated} allocated"
        if len(graphs) < 2:
            eager = self.analysis.peak
            of_eager = f" (eager torch: {format_bytes(eager.activation_bytes)})" if eager else ""
            alive = format_bytes(sum(each.peak_bytes for each in graphs))
            said += f", peak {alive}{of_eager}"
        yield "Buffers", said
        outside = [
            f"{when}: {counted(calls, 'operator')}"
            f" ({_some(each.op for each in compiled.outside if each.part == part)})"
            for part, when in _WHEN.items()
            if (calls := compiled.called_outside(part))
        ]
        if outside:
            yield "Outside", " · ".join(outside)

    def _sides_grid(self) -> Grid:
        is_training = self.analysis.run.train
        phases: tuple[Phase | None, ...] = ("forward", "backward", None) if is_training else (None,)
        rows: list[tuple[str, ...]] = []
        for phase in phases:
            eager = self.eager(phase)
            for name, side in (
                ("eager torch", eager),
                ("fused minimum", self.fused(phase)),
                ("Inductor", self.inductor(phase)),
            ):
                cells = (MISSING, MISSING, MISSING)
                if side is not None:
                    share = MISSING
                    if eager.traffic_bytes and not side.unknown:
                        share = f"{side.traffic_bytes / eager.traffic_bytes:.0%}"
                    cells = (f"{side.launches:,}", side.traffic, share)
                rows.append((*[phase or "both"] * is_training, name, *cells))
        columns = (
            *[Column(heading="phase", drop_priority=2)] * is_training,
            *(Column(heading="execution"), number_column("launches"), number_column("traffic")),
            number_column("traffic / eager", 1),
        )
        title = "Launches and traffic" + " (without loss and optimizer step)" * is_training
        return Grid(title=title, columns=columns, rows=tuple(rows))

    def _kernels_grid(self, top: int) -> Grid:
        calls: dict[object, int] = {}
        kernels: dict[object, CompiledKernel] = {}
        for graph in self.compiled.graphs:
            for kernel in graph.kernels:
                key = (graph.phase, kernel.name, kernel.operators, kernel.traffic_bytes)
                kernels.setdefault(key, kernel)
                calls[key] = calls.get(key, 0) + graph.calls
        byte = {key: (kernel.traffic_bytes or 0) * calls[key] for key, kernel in kernels.items()}
        ranked = sorted(kernels, key=lambda key: -byte[key])
        rows: list[tuple[str, ...]] = []
        for key in ranked[:top]:
            each = kernels[key]
            parts = (each.read_bytes, each.written_bytes, each.traffic_bytes)
            moved = (format_bytes(part and part * calls[key]) for part in parts)
            named = (each.name, f"{calls[key]:,}", _some(each.operators), _some(each.modules))
            rows.append((*named, *moved))
        sums: list[tuple[str, ...]] = []
        if rest := ranked[top:]:
            launches, left_bytes = sum(calls[key] for key in rest), sum(byte[key] for key in rest)
            name = f"({counted(len(rest), 'more row')})"
            sums.append((name, f"{launches:,}", "", "", "", "", format_bytes(left_bytes)))
        if inductor := self.inductor():
            total = f"{self.compiled.launches():,}"
            sums.append(("total", total, "", "", "", "", inductor.traffic))
        return Grid(
            title="Top Inductor kernels by traffic",
            columns=(
                Column(heading="kernel", least=16, drop_priority=2),
                number_column("launches", 5),
                Column(heading="operators", least=16, drop_priority=1),
                Column(heading="modules", least=10, drop_priority=4),
                *(number_column("read", 3), number_column("written", 3), number_column("traffic")),
            ),
            rows=tuple(rows),
            sums=tuple(sums),
        )


def _some(names: Iterable[str]) -> str:
    known = [each.removeprefix("aten.") for each in dict.fromkeys(names)]
    more = f", {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(known[:_NAMED]) + more
