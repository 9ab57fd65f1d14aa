"""Which jobs fit into a time budget, each at which size, and what is left out and why."""

from __future__ import annotations

import dataclasses

from roofline.foundation.units import format_s
from roofline.machine.library.jobs import Job, Timer, batch_seconds, choose
from roofline.machine.library.subjects import Candidate, Stream, Subject

_MOST_CALL_S = 10e-3
"""The longest call: past the library's blocking and thread start, short for an interrupt."""

_CALLS_PER_SHARE = 12
"""So many calls of the longest kind fit into a job's share: the choice, and three rounds."""

_LEAST_CALLS_PER_SHARE = 3
"""A job that can only overdraw its share threefold or more is left out."""

_CHOICE = 0.4
"""Of a job's share, what choosing its size may take; what one leaves, the next ones have."""

_CALLS_PER_DISPATCH = 10.0
"""A call on memory that takes less, in times of its dispatch, measures the dispatch."""


class Planner:
    """Jobs, as they are planned one after the other, in `share_s` seconds each."""

    def __init__(self, timer: Timer, share_s: float) -> None:
        self._timer = timer
        self._share_s = share_s
        self._deadline = timer.wall()
        self._refused: dict[str, str] = {}
        self._slow: dict[str, float] = {}
        self._drowned: list[str] = []
        self.jobs: list[Job] = []

    def add(self, subject: Subject, threads: int) -> None:
        """Plans a subject on `threads` threads, or notes why it is left out."""
        if subject.label in self._refused or subject.label in self._slow:
            return
        self._deadline += _CHOICE * self._share_s
        alone = next((job for job in self.jobs if job.subject is subject), None)
        if alone and self._timer.wall() > self._deadline:
            self.jobs.append(dataclasses.replace(alone, threads=threads, tried=1))
            return
        try:
            job = choose(
                subject,
                _candidates(subject, alone),
                self._timer,
                threads=threads,
                most_s=min(_MOST_CALL_S, self._share_s / _CALLS_PER_SHARE),
                deadline=self._deadline,
            )
        except (RuntimeError, AttributeError) as error:
            self._refused[subject.label] = str(error).strip().partition("\n")[0]
            return
        if alone:
            # Others may hold up a team; it is not slower than one of its threads.
            least_s = alone.call_s * job.work / alone.work
            self.jobs.append(dataclasses.replace(job, call_s=min(job.call_s, least_s)))
        elif isinstance(subject, Stream) and self._drowns(job, subject.overhead_s):
            self._drowned.append(f"{subject.working_set.level} on {_threads(threads)}")
        elif threads == 1 and job.call_s > self._share_s / _LEAST_CALLS_PER_SHARE:
            self._slow[subject.label] = job.call_s
        else:
            self.jobs.append(job)

    def _drowns(self, job: Job, overhead_s: float) -> bool:
        """Whether a call is short beside its overhead; close calls are timed in batches."""
        least_s = _CALLS_PER_DISPATCH * overhead_s
        if job.call_s > 2 * least_s:
            return False
        return batch_seconds(job.run, self._timer, threads=job.threads) < least_s

    def conditions(self) -> tuple[str, ...]:
        """What is left out and why, in words."""
        refused = [
            f"torch cannot do {label} on this CPU: {reason}"
            for label, reason in self._refused.items()
        ]
        slow = [
            f"no library ceiling of {label}: a call of the smallest size takes"
            f" {format_s(seconds)}, more than its share of the time; measure for longer"
            for label, seconds in self._slow.items()
        ]
        levels = ", ".join(dict.fromkeys(self._drowned))
        drowned = (
            f"no library bandwidth of {levels}: a call of torch there takes less than"
            f" {_CALLS_PER_DISPATCH:g} times what it takes to start it"
        )
        return (*refused, *slow, *([drowned] if levels else []))


def _candidates(subject: Subject, alone: Job | None) -> tuple[Candidate, ...]:
    """All sizes, or for a team those from the best of one thread on."""
    if alone is None:
        return subject.candidates
    sizes = [each.size for each in subject.candidates]
    return subject.candidates[sizes.index(alone.size) :]


def _threads(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"
