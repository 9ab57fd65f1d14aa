"""Reports on sweeps: who wins where, over sizes and over the balance of machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from roofline.analysis import unknown_capacity
from roofline.analysis.tables import prediction_cell
from roofline.design.pass_times import DIGITS
from roofline.design.sweeps.axes import Axis, Grid, point_text, text_of
from roofline.design.sweeps.result import SweepResult, axis_names, changes_of, map_axes
from roofline.design.sweeps.ridge import KnownMachine, RidgeSweep
from roofline.design.sweeps.verdicts import (
    RULE,
    RULE_OF_BOUNDS,
    RULE_OF_MEMORY,
    Cell,
    Verdict,
    factor_text,
    letters,
    places_of,
)
from roofline.foundation.blocks import Block, Column, Facts, notes
from roofline.foundation.blocks import Grid as Table
from roofline.foundation.units import MISSING, format_intensity, format_s, format_si
from roofline.machine.hardware import describe_threads

_COLUMNS = 8
"""Values side by side: as many as fit 80 characters."""

_MOST_ROWS = 40
_MOST_TABLES = 24
_MOST_CHANGES = 20


def sweep_blocks(result: SweepResult) -> Iterator[Block]:
    """Return what follows from a sweep, who wins where, and where that changes."""
    marks = letters(len(result.designs))
    yield Facts(lines=tuple(_facts(result, marks)))
    yield from notes("In short", _in_short(result))
    if len(result.varied) == 1:
        yield _list(result, marks)
    else:
        yield from _matrices(result, marks)
        yield from _changes(result)
    yield from notes("Warnings", result.warnings, urgent=True)


def _facts(result: SweepResult, marks: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, (letter, name) in enumerate(zip(marks, result.designs, strict=True)):
        reference = "  (the reference)" if index == result.reference else ""
        yield letter, name + reference
    machines = ", ".join(each.name for each in result.hardware)
    if result.threads is not None and len(result.hardware) == 1:
        machines += f", {describe_threads(result.hardware[0], result.threads)}"
    yield "hardware", machines
    if result.run:
        yield "run", result.run
    if result.calibration:
        yield "predicted", f"from {result.calibration}"
    yield "points", f"{result.grid.count}: {axis_names(result.grid)}"


def _in_short(result: SweepResult) -> Iterator[str]:
    yield from result.sentences
    yield from result.problems
    bases = [each.basis for each in result.verdicts]
    if "predicted" in bases:
        yield RULE
    if "bound" in bases:
        count = bases.count("bound")
        where = "" if count == len(bases) else f" ({count} of {len(bases)} points here)"
        yield RULE_OF_BOUNDS + where
    if any(each.fits is False for cells in result.cells for each in cells):
        yield RULE_OF_MEMORY
    yield from unknown_capacity(result.hardware)
    if len(result.varied) > 1:
        yield (
            "cells: who wins, and how many times faster than the reference; where the reference"
            " wins, than the next"
        )


# -- several axes ----------------------------------------------------------------------------------


def _matrices(result: SweepResult, marks: Sequence[str]) -> Iterator[Block]:
    """Tables of who wins: an axis across, an axis down, one for each value of the others."""
    across, down, others = map_axes(result)
    assert down is not None
    facets = Grid(axes=others)
    starts = range(0, len(across.values), _COLUMNS)
    tables = (
        _matrix(result, marks, (across, down), facets, number, start)
        for number in range(facets.count)
        for start in starts
    )
    yield from islice(tables, _MOST_TABLES)
    left_out = facets.count * len(starts) - _MOST_TABLES
    if left_out > 0 or len(down.values) > _MOST_ROWS:
        rest = f"{left_out} tables are left out" if left_out > 0 else "rows are left out"
        yield from notes("Left out", [f"{rest}: -o FILE.csv has all of it"])


def _matrix(
    result: SweepResult,
    marks: Sequence[str],
    axes: tuple[Axis, Axis],
    facets: Grid,
    number: int,
    start: int,
) -> Table:
    across, down = axes
    columns = range(start, min(start + _COLUMNS, len(across.values)))
    fixed = dict(zip((each.name for each in facets.axes), places_of(facets, number), strict=True))

    def cell(i: int, j: int) -> str:
        chosen = {**fixed, across.name: i, down.name: j}
        index = result.grid.index([chosen.get(axis.name, 0) for axis in result.grid.axes])
        return _cell_text(result.verdicts[index], result.cells[index], marks)

    where = f"{point_text(facets.point(number))}: " if facets.axes else ""
    return Table(
        title=f"{where}{down.name} down, {across.name} across",
        columns=(
            Column(heading="", align="right"),
            *(Column(heading=text_of(across.values[i]), align="right") for i in columns),
        ),
        rows=tuple(
            (text_of(down.values[j]), *(cell(i, j) for i in columns))
            for j in range(min(len(down.values), _MOST_ROWS))
        ),
    )


def _cell_text(verdict: Verdict, cells: Sequence[Cell], marks: Sequence[str]) -> str:
    """``"B 3.4"``, ``"B 1.1~"`` where it is close, ``"only B"`` where no other can run.

    Behind it stand those that do not fit into memory: ``"only B, A!"``.
    """
    able = [letter for letter, each in zip(marks, cells, strict=True) if each.can_run]
    large = [f"{letter}!" for letter, each in zip(marks, cells, strict=True) if each.fits is False]
    if verdict.winner is None:
        said = f"only {able[0]}" if len(able) == 1 else "" if large and not able else MISSING
    else:
        factor = f" {factor_text(verdict.factor)}" if verdict.factor else ""
        said = f"{marks[verdict.winner]}{factor}{'~' * verdict.is_close}"
    return ", ".join([*([said] if said else []), *large])


def _changes(result: SweepResult) -> Iterator[Block]:
    along = result.varied[0].name
    found = changes_of(result.grid, result.names, result.verdicts, along)
    if not found:
        return
    lines = [(where, said) for where, said in found]
    rest = len(lines) - _MOST_CHANGES
    yield Table(
        title=f"Where the winner changes along {along}",
        columns=(Column(heading="at"), Column(heading="who wins")),
        rows=tuple(lines[:_MOST_CHANGES]),
        sums=((f"{rest} more", ""),) if rest > 0 else (),
    )


# -- one axis --------------------------------------------------------------------------------------


def _list(result: SweepResult, marks: Sequence[str]) -> Table:
    """A row a value: the time of each design, with its interval, and who wins."""
    axis = result.varied[0]
    rows = [
        (
            text_of(value),
            *(_time_text(each) for each in cells),
            _cell_text(verdict, cells, marks),
        )
        for value, cells, verdict in islice(
            zip(axis.values, result.cells, result.verdicts, strict=True), _MOST_ROWS
        )
    ]
    rest = len(axis.values) - _MOST_ROWS
    return Table(
        title="",
        columns=(
            Column(heading=axis.name, align="right"),
            *(Column(heading=each, align="right") for each in marks),
            Column(heading="winner"),
        ),
        rows=tuple(rows),
        sums=((f"{rest} more", *("" for _ in marks), "-o FILE.csv"),) if rest > 0 else (),
    )


def _time_text(cell: Cell) -> str:
    if cell.problem:
        return "cannot be built"
    return _known_time(cell) + "!" * (cell.fits is False)


def _known_time(cell: Cell) -> str:
    if cell.predicted_s is None:
        return (
            f"bound {format_s(cell.eager_min_time_s, DIGITS)}" if cell.eager_min_time_s else MISSING
        )
    low, high = cell.predicted_low_s, cell.predicted_high_s
    interval = (low, high) if low is not None and high is not None else None
    return prediction_cell(cell.predicted_s, interval, cell.eager_min_time_s)


_WHAT_IT_IS = (
    "hypothetical machines have these compute ceilings and one memory, whose bandwidth makes the"
    " balance; every operand is charged to it (the classic roofline model), so that balance alone"
    " decides: these are bounds, and there are no predictions for machines that do not exist"
)

_WHAT_MACHINES_ARE = (
    "known machines stand at their own balance, with the bounds of their own ceilings and, where"
    " the profile knows them, caches: how far they are from the line between the hypothetical ones"
    " is how far the abstraction holds"
)


_MARK = "!: the peak memory of this design exceeds the memory of that machine"


def ridge_blocks(ridge: RidgeSweep) -> Iterator[Block]:
    """Return what follows, the hypothetical machines, and the known ones."""
    called = zip(ridge.names, ridge.designs, strict=True)
    yield Facts(
        lines=(
            *((a, b) for a, b in called if a != b),
            ("ceilings of", f"{ridge.base.name}, {describe_threads(ridge.base, ridge.threads)}"),
            ("balance for", ridge.dtype),
            ("input", ridge.run),
        )
    )
    has_unfit = any(False in ridge.fits_on(each) for each in ridge.machines)
    lines = (
        *(*ridge.sentences, _WHAT_IT_IS),
        *((_WHAT_MACHINES_ARE,) if ridge.machines else ()),
        *((_MARK,) if has_unfit else ()),
    )
    yield from notes("In short", lines)
    yield _hypothetical(ridge)
    if ridge.machines:
        yield _known(ridge)
    said = list(ridge.warnings)
    unknown = [each.name for each in ridge.machines if each.memory_capacity_bytes is None]
    if unknown:
        said.append(f"memory capacity not known: {', '.join(unknown)}")
    if ridge.left_out:
        said.append(f"not on the axis: {', '.join(ridge.left_out)}")
    yield from notes("Warnings", said, urgent=bool(ridge.warnings))


def _others(ridge: RidgeSweep) -> list[int]:
    return [i for i in range(len(ridge.designs)) if i != ridge.reference]


def _headings(ridge: RidgeSweep) -> Iterator[Column]:
    base = ridge.names[ridge.reference]
    yield Column(heading="FLOP/byte", align="right")
    yield Column(heading=f"bound of {base}", align="right", sacrifice=1)
    for i in _others(ridge):
        yield Column(heading=f"{ridge.names[i]} / {base}", align="right")
    yield Column(heading="lowest bound")


def _cells(
    ridge: RidgeSweep, balance: float, times_s: tuple[float, ...], leads: str
) -> tuple[str, ...]:
    ratios = ridge.over_reference(times_s)
    return (
        format_intensity(balance),
        format_s(times_s[ridge.reference]),
        *(format_si(ratios[i], "", DIGITS) for i in _others(ridge)),
        leads,
    )


def _leads(ridge: RidgeSweep, machine: KnownMachine) -> str:
    """The design with the lowest bound, then those that do not fit: ``"A, B!"``."""
    best = ridge.best_on(machine)
    large = [
        f"{name}!"
        for name, each in zip(ridge.names, ridge.fits_on(machine), strict=True)
        if each is False
    ]
    return ", ".join([*([ridge.names[best]] if best is not None else []), *large])


def _hypothetical(ridge: RidgeSweep) -> Table:
    return Table(
        title="Hypothetical machines",
        columns=tuple(_headings(ridge)),
        rows=tuple(
            _cells(ridge, balance, times, ridge.names[times.index(min(times))])
            for balance, times in zip(ridge.balances, ridge.eager_min_time_s, strict=True)
        ),
    )


def _known(ridge: RidgeSweep) -> Table:
    return Table(
        title="Machines that there are",
        columns=(
            Column(heading="machine"),
            *_headings(ridge),
            Column(heading="caches", sacrifice=2),
        ),
        rows=tuple(
            (
                each.name,
                *_cells(ridge, each.balance, each.eager_min_time_s, _leads(ridge, each)),
                "its own" if each.has_caches else "not known",
            )
            for each in ridge.machines
        ),
    )
