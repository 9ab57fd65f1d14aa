"""Samples of measured times, their statistics and rounding."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from roofline.core.text import printable
from roofline.core.units import MISSING, format_s

Verdict = Literal["steady", "noisy", "unusable"]

_NOISY = 0.05
_UNUSABLE = 0.25


def quantile(values: tuple[float, ...] | list[float], fraction: float) -> float:
    """Return the `fraction` quantile by linear interpolation."""
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Repeated timings in seconds under the same conditions; at least one, all positive."""

    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times_s or min(self.times_s) <= 0:
            raise ValueError(f"a sample takes positive times, got {self.times_s!r}")

    @property
    def median_s(self) -> float:
        """Median time in seconds."""
        return statistics.median(self.times_s)

    @property
    def iqr_s(self) -> float:
        """Interquartile range in seconds."""
        return quantile(self.times_s, 0.75) - quantile(self.times_s, 0.25)

    @property
    def spread(self) -> float:
        """Interquartile range over median, a fraction."""
        return self.iqr_s / self.median_s

    @property
    def verdict(self) -> Verdict:
        """``steady`` below 5 % spread, ``noisy`` below 25 %, else ``unusable``."""
        if self.spread < _NOISY:
            return "steady"
        return "noisy" if self.spread < _UNUSABLE else "unusable"

    @property
    def digits(self) -> int:
        """Significant digits of the median, from the spread: 1 to 4."""
        if self.spread <= 0:
            return 4
        return max(1, min(4, 1 + math.floor(-math.log10(self.spread))))


_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}

_LEAST_DIGITS = 2
"""Minimum of significant digits: one digit can be 50 % off."""

_DIGITS = 3


def digits_of(spread: float) -> int:
    """Return the significant digits of a time with that relative spread: 2 to 4.

    As `Sample.digits`, with a higher minimum.
    """
    if spread <= 0:
        return 4
    return max(_LEAST_DIGITS, min(4, 1 + math.floor(-math.log10(spread))))


def digits_of_sample(sample: Sample) -> int:
    """Return the significant digits of a median; 3 for a single timing."""
    return digits_of(sample.spread) if len(sample.times_s) > 1 else _DIGITS


def in_common_unit(
    leading_s: float, others_s: tuple[float, ...], digits: int
) -> tuple[list[str], str]:
    """Return times as numbers in one unit, rounded at the same place, and the unit.

    Args:
        leading_s: time that sets unit and place, above 0.
        others_s: other times.
        digits: significant digits of the first.
    """
    number, unit = format_s(leading_s, digits).split(" ")
    # Place of the last significant digit: of 680 with two digits, the tens.
    place = digits - 1 - math.floor(math.log10(float(number)))
    shown = max(0, place)
    others = [f"{round(each / _SECONDS[unit], place):.{shown}f}" for each in others_s]
    return [number, *others], unit


def interval_cell(predicted_s: float | None, low_s: float | None, high_s: float | None) -> str:
    """Return a prediction for a table: ``"1.2 (1.0–1.5) ms"``; two digits without interval."""
    if predicted_s is None:
        return MISSING
    if not predicted_s or low_s is None or high_s is None:
        return format_s(predicted_s, _LEAST_DIGITS)
    digits = digits_of((high_s - low_s) / predicted_s)
    (middle, low, high), unit = in_common_unit(predicted_s, (low_s, high_s), digits)
    return f"{middle} ({low}–{high}) {unit}"


def interval_text(predicted_s: float, low_s: float, high_s: float) -> tuple[str, str]:
    """Return a prediction and its interval: ``"27 ms"`` and ``"24–31 ms"``."""
    if not predicted_s:
        return format_s(predicted_s), f"{format_s(low_s)}–{format_s(high_s)}"
    digits = digits_of((high_s - low_s) / predicted_s)
    (middle, low, high), unit = in_common_unit(predicted_s, (low_s, high_s), digits)
    return f"{middle} {unit}", f"{low}–{high} {unit}"


def rounds_title(what: str, allocators: Iterable[str]) -> str:
    """Return the title of a table of rounds, with their allocators."""
    named = ", ".join(map(printable, dict.fromkeys(filter(None, allocators))))
    return f"{what} (medians; 10 to 90 % of rounds{f'; allocator: {named}' if named else ''})"


def median_text(sample: Sample) -> str:
    """Return the median as text: ``"28.3 ms"``."""
    return format_s(sample.median_s, digits_of_sample(sample))


def median_cell(measured_s: float | None, iqr_s: float | None) -> str:
    """Return a measured time for a table, rounded by its interquartile range."""
    if not measured_s or iqr_s is None:
        return format_s(measured_s)
    return format_s(measured_s, digits_of(iqr_s / measured_s))
