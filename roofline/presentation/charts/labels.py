"""Where labels go so that they hide neither each other nor what they name.

All lengths are points (1/72 inch), x to the right, y upwards. Text sizes are estimated, on the
wide side, for DejaVu Sans and narrower fonts.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """An upright rectangle in points."""

    left: float
    bottom: float
    right: float
    top: float

    @staticmethod
    def around(x: float, y: float, width: float, height: float) -> Box:
        """The box of that size whose centre is (x, y)."""
        return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def overlaps(self, other: Box) -> bool:
        """Whether the two share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def holds(self, other: Box) -> bool:
        """Whether `other` lies inside."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.bottom <= other.bottom
            and other.top <= self.top
        )

    def grown(self, by: float) -> Box:
        """The box with `by` more on each side."""
        return Box(self.left - by, self.bottom - by, self.right + by, self.top + by)


@dataclass(frozen=True, slots=True)
class Segment:
    """A straight line from (x0, y0) to (x1, y1) in points."""

    x0: float
    y0: float
    x1: float
    y1: float

    def crosses(self, box: Box) -> bool:
        """Whether a part of the line lies inside `box` (the clipping of Liang and Barsky)."""
        enter, leave = 0.0, 1.0
        for start, delta, low, high in (
            (self.x0, self.x1 - self.x0, box.left, box.right),
            (self.y0, self.y1 - self.y0, box.bottom, box.top),
        ):
            if delta == 0:
                if not low < start < high:
                    return False
                continue
            first, last = sorted(((low - start) / delta, (high - start) / delta))
            enter, leave = max(enter, first), min(leave, last)
        return enter < leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """What a label names: a mark of `radius_pt` around (x, y)."""

    text: str
    x_pt: float
    y_pt: float
    radius_pt: float

    @property
    def box(self) -> Box:
        """The mark's box."""
        return Box.around(self.x_pt, self.y_pt, 2 * self.radius_pt, 2 * self.radius_pt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text centred in its box; ``leader`` joins it to its mark where it stands away from it."""

    text: str
    box: Box
    size_pt: float
    leader: Segment | None = None


def text_width_pt(text: str, size_pt: float) -> float:
    """The width that `text` takes at most, in points."""
    return size_pt * sum(map(_width_em, text))


def _width_em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in " .,:;|'!()[]ijlIt/·f":
        return 0.41
    if character in "mwMW%@—…":
        return 1.0
    return 0.7 if character.isupper() else 0.64


def text_box(text: str, x_pt: float, y_pt: float, size_pt: float) -> Box:
    """The box of one line of `text` whose centre is (x, y)."""
    return Box.around(x_pt, y_pt, text_width_pt(text, size_pt), 1.25 * size_pt)


def cut_to(text: str, width_pt: float, size_pt: float) -> str:
    """`text`, its end replaced by an ellipsis where it is wider than `width_pt`."""
    if text_width_pt(text, size_pt) <= width_pt:
        return text
    while text and text_width_pt(text + "…", size_pt) > width_pt:
        text = text[:-1]
    return text.rstrip() + "…"


_DISTANCES_PT = (0.0, 3.0, 7.0, 12.0, 18.0, 25.0, 33.0, 42.0, 52.0, 62.0)
_TURNS = 24
_ANGLES = tuple(2 * math.pi * i / _TURNS for i in range(_TURNS))
_LEADER_FROM_PT = 6.0
_TOO_DEAR = 100.0
"""The cost, in points of distance, above which a picture without the label reads better."""


def place_labels(
    anchors: Sequence[Anchor],
    *,
    frame: Box,
    size_pt: float,
    marks: Sequence[Box] = (),
    taken: Sequence[Box] = (),
    lines: Sequence[Segment] = (),
) -> tuple[Label | None, ...]:
    """A place for the label of each anchor, in their order, so that the important come first.

    Labels never overlap each other, `marks` or `taken`, nor leave `frame`; leaders never cross
    labels, `taken` or each other. Crossing `lines` is avoided where there is room. None: there was
    no free place that reads well.
    """
    everything = [*marks, *taken, *(anchor.box for anchor in anchors)]
    placed: list[Label | None] = []
    for anchor in anchors:
        # What its label cannot reach, it need not be kept from.
        reach = _reach(anchor, size_pt)
        solid = [box for box in everything if box.overlaps(reach)]
        done = [label for label in placed if label is not None]
        blocked = [*solid, *(label.box for label in done)]
        leaders = [label.leader for label in done if label.leader]
        uncrossable = [*taken, *(label.box for label in done)]
        best: tuple[float, Label] | None = None
        for distance in _DISTANCES_PT:
            if best is not None and best[0] <= distance:
                break
            for turn, angle in enumerate(_ANGLES):
                label = _candidate(anchor, distance, angle, size_pt)
                box, leader = label.box, label.leader
                if not frame.holds(box) or any(box.overlaps(other) for other in blocked):
                    continue
                if any(other.crosses(box) for other in leaders):
                    continue
                if leader and any(leader.crosses(other) for other in uncrossable):
                    continue
                if leader and any(_meet(leader, other) for other in leaders):
                    continue
                # On ties the first angles win: right of the mark, where reading goes on.
                cost = distance + 0.1 * min(turn, _TURNS - turn)
                cost += 22 * sum(line.crosses(box) for line in lines)
                if leader:
                    own = anchor.box
                    # A leader across a mark may pass for that mark's own: seldom worth it.
                    cost += 45 * sum(leader.crosses(mark) for mark in solid if mark != own)
                if cost < _TOO_DEAR and (best is None or cost < best[0]):
                    best = (cost, label)
        placed.append(best[1] if best else None)
    return tuple(placed)


def _reach(anchor: Anchor, size_pt: float) -> Box:
    """All that the label of an anchor may cover, wherever it is placed."""
    away = anchor.radius_pt + 2 + max(_DISTANCES_PT)
    width, height = text_width_pt(anchor.text, size_pt), 1.25 * size_pt
    return Box.around(anchor.x_pt, anchor.y_pt, 2 * (away + width), 2 * (away + height))


def _candidate(anchor: Anchor, distance: float, angle: float, size_pt: float) -> Label:
    width, height = text_width_pt(anchor.text, size_pt), 1.25 * size_pt
    away = anchor.radius_pt + 2 + distance
    right, up = math.cos(angle), math.sin(angle)
    box = Box.around(
        anchor.x_pt + right * (away + width / 2),
        anchor.y_pt + up * (away + height / 2),
        width,
        height,
    )
    leader = None
    if distance >= _LEADER_FROM_PT:
        x = min(max(anchor.x_pt, box.left), box.right)
        y = min(max(anchor.y_pt, box.bottom), box.top)
        length = math.hypot(x - anchor.x_pt, y - anchor.y_pt)
        edge = anchor.radius_pt / length
        leader = Segment(
            anchor.x_pt + edge * (x - anchor.x_pt), anchor.y_pt + edge * (y - anchor.y_pt), x, y
        )
    return Label(text=anchor.text, box=box, size_pt=size_pt, leader=leader)


def _meet(a: Segment, b: Segment) -> bool:
    """Whether two leaders cross."""

    def side(s: Segment, x: float, y: float) -> float:
        return (s.x1 - s.x0) * (y - s.y0) - (s.y1 - s.y0) * (x - s.x0)

    return (
        side(a, b.x0, b.y0) * side(a, b.x1, b.y1) < 0
        and side(b, a.x0, a.y0) * side(b, a.x1, a.y1) < 0
    )


def spread(wanted: Sequence[float], *, gap: float, low: float, high: float) -> tuple[float, ...]:
    """Positions in the order of `wanted`, near it, `gap` apart, between `low` and `high`.

    Neighbours too close are moved apart around their mean. Where all cannot fit, the gap shrinks so
    that they share the room evenly.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    if len(order) > 1:
        gap = min(gap, (high - low) / (len(order) - 1))
    # Blocks of neighbours that touch: their number, and the sum of where their first would begin.
    blocks: list[tuple[int, float]] = []
    for i in order:
        blocks.append((1, wanted[i]))
        while len(blocks) > 1 and _start(blocks[-2], gap, low, high) + blocks[-2][0] * gap > _start(
            blocks[-1], gap, low, high
        ):
            count, total = blocks.pop()
            before, sum_before = blocks.pop()
            blocks.append((before + count, sum_before + total - count * before * gap))
    positions = [
        _start(block, gap, low, high) + k * gap for block in blocks for k in range(block[0])
    ]
    result = [0.0] * len(wanted)
    for i, position in zip(order, positions, strict=True):
        result[i] = position
    return tuple(result)


def _start(block: tuple[int, float], gap: float, low: float, high: float) -> float:
    count, total = block
    return max(low, min(total / count, high - (count - 1) * gap))
