"""Cells of the report on a quantisation: what stood before and stands after, and how much less."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from roofline.analysis.words import MODEL_ITSELF
from roofline.design.advice.times import Time
from roofline.foundation.spreads import interval_cell
from roofline.foundation.text import printable
from roofline.foundation.units import MISSING, format_s
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import BANDWIDTH_ONLY, LayerWhatIf
from roofline.quantization.verdict import compared

_TIME_DIGITS = 2
"""What a prediction is worth without its interval."""

_WHERE_CHARACTERS = 22


def change(before: float | None, after: float | None, form: Callable[[float], str]) -> str:
    """``"2.69 MB → 295 kB"``; said once where both read the same."""
    was, now = (MISSING if each is None else form(each) for each in (before, after))
    return was if was == now else f"{was} → {now}"


def words_change(before: str, after: str) -> str:
    """As `change`, of names: ``"float32 avx512 fma → DRAM read"``."""
    was, now = (printable(each) or MISSING for each in (before, after))
    return was if was == now else f"{was} → {now}"


def times_less(before: float | None, after: float | None) -> str:
    """How much less there is after: ``"9.12 × less"``, ``"1.20 × more"``."""
    return _compared(before, after, "less", "more")


def times_faster(before_s: float | None, after_s: float | None) -> str:
    """How much faster it is after: ``"1.80 × faster"``, ``"1.20 × slower"``."""
    return _compared(before_s, after_s, "faster", "slower")


def _compared(before: float | None, after: float | None, less: str, more: str) -> str:
    if before is None or after is None:
        return MISSING
    return compared(before, after, less=less, more=more)


def seconds_words(predicted_s: float) -> str:
    """A prediction in seconds, in two digits: ``"1.2 ms"``."""
    return format_s(predicted_s, _TIME_DIGITS)


def time_change(before: Time | None, after: Time | None) -> str:
    """Predictions without their intervals: ``"1.2 ms → 0.80 ms"``."""
    was_s, now_s = (None if each is None else each.s for each in (before, after))
    return change(was_s, now_s, seconds_words)


def time_cell(time: Time | None) -> str:
    """A prediction with its interval: ``"1.2 (1.0–1.5) ms"``."""
    return MISSING if time is None else interval_cell(time.s, time.low_s, time.high_s)


def bits_words(bits: LayerBits) -> str:
    """``"w2a4"``, or that it stays in floats."""
    return "float" if bits.is_float else bits.words


def width_words(bits: int) -> str:
    """``"2-bit"``, or ``"float"``."""
    return "float" if bits == FLOAT_BITS else f"{bits}-bit"


def policy_bits(policy: Policy) -> str:
    """The widths of most layers: ``"w2a2"``."""
    return bits_words(LayerBits(weights=policy.weights, activations=policy.activations))


def layer_name(layer: LayerWhatIf) -> str:
    """The layer's qualified name, or that it is the model itself."""
    return printable(layer.layer.name) or MODEL_ITSELF


def layer_time(layer: LayerWhatIf) -> str:
    """What a layer is predicted to take, or that no speed is claimed."""
    if not layer.has_kernel:
        return BANDWIDTH_ONLY
    return time_change(layer.before.time, layer.after.time)


def shown_words(shown: int, every: int) -> str:
    """How many of all rows there are, and how to see them: ``"10 of 22 (--top 22), "``."""
    return f"{shown} of {every} (--top {every}), " if shown < every else ""


def places_words(places: Sequence[str]) -> str:
    """Where passes are: the first and the last place, long ones with their ends alone."""
    names = [printable(each) or MODEL_ITSELF for each in dict.fromkeys(places)]
    if len(names) == 1:
        return _end(names[0], 2 * _WHERE_CHARACTERS)
    return " … ".join(_end(names[i], _WHERE_CHARACTERS) for i in (0, -1)) if names else ""


def _end(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[1 - most :]}"
