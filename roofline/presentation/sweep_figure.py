"""Sweeps drawn with matplotlib, without its global state."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from roofline.design.sweeps.result import SweepResult
from roofline.design.sweeps.ridge import RidgeSweep
from roofline.presentation.charts.labels import Box, Label, Segment
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.sweep_cells import (
    CellMark,
    Facet,
    SweepMap,
    sweep_map_of,
)
from roofline.presentation.charts.sweep_hatching import hatching
from roofline.presentation.charts.sweep_lines import (
    DesignLine,
    LinesChart,
    can_be_lines,
    lines_chart_of,
)
from roofline.presentation.charts.sweep_ridge import RidgeChart, ridge_chart_of
from roofline.presentation.charts.sweep_words import TITLE_PT
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

_LEAD = "#c8c8c8"
"""Of the lines from machines to their balance."""


def plot_sweep(result: SweepResult, *, width_inch: float = 10.0) -> Figure:
    """Who wins where: a heat map over two axes; the times as lines over a single axis of numbers.

    Args:
        result: what to draw.
        width_inch: the picture's width in inches; its height follows.
    """
    if can_be_lines(result):
        return draw_lines(lines_chart_of(result, width_pt=72 * width_inch))
    return draw_map(sweep_map_of(result, width_pt=72 * width_inch))


def plot_ridge(ridge: RidgeSweep, *, width_inch: float = 10.0) -> Figure:
    """The bound of each design over the reference's, by the balance of machines."""
    return draw_ridge(ridge_chart_of(ridge, width_pt=72 * width_inch))


def draw_map(chart: SweepMap) -> Figure:
    """The figure of a heat map."""
    figure = blank(chart.width_pt, chart.height_pt)
    paper = paper_over(figure)
    for facet in chart.facets:
        _draw_facet(paper, facet)
    for mark in chart.key:
        _draw_cell(paper, mark, size_pt=7.0)
    for label in chart.key_labels:
        write(paper, label)
    _draw_words(paper, chart.title, chart.subtitle, chart.height_pt, chart.notes)
    return figure


def _draw_facet(paper: Axes, facet: Facet) -> None:
    for cell in facet.cells:
        _draw_cell(paper, cell, size_pt=7.6)
    for label in facet.labels:
        _centred(paper, label, INK)
    if facet.up:
        _centred(paper, facet.up, INK, rotation=90)


def _draw_cell(paper: Axes, cell: CellMark, *, size_pt: float) -> None:
    corner = (cell.box.left, cell.box.bottom)
    size = (cell.box.right - cell.box.left, cell.box.top - cell.box.bottom)
    paper.add_patch(
        Rectangle(corner, *size, facecolor=cell.colour, edgecolor="white", linewidth=0.8, zorder=2)
    )
    for each in hatching(cell.box) if cell.is_hatched else ():
        line(paper, each, color="#6e6e6e", linewidth=0.5, alpha=0.7, zorder=2.5)
    if cell.is_crossed:
        left, right = cell.box.left + 2, cell.box.right - 2
        low, high = cell.box.bottom + 2, cell.box.top - 2
        for ends in (Segment(left, low, right, high), Segment(left, high, right, low)):
            line(paper, ends, color="#6e6e6e", linewidth=0.8, zorder=2.6)
    style: dict[str, Any] = {}
    if cell.is_hatched or cell.is_crossed:
        style["bbox"] = {"facecolor": cell.colour, "edgecolor": "none", "pad": 0.8}
    text_at(
        paper,
        (cell.box.left + cell.box.right) / 2,
        (cell.box.bottom + cell.box.top) / 2,
        cell.text,
        size_pt,
        color=cell.ink,
        horizontalalignment="center",
        verticalalignment="center_baseline",
        **(style if cell.text else {}),
    )


def draw_lines(chart: LinesChart) -> Figure:
    """The figure of lines over one axis."""
    figure = blank(chart.width_pt, chart.height_pt)
    axes = framed(figure, _frame(chart), chart.x, chart.y)
    for each in chart.lines:
        _draw_line(axes, each)
    paper = paper_over(figure)
    _name_lines(paper, chart.labels, chart.lines)
    _draw_words(paper, chart.title, chart.subtitle, chart.height_pt, chart.notes)
    return figure


