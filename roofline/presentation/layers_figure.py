"""The two-layer picture drawn with matplotlib, without its global state."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from roofline.analysis import Analysis
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile
from roofline.presentation.charts.labels import Segment
from roofline.presentation.charts.layers_chart import LayersChart, layers_chart_of
from roofline.presentation.charts.layers_key import KeyEntry
from roofline.presentation.drawing import GREY_TEXT, INK, line, write
from roofline.presentation.figure import LIBRARY_LINE, PAPER_LINE, draw

_SOFTWARE = "#0072b2"
_SHADES: dict[str, dict[str, Any]] = {
    # Strokes across one of them tell both apart in grey print.
    "loss": {"facecolor": "#fbe3d2", "edgecolor": "#eeb28b", "hatch": "////", "linewidth": 0.0},
    "software": {"facecolor": _SOFTWARE, "edgecolor": "none", "alpha": 0.13, "linewidth": 0.0},
}
_REACHED: dict[str, Any] = {"color": _SOFTWARE, "linewidth": 1.3}
_LINES: dict[str, dict[str, Any]] = {
    "measured": {"color": INK, "linewidth": 1.6},
    "library": LIBRARY_LINE,
    "paper": PAPER_LINE,
    "reached": _REACHED,
}


def plot_layers(
    subject: Analysis | HardwareProfile,
    *,
    paper: HardwareProfile | str | Path | None = None,
    labels: int = 12,
    width_inch: float = 10.0,
    height_inch: float | None = None,
) -> Figure:
    """The roof on paper over the measured one over what software reaches, shaded between.

    Args:
        subject: an analysis, or a machine's profile.
        paper: the machine whose figures are those on paper, a profile, its name or file; None: what
            the machine's own profile knows.
        labels: how many of the longest operators to name, where there is room.
        width_inch: the picture's width in inches.
        height_inch: its height in inches; None: as high as its words need.

    Raises:
        InputError: `paper` is of another sort of machine, or has no figures on paper for this one,
            or the picture is too low.
        HardwareError: `paper` is not known.
    """
    chart = layers_chart_of(
        subject,
        paper=load_hardware(paper) if isinstance(paper, str | Path) else paper,
        labels=labels,
        width_pt=72 * width_inch,
        height_pt=None if height_inch is None else 72 * height_inch,
    )
    return draw_layers(chart)


def draw_layers(chart: LayersChart) -> Figure:
    """The figure of a chart."""
    figure = draw(chart.base, on_shades=True)
    axes, over = figure.axes
    for area in chart.areas:
        shade = {"zorder": 0.6 if area.kind == "loss" else 0.7, **_SHADES[area.kind]}
        # In the axes, so that marks and lines stay on top; in points, as they were placed.
        axes.add_patch(Polygon(area.corners, closed=True, transform=over.transData, **shade))
    for segment in chart.reached:
        _inside(axes, over, segment, zorder=2.2, **_REACHED)
    for segment in chart.paper:
        _inside(axes, over, segment, zorder=2.4, **PAPER_LINE)
    for label in chart.paper_labels:
        if label.leader:
            line(over, label.leader, color=PAPER_LINE["color"], linewidth=0.5)
        write(over, label, colour=PAPER_LINE["color"])
    for x, y in chart.paper_ridges:
        face: dict[str, Any] = {
            "markerfacecolor": "white",
            "markeredgecolor": PAPER_LINE["color"],
        }
        axes.plot(x, y, marker="D", markersize=5, zorder=4, transform=over.transData, **face)
    for entry in chart.key.entries:
        _entry(over, entry)
    for note in chart.key.notes:
        write(over, note, colour=GREY_TEXT)
    return figure


def _inside(axes: Axes, over: Axes, segment: Segment, **look: Any) -> None:
    """A line in points that ends where the axes do."""
    ends = (segment.x0, segment.x1), (segment.y0, segment.y1)
    axes.plot(*ends, transform=over.transData, **look)


def _entry(over: Axes, entry: KeyEntry) -> None:
    x, y = entry.x_pt, entry.y_pt
    if entry.kind in _LINES:
        line(over, Segment(x - 10, y, x + 10, y), **_LINES[entry.kind])
    else:
        over.add_patch(Rectangle((x - 10, y - 4), 20, 8, **_SHADES[entry.kind]))
    write(over, entry.label)
