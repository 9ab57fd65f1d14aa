"""A report as plain aligned text, as wide as what it says: for pipes, logs and diffs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.presentation.reports.report import Facts, Grid, Notes, Report, fullest

_GAP = "  "


def plain_text(report: Report) -> str:
    """The report without escape codes, wrapping or cut words; ends with a line end."""
    parts = [report.headline, *("\n".join(_block(block)) for block in map(fullest, report.blocks))]
    return "\n\n".join(parts) + "\n"


def _block(block: Facts | Grid | Notes) -> Iterable[str]:
    match block:
        case Facts():
            width = max((len(name) for name, _ in block.lines), default=0)
            for name, text in block.lines:
                yield f"{name:<{width}}{_GAP}{text}"
        case Grid():
            if block.title:
                yield block.title
            yield from _aligned(block)
        case Notes():
            yield block.title
            yield from (f"  {line}" for line in block.lines)


def _aligned(grid: Grid) -> Iterable[str]:
    rows = [tuple(column.heading for column in grid.columns), *grid.rows, *grid.sums]
    widths = widths_of(rows)
    for row in rows:
        cells = [
            f"{cell:>{width}}" if column.align == "right" else f"{cell:<{width}}"
            for cell, width, column in zip(row, widths, grid.columns, strict=True)
        ]
        yield _GAP.join(cells).rstrip()


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    """The characters that each column needs."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
