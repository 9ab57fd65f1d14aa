"""The tables of operators taken together: by module as a tree, by type, by phase."""

from __future__ import annotations

from typing import Literal

from roofline.analysis import Analysis, Branch, Group, Whole, group_of, groups, module_tree, working
from roofline.analysis.words import MODEL_ITSELF, sum_of_flop, sum_of_intensity
from roofline.foundation.blocks import Column, Grid, View
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_si,
)
from roofline.presentation.reports.time_columns import TimeColumns
from roofline.workload.operators import PHASES

_INDENT = "  "


def _columns(view: View, times: TimeColumns) -> tuple[Column, ...]:
    """The columns of sums, after that of their names."""
    return (
        Column(heading="calls", align="right", sacrifice=3),
        *_sums(view, times),
    )


def _sums(view: View, times: TimeColumns) -> tuple[Column, ...]:
    return (
        # Beside other times than bounds, the work gives way.
        Column(heading="FLOP", align="right", sacrifice=1 * times.is_more_than_bounds),
        Column(heading="bytes", align="right", sacrifice=2 * times.is_more_than_bounds),
        *([Column(heading="fused bytes", align="right")] if view.fused else []),
        Column(heading="FLOP/byte", align="right", sacrifice=4),
        *times.of_groups(),
    )


def type_grid(analysis: Analysis, view: View) -> Grid:
    """The types that take longest, then the others as one row, all, and what is free."""
    times = TimeColumns(analysis)
    found = groups(analysis, lambda row: printable(row.type), time_s=times.group_s)
    shown, others = found[: view.rows()], found[view.rows() :]
    names = {each.name for each in others}
    rows = working(analysis.operators)
    whole = Whole.of(analysis)
    sums: list[tuple[str, ...]] = []
    if others:
        rest = [row for row in rows if printable(row.type) in names]
        sums.append(_cells(group_of(f"{len(others)} more", rest, whole), view, times))
    sums.append(_cells(group_of("total", rows, whole), view, times, is_all=True))
    if free := len(analysis.operators) - len(rows):
        sums.append(("free, beside these", str(free), *[""] * len(_sums(view, times))))
    return Grid(
        title="Types of operators",
        columns=(Column(heading="type"), *_columns(view, times)),
        rows=tuple(_cells(each, view, times) for each in shown),
        sums=tuple(sums),
    )


def phase_grid(analysis: Analysis, view: View) -> Grid:
    """The phases of the run, in their order; all together where they are what was asked for."""
    times = TimeColumns(analysis)
    by_phase = {each.name: each for each in groups(analysis, lambda row: row.phase)}
    sums: tuple[tuple[str, ...], ...] = ()
    if view.by == "phase":
        total = group_of("total", working(analysis.operators), Whole.of(analysis))
        sums = (_cells(total, view, times, is_all=True),)
    return Grid(
        title="Phases",
        columns=(Column(heading="phase"), *_columns(view, times)),
        rows=tuple(_cells(by_phase[each], view, times) for each in PHASES if each in by_phase),
        sums=sums,
    )


def module_grid(analysis: Analysis, view: View) -> Grid:
    """The tree of modules, each with all that is in it; the model itself is the total."""
    times = TimeColumns(analysis)
    branches = module_tree(analysis, depth=view.levels, top=view.top, time_s=times.group_s)
    knows_modules = bool(analysis.modules)
    known = [
        Column(heading="class", sacrifice=5),
        Column(heading="calls", align="right", sacrifice=3),
        Column(heading="parameters", align="right", sacrifice=2),
    ]
    return Grid(
        title="Modules, each with all that is in it",
        columns=(
            Column(heading="module", least=16),
            *(known if knows_modules else []),
            Column(heading="operators", align="right", sacrifice=4),
            *_sums(view, times),
        ),
        rows=tuple(
            (
                branch_name(each),
                *(_of_module(each) if knows_modules else ()),
                *_cells(each.group, view, times, is_all=not each.depth)[1:],
            )
            for each in branches
        ),
    )


def branch_name(branch: Branch) -> str:
    """The last name of a module's path, as deep as it stands in the tree."""
    name = printable(branch.path.rpartition(".")[2]) or MODEL_ITSELF
    if branch.part == "own":
        name = "(own)"
    elif branch.part == "rest":
        name = f"({branch.group.name})"
    return _INDENT * branch.depth + name


def _of_module(branch: Branch) -> tuple[str, ...]:
    calls = f"{branch.calls:,}" if branch.calls else MISSING
    return (
        printable(branch.kind),
        calls if branch.part == "whole" else "",
        MISSING if branch.parameters is None else format_si(branch.parameters, ""),
    )


def _cells(
    group: Group, view: View, times: TimeColumns, *, is_all: bool = False
) -> tuple[str, ...]:
    flop, byte = group.work.flop or 0, group.work.traffic_byte
    return (
        group.name,
        str(group.calls),
        sum_of_flop(flop, group.unknown_operators),
        format_byte(byte),
        *([format_byte(group.fused_byte)] if view.fused else []),
        sum_of_intensity(flop, byte, group.unknown_operators),
        *times.group_cells(group, is_all=is_all),
    )


def group_grid(analysis: Analysis, by: Literal["module", "type", "phase"], view: View) -> Grid:
    """The table of sums that was asked for."""
    make = {"module": module_grid, "type": type_grid, "phase": phase_grid}[by]
    return make(analysis, view)
