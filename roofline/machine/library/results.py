"""From the bursts of jobs to ceilings, bandwidths and overheads of the library."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.core.sampling import Sample, quantile
from roofline.core.text import counted
from roofline.core.units import format_percent
from roofline.machine.hardware import Bandwidth, ComputeCeiling, Duration, Overhead
from roofline.machine.library.jobs import Arithmetic, Dispatch, Job, Stream
from roofline.machine.measuring.estimation import (
    BUSY,
    PEAK_QUANTILE,
    Burst,
    Estimate,
    Series,
    estimate,
    method,
    provenance,
)

_BEST_CALLS = 3
"""So many bursts of a team are held to be undisturbed in any case: those with the most CPU time."""

_CONTENDED = 0.1
"""Fraction of disturbed bursts on one thread from which on others take part in everything."""

_SAME = 1.05
"""A burst of a team that took so much longer than undisturbed ones, or less, lost nothing."""

_UNSTEADY = 0.25
"""Spread from which on a team is held to have been disturbed, unless its threads were busy."""

_SLOWER = 0.9  # of what one thread reaches: less than that of a team is not what the team can do

_REMEDY = "stop what else runs and measure again"

_NEAREST_LEVEL = "L1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a job's bursts, which are in seconds per call, each relative to undisturbed ones.

    ``usual`` is the part of its threads' time that the library uses when nobody disturbs it;
    ``doubt`` is empty unless no burst may have been undisturbed.
    """

    job: Job
    bursts: tuple[Burst, ...]
    rate: Estimate
    usual: float
    doubt: str

    @property
    def note(self) -> str:
        """How many bursts there were, and how many of the threads were at work."""
        left_out = f", {self.rate.disturbed} disturbed" if self.rate.disturbed else ""
        idle = self.job.threads > 1 and self.usual < BUSY and not self.doubt
        busy = f"{self.usual * self.job.threads:.1f} of {self.job.threads} threads busy"
        team = f"; {busy}" if idle else ""
        return f"{counted(self.rate.bursts, 'burst')}{left_out}{team}"


def outcomes(jobs: Sequence[Job], bursts: Sequence[Sequence[Burst]]) -> list[Outcome]:
    alone = [
        each.busy < BUSY
        for job, of in zip(jobs, bursts, strict=True)
        for each in of
        if job.threads == 1
    ]
    contended = sum(alone) > _CONTENDED * len(alone)
    found = [_outcome(job, of, contended) for job, of in zip(jobs, bursts, strict=True)]
    rates = {each.job.subject.label: each.rate.sustained for each in found if each.job.threads == 1}
    for i, each in enumerate(found):
        alone_per_s = rates.get(each.job.subject.label)
        if alone_per_s is None or each.job.threads == 1 or each.doubt:
            continue
        # Threads that wait for each other spin: they seem busy, and only their rate tells.
        if each.rate.sustained < _SLOWER * alone_per_s:
            doubt = (
                f"slower than on 1 thread: its {each.job.threads} threads may not have run at the"
                f" same time; {_REMEDY}"
            )
            found[i] = dataclasses.replace(each, doubt=doubt)
    return found


def _outcome(job: Job, bursts: Sequence[Burst], contended: bool) -> Outcome:
    # A library need not keep all threads busy, so a team's burst is disturbed when others of the
    # same job got more CPU and were fastest_form. A thread alone has nobody to wait for.
    threads, usual = job.threads, 1.0
    if threads > 1:
        usual = sorted(each.busy for each in bursts)[-_BEST_CALLS:][0] or 1.0
    best = [each.wall_s for each in bursts if each.busy >= BUSY * usual]
    fair_s = _SAME * statistics.median(best) if best else 0.0
    judged = tuple(
        dataclasses.replace(
            each,
            busy=1.0 if threads > 1 and each.wall_s <= fair_s else min(1.0, each.busy / usual),
        )
        for each in bursts
    )
    rate = estimate(job.work, judged)
    doubt = ""
    # Even a library that uses one thread of a team keeps that one busy.
    if rate.only_disturbed or usual * threads < BUSY:
        doubt = f"too low: every call was disturbed; {_REMEDY}"
    elif usual < BUSY and (contended or rate.spread > _UNSTEADY):
        doubt = (
            f"may be too low: other processes ran, and no call kept {threads} threads busy;"
            f" {_REMEDY}"
        )
    return Outcome(job=job, bursts=judged, rate=rate, usual=usual, doubt=doubt)


