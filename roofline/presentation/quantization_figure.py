"""The picture of a quantisation drawn with matplotlib: layers as arrows under the roof."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.plots.style import Style
from roofline.presentation.charts.chart import Chart
from roofline.presentation.charts.quantization_chart import (
    LABELS,
    Arrow,
    QuantizationChart,
    quantization_chart_of,
)
from roofline.presentation.charts.quantization_moves import ONLY
from roofline.presentation.drawing import GREY_TEXT, arrow, write
from roofline.presentation.figure import draw
from roofline.quantization.result import Quantization

_RIM_PT = 1.4


def plot_quantization(
    quantization: Quantization,
    *,
    labels: int = LABELS,
    width_inch: float = 10.0,
    height_inch: float = 6.5,
) -> Figure:
    """The machine's roof, and an arrow from each layer before to it in the bits asked for.

    Args:
        quantisation: what to draw.
        labels: how many layers to name, those that save most first, where there is room.
        width_inch: the picture's width in inches.
        height_inch: its height in inches.
    """
    chart = quantization_chart_of(
        quantization, labels=labels, width_pt=72 * width_inch, height_pt=72 * height_inch
    )
    return draw_quantization(chart)


def draw_quantization(chart: QuantizationChart) -> Figure:
    """The figure of a chart."""
    figure = draw(_without_rings(chart.base))
    axes, over = figure.axes
    for each in chart.arrows:
        _draw_arrow(axes, over, each)
    for mark in chart.base.marks:
        if mark.point.type == ONLY:
            point = mark.point
            _ring(axes, point.flop_per_byte, point.flop_per_s, point.diameter_pt, mark.style)
    for entry in chart.base.legend:
        if entry.style is not None and entry.label.text == ONLY:
            _ring(over, entry.x_pt, entry.y_pt, entry.diameter_pt, entry.style)
            write(over, entry.label)
    write(over, chart.note, colour=GREY_TEXT)
    return figure


def _without_rings(base: Chart) -> Chart:
    """The chart without the discs that are rings here; their names stay."""
    rings = [each for each in base.marks if each.point.type == ONLY]
    return replace(
        base,
        marks=tuple(each for each in base.marks if each not in rings),
        named=(*base.named, *(each.label for each in rings if each.label)),
        legend=tuple(each for each in base.legend if each.label.text != ONLY),
    )


def _draw_arrow(axes: Axes, over: Axes, drawn: Arrow) -> None:
    arrow(
        axes,
        over,
        drawn.segment,
        is_hollow=drawn.is_hollow,
        connectionstyle=f"arc3,rad={drawn.bend}",
        mutation_scale=8,
        shrinkA=drawn.start_radius_pt,
        shrinkB=drawn.end_radius_pt,
        linewidth=0.9,
    )


def _ring(on: Axes, x: float, y: float, diameter_pt: float, style: Style) -> None:
    """The mark of a width that has no kernel: what lies below it stays visible."""
    on.plot(
        x,
        y,
        marker=style.marker,
        markersize=diameter_pt - _RIM_PT,
        markerfacecolor="none",
        markeredgecolor=style.colour,
        markeredgewidth=_RIM_PT,
        zorder=4.2,
    )
