"""Whether rates that should be equal changed while they were measured: drift, or two phases."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.foundation.sampling import quantile
from roofline.foundation.units import format_percent

_LEAST_RATES = 12
_NOTABLE = 0.03
"""Fraction beyond the spread from which the end differs from the beginning."""

_SIGMA_PER_STEP = 1.048
_RANGE_PER_SIGMA = 1.349
_MEDIAN_ERROR = 1.253
"""Of normal noise: standard deviation over the median step between neighbours; interquartile range
over standard deviation; standard error of a median over that of a mean."""

_PHASE_GAP = 0.05
"""Fraction that the rates of two phases must lie apart at least."""

_CLEARLY = 3.0
"""How many interquartile ranges of one phase must lie between two."""

_LEAST_SHARE = 0.15
"""Of all rates that a phase must have; fewer are outliers."""

_LASTING = 0.5
"""Changes between two rates, over those of a random order, up to which phases last."""


def drift(rates: Sequence[float]) -> str:
    """What changed over a series of rates in the order they were measured, in words; or ``""``.

    Two phases: rates around two values, each kept up for a while (neighbours on the host, a clock
    that switches). Drift: the last third is faster or slower than the first (heat, a clock that
    rises). Noise, single outliers and fewer than twelve rates are neither.
    """
    usable = [rate for rate in rates if math.isfinite(rate) and rate > 0]
    if len(usable) < _LEAST_RATES:
        return ""
    return _phases(usable) or _trend(usable)


def two_groups(values: Sequence[float]) -> float | None:
    """The largest value of the lower of the two groups that values fall into; None: all are equal.

    Whether two groups make sense, their distance has to say.
    """
    split = _split(sorted(values))
    return split.threshold if split else None


def _trend(rates: Sequence[float]) -> str:
    third = len(rates) // 3
    before, after = statistics.median(rates[:third]), statistics.median(rates[-third:])
    beyond = abs(after - before) - _chance(rates, third)
    if beyond <= _NOTABLE * before:
        return ""
    change = format_percent(abs(after / before - 1))
    if after < before:
        return (
            f"slowed down: the last third of the bursts ran {change} slower than the first (heat,"
            " a falling clock, or neighbours on the host)"
        )
    return (
        f"sped up: the last third of the bursts ran {change} faster than the first (a rising"
        " clock, or neighbours on the host that went away)"
    )


def _chance(rates: Sequence[float], third: int) -> float:
    """By how much two thirds of a series may differ although nothing changed.

    From the differences of neighbours, which a slow drift does not widen: the interquartile range
    of normal noise, or four standard errors of the difference of two medians, which is more where
    the thirds are short.
    """
    steps = [abs(one - other) for one, other in itertools.pairwise(rates)]
    sigma = statistics.median(steps) * _SIGMA_PER_STEP
    return sigma * max(_RANGE_PER_SIGMA, 4 * _MEDIAN_ERROR * math.sqrt(2 / third))


@dataclass(frozen=True, slots=True)
class _Split:
    """The value between the two groups that the rates fall into, and the groups, in order."""

    threshold: float
    low: Sequence[float]
    high: Sequence[float]


def _phases(rates: Sequence[float]) -> str:
    split = _split(sorted(rates))
    if split is None:
        return ""
    slow, fast = statistics.median(split.low), statistics.median(split.high)
    share = len(split.low) / len(rates)
    gap = fast - slow
    apart = gap > _PHASE_GAP * fast and gap > _CLEARLY * max(_range(split.low), _range(split.high))
    rare = min(share, 1 - share) < _LEAST_SHARE
    if not apart or rare or not _lasts(rates, split.threshold, share):
        return ""
    return (
        f"two phases: {format_percent(share)} of the bursts, in stretches, ran"
        f" {format_percent(1 - slow / fast)} slower than the others; the host or its clock switches"
    )


def _lasts(rates: Sequence[float], threshold: float, share: float) -> bool:
    sides = [rate > threshold for rate in rates]
    changes = sum(one != other for one, other in itertools.pairwise(sides))
    return changes <= _LASTING * 2 * share * (1 - share) * (len(rates) - 1)


def _split(ordered: Sequence[float]) -> _Split | None:
    """The two groups whose means differ most for their sizes (Otsu 1979); None: all are equal."""
    total, count = math.fsum(ordered), len(ordered)
    below, best, cut = 0.0, 0.0, 0
    for i in range(1, count):
        below += ordered[i - 1]
        difference = (total - below) / (count - i) - below / i
        between = i * (count - i) * difference * difference
        if between > best and ordered[i] > ordered[i - 1]:
            best, cut = between, i
    if not cut:
        return None
    return _Split(ordered[cut - 1], ordered[:cut], ordered[cut:])


def _range(rates: Sequence[float]) -> float:
    values = list(rates)
    return quantile(values, 0.75) - quantile(values, 0.25)
