"""Predicted and measured runs, and the accuracy of predictions over them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roofline.core.conditions import Condition, Quantity
from roofline.core.rows import grouped
from roofline.core.text import counted
from roofline.errors import ThresholdError, argument

BOUND_MARGIN = 0.97
"""Share of its minimum time that a measured operator must reach: clocks vary by 3 %."""

_LARGEST = 1e12
"""Limit of times in s, clocks in Hz, ratios and their reciprocals, against overflow of errors."""


def _check(name: str, of: str, values: Iterable[float | None]) -> None:
    for each in values:
        if each is not None and not 1 / _LARGEST <= each <= _LARGEST:
            raise ValueError(f"{name}: {of} must be from 1e-12 to 1e12, got {each:.3g}")


class Setting(NamedTuple):
    """Settings of a run; only runs of one setting are compared in order."""

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
    """Predicted and measured times of a model in one setting.

    ``predicted_s`` is None for minimum times only; ``predicted_low_s`` and ``predicted_high_s`` are
    the ends of its 80 % prediction interval. ``operators_measured_s`` is the prediction from
    operators timed alone, if requested. ``measured_s`` and ``remeasured_s`` are two measurements,
    apart in time. ``operators`` have a minimum time, at the clock of the run; ``below_bound`` of
    them took less than `BOUND_MARGIN` of it. ``operator_abs_error_s`` sums |predicted - measured|
    over operators, ``operators_s`` their measured times. ``samples`` is the number of samples that
    the prediction was learned from.

    ``clock_hz`` and ``core_to_core_latency_s`` are the core clock state of the measurement, which
    the prediction is for; ``predicted_usual_s`` is the prediction for the usual state.
    ``remeasured_clock_hz`` is the clock of the second measurement. ``predicted_settled_s`` is
    ``predicted_s`` without page faults; ``predicted_page_faults`` and ``page_faults`` are those of
    a pass, predicted and counted (None: unknown).

    ``measured_times_s`` and ``remeasured_times_s`` are the single passes. Other processes disturbed
    ``discarded`` rounds of the first measurement; ``are_disturbed``: kept rounds too.
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
            raise ValueError(f"{self.model}: an interval needs two ends and a prediction")
        if low is not None and high is not None and not 0 <= low <= high < math.inf:
            raise ValueError(f"{self.model}: invalid interval, from {low} to {high} s")
        sums = (self.operator_abs_error_s, self.operators_s)
        counts = (self.samples, self.discarded, self.page_faults, self.predicted_page_faults)
        if not all(0 <= (each or 0) < math.inf for each in (*sums, *counts)):
            raise ValueError(
                f"{self.model}: sums of times, samples and page faults must be at least 0"
            )
        if not 0 <= self.below_bound <= self.operators:
            raise ValueError(
                f"{self.model}: {self.below_bound} of {self.operators} operators are below their"
                " minimum time"
            )

    @property
    def setting(self) -> Setting:
        """Settings of the run."""
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
    """Speedup of one design over another: predicted, measured, and remeasured."""

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
    """A run that failed, with the reason: ``"ran out of memory"``."""

    model: str
    batch: int | None
    dtype: str
    threads: int
    problem: str

    @property
    def setting(self) -> Setting:
        """Settings of the run."""
        return Setting(self.threads, self.dtype, self.batch)


CLOSE_PAIR = (1.05, 1.5)
"""Range of the ratio slower / faster of two runs that count as a close pair."""

