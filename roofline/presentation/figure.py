"""The roofline picture drawn with matplotlib, without its global state."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import io
import math
import warnings
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

from roofline.analysis import Analysis
from roofline.presentation.axes import LogAxis
from roofline.presentation.ceilings import Ceiling, Roofs
from roofline.presentation.chart import TITLE_SIZE_PT, Chart, chart_of
from roofline.presentation.labels import Label, Segment, cut_to
from roofline.presentation.lettering import SMALL_PT
from roofline.presentation.palette import Style

_INK = "#1a1a1a"
_SOFT = "#8c8c8c"
_GREY_TEXT = "#6e6e6e"
_GRID = "#ececec"
_LIBRARY = "#6a3d9a"
_ALARM = "#c00000"
_FONT = ["DejaVu Sans", "sans-serif"]
"""The first comes with matplotlib; the second is for readers of the SVG who do not have it."""
_LINES: dict[str, dict[str, Any]] = {
    "main": {"color": _INK, "linewidth": 1.1},
    "other": {"color": "#a8a8a8", "linewidth": 0.7},
    "library": {"color": _LIBRARY, "linewidth": 1.0, "linestyle": (0, (5, 2.5))},
    "other library": {"color": "#c9b8dd", "linewidth": 0.7, "linestyle": (0, (5, 2.5))},
}
_WORDS = {
    "main": _INK,
    "other": _GREY_TEXT,
    "library": _LIBRARY,
    "other library": _GREY_TEXT,
}
_AREA = {"D": 0.55, "d": 0.8, "*": 1.5, "P": 0.95, "X": 0.95, "^": 1.1, "v": 1.1, "s": 0.8}
"""Markers of equal s differ in ink: factors on their area that make them look alike."""


def plot(
    analysis: Analysis,
    *,
    labels: int = 12,
    roofs: Roofs = "all",
    width_inch: float = 10.0,
    height_inch: float = 6.5,
) -> Figure:
    """The roofline picture of an analysis.

    Args:
        analysis: what to draw; its measured times where there are any, else its bounds.
        labels: how many of the longest operators to name, where there is room.
        roofs: every ceiling that is known, or only those of the data types in use.
        width_inch: the picture's width in inches.
        height_inch: its height in inches.
    """
    chart = chart_of(
        analysis,
        labels=labels,
        roofs=roofs,
        width_pt=72 * width_inch,
        height_pt=72 * height_inch,
    )
    return draw(chart)


class _NotebookFigure(Figure):
    """A figure that shows itself in notebooks, which they else do only for global figures."""

    def _repr_png_(self) -> bytes:
        return savefig_bytes(self, "png")


def draw(chart: Chart) -> Figure:
    """The figure of a chart."""
    width, height, frame = chart.width_pt, chart.height_pt, chart.frame
    figure = _NotebookFigure(figsize=(width / 72, height / 72), facecolor="white")
    axes = figure.add_axes(
        (
            frame.left / width,
            frame.bottom / height,
            (frame.right - frame.left) / width,
            (frame.top - frame.bottom) / height,
        )
    )
    _prepare(axes, chart)
    # Paper lies over the axes: its units are points, so that every word stands where it was placed.
    paper = figure.add_axes((0, 0, 1, 1), facecolor="none")
    paper.set_axis_off()
    paper.set(xlim=(0, width), ylim=(0, height))
    _draw_ceilings(axes, paper, chart)
    _draw_memory(axes, paper, chart)
    _draw_marks(axes, paper, chart)
    _draw_strip(paper, chart)
    _draw_legend(paper, chart)
    _draw_titles(paper, chart)
    return figure


def savefig_bytes(figure: Figure, format: Literal["png", "svg"]) -> bytes:
    """The figure as PNG (160 dpi) or SVG (text is text); equal figures give equal bytes."""
    content = io.BytesIO()
    metadata = {"Software": "roofline"} if format == "png" else {"Date": None, "Creator": None}
    with (
        rc_context({"svg.hashsalt": "roofline", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        # A model may be named in a script that no installed font has: it shows boxes, no warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(content, format=format, dpi=160, metadata=metadata)
    return content.getvalue()


def _prepare(axes: Axes, chart: Chart) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set(xlim=(chart.x.low, chart.x.high), ylim=(chart.y.low, chart.y.high))
    for axis, scale in ((axes.xaxis, chart.x), (axes.yaxis, chart.y)):
        axis.set_major_locator(FixedLocator([value for value, _ in scale.ticks]))
        axis.set_major_formatter(FixedFormatter([text for _, text in scale.ticks]))
        axis.set_minor_locator(FixedLocator(_between(scale)))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="major", labelsize=8, length=4, color=_SOFT, labelcolor=_INK)
    axes.tick_params(which="minor", length=2, color=_SOFT)
    for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        tick.set_fontfamily(_FONT)
    axes.set_xlabel(chart.x.title, fontsize=8.5, color=_INK, family=_FONT, labelpad=3)
    axes.set_ylabel(chart.y.title, fontsize=8.5, color=_INK, family=_FONT, labelpad=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_SOFT)


def _between(scale: LogAxis) -> list[float]:
    """The places of small ticks: 2 to 9 times each power of ten."""
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)))
    values = [step * 10.0**power for power in powers for step in range(2, 10)]
    return [each for each in values if scale.low <= each <= scale.high]


def _text(paper: Axes, x: float, y: float, text: str, size: float, **style: Any) -> None:
    # Names come from models: a dollar sign in them begins no formula.
    options = {"color": _INK, "family": _FONT, "parse_math": False, "zorder": 6, **style}
    paper.text(x, y, text, fontsize=size, **options)


def _write(paper: Axes, label: Label, *, colour: str = _INK, on_lines: bool = False) -> None:
    """One label, from the left of its box: the estimate of its width errs on the wide side."""
    middle = (label.box.bottom + label.box.top) / 2
    patch = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}
    _text(
        paper,
        label.box.left,
        middle,
        label.text,
        label.size_pt,
        color=colour,
        verticalalignment="center_baseline",
        bbox=patch if on_lines else None,
    )


def _line(paper: Axes, segment: Segment, **style: Any) -> None:
    paper.add_line(Line2D((segment.x0, segment.x1), (segment.y0, segment.y1), **style))


def _kind(ceiling: Ceiling) -> str:
    if ceiling.kind == "library":
        return "library" if ceiling.main else "other library"
    return "main" if ceiling.main else "other"


def _draw_ceilings(axes: Axes, paper: Axes, chart: Chart) -> None:
    highest = max((each.flop_per_s for each in chart.ceilings if _kind(each) == "main"), default=0)
    for ceiling, label in zip(chart.ceilings, chart.ceiling_labels, strict=True):
        (x0, y0), (x1, y1) = ceiling.ends(chart.x)
        kind = _kind(ceiling)
        style = dict(_LINES[kind])
        if kind == "main" and ceiling.flop_per_s == highest:
            style["linewidth"] = 1.9
        axes.plot((x0, x1), (y0, y1), zorder=1.8 if kind == "other" else 2, **style)
        if label.leader:
            _line(paper, label.leader, color=style["color"], linewidth=0.5)
        _write(paper, label, colour=_WORDS[kind])


def _draw_memory(axes: Axes, paper: Axes, chart: Chart) -> None:
    for diagonal, text in zip(chart.diagonals, chart.diagonal_labels, strict=True):
        (x0, y0), (x1, y1) = diagonal.ends(chart.x, chart.y)
        ridge = min(diagonal.ridge_flop_per_byte or x1, x1)
        top = ridge * diagonal.byte_per_s
        axes.plot((x0, ridge), (y0, top), color=_INK, linewidth=1.3, zorder=2)
        axes.plot((ridge, x1), (top, y1), zorder=2, **_LINES["other"])
        _text(
            paper,
            text.x_pt,
            text.y_pt,
            text.text,
            text.size_pt,
            rotation=text.angle_deg,
            rotation_mode="anchor",
            horizontalalignment="center",
            verticalalignment="center",
        )
    for ridge in chart.ridges:
        x, y = ridge.flop_per_byte, ridge.flop_per_s
        dots: dict[str, Any] = {"color": "#b5b5b5", "linewidth": 0.7, "linestyle": (0, (1, 2.5))}
        axes.plot((x, x), (chart.y.low, y), zorder=1, **dots)
        face: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": _INK}
        axes.plot(x, y, marker="D", markersize=5, zorder=4, **face)
        _write(paper, ridge.label, on_lines=True)


def _scatter(
    axes: Axes,
    x: float,
    y: float,
    style: Style,
    diameter: float,
    *,
    hollow: bool = False,
    alarm: bool = False,
) -> None:
    look: dict[str, Any] = {"facecolor": style.colour, "edgecolor": "white", "linewidth": 0.6}
    if style.marker == "x":
        look = {"color": style.colour, "linewidth": 1.6}
    elif hollow:
        look = {"facecolor": "none", "edgecolor": style.colour, "linewidth": 1.6}
    elif alarm:
        look |= {"edgecolor": _ALARM, "linewidth": 1.6}
    area = diameter**2 * _AREA.get(style.marker, 1.0)
    axes.scatter(x, y, s=area, marker=style.marker, alpha=0.85, zorder=4, **look)


def _draw_marks(axes: Axes, paper: Axes, chart: Chart) -> None:
    # The longest come first, so that the small lie on top of the large.
    for mark in chart.marks:
        point = mark.point
        at = (point.flop_per_byte, point.flop_per_s)
        _scatter(axes, *at, mark.style, point.diameter_pt, alarm=point.above)
    for label in (mark.label for mark in chart.marks if mark.label):
        if label.leader:
            _line(paper, label.leader, color=_INK, linewidth=0.5, zorder=5)
        _write(paper, label, on_lines=True)


def _draw_strip(paper: Axes, chart: Chart) -> None:
    strip = chart.strip
    if strip is None:
        return
    size = (strip.right - strip.left, strip.top - strip.bottom)
    look: dict[str, Any] = {"facecolor": "#f6f6f6", "edgecolor": "#dcdcdc", "linewidth": 0.6}
    paper.add_patch(Rectangle((strip.left, strip.bottom), *size, **look))
    for word in chart.strip_words:
        _write(paper, word, colour=_GREY_TEXT)
    for mark in chart.strip_marks:
        hollow = mark.point.why == "FLOP unknown"
        _scatter(paper, mark.x_pt, mark.y_pt, mark.style, mark.point.diameter_pt, hollow=hollow)
        _write(paper, mark.label)


def _draw_legend(paper: Axes, chart: Chart) -> None:
    for entry in chart.legend:
        x, y = entry.x_pt, entry.y_pt
        if entry.line:
            _line(paper, Segment(x - 10, y, x + 10, y), **_LINES[entry.line])
        else:
            _scatter(paper, x, y, entry.style or Style("#b0b0b0", "o"), entry.diameter_pt)
        _write(paper, entry.label)


def _draw_titles(paper: Axes, chart: Chart) -> None:
    left, small = 12.0, SMALL_PT - 0.5
    room = chart.width_pt - 2 * left

    def line(text: str, y: float, size: float, colour: str, weight: str = "normal") -> None:
        text = cut_to(text, room, size)
        _text(paper, left, y, text, size, color=colour, weight=weight)

    line(chart.title, chart.height_pt - 22, TITLE_SIZE_PT, _INK, "bold")
    line(chart.machine, chart.height_pt - 37, 8.5, "#4d4d4d")
    line(chart.provenance, 10.0, small, _GREY_TEXT)
    if chart.warnings:
        count = len(chart.warnings)
        first = "Warning" if count == 1 else f"{count} warnings; the first"
        line(f"{first}: {chart.warnings[0]}", 23.0, small, _ALARM, "bold")
