"""From bursts to a rate: what a kernel reached at its best, and what it keeps up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.errors import MeasurementError
from roofline.foundation.sampling import Sample, quantile

PEAK_QUANTILE = 0.95
"""Of the burst rates: high enough for a bound, low enough not to be one lucky burst."""

BUSY = 0.95
"""A thread that had its CPU for less of a burst's wall time makes the burst a disturbed one."""


@dataclass(frozen=True, slots=True)
class Burst:
    """One timed burst of a team: from its first start to its last end, in seconds.

    ``cpu_s`` is the most CPU time that any of the threads took. ``busy`` is the smallest fraction
    of the time from the team's start to its own end that any of them had a CPU: a thread that came
    late, or was interrupted, lost some; one that was done early did not.
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

    ``disturbed`` of ``bursts`` bursts lost the CPU to others. They are left out, unless there are
    no others: then ``only_disturbed`` is True and the rates are too low.
    """

    peak: float
    sustained: float
    spread: float
    bursts: int
    disturbed: int
    only_disturbed: bool


def estimate(work: float, bursts: Sequence[Burst]) -> Estimate:
    """The rates at which bursts of `work` (flop or byte, all threads together) were done.

    Raises:
        MeasurementError: there is no burst, or one took no time.
    """
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


def team_bursts(readings: Sequence[Sequence[Sequence[int]]]) -> list[Burst]:
    """The bursts of a team from each thread's clock readings in ns.

    Args:
        readings: per thread, per burst: wall start, wall end, CPU start, CPU end. Threads that were
            stopped have fewer bursts; only those that all threads finished count.
    """
    bursts: list[Burst] = []
    for rows in zip(*readings, strict=False):
        start, end = min(row[0] for row in rows), max(row[1] for row in rows)
        cpu_ns = [row[3] - row[2] for row in rows]
        busy = min(cpu / max(1, row[1] - start) for cpu, row in zip(cpu_ns, rows, strict=True))
        bursts.append(Burst(wall_s=(end - start) * 1e-9, cpu_s=max(cpu_ns) * 1e-9, busy=busy))
    return bursts