FIGURES: Mapping[str, tuple[str, str]] = {
    "mape": ("MAPE", "predicted_runs"),
    "median_error": ("median error", "predicted_runs"),
    "bias": ("bias", "predicted_runs"),
    "within_10_percent": ("within ±10 %", "predicted_runs"),
    "within_20_percent": ("within ±20 %", "predicted_runs"),
    "interval_coverage": ("inside the 80 % prediction interval", "intervals"),
    "close_pairs_right": ("close pairs in the right order", "close_pairs"),
    "operator_error": ("time-weighted error of operators", "operator_runs"),
    "bound_validity": ("operators not below their minimum time", "operators"),
    "ratio_error": ("MAPE of speedups of designs", "ratios"),
    "measured_operators_mape": ("MAPE, operators timed alone", "timed_alone_runs"),
    "usual_clock_mape": ("MAPE at the usual core clock state", "predicted_runs"),
    "noise_floor": ("noise floor", "remeasured_runs"),
}
"""The fractions among `ValidationTotals`, in reading order: titles, and fields that count cases."""

QUANTITIES = {
    name: Quantity(name=name, title=title, kind="share") for name, (title, _) in FIGURES.items()
}
"""Quantities for conditions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Error of estimates of times, over the runs that have one.

    ``mape`` is the mean of |estimate - measured| / measured, ``median_error`` the median of the
    same. ``bias`` is exp(median of ln(estimate / measured)) - 1, above 0 where estimates are too
    long. ``within_10_percent`` is the share of runs with an error of at most 10 %.
    ``close_pairs_right`` is the share of the ``close_pairs`` pairs that the estimates put in the
    order they were measured in, all at the same clock; equal estimates put nothing in order.
    """

    mape: float | None
    median_error: float | None
    bias: float | None
    within_10_percent: float | None
    within_20_percent: float | None
    close_pairs_right: float | None
    predicted_runs: int
    close_pairs: int


def accuracy_of(
    models: Sequence[ModelValidation], estimate: Callable[[ModelValidation], float | None]
) -> Accuracy:
    """Return the accuracy of an estimate in seconds over the runs that have one."""
    pairs = [(each.measured_s, guess) for each in models if (guess := estimate(each)) is not None]
    errors = [abs(guess - measured) / measured for measured, guess in pairs]
    logarithms = [math.log(guess / measured) for measured, guess in pairs]
    # For each close pair of a setting, whether the estimates put it in order.
    in_order: list[bool] = []
    for runs in grouped(models, lambda each: each.setting).values():
        estimated = sorted(
            (each.measured_s * factor, guess * factor)
            for each, factor in zip(runs, _to_one_clock(runs), strict=True)
            if (guess := estimate(each)) is not None
        )
        for (fast, fast_guess), (slow, slow_guess) in itertools.combinations(estimated, 2):
            if CLOSE_PAIR[0] <= slow / fast <= CLOSE_PAIR[1]:
                in_order.append(fast_guess < slow_guess)
    return Accuracy(
        mape=_mean(errors),
        median_error=statistics.median(errors) if errors else None,
        bias=math.expm1(statistics.median(logarithms)) if logarithms else None,
        within_10_percent=_mean(error <= 0.1 for error in errors),
        within_20_percent=_mean(error <= 0.2 for error in errors),
        close_pairs_right=_mean(in_order),
        predicted_runs=len(pairs),
        close_pairs=len(in_order),
    )


