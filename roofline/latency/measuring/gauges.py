"""What is read before and after a pass: clocks, and what tells whether it had the cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from roofline.machine.pace import Pace

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the gauges show at a moment."""

    wall_s: float
    thread_cpu_s: float
    page_faults: int
    waited_s: float


_SHORTEST_S = 1e-9
"""Less than clocks tell apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Clocks in seconds and the counter of page faults; fakes in tests. ``waited`` are the seconds
    that threads had no core when they asked for one.

    ``pace`` reads how fast the cores run, which takes some hundred microseconds.
    ``wait`` returns when all that was asked of the device is done (CUDA; a CPU does it at once),
    and ``waits`` says that there is such a wait, in which the thread has no core.
    """

    wall: Clock = time.perf_counter
    thread_cpu: Clock = time.thread_time
    page_faults: Callable[[], int] = process_faults
    waited: Clock = waited_for_cores_s
    pace: Callable[[], Pace] = Pace
    wait: Callable[[], None] = field(default=lambda: None)
    waits: bool = False

    def read(self) -> Reading:
        """All of them, now; the wall clock last before a pass begins."""
        self.wait()
        page_faults, waited_s, thread_cpu_s = self.page_faults(), self.waited(), self.thread_cpu()
        return Reading(
            wall_s=self.wall(),
            thread_cpu_s=thread_cpu_s,
            page_faults=page_faults,
            waited_s=waited_s,
        )

    def since(self, before: Reading) -> Passage:
        """The pass that began at `before` and ends now."""
        self.wait()
        wall_s = max(self.wall() - before.wall_s, _SHORTEST_S)
        share = (self.thread_cpu() - before.thread_cpu_s) / wall_s
        # While one thread waits for a core, the others spin at the next barrier and look busy.
        share = min(share, 1.0 - (self.waited() - before.waited_s) / wall_s)
        return Passage(
            wall_s=wall_s,
            page_faults=max(0, self.page_faults() - before.page_faults),
            cpu_share=1.0 if self.waits else min(1.0, max(0.0, share)),
        )
