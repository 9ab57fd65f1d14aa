"""Description of the measurement on this host, from its reported properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roofline.core.units import format_capacity, format_si
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.measuring.estimation import BURST_S, BUSY, PEAK_QUANTILE
from roofline.machine.roof import kernel_lines
from roofline.machine.system.host_state import (
    Frequency,
    HostState,
    core_conditions,
    frequency_conditions,
    unknown_conditions,
)
from roofline.machine.system.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPlan:
    """Kernels of this host, by their names in tables.

    ``lacking``: units that the CPU lacks, with the missing instruction sets. ``refused``: units
    that cannot run, with the reason. ``used_sets``: instruction sets with a kernel. ``names``: of
    the kernels.
    """

    measured: tuple[str, ...]
    lacking: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    used_sets: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()


def explain(
    host_state: HostState,
    kernels: KernelPlan,
    *,
    threads: int,
    array_bytes: int | None,
    profile_file: Path,
    last: HardwareProfile | None = None,
) -> tuple[Section, ...]:
    """Return a description of the measurement on this host.

    ``array_bytes``: DRAM arrays of all threads (None: too little memory). ``last``: the profile in
    ``profile_file``.
    """
    hidden = (_OF_GUESTS,) if host_state.frequency.hypervisor else ()
    sections = {
        "Cores": _cores(host_state, threads),
        "Instruction sets": _sets(host_state, kernels),
        "Kernels": tuple(f"{line}." for line in kernel_lines(kernels.names)),
        "Timing": _TIMING,
        "Clock": _clock(host_state.frequency),
        "Caches": _caches(host_state.topology),
        "Memory": _memory(host_state, array_bytes),
        "Counting": _COUNTED,
        "Limits": (*_UNKNOWABLE, *hidden),
        "Profile": _profile(profile_file, last),
    }
    return tuple(Section(title=title, lines=lines) for title, lines in sections.items())


def _cores(host_state: HostState, threads: int) -> tuple[str, ...]:
    host, topology = host_state.host, host_state.topology
    lines = [f"{host.cpu_model}, {host.architecture}; {host.operating_system}."]
    counts = f"1 and on {threads} threads" if threads > 1 else "1 thread"
    if topology.allowed_cpus:
        cpus = ", ".join(map(str, topology.cores[:threads]))
        lines.append(f"Every kernel runs on {counts}, pinned to CPU {cpus}.")
    else:
        lines.append(f"Every kernel runs on {counts}; this system does not pin threads.")
    lines += [_sentence(each) for each in core_conditions(topology)]
    lines += [_sentence(each) for each in unknown_conditions(host, topology)]
    return tuple(lines)


def _sets(host_state: HostState, kernels: KernelPlan) -> tuple[str, ...]:
    lines: list[str] = []
    if kernels.measured:
        lines.append(f"Measured: {', '.join(kernels.measured)}.")
    else:
        lines.append("No own kernel can run here; only library ceilings (torch) are measured.")
    lines += [f"Not measured: {name}: {_sentence(why)}" for name, why in kernels.refused.items()]
    lines += [
        f"No {name}: {missing} missing in the CPU, or not enabled by the operating system."
        for name, missing in kernels.lacking.items()
    ]
    unused = [each for each in host_state.host.instruction_sets if each not in kernels.used_sets]
    if unused:
        lines.append(f"Instruction sets without a kernel: {', '.join(unused)}.")
    return tuple(lines)


_TIMING = (
    f"Kernels run in bursts of {BURST_S * 1e3:g} ms, timed inside the compiled code. All threads"
    " start together; kernels are interleaved, so that drift affects all of them.",
    f"Bursts in which a thread had its CPU for less than {BUSY * 100:.0f} % of the time are"
    " discarded and counted, so that other processes do not lower a ceiling.",
    f"Peak is the {PEAK_QUANTILE * 100:.0f}th percentile of burst rates, used for minimum times;"
    " sustained is their median, used for predictions.",
    "Every kernel is measured in two variants, of which the faster counts. If the other is more"
    " than 3 % slower, the ceiling is marked unreliable (--quick: one variant).",
    "The machine code of every kernel is checked before it runs: expected instructions in the loop,"
    " no register spills. Data are finite, normal numbers.",
)

_COUNTED = (
    "FLOP: an FMA is two. Bytes: those of loads and stores.",
    "A store to a line outside the cache first reads the line (write-allocate). As in STREAM, that"
    " traffic is not counted; tables mark such figures.",
    "Non-temporal stores are measured too: they go to memory, whichever level loads come from.",
)


def _clock(frequency: Frequency) -> tuple[str, ...]:
    lines: list[str] = []
    if frequency.hypervisor:
        lines.append("Virtual machine: the host controls the clock and may report a different one.")
    if frequency.governors:
        driver = f" ({frequency.driver})" if frequency.driver else ""
        lines.append(f"Governor: {', '.join(frequency.governors)}{driver}.")
    if frequency.most_hz is not None:
        lines.append(f"Reported maximum: {format_si(frequency.most_hz, 'Hz')}.")
    else:
        lines.append("Reported maximum: unknown.")
    lines += [_sentence(each) for each in frequency_conditions(frequency)]
    lines.append("The clock under load is measured by dependent additions of one cycle each.")
    return tuple(lines)


def _caches(topology: Topology) -> tuple[str, ...]:
    if not topology.caches:
        return ("None reported; found by measurement.",)
    levels = sorted({cache.level for cache in topology.caches})
    shown: list[str] = []
    for level in levels:
        cache = topology.cache(level)
        if cache is not None:
            shared = f", shared by {len(cache.cpus)} CPUs" if len(cache.cpus) > 1 else ""
            shown.append(f"L{level} {format_capacity(cache.size_bytes)}{shared}")
    return (
        f"Reported: {'; '.join(shown)}.",
        "Reported sizes can be wrong in virtual machines. They are checked against the latency"
        " curve over the working set, and differences are reported.",
    )


_HUGE_PAGES = {
    "always": "Huge pages: always.",
    "madvise": "Huge pages: on request (madvise), as used here.",
    "never": "Huge pages: never; small pages can lower the bandwidth of L2 and beyond.",
    "": "Huge pages: unknown.",
}


def _memory(host_state: HostState, array_bytes: int | None) -> tuple[str, ...]:
    limit = host_state.memory_limit_bytes
    within = f" of the container's limit of {format_capacity(limit)}" if limit else ""
    lines = [f"Available: {format_capacity(host_state.available_bytes)}{within}."]
    if array_bytes is None:
        lines.append("Too little memory to measure DRAM.")
    else:
        lines.append(
            f"DRAM working set: {format_capacity(array_bytes)}, initialized by the threads that use"
            " it."
        )
    lines.append(_HUGE_PAGES[host_state.huge_pages])
    nodes = host_state.nodes
    if len(nodes) < 2:
        return *lines, "NUMA: one node." if nodes else "NUMA: unknown."
    shown = ", ".join(f"node {n.number} ({format_capacity(n.memory_bytes)})" for n in nodes)
    numa = (
        f"NUMA: {shown}. Ceilings use the memory of all nodes with a thread; links between nodes"
        " are measured too."
    )
    return *lines, numa


_UNKNOWABLE = (
    "Hardware counters are not used, because virtual machines and containers mostly hide them."
    " FLOP, traffic and clock come from kernels with known work.",
    "Other guests share memory, last-level cache and power; they are visible only as spread.",
)
_OF_GUESTS = "Only the host knows if two CPUs of a virtual machine share a core."


def _profile(file: Path, last: HardwareProfile | None) -> tuple[str, ...]:
    if last is None:
        return (f"Stored in {file}; none yet.",)
    day = last.date or "unknown date"
    lines = [f"Stored in {file}; last: {day}, {describe_threads(last, last.threads)}."]
    if last.conditions:
        lines += [f"Its conditions: {_sentence(each)}" for each in last.conditions]
    else:
        lines.append("No disturbance was recorded.")
    return tuple(lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
