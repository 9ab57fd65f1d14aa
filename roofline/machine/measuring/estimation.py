"""Bursts: their number and duration, rate estimates, provenance, and saved samples."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from roofline.core.sampling import Sample, quantile
from roofline.errors import MeasurementError
from roofline.machine.hardware import (
    Bandwidth,
    BandwidthCurve,
    Clock,
    ComputeCeiling,
    Duration,
    Effort,
    LatencyCurve,
    Link,
    MemoryLevel,
    Overhead,
    Provenance,
)
from roofline.machine.hierarchy.working_sets import WorkingSet
from roofline.machine.system.host import package_version

_FIGURES = 116  # number of figures on a CPU with AVX-512 and three cache levels


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBudget:
    """Time budget of a measurement, in seconds.

    ``budget_s`` is for everything but the continuous runs, including ``curve_s`` for curves and
    ``library_s`` for library ceilings (0: none). ``second_variants``: measure two variants of every
    kernel. ``continuous_s``: continuous run of each kernel after the rounds, for its rate on a warm
    machine (0: none).
    """

    budget_s: float
    curve_s: float
    library_s: float = 0.0
    second_variants: bool = True
    continuous_s: float = 0.0

    @property
    def expected_s(self) -> float:
        return self.budget_s + _FIGURES * self.continuous_s


TIME_BUDGETS: dict[Effort, TimeBudget] = {
    # Importing torch would take half of the time.
    "quick": TimeBudget(budget_s=2.3, curve_s=0.25, second_variants=False),
    # The whole command takes ten seconds; start and end are not in the budget.
    "default": TimeBudget(budget_s=9.0, curve_s=0.7, library_s=2.0),
    "thorough": TimeBudget(budget_s=40.0, curve_s=5.0, library_s=10.0, continuous_s=1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A preliminary rate, ``per_s`` FLOP or bytes per second."""

    what: str
    threads: int
    quantity: Literal["flop", "byte"]
    per_s: float


BURST_S = 0.25e-3
"""Short enough to discard disturbed bursts, long against the clock overhead."""

CALL_LIMIT_S = 0.05
"""Longest call of compiled code, which delays an interrupt."""

_LEAST_ROUNDS = 3


def repeats_for(run: Callable[[int], float], target_s: float, *, most: int) -> int:
    """Return the number of repeats, at most `most`, for a burst of `target_s`.

    Repeats are increased until `run`, which returns the seconds they took, reaches a quarter of the
    target; then they are scaled.
    """
    repeats = 1
    while repeats < most:
        took_s = run(repeats)
        if took_s >= target_s / 4:
            return max(1, min(most, math.floor(repeats * target_s / took_s)))
        # Short timings are mostly overhead, so the step is bounded.
        step = target_s / 2 / took_s if took_s > 0 else 16.0
        repeats = math.ceil(repeats * max(2.0, min(16.0, step)))
    return most


def bursts_per_call(
    budget_s: float, trials: int, burst_s: float, *, rounds: int = 8, least: int = 4
) -> int:
    """Return the bursts per round of each of `trials` trials that fit into `budget_s`."""
    call_s = min(budget_s / max(1, trials) / rounds, CALL_LIMIT_S)
    return max(least, math.floor(call_s / burst_s))


Trial = TypeVar("Trial")
Result = TypeVar("Result")


def interleave(
    trials: Sequence[Trial],
    run: Callable[[Trial], Sequence[Result]],
    *,
    deadline: float,
    clock: Callable[[], float],
    progress: Callable[[float, Trial], None],
) -> list[list[Result]]:
    """Run all trials in rounds until `deadline`; return the results per trial.

    Rounds expose all trials to drift equally (clock, other guests). At least three rounds run; a
    round that would end after the deadline is not started.
    """
    results: list[list[Result]] = [[] for _ in trials]
    if not trials:
        return results
    begin = clock()
    rounds = 0
    while True:
        now = clock()
        longest = (now - begin) / rounds if rounds else 0.0
        if rounds >= _LEAST_ROUNDS and now + longest > deadline:
            return results
        span = max(deadline - begin, longest * _LEAST_ROUNDS)
        for index, trial in enumerate(trials):
            done = (clock() - begin) / span if span > 0 else 1.0
            progress(min(1.0, done), trial)
            results[index].extend(run(trial))
        rounds += 1


PEAK_QUANTILE = 0.95
"""Quantile of burst rates: high enough for a ceiling, without single outliers."""

FAST_QUANTILE = 0.05
"""Quantile of times for the fast value of a duration."""

BUSY = 0.95
"""Fraction of the wall time below which a thread was disturbed."""


