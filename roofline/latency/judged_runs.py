"""Predicted and measured times of single runs: of one model, or of one pair of designs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from roofline.foundation.text import counted

BOUND_MARGIN = 0.97
"""An operator keeps its minimum time if it takes at least this share of it: clocks vary by 3 %."""

_LARGEST = 1e12
"""No time in s, no clock in Hz and no ratio is larger, or smaller than one by it; errors of such
would be beyond all floating-point numbers."""


def _check(name: str, of: str, values: Iterable[float | None]) -> None:
    for each in values:
        if each is not None and not 1 / _LARGEST <= each <= _LARGEST:
            raise ValueError(f"{name}: {of} are positive numbers, 1e-12 to 1e12, got {each:.3g}")


class Setting(NamedTuple):
    """The way a model is run; only runs of one setting are put in order."""

    threads: int
    dtype: str
    batch: int | None
    channels_last: bool = False

    def __str__(self) -> str:
        words = [] if self.batch is None else [f"batch {self.batch}"]
        words += [self.dtype, counted(self.threads, "thread")]
        return ", ".join([*words, "channels last"] if self.channels_last else words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelValidation:
    """One model, run one way: its predicted and its measured time.

    ``predicted_s`` is None where there are minimum times and no more; ``predicted_low_s`` and
    ``predicted_high_s`` are the ends of its 80 % prediction interval. ``operators_measured_s`` is
    the prediction from operators that were timed one by one, if that was requested. ``measured_s``
    and ``remeasured_s`` are two measurements, apart in time. ``operators`` are those that work and
    have a minimum time; ``below_bound`` of them took less than `BOUND_MARGIN` of it. The minimum
    times of the pass and of these hold at the clock of the run. ``operator_abs_error_s`` sums
    |predicted - measured| over operators, ``operators_s`` their measured times. The prediction was
    learned from ``samples`` samples.

    ``clock_hz`` and ``core_to_core_latency_s`` are the core clock state and the core-to-core
    latency while it was measured (`roofline.machine.pace`), which the prediction is for;
    ``predicted_usual_s`` is the prediction for their usual values, which are all that is known
    beforehand. ``remeasured_clock_hz`` is the clock of the second measurement.
    ``predicted_settled_s`` is the part of ``predicted_s`` without page faults;
    ``predicted_page_faults`` and ``faults`` are the page faults of a pass, predicted and counted
    (None: not known).

    ``measured_times_s`` and ``remeasured_times_s`` are the passes that the medians are of. Other
    processes disturbed ``discarded`` rounds of the first measurement; ``are_disturbed`` says that
    some of those had to count, because there were too few others.

    Raises:
        ValueError: numbers that no run has, an interval without its other end or without a
            prediction, or more operators below their minimum time than there are.
    """

    model: str
    family: str
    batch: int | None
    dtype: str
    threads: int
    channels_last: bool
    predicted_s: float | None
    predicted_low_s: float | None
    predicted_high_s: float | None
    operators_measured_s: float | None
    measured_s: float
    remeasured_s: float | None
    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None
    operators: int
    below_bound: int
    operator_abs_error_s: float | None
    operators_s: float
    samples: int
    clock_hz: float | None = None
    core_to_core_latency_s: float | None = None
    predicted_usual_s: float | None = None
    remeasured_clock_hz: float | None = None
    predicted_settled_s: float | None = None
    predicted_page_faults: int | None = None
    page_faults: int | None = None
    measured_times_s: tuple[float, ...] = ()
    remeasured_times_s: tuple[float, ...] = ()
    discarded: int = 0
    are_disturbed: bool = False

    def __post_init__(self) -> None:
        times = (
            *(self.measured_s, self.remeasured_s, self.predicted_s, self.operators_measured_s),
            *(self.predicted_usual_s, self.predicted_settled_s, self.clock_hz),
            *(self.core_to_core_latency_s, self.remeasured_clock_hz),
            *(*self.measured_times_s, *self.remeasured_times_s),
        )
        minimum = (self.eager_min_time_s, self.fused_min_time_s, self.model_min_time_s)
        _check(self.model, "times and clocks", (*times, *(each or None for each in minimum)))
        low, high = self.predicted_low_s, self.predicted_high_s
        if (low is None) != (high is None) or (low is not None and self.predicted_s is None):
            raise ValueError(f"{self.model}: an interval has two ends, and a prediction in it")
        if low is not None and high is not None and not 0 <= low <= high < math.inf:
            raise ValueError(f"{self.model}: an interval from {low} to {high} s is none")
        sums = (self.operator_abs_error_s, self.operators_s)
        counts = (self.samples, self.discarded, self.page_faults, self.predicted_page_faults)
        if not all(0 <= (each or 0) < math.inf for each in (*sums, *counts)):
            raise ValueError(
                f"{self.model}: sums of times, samples and page faults are not negative"
            )
        if not 0 <= self.below_bound <= self.operators:
            raise ValueError(
                f"{self.model}: {self.below_bound} of {self.operators} operators are below their"
                " minimum time"
            )

    @property
    def setting(self) -> Setting:
        """How the model was run."""
        return Setting(self.threads, self.dtype, self.batch, self.channels_last)

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured: above 0 where it ran faster than predicted."""
        return self._difference(self.predicted_s)

    @property
    def operators_measured_error(self) -> float | None:
        """Error of the prediction from operators that were timed one by one."""
        return self._difference(self.operators_measured_s)

    @property
    def remeasured_at_clock_s(self) -> float | None:
        """Second measurement in seconds, converted to the clock of the first."""
        if self.remeasured_s is None or self.clock_hz is None or self.remeasured_clock_hz is None:
            return self.remeasured_s
        return self.remeasured_s * self.remeasured_clock_hz / self.clock_hz

    @property
    def remeasured_difference(self) -> float | None:
        """Error of the second measurement, at the clock of the first: the noise."""
        return self._difference(self.remeasured_at_clock_s)

    @property
    def is_in_interval(self) -> bool | None:
        """True where the measured time lies in the prediction interval; None without one."""
        if self.predicted_low_s is None or self.predicted_high_s is None:
            return None
        return self.predicted_low_s <= self.measured_s <= self.predicted_high_s

    def _difference(self, estimate_s: float | None) -> float | None:
        return None if estimate_s is None else (estimate_s - self.measured_s) / self.measured_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioValidation:
    """How many times faster one design is than another: predicted, and measured (twice).

    Raises:
        ValueError: a ratio that no measurement has.
    """

    name: str
    predicted: float | None
    measured: float
    remeasured: float | None = None

    def __post_init__(self) -> None:
        _check(self.name, "ratios of times", (self.measured, self.predicted, self.remeasured))

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def remeasured_difference(self) -> float | None:
        """Remeasured / measured - 1: the noise."""
        return None if self.remeasured is None else self.remeasured / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A run that could not be judged, and why: ``"ran out of memory"``."""

    model: str
    batch: int | None
    dtype: str
    threads: int
    problem: str

    @property
    def setting(self) -> Setting:
        """How the model was to be run."""
        return Setting(self.threads, self.dtype, self.batch)
