"""Timing calls of a library: bursts with CPU time beside wall time, and which size to take."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import ClassVar

from roofline.core.dtypes import DType
from roofline.machine.hardware import MemoryKernel
from roofline.machine.hierarchy.working_sets import WorkingSet
from roofline.machine.measuring.estimation import BURST_S, CALL_LIMIT_S, Burst, Quantity

Clock = Callable[[], float]
Run = Callable[[], object]

_TASKS = Path("/proc/self/task")
_SCHEDULED_THREAD = 0b110
"""Linux's clock of a thread by its id: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED."""


def team_cpu_clock() -> Clock:
    """A clock of the CPU seconds of the threads that there are now, all together.

    The clock of the process adds what other threads have used only at the scheduler's ticks, which
    are longer than a burst; it is taken where threads' clocks cannot be read.
    """
    clocks: list[int] = []

    def total_s() -> float:
        total = 0.0
        for each in clocks:
            try:
                total += time.clock_gettime(each)
            except OSError:
                # A thread that ended counts no more; the burst then looks disturbed.
                if len(clocks) == 1:
                    raise
        return total

    try:
        clocks += [(~int(task.name) << 3) | _SCHEDULED_THREAD for task in _TASKS.iterdir()]
        total_s()
    except (OSError, AttributeError):
        return time.process_time
    return total_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A call at one size, made only when it is tried: ``work`` is its flop or byte."""

    size: str
    work: int
    make: Callable[[], Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """An operator whose arithmetic is measured, on any number of threads; sizes rise."""

    kernel: str
    dtype: DType
    candidates: tuple[Candidate, ...]
    quantity: ClassVar[Quantity] = "flop"

    @property
    def label(self) -> str:
        return f"{self.dtype} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An element-wise operator over a working set; ``overhead_s`` is what it costs without any."""

    kernel: MemoryKernel
    working_set: WorkingSet
    candidates: tuple[Candidate, ...]
    overhead_s: float
    quantity: ClassVar[Quantity] = "byte"

    @property
    def label(self) -> str:
        return f"{self.working_set.level} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """A call whose arithmetic costs next to nothing; ``note`` says what it is."""

    label: str
    note: str
    candidates: tuple[Candidate, ...]
    quantity: ClassVar[Quantity] = "call"


Subject = Arithmetic | Stream | Dispatch

_FIRST_CALL_S = 0.5
"""A first call also loads, plans and compiles; one that took longer is not made again."""

_TRIES = 5
_ROUNDS = 5
_LEAST_BURSTS = 2
_OVERDRAFT = 1.5
_LEAST_CANDIDATES = 2

_BATCH = 50
_BATCHES = 3

_LEAST_S = 1e-9  # less than clocks tell apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """Clocks in seconds: wall time, CPU time of this thread, of all threads that there are."""

    wall: Clock
    thread_cpu: Clock
    team_cpu: Callable[[], Clock]

    def burst(self, run: Run, threads: int, repeats: int = 1) -> Burst:
        """The seconds of one call, on the average of `repeats` calls without a break.

        On one thread the thread's own CPU time counts: waiting workers spin.
        """
        cpu = self.thread_cpu if threads == 1 else self.team_cpu()
        cpu_start = cpu()
        start = self.wall()
        for _ in repeat(None, repeats):
            run()
        wall_s = max(self.wall() - start, _LEAST_S)
        cpu_s = max(0.0, cpu() - cpu_start)
        return Burst(
            wall_s=wall_s / repeats,
            cpu_s=cpu_s / repeats,
            busy=min(1.0, cpu_s / wall_s / threads),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A subject at the size that was chosen, on `threads` threads; ``call_s`` as it was then."""

    subject: Subject
    threads: int
    size: str
    work: int
    run: Run
    call_s: float
    tried: int

    @property
    def label(self) -> str:
        """How progress and samples name it: ``"torch float32 gemm, 2 threads"``."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"torch {self.subject.label}, {threads}"

    @property
    def repeats(self) -> int:
        """Calls of a burst: enough for the clock, one where a call is long."""
        return max(1, round(BURST_S / self.call_s))

    def bursts(self, timer: Timer, share_s: float) -> list[Burst]:
        """The bursts of one round, of a job that has `share_s` seconds for all rounds."""
        begin, round_s = timer.wall(), min(share_s / _ROUNDS, CALL_LIMIT_S)
        what = self.run, self.threads, self.repeats
        timer.burst(*what)  # Caches hold what ran before, and threads sleep.
        found = [timer.burst(*what)]
        count = max(_LEAST_BURSTS, int(round_s / (self.call_s * self.repeats)) - 1)
        # Where others hold up the bursts, their number must not hold up the rounds.
        while len(found) < count and timer.wall() - begin < _OVERDRAFT * round_s:
            found.append(timer.burst(*what))
        return found


def choose(
    subject: Subject,
    candidates: tuple[Candidate, ...],
    timer: Timer,
    *,
    threads: int,
    most_s: float,
    deadline: float,
) -> Job:
    """The candidate that ran fastest for its work, of those expected to take `most_s` or less.

    Candidates are tried in turn until one is expected to take longer, or it is past `deadline`, but
    at least two that fit; the first is tried in any case.
    """
    jobs: list[Job] = []
    for candidate in candidates:
        if jobs:
            expected_s = jobs[-1].call_s * candidate.work / jobs[-1].work
            late = len(jobs) >= _LEAST_CANDIDATES and timer.wall() > deadline
            if expected_s > most_s or late:
                break
        run = candidate.make()
        jobs.append(
            Job(
                subject=subject,
                threads=threads,
                size=candidate.size,
                work=candidate.work,
                run=run,
                call_s=call_seconds(run, timer, threads=threads, most_s=most_s),
                tried=1,
            )
        )
    best = max(jobs, key=lambda job: job.work / job.call_s)
    return dataclasses.replace(best, tried=len(jobs))


def call_seconds(run: Run, timer: Timer, *, threads: int, most_s: float) -> float:
    """Seconds of a call, the least of a few, so that neither planning nor others count."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < _TRIES and sum(times[1:]) < 3 * most_s):
        times.append(_undisturbed_s(timer.burst(run, threads), threads))
        if times[0] > _FIRST_CALL_S:
            break
    return min(times)


def _undisturbed_s(burst: Burst, threads: int) -> float:
    if threads > 1:
        return burst.wall_s
    # On one thread the CPU time is what a call takes when nobody interrupts it; a coarse CPU clock
    # may not see a short call at all.
    return min(burst.wall_s, max(burst.cpu_s, burst.wall_s / 4))


def batch_seconds(run: Run, timer: Timer, *, threads: int) -> float:
    """Seconds of a call too short to be timed alone: the least of some batches."""
    batches = [timer.burst(run, threads, _BATCH) for _ in range(1 + _BATCHES)]
    return min(_undisturbed_s(each, threads) for each in batches[1:])
