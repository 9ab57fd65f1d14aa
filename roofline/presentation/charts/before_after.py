"""What pictures of a change share: points that move under a roof, and words about all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from roofline.plots.roof import Point, RoofLines, Spot
from roofline.presentation.charts.chart import Chart
from roofline.presentation.charts.labels import Label, cut_to, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT

BEFORE, AFTER = "before", "after"

NOTE_PT = 16.0
"""What the words over the foot take of a picture's height."""

_EDGE_PT = 12.0
_NOTE_GAP_PT = 5.0
_TITLE_SIZE_PT = 8.5

_SAME_SPOT = 0.05
"""Decades within which what is alike is drawn as one."""

_FAR = 4.0
"""How far below the lowest point a ceiling still tells something, as a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What goes from one spot to another together, and its shares of the time.

    ``look`` is how its end is drawn. ``saved_s`` is below 0 where it takes longer.
    """

    name: str
    look: str = AFTER
    count: int
    before: Spot
    after: Spot
    share_before: float
    share_after: float
    saved_s: float

    @property
    def start(self) -> Point:
        """The point before."""
        return self._point(BEFORE, self.before, self.share_before)

    @property
    def end(self) -> Point:
        """The point after."""
        return self._point(self.look, self.after, self.share_after)

    def _point(self, look: str, spot: Spot, share: float) -> Point:
        return Point(
            name=self.name,
            op="",
            type=look,
            phase="forward",
            count=self.count,
            flop_per_byte=spot[0],
            flop_per_s=spot[1],
            share=share,
            above=False,
        )


def cells_of(*spots: Spot) -> tuple[int, ...]:
    """Equal for spots that are drawn as one."""
    return tuple(round(math.log10(value) / _SAME_SPOT) for spot in spots for value in spot)


def share_of(part_s: float | None, whole_s: float | None) -> float:
    """The part of the time by which the size of a point goes; 0 where one of both is not known."""
    return min(1.0, part_s / whole_s) if part_s and whole_s and whole_s > 0 else 0.0


def near_lines(lines: RoofLines, moves: Iterable[Move]) -> RoofLines:
    """The lines without ceilings that lie far below all points, which would push these together."""
    rates = [rate for each in moves for _, rate in (each.before, each.after)]
    lowest = min(rates, default=0.0) / _FAR
    kept = [each for each in lines.ceilings if each.flop_per_s >= lowest]
    return replace(lines, ceilings=tuple(kept or lines.ceilings[:1]))


def titled(base: Chart, title: str, *, short: str) -> Chart:
    """The picture with a title of its x axis; the short one where there is no room."""
    fits = text_width_pt(title, _TITLE_SIZE_PT) <= base.frame.right - base.frame.left
    return replace(base, x=replace(base.x, title=title if fits else short))


def nameless_words(base: Chart, moves: int) -> list[str]:
    """How many of so many moves have no name in the picture; nothing where all have one."""
    count = moves - sum(mark.label is not None for mark in base.marks)
    return [f"{count} more {'are' if count > 1 else 'is'} drawn without a name"] * (count > 0)


def placeless_words(count: int, why: str) -> list[str]:
    """How many have no place in the picture, and why; nothing where all have one."""
    return [f"{count} {'have' if count > 1 else 'has'} no place: {why}"] * (count > 0)


def note_over_foot(words: str, base: Chart, foot_pt: float) -> Label:
    """A line of words over the foot of the picture, cut where it has no room."""
    cut = cut_to(words, base.width_pt - 2 * _EDGE_PT, SMALL_PT)
    middle = _EDGE_PT + text_width_pt(cut, SMALL_PT) / 2
    box = text_box(cut, middle, foot_pt + _NOTE_GAP_PT, SMALL_PT)
    return Label(text=cut, box=box, size_pt=SMALL_PT)
