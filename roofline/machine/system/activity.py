"""Host activity: idle check before a measurement; steal, throttling and other processes during
it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from roofline.core.text import counted
from roofline.core.units import format_percent
from roofline.errors import MeasurementError, argument
from roofline.machine.system.system_files import control_group, read, whole_number
from roofline.machine.system.topology import ROOT, Topology

_NOTABLE_STEAL = 0.01
"""Fraction of the measured time taken by the hypervisor from which it is reported."""

_NOTABLE_COMPETITION = 0.02
"""Fraction of the CPU time used by other processes from which it is reported: that of warnings."""

_BUSY_FIELDS = (0, 1, 2, 5, 6)
"""Fields in /proc/stat: user (with guests), nice, system, irq, softirq."""

_STEAL_FIELD = 7
_DECIMAL = re.compile(r"[0-9]{1,20}\.[0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Cumulative counters of the host.

    ``steal_s``: CPU time that the hypervisor gave to other guests, summed over CPUs. ``throttled``:
    scheduler periods cut short by the CPU quota; ``throttled_s``: time that tasks waited for it.
    ``load``: average number of runnable tasks in the last minute. ``busy_s``: CPU time of all
    processes on the `watched` CPUs; ``own_s``: that of this process. None: not reported.
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
    """Return the current counters from ``/proc`` and ``/sys`` under `root`; zero or None if
    missing.

    Processes on ``cpus`` are counted, including SMT siblings of the cores in use, which share them.
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
    """Return the page faults of the calling thread, or of the process if not counted by thread."""
    import resource  # absent on Windows, where no kernel runs

    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_minflt


def competition(before: Activity, after: Activity, *, elapsed_s: float) -> float | None:
    """Return the fraction of the watched CPUs used by other processes; None: unknown."""
    if before.busy_s is None or after.busy_s is None or elapsed_s <= 0:
        return None
    # Counters fall when a CPU goes offline, so the result is clamped.
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(1.0, max(0.0, others_s / (elapsed_s * max(1, after.watched))))


def disturbances(before: Activity, after: Activity, *, elapsed_s: float, cpus: int) -> list[str]:
    """Return the disturbances of a measurement on `cpus` CPUs between two readings."""
    found: list[str] = []
    stolen_s = after.steal_s - before.steal_s
    if stolen_s > _NOTABLE_STEAL * elapsed_s * cpus:
        found.append(f"steal: other guests used {stolen_s:.2f} s of CPU time in {elapsed_s:.1f} s")
    throttled = after.throttled - before.throttled
    if throttled > 0:
        waited_s = after.throttled_s - before.throttled_s
        waiting = f" ({waited_s:.2f} s waiting)" if waited_s > 0 else ""
        found.append(
            f"quota: the container's CPU quota throttled {throttled} scheduler periods{waiting};"
            f" raise it or use fewer {argument('threads')}"
        )
    taken = competition(before, after, elapsed_s=elapsed_s)
    if taken is not None and taken > _NOTABLE_COMPETITION:
        found.append(
            f"contention: other processes used {format_percent(taken)} of"
            f" {counted(after.watched, 'CPU')}; stop them and measure again"
        )
    if before.load is not None and before.load > 0.5 * cpus:
        found.append(
            f"load: {before.load:.1f} tasks were running on {counted(cpus, 'CPU')} at the start"
        )
    return found


_LOWERING = ("steal: ", "quota: ", "contention: other processes used ")


def lowering_conditions(conditions: Iterable[str]) -> tuple[str, ...]:
    """Return the conditions by which all figures of a measurement may be too low."""
    return tuple(each for each in conditions if each.startswith(_LOWERING))


_LOOK_S = 0.25
"""Duration of the idle check: 25 ticks of the system's counters."""

_BUSY = 0.2
"""Share of the CPUs used by other processes that prevents a measurement."""

_PRESSED = 5.0  # percent of the last ten seconds


def check_quiet(
    topology: Topology,
    *,
    force: bool,
    read_now: Callable[[], Activity] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, ...]:
    """Raise MeasurementError if other processes use the CPUs to be measured.

    With `force`, return a warning instead.
    """
    cpus = topology.allowed_cpus or topology.cores
    look = read_now or partial(read_activity, cpus=cpus)
    before, begin = look(), clock()
    sleep(_LOOK_S)
    after = look()
    share = competition(before, after, elapsed_s=clock() - begin)
    if share is None or share <= _BUSY:
        return ()
    what = f"other processes use {format_percent(share)} of the CPUs"
    if not force:
        raise MeasurementError(
            f"the machine is busy: {what}; stop them, or set {argument('force', True)}"
        )
    return (f"measured on a busy machine: {what}",)


def memory_pressure(root: Path = ROOT) -> tuple[str, ...]:
    """Return a warning if tasks recently waited for memory."""
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
