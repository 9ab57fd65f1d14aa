"""Facts and tables of a report, as tests read them."""

from __future__ import annotations

from roofline.core.blocks import Grid, KeyValueBlock, Report


def facts_of(report: Report) -> dict[str, str]:
    """The facts of a report by name."""
    blocks = [each for each in report.blocks if isinstance(each, KeyValueBlock)]
    return {name: text for block in blocks for name, text in block.lines}


def grid_of(report: Report, title: str) -> Grid:
    """The one table whose title begins so."""
    grids = [each for each in report.blocks if isinstance(each, Grid)]
    (grid,) = [each for each in grids if each.title.startswith(title)]
    return grid


def column(grid: Grid, heading: str) -> list[str]:
    """The cells under a heading, those of sums at the end."""
    at = [each.heading for each in grid.columns].index(heading)
    return [row[at] for row in (*grid.rows, *grid.sums)]
