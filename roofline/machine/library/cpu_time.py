"""CPU time of all threads of this process, to the nanosecond also while they run.

The clock of the process adds what other threads have used only at the scheduler's ticks, which are
longer than a burst.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

Clock = Callable[[], float]

_TASKS = Path("/proc/self/task")
_SCHEDULED_THREAD = 0b110
"""Linux's clock of a thread by its id: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED."""


def running_clock() -> Clock:
    """A clock of the CPU seconds of the threads that there are now, all together.

    Where threads' clocks cannot be read, the clock of the process.
    """
    try:
        clocks = [(~int(task.name) << 3) | _SCHEDULED_THREAD for task in _TASKS.iterdir()]
        _total_s(clocks)
    except (OSError, AttributeError):
        return time.process_time
    return lambda: _total_s(clocks)


def _total_s(clocks: list[int]) -> float:
    total_s = 0.0
    for each in clocks:
        try:
            total_s += time.clock_gettime(each)
        except OSError:
            # A thread that ended counts no more; the burst then looks disturbed.
            if len(clocks) == 1:
                raise
    return total_s
