"""Predicted against measured times drawn with matplotlib, without its global state."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from roofline.latency.validation import Validation
from roofline.plots.style import Style
from roofline.presentation.charts.labels import Box, Label, Segment
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.validation_chart import (
    TITLE_SIZE_PT,
    ValidationChart,
    ValidationMark,
    validation_chart_of,
)
from roofline.presentation.charts.validation_rows import ROW_DOT_PT, ErrorRows
from roofline.presentation.drawing import (
    GREY_TEXT,
    INK,
    blank,
    framed,
    line,
    paper_over,
    text_at,
    write,
)

_SHADES = ("#eef1f4", "#dbe2e9")
"""The band of ±20 %, and in it that of ±10 %."""

_EXACT: dict[str, Any] = {"color": INK, "linewidth": 0.8}
_INTERVAL: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.45}
_ON_LINES = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}


def plot_validation(
    validation: Validation, *, labels: int = 10, width_inch: float = 10.0
) -> Figure:
    """Predicted against measured times, run by run, and the errors by family.

    Args:
        validation: what to draw: its predictions; bounds, where nothing was predicted; speed-ups,
            where no model was run.
        labels: how many of the worst to name, where there is room; of few runs, all are.
        width_inch: the picture's width in inches; its height follows.
    """
    chart = validation_chart_of(validation, labels=labels, width_pt=72 * width_inch)
    return draw_validation(chart)


def draw_validation(chart: ValidationChart) -> Figure:
    """The figure of a chart."""
    figure = blank(chart.width_pt, chart.height_pt)
    if chart.x is not None and chart.y is not None:
        frame = Box(chart.x.start_pt, chart.y.start_pt, chart.x.end_pt, chart.y.end_pt)
        axes = framed(figure, frame, chart.x, chart.y)
        _draw_bands(axes, chart, (chart.x.low, chart.x.high))
        _draw_marks(axes, chart)
    paper = paper_over(figure)
    for mark in chart.marks:
        _draw_label(paper, chart, mark)
    if chart.rows:
        _draw_rows(paper, chart.rows, hollow=chart.drawn == "bounds")
    _draw_key(paper, chart)
    _draw_titles(paper, chart)
    return figure


def _draw_bands(axes: Axes, chart: ValidationChart, ends: tuple[float, float]) -> None:
    for share, shade in zip(chart.bands, _SHADES, strict=False):
        low, high = ([factor * end for end in ends] for factor in (1 - share, 1 + share))
        axes.fill_between(ends, low, high, color=shade, linewidth=0, zorder=0.6)
    axes.plot(ends, ends, zorder=2, **_EXACT)


def _draw_marks(axes: Axes, chart: ValidationChart) -> None:
    for mark in chart.marks:
        if mark.interval:
            x, colour = mark.point.measured, mark.point.style.colour
            axes.plot((x, x), mark.interval, color=colour, zorder=3, **_INTERVAL)
    for style in dict.fromkeys(mark.point.style for mark in chart.marks):
        points = [mark.point for mark in chart.marks if mark.point.style == style]
        places = ([each.measured for each in points], [each.said for each in points])
        axes.scatter(*places, **_look(style, chart.dot_pt, hollow=chart.drawn == "bounds"))


def _draw_label(paper: Axes, chart: ValidationChart, mark: ValidationMark) -> None:
    label = mark.label
    if label is None or chart.x is None:
        return
    if label.leader:
        line(paper, label.leader, color=INK, linewidth=0.5, zorder=5)
    if label.box.right < chart.x.pt(mark.point.measured):
        # Left of the mark, it is the end of the words that belongs to it.
        _to_right(paper, label, INK, bbox=_ON_LINES)
    else:
        write(paper, label, on_lines=True)


def _look(style: Style, diameter_pt: float, *, hollow: bool = False) -> dict[str, Any]:
    size = {"o": 1.0, "s": 0.8, "D": 0.6}.get(style.marker, 1.1) * diameter_pt**2
    face, edge, width = ("none", style.colour, 1.0) if hollow else (style.colour, "white", 0.3)
    return {
        "s": size,
        "marker": style.marker,
        "facecolor": face,
        "edgecolor": edge,
        "linewidth": width,
        "alpha": 0.85,
        "zorder": 4,
    }


def _draw_rows(paper: Axes, rows: ErrorRows, *, hollow: bool) -> None:
    for box, shade in zip(rows.bands, _SHADES, strict=False):
        _box(paper, box, shade)
    for tick, label in rows.ticks:
        line(paper, tick, color="#ececec", linewidth=0.7, zorder=0.5)
        write(paper, label)
    line(paper, rows.exact, zorder=2, **_EXACT)
    write(paper, rows.title)
    for heading in rows.headings:
        _to_right(paper, heading, GREY_TEXT)
    for row in rows.rows:
        _to_right(paper, row.name, INK)
        _to_right(paper, row.mean, INK)
        for x, y, style in row.dots:
            paper.scatter(x, y, **_look(style, ROW_DOT_PT, hollow=hollow))


def _to_right(paper: Axes, label: Label, colour: str, **style: Any) -> None:
    """A label from the right of its box, so that those of a column end in one line."""
    text_at(
        paper,
        label.box.right,
        (label.box.bottom + label.box.top) / 2,
        label.text,
        label.size_pt,
        color=colour,
        horizontalalignment="right",
        verticalalignment="center_baseline",
        **style,
    )


def _box(paper: Axes, box: Box, shade: str) -> None:
    size = (box.right - box.left, box.top - box.bottom)
    paper.add_patch(
        Rectangle((box.left, box.bottom), *size, facecolor=shade, edgecolor="none", zorder=0.4)
    )


def _draw_key(paper: Axes, chart: ValidationChart) -> None:
    for entry in chart.key:
        x, y = entry.x_pt, entry.y_pt
        if entry.style:
            paper.scatter(x, y, **_look(entry.style, 7.0, hollow=chart.drawn == "bounds"))
        elif entry.line == "exact":
            line(paper, Segment(x - 10, y, x + 10, y), **_EXACT)
        elif entry.line == "interval":
            line(paper, Segment(x, y - 6, x, y + 6), color=INK, **_INTERVAL)
        else:
            shade = _SHADES[0] if entry.line == "within 20" else _SHADES[1]
            _box(paper, Box.around(x, y, 20, 9), shade)
        write(paper, entry.label)


def _draw_titles(paper: Axes, chart: ValidationChart) -> None:
    left, y = 12.0, chart.height_pt - 22
    for text in chart.title:
        text_at(paper, left, y, text, TITLE_SIZE_PT, weight="bold")
        y -= 17.0
    text_at(paper, left, y + 2, chart.subtitle, 8.5, color="#4d4d4d")
    for i, note in enumerate(reversed(chart.notes)):
        text_at(paper, left, 10 + 13 * i, note, SMALL_PT, color=GREY_TEXT)
