"""The roofs of several machines drawn with matplotlib, without its global state."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from roofline.design.machine_comparison import MachineComparison
from roofline.placement import Bound
from roofline.plots.style import RoofStyle
from roofline.presentation.charts.labels import Box, Segment
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.machines_chart import (
    TITLE_SIZE_PT,
    MachinesChart,
    machines_chart_of,
)
from roofline.presentation.charts.machines_dots import BADGE_PT, DOT_PT
from roofline.presentation.charts.machines_panel import SWATCH_PT, NumberedName, Panel
from roofline.presentation.charts.machines_roofs import MachineRoof, Turns
from roofline.presentation.drawing import GREY_TEXT, line, sheet, text_at, turned, write

_STROKE_PT = 5.0
_HANG = "#b0b0b0"


def plot_machines(
    comparison: MachineComparison, *, labels: int = 8, width_inch: float = 10.0
) -> Figure:
    """The roofs of several machines, what binds the model on each, and who changes sides.

    Args:
        comparison: what to draw.
        labels: how many operators to number; those that change sides come first.
        width_inch: the picture's width in inches; it is as high as the machines need.
    """
    return draw_machines(machines_chart_of(comparison, labels=labels, width_pt=72 * width_inch))


def draw_machines(chart: MachinesChart) -> Figure:
    """The figure of a chart."""
    figure, axes, paper = sheet(chart.width_pt, chart.height_pt, chart.frame, chart.x, chart.y)
    if chart.band:
        _box(paper, chart.band.box, facecolor="#f4f1e6", edgecolor="none", zorder=-1)
        # Paper lies over the axes, which must not hide the band.
        axes.set_facecolor("none")
        axes.set_zorder(1)
        paper.set_zorder(0)
    over = figure.add_axes((0, 0, 1, 1), facecolor="none")
    over.set_axis_off()
    over.set(xlim=(0, chart.width_pt), ylim=(0, chart.height_pt), zorder=2)
    for roof in chart.roofs:
        _draw_roof(axes, over, chart, roof)
    _draw_operators(over, chart)
    if chart.band:
        write(over, chart.band.label, colour=GREY_TEXT)
    for text in chart.level_labels:
        turned(over, text)
    _draw_panel(over, chart.panel)
    for name in chart.names:
        _draw_name(over, name)
    _draw_titles(over, chart)
    return figure


def _box(paper: Axes, box: Box, **look: Any) -> None:
    size = (box.right - box.left, box.top - box.bottom)
    paper.add_patch(Rectangle((box.left, box.bottom), *size, **look))


def _stroked(style: RoofStyle, turns: Turns) -> dict[str, Any]:
    """The line style of a roof; where lines share a place, they take turns of a few points."""
    if turns.of > 1:
        return {
            "linestyle": (-_STROKE_PT * turns.turn, (_STROKE_PT, _STROKE_PT * (turns.of - 1))),
            "dash_capstyle": "butt",
        }
    return {"linestyle": (0, style.strokes)} if style.strokes else {}


def _draw_roof(axes: Axes, paper: Axes, chart: MachinesChart, roof: MachineRoof) -> None:
    look: dict[str, Any] = {"color": roof.style.colour}
    for diagonal in roof.diagonals:
        (x0, y0), (x1, y1) = diagonal.ends(chart.x, chart.y)
        farthest = diagonal is roof.diagonals[-1]
        width = 1.6 if farthest else 0.7
        turns = _stroked(roof.style, roof.diagonal_turns) if farthest else {}
        # Widths of strokes are in line widths.
        axes.plot((x0, x1), (y0, y1), linewidth=width, zorder=2, **_per(turns, width), **look)
    if roof.ceiling and roof.label:
        (x0, y0), (x1, y1) = roof.ceiling.ends(chart.x)
        turns = _stroked(roof.style, roof.ceiling_turns)
        axes.plot((x0, x1), (y0, y1), linewidth=1.6, zorder=2, **_per(turns, 1.6), **look)
        if roof.label.leader:
            line(paper, roof.label.leader, linewidth=1.0, **look)
        write(paper, roof.label)
    if roof.dots:
        xs, ys = zip(*roof.dots, strict=True)
        axes.scatter(xs, ys, s=9, linewidth=0, alpha=0.45, zorder=3, **look)


def _per(look: dict[str, Any], width: float) -> dict[str, Any]:
    if "linestyle" not in look:
        return look
    offset, strokes = look["linestyle"]
    return look | {"linestyle": (offset / width, tuple(each / width for each in strokes))}


def _mark(paper: Axes, x: float, y: float, bound: Bound, colour: str, *, size: float) -> None:
    """A disc where compute binds, a ring where memory does, a cross where FLOP are unknown."""
    look: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.7}
    if bound is Bound.MEMORY:
        look = {"facecolor": "white", "edgecolor": colour, "linewidth": 1.4}
    if bound is Bound.UNKNOWN:
        paper.scatter(x, y, s=(0.75 * size) ** 2, marker="x", color=colour, linewidth=1.2, zorder=7)
        return
    area = (size if bound is Bound.COMPUTE else size - 1) ** 2
    paper.scatter(x, y, s=area, marker="o", zorder=7, **look)


def _draw_operators(paper: Axes, chart: MachinesChart) -> None:
    for operator in chart.operators:
        for (x0, y0), (x1, y1) in zip(operator.line, operator.line[1:], strict=False):
            line(paper, Segment(x0, y0, x1, y1), color=_HANG, linewidth=0.7, zorder=3)
        for dot in operator.dots:
            colour = chart.roofs[dot.machine].style.colour
            _mark(paper, dot.x_pt, dot.y_pt, dot.bound, colour, size=DOT_PT)
        _draw_badge(paper, operator.number, operator.badge.box)


def _draw_badge(paper: Axes, number: int, box: Box) -> None:
    x, y = (box.left + box.right) / 2, (box.bottom + box.top) / 2
    area = (box.right - box.left) ** 2
    paper.scatter(x, y, s=area, facecolor="#4d4d4d", edgecolor="none", zorder=5)
    text_at(
        paper,
        x,
        y,
        str(number),
        SMALL_PT - 0.5,
        color="white",
        horizontalalignment="center",
        verticalalignment="center_baseline",
    )


def _draw_panel(paper: Axes, panel: Panel) -> None:
    for heading in panel.headings:
        write(paper, heading, colour=GREY_TEXT)
    first = panel.rows[0] if panel.rows else None
    for number, (_, x) in enumerate(first.sides if first else (), start=1):
        y = panel.headings[0].box
        middle = (y.bottom + y.top) / 2
        _draw_badge(paper, number, Box.around(x, middle, BADGE_PT, BADGE_PT))
    for tick, label in panel.ticks:
        line(paper, tick, color="#ececec", linewidth=0.7, zorder=0.5)
        write(paper, label, colour=GREY_TEXT)
    for row in panel.rows:
        style, y = row.style, row.y_pt
        left = panel.area.left
        strokes: dict[str, Any] = {"linestyle": (0, style.strokes)} if style.strokes else {}
        line(
            paper, Segment(left, y, left + SWATCH_PT, y), color=style.colour, linewidth=2, **strokes
        )
        for word in row.words:
            write(paper, word)
        if row.time_x_pt is not None:
            paper.scatter(row.time_x_pt, y, s=30, marker="D", color=style.colour, linewidth=0)
        for bound, box in row.bars:
            fill = {Bound.COMPUTE: style.colour, Bound.MEMORY: "white"}.get(bound, "#d9d9d9")
            _box(paper, box, facecolor=fill, edgecolor=style.colour, linewidth=0.9)
        for bound, x in row.sides:
            _mark(paper, x, y, bound, style.colour, size=DOT_PT + 0.5)
    for bound, label in panel.key:
        middle = (label.box.bottom + label.box.top) / 2
        _mark(paper, label.box.left - 7, middle, bound, "#4d4d4d", size=DOT_PT)
        write(paper, label, colour=GREY_TEXT)


def _draw_name(paper: Axes, name: NumberedName) -> None:
    _draw_badge(paper, name.number, name.badge)
    write(paper, name.label)


def _draw_titles(paper: Axes, chart: MachinesChart) -> None:
    left, small = 12.0, SMALL_PT - 0.5
    top = chart.height_pt
    text_at(paper, left, top - 22, chart.title, TITLE_SIZE_PT, weight="bold")
    text_at(paper, left, top - 37, chart.verdict, 8.5, color="#4d4d4d")
    lines = [(chart.provenance, GREY_TEXT), *((note, GREY_TEXT) for note in chart.notes)]
    for i, (text, colour) in enumerate(lines):
        text_at(paper, left, 10 + 13 * i, text, small, color=colour)
