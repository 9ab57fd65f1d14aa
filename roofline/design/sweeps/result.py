"""Designs over a grid of sizes: their work and times at every point, and which of them wins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.design.sweeps.axes import Axis, Grid, Point, text_of
from roofline.design.sweeps.cells import Cell
from roofline.design.sweeps.naming import short_names
from roofline.design.sweeps.sentences import problems_of, sentences_of, too_large_at
from roofline.design.sweeps.verdicts import Verdict, verdict_of
from roofline.foundation import reading, schema
from roofline.foundation.blocks import Block, View
from roofline.machine.hardware import HardwareProfile
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepResult(Result):
    """Designs at every point of a grid.

    ``cells`` are by point (in the order of ``grid``), then by design; ``reference`` is the index of
    the design that ratios refer to. ``hardware`` are the machines, one, or as many as the axis
    ``hardware`` has values. ``threads`` is None where they are an axis. ``run`` says in words how
    the designs are run; ``calibration`` what predictions were learned from, ``""`` if nothing is
    predicted. ``warnings`` are what a reader of the numbers must know.
    """

    kind: ClassVar = "sweep"
    made_by: ClassVar = "roofline compare A B --sweep AXES -o FILE.json"

    grid: Grid
    designs: tuple[str, ...]
    reference: int = 0
    cells: tuple[tuple[Cell, ...], ...]
    hardware: tuple[HardwareProfile, ...]
    threads: int | None
    run: str = ""
    calibration: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The designs, and the axes that they were swept over."""
        return f"{' against '.join(self.names)} over {axis_names(self.grid)}"

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

    def records(self) -> Iterator[dict[str, Any]]:
        """Return a row for each point and design: axes, numbers with units, the verdict there."""
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
    def columns(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]  of each sweep its own
        """Names of columns with pandas' types: axes, numbers, and the verdict."""
        axes = {each.name: "object" for each in self.grid.axes}
        numbers = {each.name: _pandas_type(each.name) for each in fields(Cell)}
        verdict = ("fits", "compared_by", "is_best", "is_close")
        return {**axes, "design": "object", **numbers, **{e: _pandas_type(e) for e in verdict}}

    def rows(self) -> Iterator[list[Any]]:
        """Return `records` as cells in the order of `columns`."""
        names = self.columns
        return ([each[name] for name in names] for each in self.records())

    def blocks(self, view: View) -> Iterable[Block]:
        """Return what follows, who wins where, and where that changes."""
        from roofline.design.sweeps.blocks import sweep_blocks

        del view
        return sweep_blocks(self)

    def draw(self, figure: Figure) -> None:
        """Draw a heat map of who wins over two axes; lines over a single one."""
        from roofline.design.sweeps.drawing import draw_sweep

        draw_sweep(figure, self)

    def to_data(self) -> dict[str, Any]:
        """Return axes, rows, verdicts, and the machines whole."""
        return {
            "schema_version": schema.VERSION,
            "kind": self.kind,
            "axes": {each.name: list(each.values) for each in self.grid.axes},
            "designs": list(self.designs),
            "reference": self.reference,
            "run": self.run,
            "threads": self.threads,
            "calibration": self.calibration,
            "rows": list(self.records()),
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

    @classmethod
    def from_data(cls, data: Any, *, file: str) -> SweepResult:
        """Return the sweep in plain data; verdicts follow from its rows.

        Raises:
            FileFormatError: unknown, missing or wrong values, or rows that are no full grid.
        """
        fix = f"make it again with `{cls.made_by}`"
        schema.check_version(data, file=file, fix=fix)
        saved = schema.from_data(_Saved, data, file=file, fix=fix)
        names = [each.name for each in fields(Cell)]
        axes = tuple(Axis(name=name, values=tuple(each)) for name, each in saved.axes.items())
        rows = [{name: row[name] for name in names if name in row} for row in saved.rows]
        cells = [schema.from_data(Cell, each, file=f"{file}: rows", fix=fix) for each in rows]
        grid, count = Grid(axes=axes), len(saved.designs)
        if not count or len(cells) != grid.count * count or not saved.reference < count:
            raise reading.refused(file, f"{len(cells)} rows are no full grid", fix)
        found = cls(
            grid=grid,
            designs=saved.designs,
            reference=saved.reference,
            cells=tuple(tuple(cells[i : i + count]) for i in range(0, len(cells), count)),
            hardware=saved.hardware,
            threads=saved.threads,
            run=saved.run,
            calibration=saved.calibration,
            warnings=saved.warnings,
        )
        if found.to_data() != data:
            raise reading.refused(file, "verdicts do not follow from the rows", fix)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """A sweep as its file has it; what follows from the rows is compared afterwards."""

    schema_version: int
    kind: str
    axes: Mapping[str, Any]
    designs: tuple[str, ...]
    reference: int
    run: str
    threads: int | None
    calibration: str
    rows: tuple[Mapping[str, Any], ...]
    points: tuple[Mapping[str, Any], ...]
    sentences: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    hardware: tuple[HardwareProfile, ...]


def _pandas_type(name: str) -> str:
    if name.endswith("_bytes") or name in ("flop", "macs", "parameters"):
        return "Int64"
    if name.endswith(("_s", "_share")):
        return "Float64"
    return "boolean" if name == "fits" or name.startswith("is_") else "object"


def map_axes(result: SweepResult) -> tuple[Axis, Axis | None, tuple[Axis, ...]]:
    """Return the axis across, the one up, and those of which each value has a map of its own."""
    across, *rest = result.varied
    up = rest[0] if rest else None
    names = {across.name, up.name if up else ""}
    return across, up, tuple(each for each in result.varied if each.name not in names)


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
