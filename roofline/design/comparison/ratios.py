"""Ratios of times with uncertainty, and interleaved rounds of measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from roofline.core.sampling import Sample, quantile
from roofline.machine.core_state import CoreState

_LEAST_DIGITS, _MOST_DIGITS = 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Ratio with an 80 % interval from ``low`` to ``high`` (None: unknown)."""

    value: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"an interval has two ends, got {self}")
        low, high = self.low or self.value, self.high or self.value
        # Tolerance for rounding.
        if not 0 <= low <= self.value * (1 + 1e-9) <= high * (1 + 2e-9):
            raise ValueError(f"{self.value} is not in {self.low} to {self.high}")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends; None if unknown."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def inverse(self) -> Ratio:
        """Inverse ratio."""
        ends = self.interval
        low, high = (1 / ends[1], 1 / ends[0]) if ends else (None, None)
        return Ratio(value=1 / self.value, low=low, high=high)

    @property
    def may_be_either(self) -> bool:
        """True if the interval includes 1 (not significant)."""
        ends = self.interval
        return ends is not None and ends[0] < 1 < ends[1]

    @property
    def text(self) -> str:
        """``"3.4 (2.9–4.1)"``; without an interval ``"3.4"``."""
        value, ends = self.words
        return f"{value} ({ends[0]}–{ends[1]})" if ends else value

    @property
    def words(self) -> tuple[str, tuple[str, str] | None]:
        """Ratio and interval ends, rounded to the same decimal place."""
        ends = self.interval
        if not self.value:
            return "0", None
        digits = _LEAST_DIGITS
        if ends:
            spread = (ends[1] - ends[0]) / self.value
            # An interval without spread allows all digits.
            digits = _MOST_DIGITS if spread <= 0 else 1 + math.floor(-math.log10(spread))
            digits = max(_LEAST_DIGITS, min(_MOST_DIGITS, digits))
        # Rounding up to 10 removes a decimal place.
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
    """Return the ratio of two predicted times with its 80 % interval.

    Errors are taken as independent: half-widths add in quadrature, as logarithms. Errors of similar
    designs correlate and cancel, so the interval tends to be too wide.
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
    """Return the median of the ratios of rounds, with their 10 % and 90 % quantiles."""
    found = list(ratios)
    if len(found) < 2:
        return Ratio(value=median(found))
    return Ratio(value=median(found), low=quantile(found, 0.1), high=quantile(found, 0.9))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTime:
    """Undisturbed passes of one model in one round in seconds, and the clock in Hz."""

    times_s: tuple[float, ...]
    clock_hz: float | None = None

    def __post_init__(self) -> None:
        Sample(times_s=self.times_s)
        CoreState(clock_hz=self.clock_hz)

    @property
    def measured_s(self) -> float:
        """Median of the passes in seconds."""
        return Sample(times_s=self.times_s).median_s

    def at_clock_of(self, other: RoundTime) -> float:
        """Return the median scaled to the clock of `other`, if both are known."""
        return self.measured_s / CoreState(clock_hz=self.clock_hz).slowdown(
            CoreState(clock_hz=other.clock_hz)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRounds:
    """Interleaved measurements of models on this machine: ``rounds`` of all models in order.

    ``own_processes``: each time is from a fresh process. ``allocator`` names the malloc settings
    (``""``: unknown), ``conditions`` are warnings of the measurement.
    """

    rounds: tuple[tuple[RoundTime, ...], ...]
    date: str = ""
    own_processes: bool = True
    allocator: str = ""
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.rounds or len({len(each) for each in self.rounds}) != 1 or not self.rounds[0]:
            raise ValueError("rounds must have the same models, at least one")

    @property
    def models(self) -> int:
        """Number of models."""
        return len(self.rounds[0])

    def sample(self, model: int) -> Sample:
        """Return the times of one model in seconds, a median per round."""
        return Sample(times_s=tuple(each[model].measured_s for each in self.rounds))

    def ratio(self, model: int, base: int, *, per: float = 1.0) -> Ratio:
        """Return the time of a model over that of `base`, per sample, at one clock."""
        if model == base:
            return Ratio(value=1.0)
        return ratio_of_rounds(
            [
                each[model].at_clock_of(each[base]) / each[base].measured_s / per
                for each in self.rounds
            ]
        )
