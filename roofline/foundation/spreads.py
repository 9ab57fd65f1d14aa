"""Times with an interval or a spread, in no more digits than that leaves standing."""

from __future__ import annotations

import math
from collections.abc import Iterable

from roofline.foundation.sampling import Sample
from roofline.foundation.text import printable
from roofline.foundation.units import MISSING, format_s

_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}

_LEAST_DIGITS = 2
"""One digit can be 50 % off, which is more than any median of several passes or prediction is."""

_DIGITS = 3


def digits_of(spread: float) -> int:
    """Significant digits of a time whose spread is that fraction of it: 2 to 4.

    As `Sample.digits`, but for the least: a middle is better known than what it is the middle of.
    """
    if spread <= 0:
        return 4
    return max(_LEAST_DIGITS, min(4, 1 + math.floor(-math.log10(spread))))


def digits_of_sample(sample: Sample) -> int:
    """Significant digits of a median; of a single timing, whose spread is not known, 3."""
    return digits_of(sample.spread) if len(sample.times_s) > 1 else _DIGITS


def in_its_unit(
    leading_s: float, others_s: tuple[float, ...], digits: int
) -> tuple[list[str], str]:
    """Times in seconds as numbers in one unit, rounded at the same place, and that unit.

    Args:
        leading_s: the time that chooses unit and place, above 0.
        others_s: those that stand beside it.
        digits: how many significant digits the first has.
    """
    number, unit = format_s(leading_s, digits).split(" ")
    # The place is that of the last digit: of 680 with two digits, the tens.
    place = digits - 1 - math.floor(math.log10(float(number)))
    shown = max(0, place)
    others = [f"{round(each / _SECONDS[unit], place):.{shown}f}" for each in others_s]
    return [number, *others], unit


def interval_cell(predicted_s: float | None, low_s: float | None, high_s: float | None) -> str:
    """A prediction in a table: ``"1.2 (1.0–1.5) ms"``; without interval in two digits."""
    if predicted_s is None:
        return MISSING
    if not predicted_s or low_s is None or high_s is None:
        return format_s(predicted_s, _LEAST_DIGITS)
    digits = digits_of((high_s - low_s) / predicted_s)
    (middle, low, high), unit = in_its_unit(predicted_s, (low_s, high_s), digits)
    return f"{middle} ({low}–{high}) {unit}"


def interval_words(predicted_s: float, low_s: float, high_s: float) -> tuple[str, str]:
    """A prediction and its interval in a sentence: ``"27 ms"`` and ``"24 to 31 ms"``."""
    if not predicted_s:
        return format_s(predicted_s), f"{format_s(low_s)} to {format_s(high_s)}"
    digits = digits_of((high_s - low_s) / predicted_s)
    (middle, low, high), unit = in_its_unit(predicted_s, (low_s, high_s), digits)
    return f"{middle} {unit}", f"{low} to {high} {unit}"


def rounds_title(what: str, allocators: Iterable[str]) -> str:
    """The title of a table of what was timed in rounds, with the allocators it was timed with."""
    named = ", ".join(map(printable, dict.fromkeys(filter(None, allocators))))
    return f"{what} (medians; 10 to 90 % of rounds{f'; allocator: {named}' if named else ''})"


def median_text(sample: Sample) -> str:
    """The median of repeated timings: ``"28.3 ms"``."""
    return format_s(sample.median_s, digits_of_sample(sample))


def median_cell(measured_s: float | None, iqr_s: float | None) -> str:
    """A measured time in a table, of which only the interquartile range may be known."""
    if not measured_s or iqr_s is None:
        return format_s(measured_s)
    return format_s(measured_s, digits_of(iqr_s / measured_s))
