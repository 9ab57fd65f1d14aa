"""The tables on a what-if of lower precision: parts, layers, passes, and the widths of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from roofline.foundation.blocks import Column, Grid
from roofline.foundation.rows import sum_known
from roofline.foundation.text import printable
from roofline.foundation.units import MISSING, format_byte, format_flop, format_s
from roofline.presentation.reports.quantization_cells import (
    bits_words,
    change,
    layer_name,
    layer_time,
    places_words,
    policy_bits,
    seconds_words,
    shown_words,
    time_change,
    times_less,
    width_words,
    words_change,
)
from roofline.quantization.policy import FLOAT_BITS
from roofline.quantization.result import (
    BANDWIDTH_ONLY,
    LayerWhatIf,
    Part,
    PartName,
    Quantization,
    QuantizationPass,
    WhatIf,
)

_PARTS: dict[PartName, str] = {
    "layers": "layers",
    "shortcuts": "shortcuts",
    "conversions": "conversions",
    "others": "others",
}
"""Parts whose sum is the pass, in the order of their rows."""

# No time is as long: only the words of what has none are cut.
_PREDICTED = Column(heading="predicted", align="right", sacrifice=1, least=16)


def parts_grid(what_if: WhatIf) -> Grid:
    """What the pass is made of, before and after; requantisation as kernels of its own last."""
    by_name = {each.name: each for each in what_if.parts}
    parts = [by_name[name] for name in _PARTS if name in by_name and by_name[name].count]
    columns = (
        Column(heading="", least=14),
        Column(heading="number", align="right", sacrifice=3),
        Column(heading="bytes", align="right"),
        Column(heading="change", align="right", sacrifice=2),
        Column(heading="bound", align="right"),
        _PREDICTED,
    )
    return Grid(
        title="The pass in parts, before and after (layers with what is folded into them)",
        columns=columns,
        rows=tuple(_part_row(each, what_if) for each in parts),
        sums=tuple(_part_sums(what_if, parts, by_name.get("requantization"))),
    )


def _part_row(part: Part, what_if: WhatIf) -> tuple[str, ...]:
    return (
        _PARTS[part.name],
        f"{part.count:,}",
        change(part.before_byte, part.after_byte, format_byte),
        times_less(part.before_byte, part.after_byte),
        change(part.before_bound_s, part.after_bound_s, format_s),
        _part_time(part, what_if),
    )


def _part_time(part: Part, what_if: WhatIf) -> str:
    """Predictions of a part; of one with codes in it none after where kernels are missing."""
    has_codes = part.name in ("layers", "conversions")
    if has_codes and part.after_time is None and not what_if.has_kernels:
        return BANDWIDTH_ONLY
    return time_change(part.before_time, part.after_time)


def _part_sums(
    what_if: WhatIf, parts: Sequence[Part], apart: Part | None
) -> Iterable[tuple[str, ...]]:
    before = sum(each.before_byte for each in parts)
    after = sum(each.after_byte for each in parts)
    predicted = time_change(what_if.before, what_if.after)
    yield (
        "the whole pass",
        "",
        change(before, after, format_byte),
        times_less(before, after),
        change(what_if.bound_before_s, what_if.bound_after_s, format_s),
        predicted if what_if.has_kernels else BANDWIDTH_ONLY,
    )
    if apart is None or not apart.count:
        return
    yield (
        "requantisation apart",
        f"{apart.count:,}",
        change(before, after + apart.after_byte, format_byte),
        times_less(before, after + apart.after_byte),
        change(what_if.bound_before_s, what_if.separate_bound_s, format_s),
        MISSING,
    )


def layers_grid(what_if: WhatIf, most: int) -> Grid:
    """The layers whose bound changes most, and sums of the others and of all."""
    ranked = sorted(what_if.layers, key=_urgency)
    shown, rest = ranked[:most], ranked[most:]
    columns = (
        Column(heading="layer", least=12, cut="start"),
        Column(heading="is", sacrifice=5),
        Column(heading="bits"),
        Column(heading="result", align="right", sacrifice=7),
        Column(heading="bytes", align="right"),
        Column(heading="computed in", sacrifice=4),
        Column(heading="bound", align="right"),
        Column(heading="ceiling", least=12, sacrifice=6),
        _PREDICTED if _has_times(ranked) else replace(_PREDICTED, sacrifice=8),
    )
    sums: list[tuple[str, ...]] = []
    if rest:
        sums.append(_layer_sums(f"{len(rest)} more", rest))
    if len(ranked) > 1:
        sums.append(_layer_sums(f"all {len(ranked)}", ranked))
    return Grid(
        title=f"Layers, before and after: {shown_words(len(shown), len(ranked))}those that change"
        " most first",
        columns=columns,
        rows=tuple(map(_layer_row, shown)),
        sums=tuple(sums),
    )


def _has_times(layers: Iterable[LayerWhatIf]) -> bool:
    """Whether something is predicted: where nothing is, names and types are worth more room."""
    return any(each.has_kernel and (each.before.time or each.after.time) for each in layers)


def _urgency(layer: LayerWhatIf) -> tuple[float, int]:
    """By how much the bound changes, where it is not known by bytes."""
    before, after = layer.before.bound_s, layer.after.bound_s
    changed_s = 0.0 if before is None or after is None else abs(before - after)
    return -changed_s, -abs(layer.before.traffic_byte - layer.after.traffic_byte)


def _layer_row(layer: LayerWhatIf) -> tuple[str, ...]:
    before, after = layer.before, layer.after
    return (
        layer_name(layer),
        layer.layer.place,
        bits_words(layer.bits),
        width_words(layer.output_bits),
        change(before.traffic_byte, after.traffic_byte, format_byte),
        printable(layer.executable),
        change(before.bound_s, after.bound_s, format_s),
        words_change(before.ceiling, after.ceiling),
        layer_time(layer),
    )


def _layer_sums(name: str, layers: Sequence[LayerWhatIf]) -> tuple[str, ...]:
    sides = [each.before for each in layers], [each.after for each in layers]
    before_byte, after_byte = (sum(each.traffic_byte for each in side) for side in sides)
    before_s, after_s = (sum_known(each.bound_s for each in side) for side in sides)
    was_s, now_s = (
        sum_known(each.time.s if each.time else None for each in side) for side in sides
    )
    has_kernels = all(each.has_kernel for each in layers)
    return (
        *(name, "", "", ""),
        change(before_byte, after_byte, format_byte),
        "",
        change(before_s, after_s, format_s),
        "",
        change(was_s, now_s, seconds_words) if has_kernels else BANDWIDTH_ONLY,
    )


def passes_grid(passes: Sequence[QuantizationPass]) -> Grid:
    """The walks over tensors that only quantisation asks for, those alike taken together."""
    alike: dict[tuple[object, ...], list[QuantizationPass]] = {}
    for each in passes:
        key = (each.is_separate, each.kind, each.from_bits, each.to_bits)
        alike.setdefault(key, []).append(each)
    columns = (
        Column(heading="pass"),
        Column(heading="from → to"),
        Column(heading="number", align="right"),
        Column(heading="read", align="right"),
        Column(heading="written", align="right"),
        Column(heading="FLOP", align="right", sacrifice=3),
        Column(heading="bound", align="right"),
        Column(heading="predicted", align="right", sacrifice=2),
        Column(heading="kernel", sacrifice=1),
        Column(heading="where", least=12, sacrifice=4),
    )
    ordered = sorted(alike.values(), key=lambda each: not each[0].is_separate)
    return Grid(
        title="Passes that only quantisation asks for",
        columns=columns,
        rows=tuple(map(_pass_row, ordered)),
    )


def _pass_row(alike: Sequence[QuantizationPass]) -> tuple[str, ...]:
    first = alike[0]
    return (
        first.kind,
        _from_to(first),
        f"{len(alike):,}",
        format_byte(sum(each.read_byte for each in alike)),
        format_byte(sum(each.written_byte for each in alike)),
        format_flop(sum(each.flop for each in alike)),
        format_s(sum_known(each.bound_s for each in alike)),
        _seconds(sum_known(each.time.s if each.time else None for each in alike)),
        "its own" if first.is_separate else "the layer's",
        places_words([each.where for each in alike]),
    )


def _from_to(each: QuantizationPass) -> str:
    start = width_words(each.from_bits)
    if each.kind == "requantize" and each.from_bits == FLOAT_BITS:
        start = "accumulators"
    return f"{start} → {width_words(each.to_bits)}"


def sweep_grid(quantization: Quantization) -> Grid:
    """One row a width: what was asked for first, then the sweep's."""
    first = quantization.what_if
    columns = (
        Column(heading="bits"),
        Column(heading="layers' traffic", align="right"),
        Column(heading="change", align="right", sacrifice=2),
        Column(heading="model", align="right"),
        Column(heading="bound", align="right"),
        Column(heading="requantisation apart", align="right", sacrifice=4),
        _PREDICTED,
        Column(heading="computed in", sacrifice=3),
    )
    original = (
        "as it is",
        format_byte(first.layer_byte_before),
        "",
        format_byte(first.model_byte_before),
        format_s(first.bound_before_s),
        "",
        _seconds(first.before.s if first.before else None),
        "",
    )
    return Grid(
        title="Widths beside each other",
        columns=columns,
        rows=(original, *map(_sweep_row, widths_of(quantization))),
    )


def widths_of(quantization: Quantization) -> list[WhatIf]:
    """The what-ifs with each policy once: a sweep may hold what was asked for, too."""
    found: list[WhatIf] = []
    for each in quantization.what_ifs:
        if each.policy not in [other.policy for other in found]:
            found.append(each)
    return found


def _sweep_row(what_if: WhatIf) -> tuple[str, ...]:
    predicted = _seconds(what_if.after.s if what_if.after else None)
    return (
        policy_bits(what_if.policy),
        format_byte(what_if.layer_byte_after),
        times_less(what_if.layer_byte_before, what_if.layer_byte_after),
        format_byte(what_if.model_byte_after),
        format_s(what_if.bound_after_s),
        format_s(what_if.separate_bound_s),
        predicted if what_if.has_kernels else BANDWIDTH_ONLY,
        ", ".join(dict.fromkeys(printable(each.executable) for each in what_if.layers)),
    )


def _seconds(predicted_s: float | None) -> str:
    return MISSING if predicted_s is None else seconds_words(predicted_s)
