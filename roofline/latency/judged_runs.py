"""What was said of a run's time, and the time it took: one model, or one pair of designs."""

from __future__ import annotations

import math
from dataclasses import dataclass

BOUND_MARGIN = 0.97
"""An operator keeps its bound if it takes at least this share of it: clocks are worth 3 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How models are run; only runs of the same setting are put in order."""

    threads: int
    dtype: str
    batch: int | None
    channels_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelValidation:
    """One model, run one way: what was said of its time, and the time it took.

    ``predicted_s`` is None where there is a bound and no more; ``predicted_low_s`` and
    ``predicted_high_s`` are the 10 and 90 % ends of its interval. ``operators_measured_s`` is the
    prediction from operators that were timed one by one, where it was asked for. ``measured_s``
    and ``remeasured_s`` are two measurements, apart in time. ``operators`` are those that work and
    have a bound; ``below_bound`` of them took less than `BOUND_MARGIN` of it. The minimum times of
    the pass, and these bounds, hold at the clock of the run; ``eager_min_time_s`` is ``bound_s``.
    ``operator_abs_error_s`` sums |predicted - measured| over operators, ``operators_s`` what they
    took. The prediction was learned from ``samples`` samples.

    ``clock_hz`` and ``hop_s`` are the pace of the cores while it was measured
    (`roofline.machine.pace`), which the prediction is for; ``predicted_usual_s`` is the prediction
    for their usual pace, which is all that can be said beforehand. ``remeasured_clock_hz`` is the
    clock of the second measurement. ``predicted_settled_s`` is the part of ``predicted_s`` that has
    no page faults; ``predicted_faults`` and ``faults`` are the page faults of a pass, predicted and
    counted (None: not known).

    ``measured_times_s`` and ``remeasured_times_s`` are the passes that the medians are of;
    ``discarded`` rounds of the first measurement did not get the cores, and ``are_disturbed`` says
    that some of those had to count, because there were too few others.

    Raises:
        ValueError: no measured time, times that are none, an interval without its other end or
            without a prediction, or more operators below their bound than there are.
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
    bound_s: float | None
    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None
    operators: int
    below_bound: int
    operator_abs_error_s: float | None
    operators_s: float
    samples: int
    clock_hz: float | None = None
    hop_s: float | None = None
    predicted_usual_s: float | None = None
    remeasured_clock_hz: float | None = None
    predicted_settled_s: float | None = None
    predicted_faults: int | None = None
    faults: int | None = None
    measured_times_s: tuple[float, ...] = ()
    remeasured_times_s: tuple[float, ...] = ()
    discarded: int = 0
    are_disturbed: bool = False

    def __post_init__(self) -> None:
        times = (
            *(self.measured_s, self.remeasured_s, self.predicted_s, self.operators_measured_s),
            *(self.predicted_usual_s, self.predicted_settled_s, self.clock_hz),
            *(self.hop_s, self.remeasured_clock_hz),
            *(*self.measured_times_s, *self.remeasured_times_s),
        )
        if not all(0 < each < math.inf for each in times if each is not None):
            raise ValueError(
                f"{self.model}: measured and predicted times, and clocks, are positive numbers"
            )
        low, high = self.predicted_low_s, self.predicted_high_s
        if (low is None) != (high is None) or (low is not None and self.predicted_s is None):
            raise ValueError(f"{self.model}: an interval has two ends, and a prediction in it")
        if low is not None and high is not None and not 0 <= low <= high < math.inf:
            raise ValueError(f"{self.model}: an interval from {low} to {high} s is none")
        sums = (
            *(self.operator_abs_error_s, self.operators_s, self.bound_s),
            *(self.eager_min_time_s, self.fused_min_time_s, self.model_min_time_s),
        )
        if not all(0 <= (each or 0.0) < math.inf for each in sums) or (
            min(self.samples, self.discarded, self.faults or 0, self.predicted_faults or 0) < 0
        ):
            raise ValueError(
                f"{self.model}: bounds, sums of times, samples and page faults are not negative"
            )
        if not 0 <= self.below_bound <= self.operators:
            raise ValueError(
                f"{self.model}: {self.below_bound} of {self.operators} operators are below bound"
            )

    @property
    def setting(self) -> Setting:
        """How the model was run."""
        return Setting(
            threads=self.threads,
            dtype=self.dtype,
            batch=self.batch,
            channels_last=self.channels_last,
        )

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured: above 0 where it ran faster than predicted."""
        return self._difference(self.predicted_s)

    @property
    def operators_measured_error(self) -> float | None:
        """The error of the prediction from operators that were timed one by one."""
        return self._difference(self.operators_measured_s)

    @property
    def remeasured_at_clock_s(self) -> float | None:
        """The second measurement, as it would be at the clock of the first; in seconds."""
        if self.remeasured_s is None or self.clock_hz is None or self.remeasured_clock_hz is None:
            return self.remeasured_s
        return self.remeasured_s * self.remeasured_clock_hz / self.clock_hz

    @property
    def remeasured_difference(self) -> float | None:
        """The same of the second measurement, at the clock of the first: what was noise."""
        return self._difference(self.remeasured_at_clock_s)

    @property
    def is_in_interval(self) -> bool | None:
        """Whether the measured time lies in the interval of the prediction; None without one."""
        if self.predicted_low_s is None or self.predicted_high_s is None:
            return None
        return self.predicted_low_s <= self.measured_s <= self.predicted_high_s

    def _difference(self, estimate_s: float | None) -> float | None:
        return None if estimate_s is None else (estimate_s - self.measured_s) / self.measured_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioValidation:
    """How many times faster one design is than another: predicted, and measured (twice).

    Raises:
        ValueError: a ratio that is none.
    """

    name: str
    predicted: float | None
    measured: float
    remeasured: float | None = None

    def __post_init__(self) -> None:
        ratios = (self.measured, self.predicted, self.remeasured)
        if not all(0 < each < math.inf for each in ratios if each is not None):
            raise ValueError(f"{self.name}: ratios of times are positive numbers")

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def remeasured_difference(self) -> float | None:
        """The same of the second measurement: what was noise."""
        return None if self.remeasured is None else self.remeasured / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A run that could not be judged, and why: ``"ran out of memory"``."""

    model: str
    batch: int | None
    dtype: str
    threads: int
    problem: str
