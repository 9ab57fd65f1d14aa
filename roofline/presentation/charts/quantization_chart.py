"""The picture of a quantisation as data: each layer an arrow under the roof, before to after.

Bounds move the points: fewer bytes to the right, another ceiling upwards. Where the machine has no
kernel for a width, mark and arrow head are hollow. Nothing is drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.analysis.words import machine_words, provenance_words
from roofline.foundation.text import printable
from roofline.plots.roof import RoofLines, Spot
from roofline.plots.style import GREEN, GREY, SKY, Style
from roofline.presentation.charts.before_after import (
    AFTER,
    BEFORE,
    NOTE_PT,
    Move,
    nameless_words,
    near_lines,
    note_over_foot,
    placeless_words,
    titled,
)
from roofline.presentation.charts.chart import Chart, Extras, composed, foot_pt
from roofline.presentation.charts.labels import Label, Segment
from roofline.presentation.charts.quantization_moves import KEPT, ONLY, moves_of
from roofline.presentation.charts.quantization_roof import quantized_roof_lines
from roofline.presentation.charts.subjects import Subject
from roofline.presentation.reports.quantization_cells import policy_bits, times_faster
from roofline.quantization.policy import Policy
from roofline.quantization.result import BANDWIDTH_ONLY, Quantization, WhatIf

LOOK = {
    BEFORE: Style(GREY, "o"),
    AFTER: Style(GREEN, "o"),
    ONLY: Style(GREEN, "o"),
    KEPT: Style(SKY, "s"),
}
LABELS = 16

_SHORTEST_PT = 5.0
_BEND = 0.16
"""How far the middle of an arrow leaves the straight line, as a part of its length: points move
along the roof, and arrows on one line would hide each other."""

_ROOM_ABOVE = 2.0
"""How far above the highest ceiling the axes go on, as a factor beside what they have anyhow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """From the middle of one mark to that of another, in points; it leaves out their discs.

    ``bend`` is how far it swings away from the straight line, as a part of its length, below 0 to
    the other side. ``is_hollow``: its head is, as no kernel of the machine has that width.
    """

    segment: Segment
    start_radius_pt: float
    end_radius_pt: float
    bend: float
    is_hollow: bool
    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationChart:
    """The roofline picture with a point before and one after for each layer, and arrows.

    Layers that hardly move have no arrow. ``note`` says which policy it is, and what has no name or
    no place.
    """

    base: Chart
    arrows: tuple[Arrow, ...]
    note: Label


def quantization_chart_of(
    quantization: Quantization,
    *,
    labels: int = LABELS,
    width_pt: float = 720.0,
    height_pt: float = 468.0,
) -> QuantizationChart:
    """The picture of a quantisation: of the bits that were asked for.

    Args:
        quantisation: what to draw.
        labels: how many layers to name, those that save most first, where there is room.
        width_pt: the picture's width in points.
        height_pt: its height in points.
    """
    what_if = quantization.what_if
    moves, placeless = moves_of(what_if)
    subject = _subject(quantization, moves)
    moving = [each for each in moves if each.look != KEPT]
    extras = Extras(
        below_pt=NOTE_PT,
        spots=_spots(subject.lines, moves),
        lines=tuple((each.before, each.after) for each in moving),
    )
    base = composed(
        subject,
        extras,
        labels=min(labels, len(moves)),
        width_pt=width_pt,
        height_pt=height_pt,
    )
    base = titled(
        base,
        "arithmetic intensity (FLOP per byte crossing the layer's memory level)",
        short="FLOP per byte",
    )
    return QuantizationChart(
        base=base,
        arrows=tuple(arrow for each in moving if (arrow := _arrow(each, base))),
        note=_note(what_if.policy, moves, placeless, base, foot_pt(subject)),
    )


def _subject(quantization: Quantization, moves: Sequence[Move]) -> Subject:
    analysis, what_if = quantization.analysis, quantization.what_if
    # The ends come first: they have the names. What does not move has its end alone.
    points = (
        *(each.end for each in moves),
        *(each.start for each in moves if each.look != KEPT),
    )
    return Subject(
        names=f"{printable(quantization.model)} in {policy_bits(what_if.policy)}",
        tail=_tail(what_if),
        machine=machine_words(
            analysis, "points: layers with what is folded into them, by bounds" * bool(moves)
        ),
        provenance=provenance_words(analysis.hardware),
        height="FLOP/s (FLOP / bound time)",
        lines=near_lines(quantized_roof_lines(analysis, what_if), moves),
        points=points,
        look=LOOK,
    )


def _tail(what_if: WhatIf) -> str:
    """How much faster by prediction; no speed where a kernel is missing."""
    if not what_if.has_kernels:
        return f" · {BANDWIDTH_ONLY}"
    if what_if.before is None or what_if.after is None:
        return ""
    return f" · {times_faster(what_if.before.s, what_if.after.s)}, predicted"


def _spots(lines: RoofLines, moves: Sequence[Move]) -> tuple[Spot, ...]:
    """What the axes must hold: all ends, and room for names above the roof that many stand on."""
    ends = [spot for each in moves for spot in (each.before, each.after)]
    top = max((each.flop_per_s for each in lines.ceilings), default=0.0)
    return (*ends, (ends[0][0], _ROOM_ABOVE * top)) if ends and top else tuple(ends)


def _arrow(move: Move, base: Chart) -> Arrow | None:
    """The arrow of a move; None where its marks touch."""
    start = (base.x.pt(move.before[0]), base.y.pt(move.before[1]))
    end = (base.x.pt(move.after[0]), base.y.pt(move.after[1]))
    radii = (move.start.diameter_pt / 2, move.end.diameter_pt / 2)
    if math.dist(start, end) - sum(radii) < _SHORTEST_PT:
        return None
    # Below the roof, whichever way it goes: above it nothing may be.
    bend = _BEND if end[0] >= start[0] else -_BEND
    return Arrow(
        segment=Segment(*start, *end),
        start_radius_pt=radii[0],
        end_radius_pt=radii[1],
        bend=bend,
        is_hollow=move.look == ONLY,
        name=move.name,
        count=move.count,
    )


def _note(policy: Policy, moves: Sequence[Move], placeless: int, base: Chart, foot: float) -> Label:
    """The policy in words and what the picture leaves out, in a line over the foot."""
    parts = nameless_words(base, len(moves))
    parts += placeless_words(placeless, "FLOP or bound are not known")
    if not moves and not placeless:
        parts.append("there are none that have weights: nothing to draw but the roof")
    layers = f" · layers: {'; '.join(parts)}" if parts else ""
    return note_over_foot(f"Policy: {policy.words}{layers}", base, foot)
