"""Repeated timings of one thing, and what they are worth."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["steady", "noisy", "unusable"]

_NOISY = 0.05
_UNUSABLE = 0.25


def quantile(values: tuple[float, ...] | list[float], fraction: float) -> float:
    """The `fraction` quantile of `values` by linear interpolation between neighbours."""
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Repeated timings in seconds of one thing done the same way; at least one, all positive.

    Raises:
        ValueError: no timing, or one that is not positive.
    """

    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times_s or min(self.times_s) <= 0:
            raise ValueError(f"a sample takes positive times, got {self.times_s!r}")

    @property
    def median_s(self) -> float:
        """The median time in seconds."""
        return statistics.median(self.times_s)

    @property
    def iqr_s(self) -> float:
        """The interquartile range in seconds."""
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
        """Significant digits of the median that the spread leaves standing, 1 to 4."""
        if self.spread <= 0:
            return 4
        return max(1, min(4, 1 + math.floor(-math.log10(self.spread))))
