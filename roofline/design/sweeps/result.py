"""Designs over a grid of sizes: their work and times at every point, and which of them wins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from roofline.design.sweeps.axes import Axis, Grid, Point, text_of
from roofline.design.sweeps.cells import Cell
from roofline.design.sweeps.naming import short_names
from roofline.design.sweeps.sentences import problems_of, sentences_of, too_large_at
from roofline.design.sweeps.verdicts import Verdict, verdict_of
from roofline.foundation import schema
from roofline.foundation.rows import json_text
from roofline.machine.hardware import HardwareProfile

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

SCHEMA_VERSION = 1
"""Of sweeps in JSON files, which are read nowhere (docs/file-formats.md)."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepResult:
    """Designs at every point of a grid.

    ``cells`` are by point (in the order of ``grid``), then by design; ``reference`` is the index of
    the design that ratios refer to. ``hardware`` are the machines, one, or as many as the axis
    ``hardware`` has values. ``threads`` is None where they are an axis. ``run`` says in words how
    the designs are run; ``calibration`` what predictions were learned from, ``""`` if nothing is
    predicted. ``warnings`` are what a reader of the numbers must know.
    """

    grid: Grid
    designs: tuple[str, ...]
    reference: int = 0
    cells: tuple[tuple[Cell, ...], ...]
    hardware: tuple[HardwareProfile, ...]
    threads: int | None
    run: str = ""
    calibration: str = ""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<SweepResult: {'; '.join(self.sentences) or 'nothing is known'}>"

    @property
    def names(self) -> tuple[str, ...]:
        """What sentences call the designs: by their names if all are short, else A, B, C."""
        return short_names(self.designs)

    @property
    def points(self) -> tuple[Point, ...]:
        """The values of the axes at every point."""
        return tuple(self.grid.points())

    @property
    def varied(self) -> tuple[Axis, ...]:
        """The axes that have more than one value, the longest first; at least one axis."""
        found = [each for each in self.grid.axes if len(each.values) > 1]
        return tuple(sorted(found or self.grid.axes[:1], key=lambda each: -len(each.values)))

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Who wins at every point."""
        return tuple(verdict_of(each, self.reference) for each in self.cells)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person should take home."""
        return tuple(sentences_of(self.grid, self.names, self.verdicts, self.reference))

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be built where, a line for each reason; then what does not fit where."""
        reasons = [[each.problem for each in cells] for cells in self.cells]
        fits = [[each.fits for each in cells] for cells in self.cells]
        return (
            *problems_of(self.names, reasons, self.grid.count),
            *too_large_at(self.grid, self.names, fits),
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row a design and point: axes, numbers with their units, and the verdict there."""
        for point, cells, verdict in zip(
            self.grid.points(), self.cells, self.verdicts, strict=True
        ):
            for index, (name, cell) in enumerate(zip(self.designs, cells, strict=True)):
                yield {
                    **point,
                    "design": name,
                    **asdict(cell),
                    "fits": cell.fits,
                    "compared_by": verdict.basis,
                    "is_best": None if verdict.winner is None else verdict.winner == index,
                    "is_close": None if verdict.winner is None else verdict.is_close,
                }

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of `rows`."""
        names = (each.name for each in self.grid.axes)
        numbers = (each.name for each in fields(Cell))
        return (*names, "design", *numbers, "fits", "compared_by", "is_best", "is_close")

    def to_frame(self) -> pandas.DataFrame:
        """One row a design and point, as `rows`."""
        import pandas

        rows = list(self.rows())
        columns: dict[str, Any] = {}
        for name in self.columns:
            values = [row[name] for row in rows]
            whole = name.endswith("_byte") or name in ("flop", "multiply_add", "parameters")
            if whole:
                columns[name] = pandas.array(values, dtype="Int64")
            elif name.endswith(("_s", "_share")):
                columns[name] = pandas.array(values, dtype="Float64")
            elif name == "fits" or name.startswith("is_"):
                columns[name] = pandas.array(values, dtype="boolean")
            else:
                columns[name] = values
        return pandas.DataFrame(columns)

    def to_json(self) -> str:
        """The sweep as JSON text: axes, rows, verdicts, and the machines whole."""
        data = {
            "schema_version": SCHEMA_VERSION,
            "axes": {each.name: list(each.values) for each in self.grid.axes},
            "designs": list(self.designs),
            "reference": self.designs[self.reference],
            "run": self.run,
            "threads": self.threads,
            "calibration": self.calibration,
            "rows": list(self.rows()),
            "points": [
                {
                    **point,
                    "winner": None if each.winner is None else self.designs[each.winner],
                    "reference_over_best_other": each.ratio,
                    "is_close": each.is_close,
                    "compared_by": each.basis,
                }
                for point, each in zip(self.grid.points(), self.verdicts, strict=True)
            ],
            "sentences": list(self.sentences),
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "hardware": [schema.to_data(each) for each in self.hardware],
        }
        return json_text(data)

    def plot(self, *, width_inch: float = 10.0) -> Figure:
        """A heat map of who wins over two axes, others side by side; lines over a single one."""
        from roofline.presentation.sweep_figure import plot_sweep

        return plot_sweep(self, width_inch=width_inch)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.sweep_report import sweep_html

        return sweep_html(self)


def axis_names(grid: Grid) -> str:
    """The axes in words: ``"channels 16 to 1024, size 7 to 112"``."""
    said: list[str] = []
    for each in grid.axes:
        ends = text_of(each.values[0]), text_of(each.values[-1])
        if not each.is_numeric:
            said.append(f"{each.name} {', '.join(map(text_of, each.values))}")
        else:
            said.append(f"{each.name} {ends[0]}{f' to {ends[1]}' * (ends[0] != ends[1])}")
    return ", ".join(said)
