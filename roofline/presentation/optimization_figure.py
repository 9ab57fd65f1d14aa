"""The picture of an optimization drawn with matplotlib: arrows under the roof."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from matplotlib.figure import Figure

from roofline.presentation.charts.optimization_chart import (
    LABELS,
    OptimizationChart,
    optimization_chart_of,
)
from roofline.presentation.drawing import GREY_TEXT, arrow, write
from roofline.presentation.figure import draw
from roofline.substitution.result import Optimization


def plot_optimization(
    optimization: Optimization,
    *,
    labels: int = LABELS,
    width_inch: float = 10.0,
    height_inch: float = 6.5,
) -> Figure:
    """The machine's roof, and an arrow from each rewrite's operators before to those after.

    Args:
        optimization: what to draw.
        labels: how many rewrites to name, those that save most first, where there is room.
        width_inch: the picture's width in inches.
        height_inch: its height in inches.
    """
    chart = optimization_chart_of(
        optimization, labels=labels, width_pt=72 * width_inch, height_pt=72 * height_inch
    )
    return draw_optimization(chart)


def draw_optimization(chart: OptimizationChart) -> Figure:
    """The figure of a chart."""
    figure = draw(chart.base)
    axes, over = figure.axes
    for each in chart.arrows:
        arrow(axes, over, each.segment, mutation_scale=7, shrinkA=0, shrinkB=0, linewidth=1.0)
    if chart.note:
        write(over, chart.note, colour=GREY_TEXT)
    return figure
