"""Layers on their way under the roof: where each stands before and after, those alike together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.presentation.charts.ceilings import Spot
from roofline.presentation.charts.labels import cut_to
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.points import Point
from roofline.presentation.reports.quantization_cells import bits_words, layer_name
from roofline.quantization.result import BANDWIDTH_ONLY, LayerWhatIf, Side, WhatIf

BEFORE, AFTER, KEPT = "before", "after", "kept in floats"
ONLY = f"after: {BANDWIDTH_ONLY}, there is no kernel"

_SAME_SPOT = 0.05
"""Decades within which layers of equal bits are drawn as one."""

_NAME_PT = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Layers that go from one spot to another together, and their shares of the bounds.

    ``look`` is how their end is drawn: `AFTER`, `ONLY` or `KEPT`. ``saved_s`` is below 0 where
    their bounds grow.
    """

    name: str
    look: str
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


def moves_of(what_if: WhatIf) -> tuple[tuple[Move, ...], int]:
    """The moves, those that save most first, and how many layers have no place on both sides."""
    by_spot: dict[tuple[object, ...], list[LayerWhatIf]] = {}
    placeless = 0
    for each in what_if.layers:
        before, after = spot_of(each.before), spot_of(each.after)
        if before is None or after is None:
            placeless += 1
            continue
        cells = (_cell(value) for value in (*before, *after))
        by_spot.setdefault((each.bits, each.has_kernel, *cells), []).append(each)
    moves = (_move(alike, what_if) for alike in by_spot.values())
    # What stays where it is comes last: it needs no name before the others have theirs.
    return tuple(sorted(moves, key=lambda each: (each.look == KEPT, -each.saved_s))), placeless


def spot_of(side: Side) -> Spot | None:
    """FLOP per byte and FLOP/s of a side; None where one of both is not known."""
    x, y = side.intensity_flop_per_byte, side.attainable_flop_per_s
    return (x, y) if x and y else None


def _cell(value: float) -> int:
    return round(math.log10(value) / _SAME_SPOT)


def _move(alike: Sequence[LayerWhatIf], what_if: WhatIf) -> Move:
    first = alike[0]
    before = sum(each.before.bound_s or 0.0 for each in alike)
    after = sum(each.after.bound_s or 0.0 for each in alike)
    start, end = spot_of(first.before), spot_of(first.after)
    assert start is not None and end is not None
    return Move(
        name=_name(alike),
        look=_look(first),
        count=len(alike),
        before=start,
        after=end,
        share_before=_share(before, what_if.bound_before_s),
        share_after=_share(after, what_if.bound_after_s),
        saved_s=before - after,
    )


def _look(layer: LayerWhatIf) -> str:
    if layer.bits.is_float:
        return KEPT
    return AFTER if layer.has_kernel else ONLY


def _name(alike: Sequence[LayerWhatIf]) -> str:
    first = alike[0]
    more = f" +{len(alike) - 1}" if len(alike) > 1 else ""
    return f"{cut_to(layer_name(first), _NAME_PT, SMALL_PT)}{more} {bits_words(first.bits)}"


def _share(bound_s: float, whole_s: float | None) -> float:
    return min(1.0, bound_s / whole_s) if whole_s else 0.0
