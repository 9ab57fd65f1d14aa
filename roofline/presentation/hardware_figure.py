"""The picture of a machine drawn with matplotlib, without its global state."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from roofline.machine.hardware import HardwareProfile
from roofline.plots.roof import Diagonal
from roofline.presentation.charts.hardware_chart import (
    HEADING_SIZE_PT,
    TITLE_SIZE_PT,
    HardwareChart,
    hardware_chart_of,
)
from roofline.presentation.charts.hardware_curves import CurvePanel
from roofline.presentation.charts.hardware_losses import LossColumn, LossPanel
from roofline.presentation.charts.hardware_roof import RoofPanel
from roofline.presentation.charts.labels import Box, Label, Segment
from roofline.presentation.charts.lettering import SMALL_PT, TurnedText
from roofline.presentation.drawing import (
    GREY_TEXT,
    INK,
    SOFT,
    blank,
    framed,
    line,
    paper_over,
    text_at,
    write,
)

_TRACK = "#ececec"
_DASHES = (0, (5, 2.5))
_LOOKS: dict[str, dict[str, Any]] = {
    "hardware": {"linewidth": 1.6},
    "library": {"linewidth": 1.3, "linestyle": _DASHES},
    "alone": {"linewidth": 0.7},
}


def plot_hardware(profile: HardwareProfile, *, width_inch: float = 10.0) -> Figure:
    """The machine's own roof, its ceilings against what is on paper, and its curves over size.

    Args:
        profile: the machine; what it does not know has no panel.
        width_inch: the picture's width in inches; it is as high as its panels need.
    """
    return draw_hardware(hardware_chart_of(profile, width_pt=72 * width_inch))


def draw_hardware(chart: HardwareChart) -> Figure:
    """The figure of a chart."""
    figure = blank(chart.width_pt, chart.height_pt)
    axes = framed(figure, chart.roof.frame, chart.roof.x, chart.roof.y) if chart.roof else None
    curves = [(framed(figure, each.frame, each.x, each.y), each) for each in chart.curves]
    paper = paper_over(figure)
    if chart.roof and axes:
        _draw_roof(axes, paper, chart.roof, chart.threads)
    if chart.losses:
        _draw_losses(paper, chart.losses)
    for each, panel in curves:
        _draw_curves(each, paper, panel)
    for heading in chart.headings:
        left, y = heading.box.left, (heading.box.bottom + heading.box.top) / 2
        text_at(paper, left, y, heading.text, HEADING_SIZE_PT, weight="bold", va="center")
    left = 12.0
    text_at(paper, left, chart.height_pt - 20, chart.title, TITLE_SIZE_PT, weight="bold")
    text_at(paper, left, chart.height_pt - 34, chart.machine, 8.5, color="#4d4d4d")
    text_at(paper, left, 9.0, chart.provenance, SMALL_PT - 0.5, color=GREY_TEXT)
    return figure


def _draw_roof(axes: Axes, paper: Axes, panel: RoofPanel, threads: str) -> None:
    for each, label in zip(panel.lines, panel.line_labels, strict=True):
        (x0, y0), (x1, y1) = each.ceiling.ends(panel.x)
        look = _LOOKS["alone" if each.alone else each.ceiling.kind]
        axes.plot((x0, x1), (y0, y1), color=each.colour, zorder=2, **look)
        if label.leader:
            line(paper, label.leader, color=each.colour, linewidth=0.6)
        write(paper, label, colour=GREY_TEXT if each.alone else INK)
    for diagonal in panel.alone:
        _diagonal(axes, panel, diagonal, linewidth=0.6, color=SOFT)
    for diagonal, text in zip(panel.diagonals, panel.diagonal_labels, strict=True):
        _diagonal(axes, panel, diagonal, linewidth=1.3, color=INK)
        _along(paper, text)
    for x, y, label in panel.ridges:
        face: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": INK}
        axes.plot(x, y, marker="D", markersize=4.5, zorder=4, **face)
        write(paper, label, on_lines=True)
    words = {
        "hardware": f"hardware, {threads}",
        "library": f"library (torch), {threads}",
        "alone": "hardware, 1 thread",
    }
    # The corner above the nearest level's roof is empty in any roofline.
    left, y = panel.frame.left + 10, panel.frame.top - 8
    for kind in panel.kinds:
        line(paper, Segment(left, y, left + 22, y), color=INK, **_LOOKS[kind])
        text_at(paper, left + 28, y, words[kind], SMALL_PT, va="center_baseline")
        y -= 12


def _along(paper: Axes, text: TurnedText) -> None:
    """Words along a line, readable where lines of one thread cross them."""
    text_at(
        paper,
        text.x_pt,
        text.y_pt,
        text.text,
        text.size_pt,
        rotation=text.angle_deg,
        rotation_mode="anchor",
        ha="center",
        va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.2},
    )


def _diagonal(axes: Axes, panel: RoofPanel, diagonal: Diagonal, **look: Any) -> None:
    (x0, y0), (x1, y1) = diagonal.ends(panel.x, panel.y)
    axes.plot((x0, x1), (y0, y1), zorder=2, **look)


def _draw_losses(paper: Axes, panel: LossPanel) -> None:
    for name in panel.names:
        _to_right(paper, name)
    for column in panel.columns:
        _draw_column(paper, column)
    write(paper, panel.key, colour=GREY_TEXT)


def _draw_column(paper: Axes, column: LossColumn) -> None:
    text_at(
        paper,
        column.heading.box.left,
        (column.heading.box.bottom + column.heading.box.top) / 2,
        column.heading.text,
        SMALL_PT,
        weight="bold",
        va="center_baseline",
    )
    for each in column.bars:
        bar = each.bar
        _box(paper, Box(bar.left, bar.bottom, each.paper_x_pt, bar.top), facecolor=_TRACK)
        _box(paper, bar, facecolor=each.colour, alpha=0.55)
        line(paper, Segment(bar.right, bar.bottom, bar.right, bar.top), color=each.colour, lw=1.2)
        paper.scatter(each.median_x_pt, each.y_pt, s=13, color=INK, linewidth=0, zorder=5)
        _to_right(paper, each.words)
        _to_right(paper, each.loss)
    for segment, label in column.ticks:
        line(paper, segment, color=SOFT, linewidth=0.5, zorder=0.5)
        write(paper, label, colour=GREY_TEXT)


def _to_right(paper: Axes, label: Label) -> None:
    """A label at the right edge of its box: the estimate of its width errs on the wide side."""
    y = (label.box.bottom + label.box.top) / 2
    style = {"ha": "right", "va": "center_baseline"}
    text_at(paper, label.box.right, y, label.text, label.size_pt, **style)


def _box(paper: Axes, box: Box, **look: Any) -> None:
    size = (box.right - box.left, box.top - box.bottom)
    paper.add_patch(Rectangle((box.left, box.bottom), *size, edgecolor="none", zorder=1, **look))


def _draw_curves(axes: Axes, paper: Axes, panel: CurvePanel) -> None:
    for mark in panel.marks:
        dots: dict[str, Any] = {"color": SOFT, "linewidth": 0.8, "linestyle": (0, (1, 2))}
        axes.axvline(mark.size_byte, zorder=1, **dots)
        write(paper, mark.label, colour=GREY_TEXT)
    for course in panel.courses:
        sizes, values = zip(*course.points, strict=True)
        dot: dict[str, Any] = {"marker": "o", "markersize": 2.6}
        axes.plot(sizes, values, color=course.colour, linewidth=1.3, zorder=3, **dot)
        if course.label:
            box = course.label.box
            y = (box.bottom + box.top) / 2
            line(paper, Segment(box.left - 20, y, box.left - 5, y), color=course.colour, lw=1.3)
            write(paper, course.label, on_lines=True)
