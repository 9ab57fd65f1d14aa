"""Plot of lower precision: an arrow under the roofline for each layer."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from roofline.analysis import Analysis, working
from roofline.analysis.points import roof_lines
from roofline.analysis.words import MODEL_ITSELF, machine_text, provenance_text
from roofline.core.text import counted
from roofline.machine.hardware import ComputeCeiling
from roofline.machine.roof import line_name
from roofline.placement import Roof, arithmetic_dtype
from roofline.plots.figures import foot_figure, title_figure
from roofline.plots.moves import Move, draw_moves, spot_key
from roofline.plots.roof import RoofLines, Spot
from roofline.plots.style import GREEN, SKY, Style
from roofline.quantization.blocks import bits_text, speedup_text
from roofline.quantization.result import BANDWIDTH_ONLY, LayerWhatIf, Quantization, Side, WhatIf

AFTER = "after"
ONLY = f"after: no kernel ({BANDWIDTH_ONLY})"
KEPT = "kept in floats"
_LOOK = {AFTER: Style(GREEN, "o"), ONLY: Style(GREEN, "o", hollow=True), KEPT: Style(SKY, "s")}


def draw_quantization(figure: Figure, quantization: Quantization, labels: int) -> None:
    analysis, what_if = quantization.analysis, quantization.what_if
    moves, unplaced = moves_of(what_if)
    handles, unnamed = draw_moves(
        figure.subplots(),
        lines_of(analysis, what_if),
        moves,
        _LOOK,
        labels=labels,
        rate="FLOP/s (FLOP / minimum time)",
    )
    points = "points: layers with the operators fused into them, eager minimum times"
    title_figure(
        figure,
        f"{line_name(quantization.model)} in {bits_text(what_if.policy)}{_speed(what_if)}",
        machine_text(analysis, points if moves else "no layer to draw"),
    )
    policy = f"Policy: {what_if.policy.words}"
    if unnamed:
        policy += f" · without label: {counted(unnamed, 'arrow')}"
    if unplaced:
        policy += f" · not drawn: {counted(unplaced, 'layer')} of unknown FLOP or minimum time"
    foot_figure(figure, handles, [policy, provenance_text(analysis.hardware)])


def _speed(what_if: WhatIf) -> str:
    if not what_if.has_kernels:
        return f": {BANDWIDTH_ONLY}"
    if what_if.before is None or what_if.after is None:
        return ""
    return f": {speedup_text(what_if.before.s, what_if.after.s)} (predicted)"


def moves_of(what_if: WhatIf) -> tuple[list[Move], int]:
    """Return the arrows, largest savings first, and the number of layers without a position.

    Layers of equal bits on one spot before and after share an arrow.
    """
    by_spot: dict[tuple[object, ...], list[LayerWhatIf]] = {}
    unplaced = 0
    for each in what_if.layers:
        before, after = spot_of(each.before), spot_of(each.after)
        if before is None or after is None:
            unplaced += 1
            continue
        key = (each.bits, each.has_kernel, *spot_key(before, after))
        by_spot.setdefault(key, []).append(each)

    def saved(alike: Sequence[LayerWhatIf]) -> tuple[bool, float]:
        # Unchanged layers come last: others get labels first.
        return alike[0].bits.is_float, _eager_min_time_s(alike, "after") - _eager_min_time_s(
            alike, "before"
        )

    return [_move(alike, what_if) for alike in sorted(by_spot.values(), key=saved)], unplaced


def spot_of(side: Side) -> Spot | None:
    """Return AI and FLOP/s of a side; None if one of them is unknown."""
    x, y = side.intensity_flop_per_byte, side.attainable_flop_per_s
    return (x, y) if x and y else None


def _move(alike: Sequence[LayerWhatIf], what_if: WhatIf) -> Move:
    first = alike[0]
    before, after = spot_of(first.before), spot_of(first.after)
    assert before is not None and after is not None
    look = AFTER if first.has_kernel else ONLY
    if first.bits.is_float:
        look, before = KEPT, after
    more = f" +{len(alike) - 1}" if len(alike) > 1 else ""
    return Move(
        name=f"{line_name(first.layer.name) or MODEL_ITSELF}{more} {bits_text(first.bits)}",
        look=look,
        before=before,
        after=after,
        share_before=_share(_eager_min_time_s(alike, "before"), what_if.eager_min_time_before_s),
        share_after=_share(_eager_min_time_s(alike, "after"), what_if.eager_min_time_after_s),
    )


def _eager_min_time_s(layers: Sequence[LayerWhatIf], side: str) -> float:
    return sum(getattr(each, side).eager_min_time_s or 0.0 for each in layers)


def _share(part_s: float, whole_s: float | None) -> float:
    return min(1.0, part_s / whole_s) if whole_s else 0.0


def lines_of(analysis: Analysis, what_if: WhatIf) -> RoofLines:
    """Return the ceilings of the data types before and after, all drawn as in use.

    The highest hardware ceiling per type, and all library ceilings.
    """
    profile, roof = analysis.hardware, Roof(analysis.hardware, analysis.threads)
    wanted = {each.executable for each in what_if.layers}
    for row in working(analysis.operators):
        of = arithmetic_dtype((*row.inputs, *row.outputs)) if row.flop else None
        if unit := roof.compute(of) if of else None:
            wanted.add(unit.dtype.name)

    def is_drawn(ceiling: ComputeCeiling) -> bool:
        highest = (roof.compute(ceiling.dtype), roof.compute_any(ceiling.dtype))
        return ceiling.kind == "library" or any(
            unit is not None and (unit.unit, unit.kernel) == (ceiling.unit, ceiling.kernel)
            for unit in highest
        )

    def top(ceiling: ComputeCeiling) -> float:
        unit = roof.compute(ceiling.dtype)
        return unit.flop_per_s if unit else 0.0

    kept = [each for each in profile.compute if each.dtype.name in wanted and is_drawn(each)]
    if not kept:
        return roof_lines(analysis, "in use")
    # Without operators, the first type counts as the main one, whose ridge points are drawn.
    compute = tuple(sorted(kept, key=lambda each: -top(each)))
    shown = replace(analysis, operators=(), hardware=replace(profile, compute=compute))
    return roof_lines(shown, "in use")
