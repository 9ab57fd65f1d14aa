"""How close what was said of times comes to measurements, in a few figures.

Every figure is a fraction, and None where there is nothing to judge: never 0. What is judged is an
estimate of a measured time: the prediction, or the second measurement in its place, which gives
the noise floor: no prediction can be expected to come closer than a measurement does.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from roofline.latency.judged_runs import ModelValidation, RatioValidation

CLOSE_PAIR = (1.05, 1.5)
"""How many times longer the slower of two runs takes for their order to be worth judging."""

Key = TypeVar("Key", bound=Hashable)


def grouped(
    models: Iterable[ModelValidation], key: Callable[[ModelValidation], Key]
) -> dict[Key, list[ModelValidation]]:
    """The runs that have each key, in the order they come in."""
    found: dict[Key, list[ModelValidation]] = {}
    for each in models:
        found.setdefault(key(each), []).append(each)
    return found


Estimate = Callable[[ModelValidation], float | None]
"""What is judged of a run: a time in seconds, None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How close estimates of the times of ``runs`` runs come; runs without one do not count.

    ``mape`` is the mean of |estimate - measured| / measured, ``median_error`` the median of the
    same. ``bias`` is exp(median of ln(estimate / measured)) - 1, above 0 where estimates are too
    long. ``within_10_percent`` is the share of runs with an error of at most 10 %.
    ``close_pairs_right`` is the share of the ``close_pairs`` pairs that the estimates put in the
    order they were measured in, all at the same clock; equal estimates put nothing in order.
    """

    runs: int
    mape: float | None
    median_error: float | None
    bias: float | None
    within_10_percent: float | None
    within_20_percent: float | None
    close_pairs: int
    close_pairs_right: float | None

    @classmethod
    def of(cls, models: Sequence[ModelValidation], estimate: Estimate) -> Accuracy:
        """The accuracy of an estimate over runs."""
        pairs = [
            (each.measured_s, guess) for each in models if (guess := estimate(each)) is not None
        ]
        errors = [abs(guess - measured) / measured for measured, guess in pairs]
        logarithms = [math.log(guess / measured) for measured, guess in pairs]
        in_order = list(_orders(models, estimate))
        return cls(
            runs=len(pairs),
            mape=_mean(errors),
            median_error=statistics.median(errors) if errors else None,
            bias=math.expm1(statistics.median(logarithms)) if logarithms else None,
            within_10_percent=_mean(error <= 0.1 for error in errors),
            within_20_percent=_mean(error <= 0.2 for error in errors),
            close_pairs=len(in_order),
            close_pairs_right=_mean(in_order),
        )


def _orders(models: Sequence[ModelValidation], estimate: Estimate) -> Iterable[bool]:
    """Of each close pair of a setting, whether the estimates have its order."""
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
    """What makes of each run's seconds those at a clock that all runs share.

    Two models that were measured at different clocks are in no order of their own. Where one clock
    is not known, seconds stay what they are.
    """
    clocks = [each.clock_hz for each in runs if each.clock_hz is not None]
    if len(clocks) < len(runs):
        return [1.0] * len(runs)
    usual_hz = statistics.median(clocks)
    return [each / usual_hz for each in clocks]


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.fmean(found) if found else None


FIGURES = (
    "mape",
    "median_error",
    "bias",
    "within_10_percent",
    "within_20_percent",
    "operator_error",
    "close_pairs_right",
    "bound_validity",
    "ratio_error",
    "interval_coverage",
    "noise_floor",
    "measured_operators_mape",
    "usual_pace_mape",
)
"""The fields of `ValidationTotals` that are fractions; the others count what they are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationTotals:
    """What all runs say together.

    The first five and ``close_pairs_right`` are those of `Accuracy`, of predictions.
    ``operator_error`` is the sum of |predicted - measured| over all operators, by the sum of what
    they took. ``bound_validity`` is the share of operators that keep their bound, ``ratio_error``
    the mean of |predicted / measured - 1| over ratios, ``interval_coverage`` the share of measured
    times inside their 10 to 90 % intervals. ``noise_floor`` is the ``mape`` of the second
    measurements, ``measured_operators_mape`` that of predictions from operators timed one by one,
    ``usual_pace_mape`` that of predictions for the usual pace of the cores rather than the pace
    that each measurement had.
    """

    mape: float | None
    median_error: float | None
    bias: float | None
    within_10_percent: float | None
    within_20_percent: float | None
    operator_error: float | None
    close_pairs_right: float | None
    bound_validity: float | None
    ratio_error: float | None
    interval_coverage: float | None
    noise_floor: float | None
    measured_operators_mape: float | None
    usual_pace_mape: float | None
    runs: int
    different_models: int
    predicted_runs: int
    intervals: int
    remeasured_runs: int
    timed_alone_runs: int
    operator_runs: int
    close_pairs: int
    operators: int
    ratios: int

    @classmethod
    def of(
        cls, models: Sequence[ModelValidation], ratios: Sequence[RatioValidation] = ()
    ) -> ValidationTotals:
        """The totals of runs and ratios."""
        predicted = Accuracy.of(models, lambda each: each.predicted_s)
        remeasured = Accuracy.of(models, lambda each: each.remeasured_at_clock_s)
        usual = Accuracy.of(models, lambda each: each.predicted_usual_s)
        timed_alone = Accuracy.of(models, lambda each: each.operators_measured_s)
        inside = [each.is_in_interval for each in models if each.is_in_interval is not None]
        ratio_errors = [abs(each.error) for each in ratios if each.error is not None]
        operators = sum(each.operators for each in models)
        below = sum(each.below_bound for each in models)
        return cls(
            mape=predicted.mape,
            median_error=predicted.median_error,
            bias=predicted.bias,
            within_10_percent=predicted.within_10_percent,
            within_20_percent=predicted.within_20_percent,
            operator_error=_operator_error(models),
            close_pairs_right=predicted.close_pairs_right,
            bound_validity=1 - below / operators if operators else None,
            ratio_error=_mean(ratio_errors),
            interval_coverage=_mean(inside),
            noise_floor=remeasured.mape,
            measured_operators_mape=timed_alone.mape,
            usual_pace_mape=usual.mape,
            runs=len(models),
            different_models=len({each.model for each in models}),
            predicted_runs=predicted.runs,
            intervals=len(inside),
            remeasured_runs=remeasured.runs,
            timed_alone_runs=timed_alone.runs,
            operator_runs=sum(each.operator_abs_error_s is not None for each in models),
            close_pairs=predicted.close_pairs,
            operators=operators,
            ratios=len(ratio_errors),
        )


def _operator_error(models: Iterable[ModelValidation]) -> float | None:
    judged = [
        (each.operator_abs_error_s, each.operators_s)
        for each in models
        if each.operator_abs_error_s is not None
    ]
    took_s = math.fsum(took for _, took in judged)
    return math.fsum(error for error, _ in judged) / took_s if took_s else None
