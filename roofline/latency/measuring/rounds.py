"""Rounds: everything that is compared runs once in each, and a disturbed round does not count."""

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
"""Of a pass's wall time, what the thread that runs it must have had a core for.

On a quiet host 95 of 100 passes have 0.995 of it; one that waited for a core took that much longer.
"""


def process_faults() -> int:
    """Minor page faults of this process so far, all threads together; 0 where nobody counts."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


_TASKS = Path("/proc/self/task")


def waited_for_cores_s() -> float:
    """Seconds that threads of this process were ready and had no core, all together.

    Where the system does not tell (it is Linux's account of its scheduler), 0: then only the thread
    that runs the pass is watched.
    """
    waited_ns = 0
    try:
        for task in _TASKS.iterdir():
            waited_ns += int((task / "schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        # A thread that ended in between takes its account along.
        pass
    return waited_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One pass: its wall time in seconds, its minor page faults, and the share of the wall time in
    which all of its threads had the cores that they asked for."""

    wall_s: float
    page_faults: int
    cpu_share: float

    @property
    def is_disturbed(self) -> bool:
        """Whether the pass waited for a core that others had."""
        return self.cpu_share < LEAST_CPU_SHARE


SHORTEST_S = 1e-9
"""Less than clocks tell apart: what took none of their ticks is not taken to take no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Clocks in seconds and the counter of page faults; fakes in tests. ``waited`` are the seconds
    that threads had no core when they asked for one.

    ``core_state`` reads how fast the cores run, which takes some hundred microseconds.
    ``wait`` returns when all that was asked of the device is done (CUDA; a CPU does it at once),
    and ``waits`` says that there is such a wait, in which the thread has no core.
    """

    wall: Clock = time.perf_counter
    thread_cpu: Clock = time.thread_time
    page_faults: Callable[[], int] = process_faults
    waited: Clock = waited_for_cores_s
    core_state: Callable[[], CoreState] = CoreState
    wait: Callable[[], None] = field(default=lambda: None)
    waits: bool = False

    def passage(self, subject: Callable[[], object]) -> Passage:
        """Run one pass; the wall clock is read right before and after it."""
        self.wait()
        page_faults, waited_s, thread_cpu_s = self.page_faults(), self.waited(), self.thread_cpu()
        start_s = self.wall()
        subject()
        self.wait()
        wall_s = max(self.wall() - start_s, SHORTEST_S)
        share = (self.thread_cpu() - thread_cpu_s) / wall_s
        # While one thread waits for a core, the others spin at the next barrier and look busy.
        share = min(share, 1.0 - (self.waited() - waited_s) / wall_s)
        return Passage(
            wall_s=wall_s,
            page_faults=max(0, self.page_faults() - page_faults),
            cpu_share=1.0 if self.waits else min(1.0, max(0.0, share)),
        )


@contextlib.contextmanager
def team(threads: int, cores: Sequence[int]) -> Iterator[None]:
    """Within, torch computes with `threads` threads, on as many `cores` where there are more.

    Afterwards their number, and where each thread of the process may run, are as before.
    """
    # Gauges are read where no torch is.
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
    """All threads of the process on `cpus`; where the system has no such thing, nothing."""
    before: dict[int, set[int]] = {}
    for thread in _threads():
        # A thread may end in between, or belong to a container's cpuset that says otherwise.
        with contextlib.suppress(OSError, AttributeError):
            allowed = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, cpus)
            before[thread] = allowed
    whole = before.get(os.getpid(), set[int]())
    try:
        yield
    finally:
        for thread in _threads():
            # Those that began meanwhile inherited the smaller set.
            with contextlib.suppress(OSError, AttributeError):
                os.sched_setaffinity(thread, before.get(thread, whole) or whole)


def _threads() -> list[int]:
    try:
        return [int(each.name) for each in _TASKS.iterdir()]
    except OSError:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured.

    ``warm_ups`` passes come first and do not count; at least ``least`` rounds and at most ``most``
    do, for about ``budget_s`` seconds. As many rounds more as ``patience`` times those that count
    may be thrown away.
    """

    warm_ups: int = 2
    least: int = 5
    most: int = 30
    budget_s: float = 3.0
    patience: float = 1.0

    def __post_init__(self) -> None:
        if not (self.warm_ups >= 0 and 1 <= self.least <= self.most and self.budget_s >= 0):
            raise ValueError(f"no such effort: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What rounds gave: for each one that counts, the passes of all subjects in their order.

    ``kept`` are their numbers, from 0, among all that ran; ``core_states`` are those
    at their beginning and end. ``discarded`` is how many were thrown away because a pass did
    not get the cores. Where too few were left, the least disturbed of them count too, and
    ``are_disturbed`` says so.
    """

    passages: tuple[tuple[Passage, ...], ...]
    kept: tuple[int, ...]
    core_states: tuple[CoreState, ...]
    discarded: int
    are_disturbed: bool

    def times_s(self, subject: int) -> tuple[float, ...]:
        """The seconds that the subject of this number took, in the rounds that count."""
        return tuple(each[subject].wall_s for each in self.passages)

    def page_faults(self, subject: int) -> tuple[int, ...]:
        """Its minor page faults."""
        return tuple(each[subject].page_faults for each in self.passages)

    @property
    def core_state(self) -> CoreState:
        """The median core state of the rounds that count."""
        return median_core_state(self.core_states)


_PACE_HOLDS_S = 0.02
"""The clock of a core changes over seconds; reading it takes longer than many operators do."""


def run_rounds(
    subjects: Sequence[Callable[[], object]],
    gauges: Gauges,
    effort: Effort,
    *,
    progress: Progress | None = None,
    what: str = "",
) -> Rounds:
    """Runs all subjects in turn, round after round."""
    for _ in range(effort.warm_ups):
        for subject in subjects:
            subject()
    begin = gauges.wall()
    clean: list[tuple[int, tuple[Passage, ...], CoreState]] = []
    disturbed: list[tuple[int, tuple[Passage, ...], CoreState]] = []
    core_state, age_s = gauges.core_state(), 0.0
    while True:
        started_at = core_state
        passages = tuple(map(gauges.passage, subjects))
        age_s += math.fsum(each.wall_s for each in passages)
        if age_s > _PACE_HOLDS_S:
            core_state, age_s = gauges.core_state(), 0.0
        number = len(clean) + len(disturbed)
        is_disturbed = any(each.is_disturbed for each in passages)
        found = (number, passages, median_core_state((started_at, core_state)))
        (disturbed if is_disturbed else clean).append(found)
        elapsed_s = gauges.wall() - begin
        if progress is not None:
            by_count = len(clean) / effort.least
            by_time = elapsed_s / effort.budget_s if effort.budget_s else 1.0
            progress(min(1.0, by_count, by_time), what)
        is_late = elapsed_s >= effort.budget_s
        if len(clean) >= effort.most or (len(clean) >= effort.least and is_late):
            break
        if len(disturbed) >= effort.least * (1 + effort.patience) and is_late:
            break
    # Better than nothing, as long as it is said: those that are left are too few to go without.
    least_disturbed = sorted(
        disturbed, key=lambda each: -min(passage.cpu_share for passage in each[1])
    )
    filled = least_disturbed[: max(0, effort.least - len(clean))]
    numbers, rounds, core_states = zip(*clean, *filled, strict=True)
    return Rounds(
        passages=rounds,
        kept=numbers,
        core_states=core_states,
        discarded=len(disturbed) - len(filled),
        are_disturbed=bool(filled),
    )
