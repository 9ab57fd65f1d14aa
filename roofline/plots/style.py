"""Colors and markers of operator types, readable with color blindness and in print.

The colors are those of M. Okabe and K. Ito, "Color Universal Design", 2002, without its yellow,
which is too light for small marks on white, and a dark red of P. Tol, "Colour schemes", 2021.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle

INK = "#1a1a1a"
SOFT = "#8c8c8c"
GREY_TEXT = "#6e6e6e"
ALARM = "#c00000"
FONT = ["DejaVu Sans", "sans-serif"]
"""Font families: the first comes with matplotlib, the second is for readers of SVG files."""

SMALL_PT = 7.5  # The size of the words inside and next to axes
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, BLACK, GREY = "#cc79a7", "#56b4e9", "#000000", "#7f7f7f"
DARK_RED = "#661100"
LIBRARY, THEORETICAL = "#6a3d9a", "#9c3d00"


@dataclass(frozen=True, slots=True)
class Style:
    """Color ``#rrggbb`` and matplotlib marker, an outline if `hollow`."""

    colour: str
    marker: str
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class RoofStyle:
    """Color ``#rrggbb`` of a machine, and strokes and gaps of its line; none: solid."""

    colour: str
    strokes: tuple[float, ...] = ()


_ROOFS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, DARK_RED)
_STROKES = ((), (5.0, 2.0), (1.2, 1.6))


def roof_styles(count: int) -> tuple[RoofStyle, ...]:
    """Return styles of `count` machines, distinct while colors and strokes last."""
    return tuple(
        RoofStyle(_ROOFS[i % len(_ROOFS)], _STROKES[i // len(_ROOFS) % len(_STROKES)])
        for i in range(count)
    )


_USUAL = {
    "convolution": Style(BLUE, "o"),
    "depthwise convolution": Style(SKY, "D"),
    "matrix product": Style(VERMILION, "s"),
    "linear": Style(VERMILION, "s"),
    "attention": Style(PURPLE, "P"),
    "normalization": Style(GREEN, "^"),
    "pointwise": Style(ORANGE, "v"),
    "reduction": Style(PURPLE, "<"),
    "pooling": Style(SKY, "h"),
    "embedding": Style(BLACK, "*"),
    "data movement": Style(GREY, "X"),
    "softmax": Style(BLACK, "p"),
    "recurrent": Style(GREEN, "d"),
    "unknown": Style(BLACK, "x"),
}
"""Types with the same style in all plots."""

_SPARE_MARKERS = ("p", ">", "8", "H", "d", "D", "^", "s", "o")
_SPARE_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK)


def styles(types: Iterable[str]) -> dict[str, Style]:
    """Return styles of `types`, distinct while the 63 spare ones last."""
    spares = cycle(Style(colour, marker) for marker in _SPARE_MARKERS for colour in _SPARE_COLOURS)
    chosen: dict[str, Style] = {}
    for each in types:
        style = _USUAL.get(each)
        tries = 0
        while style is None or (style in chosen.values() and tries < 63):
            style, tries = next(spares), tries + 1
        chosen[each] = style
    return chosen


SERIES = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK, GREY, DARK_RED)
"""Colors of the interactive page; its style sheet adds lighter ones."""
