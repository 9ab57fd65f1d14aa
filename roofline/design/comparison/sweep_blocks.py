"""Reports on sweeps: who wins where, over sizes and over the balance of machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from roofline.analysis import unknown_capacity
from roofline.analysis.tables import prediction_cell
from roofline.core.blocks import (
    Block,
    Column,
    Grid,
    KeyValueBlock,
    View,
    notes,
    right,
    warning_notes,
)
from roofline.core.units import MISSING, format_intensity, format_s, format_si
from roofline.design.comparison.axes import axis_names, point_text, text_of
from roofline.design.comparison.balance import Place, places
from roofline.design.comparison.cells import DIGITS, SAME_BOUND, Cell, Verdict, factor_text, letter
from roofline.design.comparison.sweeps import changes_of, map_axes, places_of_map
from roofline.machine.hardware import describe_threads

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

_RULE = (
    "a design wins where its predicted time is the lowest; it is too close to call (~) where the"
    " 10-90 % interval of the ratio to another design's holds 1"
)
_RULE_OF_BOUNDS = (
    "where a design has no prediction all are compared by their bounds, which are too close to"
    f" call (~) within {100 * (SAME_BOUND - 1):.0f} %"
)
_RULE_OF_MEMORY = (
    "a design whose peak memory exceeds the memory there is marked !, and wins nothing"
)

_COLUMNS = 8  # Values side by side: as many as fit 80 characters
_MOST_ROWS = 40
_MOST_TABLES = 24
_MOST_CHANGES = 20


def sweep_blocks(result: Comparison, view: View) -> Iterator[Block]:
    """Yield what follows from a sweep, who wins where, and where that changes."""
    marks = tuple(map(letter, range(len(result.designs))))
    machines = ", ".join(each.name for each in result.hardware)
    if result.threads is not None and len(result.hardware) == 1:
        machines += f", {describe_threads(result.hardware[0], result.threads)}"
    facts = [
        *_named(result, marks),
        ("hardware", machines),
        ("run", result.run),
        ("predicted", f"from {result.calibration}" if result.calibration else ""),
        ("points", f"{result.grid.count}: {axis_names(result.grid)}"),
    ]
    yield KeyValueBlock(lines=tuple((name, text) for name, text in facts if text))
    yield from notes("In short", _in_short(result))
    if len(result.varied) == 1:
        yield _list(result, marks)
    else:
        yield from _matrices(result, marks)
        yield from _changes(result)
    yield from warning_notes(result.warnings, view)


def _named(result: Comparison, marks: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, (mark, name) in enumerate(zip(marks, result.designs, strict=True)):
        yield mark, name + "  (the reference)" * (index == result.reference)


def _in_short(result: Comparison) -> Iterator[str]:
    yield from result.sentences
    yield from result.problems
    bases = [each.basis for each in result.verdicts]
    if "predicted" in bases:
        yield _RULE
    if count := bases.count("bound"):
        where = "" if count == len(bases) else f" ({count} of {len(bases)} points here)"
        yield _RULE_OF_BOUNDS + where
    if any(each.fits is False for cells in result.cells for each in cells):
        yield _RULE_OF_MEMORY
    yield from unknown_capacity(result.hardware)
    if len(result.varied) > 1:
        yield (
            "cells: who wins, and how many times faster than the reference; where the reference"
            " wins, than the next"
        )


def _matrices(result: Comparison, marks: Sequence[str]) -> Iterator[Block]:
    across, down, facets = map_axes(result)
    assert down is not None
    starts = range(0, len(across.values), _COLUMNS)
    rows = range(min(len(down.values), _MOST_ROWS))
    parts = [(number, start) for number in range(facets.count) for start in starts]
    for number, start in parts[:_MOST_TABLES]:
        columns = range(start, min(start + _COLUMNS, len(across.values)))
        indexes = places_of_map(result, number, columns, rows)
        where = f"{point_text(facets.point(number))}: " if facets.axes else ""
        yield Grid(
            title=f"{where}{down.name} down, {across.name} across",
            columns=tuple(map(right, ("", *(text_of(across.values[i]) for i in columns)))),
            rows=tuple(
                (
                    text_of(down.values[j]),
                    *(_cell_text(result.verdicts[i], result.cells[i], marks) for i in indexes[j]),
                )
                for j in rows
            ),
        )
    left_out = len(parts) - _MOST_TABLES
    if left_out > 0 or len(down.values) > _MOST_ROWS:
        rest = f"{left_out} tables are left out" if left_out > 0 else "rows are left out"
        yield from notes("Left out", [f"{rest}: -o FILE.csv has all of it"])


def _cell_text(verdict: Verdict, cells: Sequence[Cell], marks: Sequence[str]) -> str:
    """Return ``"B 3.4"``, ``"B 1.1~"`` where it is close, ``"only B, A!"`` where A does not fit."""
    able = [mark for mark, each in zip(marks, cells, strict=True) if each.can_run]
    large = [f"{mark}!" for mark, each in zip(marks, cells, strict=True) if each.fits is False]
    if verdict.winner is not None:
        factor = f" {factor_text(verdict.factor)}" if verdict.factor else ""
        said = f"{marks[verdict.winner]}{factor}{'~' * verdict.is_close}"
    else:
        said = f"only {able[0]}" if len(able) == 1 else "" if large and not able else MISSING
    return ", ".join(filter(None, [said, *large]))


def _changes(result: Comparison) -> Iterator[Block]:
    along = result.varied[0].name
    lines = changes_of(result, along)
    rest = len(lines) - _MOST_CHANGES
    if lines:
        yield Grid(
            title=f"Where the winner changes along {along}",
            columns=(Column(heading="at"), Column(heading="who wins")),
            rows=tuple(lines[:_MOST_CHANGES]),
            sums=((f"{rest} more", ""),) if rest > 0 else (),
        )


def _list(result: Comparison, marks: Sequence[str]) -> Grid:
    axis = result.varied[0]
    lines = zip(axis.values, result.cells, result.verdicts, strict=True)
    rest = len(axis.values) - _MOST_ROWS
    return Grid(
        title="",
        columns=(*map(right, (axis.name, *marks)), Column(heading="winner")),
        rows=tuple(
            (text_of(value), *map(_time_text, cells), _cell_text(verdict, cells, marks))
            for value, cells, verdict in islice(lines, _MOST_ROWS)
        ),
        sums=((f"{rest} more", *("" for _ in marks), "-o FILE.csv"),) if rest > 0 else (),
    )


def _time_text(cell: Cell) -> str:
    if cell.problem:
        return "cannot be built"
    known = prediction_cell(cell.predicted_s, cell.interval_s, cell.eager_min_time_s)
    if cell.predicted_s is None:
        bound_s = cell.eager_min_time_s
        known = f"bound {format_s(bound_s, DIGITS)}" if bound_s else MISSING
    return known + "!" * (cell.fits is False)


# -- over the balance of machines ------------------------------------------------------------------

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


def balance_blocks(result: Comparison, view: View) -> Iterator[Block]:
    """Yield what follows, the hypothetical machines, and the known ones."""
    assert result.balance is not None
    (base,), every = result.hardware, places(result)
    known = [each for each in every if each.machine]
    called = zip(result.names, result.designs, strict=True)
    threads = describe_threads(base, result.threads or base.threads)
    yield KeyValueBlock(
        lines=(
            *((a, b) for a, b in called if a != b),
            ("ceilings of", f"{base.name}, {threads}"),
            ("balance for", result.balance.dtype),
            ("input", result.run),
        )
    )
    has_unfit = any(cell.fits is False for each in known for cell in each.cells)
    lines = [*result.sentences, _WHAT_IT_IS]
    lines += [_WHAT_MACHINES_ARE] * bool(known) + [_MARK] * has_unfit
    yield from notes("In short", lines)
    yield _machines(result, "Hypothetical machines", every[: len(every) - len(known)])
    if known:
        yield _machines(result, "Machines that there are", known)
    said = list(result.warnings)
    unknown = [
        each.machine.name
        for each in known
        if each.machine and each.cells[0].memory_capacity_bytes is None
    ]
    if unknown:
        said.append(f"memory capacity not known: {', '.join(unknown)}")
    if result.balance.left_out:
        said.append(f"not on the axis: {', '.join(result.balance.left_out)}")
    yield from warning_notes(said, view)


def _machines(result: Comparison, title: str, shown: Sequence[Place]) -> Grid:
    base = result.names[result.reference]
    others = [i for i in range(len(result.designs)) if i != result.reference]
    rows: list[tuple[str, ...]] = []
    for place in shown:
        ratios = place.over(result.reference)
        marked = zip(result.names, place.cells, strict=True)
        leads = [result.names[place.best]] if place.best is not None else []
        leads += [f"{name}!" for name, cell in marked if cell.fits is False]
        row = (
            format_intensity(place.balance),
            format_s(place.times_s[result.reference]),
            *(format_si(ratios[i], "", DIGITS) for i in others),
            ", ".join(leads),
        )
        if place.machine:
            row = (place.machine.name, *row, "its own" if place.machine.has_caches else "not known")
        rows.append(row)
    ratios = (right(f"{result.names[i]} / {base}") for i in others)
    columns = (right("FLOP/byte"), right(f"bound of {base}", 1), *ratios)
    columns = (*columns, Column(heading="lowest bound"))
    if any(each.machine for each in shown):
        columns = (Column(heading="machine"), *columns, Column(heading="caches", sacrifice=2))
    return Grid(title=title, columns=columns, rows=tuple(rows))