def compute_ceilings(found: Iterable[Outcome], version: str) -> tuple[ComputeCeiling, ...]:
    return tuple(
        ComputeCeiling(
            kind="library",
            kernel=each.job.subject.kernel,
            dtype=each.job.subject.dtype,
            unit="torch",
            threads=each.job.threads,
            peak_flop_per_s=each.rate.peak,
            sustained_flop_per_s=each.rate.sustained,
            spread=each.rate.spread,
            doubt=each.doubt,
            provenance=provenance(
                _method(version), f"{each.job.size}, best of {each.job.tried} sizes; {each.note}"
            ),
        )
        for each in found
        if isinstance(each.job.subject, Arithmetic)
    )


def bandwidths(found: Iterable[Outcome], version: str) -> dict[str, tuple[Bandwidth, ...]]:
    """The bandwidths of element-wise operators in byte per second, by memory level."""
    levels: dict[str, tuple[Bandwidth, ...]] = {}
    for each in found:
        subject = each.job.subject
        if not isinstance(subject, Stream):
            continue
        level = subject.working_set.level
        dispatch = subject.overhead_s * each.rate.sustained / each.job.work
        bandwidth = Bandwidth(
            kind="library",
            kernel=subject.kernel,
            threads=each.job.threads,
            peak_bytes_per_s=each.rate.peak,
            sustained_bytes_per_s=each.rate.sustained,
            spread=each.rate.spread,
            write_allocate="none" if level == _NEAREST_LEVEL else "not counted",
            doubt=each.doubt,
            provenance=provenance(
                _method(version),
                f"{each.job.size}; dispatch is {format_percent(dispatch)} of a call; {each.note}",
            ),
        )
        levels[level] = (*levels.get(level, ()), bandwidth)
    return levels


def overheads(found: Iterable[Outcome], version: str) -> tuple[Overhead, ...]:
    """What calls cost that compute nothing, in seconds."""
    calls: list[Overhead] = []
    low = 1 - PEAK_QUANTILE
    for each in found:
        subject = each.job.subject
        if not isinstance(subject, Dispatch):
            continue
        clean = tuple(burst.wall_s for burst in each.bursts if burst.is_clean)
        times_s = clean or tuple(burst.wall_s for burst in each.bursts)
        sample = Sample(times_s=times_s)
        time = Duration(
            fast_s=min(sample.median_s, quantile(times_s, low)),
            median_s=sample.median_s,
            spread=sample.spread,
            provenance=provenance(
                f"{low * 100:.0f}th percentile (fast) and median of interleaved bursts of"
                f" {each.job.repeats} calls of torch {version} from Python",
                "; ".join(part for part in (subject.note, each.note, each.doubt) if part),
            ),
        )
        calls.append(Overhead(name=subject.label, threads=each.job.threads, time=time))
    return tuple(calls)


def sample_series(each: Outcome) -> Series:
    """The bursts of a job as they were timed: whole, of all their calls."""
    calls = each.job.repeats
    return Series(
        label=each.job.label,
        quantity=each.job.subject.quantity,
        work=calls * each.job.work,
        bursts=tuple(
            Burst(wall_s=calls * burst.wall_s, cpu_s=calls * burst.cpu_s, busy=burst.busy)
            for burst in each.bursts
        ),
    )


def _method(version: str) -> str:
    return method(f"bursts of calls of torch {version}")
