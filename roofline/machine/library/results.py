"""Ceilings, bandwidths and overheads of the library from bursts."""

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
"""Number of bursts of a team, with the most CPU time, that count as undisturbed."""

_CONTENDED = 0.1
"""Fraction of disturbed single-thread bursts that indicates contention."""

_SAME = 1.05
"""Tolerance of undisturbed team bursts relative to the best ones."""

_UNSTEADY = 0.25
"""Spread above which a team counts as disturbed, unless its threads were busy."""

_SLOWER = 0.9  # a team below this fraction of one thread was disturbed

_REMEDY = "stop other processes and measure again"

_NEAREST_LEVEL = "L1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a job's bursts, in seconds per call.

    ``usual`` is the fraction of thread time that the library uses undisturbed; ``doubt`` is set if
    no burst may have been undisturbed.
    """

    job: Job
    bursts: tuple[Burst, ...]
    rate: Estimate
    usual: float
    doubt: str

    @property
    def note(self) -> str:
        """Numbers of bursts and of busy threads."""
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
        # Waiting threads spin and seem busy, so the rate is checked.
        if each.rate.sustained < _SLOWER * alone_per_s:
            doubt = (
                f"slower than on 1 thread: other processes disturbed its {each.job.threads}"
                f" threads; {_REMEDY}"
            )
            found[i] = dataclasses.replace(each, doubt=doubt)
    return found


def _outcome(job: Job, bursts: Sequence[Burst], contended: bool) -> Outcome:
    # A library may leave threads idle, so a team's burst counts as disturbed if other bursts of the
    # job got more CPU time and were faster.
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
    # At least one thread must have been busy.
    if rate.only_disturbed or usual * threads < BUSY:
        doubt = f"too low: all calls disturbed by other processes; {_REMEDY}"
    elif usual < BUSY and (contended or rate.spread > _UNSTEADY):
        doubt = (
            f"may be too low: other processes ran, and no call used {threads} threads; {_REMEDY}"
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
    """Return the bandwidths of element-wise operators in byte/s, by memory level."""
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
                f"{each.job.size}; dispatch {format_percent(dispatch)} of a call; {each.note}",
            ),
        )
        levels[level] = (*levels.get(level, ()), bandwidth)
    return levels


def overheads(found: Iterable[Outcome], version: str) -> tuple[Overhead, ...]:
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
    """Return a job's bursts as timed, including all their calls."""
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