def _to_one_clock(runs: Sequence[ModelValidation]) -> list[float]:
    """Return the factors that convert each run's seconds to one clock; 1 if a clock is unknown."""
    clocks = [each.clock_hz for each in runs if each.clock_hz is not None]
    if len(clocks) < len(runs):
        return [1.0] * len(runs)
    usual_hz = statistics.median(clocks)
    return [each / usual_hz for each in clocks]


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.fmean(found) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationTotals(Accuracy):
    """Accuracy of the predictions of all runs, of operators, speedups and intervals.

    ``operator_error`` is the sum of |predicted - measured| over all operators, by the sum of their
    measured times; ``bound_validity`` the share of operators not below their minimum time.
    ``ratio_error`` is the mean of |predicted / measured - 1| over ratios, ``interval_coverage`` the
    share of measured times inside their 80 % prediction intervals. ``noise_floor`` is the MAPE of
    the second measurements, ``measured_operators_mape`` that of predictions from operators timed
    alone. ``usual_clock_mape`` is that of predictions for the usual core clock state.
    """

    operator_error: float | None
    bound_validity: float | None
    ratio_error: float | None
    interval_coverage: float | None
    noise_floor: float | None
    measured_operators_mape: float | None
    usual_clock_mape: float | None
    runs: int
    different_models: int
    intervals: int
    remeasured_runs: int
    timed_alone_runs: int
    operator_runs: int
    operators: int
    ratios: int

    @classmethod
    def of(
        cls, models: Sequence[ModelValidation], ratios: Sequence[RatioValidation] = ()
    ) -> ValidationTotals:
        """Return the totals of runs and ratios."""
        remeasured = accuracy_of(models, lambda each: each.remeasured_at_clock_s)
        timed_alone = accuracy_of(models, lambda each: each.operators_measured_s)
        inside = [each.is_in_interval for each in models if each.is_in_interval is not None]
        ratio_errors = [abs(each.error) for each in ratios if each.error is not None]
        operators = sum(each.operators for each in models)
        below = sum(each.below_bound for each in models)
        judged = [each for each in models if each.operator_abs_error_s is not None]
        took_s = math.fsum(each.operators_s for each in judged)
        off_s = math.fsum(each.operator_abs_error_s or 0.0 for each in judged)
        return cls(
            **dataclasses.asdict(accuracy_of(models, lambda each: each.predicted_s)),
            operator_error=off_s / took_s if took_s else None,
            bound_validity=1 - below / operators if operators else None,
            ratio_error=_mean(ratio_errors),
            interval_coverage=_mean(inside),
            noise_floor=remeasured.mape,
            measured_operators_mape=timed_alone.mape,
            usual_clock_mape=accuracy_of(models, lambda each: each.predicted_usual_s).mape,
            runs=len(models),
            different_models=len({each.model for each in models}),
            intervals=len(inside),
            remeasured_runs=remeasured.predicted_runs,
            timed_alone_runs=timed_alone.predicted_runs,
            operator_runs=len(judged),
            operators=operators,
            ratios=len(ratio_errors),
        )


_UNKNOWN_BECAUSE = {
    "operator_error": "no operators were predicted",
    "close_pairs_right": "no two predicted models differ by 5 to 50 % in time",
    "bound_validity": "no operator has a minimum time",
    "ratio_error": "no designs were predicted; add {designs}",
    "interval_coverage": "no prediction has an interval",
    "noise_floor": "no run was remeasured",
    "measured_operators_mape": "no operators were timed alone; add {operators}",
}


def failure(condition: Condition, totals: ValidationTotals) -> str:
    """Return the reason why a condition on a total fails, ``""`` if it holds; unknown ones fail."""
    name, limit = condition.quantity.name, float(condition.limit)
    value: float | None = getattr(totals, name)
    if value is None:
        reason = _UNKNOWN_BECAUSE.get(name, "no run was predicted").format(
            designs=argument("designs", True), operators=argument("operators_measured", True)
        )
        return f"{name} is unknown: {reason}"
    fails = value > limit if condition.sign == ">" else value < limit
    if not fails:
        return ""
    beyond = "above" if condition.sign == ">" else "below"
    # Enough digits to differ from the limit.
    texts = ((f"{100 * value:.{n}f} %", f"{100 * limit:.{n}f} %") for n in range(1, 12))
    shown = next((text for text, other in texts if text != other), f"{100 * value} %")
    return f"{name} is {shown}, {beyond} {100 * limit:.4g} %"


def check_thresholds(conditions: Iterable[Condition], totals: ValidationTotals) -> None:
    """Raise ThresholdError for failed conditions, naming all of them."""
    failures = [reason for each in conditions if (reason := failure(each, totals))]
    if failures:
        raise ThresholdError(f"{argument('fail_if')}: {'; '.join(failures)}")
