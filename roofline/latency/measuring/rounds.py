"""Rounds of timed passes: each subject runs once in a round; disturbed rounds are discarded."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roofline.core.progress import Progress
from roofline.machine.core_state import CoreState, median_core_state

Clock = Callable[[], float]

LEAST_CPU_SHARE = 0.95
"""Share of a pass's wall time in which its thread must have had a core.

On a quiet host 95 of 100 passes have 0.995; a pass that waited for a core takes that much longer.
"""


def process_faults() -> int:
    """Return the minor page faults of this process so far; 0 where they are not counted."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


_TASKS = Path("/proc/self/task")


def run_queue_wait_s() -> float:
    """Return the seconds that threads of this process waited in run queues, in total.

    0 without Linux's scheduler statistics: then only the thread that runs the pass is watched.
    """
    waited_ns = 0
    try:
        for task in _TASKS.iterdir():
            waited_ns += int((task / "schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        # Statistics of a thread that ended in between are lost.
        pass
    return waited_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPass:
    """One pass: wall time in seconds, minor page faults, share of the time with all cores."""

    wall_s: float
    page_faults: int
    cpu_share: float

    @property
    def is_disturbed(self) -> bool:
        """Return True if the pass waited for a core that another process used."""
        return self.cpu_share < LEAST_CPU_SHARE


SHORTEST_S = 1e-9
"""Shortest time recorded, below the resolution of clocks: no time is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Clocks in seconds and the counter of page faults; tests replace them.

    ``core_state`` reads clock and latency of the cores, in some hundred microseconds.
    ``synchronize`` waits for an asynchronous device (CUDA); the thread has no core meanwhile.
    """

    wall: Clock = time.perf_counter
    thread_cpu: Clock = time.thread_time
    page_faults: Callable[[], int] = process_faults
    run_queue_wait: Clock = run_queue_wait_s
    core_state: Callable[[], CoreState] = CoreState
    synchronize: Callable[[], None] = field(default=lambda: None)
    is_asynchronous: bool = False

    def time_pass(self, subject: Callable[[], object]) -> TimedPass:
        """Run one pass; the wall clock is read right before and after it."""
        self.synchronize()
        page_faults, waited_s = self.page_faults(), self.run_queue_wait()
        thread_cpu_s, start_s = self.thread_cpu(), self.wall()
        subject()
        self.synchronize()
        wall_s = max(self.wall() - start_s, SHORTEST_S)
        share = (self.thread_cpu() - thread_cpu_s) / wall_s
        # While one thread waits for a core, others spin at the next barrier and look busy.
        share = min(share, 1.0 - (self.run_queue_wait() - waited_s) / wall_s)
        return TimedPass(
            wall_s=wall_s,
            page_faults=max(0, self.page_faults() - page_faults),
            cpu_share=1.0 if self.is_asynchronous else min(1.0, max(0.0, share)),
        )


@contextlib.contextmanager
def torch_threads(threads: int, cores: Sequence[int]) -> Iterator[None]:
    """Set torch to `threads` threads, pinned to as many `cores` if there are more; then restore."""
    # This module is also used without torch.
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with _on(set(cores[:threads])) if threads < len(cores) else contextlib.nullcontext():
            yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _on(cpus: set[int]) -> Iterator[None]:
    """Pin all threads of the process to `cpus`, where the system can; then restore."""
    before: dict[int, set[int]] = {}
    for thread in _threads():
        # A thread may end in between, or a container's cpuset may refuse.
        with contextlib.suppress(OSError, AttributeError):
            allowed = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, cpus)
            before[thread] = allowed
    whole = before.get(os.getpid(), set[int]())
    try:
        yield
    finally:
        for thread in _threads():
            # Threads that began meanwhile inherited the smaller set.
            with contextlib.suppress(OSError, AttributeError):
                os.sched_setaffinity(thread, before.get(thread, whole) or whole)


def _threads() -> list[int]:
    try:
        return [int(each.name) for each in _TASKS.iterdir()]
    except OSError:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Warm-up passes, limits of the number of rounds, and a time budget in seconds.

    Up to ``extra_share`` × ``min_rounds`` disturbed rounds are discarded and repeated.
    """

    warm_ups: int = 2
    min_rounds: int = 5
    max_rounds: int = 30
    budget_s: float = 3.0
    extra_share: float = 1.0

    def __post_init__(self) -> None:
        is_range = 1 <= self.min_rounds <= self.max_rounds
        if not (self.warm_ups >= 0 and is_range and self.budget_s >= 0):
            raise ValueError(f"effort is out of range: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Kept rounds: for each, the passes of all subjects in their order.

    ``kept`` are the indices of the kept rounds among all that ran, ``core_states`` the states
    around each. ``discarded`` is the number of rounds in which a pass waited for cores. If too few
    were left, the least disturbed are kept too, and ``are_disturbed`` is True.
    """

    passes: tuple[tuple[TimedPass, ...], ...]
    kept: tuple[int, ...]
    core_states: tuple[CoreState, ...]
    discarded: int
    are_disturbed: bool

    def times_s(self, subject: int) -> tuple[float, ...]:
        """Return the seconds of the subject of this index in each kept round."""
        return tuple(each[subject].wall_s for each in self.passes)

    def page_faults(self, subject: int) -> tuple[int, ...]:
        """Return the minor page faults of a subject in each kept round."""
        return tuple(each[subject].page_faults for each in self.passes)

    @property
    def core_state(self) -> CoreState:
        """Median core clock state of the kept rounds."""
        return median_core_state(self.core_states)


_STATE_INTERVAL_S = 0.02
"""Interval between readings of the core clock, which take longer than many operators."""


def run_rounds(
    subjects: Sequence[Callable[[], object]],
    gauges: Gauges,
    effort: Effort,
    *,
    progress: Progress | None = None,
    what: str = "",
) -> Rounds:
    """Run all subjects once per round, within the effort."""
    for _ in range(effort.warm_ups):
        for subject in subjects:
            subject()
    begin = gauges.wall()
    clean: list[tuple[int, tuple[TimedPass, ...], CoreState]] = []
    disturbed: list[tuple[int, tuple[TimedPass, ...], CoreState]] = []
    core_state, age_s = gauges.core_state(), 0.0
    while True:
        started_at = core_state
        passes = tuple(map(gauges.time_pass, subjects))
        age_s += math.fsum(each.wall_s for each in passes)
        if age_s > _STATE_INTERVAL_S:
            core_state, age_s = gauges.core_state(), 0.0
        number = len(clean) + len(disturbed)
        is_disturbed = any(each.is_disturbed for each in passes)
        found = (number, passes, median_core_state((started_at, core_state)))
        (disturbed if is_disturbed else clean).append(found)
        elapsed_s = gauges.wall() - begin
        if progress is not None:
            by_count = len(clean) / effort.min_rounds
            by_time = elapsed_s / effort.budget_s if effort.budget_s else 1.0
            progress(min(1.0, by_count, by_time), what)
        is_late = elapsed_s >= effort.budget_s
        if len(clean) >= effort.max_rounds or (len(clean) >= effort.min_rounds and is_late):
            break
        if len(disturbed) >= effort.min_rounds * (1 + effort.extra_share) and is_late:
            break
    # Too few undisturbed rounds: the least disturbed fill them up, which the result reports.
    least_disturbed = sorted(disturbed, key=lambda each: -min(one.cpu_share for one in each[1]))
    filled = least_disturbed[: max(0, effort.min_rounds - len(clean))]
    numbers, rounds, core_states = zip(*clean, *filled, strict=True)
    return Rounds(
        passes=rounds,
        kept=numbers,
        core_states=core_states,
        discarded=len(disturbed) - len(filled),
        are_disturbed=bool(filled),
    )
