"""What every picture is drawn with: a figure, its axes, and words and lines on paper.

Paper is an invisible layer over the axes whose units are points, so that every word stands where it
was placed.
"""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import io
import warnings
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, Segment
from roofline.presentation.charts.lettering import TurnedText

INK = "#1a1a1a"
SOFT = "#8c8c8c"
GREY_TEXT = "#6e6e6e"
ALARM = "#c00000"
_GRID = "#ececec"
_FONT = ["DejaVu Sans", "sans-serif"]
"""The first comes with matplotlib; the second is for readers of the SVG who do not have it."""


class _NotebookFigure(Figure):
    """A figure that shows itself in notebooks, which they else do only for global figures."""

    def _repr_png_(self) -> bytes:
        return savefig_bytes(self, "png")


def sheet(
    width_pt: float, height_pt: float, frame: Box, x: LogAxis, y: LogAxis
) -> tuple[Figure, Axes, Axes]:
    """A figure of that size, logarithmic axes in `frame`, and the paper over all of it."""
    figure = blank(width_pt, height_pt)
    axes = framed(figure, frame, x, y)
    return figure, axes, paper_over(figure)


def blank(width_pt: float, height_pt: float) -> Figure:
    """A white figure of that size with nothing on it."""
    return _NotebookFigure(figsize=(width_pt / 72, height_pt / 72), facecolor="white")


def framed(figure: Figure, frame: Box, x: LogAxis, y: LogAxis) -> Axes:
    """Logarithmic axes in `frame`, which is in points."""
    width_pt, height_pt = (72 * each for each in figure.get_size_inches())
    axes = figure.add_axes(
        (
            frame.left / width_pt,
            frame.bottom / height_pt,
            (frame.right - frame.left) / width_pt,
            (frame.top - frame.bottom) / height_pt,
        )
    )
    _prepare(axes, x, y)
    return axes


def paper_over(figure: Figure) -> Axes:
    """The invisible layer over a figure, whose units are points."""
    width_pt, height_pt = (72 * each for each in figure.get_size_inches())
    paper = figure.add_axes((0, 0, 1, 1), facecolor="none")
    paper.set_axis_off()
    paper.set(xlim=(0, width_pt), ylim=(0, height_pt))
    return paper


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


def _prepare(axes: Axes, x: LogAxis, y: LogAxis) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
    for axis, scale in ((axes.xaxis, x), (axes.yaxis, y)):
        axis.set_major_locator(FixedLocator([value for value, _ in scale.ticks]))
        axis.set_major_formatter(FixedFormatter([text for _, text in scale.ticks]))
        axis.set_minor_locator(FixedLocator(scale.between))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="major", labelsize=8, length=4, color=SOFT, labelcolor=INK)
    axes.tick_params(which="minor", length=2, color=SOFT)
    for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        tick.set_fontfamily(_FONT)
    axes.set_xlabel(x.title, fontsize=8.5, color=INK, family=_FONT, labelpad=3)
    axes.set_ylabel(y.title, fontsize=8.5, color=INK, family=_FONT, labelpad=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(SOFT)


def text_at(paper: Axes, x: float, y: float, text: str, size: float, **style: Any) -> None:
    """Words on paper, from (x, y) in points."""
    # Names come from models: a dollar sign in them begins no formula.
    options = {"color": INK, "family": _FONT, "parse_math": False, "zorder": 6, **style}
    paper.text(x, y, text, fontsize=size, **options)


def write(paper: Axes, label: Label, *, colour: str = INK, on_lines: bool = False) -> None:
    """One label, from the left of its box: the estimate of its width errs on the wide side."""
    middle = (label.box.bottom + label.box.top) / 2
    patch = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}
    text_at(
        paper,
        label.box.left,
        middle,
        label.text,
        label.size_pt,
        color=colour,
        verticalalignment="center_baseline",
        bbox=patch if on_lines else None,
    )


def turned(paper: Axes, text: TurnedText) -> None:
    """Words along a line."""
    text_at(
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


def line(paper: Axes, segment: Segment, **style: Any) -> None:
    """A straight line on paper."""
    paper.add_line(Line2D((segment.x0, segment.x1), (segment.y0, segment.y1), **style))
