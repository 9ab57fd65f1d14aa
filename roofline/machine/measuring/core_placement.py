"""Changes during a measurement: drift of rates, and CPUs moved by the hypervisor.

A hypervisor may place two virtual CPUs on one die, with a shared last-level cache and memory path,
or on two dies, and change that at any time. Bandwidth on both threads then has two values, a factor
of two apart. The core-to-core latency identifies the placement.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.core.sampling import quantile
from roofline.core.units import format_percent, format_s
from roofline.machine.hardware import Overhead
from roofline.machine.measuring.estimation import duration

Drift = Literal["", "two phases", "slowed down", "sped up"]

CORE_TO_CORE_TURNS = 200
"""Transfers per thread in a core-to-core burst: 20 to 80 µs."""

_LEAST_RATES = 12
_NOTABLE = 0.03  # drift beyond the noise, as a fraction

_SIGMA_PER_STEP = 1.048
_RANGE_PER_SIGMA = 1.349
_MEDIAN_ERROR = 1.253
"""For normal noise: standard deviation over the median difference of adjacent rates; interquartile
range over standard deviation; standard error of a median over that of a mean."""

_PHASE_GAP = 0.05  # minimum relative gap between two phases
_CLEARLY = 3.0  # minimum gap between phases, in interquartile ranges
_LEAST_PHASE = 0.15  # minimum share of a phase; fewer are outliers
_LASTING = 0.5  # maximum number of changes of a phase, over that of a random order
_APART = 1.5  # minimum latency ratio of two placements

_LEAST_SHARE = 0.02
"""Minimum share of transfers of a placement; fewer are disturbances."""


def drift(rates: Sequence[float]) -> Drift:
    """Return the change over a series of rates in order of measurement, or ``""``.

    Two phases: rates around two values, each for a while. Otherwise the last third is compared with
    the first. Noise, outliers and series of fewer than twelve rates give ``""``.
    """
    usable = [rate for rate in rates if math.isfinite(rate) and rate > 0]
    if len(usable) < _LEAST_RATES:
        return ""
    return _phases(usable) or _trend(usable)


def _trend(rates: Sequence[float]) -> Drift:
    third = len(rates) // 3
    before, after = statistics.median(rates[:third]), statistics.median(rates[-third:])
    # Difference of two thirds by chance, from differences of adjacent rates, which a slow drift
    # does not widen: the interquartile range of normal noise, or four standard errors of the
    # difference of two medians if that is more.
    sigma = _SIGMA_PER_STEP * statistics.median(
        abs(one - other) for one, other in itertools.pairwise(rates)
    )
    chance = sigma * max(_RANGE_PER_SIGMA, 4 * _MEDIAN_ERROR * math.sqrt(2 / third))
    if abs(after - before) - chance <= _NOTABLE * before:
        return ""
    return "slowed down" if after < before else "sped up"


def _phases(rates: Sequence[float]) -> Drift:
    ordered = sorted(rates)
    cut = _cut(ordered)
    if not cut:
        return ""
    low, high = ordered[:cut], ordered[cut:]
    slow, fast = statistics.median(low), statistics.median(high)
    share = cut / len(rates)
    widest = max(quantile(each, 0.75) - quantile(each, 0.25) for each in (low, high))
    apart = fast - slow > max(_PHASE_GAP * fast, _CLEARLY * widest)
    rare = min(share, 1 - share) < _LEAST_PHASE
    sides = [rate > low[-1] for rate in rates]
    changes = sum(one != other for one, other in itertools.pairwise(sides))
    lasts = changes <= _LASTING * 2 * share * (1 - share) * (len(rates) - 1)
    return "two phases" if apart and lasts and not rare else ""


def _cut(ordered: Sequence[float]) -> int:
    """Return the size of the lower of two groups (Otsu 1979); 0 if all values are equal."""
    total, count = math.fsum(ordered), len(ordered)
    below, best, cut = 0.0, 0.0, 0
    for i in range(1, count):
        below += ordered[i - 1]
        difference = (total - below) / (count - i) - below / i
        between = i * (count - i) * difference * difference
        if between > best and ordered[i] > ordered[i - 1]:
            best, cut = between, i
    return cut


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePlacement:
    """Core-to-core latencies in seconds (NaN: unknown), and bounds of the more frequent placement.

    Both bounds are None if there was only one placement.
    """

    core_to_core_s: tuple[float, ...]
    low_s: float | None = None
    high_s: float | None = None

    @property
    def moved(self) -> bool:
        """True if the CPUs were close at times and distant at others."""
        return self.low_s is not None or self.high_s is not None

    def is_usual(self, core_to_core_latency_s: float) -> bool:
        """Return True if a latency belongs to the more frequent placement."""
        if not self.moved:
            return True
        above = self.low_s is None or core_to_core_latency_s > self.low_s
        below = self.high_s is None or core_to_core_latency_s <= self.high_s
        return not math.isnan(core_to_core_latency_s) and above and below

    @property
    def usual_s(self) -> list[float]:
        """Latencies of the more frequent placement."""
        return [
            each for each in self.core_to_core_s if not math.isnan(each) and self.is_usual(each)
        ]


def find_core_placement(core_to_core_s: Sequence[float]) -> CorePlacement:
    """Return the CPU placements found in core-to-core latencies."""
    core_to_core_s = tuple(core_to_core_s)
    known = sorted(each for each in core_to_core_s if not math.isnan(each))
    cut = _cut(known)
    near, far = known[:cut], known[cut:]
    rare = min(len(near), len(far)) < max(2, _LEAST_SHARE * len(known))
    if rare or statistics.median(far) <= _APART * statistics.median(near):
        return CorePlacement(core_to_core_s=core_to_core_s)
    if len(near) > len(far):
        return CorePlacement(core_to_core_s=core_to_core_s, high_s=near[-1])
    return CorePlacement(core_to_core_s=core_to_core_s, low_s=near[-1])


def placement_condition(found: CorePlacement) -> str:
    """Return a note if the host moved the CPUs, or ``""``."""
    if not found.moved:
        return ""
    mostly = found.usual_s
    otherwise = [
        each for each in found.core_to_core_s if not math.isnan(each) and not found.is_usual(each)
    ]
    share = format_percent(len(mostly) / (len(mostly) + len(otherwise)))
    where = ["close", "distant"]
    if found.low_s is not None:
        where.reverse()
    return (
        f"the host moved its CPUs: {share} of the time they were {where[0]} (core-to-core latency"
        f" {format_s(statistics.median(mostly))}), else {where[1]}"
        f" ({format_s(statistics.median(otherwise))}); multi-threaded sustained rates are for the"
        " former, peaks for the better of both"
    )


def core_to_core_overhead(found: CorePlacement) -> Overhead | None:
    """Return the core-to-core latency of the more frequent placement; None: unknown."""
    times_s = found.usual_s
    if not times_s:
        return None
    return Overhead(
        name="core-to-core latency",
        threads=2,
        time=duration(
            times_s,
            "5th percentile (fast) and median of bursts in which two threads exchange a cache line",
            f"{len(times_s)} bursts of {2 * CORE_TO_CORE_TURNS} transfers",
        ),
    )
