"""Reports of sweeps over sizes and over machine balance."""

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
    number_column,
    warning_notes,
)
from roofline.core.text import NOTE
from roofline.core.units import MISSING, format_intensity, format_s, format_si
from roofline.design.comparison.axes import axis_names, point_text, text_of
from roofline.design.comparison.balance import BalancePoint, balance_points
from roofline.design.comparison.cells import DIGITS, SAME_BOUND, Cell, Verdict, factor_text, letter
from roofline.design.comparison.sweeps import map_axes, places_of_map, winner_changes
from roofline.machine.hardware import describe_threads

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

_PREDICTED_RULE = (
    "fastest: lowest predicted time; ~ not significant (the 80 % interval of the ratio includes 1)"
)
_MINIMUM_RULE = (
    "fastest without predictions: lowest minimum time (eager); ~ within"
    f" {100 * (SAME_BOUND - 1):.0f} %"
)
_MEMORY_RULE = "! peak memory exceeds the memory of the machine; excluded there"

_COLUMNS = 8  # Values that fit into 80 characters
_MOST_ROWS = 40
_MOST_TABLES = 24
_MOST_CHANGES = 20


def sweep_blocks(result: Comparison, view: View) -> Iterator[Block]:
    """Yield facts, findings, tables of the fastest design, and changes of it."""
    marks = tuple(map(letter, range(len(result.designs))))
    machines = ", ".join(each.name for each in result.hardware)
    if result.threads is not None and len(result.hardware) == 1:
        machines += f", {describe_threads(result.hardware[0], result.threads)}"
    facts = [
        *_named(result, marks),
        ("Machine", machines),
        ("Run", result.run),
        ("Predicted", f"from {result.calibration}" if result.calibration else ""),
        ("Points", f"{result.grid.count}: {axis_names(result.grid)}"),
    ]
    yield KeyValueBlock(lines=tuple((name, text) for name, text in facts if text))
    yield from notes("Result", [*result.sentences[1:], *result.problems])
    yield from notes("Legend", _legend(result))
    if len(result.varied) == 1:
        yield _list(result, marks)
    else:
        yield from _matrices(result, marks)
        yield from _changes(result)
    yield from warning_notes(result.warnings, view)


def _named(result: Comparison, marks: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, (mark, name) in enumerate(zip(marks, result.designs, strict=True)):
        yield mark, name + "  (reference)" * (index == result.reference)


def _legend(result: Comparison) -> Iterator[str]:
    bases = [each.basis for each in result.verdicts]
    if "predicted" in bases:
        yield _PREDICTED_RULE
    if count := bases.count("bound"):
        where = "" if count == len(bases) else f" ({count} of {len(bases)} points)"
        yield _MINIMUM_RULE + where
    if any(each.fits is False for cells in result.cells for each in cells):
        yield _MEMORY_RULE
    yield from unknown_capacity(result.hardware)
    if len(result.varied) > 1:
        yield "cells: fastest design, and its speedup over the reference (or the next design)"


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
            title=f"Fastest design: {where}{down.name} down, {across.name} across",
            columns=tuple(map(number_column, ("", *(text_of(across.values[i]) for i in columns)))),
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
        rest = f"{left_out} more tables" if left_out > 0 else "more rows"
        yield from notes("Not shown", [f"{rest}: -o FILE.csv"])


def _cell_text(verdict: Verdict, cells: Sequence[Cell], marks: Sequence[str]) -> str:
    """Return ``"B 3.4"``, ``"B 1.1~"`` if not significant, ``"only B, A!"`` if A does not fit."""
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
    lines = winner_changes(result, along)
    rest = len(lines) - _MOST_CHANGES
    if lines:
        yield Grid(
            title=f"Fastest design along {along}",
            columns=(Column(heading="at"), Column(heading="fastest")),
            rows=tuple(lines[:_MOST_CHANGES]),
            sums=((f"{rest} more", ""),) if rest > 0 else (),
        )


def _list(result: Comparison, marks: Sequence[str]) -> Grid:
    axis = result.varied[0]
    lines = zip(axis.values, result.cells, result.verdicts, strict=True)
    rest = len(axis.values) - _MOST_ROWS
    return Grid(
        title=f"Times by {axis.name}",
        columns=(*map(number_column, (axis.name, *marks)), Column(heading="fastest")),
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
        known = f"≥ {format_s(bound_s, DIGITS)}" if bound_s else MISSING
    return known + "!" * (cell.fits is False)


# -- machine balance -------------------------------------------------------------------------------

_HYPOTHETICAL = (
    "hypothetical machines: these compute ceilings, and one memory level of varied bandwidth that"
    " all operands cross (classic roofline model); minimum times only"
)
_KNOWN = "known machines: minimum times of their own ceilings and, if known, caches"


def balance_blocks(result: Comparison, view: View) -> Iterator[Block]:
    """Yield facts, findings, hypothetical and known machines."""
    assert result.balance is not None
    (base,), every = result.hardware, balance_points(result)
    known = [each for each in every if each.machine]
    called = zip(result.names, result.designs, strict=True)
    threads = describe_threads(base, result.threads or base.threads)
    yield KeyValueBlock(
        lines=(
            *((a, b) for a, b in called if a != b),
            ("Ceilings", f"{base.name} · {threads} · {result.balance.dtype}"),
            ("Input", result.run),
        )
    )
    has_unfit = any(cell.fits is False for each in known for cell in each.cells)
    yield from notes("Result", result.sentences[1:])
    yield _machines(result, "Hypothetical machines by balance", every[: len(every) - len(known)])
    if known:
        yield _machines(result, "Known machines by balance", known)
        yield from notes(
            "Legend", [_HYPOTHETICAL, *[_KNOWN] * bool(known), *[_MEMORY_RULE] * has_unfit]
        )
    said = list(result.warnings)
    unknown = [
        each.machine.name
        for each in known
        if each.machine and each.cells[0].memory_capacity_bytes is None
    ]
    if unknown:
        said.append(f"{NOTE}memory capacity not known: {', '.join(unknown)}")
    if result.balance.left_out:
        said.append(f"{NOTE}machines left out: {', '.join(result.balance.left_out)}")
    yield from warning_notes(said, view)


def _machines(result: Comparison, title: str, shown: Sequence[BalancePoint]) -> Grid:
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
            row = (place.machine.name, *row, "yes" if place.machine.has_caches else "unknown")
        rows.append(row)
    ratios = (number_column(f"{result.names[i]} / {base}") for i in others)
    columns = (
        number_column("balance (FLOP/B)"),
        number_column(f"minimum time of {base}", 1),
        *ratios,
    )
    columns = (*columns, Column(heading="lowest"))
    if any(each.machine for each in shown):
        columns = (Column(heading="machine"), *columns, Column(heading="caches", drop_priority=2))
    return Grid(title=title, columns=columns, rows=tuple(rows))
