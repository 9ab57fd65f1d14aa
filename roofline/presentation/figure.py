"""The roofline picture drawn with matplotlib, without its global state."""

from __future__ import annotations

import io
import warnings
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

from roofline.analysis import Analysis
from roofline.presentation.axes import LogAxis
from roofline.presentation.ceilings import Ceiling, Roofs
from roofline.presentation.chart import Chart, chart_of
from roofline.presentation.labels import Label, Segment, cut_to
from roofline.presentation.lettering import SMALL_PT
from roofline.presentation.palette import Style

_INK = "#1a1a1a"
_SOFT = "#8c8c8c"
_GRID = "#ececec"
_LIBRARY = "#6a3d9a"
_FONT = ["DejaVu Sans", "sans-serif"]
"""The first comes with matplotlib; the second is for readers of the SVG who do not have it."""
_LINES = {
    "main": {"color": _INK, "linewidth": 1.1},
    "other": {"color": "#a8a8a8", "linewidth": 0.7},
    "library": {"color": _LIBRARY, "linewidth": 1.0, "linestyle": (0, (5, 2.5))},
}
_AREA = {"D": 0.55, "d": 0.8, "*": 1.5, "P": 0.95, "X": 0.95, "^": 1.1, "v": 1.1, "s": 0.8}
"""Marks of equal s differ in ink: factors on their area that make them look alike."""


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


def draw(chart: Chart) -> Figure:
    """The figure of a chart."""
    figure = Figure(figsize=(chart.width_pt / 72, chart.height_pt / 72), facecolor="white")
    frame = chart.frame
    axes = figure.add_axes(
        (
            frame.left / chart.width_pt,
            frame.bottom / chart.height_pt,
            (frame.right - frame.left) / chart.width_pt,
            (frame.top - frame.bottom) / chart.height_pt,
        )
    )
    _prepare(axes, chart)
    # Paper lies over the axes: its units are points, so that every word stands where it was placed.
    paper = figure.add_axes((0, 0, 1, 1), facecolor="none")
    paper.set_axis_off()
    paper.set(xlim=(0, chart.width_pt), ylim=(0, chart.height_pt))
    _draw_roof(axes, paper, chart)
    _draw_marks(axes, paper, chart)
    _draw_strip(paper, chart)
    _draw_legend(paper, chart)
    _draw_titles(paper, chart)
    return figure


