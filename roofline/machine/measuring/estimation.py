"""Bursts: how long and how often they run, the rates they give, and what is kept of them."""

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

_FIGURES = 116  # so many kernels, levels and teams there are on a CPU with AVX-512 and three caches


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Seconds of a measurement's parts.

    ``budget_s`` is for everything but the stretches; of that the curves over size take about
    ``curve_s`` and torch's ceilings ``library_s`` (0: they are left out). ``second_forms``: every
    kernel is measured in two forms that must agree. ``stretch_s`` is how long each kernel runs on
    end after the rounds, for its rate on a warm machine (0: it does not).
    """

    budget_s: float
    curve_s: float
    library_s: float = 0.0
    second_forms: bool = True
    stretch_s: float = 0.0

    @property
    def expected_s(self) -> float:
        return self.budget_s + _FIGURES * self.stretch_s


PROGRAMS: dict[Effort, Program] = {
    # Importing torch alone would take half of the time.
    "quick": Program(budget_s=2.3, curve_s=0.25, second_forms=False),
    # The whole command shall take ten seconds; its start and its end are not in the budget.
    "default": Program(budget_s=9.0, curve_s=0.7, library_s=2.0),
    "thorough": Program(budget_s=40.0, curve_s=5.0, library_s=10.0, stretch_s=1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rate as far as it is known while the measurement goes on: ``per_s`` flop or byte."""

    what: str
    threads: int
    quantity: Literal["flop", "byte"]
    per_s: float


BURST_S = 0.25e-3
"""Short enough that a burst with a disturbance can be left out, long against the clock's cost."""

CALL_LIMIT_S = 0.05
"""The longest stay in compiled code, which an interrupt has to wait for."""

_LEAST_ROUNDS = 3


def repeats_for(run: Callable[[int], float], target_s: float, *, most: int) -> int:
    """The repeats, `most` at most, that make a burst of `target_s`.

    They are doubled until `run`, which returns the seconds that so many took, takes a quarter of
    the target; then they are scaled.
    """
    repeats = 1
    while repeats < most:
        took_s = run(repeats)
        if took_s >= target_s / 4:
            return max(1, min(most, math.floor(repeats * target_s / took_s)))
        # Far from the target the last timing is mostly overhead, so the step is bounded.
        step = target_s / 2 / took_s if took_s > 0 else 16.0
        repeats = math.ceil(repeats * max(2.0, min(16.0, step)))
    return most


def bursts_per_call(
    budget_s: float, trials: int, burst_s: float, *, rounds: int = 8, least: int = 4
) -> int:
    """Bursts that each of `trials` trials may take per round to fit all rounds into `budget_s`."""
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
    """Runs all trials once a round, round after round until `deadline`; the results per trial.

    Rounds let drift (clock, neighbours on the host) hit all trials alike. At least three are made,
    even past the deadline; a round that would end after it is not begun.
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
"""Of the burst rates: high enough for a bound, low enough not to be one lucky burst."""

FAST_QUANTILE = 0.05
"""Of the times of what is quoted as a duration."""

BUSY = 0.95
"""A thread that had its CPU for less of a burst's wall time makes the burst a disturbed one."""


@dataclass(frozen=True, slots=True)
class Burst:
    """One timed burst of a team: from its first start to its last end, in seconds.

    ``cpu_s`` is the most CPU time that any of the threads took, ``busy`` the smallest fraction of
    the time from the team's start to its own end that any of them had a CPU.
    """

    wall_s: float
    cpu_s: float
    busy: float

    @property
    def is_clean(self) -> bool:
        """Whether every thread had its CPU for long enough that the time is the kernel's own."""
        return self.busy >= BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Work per second over many bursts; ``spread`` is interquartile range over median.

    ``disturbed`` of ``bursts`` bursts lost the CPU to others and are left out, unless there are no
    others: then ``only_disturbed`` is True and the rates are too low.
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
    """The rates of bursts of `work` (flop or byte, all threads together)."""
    clean = [burst for burst in bursts if burst.is_clean]
    times_s = tuple(burst.wall_s for burst in clean or bursts)
    if not times_s or min(times_s) <= 0:
        raise MeasurementError(f"no usable timing among {len(bursts)} bursts; measure again")
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
    """Statistics of interleaved bursts, such as ``"0.25 ms bursts"``, in words."""
    return (
        f"{PEAK_QUANTILE * 100:.0f}th percentile (peak) and median (sustained) of interleaved"
        f" {bursts}"
    )


def team_bursts(readings: Sequence[Sequence[Sequence[int]]]) -> list[Burst]:
    """The bursts of a team from each thread's wall start, wall end, CPU start and CPU end in ns.

    Only bursts count that all threads finished.
    """
    bursts: list[Burst] = []
    for rows in zip(*readings, strict=False):
        start, end = min(row[0] for row in rows), max(row[1] for row in rows)
        cpu_ns = [row[3] - row[2] for row in rows]
        busy = min(cpu / max(1, row[1] - start) for cpu, row in zip(cpu_ns, rows, strict=True))
        bursts.append(Burst(wall_s=(end - start) * 1e-9, cpu_s=max(cpu_ns) * 1e-9, busy=busy))
    return bursts


def provenance(reference: str, note: str = "") -> Provenance:
    """Where a number measured now and here comes from."""
    return Provenance(
        source="measured",
        reference=reference,
        date=datetime.date.today().isoformat(),
        tool_version=package_version("roofline"),
        note=note,
    )


def duration(times_s: Sequence[float], reference: str, note: str) -> Duration:
    """The 5th percentile (fast) and the median of seconds measured here."""
    sample = Sample(times_s=tuple(times_s))
    return Duration(
        fast_s=quantile(sample.times_s, FAST_QUANTILE),
        median_s=sample.median_s,
        spread=sample.spread,
        provenance=provenance(reference, note),
    )


# A profile keeps two quantiles and a spread; who doubts them, or wants another estimator, finds
# here what they were made of.

Quantity = Literal["flop", "byte", "load", "cycle", "call"]

_WHOLE_NS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The bursts of one trial in the order they were timed.

    Each did ``work`` of ``quantity``, all threads together. A burst's ``cpu_s`` and ``busy`` are
    NaN where only its rate was kept. ``core_to_core_s`` is the core-to-core latency just before
    each (NaN: unknown). Sustained rates come from bursts whose latency is above the first and at
    most the second of ``usual_range_s`` (None: no bound).
    """

    label: str
    quantity: Quantity
    work: float
    bursts: tuple[Burst, ...]
    core_to_core_s: tuple[float, ...] = ()
    usual_range_s: tuple[float | None, float | None] = (None, None)


def samples_file(profile: Path) -> Path:
    """Where the samples of the profile in that file are: ``host.samples.json`` of ``host.toml``."""
    return profile.with_suffix(".samples.json")


def samples_text(series: Sequence[Series], *, name: str) -> str:
    """The samples of the profile called `name`, as JSON."""
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
        # To three digits, down, so that what is below a limit stays below it.
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
    """Nanoseconds to six digits, and whole ones beyond: clocks tell no more. NaN: not known."""
    if math.isnan(seconds):
        return None
    ns = seconds * 1e9
    digits = float(f"{ns:.6g}") if ns < _WHOLE_NS else round(ns)
    return int(digits) if digits == int(digits) else digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What our own kernels found, or the library: a part of a profile, and the bursts behind it.

    ``bandwidth`` is the library's, by memory level; ``sets`` are the working sets of the levels.
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
