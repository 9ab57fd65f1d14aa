"""Models compared, drawn with matplotlib: bars of time, and ratios of FLOP and time beside them."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.result import Comparison
from roofline.plots.style import BLUE, VERMILION
from roofline.presentation.charts.comparison_chart import (
    LEGEND_LINE_PT,
    TITLE_SIZE_PT,
    ComparisonChart,
    ComparisonPanel,
    KeyMark,
    comparison_chart_of,
)
from roofline.presentation.charts.comparison_rows import Bar, ChartRow, RatioMark
from roofline.presentation.charts.labels import Box, Label, Segment
from roofline.presentation.drawing import (
    GREY_TEXT,
    INK,
    SOFT,
    blank,
    line,
    paper_over,
    text_at,
    write,
)

_COLOURS = {"bound": "#aab7c4", "predicted": BLUE, "measured": VERMILION, "flop": INK}
_MARKERS = {"bound": "s", "predicted": "o", "measured": "^", "flop": "D"}
_GRID: dict[str, Any] = {"color": "#ececec", "linewidth": 0.7, "zorder": 0.5}
_INTERVAL: dict[str, Any] = {"color": INK, "linewidth": 1.0, "zorder": 4}


def plot_comparison(comparison: Comparison | ComparisonGrid, *, width_inch: float = 10.0) -> Figure:
    """Bound, prediction and measurement of each model, and beside them FLOP against time.

    Args:
        comparison: what to draw.
        width_inch: the picture's width in inches; its height follows from the number of models.
    """
    return draw_comparison(comparison_chart_of(comparison, width_pt=72 * width_inch))


def draw_comparison(chart: ComparisonChart) -> Figure:
    """The figure of a chart."""
    figure = blank(chart.width_pt, chart.height_pt)
    paper = paper_over(figure)
    for panel in chart.panels:
        _draw_panel(paper, panel)
    for entry in chart.key:
        _draw_key(paper, entry)
    y = chart.height_pt - 20
    for words in chart.title:
        text_at(paper, 14, y, words, TITLE_SIZE_PT, weight="bold")
        y -= 15
    for words in (chart.subtitle, *chart.legend):
        text_at(paper, 14, y, words, 8.5, color="#4d4d4d")
        y -= LEGEND_LINE_PT
    return figure


def _draw_panel(paper: Axes, panel: ComparisonPanel) -> None:
    if panel.title:
        _bold(paper, panel.title)
    for tick, label in panel.ticks:
        line(paper, tick, **_GRID)
        _centred(paper, label)
    if panel.one:
        line(paper, panel.one, color=SOFT, linewidth=1.0, zorder=1)
    left = panel.times.left
    line(paper, Segment(left, panel.times.bottom, left, panel.times.top), color=SOFT, linewidth=0.8)
    for row in panel.rows:
        _draw_row(paper, row)
    for caption in panel.captions:
        _centred(paper, caption)


def _draw_row(paper: Axes, row: ChartRow) -> None:
    middle = (row.name.box.bottom + row.name.box.top) / 2
    text_at(
        paper,
        row.name.box.right,
        middle,
        row.name.text,
        row.name.size_pt,
        horizontalalignment="right",
        verticalalignment="center_baseline",
    )
    for bar in row.bars:
        _draw_bar(paper, bar)
    for mark in row.marks:
        if mark.interval:
            line(paper, mark.interval, **{**_INTERVAL, "color": _COLOURS[mark.kind]})
        _draw_mark(paper, mark)


def _draw_bar(paper: Axes, bar: Bar) -> None:
    _rectangle(paper, bar.box, _COLOURS[bar.kind])
    if bar.interval:
        _draw_interval(paper, bar.interval, (bar.box.top - bar.box.bottom) / 4)
    write(paper, bar.label, on_lines=True)


def _draw_interval(paper: Axes, segment: Segment, half: float) -> None:
    line(paper, segment, **_INTERVAL)
    for x in (segment.x0, segment.x1):
        line(paper, Segment(x, segment.y0 - half, x, segment.y0 + half), **_INTERVAL)


def _draw_mark(paper: Axes, mark: RatioMark | KeyMark) -> None:
    colour = _COLOURS[mark.kind]
    hollow = mark.kind == "flop"
    paper.scatter(
        mark.x_pt,
        mark.y_pt,
        s=32,
        marker=_MARKERS[mark.kind],
        facecolor="white" if hollow else colour,
        edgecolor=colour if hollow else "white",
        linewidth=1.2 if hollow else 0.5,
        zorder=5,
    )


def _draw_key(paper: Axes, entry: KeyMark) -> None:
    if entry.kind != "flop":
        _rectangle(paper, Box.around(entry.x_pt, entry.y_pt, 18, 8), _COLOURS[entry.kind])
    _draw_mark(paper, entry)
    write(paper, entry.label, colour=GREY_TEXT)


def _rectangle(paper: Axes, box: Box, colour: str) -> None:
    size = (box.right - box.left, box.top - box.bottom)
    paper.add_patch(
        Rectangle((box.left, box.bottom), *size, facecolor=colour, edgecolor="none", zorder=2)
    )


def _centred(paper: Axes, label: Label) -> None:
    text_at(
        paper,
        (label.box.left + label.box.right) / 2,
        (label.box.bottom + label.box.top) / 2,
        label.text,
        label.size_pt,
        color=GREY_TEXT,
        horizontalalignment="center",
        verticalalignment="center_baseline",
    )


def _bold(paper: Axes, label: Label) -> None:
    middle = (label.box.bottom + label.box.top) / 2
    text_at(
        paper,
        label.box.left,
        middle,
        label.text,
        label.size_pt,
        weight="bold",
        verticalalignment="center_baseline",
    )