def _draw_line(axes: Axes, of: DesignLine) -> None:
    look: dict[str, Any] = {"color": of.colour, "zorder": 3}
    if of.band:
        x, low, high = zip(*of.band, strict=True)
        axes.fill_between(x, low, high, color=of.colour, alpha=0.16, linewidth=0, zorder=1)
    if of.bounds:
        x, y = zip(*of.bounds, strict=True)
        axes.plot(x, y, linewidth=1.0, linestyle=(0, (1, 2)), **look)
    if of.points:
        x, y = zip(*of.points, strict=True)
        strokes = (0, of.strokes) if of.strokes else "solid"
        axes.plot(x, y, linewidth=1.6, linestyle=strokes, marker="o", markersize=3.5, **look)
    if of.unfit:
        x, y = zip(*of.unfit, strict=True)
        axes.plot(x, y, linestyle="none", marker="x", markersize=9, markeredgewidth=1.6, **look)


def draw_ridge(chart: RidgeChart) -> Figure:
    """The figure of a ridge sweep."""
    figure = blank(chart.width_pt, chart.height_pt)
    axes = framed(figure, _frame(chart), chart.x, chart.y)
    for each in chart.lines:
        _draw_line(axes, each)
    for mark in chart.machines:
        axes.axvline(mark.balance, color=_LEAD, linewidth=0.6, zorder=0.7)
    for balance, _ in chart.crossings:
        axes.axvline(balance, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=2)
    for dot in chart.dots:
        axes.scatter(
            dot.balance,
            dot.ratio,
            s=34,
            facecolor="white" if dot.is_hollow else dot.colour,
            edgecolor=dot.colour,
            linewidth=1.2,
            zorder=4,
        )
        if dot.is_crossed:
            axes.scatter(dot.balance, dot.ratio, s=80, marker="x", color=INK, linewidth=1, zorder=5)
    paper = paper_over(figure)
    for mark in chart.machines:
        line(paper, mark.lead, color=_LEAD, linewidth=0.6)
        text_at(
            paper,
            (mark.label.box.left + mark.label.box.right) / 2,
            mark.label.box.bottom,
            mark.label.text,
            mark.label.size_pt,
            rotation=90,
            horizontalalignment="center",
            verticalalignment="bottom",
        )
    for _, label in chart.crossings:
        write(paper, label, on_lines=True)
    _name_lines(paper, chart.labels, chart.lines)
    _draw_words(paper, chart.title, chart.subtitle, chart.height_pt, chart.notes)
    return figure


def _frame(chart: LinesChart | RidgeChart) -> Box:
    return Box(chart.x.start_pt, chart.y.start_pt, chart.x.end_pt, chart.y.end_pt)


def _name_lines(paper: Axes, labels: Sequence[Label], lines: Sequence[DesignLine]) -> None:
    ends = sorted((each for each in lines if each.points), key=lambda each: each.points[-1][1])
    for label, of in zip(labels, ends, strict=True):
        write(paper, label, colour=of.colour)


def _centred(paper: Axes, label: Label, colour: str, **style: Any) -> None:
    text_at(
        paper,
        (label.box.left + label.box.right) / 2,
        (label.box.bottom + label.box.top) / 2,
        label.text,
        label.size_pt,
        color=colour,
        horizontalalignment="center",
        verticalalignment="center",
        **style,
    )


def _draw_words(
    paper: Axes, title: Sequence[str], subtitle: str, height_pt: float, notes: Sequence[str]
) -> None:
    y = height_pt - 20
    for each in title:
        text_at(paper, 12, y, each, TITLE_PT, weight="bold")
        y -= 16
    text_at(paper, 12, y + 1, subtitle, SMALL_PT, color=GREY_TEXT)
    for place, note in enumerate(reversed(notes)):
        text_at(paper, 12, 10 + 12 * place, note, SMALL_PT, color=GREY_TEXT)
