"""Ratios of times with what is known of their uncertainty, and in as many digits as that leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from roofline.foundation.sampling import quantile

_LEAST_DIGITS, _MOST_DIGITS = 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio, and where it is known the interval that holds 8 of 10: ``low`` to ``high``.

    Raises:
        ValueError: one end of an interval without the other, or ends that are not around it.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"an interval has two ends, got {self}")
        low, high = self.low or self.value, self.high or self.value
        # Rounding may leave an end on the wrong side of a ratio that it is equal to.
        if not 0 <= low <= self.value * (1 + 1e-9) <= high * (1 + 2e-9):
            raise ValueError(f"{self.value} is not in {self.low} to {self.high}")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, where they are known."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def inverse(self) -> Ratio:
        """The ratio the other way round."""
        ends = self.interval
        low, high = (1 / ends[1], 1 / ends[0]) if ends else (None, None)
        return Ratio(value=1 / self.value, low=low, high=high)

    @property
    def may_be_either(self) -> bool:
        """Whether its interval holds 1, so that either side may be the larger."""
        ends = self.interval
        return ends is not None and ends[0] < 1 < ends[1]

    @property
    def text(self) -> str:
        """``"3.4 (2.9–4.1)"``; without an interval ``"3.4"``."""
        value, ends = self.words
        return f"{value} ({ends[0]}–{ends[1]})" if ends else value

    @property
    def words(self) -> tuple[str, tuple[str, str] | None]:
        """The ratio and the ends of its interval, rounded at one place."""
        ends = self.interval
        if not self.value:
            return "0", None
        digits = _LEAST_DIGITS
        if ends:
            spread = (ends[1] - ends[0]) / self.value
            # A ratio of two equal numbers has no spread, and is worth what numbers are.
            digits = _MOST_DIGITS if spread <= 0 else 1 + math.floor(-math.log10(spread))
            digits = max(_LEAST_DIGITS, min(_MOST_DIGITS, digits))
        # What rounds up to 10 has a place less than what it was rounded from.
        rounded = float(f"{self.value:.{digits - 1}e}")
        place = digits - 1 - math.floor(math.log10(rounded))
        if not ends:
            return _at(self.value, place), None
        return _at(self.value, place), (_at(ends[0], place), _at(ends[1], place))


def ratio_of_predictions(
    value_s: float,
    interval_s: tuple[float, float] | None,
    base_s: float,
    base_interval_s: tuple[float, float] | None,
) -> Ratio:
    """The ratio of two predicted times, with the 10-90 % interval that follows from theirs.

    The errors of both are taken to be independent: their halves of the intervals, as logarithms,
    add as squares do. Only the intervals themselves are known. Designs of one kind are predicted
    from the same samples and tend to be wrong in the same direction, which cancels in the ratio, so
    that the interval is rather too wide than too narrow there. What `validate --designs` finds of
    the errors of ratios is of the machine and day it ran on, and is not put in its place.

    Args:
        value_s, base_s: the times in seconds, above 0.
        interval_s, base_interval_s: their intervals in seconds; None where one is not known, and
            then the ratio has none.
    """
    value = value_s / base_s
    if interval_s is None or base_interval_s is None:
        return Ratio(value=value)
    if min(interval_s[0], base_interval_s[0]) <= 0:
        return Ratio(value=value)
    down = math.hypot(math.log(value_s / interval_s[0]), math.log(base_interval_s[1] / base_s))
    up = math.hypot(math.log(interval_s[1] / value_s), math.log(base_s / base_interval_s[0]))
    return Ratio(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def ratio_of_rounds(ratios: Sequence[float]) -> Ratio:
    """The median of the ratios that rounds gave, and the interval that holds 8 of 10 of them.

    One round gives no spread.
    """
    middle = median(ratios)
    if len(ratios) < 2:
        return Ratio(value=middle)
    found = list(ratios)
    return Ratio(value=middle, low=quantile(found, 0.1), high=quantile(found, 0.9))


def _at(value: float, place: int) -> str:
    """`value` rounded at a decimal place; below 0: at tens, hundreds …"""
    return f"{round(value, place):.{max(0, place)}f}"
