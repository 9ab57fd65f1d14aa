"""Ratios of times with their uncertainty, in as many digits as that leaves; rounds of timing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from roofline.core.sampling import Sample, quantile
from roofline.machine.pace import Pace

_LEAST_DIGITS, _MOST_DIGITS = 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio, and where it is known the interval that holds 8 of 10: ``low`` to ``high``."""

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

        def text(value: float) -> str:
            return f"{round(value, place):.{max(0, place)}f}"

        return text(self.value), (text(ends[0]), text(ends[1])) if ends else None


def ratio_of_predictions(
    value_s: float,
    interval_s: tuple[float, float] | None,
    base_s: float,
    base_interval_s: tuple[float, float] | None,
) -> Ratio:
    """Return the ratio of two predicted times, with the 10-90 % interval that follows from theirs.

    Errors are taken to be independent: their halves of the intervals, as logarithms, add as squares
    do. Designs of one kind tend to be wrong in the same direction, which cancels in the ratio, so
    that the interval is rather too wide than too narrow there.
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
    """Return the median of the ratios that rounds gave, and the interval of 8 of 10 of them."""
    found = list(ratios)
    if len(found) < 2:
        return Ratio(value=median(found))
    return Ratio(value=median(found), low=quantile(found, 0.1), high=quantile(found, 0.9))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTime:
    """One model in one round: the passes that count, in seconds, and the clock meanwhile in Hz."""

    times_s: tuple[float, ...]
    clock_hz: float | None = None

    def __post_init__(self) -> None:
        Sample(times_s=self.times_s)
        Pace(clock_hz=self.clock_hz)

    @property
    def measured_s(self) -> float:
        """The median of the passes in seconds."""
        return Sample(times_s=self.times_s).median_s

    def at_clock_of(self, other: RoundTime) -> float:
        """Return the median as it would be at the clock of `other`, as far as clocks are known."""
        return self.measured_s / Pace(clock_hz=self.clock_hz).slowdown(
            Pace(clock_hz=other.clock_hz)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRounds:
    """What models took on this machine: ``rounds`` of all of them in turn, in one order.

    With ``own_processes`` each time is from a process of its own. ``allocator`` names the settings
    of malloc there (``""``: not known), ``conditions`` are what was noticed meanwhile.
    """

    rounds: tuple[tuple[RoundTime, ...], ...]
    date: str = ""
    own_processes: bool = True
    allocator: str = ""
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.rounds or len({len(each) for each in self.rounds}) != 1 or not self.rounds[0]:
            raise ValueError("every round measures the same models, and there is at least one")

    @property
    def models(self) -> int:
        """How many models were measured."""
        return len(self.rounds[0])

    def sample(self, model: int) -> Sample:
        """The times of one model in seconds, a median for each round."""
        return Sample(times_s=tuple(each[model].measured_s for each in self.rounds))

    def ratio(self, model: int, base: int, *, per: float = 1.0) -> Ratio:
        """Return how many times as long as `base` a model took for each sample, at one clock."""
        if model == base:
            return Ratio(value=1.0)
        return ratio_of_rounds(
            [
                each[model].at_clock_of(each[base]) / each[base].measured_s / per
                for each in self.rounds
            ]
        )