def savefig_bytes(figure: Figure, format: Literal["png", "svg"]) -> bytes:
    """The figure as PNG (160 dpi) or SVG (text is text); equal figures give equal bytes."""
    content = io.BytesIO()
    options = (
        {"dpi": 160} if format == "png" else {"metadata": {"Date": None, "Creator": "roofline"}}
    )
    if format == "png":
        options["metadata"] = {"Software": "roofline"}
    with (
        rc_context({"svg.hashsalt": "roofline", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        # A model may be named in a script that no installed font has: it shows boxes, no warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(content, format=format, **options)
    return content.getvalue()


def _prepare(axes: Axes, chart: Chart) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set(xlim=(chart.x.low, chart.x.high), ylim=(chart.y.low, chart.y.high))
    for axis, scale in ((axes.xaxis, chart.x), (axes.yaxis, chart.y)):
        values = [value for value, _ in scale.ticks]
        axis.set_major_locator(FixedLocator(values))
        axis.set_major_formatter(FixedFormatter([text for _, text in scale.ticks]))
        axis.set_minor_locator(FixedLocator(_between(scale)))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color=_GRID, linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(which="major", labelsize=8, length=4, color=_SOFT, labelcolor=_INK)
    axes.tick_params(which="minor", length=2, color=_SOFT)
    for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        tick.set_fontfamily(_FONT)
    axes.set_xlabel(chart.x.title, fontsize=8.5, color=_INK, family=_FONT, labelpad=3)
    axes.set_ylabel(chart.y.title, fontsize=8.5, color=_INK, family=_FONT, labelpad=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_SOFT)


def _between(scale: LogAxis) -> list[float]:
    powers = [value for value, text in scale.ticks if text.lstrip("0.").startswith("1")]
    values = (
        [step * power for power in [powers[0] / 10, *powers] for step in range(2, 10)]
        if powers
        else []
    )
    return [each for each in values if scale.low <= each <= scale.high]


def _write(
    paper: Axes, label: Label, *, colour: str = _INK, box: bool = False, weight: str = "normal"
) -> None:
    """One label, left-aligned in its box: the estimate of its width errs on the wide side."""
    paper.text(
        label.box.left,
        (label.box.bottom + label.box.top) / 2,
        label.text,
        fontsize=label.size_pt,
        color=colour,
        family=_FONT,
        weight=weight,
        verticalalignment="center_baseline",
        parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}
        if box
        else None,
        zorder=6,
    )


def _line(paper: Axes, segment: Segment, **style: object) -> None:
    paper.add_line(Line2D((segment.x0, segment.x1), (segment.y0, segment.y1), **style))


def _kind(ceiling: Ceiling) -> str:
    if ceiling.kind == "library":
        return "library"
    return "main" if ceiling.main else "other"


def _draw_roof(axes: Axes, paper: Axes, chart: Chart) -> None:
    highest = max(
        (each.flop_per_s for each in chart.ceilings if _kind(each) == "main"), default=0.0
    )
    for ceiling, label in zip(chart.ceilings, chart.ceiling_labels, strict=True):
        (x0, y0), (x1, y1) = ceiling.ends(chart.x)
        kind = _kind(ceiling)
        style = dict(_LINES[kind])
        if kind == "main" and ceiling.flop_per_s == highest:
            style["linewidth"] = 1.9
        axes.plot((x0, x1), (y0, y1), zorder=2, **style)
        colour = {"main": _INK, "other": "#6e6e6e", "library": _LIBRARY}[kind]
        if label.leader:
            _line(paper, label.leader, color=style["color"], linewidth=0.5)
        _write(paper, label, colour=colour)
    for diagonal, text in zip(chart.diagonals, chart.diagonal_labels, strict=True):
        (x0, y0), (x1, y1) = diagonal.ends(chart.x, chart.y)
        ridge = min(diagonal.ridge_flop_per_byte or x1, x1)
        top = ridge * diagonal.byte_per_s
        axes.plot((x0, ridge), (y0, top), color=_INK, linewidth=1.3, zorder=2)
        axes.plot((ridge, x1), (top, y1), **_LINES["other"], zorder=2)
        paper.text(
            text.x_pt,
            text.y_pt,
            text.text,
            rotation=text.angle_deg,
            rotation_mode="anchor",
            fontsize=text.size_pt,
            color=_INK,
            family=_FONT,
            horizontalalignment="center",
            verticalalignment="center",
            parse_math=False,
            zorder=5,
        )
    for ridge in chart.ridges:
        axes.plot(
            (ridge.flop_per_byte,) * 2,
            (chart.y.low, ridge.flop_per_s),
            color="#b5b5b5",
            linewidth=0.7,
            linestyle=(0, (1, 2.5)),
            zorder=1,
        )
        axes.plot(
            ridge.flop_per_byte,
            ridge.flop_per_s,
            marker="D",
            markersize=5,
            markerfacecolor="white",
            markeredgecolor=_INK,
            zorder=4,
        )
        _write(paper, ridge.label, box=True)


def _scatter(
    axes: Axes,
    x: float,
    y: float,
    style: Style,
    diameter: float,
    *,
    hollow: bool = False,
    ring: str = "",
) -> None:
    line_only = style.marker == "x"
    axes.scatter(
        x,
        y,
        s=diameter**2 * _AREA.get(style.marker, 1.0),
        marker=style.marker,
        facecolor="none" if hollow and not line_only else style.colour,
        edgecolor=None if line_only else ring or (style.colour if hollow else "white"),
        linewidth=1.6 if ring or hollow or line_only else 0.6,
        alpha=0.85,
        zorder=4,
    )


def _draw_marks(axes: Axes, paper: Axes, chart: Chart) -> None:
    # The longest come first, so that the small lie on top of the large.
    for mark in chart.marks:
        point = mark.point
        _scatter(
            axes,
            point.flop_per_byte,
            point.flop_per_s,
            mark.style,
            point.diameter_pt,
            ring="#e00000" if point.above else "",
        )
    for mark in chart.marks:
        if mark.label:
            if mark.label.leader:
                _line(paper, mark.label.leader, color=_INK, linewidth=0.5, zorder=5)
            _write(paper, mark.label, box=True)


def _draw_strip(paper: Axes, chart: Chart) -> None:
    strip = chart.strip
    if strip is None:
        return
    paper.add_patch(
        Rectangle(
            (strip.left, strip.bottom),
            strip.right - strip.left,
            strip.top - strip.bottom,
            facecolor="#f6f6f6",
            edgecolor="#dcdcdc",
            linewidth=0.6,
        )
    )
    for word in chart.strip_words:
        _write(paper, word, colour="#6e6e6e")
    for mark in chart.strip_marks:
        hollow = mark.point.why == "FLOP unknown"
        _scatter(paper, mark.x_pt, mark.y_pt, mark.style, mark.point.diameter_pt, hollow=hollow)
        _write(paper, mark.label)


def _draw_legend(paper: Axes, chart: Chart) -> None:
    for entry in chart.legend:
        if entry.line:
            half = 10.0
            segment = Segment(entry.x_pt - half, entry.y_pt, entry.x_pt + half, entry.y_pt)
            _line(paper, segment, **_LINES[entry.line])
        else:
            style = entry.style or Style("#b0b0b0", "o")
            _scatter(paper, entry.x_pt, entry.y_pt, style, entry.diameter_pt)
        _write(paper, entry.label)


def _draw_titles(paper: Axes, chart: Chart) -> None:
    left = 12.0
    width = chart.width_pt - 2 * left
    small = SMALL_PT - 0.5
    for text, y, size, colour, weight in (
        (chart.title, chart.height_pt - 22, 13.0, _INK, "bold"),
        (chart.machine, chart.height_pt - 37, 8.5, "#4d4d4d", "normal"),
        (chart.provenance, 10.0, small, "#6e6e6e", "normal"),
    ):
        paper.text(
            left,
            y,
            cut_to(text, width, size),
            fontsize=size,
            color=colour,
            weight=weight,
            family=_FONT,
            parse_math=False,
        )
    if chart.warnings:
        more = f" (and {len(chart.warnings) - 1} more)" if len(chart.warnings) > 1 else ""
        room = width - 90
        paper.text(
            left,
            23.0,
            f"Warning: {cut_to(chart.warnings[0], room, small)}{more}",
            fontsize=small,
            color="#b00000",
            weight="bold",
            family=_FONT,
            parse_math=False,
        )
