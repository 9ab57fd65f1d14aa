"""Reports on a console: tables on a terminal, plain aligned text in a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Unpack

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from roofline.analysis import Analysis
from roofline.design.machine_comparison import MachineComparison
from roofline.machine.hardware import HardwareProfile
from roofline.presentation.plain import plain_text, widths_of
from roofline.presentation.reports.analysis_report import report_of
from roofline.presentation.reports.hardware_report import (
    HardwareEntry,
    hardware_list_report,
    hardware_report,
)
from roofline.presentation.reports.machines_report import machines_report
from roofline.presentation.reports.report import (
    Choice,
    Column,
    Facts,
    Grid,
    Notes,
    Report,
    ViewOptions,
)


def print_analysis(
    analysis: Analysis,
    console: Console,
    *,
    today: date | None = None,
    **view: Unpack[ViewOptions],
) -> None:
    """Prints the report on an analysis, the verdict first.

    Args:
        analysis: what to print.
        console: where to; on a terminal a table, else plain text as wide as it needs.
        today: the day that the hardware's age is counted to; None is the day it is.
        view: how to look at it: the fields of `View`.
    """
    print_report(report_of(analysis, today=today or date.today(), **view), console)


def print_machines(
    comparison: MachineComparison, console: Console, **view: Unpack[ViewOptions]
) -> None:
    """Prints the report on one model on several machines, the verdict first."""
    print_report(machines_report(comparison, **view), console)


def print_hardware(
    profile: HardwareProfile, console: Console, *, today: date | None = None
) -> None:
    """Prints a machine's ceilings, levels, overheads, host and references."""
    print_report(hardware_report(profile, today=today or date.today()), console)


def print_hardware_list(entries: Sequence[HardwareEntry], console: Console) -> None:
    """Prints the machines that are known, one a line."""
    print_report(hardware_list_report(entries), console)


def print_report(report: Report, console: Console) -> None:
    """Prints any report: laid out for people on a terminal, aligned for programs in a pipe."""
    if not console.is_terminal:
        # Soft wrap leaves lines whole: a pipe has no width.
        console.print(Text(plain_text(report)), end="", soft_wrap=True)
        return
    console.print(Text(report.headline, style="bold"))
    for block in report.blocks:
        console.print()
        match block:
            case Facts():
                console.print(_facts(block))
            case Grid():
                _print_grid(block, console)
            case Choice():
                _print_grid(grid_that_fits(block, console.width), console)
            case Notes():
                console.print(Text(block.title, style="bold yellow" if block.urgent else "bold"))
                for line in block.lines:
                    bullet = Table.grid(padding=(0, 1))
                    bullet.add_row("•", Text(line))
                    console.print(bullet)


def _facts(facts: Facts) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in facts.lines:
        grid.add_row(Text(name, style="bold cyan"), Text(text))
    return grid


def _print_grid(grid: Grid, console: Console) -> None:
    kept = columns_that_fit(grid, console.width)
    if grid.title:
        console.print(Text(grid.title, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i in kept:
        column = grid.columns[i]
        table.add_column(
            Text(column.heading),
            justify=column.align,
            no_wrap=column.align == "right",
            overflow="fold",
        )

    def cells(row: Sequence[str]) -> list[Text]:
        return [Text(_cut(row[i], width, grid.columns[i])) for i, width in kept.items()]

    for number, row in enumerate(grid.rows, start=1):
        last = number == len(grid.rows)
        table.add_row(*cells(row), end_section=last and bool(grid.sums))
    for row in grid.sums:
        table.add_row(*cells(row), style="bold")
    console.print(table)
    hidden = [column.heading for i, column in enumerate(grid.columns) if i not in kept]
    if hidden:
        names = ", ".join(hidden)
        console.print(Text(f"not shown on so narrow a terminal: {names}", style="dim"))


def _cut(text: str, width: int, column: Column) -> str:
    """`text` in at most `width` characters, if cells of `column` may be cut."""
    if len(text) <= width or not column.least:
        return text
    return f"…{text[1 - width :]}" if column.cut == "start" else f"{text[: width - 1]}…"


def grid_that_fits(choice: Choice, width: int) -> Grid:
    """The fullest layout that `width` characters hold, some columns sacrificed; else the last."""
    for grid in choice.grids:
        if _together(columns_that_fit(grid, width)) <= width:
            return grid
    return choice.grids[-1]


def columns_that_fit(grid: Grid, width: int) -> dict[int, int]:
    """The columns, by number, that fit `width` characters, and how many each of them gets."""
    widths = _widths(grid)
    least = [
        min(wanted, max(column.least, len(column.heading))) if column.least else wanted
        for wanted, column in zip(widths, grid.columns, strict=True)
    ]
    kept = dict(enumerate(least))
    while _together(kept) > width:
        candidates = [i for i in kept if grid.columns[i].sacrifice]
        if not candidates:
            break
        del kept[max(candidates, key=lambda i: grid.columns[i].sacrifice)]
    cut = sorted((i for i in kept if kept[i] < widths[i]), key=lambda i: widths[i] - kept[i])
    for number, i in enumerate(cut):
        # What is left over goes to all that were cut, those that need little first.
        spare = max(0, width - _together(kept)) // (len(cut) - number)
        kept[i] += min(spare, widths[i] - kept[i])
    return kept


def _widths(grid: Grid) -> list[int]:
    return widths_of([tuple(each.heading for each in grid.columns), *grid.rows, *grid.sums])


def _together(widths: Mapping[int, int]) -> int:
    """The characters that columns take side by side."""
    gap = 3
    return sum(width + gap for width in widths.values()) - gap
