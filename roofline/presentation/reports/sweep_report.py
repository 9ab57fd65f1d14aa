"""What a sweep of designs says, as plain data, and the formats it is written in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from roofline.analysis import unknown_capacity
from roofline.analysis.time_columns import prediction_cell
from roofline.design.pass_times import DIGITS
from roofline.design.sweeps.axes import Axis, Grid, point_text, text_of
from roofline.design.sweeps.cells import Cell
from roofline.design.sweeps.naming import letters
from roofline.design.sweeps.regions import places_of
from roofline.design.sweeps.result import SweepResult, axis_names
from roofline.design.sweeps.sentences import changes_of
from roofline.design.sweeps.verdicts import (
    RULE,
    RULE_OF_BOUNDS,
    RULE_OF_MEMORY,
    Verdict,
    factor_text,
)
from roofline.foundation.blocks import Block, Column, Facts, Notes, Report
from roofline.foundation.blocks import Grid as Table
from roofline.foundation.rows import cells_of, csv_text
from roofline.foundation.text import printable
from roofline.foundation.units import MISSING, format_s
from roofline.machine.hardware import describe_threads
from roofline.presentation.charts.sweep_cells import map_axes
from roofline.render.pages import report_html

_COLUMNS = 8
"""Values side by side: as many as fit 80 characters."""

_MOST_ROWS = 40
_MOST_TABLES = 24
_MOST_CHANGES = 20


def sweep_report(result: SweepResult) -> Report:
    """The report on a sweep: what follows from it, who wins where, and where that changes."""
    marks = letters(len(result.designs))
    blocks: list[Block] = [
        Facts(lines=tuple(_facts(result, marks))),
        Notes(title="In short", lines=tuple(_in_short(result)), urgent=False),
    ]
    if len(result.varied) == 1:
        blocks.append(_list(result, marks))
    else:
        blocks += _matrices(result, marks)
        blocks += _changes(result)
    warnings = tuple(map(printable, result.warnings))
    if warnings:
        blocks.append(Notes(title="Warnings", lines=warnings))
    names = " against ".join(map(printable, result.names))
    return Report(headline=f"{names} over {axis_names(result.grid)}", blocks=tuple(blocks))


def _facts(result: SweepResult, marks: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, (letter, name) in enumerate(zip(marks, result.designs, strict=True)):
        reference = "  (the reference)" if index == result.reference else ""
        yield letter, printable(name) + reference
    machines = ", ".join(printable(each.name) for each in result.hardware)
    if result.threads is not None and len(result.hardware) == 1:
        machines += f", {describe_threads(result.hardware[0], result.threads)}"
    yield "hardware", machines
    if result.run:
        yield "run", printable(result.run)
    if result.calibration:
        yield "predicted", f"from {printable(result.calibration)}"
    yield "points", f"{result.grid.count}: {printable(axis_names(result.grid))}"


def _in_short(result: SweepResult) -> Iterator[str]:
    yield from map(printable, result.sentences)
    yield from map(printable, result.problems)
    bases = [each.basis for each in result.verdicts]
    if "predicted" in bases:
        yield RULE
    if "bound" in bases:
        count = bases.count("bound")
        where = "" if count == len(bases) else f" ({count} of {len(bases)} points here)"
        yield RULE_OF_BOUNDS + where
    if any(each.fits is False for cells in result.cells for each in cells):
        yield RULE_OF_MEMORY
    yield from map(printable, unknown_capacity(result.hardware))
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
        yield Notes(title="Left out", lines=(f"{rest}: -o FILE.csv has all of it",), urgent=False)


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
        title=printable(f"{where}{down.name} down, {across.name} across"),
        columns=(
            Column(heading="", align="right"),
            *(Column(heading=printable(text_of(across.values[i])), align="right") for i in columns),
        ),
        rows=tuple(
            (printable(text_of(down.values[j])), *(cell(i, j) for i in columns))
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
    lines = [(printable(where), printable(said)) for where, said in found]
    rest = len(lines) - _MOST_CHANGES
    yield Table(
        title=f"Where the winner changes along {printable(along)}",
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
            printable(text_of(value)),
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
            Column(heading=printable(axis.name), align="right"),
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
        return f"bound {format_s(cell.bound_s, DIGITS)}" if cell.bound_s else MISSING
    low, high = cell.predicted_low_s, cell.predicted_high_s
    interval = (low, high) if low is not None and high is not None else None
    return prediction_cell(cell.predicted_s, interval, cell.bound_s)


# -- files -----------------------------------------------------------------------------------------


def sweep_html(result: SweepResult) -> str:
    """The report as a self-contained HTML fragment for notebooks."""
    return report_html(sweep_report(result))


def sweep_csv(result: SweepResult) -> str:
    """One row a design and point: axes, numbers with their unit in the name, and the verdict."""
    return csv_text(result.columns, cells_of(result.columns, result.rows()))
