"""HostState of the host before measuring, its clock frequencies, and both in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roofline.core.text import counted
from roofline.core.units import format_capacity, format_si
from roofline.machine.hardware import Host
from roofline.machine.system.host import (
    UNKNOWN_CPU,
    CompilerFeatures,
    available_memory_bytes,
    baseline,
    describe_host,
    total_memory_bytes,
)
from roofline.machine.system.system_files import control_group, read, table, whole_number
from roofline.machine.system.topology import ROOT, Node, Topology, describe_topology, read_nodes

_AUTONOMOUS_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""There the governor 'powersave' is the usual one and reaches every clock."""

_SLOW_GOVERNORS = ("powersave", "userspace")
_LATE_GOVERNORS = ("ondemand", "conservative", "schedutil")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequency:
    """How the clock of some cores is governed; fields are empty or None where it is not told.

    ``limit_hz`` is the most that the settings permit, ``most_hz`` that of the hardware, both of the
    fastest of the cores; ``boost`` whether clocks above the base are permitted.
    """

    governors: tuple[str, ...]
    driver: str
    limit_hz: float | None
    most_hz: float | None
    boost: bool | None
    hypervisor: bool


def read_frequency(root: Path, cpus: tuple[int, ...]) -> Frequency:
    """What ``/proc`` and ``/sys`` under `root` say of the clock of these CPUs."""
    folder = root / "sys/devices/system/cpu"
    scaling = [folder / f"cpu{cpu}/cpufreq" for cpu in cpus]
    governors = {read(each / "scaling_governor") for each in scaling}

    def most_hz(name: str) -> float | None:
        kilohertz = [whole_number(read(each / name)) for each in scaling]
        return max((each * 1e3 for each in kilohertz if each), default=None)

    off, on = read(folder / "intel_pstate/no_turbo"), read(folder / "cpufreq/boost")
    told = {"0": True, "1": False}.get(off)
    flags = table(read(root / "proc/cpuinfo")).get("flags", "").split()
    return Frequency(
        governors=tuple(sorted(name for name in governors if name.isidentifier())),
        driver=read(scaling[0] / "scaling_driver") if scaling else "",
        limit_hz=most_hz("scaling_max_freq"),
        most_hz=most_hz("cpuinfo_max_freq"),
        boost={"0": False, "1": True}.get(on) if told is None else told,
        hypervisor="hypervisor" in flags or bool(read(root / "sys/hypervisor/type")),
    )


def frequency_conditions(frequency: Frequency) -> list[str]:
    """What keeps the clock below what the CPU can do, in words; empty: nothing that is told."""
    found: list[str] = []
    autonomous = frequency.driver in _AUTONOMOUS_DRIVERS
    for governor in frequency.governors:
        if governor in _SLOW_GOVERNORS and not autonomous:
            found.append(
                f"governor: '{governor}' keeps the clock below what the CPU can do; for its"
                " ceilings set 'performance' (`cpupower frequency-set -g performance`)"
            )
        elif governor in _LATE_GOVERNORS:
            found.append(
                f"governor: '{governor}' raises the clock only after a while of work; the first"
                " bursts may be slower"
            )
    if frequency.boost is False:
        found.append("boost is off: the clock stays at its base, and so do the ceilings")
    limit, most = frequency.limit_hz, frequency.most_hz
    if limit is not None and most is not None and limit < most:
        found.append(
            f"the clock is limited to {format_si(limit, 'Hz')} by its settings"
            f" (scaling_max_freq); the CPU is said to reach {format_si(most, 'Hz')}"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """This host as the system reports it.

    ``memory_limit_bytes`` is the container's (None: no limit); ``huge_pages`` is ``always``,
    ``madvise``, ``never``, or ``""`` where not told.
    """

    host: Host
    topology: Topology
    frequency: Frequency
    nodes: tuple[Node, ...]
    available_bytes: int
    memory_bytes: int | None
    memory_limit_bytes: int | None
    huge_pages: str


def read_host_state(
    root: Path = ROOT, compiler_features: CompilerFeatures | None = None
) -> HostState:
    """This host now; `root` stands for ``/`` (a fake one in tests). Takes a few milliseconds."""
    topology = describe_topology(root)
    # The word in brackets of "always [madvise] never".
    text = read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    huge_pages = text.partition("[")[2].partition("]")[0]
    return HostState(
        host=describe_host(root, compiler_features),
        topology=topology,
        frequency=read_frequency(root, topology.cores),
        nodes=read_nodes(root),
        available_bytes=available_memory_bytes(root),
        memory_bytes=total_memory_bytes(root),
        memory_limit_bytes=control_group(root).memory_limit_bytes(),
        huge_pages=huge_pages if huge_pages in ("always", "madvise", "never") else "",
    )


def host_conditions(host_state: HostState) -> list[str]:
    """CPUs in use and why, their limits, and what the system does not tell."""
    limit = host_state.memory_limit_bytes
    memory = [f"the container may use {format_capacity(limit)} of memory"] if limit else []
    return [
        *core_conditions(host_state.topology),
        *unknown_conditions(host_state.host, host_state.topology),
        *frequency_conditions(host_state.frequency),
        *memory,
    ]


def core_conditions(topology: Topology) -> list[str]:
    """Which of the host's CPUs are used, and why not the others; empty: all are."""
    found: list[str] = []
    allowed, online = len(topology.allowed_cpus), topology.online_cpus
    if online is not None and 0 < allowed < online:
        found.append(f"affinity: this process may use {allowed} of the host's {online} CPUs")
    if topology.hidden_siblings:
        siblings = _counted(topology.hidden_siblings, "SMT sibling")
        found.append(f"one thread per physical core: {siblings} left out")
    used = next((kind for kind in topology.kinds if kind.cores), None)
    if used is not None:
        place = topology.kinds.index(used)
        found += [
            f"only {used.name} cores may be used (affinity): the host's {faster.name} cores are"
            " faster"
            for faster in topology.kinds[:place]
        ]
        found += [
            f"{_counted(len(slower.cores), f'{slower.name} core')} left out: bursts start and end"
            f" together, so one slower core would set the pace of all {used.name} cores"
            for slower in topology.kinds[place + 1 :]
            if slower.cores
        ]
    if topology.quota_cpus is not None:
        said = f"the container may use {topology.quota_cpus:g} CPUs' worth of time"
        if topology.quota_cpus < topology.available_cpus:
            said += (
                ", less than one thread takes: it is stopped for the rest of each scheduler"
                " period, and what it sustains over seconds is lower than the bursts say"
            )
        found.append(said)
    return found


def _counted(count: int, what: str) -> str:
    return f"{counted(count, what)} {'is' if count == 1 else 'are'}"


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
