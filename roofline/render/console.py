"""Reports on a console: tables on a terminal, aligned plain text in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from roofline.core.blocks import Choice, Code, Column, Grid, KeyValueBlock, Notes, Report, fullest

_GAP = "  "


def print_report(report: Report, console: Console) -> None:
    """Print a report: tables on a terminal, aligned plain text in a pipe."""
    if not console.is_terminal:
        # A pipe has no width: do not wrap.
        console.print(Text(plain_text(report)), end="", soft_wrap=True)
        return
    console.print(Text(report.headline, style="bold"))
    for block in report.blocks:
        console.print()
        match block:
            case KeyValueBlock():
                facts = Table.grid(padding=(0, 2))
                facts.add_column(no_wrap=True)
                facts.add_column(overflow="fold")
                for name, text in block.lines:
                    facts.add_row(Text(name, style="bold cyan"), Text(text))
                console.print(facts)
            case Grid():
                _print_grid(block, console)
            case Choice():
                _print_grid(grid_that_fits(block, console.width), console)
            case Code():
                # Code is copied: do not wrap.
                console.print(Text(block.text), soft_wrap=True)
            case Notes():
                style = "bold yellow" if block.urgent else "bold" if block.lines else ""
                console.print(Text(block.title, style=style))
                for line in block.lines:
                    bullet = Table.grid(padding=(0, 1))
                    bullet.add_row("•", Text(line))
                    console.print(bullet)


def _print_grid(grid: Grid, console: Console) -> None:
    kept = columns_that_fit(grid, console.width)
    if grid.title:
        console.print(Text(grid.title, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
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

    for row in grid.rows:
        table.add_row(*cells(row))
    for row in grid.sums:
        table.add_row(*cells(row), style="bold")
    console.print(table)
    hidden = [column.heading for i, column in enumerate(grid.columns) if i not in kept]
    if hidden:
        names = ", ".join(hidden)
        console.print(Text(f"Hidden at this width: {names}", style="dim"))


def _cut(text: str, width: int, column: Column) -> str:
    """Return `text` in at most `width` characters, if the column may be cut."""
    if len(text) <= width or not column.least:
        return text
    return f"…{text[1 - width :]}" if column.cut == "start" else f"{text[: width - 1]}…"


def grid_that_fits(choice: Choice, width: int) -> Grid:
    """Return the fullest layout that fits `width` characters, else the last."""
    for grid in choice.grids:
        if _together(columns_that_fit(grid, width)) <= width:
            return grid
    return choice.grids[-1]


def columns_that_fit(grid: Grid, width: int) -> dict[int, int]:
    """Return the columns that fit `width` characters, by number, with their widths."""
    widths = widths_of(_all_rows(grid))
    least = [
        min(wanted, max(column.least, len(column.heading))) if column.least else wanted
        for wanted, column in zip(widths, grid.columns, strict=True)
    ]
    kept = dict(enumerate(least))
    while _together(kept) > width:
        candidates = [i for i in kept if grid.columns[i].drop_priority]
        if not candidates:
            break
        del kept[max(candidates, key=lambda i: grid.columns[i].drop_priority)]
    cut = sorted((i for i in kept if kept[i] < widths[i]), key=lambda i: widths[i] - kept[i])
    for number, i in enumerate(cut):
        # Spare width goes to cut columns, smallest need first.
        spare = max(0, width - _together(kept)) // (len(cut) - number)
        kept[i] += min(spare, widths[i] - kept[i])
    return kept


def _all_rows(grid: Grid) -> list[tuple[str, ...]]:
    return [tuple(column.heading for column in grid.columns), *grid.rows, *grid.sums]


def _together(widths: Mapping[int, int]) -> int:
    """Return the width of columns with their gaps."""
    return sum(width + len(_GAP) for width in widths.values()) - len(_GAP)


def plain_text(report: Report) -> str:
    """Return the report as plain text without wrapping; ends with a newline."""
    parts = [report.headline, *("\n".join(_block(block)) for block in map(fullest, report.blocks))]
    return "\n\n".join(parts) + "\n"


def _block(block: KeyValueBlock | Grid | Notes | Code) -> Iterable[str]:
    match block:
        case KeyValueBlock():
            width = max((len(name) for name, _ in block.lines), default=0)
            for name, text in block.lines:
                yield f"{name:<{width}}{_GAP}{text}"
        case Grid():
            if block.title:
                yield block.title
            rows = _all_rows(block)
            widths = widths_of(rows)
            for row in rows:
                cells = [
                    f"{cell:>{width}}" if column.align == "right" else f"{cell:<{width}}"
                    for cell, width, column in zip(row, widths, block.columns, strict=True)
                ]
                yield _GAP.join(cells).rstrip()
        case Code():
            yield block.text
        case Notes():
            yield block.title
            yield from (f"  {line}" for line in block.lines)


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
