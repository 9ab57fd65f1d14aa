"""Figures: creation, titles, PNG and SVG files."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import io
import sys
import textwrap
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text

from roofline.core.text import printable
from roofline.plots.style import ALARM, FONT, GREY_TEXT, INK, SMALL_PT, SOFT

_TITLE_PT = 13.0
_CHARACTERS_PER_INCH = 16  # Of small words: notes are wrapped by their number, not by their width


class _NotebookFigure(Figure):
    """A figure that notebooks display, as they do global figures."""

    def _repr_png_(self) -> bytes:
        return saved(self, "png")


def new_figure(width_inch: float, height_inch: float) -> Figure:
    """Return an empty white figure that pyplot does not know."""
    return _NotebookFigure(
        figsize=(width_inch, height_inch), facecolor="white", layout="constrained"
    )


def shown_figure(width_inch: float, height_inch: float) -> Figure:
    """Return an empty white figure that pyplot, or the notebook by itself, shows."""
    if "inline" in str(matplotlib.get_backend()).lower() or "ipykernel" in sys.modules:
        return new_figure(width_inch, height_inch)
    from matplotlib import pyplot

    return pyplot.figure(figsize=(width_inch, height_inch), facecolor="white", layout="constrained")


def saved(figure: Figure, format: str) -> bytes:
    """Return the figure as PNG (160 dpi) or SVG (text is text); equal figures give equal bytes."""
    content = io.BytesIO()
    metadata = {"Software": "roofline"} if format == "png" else {"Date": None, "Creator": None}
    settings: Any = {"svg.hashsalt": "roofline", "svg.fonttype": "none"}
    with matplotlib.rc_context(settings), any_script():
        figure.savefig(content, format=format, dpi=160, metadata=metadata)
    return content.getvalue()


def make_safe(figure: Figure) -> None:
    """Show control characters of names and messages in all texts as escapes."""
    for text in figure.findobj(Text):
        shown = text.get_text()
        text.set_text("\n".join(map(printable, shown.split("\n"))))


@contextmanager
def any_script() -> Generator[None]:
    """Suppress warnings about missing glyphs; they are drawn as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def title_figure(figure: Figure, title: str, subtitle: str = "") -> None:
    """Write title and subtitle at the top left; what is longer than two lines is cut."""
    width_inch = figure.get_size_inches()[0]
    most = round(0.55 * _CHARACTERS_PER_INCH * width_inch)
    if len(title) > 2 * most or (len(title) > most and " " not in title):
        title = f"{title[: most // 2]}…{title[-(most - most // 2) + 1 :]}"
    figure.suptitle(
        "\n".join(textwrap.wrap(title, most)),
        x=0.01,
        ha="left",
        fontsize=_TITLE_PT,
        weight="bold",
        color=INK,
        **words(),
    )
    if subtitle:
        axes = figure.axes[0]
        axes.set_title(
            textwrap.shorten(subtitle, round(1.2 * _CHARACTERS_PER_INCH * width_inch)),
            loc="left",
            fontsize=8.5,
            color="#4d4d4d",
            **words(),
        )


def foot_figure(
    figure: Figure,
    handles: Sequence[Artist],
    notes: Iterable[str] = (),
    warnings_: Sequence[str] = (),
    *,
    columns: int = 6,
) -> None:
    """Write the legend below all axes, and notes and warnings (the first of several) below it."""
    width = round(1.1 * _CHARACTERS_PER_INCH * figure.get_size_inches()[0])
    lines = [line for note in notes for line in textwrap.wrap(note, width)]
    count = len(warnings_)
    if count:
        first = "Warning" if count == 1 else f"{count} warnings; the first"
        lines += textwrap.wrap(f"{first}: {warnings_[0]}", width)
    legend = figure.legend(
        handles=list(handles),
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=SMALL_PT,
        labelcolor=INK,
        handlelength=2.4,
        columnspacing=1.6,
        labelspacing=0.8,
    )
    if lines:
        legend.set_title("\n".join(lines), prop=FontProperties(family=FONT, size=SMALL_PT - 0.5))
        legend.get_title().set(color=ALARM if count else GREY_TEXT, parse_math=False)
        legend.set_alignment("left")
    for text in legend.get_texts():
        text.set(parse_math=False)


def prepare_axes(axes: Axes, *, x: str = "", y: str = "", grid: bool = True) -> None:
    """Set labels and the common style of axes."""
    if grid:
        axes.grid(which="major", color="#ececec", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="major", labelsize=8, length=4, color=SOFT, labelcolor=INK)
    axes.tick_params(which="minor", length=2, color=SOFT)
    axes.set_xlabel(x, fontsize=8.5, color=INK, **words())
    axes.set_ylabel(y, fontsize=8.5, color=INK, **words())
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(SOFT)


def words(**style: Any) -> dict[str, Any]:
    """Return the options of all texts: names come from models, where a dollar begins no formula."""
    return {"family": FONT, "parse_math": False, **style}


def write(
    axes: Axes, text: str, spot: tuple[float, float], offset_pt: tuple[float, float], **style: Any
) -> None:
    """Write small words next to a spot of the axes."""
    look = {"fontsize": SMALL_PT, "color": INK, **words(), **style}
    axes.annotate(text, spot, offset_pt, textcoords="offset points", **look)
