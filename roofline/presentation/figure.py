"""The roofline picture drawn with matplotlib, without its global state."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform

from roofline.analysis import Analysis
from roofline.analysis.roof import Roofs
from roofline.errors import InputError
from roofline.machine.hardware import HardwareProfile
from roofline.plots.roof import Ceiling
from roofline.plots.style import Style
from roofline.presentation.charts.chart import TITLE_SIZE_PT, Chart
from roofline.presentation.charts.labels import Segment, cut_to
from roofline.presentation.charts.lettering import SMALL_PT, TurnedText
from roofline.presentation.drawing import (
    ALARM,
    GREY_TEXT,
    INK,
    line,
    sheet,
    text_at,
    turned,
    write,
)
from roofline.workload.operators import Phase

_LIBRARY = "#6a3d9a"
LIBRARY_LINE: dict[str, Any] = {"color": _LIBRARY, "linewidth": 1.0, "linestyle": (0, (5, 2.5))}
PAPER_LINE: dict[str, Any] = {"color": "#9c3d00", "linewidth": 1.4, "linestyle": (0, (3, 1.6))}
_DIAGONAL: dict[str, Any] = {"color": INK, "linewidth": 1.3}
_LINES: dict[str, dict[str, Any]] = {
    "main": {"color": INK, "linewidth": 1.1},
    "other": {"color": "#a8a8a8", "linewidth": 0.7},
    "library": LIBRARY_LINE,
    "other library": {"color": "#c9b8dd", "linewidth": 0.7, "linestyle": (0, (5, 2.5))},
    "paper": PAPER_LINE,
}
_WORDS = {
    "main": INK,
    "other": GREY_TEXT,
    "library": _LIBRARY,
    "other library": GREY_TEXT,
    "paper": INK,
}
_AREA = {"D": 0.55, "d": 0.8, "*": 1.5, "P": 0.95, "X": 0.95, "^": 1.1, "v": 1.1, "s": 0.8}
"""Markers of equal s differ in ink: factors on their area that make them look alike."""


def plot(
    analysis: Analysis | HardwareProfile,
    *,
    labels: int = 12,
    roofs: Roofs | None = None,
    layers: bool = False,
    paper: HardwareProfile | str | FilePath | None = None,
    width_inch: float = 10.0,
    height_inch: float | None = None,
) -> Figure:
    """The roofline picture of an analysis, or of a machine by itself.

    Args:
        analysis: what to draw; its measured times where there are any, else its bounds. Of a
            machine: its roof, paper against measurement, its curves; only the width counts then.
        labels: how many of the longest operators to name, where there is room.
        roofs: every ceiling that is known ("all"), or those of the data types in use (None).
        layers: the roof in two layers, on paper and measured, with what the hardware loses between
            them shaded, and what software loses below; of the data types in use.
        paper: the machine whose figures are those on paper, a profile, its name or file; None: what
            the profile knows itself. It asks for `layers`.
        width_inch: the picture's width in inches.
        height_inch: its height in inches; None: 6.5, and with layers what the words below need.

    Raises:
        InputError: options that have no effect together, or a `paper` that does not fit.
        HardwareError: `paper` is not known.
    """
    if isinstance(analysis, HardwareProfile):
        if not layers and paper is None:
            return analysis.plot(width_inch=width_inch, height_inch=height_inch)
        from roofline.analysis.layers_drawing import HEIGHT_INCH, draw_layers
        from roofline.plots.figures import shown_figure

        figure = shown_figure(width_inch, height_inch or HEIGHT_INCH)
        draw_layers(figure, analysis, paper=paper, labels=labels)
        return figure
    if layers or paper is not None:
        if roofs is not None:
            raise InputError(
                "roofs has no effect with layers, which draw the data types in use; leave it out"
            )
        options: dict[str, Any] = {"layers": layers, "paper": paper}
    else:
        options = {"roofs": roofs or "in use"}
    return analysis.plot(labels=labels, width_inch=width_inch, height_inch=height_inch, **options)


def draw(chart: Chart, *, on_shades: bool = False) -> Figure:
    """The figure of a chart; words along its lines have a light ground where shades lie below."""
    figure, axes, paper = sheet(chart.width_pt, chart.height_pt, chart.frame, chart.x, chart.y)
    _draw_ceilings(axes, paper, chart)
    _draw_memory(axes, paper, chart, on_shades=on_shades)
    _draw_marks(axes, paper, chart)
    _draw_strip(paper, chart)
    _draw_legend(paper, chart)
    _draw_titles(paper, chart)
    return figure


def _kind(ceiling: Ceiling, on_paper: frozenset[str] = frozenset()) -> str:
    if ceiling.label in on_paper:
        return "paper"
    if ceiling.kind == "library":
        return "library" if ceiling.main else "other library"
    return "main" if ceiling.main else "other"


def _draw_ceilings(axes: Axes, paper: Axes, chart: Chart) -> None:
    highest = max((each.flop_per_s for each in chart.ceilings if _kind(each) == "main"), default=0)
    for ceiling, label in zip(chart.ceilings, chart.ceiling_labels, strict=True):
        (x0, y0), (x1, y1) = ceiling.ends(chart.x)
        kind = _kind(ceiling, chart.on_paper)
        style = dict(_LINES[kind])
        if kind == "main" and ceiling.flop_per_s == highest:
            style["linewidth"] = 1.9
        axes.plot((x0, x1), (y0, y1), zorder=1.8 if kind == "other" else 2, **style)
        if label.leader:
            line(paper, label.leader, color=style["color"], linewidth=0.5)
        write(paper, label, colour=_WORDS[kind])


def _draw_memory(axes: Axes, paper: Axes, chart: Chart, *, on_shades: bool) -> None:
    for diagonal, text in zip(chart.diagonals, chart.diagonal_labels, strict=True):
        (x0, y0), (x1, y1) = diagonal.ends(chart.x, chart.y)
        ridge = min(diagonal.ridge_flop_per_byte or x1, x1)
        top = ridge * diagonal.byte_per_s
        look = _LINES["paper"] if diagonal.label in chart.on_paper else _DIAGONAL
        axes.plot((x0, ridge), (y0, top), zorder=2, **look)
        axes.plot((ridge, x1), (top, y1), zorder=2, **_LINES["other"])
        if on_shades:
            _along(paper, text)
        else:
            turned(paper, text)
    for ridge in chart.ridges:
        x, y = ridge.flop_per_byte, ridge.flop_per_s
        dots: dict[str, Any] = {"color": "#b5b5b5", "linewidth": 0.7, "linestyle": (0, (1, 2.5))}
        axes.plot((x, x), (chart.y.low, y), zorder=1, **dots)
        face: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": INK}
        axes.plot(x, y, marker="D", markersize=5, zorder=4, **face)
        write(paper, ridge.label, on_lines=True)


def _along(paper: Axes, text: TurnedText) -> None:
    """Words along a line, readable on shades and on other lines."""
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
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.2},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """A mark to be drawn: where, in which style, how large, hollow, or with a red rim.

    Those of the backward pass are rings, those of the optimizer have a dark rim.
    """

    x: float
    y: float
    style: Style
    diameter_pt: float
    hollow: bool = False
    alarm: bool = False
    phase: Phase = "forward"


def _scatter(axes: Axes, spots: Sequence[_Spot]) -> None:
    """Marks of any looks as one collection, the first at the bottom: one each would be slow."""
    faces, edges, widths = zip(*map(_look, spots), strict=True) if spots else ((), (), ())
    collection = PathCollection(
        [_outline(spot.style.marker) for spot in spots],
        sizes=[spot.diameter_pt**2 * _AREA.get(spot.style.marker, 1.0) for spot in spots],
        # As lists: two words in a tuple would be one colour and its opacity.
        facecolors=list(faces),
        edgecolors=list(edges),
        linewidths=list(widths),
        offsets=[(spot.x, spot.y) for spot in spots],
        offset_transform=axes.transData,
        alpha=0.85,
        zorder=4,
    )
    # Sizes are in points whatever the axes' values.
    collection.set_transform(IdentityTransform())
    axes.add_collection(collection, autolim=False)


def _look(spot: _Spot) -> tuple[str, str, float]:
    """The colours of face and edge, and the width of the edge."""
    colour = spot.style.colour
    if spot.style.marker == "x" or spot.hollow:
        return "none", colour, 1.6
    face = "white" if spot.phase == "backward" else colour
    if spot.alarm:
        return face, ALARM, 1.6
    edge, width = {
        "forward": ("white", 0.6),
        "backward": (colour, 1.5),
        "optimizer": (INK, 1.0),
    }[spot.phase]
    return face, edge, width


@functools.cache
def _outline(marker: str) -> Path:
    style = MarkerStyle(marker)
    return style.get_path().transformed(style.get_transform())


def _draw_marks(axes: Axes, paper: Axes, chart: Chart) -> None:
    # The longest come first, so that the small lie on top of the large.
    spots = [
        _Spot(
            x=mark.point.flop_per_byte,
            y=mark.point.flop_per_s,
            style=mark.style,
            diameter_pt=mark.point.diameter_pt,
            alarm=mark.point.above,
            phase=mark.point.phase,
        )
        for mark in chart.marks
    ]
    _scatter(axes, spots)
    for label in (*(mark.label for mark in chart.marks if mark.label), *chart.named):
        if label.leader:
            line(paper, label.leader, color=INK, linewidth=0.5, zorder=5)
        write(paper, label, on_lines=True)


def _draw_strip(paper: Axes, chart: Chart) -> None:
    strip = chart.strip
    if strip is None:
        return
    size = (strip.right - strip.left, strip.top - strip.bottom)
    look: dict[str, Any] = {"facecolor": "#f6f6f6", "edgecolor": "#dcdcdc", "linewidth": 0.6}
    paper.add_patch(Rectangle((strip.left, strip.bottom), *size, **look))
    for word in chart.strip_words:
        write(paper, word, colour=GREY_TEXT)
    for mark in chart.strip_marks:
        write(paper, mark.label)
    spots = [
        _Spot(
            x=mark.x_pt,
            y=mark.y_pt,
            style=mark.style,
            diameter_pt=mark.point.diameter_pt,
            hollow=mark.point.why == "FLOP unknown",
        )
        for mark in chart.strip_marks
    ]
    _scatter(paper, spots)


def _draw_legend(paper: Axes, chart: Chart) -> None:
    for entry in chart.legend:
        x, y = entry.x_pt, entry.y_pt
        if entry.line:
            line(paper, Segment(x - 10, y, x + 10, y), **_LINES[entry.line])
        else:
            style = entry.style or Style("#b0b0b0", "o")
            size = entry.diameter_pt
            _scatter(paper, [_Spot(x=x, y=y, style=style, diameter_pt=size, phase=entry.phase)])
        write(paper, entry.label)


def _draw_titles(paper: Axes, chart: Chart) -> None:
    left, small = 12.0, SMALL_PT - 0.5
    room = chart.width_pt - 2 * left

    def say(text: str, y: float, size: float, colour: str, weight: str = "normal") -> None:
        text = cut_to(text, room, size)
        text_at(paper, left, y, text, size, color=colour, weight=weight)

    say(chart.title, chart.height_pt - 22, TITLE_SIZE_PT, INK, "bold")
    say(chart.machine, chart.height_pt - 37, 8.5, "#4d4d4d")
    say(chart.provenance, 10.0, small, GREY_TEXT)
    if chart.warnings:
        count = len(chart.warnings)
        first = "Warning" if count == 1 else f"{count} warnings; the first"
        say(f"{first}: {chart.warnings[0]}", 23.0, small, ALARM, "bold")
