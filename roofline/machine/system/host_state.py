"""State of the host before measuring: hardware, limits, clock settings, and warnings about them."""

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
"""Drivers whose default governor 'powersave' reaches every clock."""

_SLOW_GOVERNORS = ("powersave", "userspace")
_LATE_GOVERNORS = ("ondemand", "conservative", "schedutil")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequency:
    """Clock settings of some cores; fields are empty or None if unknown.

    ``limit_hz`` is the highest permitted clock, ``most_hz`` the highest of the hardware, both of
    the fastest core; ``boost``: clocks above the base are permitted.
    """

    governors: tuple[str, ...]
    driver: str
    limit_hz: float | None
    most_hz: float | None
    boost: bool | None
    hypervisor: bool


def read_frequency(root: Path, cpus: tuple[int, ...]) -> Frequency:
    """Return the clock settings of `cpus` from ``/proc`` and ``/sys`` under `root`."""
    folder = root / "sys/devices/system/cpu"
    scaling = [folder / f"cpu{cpu}/cpufreq" for cpu in cpus]
    governors = {read(each / "scaling_governor") for each in scaling}

    def most_hz(name: str) -> float | None:
        kilohertz = [whole_number(read(each / name)) for each in scaling]
        return max((each * 1e3 for each in kilohertz if each), default=None)

    off, on = read(folder / "intel_pstate/no_turbo"), read(folder / "cpufreq/boost")
    turbo = {"0": True, "1": False}.get(off)
    flags = table(read(root / "proc/cpuinfo")).get("flags", "").split()
    return Frequency(
        governors=tuple(sorted(name for name in governors if name.isidentifier())),
        driver=read(scaling[0] / "scaling_driver") if scaling else "",
        limit_hz=most_hz("scaling_max_freq"),
        most_hz=most_hz("cpuinfo_max_freq"),
        boost={"0": False, "1": True}.get(on) if turbo is None else turbo,
        hypervisor="hypervisor" in flags or bool(read(root / "sys/hypervisor/type")),
    )


def frequency_conditions(frequency: Frequency) -> list[str]:
    """Return warnings about settings that limit the clock."""
    found: list[str] = []
    autonomous = frequency.driver in _AUTONOMOUS_DRIVERS
    for governor in frequency.governors:
        if governor in _SLOW_GOVERNORS and not autonomous:
            found.append(
                f"governor: '{governor}' limits the clock; set 'performance'"
                " (`cpupower frequency-set -g performance`)"
            )
        elif governor in _LATE_GOVERNORS:
            found.append(
                f"governor: '{governor}' raises the clock with a delay; first bursts may be slow"
            )
    if frequency.boost is False:
        found.append("boost is off: ceilings are those of the base clock")
    limit, most = frequency.limit_hz, frequency.most_hz
    if limit is not None and most is not None and limit < most:
        found.append(
            f"clock limited to {format_si(limit, 'Hz')} by scaling_max_freq; the CPU's maximum is"
            f" {format_si(most, 'Hz')}"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """This host as the system reports it.

    ``memory_limit_bytes`` is the container's (None: no limit); ``huge_pages`` is ``always``,
    ``madvise``, ``never``, or ``""`` if unknown.
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
    """Return the state of this host, in a few milliseconds; `root` stands for ``/``."""
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
    """Return notes on CPUs in use, limits and unknown properties."""
    limit = host_state.memory_limit_bytes
    memory = [f"memory limit of the container: {format_capacity(limit)}"] if limit else []
    return [
        *core_conditions(host_state.topology),
        *unknown_conditions(host_state.host, host_state.topology),
        *frequency_conditions(host_state.frequency),
        *memory,
    ]


def core_conditions(topology: Topology) -> list[str]:
    """Return the reasons why CPUs of the host are not used."""
    found: list[str] = []
    allowed, online = len(topology.allowed_cpus), topology.online_cpus
    if online is not None and 0 < allowed < online:
        found.append(f"affinity: this process may use {allowed} of {online} CPUs")
    if topology.hidden_siblings:
        siblings = _counted(topology.hidden_siblings, "SMT sibling")
        found.append(f"one thread per physical core: {siblings} not used")
    used = next((kind for kind in topology.kinds if kind.cores), None)
    if used is not None:
        place = topology.kinds.index(used)
        found += [
            f"affinity: only {used.name} cores may be used, not the faster {faster.name} cores"
            for faster in topology.kinds[:place]
        ]
        found += [
            f"{_counted(len(slower.cores), f'{slower.name} core')} not used: the slowest core would"
            " determine the time of every burst"
            for slower in topology.kinds[place + 1 :]
            if slower.cores
        ]
    if topology.quota_cpus is not None:
        quota = f"CPU quota of the container: {topology.quota_cpus:g} CPUs"
        if topology.quota_cpus < topology.available_cpus:
            quota += ", less than one thread uses; sustained rates over seconds are lower"
        found.append(quota)
    return found


def _counted(count: int, what: str) -> str:
    return f"{counted(count, what)} {'is' if count == 1 else 'are'}"


def unknown_conditions(host: Host, topology: Topology) -> list[str]:
    """Return notes on unreported CPU properties and their effect."""
    found: list[str] = []
    if host.cpu_model == UNKNOWN_CPU:
        found.append("unknown CPU model")
    least = baseline(host.architecture)
    if not host.instruction_sets:
        found.append(f"instruction sets unknown on {host.architecture}: no own kernels")
    elif host.instruction_sets == least:
        found.append(
            f"instruction sets not reported: only the {host.architecture} baseline"
            f" ({', '.join(least)}) is used; ceilings may be higher"
        )
    if not topology.caches:
        found.append("cache sizes not reported")
    if topology.online_cpus is None:
        found.append(
            "CPU topology not reported: SMT siblings and slower cores may be used like full cores"
        )
    return found
