"""What else happened on the host while something was measured: steal, throttling, page faults."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from roofline.machine.cgroups import control_group, read

_NOTABLE_STEAL = 0.01
"""Fraction of the measured time that the hypervisor may take before it is mentioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Running counters of the host: what they moved by between two readings is what happened.

    ``steal_s`` is CPU time that the hypervisor gave to others, summed over CPUs; ``throttled`` is
    the number of scheduler periods cut short by the CPU quota; ``load`` is the average number of
    runnable tasks in the last minute (None where that is not reported).
    """

    steal_s: float
    throttled: int
    load: float | None


def read_activity(root: Path = Path("/")) -> Activity:
    """The counters now, from ``/proc`` and ``/sys`` under `root`; zero where there are none."""
    first = read(root / "proc/stat").partition("\n")[0].split()
    steal_ticks = int(first[8]) if len(first) > 8 else 0
    load = read(root / "proc/loadavg").split()
    return Activity(
        steal_s=steal_ticks / os.sysconf("SC_CLK_TCK") if steal_ticks else 0.0,
        throttled=control_group(root).throttled_periods(),
        load=float(load[0]) if load else None,
    )


def minor_faults() -> int:
    """Page faults of the calling thread so far; of the process where threads are not told apart."""
    import resource  # absent on Windows, where no kernel runs

    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_minflt


def disturbances(before: Activity, after: Activity, *, elapsed_s: float, cpus: int) -> list[str]:
    """What a reader must know about the time between two readings, in words; empty: nothing.

    Args:
        before: the counters at the start.
        after: the counters at the end.
        elapsed_s: seconds between them.
        cpus: CPUs that the measurement could use.
    """
    found: list[str] = []
    stolen_s = after.steal_s - before.steal_s
    if stolen_s > _NOTABLE_STEAL * elapsed_s * cpus:
        found.append(
            f"steal: the hypervisor took {stolen_s:.2f} s of CPU time in {elapsed_s:.1f} s"
        )
    throttled = after.throttled - before.throttled
    if throttled > 0:
        found.append(
            f"quota: the container's CPU quota cut {throttled} scheduler periods short;"
            " give it more CPUs or measure with fewer --threads"
        )
    if before.load is not None and before.load > 0.5 * cpus:
        found.append(
            f"load: {before.load:.1f} tasks were running on {cpus} CPUs when the measurement began"
        )
    return found
