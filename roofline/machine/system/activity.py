"""Activity of the host: quiet before measuring; steal, throttling and competitors during it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from roofline.core.text import counted
from roofline.core.units import format_percent
from roofline.errors import MeasurementError, argument
from roofline.machine.system.system_files import control_group, read, whole_number
from roofline.machine.system.topology import ROOT, Topology

_NOTABLE_STEAL = 0.01
"""Fraction of the measured time that the hypervisor may take before it is mentioned."""

_NOTABLE_COMPETITION = 0.05
"""Fraction of the CPU time that other processes may take before it is mentioned."""

_BUSY_FIELDS = (0, 1, 2, 5, 6)
"""Of a line in /proc/stat: user, nice, system, irq, softirq; guests are in user already."""

_STEAL_FIELD = 7
_DECIMAL = re.compile(r"[0-9]{1,20}\.[0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Running counters of the host.

    ``steal_s`` is CPU time that the hypervisor gave to others, summed over CPUs; ``throttled`` the
    number of scheduler periods cut short by the CPU quota, and ``throttled_s`` how long tasks
    waited for that; ``load`` the average number of runnable tasks in the last minute; ``busy_s``
    the CPU time of all processes on the `watched` CPUs, ``own_s`` that of this process. None: not
    reported.
    """

    steal_s: float
    throttled: int
    load: float | None
    throttled_s: float = 0.0
    busy_s: float | None = None
    own_s: float = 0.0
    watched: int = 0


def read_activity(
    root: Path = Path("/"),
    cpus: tuple[int, ...] = (),
    own_clock: Callable[[], float] = time.process_time,
) -> Activity:
    """The counters now, from ``/proc`` and ``/sys`` under `root`; zero or None where there are
    none.

    ``cpus`` are watched for other processes, siblings of the cores in use too: who computes there
    takes half of a core.
    """
    rows = {
        words[0]: [whole_number(word) or 0 for word in words[1:]]
        for line in read(root / "proc/stat").splitlines()
        if line.startswith("cpu") and (words := line.split())
    }
    group = control_group(root)
    watched = [rows[f"cpu{cpu}"] for cpu in cpus if f"cpu{cpu}" in rows]
    total = rows.get("cpu", [])
    load = read(root / "proc/loadavg").partition(" ")[0]
    ticks = os.sysconf("SC_CLK_TCK")
    busy = sum(row[field] for row in watched for field in _BUSY_FIELDS if field < len(row))
    return Activity(
        steal_s=total[_STEAL_FIELD] / ticks if len(total) > _STEAL_FIELD else 0.0,
        throttled=group.throttled_periods(),
        load=float(load) if _DECIMAL.fullmatch(load) else None,
        throttled_s=group.throttled_s(),
        busy_s=busy / ticks if watched else None,
        own_s=own_clock(),
        watched=len(watched),
    )


def minor_faults() -> int:
    """Page faults of the calling thread so far; of the process where threads are not told apart."""
    import resource  # absent on Windows, where no kernel runs

    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_minflt


def competition(before: Activity, after: Activity, *, elapsed_s: float) -> float | None:
    """Fraction of the watched CPUs' time that other processes took; None where not readable."""
    if before.busy_s is None or after.busy_s is None or elapsed_s <= 0:
        return None
    # Counters go back when a CPU goes offline: what is below zero or above all is not known better.
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(1.0, max(0.0, others_s / (elapsed_s * max(1, after.watched))))


def disturbances(before: Activity, after: Activity, *, elapsed_s: float, cpus: int) -> list[str]:
    """Disturbances between two readings, `elapsed_s` apart, of a measurement on so many CPUs."""
    found: list[str] = []
    stolen_s = after.steal_s - before.steal_s
    if stolen_s > _NOTABLE_STEAL * elapsed_s * cpus:
        found.append(
            f"steal: the hypervisor took {stolen_s:.2f} s of CPU time in {elapsed_s:.1f} s"
        )
    throttled = after.throttled - before.throttled
    if throttled > 0:
        waited_s = after.throttled_s - before.throttled_s
        waiting = f" ({waited_s:.2f} s of waiting)" if waited_s > 0 else ""
        found.append(
            f"quota: the container's CPU quota cut {throttled} scheduler periods short{waiting};"
            " give it more CPUs or measure with fewer --threads"
        )
    taken = competition(before, after, elapsed_s=elapsed_s)
    if taken is not None and taken > _NOTABLE_COMPETITION:
        found.append(
            f"competitors: other processes took {format_percent(taken)} of the time of the"
            f" {counted(after.watched, 'CPU')} that may be used; stop them and measure again"
        )
    if before.load is not None and before.load > 0.5 * cpus:
        found.append(
            f"load: {before.load:.1f} tasks were running on {counted(cpus, 'CPU')} when the"
            " measurement began"
        )
    return found


_LOOK_S = 0.25
"""How long is looked before anything is measured: 25 of the ticks that the system counts in."""

_BUSY = 0.2
"""Share of the CPUs that others may take; above that, a measurement is theirs as much as ours."""

_PRESSED = 5.0  # percent of the last ten seconds in which some task waited for memory


def check_quiet(
    topology: Topology,
    *,
    force: bool,
    read_now: Callable[[], Activity] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, ...]:
    """Looks whether others compute on the CPUs that are to be measured.

    With `force` it only says so; else a MeasurementError.
    """
    cpus = topology.allowed_cpus or topology.cores
    look = read_now or partial(read_activity, cpus=cpus)
    before, begin = look(), clock()
    sleep(_LOOK_S)
    after = look()
    share = competition(before, after, elapsed_s=clock() - begin)
    if share is None or share <= _BUSY:
        return ()
    what = f"other processes take {format_percent(share)} of the CPUs"
    if not force:
        raise MeasurementError(
            f"the machine is busy: {what}; stop them, or measure all the same with"
            f" {argument('force', True)}"
        )
    return (f"measured although the machine was busy: {what}",)


def memory_pressure(root: Path = ROOT) -> tuple[str, ...]:
    """Whether tasks have waited for memory lately, in words."""
    for line in read(root / "proc/pressure/memory").splitlines():
        found = re.match(r"some avg10=(\d+(?:\.\d+)?)\b", line)
        if found is None:
            continue
        percent = float(found.group(1))
        if percent > _PRESSED:
            return (
                f"memory pressure: tasks waited for memory {percent:.0f} % of the last ten seconds",
            )
    return ()
