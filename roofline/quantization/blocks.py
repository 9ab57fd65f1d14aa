"""Report on lower precision: facts and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from roofline.analysis import fit_warnings
from roofline.analysis.words import MODEL_ITSELF, machine_fact, model_fact, run_fact, saving_or_loss
from roofline.core.blocks import Block, Grid, KeyValueBlock, View, notes, table, warning_notes
from roofline.core.sampling import interval_cell, rounds_title
from roofline.core.text import counted
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_ratio,
    format_s,
    sum_known,
)
from roofline.design.advice.subject import Time
from roofline.errors import argument
from roofline.machine.roof import ceiling_text
from roofline.placement import Bound
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy, width_text
from roofline.quantization.result import (
    BANDWIDTH_ONLY,
    LayerSensitivity,
    LayerWhatIf,
    NativeVariant,
    Part,
    PartName,
    Proposal,
    Quantization,
    QuantizationOverhead,
    Sensitivity,
    WhatIf,
)

_SAME = 1.005
"""Ratio that is rounded to 1.00."""

_NO_GAIN = 0.95
"""Fraction of a minimum time above which there is no gain."""

SEPARATE = "with requantization in separate kernels"


def change_text(before: object, after: object, form: Callable[[Any], str]) -> str:
    """Return ``"2.69 MB → 295 kB"``; a single value if both are equal."""
    was, now = (MISSING if each is None else form(each) for each in (before, after))
    return was if was == now else f"{was} → {now}"


def ratio_text(
    before: float | None, after: float | None, less: str = "smaller", more: str = "larger"
) -> str:
    """Return the change of a figure: ``"13.9× smaller"``, with `less` and `more` as words."""
    if before is None or after is None:
        return MISSING
    if before == after:
        return "unchanged"
    if not before or not after:
        return less if after < before else more
    ratio = before / after
    if max(ratio, 1 / ratio) < _SAME:
        return "unchanged"
    return f"{format_ratio(ratio)}× {less}" if ratio > 1 else f"{format_ratio(1 / ratio)}× {more}"


def speedup_text(before_s: float | None, after_s: float | None) -> str:
    """Return ``"1.80× faster"`` or ``"1.20× slower"``."""
    return ratio_text(before_s, after_s, "faster", "slower")


def bits_text(bits: LayerBits | Policy) -> str:
    """Return ``"w2a4"``, or ``"float"``."""
    weights, activations = bits.weights, bits.activations
    return "float" if weights == activations == FLOAT_BITS else f"w{weights}a{activations}"


def error_cell(error: float | None) -> str:
    """Return a relative error in two digits; ``"0"`` for equal outputs."""
    return MISSING if error is None else f"{error:.2g}"


def model_size(of: WhatIf) -> str:
    """Return ``"46.8 MB → 4.04 MB (11.6× smaller)"``."""
    before, after = of.model_bytes_before, of.model_bytes_after
    return f"{change_text(before, after, format_bytes)} ({ratio_text(before, after)})"


def layer_traffic(of: WhatIf) -> str:
    """Return ``"66.6 MB → 7.72 MB (8.62× smaller)"``."""
    before, after = of.layer_bytes_before, of.layer_bytes_after
    return f"{change_text(before, after, format_bytes)} ({ratio_text(before, after)})"


def time_cell(predicted_s: float | None) -> str:
    """Return a predicted time in two digits, without its interval."""
    return format_s(predicted_s, 2)


def time_s(time: Time | None) -> float | None:
    """Seconds of a time; None: unknown."""
    return time.s if time else None


def verdict(quantization: Quantization) -> str:
    """Return the effect of the policy on bytes and minimum time, and on known times."""
    of = quantization.what_if
    parts = [
        f"{quantization.model} in {of.policy.words}: model size {model_size(of)}, layer traffic"
        f" {layer_traffic(of)}"
    ]
    before_s, after_s, separate_s = (
        of.eager_min_time_before_s,
        of.eager_min_time_after_s,
        of.separate_eager_min_time_s,
    )
    if before_s is not None and after_s is not None:
        kind = "eager" if of.has_kernels else f"eager, {BANDWIDTH_ONLY}"
        shorter = ratio_text(before_s, after_s, "shorter", "longer")
        words = f"{change_text(before_s, after_s, format_s)} ({shorter})"
        parts.append(f"minimum time ({kind}) {words}")
        if after_s > _SAME * before_s and of.after is None:
            parts.append(slower_parts(of) or unimproved_layers(of))
        elif after_s > _NO_GAIN * before_s:
            parts.append(unimproved_layers(of))
        if separate_s is not None and separate_s > before_s >= after_s:
            parts.append(f"{SEPARATE} {format_s(separate_s)}, longer than the original")
    was_s, now_s = time_s(of.before), time_s(of.after)
    if not of.has_kernels:
        missing = dict.fromkeys(each.bits.words for each in of.layers if not each.has_kernel)
        name = quantization.analysis.hardware.name
        parts.append(f"{name} has no kernel for {', '.join(missing)}: no speedup estimated")
    elif was_s is not None and now_s is not None:
        parts.append(
            f"predicted time {change_text(was_s, now_s, time_cell)} ({speedup_text(was_s, now_s)})"
        )
        parts.append(slower_parts(of) if now_s > _SAME * was_s else "")
    parts += [
        f"{each.way}: measured speedup {speedup_cell(each)}"
        for each in quantization.native_variants
        if bits_text(each.bits) == bits_text(of.policy) and each.speedup is not None
    ]
    return "; ".join(filter(None, parts))


def slower_parts(what_if: WhatIf) -> str:
    """Return the two parts with the largest increase of time; ``""``: none.

    By predictions if the whole pass has them, else by minimum times.
    """
    more: list[tuple[float, PartName]] = []
    by_time = what_if.before is not None and what_if.after is not None
    for part in what_if.parts:
        before, after = part.before_eager_min_time_s, part.after_eager_min_time_s
        if by_time:
            before, after = time_s(part.before_time), time_s(part.after_time)
        elif part.name == "requantization":
            # Not part of the compared minimum times.
            continue
        if before is not None and after is not None and after > before:
            more.append((after - before, part.name))
    longest = sorted(more, reverse=True)[:2]
    return " and ".join(f"{format_s(by_s)} more for {name}" for by_s, name in longest)


def unimproved_layers(what_if: WhatIf) -> str:
    """Return the number of layers that stay compute-bound without gain; ``""``: none."""
    ceilings = [
        each.after.ceiling
        for each in what_if.layers
        if not each.bits.is_float
        and each.after.bound is Bound.COMPUTE
        and each.before.eager_min_time_s is not None
        and each.after.eager_min_time_s is not None
        and each.after.eager_min_time_s >= _NO_GAIN * each.before.eager_min_time_s
    ]
    names = ", ".join(map(ceiling_text, dict.fromkeys(ceilings)))
    count = f"{len(ceilings)} of {counted(len(what_if.layers), 'layer')}"
    return f"{count} stay compute-bound ({names}) without gain" if ceilings else ""


def speedup_cell(of: NativeVariant) -> str:
    """Return ``"0.80 (0.78–0.83)"``."""
    if of.speedup is None:
        return MISSING
    low, high = of.speedup_low, of.speedup_high
    within = "" if low is None or high is None else f" ({low:.2f}–{high:.2f})"
    return f"{of.speedup:.2f}{within}"


_NAMED = 4
"""Maximum number of layer names per bit width of a proposal."""

_NO_KERNEL = "no kernel"
_PARTS: tuple[PartName, ...] = ("layers", "shortcuts", "conversions", "others")


def quantization_blocks(quantization: Quantization, view: View) -> Iterable[Block]:
    analysis, what_if = quantization.analysis, quantization.what_if
    yield KeyValueBlock(lines=tuple(_facts(quantization, view)))
    yield _parts(what_if)
    if what_if.layers:
        yield _layers(what_if.layers, view.rows())
    if what_if.passes:
        yield _passes(what_if.passes)
    widths: dict[str, WhatIf] = {}
    for each in quantization.what_ifs:
        widths.setdefault(each.policy.words, each)
    if len(widths) > 1:
        yield _sweep(tuple(widths.values()))
    variants = quantization.native_variants
    if measured := [each for each in variants if not each.why_not]:
        yield _variants(measured)
    missing = [each for each in variants if each.why_not]
    lines = (f"{each.way} ({bits_text(each.bits)}): {each.why_not}" for each in missing)
    yield from notes("Not measured", lines)
    if (ranking := quantization.sensitivity) is not None:
        yield _ranking(ranking, view.rows())
        yield KeyValueBlock(lines=tuple(_ranking_facts(ranking)))
        yield from notes("Not ranked", ranking.unranked)
        if ranking.proposal is not None:
            yield proposal_grid(ranking.proposal, what_if.layers)
    lines = (line for each in quantization.what_ifs for line in each.notes)
    warnings = (*quantization.warnings, *fit_warnings(analysis), *analysis.warnings)
    yield from notes("Not quantized", dict.fromkeys(what_if.unquantized))
    yield from notes("Notes", dict.fromkeys(lines))
    yield from warning_notes(warnings, view)


def _facts(quantization: Quantization, view: View) -> Iterable[tuple[str, str]]:
    analysis, of = quantization.analysis, quantization.what_if
    yield model_fact(analysis)
    yield from run_fact(analysis)
    yield machine_fact(analysis, view)
    scales = "channel" if of.policy.per_channel else "layer"
    yield "Policy", f"{of.policy.words} · one scale per {scales}"
    types = Counter((each.executable, bits_text(each.bits), each.has_kernel) for each in of.layers)
    counts = (
        f"{name}{'' if bits == 'float' else f' {bits}'}: {counted(count, 'layer')}"
        + ("" if has_kernel else f" ({_NO_KERNEL}, {BANDWIDTH_ONLY})")
        for (name, bits, has_kernel), count in types.items()
    )
    yield "Data types", " · ".join(counts) or "no layer has weights"
    if (was := of.before) is not None:
        after = f"no prediction{'' if of.has_kernels else f': {_NO_KERNEL}'}"
        if (now := of.after) is not None and of.has_kernels:
            after = f"{interval_cell(now.s, now.low_s, now.high_s)}, {speedup_text(was.s, now.s)}"
        yield "Predicted time", f"{interval_cell(was.s, was.low_s, was.high_s)} → {after}"
    yield "Model size", model_size(of)
    how = "weights once, outputs written and read, at the bits of their layer"
    yield "Layer traffic", f"{layer_traffic(of)}: {how}"
    if on := [each for each in of.layers if each.layer.place == "shortcut"]:
        yield "Shortcuts", f"{counted(len(on), 'layer')}, traffic {_traffic(on)}"


def _parts(of: WhatIf) -> Grid:
    by_name = {each.name: each for each in of.parts if each.count}
    parts = [by_name[name] for name in _PARTS if name in by_name]
    before = sum(each.before_bytes for each in parts)
    after = sum(each.after_bytes for each in parts)

    def predicted(part: Part) -> str:
        has_codes = part.name in ("layers", "conversions")
        if has_codes and part.after_time is None and not of.has_kernels:
            return _NO_KERNEL
        return change_text(time_s(part.before_time), time_s(part.after_time), time_cell)

    def total(name: str, count: str, byte: int, after_s: float | None, time: str) -> Any:
        bytes_ = (change_text(before, byte, format_bytes), ratio_text(before, byte))
        return (
            name,
            count,
            *bytes_,
            change_text(of.eager_min_time_before_s, after_s, format_s),
            time,
        )

    whole = _NO_KERNEL
    if of.has_kernels:
        whole = change_text(time_s(of.before), time_s(of.after), time_cell)
    sums = [total("total", "", after, of.eager_min_time_after_s, whole)]
    if (separate := by_name.get("requantization")) is not None:
        count, byte = f"{separate.count:,}", after + separate.after_bytes
        sums.append(total(SEPARATE, count, byte, of.separate_eager_min_time_s, MISSING))
    return table(
        "Breakdown before and after quantization (layers include fused operators)",
        parts,
        {
            "part": "name",
            "count": "count",
            "traffic": lambda each: change_text(each.before_bytes, each.after_bytes, format_bytes),
            "change": lambda each: ratio_text(each.before_bytes, each.after_bytes),
            "minimum time": lambda each: change_text(
                each.before_eager_min_time_s, each.after_eager_min_time_s, format_s
            ),
            "predicted time": predicted,
        },
        left=("part",),
        narrow=("count", "change", "predicted time"),
        sums=sums,
    )


def _layers(layers: Sequence[LayerWhatIf], most: int) -> Grid:
    """Return the layers with the largest change of minimum time, and sums of others and all."""

    def urgency(layer: LayerWhatIf) -> tuple[float, int]:
        before, after = layer.before.eager_min_time_s, layer.after.eager_min_time_s
        changed_s = 0.0 if before is None or after is None else abs(before - after)
        return -changed_s, -abs(layer.before.traffic_bytes - layer.after.traffic_bytes)

    ranked = sorted(layers, key=urgency)
    rest, every = ranked[most:], f"all {len(ranked)}"
    # Without predictions, leave more room for names and types.
    is_timed = any(each.has_kernel and (each.before.time or each.after.time) for each in ranked)
    narrow = ("output", "ceiling", "place", "data type")
    return table(
        f"Layers, before → after: {_shown(most, len(ranked))}largest change first",
        ranked[:most],
        {
            "layer": lambda each: each.layer.name or MODEL_ITSELF,
            "place": lambda each: each.layer.place,
            "bits": lambda each: bits_text(each.bits),
            "output": lambda each: width_text(each.output_bits),
            "traffic": lambda each: _traffic([each]),
            "data type": "executable",
            "minimum time": lambda each: _bounds([each]),
            "ceiling": lambda each: change_text(
                each.before.ceiling, each.after.ceiling, ceiling_text
            ),
            "predicted time": lambda each: _times([each]),
        },
        left=("layer", "place", "bits", "data type", "ceiling"),
        narrow=(*narrow, "predicted time") if is_timed else ("predicted time", *narrow),
        sums=[
            (name, "", "", "", _traffic(of), "", _bounds(of), "", _times(of))
            for name, of in ((f"{len(rest)} more", rest), (every, ranked))
            if of and len(ranked) > 1
        ],
    )


def _shown(most: int, every: int) -> str:
    return f"{most} of {every} ({argument('top', every)} for all), " if most < every else ""


def _traffic(layers: Sequence[LayerWhatIf]) -> str:
    before = sum(each.before.traffic_bytes for each in layers)
    return change_text(before, sum(each.after.traffic_bytes for each in layers), format_bytes)


def _bounds(layers: Sequence[LayerWhatIf]) -> str:
    before_s = sum_known(each.before.eager_min_time_s for each in layers)
    return change_text(
        before_s, sum_known(each.after.eager_min_time_s for each in layers), format_s
    )


def _times(layers: Sequence[LayerWhatIf]) -> str:
    if not all(each.has_kernel for each in layers):
        return _NO_KERNEL
    before_s = sum_known(time_s(each.before.time) for each in layers)
    return change_text(before_s, sum_known(time_s(each.after.time) for each in layers), time_cell)


_Group = Sequence[QuantizationOverhead]


def _passes(passes: _Group) -> Grid:
    """Return the overhead of quantization by kind and width, separate kernels first."""
    alike: dict[tuple[object, ...], list[QuantizationOverhead]] = {}
    for each in sorted(passes, key=lambda each: not each.is_separate):
        key = (each.is_separate, each.kind, each.from_bits, each.to_bits)
        alike.setdefault(key, []).append(each)

    def total(form: Callable[[Any], str], name: str) -> Callable[[_Group], str]:
        return lambda of: form(sum_known(getattr(each, name) for each in of))

    def widths(of: _Group) -> str:
        is_sum = of[0].kind == "requantize" and of[0].from_bits == FLOAT_BITS
        start = "accumulators" if is_sum else width_text(of[0].from_bits)
        return f"{start} → {width_text(of[0].to_bits)}"

    def where(of: _Group) -> str:
        return " … ".join(dict.fromkeys(of[place].where or MODEL_ITSELF for place in (0, -1)))

    return table(
        "Quantize, requantize and dequantize overhead",
        alike.values(),
        {
            "pass": lambda of: of[0].kind,
            "from → to": widths,
            "count": lambda of: f"{len(of):,}",
            "read": total(format_bytes, "read_bytes"),
            "written": total(format_bytes, "written_bytes"),
            "FLOP": total(format_flop, "flop"),
            "minimum time": total(format_s, "eager_min_time_s"),
            "predicted time": lambda of: time_cell(sum_known(time_s(each.time) for each in of)),
            "kernel": lambda of: "separate" if of[0].is_separate else "fused into layer",
            "where": where,
        },
        left=("pass", "from → to", "kernel", "where"),
        narrow=("where", "FLOP", "predicted time", "kernel"),
    )


def _sweep(widths: Sequence[WhatIf]) -> Grid:
    first = widths[0]
    return table(
        f"Bit widths (original: layer traffic {format_bytes(first.layer_bytes_before)}, model size"
        f" {format_bytes(first.model_bytes_before)}, minimum time"
        f" {format_s(first.eager_min_time_before_s)})",
        widths,
        {
            "bits": lambda each: bits_text(each.policy),
            "layer traffic": lambda each: format_bytes(each.layer_bytes_after),
            "change": lambda each: ratio_text(each.layer_bytes_before, each.layer_bytes_after),
            "model size": lambda each: format_bytes(each.model_bytes_after),
            "minimum time": lambda each: format_s(each.eager_min_time_after_s),
            SEPARATE: lambda each: format_s(each.separate_eager_min_time_s),
            "predicted time": lambda each: (
                time_cell(time_s(each.after)) if each.has_kernels else _NO_KERNEL
            ),
            "data types": lambda of: ", ".join(
                dict.fromkeys(each.executable for each in of.layers)
            ),
        },
        left=("bits", "data types"),
        narrow=(SEPARATE, "data types", "change"),
    )


def _variants(measured: Sequence[NativeVariant]) -> Grid:
    def off(of: NativeVariant) -> str:
        if of.predicted_s is None or not of.after_s:
            return MISSING
        return f"{round(100 * (of.predicted_s / of.after_s - 1)):+d} %"

    allocators = (each.allocator for each in measured)
    return table(
        rounds_title("Measured here, interleaved with the original", allocators),
        measured,
        {
            "variant": "way",
            "bits": lambda each: bits_text(each.bits),
            "original": "before_s",
            "time": "after_s",
            "speedup": speedup_cell,
            "rounds": "rounds",
            "predicted time": lambda each: change_text(
                each.predicted_before_s, each.predicted_s, time_cell
            ),
            "prediction error": off,
            "output error": lambda each: error_cell(each.error),
        },
        left=("variant", "bits"),
        narrow=("rounds", "bits", "output error", "prediction error", "predicted time"),
    )


def _ranking(ranking: Sensitivity, most: int) -> Grid:
    """Return layers quantized one at a time, highest error per saving first."""
    ranked = ranking.layers[::-1]
    rest = ranked[most:]
    name, unit, one = "saved_bytes", "kB", 1e3
    if any(each.saved_s is not None for each in ranked):
        name, unit, one = "saved_s", "µs", 1e-6

    def error_per(layer: LayerSensitivity) -> str:
        saved = getattr(layer, name)
        return error_cell(layer.error / (saved / one)) if saved and saved > 0 else MISSING

    kind = {"prediction": "predicted", "bound": "minimum"}[ranking.basis]
    worst = error_cell(max((each.error for each in rest), default=None))
    return table(
        f"Sensitivity, one layer at a time: {_shown(most, len(ranked))}highest error per saving"
        " first",
        ranked[:most],
        {
            "layer": lambda each: each.name or MODEL_ITSELF,
            "bits": lambda each: bits_text(each.bits),
            "output error": lambda each: error_cell(each.error),
            f"saved {kind} time": lambda each: saving_or_loss(each.saved_s, format_s),
            "saved traffic": lambda each: saving_or_loss(each.saved_bytes, format_bytes),
            f"error per {unit} saved": error_per,
        },
        left=("layer", "bits"),
        narrow=(f"error per {unit} saved", "saved traffic"),
        sums=[(f"{len(rest)} more", "", f"≤ {worst}", "", "", "")] if rest else (),
    )


def _ranking_facts(ranking: Sensitivity) -> Iterable[tuple[str, str]]:
    yield "Error inputs", f"{ranking.inputs} · weights: {ranking.weights}"
    if of := ranking.proposal:
        time = {
            "bound": f"minimum time {format_s(of.time_s)}",
            "prediction": f"predicted time {time_cell(of.time_s)}",
        }[ranking.basis]
        parts = (
            f"within {of.budget}" if of.is_within else f"{of.budget} not attainable; closest",
            f"model size {format_bytes(of.model_bytes)}",
            "" if of.time_s is None else time,
            f"output error {error_cell(of.error)}",
        )
        yield "Proposal", " · ".join(filter(None, parts))


def proposal_grid(proposal: Proposal, layers: Sequence[LayerWhatIf]) -> Grid:
    """Return the proposed bits per layer, lowest first."""
    by_bits: dict[tuple[int, int], list[str]] = {}
    for each in layers:
        # Policies name modules; a module that runs several times is several layers.
        name = each.layer.name.partition("#")[0]
        bits = proposal.policy.bits_of(name, each.layer.place)
        names = by_bits.setdefault((bits.weights, bits.activations), [])
        if name not in names:
            names.append(name)

    def named(names: Sequence[str]) -> str:
        more = len(names) - _NAMED
        words = ", ".join(each or MODEL_ITSELF for each in names[:_NAMED])
        return f"{words} and {counted(more, 'other')}" if more > 0 else words

    return table(
        f"Proposed bits (apply a saved .json with {argument('policy')})",
        sorted(by_bits.items()),
        {
            "bits": lambda of: bits_text(LayerBits(weights=of[0][0], activations=of[0][1])),
            "layers": lambda of: f"{len(of[1]):,}",
            "names": lambda of: named(of[1]),
        },
        left=("bits", "names"),
    )
