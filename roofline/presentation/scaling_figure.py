"""Training on several ranks drawn with matplotlib, without its global state."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator, PercentFormatter

from roofline.presentation.charts.labels import spread
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.palette import VERMILION
from roofline.presentation.charts.scaling_chart import Curve, ScalingChart, scaling_chart_of
from roofline.presentation.drawing import INK, SOFT, text_at
from roofline.presentation.figure import draw
from roofline.scaling.result import Scaling

_TICKS = 8.0
_NUMBERS = 11
"""How many numbers of ranks have room below the panel."""


def plot_scaling(scaling: Scaling, *, width_inch: float = 10.0, height_inch: float = 9.0) -> Figure:
    """The machine's roof with the link as one more, and efficiency over ranks below.

    Args:
        scaling: what to draw.
        width_inch: the picture's width in inches.
        height_inch: its height in inches.
    """
    chart = scaling_chart_of(scaling, width_pt=72 * width_inch, height_pt=72 * height_inch)
    return draw_scaling(chart)


def draw_scaling(chart: ScalingChart) -> Figure:
    """The figure of a chart."""
    figure = draw(chart.base)
    axes, paper = figure.axes
    if chart.link is not None:
        (x0, y0), (x1, y1) = chart.link
        axes.plot((x0, x1), (y0, y1), color=VERMILION, linewidth=2.0, zorder=2.5)
    panel = _panel(figure, chart)
    for curve in chart.curves:
        _draw_curve(panel, curve)
    if chart.asked is not None:
        ranks, efficiency = chart.asked
        panel.plot(ranks, efficiency, marker="o", markersize=7, color=VERMILION, zorder=5)
    text_at(paper, chart.panel.left, chart.panel.top + 8, chart.words, SMALL_PT, weight="bold")
    _name_curves(paper, chart)
    return figure


def _panel(figure: Figure, chart: ScalingChart) -> Axes:
    width_pt, height_pt = chart.base.width_pt, chart.base.height_pt
    box = chart.panel
    axes = figure.add_axes(
        (
            box.left / width_pt,
            box.bottom / height_pt,
            (box.right - box.left) / width_pt,
            (box.top - box.bottom) / height_pt,
        )
    )
    axes.set(xscale="log", xlim=(chart.ranks.low, chart.ranks.high), ylim=(0, chart.top))
    numbers = [x for x, _ in chart.curves[0].points] or [1.0]
    axes.xaxis.set_major_locator(FixedLocator(numbers))
    apart = -(-len(numbers) // _NUMBERS)
    names = [f"{each:.0f}" if not place % apart else "" for place, each in enumerate(numbers)]
    axes.xaxis.set_major_formatter(FixedFormatter(names))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axes.grid(color="#ececec", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=_TICKS, length=4, color=SOFT, labelcolor=INK)
    axes.set_xlabel(chart.ranks.title, fontsize=8.5, color=INK, labelpad=2)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(SOFT)
    return axes


def _draw_curve(axes: Axes, curve: Curve) -> None:
    if curve.points:
        x, y = zip(*curve.points, strict=True)
        strokes = (0, curve.strokes) if curve.strokes else "solid"
        axes.plot(x, y, color=curve.colour, linewidth=1.6, linestyle=strokes, zorder=3)


def _name_curves(paper: Axes, chart: ScalingChart) -> None:
    """The curves' names in their colours, right of their ends."""
    shown = [each for each in chart.curves if each.points]
    height_pt = (chart.panel.top - chart.panel.bottom) / chart.top
    ends = [chart.panel.bottom + height_pt * each.points[-1][1] for each in shown]
    places = spread(ends, gap=1.6 * SMALL_PT, low=chart.panel.bottom, high=chart.panel.top)
    for curve, y in zip(shown, places, strict=True):
        text_at(
            paper,
            chart.panel.right + 8,
            y,
            curve.name,
            SMALL_PT,
            color=curve.colour,
            verticalalignment="center",
        )
