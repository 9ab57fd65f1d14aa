"""Whether the machine is quiet enough to be measured on, and what limits it meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from roofline.errors import MeasurementError
from roofline.foundation.units import format_percent
from roofline.machine.system.activity import Activity, competition, read_activity
from roofline.machine.system.system_files import read
from roofline.machine.system.topology import ROOT, Topology

_LOOK_S = 0.25
"""How long is looked before anything is measured: 25 of the ticks that the system counts in."""

_BUSY = 0.2
"""Share of the CPUs that others may take; above that, a measurement is theirs as much as ours."""

_PRESSED = 5.0
"""Percent of the last ten seconds in which some task waited for memory."""


def check_quiet(
    topology: Topology,
    *,
    force: bool,
    read_now: Callable[[], Activity] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, ...]:
    """Looks whether others compute on the CPUs that are to be measured.

    Args:
        topology: the CPUs.
        force: measure all the same; the answer then says who disturbs.
        read_now: reads the counters of the host.
        clock: seconds.
        sleep: waits for some seconds.

    Returns:
        What to know about the measurement, in words; empty if nothing.

    Raises:
        MeasurementError: they do, and `force` is not set.
    """

    def ask() -> Activity:
        return read_activity(cpus=topology.allowed_cpus or topology.cores)

    look = read_now or ask
    before, begin = look(), clock()
    sleep(_LOOK_S)
    after = look()
    share = competition(before, after, elapsed_s=clock() - begin)
    if share is None or share <= _BUSY:
        return ()
    what = f"other processes take {format_percent(share)} of the CPUs"
    if not force:
        raise MeasurementError(
            f"the machine is busy: {what}; stop them, or measure all the same with --force"
            " (in Python: force=True)"
        )
    return (f"measured although the machine was busy: {what}",)


def memory_pressure(root: Path = ROOT) -> tuple[str, ...]:
    """Whether tasks have waited for memory lately, in words; empty if not, or if nobody tells."""
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
