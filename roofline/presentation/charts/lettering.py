"""The words on a roof's lines: rates beside the ceilings, along the diagonals, over the ridges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.foundation.units import format_intensity
from roofline.plots.roof import Ceiling, Diagonal
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, Segment, spread, text_box, text_width_pt

SMALL_PT = 7.5
"""The size of the words inside and beside the axes."""

CEILING_GAP_PT = 16.0
"""The room between the axes and the ceilings' words, which their leaders cross."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedText:
    """A text turned by ``angle_deg`` around its centre; ``boxes`` cover it for collisions."""

    text: str
    x_pt: float
    y_pt: float
    angle_deg: float
    size_pt: float
    boxes: tuple[Box, ...]


def ceiling_labels(
    ceilings: Sequence[Ceiling], x: LogAxis, y: LogAxis, *, low_pt: float
) -> tuple[Label, ...]:
    """The words of each ceiling, right of the axes at its height but above `low_pt`.

    They are moved apart where they would meet; a leader joins each to its line.
    """
    heights = [y.pt(each.flop_per_s) for each in ceilings]
    gap = 1.25 * SMALL_PT
    places = spread(heights, gap=gap, low=low_pt + gap / 2, high=y.end_pt + gap)
    labels: list[Label] = []
    for each, height, place in zip(ceilings, heights, places, strict=True):
        left = x.end_pt + CEILING_GAP_PT
        width = text_width_pt(each.label, SMALL_PT)
        box = Box(left, place - gap / 2, left + width, place + gap / 2)
        leader = Segment(x.end_pt, height, left - 2, place)
        labels.append(Label(text=each.label, box=box, size_pt=SMALL_PT, leader=leader))
    return tuple(labels)


def ridge_labels(
    ridges: Sequence[float], flop_per_s: float, x: LogAxis, y: LogAxis
) -> tuple[Label, ...]:
    """The value of each ridge above it, side by side; the unit stands at the rightmost."""
    rightmost = max(ridges, default=0.0)
    texts = [f"{format_intensity(each)}{' FLOP/byte' * (each == rightmost)}" for each in ridges]
    # Numbers keep the distance of the widest; the unit of the last overhangs to its right.
    numbers = [format_intensity(each) for each in ridges]
    widths = [text_width_pt(number, SMALL_PT) for number in numbers]
    gap = max(widths, default=0.0) + 4
    centres = spread([x.pt(each) for each in ridges], gap=gap, low=x.start_pt, high=x.end_pt)
    height = y.pt(flop_per_s) + 5 + 0.625 * SMALL_PT
    labels: list[Label] = []
    for text, centre, width in zip(texts, centres, widths, strict=True):
        whole = text_width_pt(text, SMALL_PT)
        middle = centre + (whole - width) / 2
        labels.append(
            Label(text=text, box=text_box(text, middle, height, SMALL_PT), size_pt=SMALL_PT)
        )
    return tuple(labels)


def diagonal_labels(
    diagonals: Sequence[Diagonal], x: LogAxis, y: LogAxis, *, avoid: Sequence[Box]
) -> tuple[TurnedText, ...]:
    """The words of each diagonal along it, near its lower end but hiding nothing in `avoid`."""
    placed: list[TurnedText] = []
    frame = Box(x.start_pt, y.start_pt, x.end_pt, y.end_pt)
    angle = math.atan2(y.pt_per_decade, x.pt_per_decade)
    for each in diagonals:
        (x0, y0), (x1, y1) = each.ends(x, y)
        start, end = (x.pt(x0), y.pt(y0)), (x.pt(x1), y.pt(y1))
        length = math.hypot(end[0] - start[0], end[1] - start[1])
        half = text_width_pt(each.label, SMALL_PT) / 2
        # Only what lies near the line can be hidden by words along it.
        most = max(1.0, (2 * half + 4 + SMALL_PT) / length) if length else 1.0
        far = (start[0] + most * (end[0] - start[0]), start[1] + most * (end[1] - start[1]))
        near = Segment(*start, *far)
        hidden = [
            box
            for box in (*avoid, *(box for text in placed for box in text.boxes))
            if near.crosses(box.grown(2 * SMALL_PT))
        ]
        best: tuple[float, TurnedText] | None = None
        along = half + 4
        while best is None or (along + half <= length and best[0] > 0):
            text = _turned(each.label, start, along, angle)
            hits = sum(box.overlaps(other) for box in text.boxes for other in hidden)
            # Words on a point can be read; words across the frame look like a mistake.
            hits += 10 * sum(not frame.holds(box) for box in text.boxes)
            if best is None or hits < best[0]:
                best = (hits, text)
            along += 5
        placed.append(best[1])
    return tuple(placed)


def _turned(text: str, start: tuple[float, float], along: float, angle: float) -> TurnedText:
    """`text` centred `along` points up the line, just above it."""
    right, up = math.cos(angle), math.sin(angle)
    above = 0.75 * SMALL_PT
    x = start[0] + along * right - above * up
    y = start[1] + along * up + above * right
    width = text_width_pt(text, SMALL_PT)
    # A chain of upright squares covers the turned text closely enough.
    count = max(1, math.ceil(width / SMALL_PT))
    step = width / count
    offsets = [(i + 0.5) * step - width / 2 for i in range(count)]
    boxes = tuple(
        Box.around(x + o * right, y + o * up, 1.3 * SMALL_PT, 1.3 * SMALL_PT) for o in offsets
    )
    return TurnedText(
        text=text, x_pt=x, y_pt=y, angle_deg=math.degrees(angle), size_pt=SMALL_PT, boxes=boxes
    )
