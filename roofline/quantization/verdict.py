"""What lower precision comes to, in a sentence: bytes, then bounds, and times where there are any.

A width that the machine has no kernel for has no speed, and none is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofline.foundation.text import printable
from roofline.foundation.units import format_byte, format_ratio, format_s
from roofline.placement import Bound
from roofline.quantization.result import BANDWIDTH_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofline.quantization.findings import Companion
    from roofline.quantization.result import PartName, Quantization, WhatIf

_PARTS: dict[PartName, str] = {
    "layers": "the layers themselves",
    "requantization": "requantisation",
    "conversions": "conversions between floats and codes",
    "shortcuts": "additions at shortcuts",
    "others": "the other operators",
}
"""What parts are called in a sentence."""

_SAME = 1.005
"""A ratio that is rounded to 1.00."""

_NO_GAIN = 0.95
"""A bound that stays above this share of itself gains nothing worth telling."""

_SHOWN = 2
"""How many parts are named that take longer."""


def verdict(quantization: Quantization) -> str:
    """The model, and what the asked policy does to its bytes, its bound, and its time."""
    asked = quantization.what_if
    said = [f"{asked.policy.words}: {_bytes(asked)}", *_bounds(asked, quantization)]
    said += [*_times(asked), *_measured(quantization)]
    return f"{printable(quantization.model)}: {'; '.join(said)}"


def compared(before: float, after: float, *, less: str, more: str) -> str:
    """How a figure changed: ``"13.9 × less"``.

    Args:
        before: as it is.
        after: in few bits.
        less: the word where it falls.
        more: the word where it rises.
    """
    if before == after:
        return "the same"
    if not before or not after:
        return less if after < before else more
    ratio = before / after
    if max(ratio, 1 / ratio) < _SAME:
        return "the same"
    return f"{format_ratio(ratio)} × {less}" if ratio > 1 else f"{format_ratio(1 / ratio)} × {more}"


def why_longer(what_if: WhatIf) -> str:
    """What takes longer than before, the most first; ``""`` if nothing does.

    By predictions where the whole pass has them, else by bounds.
    """
    more: list[tuple[float, PartName]] = []
    by_time = what_if.before is not None and what_if.after is not None
    for part in what_if.parts:
        before, after = part.before_bound_s, part.after_bound_s
        if by_time:
            before = part.before_time.s if part.before_time is not None else None
            after = part.after_time.s if part.after_time is not None else None
        elif part.name == "requantization":
            # No kernel of its own: it is in none of the bounds that are compared.
            continue
        if before is not None and after is not None and after > before:
            more.append((after - before, part.name))
    longest = sorted(more, reverse=True)[:_SHOWN]
    return " and ".join(f"{_PARTS[name]} take {format_s(by_s)} more" for by_s, name in longest)


def without_gain(what_if: WhatIf) -> str:
    """The layers whose bound stays, as arithmetic binds it that stays; ``""`` if there are none."""
    staying = [
        each
        for each in what_if.layers
        if not each.bits.is_float
        and each.after.bound is Bound.COMPUTE
        and each.before.bound_s is not None
        and each.after.bound_s is not None
        and each.after.bound_s >= _NO_GAIN * each.before.bound_s
    ]
    if not staying:
        return ""
    ceilings = ", ".join(dict.fromkeys(each.after.ceiling for each in staying))
    return (
        f"{len(staying)} of {len(what_if.layers)} layers gain nothing: their arithmetic binds them"
        f" ({ceilings})"
    )


def _bytes(asked: WhatIf) -> str:
    model = compared(asked.model_byte_before, asked.model_byte_after, less="smaller", more="larger")
    traffic = compared(asked.layer_byte_before, asked.layer_byte_after, less="less", more="more")
    return (
        f"the model takes {format_byte(asked.model_byte_after)} instead of"
        f" {format_byte(asked.model_byte_before)} ({model}), its layers move"
        f" {format_byte(asked.layer_byte_after)} instead of"
        f" {format_byte(asked.layer_byte_before)} ({traffic})"
    )


def _bounds(asked: WhatIf, quantization: Quantization) -> Iterable[str]:
    before_s, after_s = asked.bound_before_s, asked.bound_after_s
    if before_s is not None and after_s is not None:
        change = compared(before_s, after_s, less="less", more="more")
        what = "the bound" if asked.has_kernels else f"the bound of a {BANDWIDTH_ONLY}"
        yield f"{what} is {format_s(after_s)} instead of {format_s(before_s)} ({change})"
        if after_s > _SAME * before_s and (why := why_longer(asked)) and asked.after is None:
            yield why
        elif after_s > _NO_GAIN * before_s and (stays := without_gain(asked)):
            yield stays
        separate_s = asked.separate_bound_s
        if separate_s is not None and separate_s > before_s >= after_s:
            yield (
                "with requantisation as kernels of its own it would be"
                f" {format_s(separate_s)}, more than now"
            )
    if not asked.has_kernels:
        machine = printable(quantization.analysis.hardware.name)
        missing = dict.fromkeys(each.bits.words for each in asked.layers if not each.has_kernel)
        yield f"{machine} has no kernel for {', '.join(missing)}, so no speed is told"


def _times(asked: WhatIf) -> Iterable[str]:
    before, after = asked.before, asked.after
    if before is None or after is None or not asked.has_kernels:
        return
    change = compared(before.s, after.s, less="faster", more="slower")
    yield f"predicted {format_s(after.s)} instead of {format_s(before.s)} ({change})"
    if after.s > _SAME * before.s and (why := why_longer(asked)):
        yield f"slower because {why}"


def _measured(quantization: Quantization) -> Iterable[str]:
    asked = quantization.what_if.policy
    for each in quantization.companions:
        is_asked = (each.bits.weights, each.bits.activations) == (asked.weights, asked.activations)
        if is_asked and each.speedup is not None:
            yield f"{printable(each.way)} measured {_speedup(each, each.speedup)}"


def _speedup(companion: Companion, speedup: float) -> str:
    words = compared(speedup, 1.0, less="faster", more="slower")
    low, high = companion.speedup_low, companion.speedup_high
    if low is None or high is None:
        return words
    return f"{words} ({format_ratio(low)} to {format_ratio(high)} × as fast)"
