"""Layers on their way under the roof: where each stands before and after, those alike together."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.plots.roof import Spot
from roofline.presentation.charts.before_after import AFTER, Move, cells_of, share_of
from roofline.presentation.charts.labels import cut_to
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.reports.quantization_cells import bits_words, layer_name
from roofline.quantization.result import BANDWIDTH_ONLY, LayerWhatIf, Side, WhatIf

KEPT = "kept in floats"
ONLY = f"after: {BANDWIDTH_ONLY}, there is no kernel"

_NAME_PT = 150.0


def moves_of(what_if: WhatIf) -> tuple[tuple[Move, ...], int]:
    """The moves, those that save most first, and how many layers have no place on both sides."""
    by_spot: dict[tuple[object, ...], list[LayerWhatIf]] = {}
    placeless = 0
    for each in what_if.layers:
        before, after = spot_of(each.before), spot_of(each.after)
        if before is None or after is None:
            placeless += 1
            continue
        key = (each.bits, each.has_kernel, *cells_of(before, after))
        by_spot.setdefault(key, []).append(each)
    moves = (_move(alike, what_if) for alike in by_spot.values())
    # What stays where it is comes last: it needs no name before the others have theirs.
    return tuple(sorted(moves, key=lambda each: (each.look == KEPT, -each.saved_s))), placeless


def spot_of(side: Side) -> Spot | None:
    """FLOP per byte and FLOP/s of a side; None where one of both is not known."""
    x, y = side.intensity_flop_per_byte, side.attainable_flop_per_s
    return (x, y) if x and y else None


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
        share_before=share_of(before, what_if.bound_before_s),
        share_after=share_of(after, what_if.bound_after_s),
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
