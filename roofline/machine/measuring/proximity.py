"""How near the CPUs of two threads are to each other, and whether the host moves them about.

A hypervisor may place two virtual CPUs on cores of one die, which share a last cache and its way
to memory, or on two dies, and change that at any time. Bandwidth on both threads then has two
values, a factor of two apart. How long a cache line takes from core to core tells which it is.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofline.foundation.sampling import Sample, quantile
from roofline.foundation.units import format_percent, format_s
from roofline.machine.hardware import Duration, Overhead
from roofline.machine.kernels.chase import FAILED_BYTE, HOP_STATE_BYTE, TURN_BYTE, HopKernel
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.measuring.ceilings import provenance
from roofline.machine.measuring.crew import Array, Crew
from roofline.machine.measuring.estimation import Burst
from roofline.machine.measuring.trials import Shape, Trial

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

_LEAST_DRIFT_SHARE = 0.15
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
    rare = min(share, 1 - share) < _LEAST_DRIFT_SHARE
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


_TURNS = 200
"""Of each thread in a burst: 20 to 80 µs."""

_BURSTS = 1
"""After one that is not counted; it is timed before every call on several threads."""

_LINE_BYTE = 128
"""As many as the largest lines have: nothing else may lie on it."""

_FAST = 0.05

_APART = 1.5
"""Ratio of hops from which on they are those of two placements."""

_LEAST_SHARE = 0.02
"""Of all hops that a placement must have; fewer were disturbed by something else."""


class HopTimer:
    """Times the hop between the first two workers of a crew.

    Args:
        compiled: a `HopKernel`.
        kernel: the same.
    """

    def __init__(self, compiled: CompiledKernel, kernel: HopKernel) -> None:
        self._line = _aligned(_LINE_BYTE)
        self._states = (_aligned(HOP_STATE_BYTE), _aligned(HOP_STATE_BYTE))
        for state in self._states:
            state.view(np.uint64)[0] = self._line.ctypes.data
        self._trial = Trial(
            compiled=compiled,
            threads=2,
            working_set=None,
            states=self._states,
            buffers=(self._line,),
            shape=lambda repeats: Shape(1, repeats, 0),
            work=kernel.hops,
            most_repeats=_TURNS,
            repeats=_TURNS,
        )

    def __call__(self, crew: Crew) -> float | None:
        """Median seconds of a hop; None: a thread lost its CPU, and they gave up."""
        self._line[:] = 0
        for number, state in enumerate(self._states):
            state[TURN_BYTE:] = 0
            state[TURN_BYTE:].view(np.uint64)[0] = number
        bursts = self._trial.run(crew, _BURSTS)
        given_up = any(state[FAILED_BYTE:].view(np.uint64)[0] for state in self._states)
        return None if given_up else self._median_s(bursts)

    def _median_s(self, bursts: Sequence[Burst]) -> float | None:
        # The work of a trial is that of all its threads; a journey has both.
        hops = self._trial.work_per_burst / self._trial.threads
        return statistics.median(burst.wall_s / hops for burst in bursts) if bursts else None


def _aligned(byte: int) -> Array:
    whole = np.zeros(byte + _LINE_BYTE, dtype=np.uint8)
    skip = -whole.ctypes.data % _LINE_BYTE
    return whole[skip : skip + byte]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proximity:
    """Seconds of hops (NaN: not known), and which of them are of the placement figures are from.

    ``low_s`` and ``high_s`` bound the hops of the placement that was met more often; None on both
    sides where there was only one.
    """

    hops_s: tuple[float, ...]
    low_s: float | None = None
    high_s: float | None = None

    @property
    def moved(self) -> bool:
        """Whether the CPUs were near each other at times and apart at others."""
        return self.low_s is not None or self.high_s is not None

    def prevails(self, core_to_core_latency_s: float) -> bool:
        """Whether the CPUs were where they mostly were when a hop took so long."""
        if not self.moved:
            return True
        above = self.low_s is None or core_to_core_latency_s > self.low_s
        below = self.high_s is None or core_to_core_latency_s <= self.high_s
        return not math.isnan(core_to_core_latency_s) and above and below

    @property
    def prevailing_s(self) -> list[float]:
        """The hops of the placement that was met more often."""
        return [each for each in self.hops_s if not math.isnan(each) and self.prevails(each)]


def proximity(hops_s: Sequence[float]) -> Proximity:
    """What hops that were timed over a while say about where the CPUs were."""
    hops_s = tuple(hops_s)
    known = [each for each in hops_s if not math.isnan(each)]
    threshold_s = two_groups(known)
    if threshold_s is None:
        return Proximity(hops_s=hops_s)
    near = [each for each in known if each <= threshold_s]
    far = [each for each in known if each > threshold_s]
    rare = min(len(near), len(far)) < max(2, _LEAST_SHARE * len(known))
    if rare or statistics.median(far) <= _APART * statistics.median(near):
        return Proximity(hops_s=hops_s)
    if len(near) > len(far):
        return Proximity(hops_s=hops_s, high_s=threshold_s)
    return Proximity(hops_s=hops_s, low_s=threshold_s)


def proximity_condition(found: Proximity) -> str:
    """That the host moved the CPUs, in words; ``""``: it did not, as far as can be told."""
    if not found.moved:
        return ""
    mostly = found.prevailing_s
    otherwise = [each for each in found.hops_s if not math.isnan(each) and not found.prevails(each)]
    share = format_percent(len(mostly) / (len(mostly) + len(otherwise)))
    where = ["near each other", "apart"]
    if found.low_s is not None:
        where.reverse()
    return (
        f"the host moved its CPUs: {share} of the time they were {where[0]} (a cache line took"
        f" {format_s(statistics.median(mostly))} from core to core), else {where[1]}"
        f" ({format_s(statistics.median(otherwise))}); on several threads, sustained rates are"
        " those of the former, peaks the best of both"
    )


def hop_overhead(found: Proximity) -> Overhead | None:
    """The hop, where the CPUs mostly were; None: not known."""
    times = found.prevailing_s
    if not times:
        return None
    sample = Sample(times_s=tuple(times))
    return Overhead(
        name="hop of a cache line",
        threads=2,
        time=Duration(
            fast_s=quantile(times, _FAST),
            median_s=sample.median_s,
            spread=sample.spread,
            provenance=provenance(
                "5th percentile (fast) and median of bursts in which two threads hand a cache line"
                " to and fro",
                f"{len(times)} bursts of {2 * _TURNS} hops",
            ),
        ),
    )
