"""Accuracy of predictions and of second measurements, in a few figures.

Every figure is a fraction, and None where there is nothing to judge: never 0. An estimate of a
measured time is judged: the prediction, or the second measurement, which gives the noise floor. No
prediction can be expected to come closer than a measurement does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from roofline.latency.judged_runs import ModelValidation, RatioValidation

CLOSE_PAIR = (1.05, 1.5)
"""Range of slower / faster of two runs, whose order is judged."""

Key = TypeVar("Key", bound=Hashable)


def grouped(
    models: Iterable[ModelValidation], key: Callable[[ModelValidation], Key]
) -> dict[Key, list[ModelValidation]]:
    """Return the runs that have each key, in the order they come in."""
    found: dict[Key, list[ModelValidation]] = {}
    for each in models:
        found.setdefault(key(each), []).append(each)
    return found


Estimate = Callable[[ModelValidation], float | None]
"""The time of a run in seconds that is judged; None where there is none."""

FIGURES: Mapping[str, tuple[str, str]] = {
    "mape": ("MAPE", "predicted_runs"),
    "median_error": ("median error", "predicted_runs"),
    "bias": ("bias", "predicted_runs"),
    "within_10_percent": ("within ±10 %", "predicted_runs"),
    "within_20_percent": ("within ±20 %", "predicted_runs"),
    "interval_coverage": ("inside the 80 % prediction interval", "intervals"),
    "close_pairs_right": ("close pairs in the right order", "close_pairs"),
    "operator_error": ("error of operators, weighted by time", "operator_runs"),
    "bound_validity": ("operators that keep their minimum time", "operators"),
    "ratio_error": ("MAPE of speedups of designs", "ratios"),
    "measured_operators_mape": ("MAPE, operators timed alone", "timed_alone_runs"),
    "usual_clock_mape": ("MAPE at the usual core clock state", "predicted_runs"),
    "noise_floor": ("noise floor", "remeasured_runs"),
}
"""The fractions among `ValidationTotals`, in reading order: titles, and fields that count cases."""


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


def accuracy_of(models: Sequence[ModelValidation], estimate: Estimate) -> Accuracy:
    """Return the accuracy of an estimate over runs."""
    pairs = [(each.measured_s, guess) for each in models if (guess := estimate(each)) is not None]
    errors = [abs(guess - measured) / measured for measured, guess in pairs]
    logarithms = [math.log(guess / measured) for measured, guess in pairs]
    in_order = list(_orders(models, estimate))
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


def _orders(models: Sequence[ModelValidation], estimate: Estimate) -> Iterable[bool]:
    """Yield True for each close pair of a setting that the estimates put in order, else False."""
    for runs in grouped(models, lambda each: each.setting).values():
        estimated = [
            (each.measured_s * factor, guess * factor)
            for each, factor in zip(runs, _to_one_clock(runs), strict=True)
            if (guess := estimate(each)) is not None
        ]
        for (fast, fast_guess), (slow, slow_guess) in itertools.combinations(sorted(estimated), 2):
            if CLOSE_PAIR[0] <= slow / fast <= CLOSE_PAIR[1]:
                yield fast_guess < slow_guess


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
    """Accuracy of the predictions of all runs, and what else is judged.

    ``operator_error`` is the sum of |predicted - measured| over all operators, by the sum of their
    measured times. ``bound_validity`` is the share of operators that keep their minimum time,
    ``ratio_error`` the mean of |predicted / measured - 1| over ratios, ``interval_coverage`` the
    share of measured times inside their 80 % prediction intervals. ``noise_floor`` is the MAPE of
    the second measurements, ``measured_operators_mape`` that of predictions from operators timed
    one by one, ``usual_clock_mape`` that of predictions for the usual core clock state rather than
    the state during each measurement.
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
