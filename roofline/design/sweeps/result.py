"""Designs over a grid of sizes: their work and times at every point, and which of them wins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.design.sweeps.axes import Axis, Grid, Point, text_of
from roofline.design.sweeps.verdicts import (
    Cell,
    Region,
    Verdict,
    factor_text,
    places_of,
    short_names,
    verdict_of,
    words,
)
from roofline.foundation import reading, schema
from roofline.foundation.blocks import Block, View
from roofline.foundation.text import counted
from roofline.machine.hardware import HardwareProfile
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_CLOSE, _UNKNOWN = -1, -2
"""What stands in the place of a winner where there is none."""


def sentences_of(
    grid: Grid, designs: Sequence[str], verdicts: Sequence[Verdict], reference: int
) -> Iterator[str]:
    """Who wins where, and by how much."""
    states = [_state(each) for each in verdicts]
    wins = Counter(each for each in states if each >= 0)
    close = [i for i, each in enumerate(states) if each == _CLOSE]
    if not wins:
        if close:
            yield (
                f"too close to call at {_of_all(len(close), len(states))}"
                f"{_between(designs, verdicts)}"
            )
        return
    first = wins.most_common(1)[0][0]
    others = [each for each in sorted(wins) if each != first]
    lost = [i for i, each in enumerate(states) if each != first]
    name = designs[first]
    if not lost:
        yield f"{name} wins at {_of_all(len(states), len(states))}{_by(verdicts, states, first)}"
        return
    if len(others) == 1 and not close and len(lost) == wins[others[0]]:
        region = Region.around(grid, lost)
        if region.count == len(lost) and region.text:
            slower = _at_most([verdicts[i] for i in lost])
            than = f"; there it is{slower} slower than {designs[others[0]]}" if slower else ""
            yield f"{name} wins everywhere but at {region.text}{than}"
            return
    yield (
        f"{name} wins at {wins[first]} of {_points(len(states))}"
        f"{_where(grid, states, first)}{_by(verdicts, states, first)}"
    )
    for each in others:
        yield (
            f"{designs[each]} wins at {wins[each]}{_where(grid, states, each)}"
            f"{_by(verdicts, states, each)}"
        )
    if close:
        yield (
            f"{len(close)} {'is' if len(close) == 1 else 'are'} too close to call"
            f"{_where(grid, states, _CLOSE)}{_between(designs, verdicts)}"
        )


def _state(verdict: Verdict) -> int:
    if verdict.winner is None:
        return _UNKNOWN
    return _CLOSE if verdict.is_close else verdict.winner


def _points(count: int) -> str:
    return f"{counted(count, 'point')}"


def _of_all(count: int, whole: int) -> str:
    if whole == 1:
        return "the only point"
    return f"all {_points(whole)}" if count == whole else f"{count} of {_points(whole)}"


def _where(grid: Grid, states: Sequence[int], wanted: int) -> str:
    return _region(grid, [i for i, each in enumerate(states) if each == wanted])


def _region(grid: Grid, chosen: Sequence[int]) -> str:
    """The smallest box around these points: ``", everywhere at batch ≥ 64"``."""
    region = Region.around(grid, chosen)
    if not region.text:
        return ""
    whole = "everywhere" if region.count == len(chosen) else "all"
    return f", {whole} at {region.text}"


def _between(designs: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    """Between whom it is close, where there are more than two; the most frequent ones."""
    if len(designs) == 2:
        return ""
    found = Counter(
        tuple(sorted((each.winner, *each.rivals)))
        for each in verdicts
        if each.winner is not None and each.is_close
    )
    parts = [
        f"{words([designs[i] for i in group])} at {count}"
        if len(group) < len(designs)
        else f"all of them at {count}"
        for group, count in found.most_common(3)
    ]
    return f" (between {', '.join(parts)})"


def _by(verdicts: Sequence[Verdict], states: Sequence[int], winner: int) -> str:
    won = [each for each, state in zip(verdicts, states, strict=True) if state == winner]
    factors = [each.factor for each in won if each.factor is not None]
    if not factors:
        return ""
    low, high = map(factor_text, (min(factors), max(factors)))
    return f", {low} × faster" if low == high else f", {low} to {high} × faster"


def _at_most(verdicts: Iterable[Verdict]) -> str:
    factors = [each.factor for each in verdicts if each.factor is not None]
    return f" up to {factor_text(max(factors))} ×" if factors else ""


def changes_of(
    grid: Grid, designs: Sequence[str], verdicts: Sequence[Verdict], along: str
) -> list[tuple[str, str]]:
    """Along the axis `along`, who wins up to where: a line of the other axes, and what is on it.

    Lines on which nothing changes are left out; neighbours that say the same are one.
    """
    number = [each.name for each in grid.axes].index(along)
    axis = grid.axes[number]
    lines: dict[tuple[int, ...], dict[int, int]] = {}
    for index, verdict in enumerate(verdicts):
        places = places_of(grid, index)
        line = (*places[:number], *places[number + 1 :])
        lines.setdefault(line, {})[places[number]] = _state(verdict)
    others = Grid(axes=tuple(each for each in grid.axes if each.name != along))
    found: list[tuple[str, list[int]]] = []
    for line, states in lines.items():
        ordered = [states[place] for place in range(len(axis.values))]
        if len(set(ordered)) > 1:
            found.append((_runs_text(along, axis.values, designs, ordered), [others.index(line)]))
    joined: list[tuple[str, str]] = []
    for said, alike in groupby(found, key=lambda each: each[0]):
        points = [index for _, indexes in alike for index in indexes]
        joined += [(where, said) for where in _lines_text(others, points)]
    return joined


def _lines_text(others: Grid, points: Sequence[int]) -> list[str]:
    """The lines in words: one where they fill a box, else each."""
    if not others.axes:
        return [""]
    region = Region.around(others, points)
    if region.count == len(points):
        return [region.text or "everywhere"]
    return [Region.around(others, [each]).text for each in points]


def _runs_text(
    name: str, values: Sequence[object], designs: Sequence[str], states: Sequence[int]
) -> str:
    """Who wins from where to where: ``"standard up to 32, separable from 64"``."""
    parts: list[str] = []
    place = 0
    for state, run in groupby(states):
        length = len(list(run))
        first, last = text_of(values[place]), text_of(values[place + length - 1])  # pyright: ignore[reportArgumentType]
        who = {_CLOSE: "too close", _UNKNOWN: "no two to compare"}.get(state) or designs[state]
        if place == 0:
            parts.append(f"{who} up to {name} {last}")
        elif place + length == len(states):
            parts.append(f"{who} from {first}")
        else:
            parts.append(f"{who} at {first}" if length == 1 else f"{who} {first} to {last}")
        place += length
    return ", ".join(parts)


def problems_of(
    designs: Sequence[str], problems: Sequence[Sequence[str]], points: int
) -> Iterator[str]:
    """Which designs cannot be built at some points, and why; a line for each reason.

    Args:
        problems: at each point the reasons, one for each design, ``""`` where there is none.
    """
    counts: Counter[tuple[int, str]] = Counter()
    for at_point in problems:
        counts.update((index, why) for index, why in enumerate(at_point) if why)
    by_design = Counter({index: 0 for index, _ in counts})
    for (index, why), count in counts.most_common():
        by_design[index] += 1
        if by_design[index] <= 3:
            yield f"{designs[index]} cannot be built at {count} of {_points(points)}: {why}"
    more = [f"{designs[i]} ({count - 3} reasons)" for i, count in by_design.items() if count > 3]
    if more:
        yield f"and for other reasons: {words(more)}; the files have all of them"


def too_large_at(
    grid: Grid, designs: Sequence[str], fits: Sequence[Sequence[bool | None]]
) -> Iterator[str]:
    """Which designs do not fit into memory, and where; a line for each.

    Args:
        fits: at each point whether each design fits; None: not known.
    """
    for index, name in enumerate(designs):
        chosen = [place for place, at_point in enumerate(fits) if at_point[index] is False]
        if chosen:
            where = _region(grid, chosen)
            yield f"{name} does not fit into memory at {_of_all(len(chosen), grid.count)}{where}"


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
