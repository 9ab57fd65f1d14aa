"""How this host will be measured and why, in plain words; what it says is read, never assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roofline.core.units import format_capacity, format_si
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.measuring.estimation import BURST_S, BUSY, PEAK_QUANTILE
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
    """Kernels of this host, by the names that tables use.

    ``lacking`` are units that this CPU does not have, each with the instruction sets it lacks;
    ``refused`` those that should run and do not, each with the reason. ``used_sets`` are the
    instruction sets that some kernel uses.
    """

    measured: tuple[str, ...]
    lacking: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    used_sets: frozenset[str] = frozenset()


def explain(
    host_state: HostState,
    kernels: KernelPlan,
    *,
    threads: int,
    array_bytes: int | None,
    profile_file: Path,
    last: HardwareProfile | None = None,
) -> tuple[Section, ...]:
    """How this host will be measured, in words.

    ``array_bytes`` are those of all threads together in DRAM (None: it cannot be measured);
    ``last`` is the profile in ``profile_file``.
    """
    hidden = (_OF_GUESTS,) if host_state.frequency.hypervisor else ()
    sections = {
        "Cores": _cores(host_state, threads),
        "Instruction sets": _sets(host_state, kernels),
        "Timing": _TIMING,
        "Clock": _clock(host_state.frequency),
        "Caches": _caches(host_state.topology),
        "Memory": _memory(host_state, array_bytes),
        "What is counted": _COUNTED,
        "What cannot be known here": (*_UNKNOWABLE, *hidden),
        "The profile": _profile(profile_file, last),
    }
    return tuple(Section(title=title, lines=lines) for title, lines in sections.items())


def _cores(host_state: HostState, threads: int) -> tuple[str, ...]:
    host, topology = host_state.host, host_state.topology
    lines = [f"{host.cpu_model}, {host.architecture}; {host.operating_system}."]
    every = f"1 thread and on {threads} threads" if threads > 1 else "1 thread"
    if topology.allowed_cpus:
        cpus = ", ".join(map(str, topology.cores[:threads]))
        lines.append(f"Every kernel runs on {every}, pinned to CPU {cpus}.")
    else:
        lines.append(f"Every kernel runs on {every}; threads cannot be pinned on this system.")
    lines += [_sentence(each) for each in core_conditions(topology)]
    lines += [_sentence(each) for each in unknown_conditions(host, topology)]
    return tuple(lines)


def _sets(host_state: HostState, kernels: KernelPlan) -> tuple[str, ...]:
    lines: list[str] = []
    if kernels.measured:
        lines.append(f"Measured: {', '.join(kernels.measured)}.")
    else:
        lines.append("No kernel of ours can run here: only what torch reaches is measured.")
    lines += [f"Left out: {name}: {_sentence(why)}" for name, why in kernels.refused.items()]
    lines += [
        f"No {name}: the CPU lacks {missing}, or the operating system did not enable it."
        for name, missing in kernels.lacking.items()
    ]
    unused = [each for each in host_state.host.instruction_sets if each not in kernels.used_sets]
    if unused:
        lines.append(f"Present, and no kernel of ours is made of them: {', '.join(unused)}.")
    return tuple(lines)


_TIMING = (
    f"Kernels run in bursts of {BURST_S * 1e3:g} ms, timed inside the compiled code, all threads of"
    " a burst starting together; rounds over all kernels let what changes hit all alike.",
    "Each thread's CPU time is taken beside the wall time: a burst in which a thread had its CPU"
    f" for less than {BUSY * 100:.0f} % of the time is left out, so that competitors do not lower a"
    " ceiling; how many there were is said.",
    f"Peak is the {PEAK_QUANTILE * 100:.0f}th percentile of the burst rates and enters bounds;"
    " sustained is their median and enters predictions.",
    "Two forms of every kernel are measured, and the faster one counts; where the other falls short"
    " by more than 3 %, the ceiling is marked doubtful (with --quick there is one form).",
    "The machine code of every kernel is read before it runs: so many of the wanted instructions in"
    " the loop, and nothing spilled to memory. Data are finite, normal numbers.",
)

_COUNTED = (
    "FLOP: a fused multiply-add is two. Bytes: those that loads and stores name.",
    "A plain store to a line that is not in the cache makes the CPU read the line first"
    " (write-allocate); that traffic is not counted, as in STREAM, and each figure says so.",
    "Stores past the caches (non-temporal) are measured besides: what they store goes to memory,"
    " whichever level the loads come from.",
)


def _clock(frequency: Frequency) -> tuple[str, ...]:
    lines: list[str] = []
    if frequency.hypervisor:
        lines.append(
            "This is a virtual machine: its host governs the clock and may show another one."
        )
    if frequency.governors:
        driver = f" ({frequency.driver})" if frequency.driver else ""
        lines.append(f"Governor: {', '.join(frequency.governors)}{driver}.")
    if frequency.most_hz is not None:
        lines.append(f"The system says up to {format_si(frequency.most_hz, 'Hz')}.")
    else:
        lines.append("The system does not say how fast the clock can be.")
    lines += [_sentence(each) for each in frequency_conditions(frequency)]
    lines.append("The clock under load is measured: by a chain of additions of one cycle each.")
    return tuple(lines)


def _caches(topology: Topology) -> tuple[str, ...]:
    if not topology.caches:
        return ("The system reports none; they are looked for by measuring.",)
    levels = sorted({cache.level for cache in topology.caches})
    shown: list[str] = []
    for level in levels:
        cache = topology.cache(level)
        if cache is not None:
            shared = f", shared by {len(cache.cpus)} CPUs" if len(cache.cpus) > 1 else ""
            shown.append(f"L{level} {format_capacity(cache.size_bytes)}{shared}")
    return (
        f"Reported: {'; '.join(shown)}.",
        "Reported sizes can be wrong in virtual machines: they are found from the curve of the"
        " latency over the working set, and both are said where they differ.",
    )


_HUGE_PAGES = {
    "always": "Memory gets huge pages (always).",
    "madvise": "Memory gets huge pages where it is asked for, as it is here (madvise).",
    "never": "Memory gets small pages only (never); they can lower the bandwidth of L2 and beyond.",
    "": "Whether memory gets huge pages is not told here.",
}


def _memory(host_state: HostState, array_bytes: int | None) -> tuple[str, ...]:
    limit = host_state.memory_limit_bytes
    within = f", of the {format_capacity(limit)} that the container may use" if limit else ""
    lines = [f"Available: {format_capacity(host_state.available_bytes)}{within}."]
    if array_bytes is None:
        lines.append("That is too little to measure DRAM.")
    else:
        lines.append(
            f"DRAM is measured over {format_capacity(array_bytes)}, written before it is read, each"
            " part by the thread that uses it."
        )
    lines.append(_HUGE_PAGES[host_state.huge_pages])
    nodes = host_state.nodes
    if len(nodes) < 2:
        near = "All memory is equally near (one NUMA node)."
        return *lines, near if nodes else "NUMA is not told here."
    shown = ", ".join(f"node {n.number} ({format_capacity(n.memory_bytes)})" for n in nodes)
    numa = (
        f"NUMA: {shown}; ceilings use the memory of all nodes that have a thread, and the ways from"
        " node to node are measured besides."
    )
    return *lines, numa


_UNKNOWABLE = (
    "Hardware counters are not used: virtual machines and containers mostly hide them, so FLOP,"
    " traffic and clock come from kernels whose work is known.",
    "Other tenants of the host share its memory, its last cache and its power; they show only as"
    " spread and phases.",
)
_OF_GUESTS = "Whether two CPUs of a virtual machine share a core is what its host tells."


def _profile(file: Path, last: HardwareProfile | None) -> tuple[str, ...]:
    if last is None:
        return (f"It is kept in {file}; there is none yet.",)
    day = f"is of {last.date}" if last.date else "says no date"
    lines = [f"It is kept in {file}; the last one {day}, {describe_threads(last, last.threads)}."]
    if last.conditions:
        lines += [f"It noticed: {_sentence(each)}" for each in last.conditions]
    else:
        lines.append("It noticed nothing that disturbed it.")
    return tuple(lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
