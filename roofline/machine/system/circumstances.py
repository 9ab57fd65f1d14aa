"""What this host is like before anything is measured, in words, for a profile's conditions."""

from __future__ import annotations

from roofline.foundation.units import format_capacity
from roofline.machine.hardware import Host
from roofline.machine.system.frequency import Frequency, frequency_conditions
from roofline.machine.system.host import UNKNOWN_CPU
from roofline.machine.system.instruction_sets import baseline
from roofline.machine.system.topology import Topology


def circumstances(
    host: Host,
    topology: Topology,
    frequency: Frequency | None = None,
    memory_limit_bytes: int | None = None,
) -> list[str]:
    """Which CPUs are used and why, what limits them, and what the system does not tell.

    Args:
        host: this host.
        topology: its CPUs.
        frequency: what the system says about their clock; None: it was not asked.
        memory_limit_bytes: the container's; None: there is none.
    """
    found = [*core_conditions(topology), *unknown_conditions(host, topology)]
    if frequency is not None:
        found += frequency_conditions(frequency)
    if memory_limit_bytes is not None:
        found.append(f"the container may use {format_capacity(memory_limit_bytes)} of memory")
    return found


def core_conditions(topology: Topology) -> list[str]:
    """Which of the host's CPUs are used, and why not the others; empty: all are."""
    found: list[str] = []
    allowed, online = len(topology.allowed_cpus), topology.online_cpus
    if online is not None and 0 < allowed < online:
        found.append(f"affinity: this process may use {allowed} of the host's {online} CPUs")
    if topology.hidden_siblings:
        siblings = _counted(topology.hidden_siblings, "SMT sibling")
        found.append(f"one thread per physical core: {siblings} left out")
    found += _kind_conditions(topology)
    if topology.quota_cpus is not None:
        found.append(_quota_condition(topology.quota_cpus, topology.available_cpus))
    return found


def _kind_conditions(topology: Topology) -> list[str]:
    used = next((kind for kind in topology.kinds if kind.cores), None)
    if used is None:
        return []
    place = topology.kinds.index(used)
    found = [
        f"only {used.name} cores may be used (affinity): the host's {faster.name} cores are faster"
        for faster in topology.kinds[:place]
    ]
    found += [
        f"{_counted(len(slower.cores), f'{slower.name} core')} left out: bursts start and end"
        f" together, so one slower core would set the pace of all {used.name} cores"
        for slower in topology.kinds[place + 1 :]
        if slower.cores
    ]
    return found


def _counted(count: int, what: str) -> str:
    return f"{count} {what} is" if count == 1 else f"{count} {what}s are"


def _quota_condition(quota_cpus: float, threads: int) -> str:
    said = f"the container may use {quota_cpus:g} CPUs' worth of time"
    if quota_cpus < threads:
        return (
            f"{said}, less than one thread takes: it is stopped for the rest of each scheduler"
            " period, and what it sustains over seconds is lower than the bursts say"
        )
    return said


def unknown_conditions(host: Host, topology: Topology) -> list[str]:
    """What the system does not tell about the CPU, and what follows; empty: it tells enough."""
    found: list[str] = []
    if host.cpu_model == UNKNOWN_CPU:
        found.append("unknown CPU: nothing here names its model")
    least = baseline(host.architecture)
    if not host.instruction_sets:
        found.append(f"instruction sets are unknown on {host.architecture}: no kernel can use them")
    elif host.instruction_sets == least:
        found.append(
            f"instruction sets are not told here: only {', '.join(least)}, which every"
            f" {host.architecture} CPU has, are used; its ceilings may be higher"
        )
    if not topology.caches:
        found.append("cache sizes are not told here")
    if topology.online_cpus is None:
        found.append(
            "which CPUs share a core is not told here: SMT siblings and slower cores, if there are"
            " any, are used like cores of their own"
        )
    return found