@dataclass(frozen=True, slots=True)
class Burst:
    """One timed burst of a team, from its first start to its last end, in seconds.

    ``cpu_s`` is the largest CPU time of a thread; ``busy`` the smallest fraction of time on a CPU,
    from the team's start to the thread's end.
    """

    wall_s: float
    cpu_s: float
    busy: float

    @property
    def is_clean(self) -> bool:
        """True if every thread had its CPU."""
        return self.busy >= BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Work per second over many bursts; ``spread`` is interquartile range over median.

    ``disturbed`` of ``bursts`` bursts are discarded. If all were disturbed, ``only_disturbed`` is
    True and the rates are too low.
    """

    peak: float
    sustained: float
    spread: float
    bursts: int
    disturbed: int
    only_disturbed: bool

    @property
    def note(self) -> str:
        left_out = f", {self.disturbed} disturbed" if self.disturbed else ""
        return f"{self.bursts} bursts{left_out}"


def estimate(work: float, bursts: Sequence[Burst]) -> Estimate:
    """Return the rates of bursts of `work` (FLOP or bytes of all threads)."""
    clean = [burst for burst in bursts if burst.is_clean]
    times_s = tuple(burst.wall_s for burst in clean or bursts)
    if not times_s or min(times_s) <= 0:
        raise MeasurementError(
            f"no usable timing in {len(bursts)} bursts; stop other processes and measure again"
        )
    sample = Sample(times_s=times_s)
    sustained = work / sample.median_s
    return Estimate(
        peak=max(sustained, work / quantile(times_s, 1 - PEAK_QUANTILE)),
        sustained=sustained,
        spread=sample.spread,
        bursts=len(bursts),
        disturbed=len(bursts) - len(clean),
        only_disturbed=not clean,
    )


def method(bursts: str) -> str:
    """Return the statistics of interleaved bursts, such as ``"0.25 ms bursts"``, as text."""
    return (
        f"{PEAK_QUANTILE * 100:.0f}th percentile (peak) and median (sustained) of interleaved"
        f" {bursts}"
    )


def team_bursts(readings: Sequence[Sequence[Sequence[int]]]) -> list[Burst]:
    """Return bursts from each thread's wall start, wall end, CPU start and CPU end in ns.

    Only bursts finished by all threads count.
    """
    bursts: list[Burst] = []
    for rows in zip(*readings, strict=False):
        start, end = min(row[0] for row in rows), max(row[1] for row in rows)
        cpu_ns = [row[3] - row[2] for row in rows]
        busy = min(cpu / max(1, row[1] - start) for cpu, row in zip(cpu_ns, rows, strict=True))
        bursts.append(Burst(wall_s=(end - start) * 1e-9, cpu_s=max(cpu_ns) * 1e-9, busy=busy))
    return bursts


def provenance(reference: str, note: str = "") -> Provenance:
    """Return the provenance of a figure measured now."""
    return Provenance(
        source="measured",
        reference=reference,
        date=datetime.date.today().isoformat(),
        tool_version=package_version("roofline"),
        note=note,
    )


def duration(times_s: Sequence[float], reference: str, note: str) -> Duration:
    """Return the 5th percentile (fast) and the median of measured seconds."""
    sample = Sample(times_s=tuple(times_s))
    return Duration(
        fast_s=quantile(sample.times_s, FAST_QUANTILE),
        median_s=sample.median_s,
        spread=sample.spread,
        provenance=provenance(reference, note),
    )


# A profile keeps two quantiles and a spread; the samples allow other estimators.

Quantity = Literal["flop", "byte", "load", "cycle", "call"]

_WHOLE_NS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Bursts of one trial in order.

    Each did ``work`` of ``quantity`` on all threads. ``cpu_s`` and ``busy`` of a burst are NaN if
    only its rate was kept. ``core_to_core_s`` is the core-to-core latency before each burst (NaN:
    unknown). Sustained rates come from bursts with a latency above the first and at most the second
    of ``usual_range_s`` (None: no bound).
    """

    label: str
    quantity: Quantity
    work: float
    bursts: tuple[Burst, ...]
    core_to_core_s: tuple[float, ...] = ()
    usual_range_s: tuple[float | None, float | None] = (None, None)


def samples_file(profile: Path) -> Path:
    """Return the samples file of a profile: ``host.samples.json`` of ``host.toml``."""
    return profile.with_suffix(".samples.json")


def samples_text(series: Sequence[Series], *, name: str) -> str:
    """Return the samples of the profile `name`, as JSON."""
    what = {"schema_version": 1, "kind": "samples of a hardware profile", "profile": name}
    data = {**what, "series": [_series_data(each) for each in series]}
    return json.dumps(data, separators=(",", ":"))


def _series_data(series: Series) -> dict[str, Any]:
    data: dict[str, Any] = {
        "label": series.label,
        "quantity": series.quantity,
        "work": series.work,
        "wall_ns": [_ns(burst.wall_s) for burst in series.bursts],
        "cpu_ns": [_ns(burst.cpu_s) for burst in series.bursts],
        # Rounded down to three digits, to stay below limits.
        "busy": [
            None if math.isnan(burst.busy) else math.floor(burst.busy * 1e3) / 1e3
            for burst in series.bursts
        ],
    }
    if series.core_to_core_s:
        data["core_to_core_latency_ns"] = [_ns(each) for each in series.core_to_core_s]
        data["mostly_ns"] = [None if each is None else _ns(each) for each in series.usual_range_s]
    return data


def _ns(seconds: float) -> float | None:
    """Return nanoseconds to six digits, or whole ones above 1 ms; None for NaN."""
    if math.isnan(seconds):
        return None
    ns = seconds * 1e9
    digits = float(f"{ns:.6g}") if ns < _WHOLE_NS else round(ns)
    return int(digits) if digits == int(digits) else digits


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFigures:
    """Figures measured with own kernels or the library, and their bursts.

    ``bandwidth`` is the library's, by memory level; ``sets`` are the working sets.
    """

    compute: tuple[ComputeCeiling, ...] = ()
    memory: tuple[MemoryLevel, ...] = ()
    bandwidth: Mapping[str, tuple[Bandwidth, ...]] = field(
        default_factory=dict[str, tuple[Bandwidth, ...]]
    )
    clock: Clock | None = None
    overheads: tuple[Overhead, ...] = ()
    links: tuple[Link, ...] = ()
    latency_curve: LatencyCurve | None = None
    bandwidth_curves: tuple[BandwidthCurve, ...] = ()
    sets: tuple[WorkingSet, ...] = ()
    series: tuple[Series, ...] = ()
    conditions: tuple[str, ...] = ()
