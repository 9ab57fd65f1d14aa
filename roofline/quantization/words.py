"""Words about lower precision: changes of bytes and times, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roofline.design.advice.times import Time
from roofline.foundation.text import counted
from roofline.foundation.units import MISSING, format_bytes, format_ratio, format_s
from roofline.placement import Bound
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import (
    BANDWIDTH_ONLY,
    NativeVariant,
    PartName,
    Quantization,
    WhatIf,
)

_SAME = 1.005
"""A ratio that is rounded to 1.00."""

_NO_GAIN = 0.95
"""The share of a minimum time above which nothing is gained."""

SEPARATE = "with requantization in separate kernels"


def change(before: object, after: object, form: Callable[[Any], str]) -> str:
    """Return ``"2.69 MB → 295 kB"``; one of both where they read the same."""
    was, now = (MISSING if each is None else form(each) for each in (before, after))
    return was if was == now else f"{was} → {now}"


def reduced(
    before: float | None, after: float | None, less: str = "less", more: str = "more"
) -> str:
    """Return how a figure changed: ``"13.9× less"``; `less` and `more` are the words for it."""
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


def faster(before_s: float | None, after_s: float | None) -> str:
    """Return ``"1.80× faster"`` or ``"1.20× slower"``."""
    return reduced(before_s, after_s, "faster", "slower")


def bits_words(bits: LayerBits | Policy) -> str:
    """Return ``"w2a4"``, or that nothing is quantized."""
    weights, activations = bits.weights, bits.activations
    return "float" if weights == activations == FLOAT_BITS else f"w{weights}a{activations}"


def error_words(error: float | None) -> str:
    """Return a relative error in two digits; ``"0"`` where outputs are equal."""
    return MISSING if error is None else f"{error:.2g}"


def model_size(of: WhatIf) -> str:
    """Return ``"46.8 MB → 4.04 MB (11.6× smaller)"``."""
    before, after = of.model_bytes_before, of.model_bytes_after
    return f"{change(before, after, format_bytes)} ({reduced(before, after, 'smaller', 'larger')})"


def layer_traffic(of: WhatIf) -> str:
    """Return ``"66.6 MB → 7.72 MB (8.62× less)"``."""
    before, after = of.layer_bytes_before, of.layer_bytes_after
    return f"{change(before, after, format_bytes)} ({reduced(before, after)})"


def seconds(predicted_s: float | None) -> str:
    """Return a prediction without its interval, in two digits."""
    return format_s(predicted_s, 2)


def time_s(time: Time | None) -> float | None:
    """Return the seconds of a time that may not be known."""
    return time.s if time else None


def verdict(quantization: Quantization) -> str:
    """Return the effect of the policy on bytes and minimum time, and on times if there are any."""
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
        what = "" if of.has_kernels else f" ({BANDWIDTH_ONLY})"
        shorter = reduced(before_s, after_s, "shorter", "longer")
        words = f"{change(before_s, after_s, format_s)} ({shorter})"
        parts.append(f"eager minimum time{what} {words}")
        if after_s > _SAME * before_s and of.after is None:
            parts.append(why_longer(of) or without_gain(of))
        elif after_s > _NO_GAIN * before_s:
            parts.append(without_gain(of))
        if separate_s is not None and separate_s > before_s >= after_s:
            parts.append(f"{SEPARATE} {format_s(separate_s)}, longer than as it is")
    was_s, now_s = time_s(of.before), time_s(of.after)
    if not of.has_kernels:
        missing = dict.fromkeys(each.bits.words for each in of.layers if not each.has_kernel)
        name = quantization.analysis.hardware.name
        parts.append(f"{name} has no kernel for {', '.join(missing)}, no speedup is estimated")
    elif was_s is not None and now_s is not None:
        parts.append(f"predicted time {change(was_s, now_s, seconds)} ({faster(was_s, now_s)})")
        parts.append(why_longer(of) if now_s > _SAME * was_s else "")
    parts += [
        f"{each.way}: measured speedup {speedup_words(each)}"
        for each in quantization.native_variants
        if bits_words(each.bits) == bits_words(of.policy) and each.speedup is not None
    ]
    return "; ".join(filter(None, parts))


def why_longer(what_if: WhatIf) -> str:
    """Return the two parts that add most time; ``""``: none does.

    By predictions where the whole pass has them, else by minimum times.
    """
    more: list[tuple[float, PartName]] = []
    by_time = what_if.before is not None and what_if.after is not None
    for part in what_if.parts:
        before, after = part.before_eager_min_time_s, part.after_eager_min_time_s
        if by_time:
            before, after = time_s(part.before_time), time_s(part.after_time)
        elif part.name == "requantization":
            # In separate kernels it is in none of the minimum times that are compared.
            continue
        if before is not None and after is not None and after > before:
            more.append((after - before, part.name))
    longest = sorted(more, reverse=True)[:2]
    return " and ".join(f"{format_s(by_s)} more for {name}" for by_s, name in longest)


def without_gain(what_if: WhatIf) -> str:
    """Return the number of layers that stay compute-bound in the same time; ``""``: none."""
    ceilings = [
        each.after.ceiling
        for each in what_if.layers
        if not each.bits.is_float
        and each.after.bound is Bound.COMPUTE
        and each.before.eager_min_time_s is not None
        and each.after.eager_min_time_s is not None
        and each.after.eager_min_time_s >= _NO_GAIN * each.before.eager_min_time_s
    ]
    names = ", ".join(dict.fromkeys(ceilings))
    count = f"{len(ceilings)} of {counted(len(what_if.layers), 'layer')}"
    return f"{count} stay compute-bound ({names}) and gain nothing" if ceilings else ""


def speedup_words(of: NativeVariant) -> str:
    """Return ``"0.80 (0.78–0.83)"``."""
    if of.speedup is None:
        return MISSING
    low, high = of.speedup_low, of.speedup_high
    within = "" if low is None or high is None else f" ({low:.2f}–{high:.2f})"
    return f"{of.speedup:.2f}{within}"
