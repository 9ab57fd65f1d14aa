"""Timing of library calls: bursts with wall and CPU time, and choice of sizes."""

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
"""Linux's thread clock by id: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED."""


def team_cpu_clock() -> Clock:
    """Return a clock of the CPU seconds of all current threads.

    The process clock, used if thread clocks are unavailable, adds other threads only at scheduler
    ticks, which are longer than a burst.
    """
    clocks: list[int] = []

    def total_s() -> float:
        total = 0.0
        for each in clocks:
            try:
                total += time.clock_gettime(each)
            except OSError:
                # The thread has ended; the burst counts as disturbed.
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
    """A call at one size, created on demand; ``work`` is its FLOP or bytes."""

    size: str
    work: int
    make: Callable[[], Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """A compute operator with candidate sizes, ascending, for any number of threads."""

    kernel: str
    dtype: DType
    candidates: tuple[Candidate, ...]
    quantity: ClassVar[Quantity] = "flop"

    @property
    def label(self) -> str:
        return f"{self.dtype} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An element-wise operator over a working set; ``overhead_s`` is its cost without data."""

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
    """A call with negligible arithmetic, described by ``note``."""

    label: str
    note: str
    candidates: tuple[Candidate, ...]
    quantity: ClassVar[Quantity] = "call"


Subject = Arithmetic | Stream | Dispatch

_FIRST_CALL_S = 0.5
"""A first call includes setup; longer ones are not repeated."""

_TRIES = 5
_ROUNDS = 5
_LEAST_BURSTS = 2
_OVERDRAFT = 1.5
_LEAST_CANDIDATES = 2

_BATCH = 50
_BATCHES = 3

_LEAST_S = 1e-9  # below clock resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """Clocks in seconds: wall time, CPU time of this thread, CPU time of all threads."""

    wall: Clock
    thread_cpu: Clock
    team_cpu: Callable[[], Clock]

    def burst(self, run: Run, threads: int, repeats: int = 1) -> Burst:
        """Return the average seconds of a call over `repeats` calls.

        On one thread its own CPU time counts: idle workers spin.
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
    """A subject at the chosen size on `threads` threads; ``call_s`` as measured then."""

    subject: Subject
    threads: int
    size: str
    work: int
    run: Run
    call_s: float
    tried: int

    @property
    def label(self) -> str:
        """Name in progress and samples: ``"torch float32 gemm, 2 threads"``."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"torch {self.subject.label}, {threads}"

    @property
    def repeats(self) -> int:
        return max(1, round(BURST_S / self.call_s))

    def bursts(self, timer: Timer, share_s: float) -> list[Burst]:
        """Return the bursts of one round, for a job with `share_s` seconds in total."""
        begin, round_s = timer.wall(), min(share_s / _ROUNDS, CALL_LIMIT_S)
        what = self.run, self.threads, self.repeats
        timer.burst(*what)  # warms caches and wakes threads
        found = [timer.burst(*what)]
        count = max(_LEAST_BURSTS, int(round_s / (self.call_s * self.repeats)) - 1)
        # Fewer bursts if other processes slow them down.
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
    """Return the fastest candidate per work, of those expected to take at most `most_s`.

    Candidates are tried in order until one is expected to take longer, or `deadline` has passed,
    but at least two that fit. The first is always tried.
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
    """Return the minimum seconds of a few calls, to exclude planning and disturbances."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < _TRIES and sum(times[1:]) < 3 * most_s):
        times.append(_undisturbed_s(timer.burst(run, threads), threads))
        if times[0] > _FIRST_CALL_S:
            break
    return min(times)


def _undisturbed_s(burst: Burst, threads: int) -> float:
    if threads > 1:
        return burst.wall_s
    # CPU time excludes interruptions, but a coarse CPU clock may miss a short call.
    return min(burst.wall_s, max(burst.cpu_s, burst.wall_s / 4))


def batch_seconds(run: Run, timer: Timer, *, threads: int) -> float:
    """Return the seconds of a short call: the minimum over batches."""
    batches = [timer.burst(run, threads, _BATCH) for _ in range(1 + _BATCHES)]
    return min(_undisturbed_s(each, threads) for each in batches[1:])
