"""Measures this host: compute and stream kernels in rounds, torch's own ceilings, a profile.

Method: bursts of 0.4 ms timed inside the compiled code, all threads of a burst starting together,
interleaved over all kernels until the time budget is used. A burst during which a thread lost its
CPU is left out. Peak is the 95th percentile of the burst rates, sustained their median.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from roofline.errors import HardwareError, InputError, MeasurementError
from roofline.machine import buffers as memory
from roofline.machine.activity import disturbances, read_activity
from roofline.machine.ceilings import (
    compute_ceiling,
    kernel_conditions,
    memory_levels,
    page_conditions,
)
from roofline.machine.crew import Crew
from roofline.machine.estimation import Burst, estimate
from roofline.machine.hardware import ComputeCeiling, HardwareProfile, Host, MemoryLevel
from roofline.machine.host import available_memory_byte, describe_host
from roofline.machine.kernels import compiler
from roofline.machine.kernels.compute import compute_kernels
from roofline.machine.kernels.stream import stream_kernels
from roofline.machine.kernels.units import stream_unit
from roofline.machine.schedule import Progress, bursts_per_call, interleave
from roofline.machine.topology import Topology, describe_topology
from roofline.machine.trials import Trial, compute_trial, stream_trial
from roofline.machine.working_sets import DRAM, WorkingSet, cache_working_sets, memory_working_set

Clock = Callable[[], float]

LIBRARY_BUDGET_S = 2.0
_LIBRARY_SHARE = 0.25
"""Of a budget too small for the library's two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    """What one part of the measurement found."""

    compute: tuple[ComputeCeiling, ...] = ()
    memory: tuple[MemoryLevel, ...] = ()
    overheads: dict[str, float] = field(default_factory=dict[str, float])
    conditions: tuple[str, ...] = ()


def measure_hardware(
    *,
    budget_s: float = 10.0,
    threads: int | None = None,
    progress: Progress | None = None,
    include_library: bool = True,
    clock: Clock = time.perf_counter,
) -> HardwareProfile:
    """Measures what this host can do; takes about `budget_s` seconds.

    Args:
        budget_s: seconds for all timing together; torch's own import comes on top.
        threads: what "all threads" shall mean; by default one per physical core that this process
            may use. One thread is measured besides.
        progress: called with the fraction done, 0 to 1, and what is measured next.
        include_library: whether to measure what torch reaches as well.
        clock: seconds, for the budget only; kernels are timed inside the compiled code.

    Raises:
        InputError: a budget that is not positive.
        HardwareError: more threads than this process may use.
        MeasurementError: too little memory, a kernel that cannot be compiled as declared, or
            nothing that could be measured.
    """
    report = progress or _silent
    host = describe_host()
    topology = describe_topology()
    count = topology.available_cpus if threads is None else threads
    if not 1 <= count <= topology.available_cpus:
        raise HardwareError(
            f"--threads {count} does not fit this host: choose 1 to {topology.available_cpus}"
        )
    if budget_s <= 0:
        raise InputError(f"the time budget must be greater than 0 s, got {budget_s:g} s")
    begin, before = clock(), read_activity()
    library_s = min(LIBRARY_BUDGET_S, _LIBRARY_SHARE * budget_s) if include_library else 0.0
    share = 1 - library_s / budget_s
    obstacle = _obstacle()
    if obstacle:
        hardware = _Findings(conditions=(obstacle,))
    else:
        hardware = _measure_kernels(
            host=host,
            topology=topology,
            threads=count,
            deadline=begin + budget_s - library_s,
            clock=clock,
            report=lambda done, what: report(done * share, what),
        )
    library = _Findings()
    if include_library:
        report(share, "importing torch")
        library = _measure_library(
            count, library_s, clock, lambda done, what: report(share + (1 - share) * done, what)
        )
    report(1.0, "done")
    if not hardware.compute and not hardware.memory and not library.compute:
        raise MeasurementError("; ".join(("nothing could be measured", *hardware.conditions)))
    noticed = disturbances(before, read_activity(), elapsed_s=clock() - begin, cpus=count)
    return HardwareProfile(
        name=profile_name(host),
        device="cpu",
        threads=count,
        description=f"{host.cpu_model}, {host.architecture}",
        host=host,
        compute=(*hardware.compute, *library.compute),
        memory=hardware.memory,
        overheads=library.overheads,
        conditions=(
            *_circumstances(topology),
            *noticed,
            *hardware.conditions,
            *library.conditions,
        ),
    )


def profile_name(host: Host) -> str:
    """A short name for a host's profile: ``"amd-epyc-7763-8cpu"``."""
    plain = re.sub(
        r"\((?:r|tm|c)\)|@.*|\b(?:cpu|processor|\d+-core)\b", " ", host.cpu_model.lower()
    )
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return f"{slug or host.architecture}-{host.available_cpus}cpu"


def _silent(done: float, what: str) -> None:
    pass


def _obstacle() -> str:
    """Why own kernels cannot run here; ``""`` if they can."""
    reason = ""
    if sys.platform not in ("linux", "darwin"):
        reason = f"own kernels run on Linux and macOS, not on {sys.platform}"
    elif not compiler.is_available():
        reason = "llvmlite cannot be loaded (`pip install llvmlite`)"
    return f"no hardware ceilings, only those of the library: {reason}" if reason else ""


def _circumstances(topology: Topology) -> list[str]:
    found: list[str] = []
    if topology.hidden_siblings:
        found.append(
            f"one thread per physical core: {topology.hidden_siblings} SMT siblings are left out"
        )
    if topology.quota_cpus is not None:
        found.append(f"the container may use {topology.quota_cpus:g} CPUs' worth of time")
    return found


def _measure_library(threads: int, budget_s: float, clock: Clock, report: Progress) -> _Findings:
    try:
        from roofline.machine import library
    except (ImportError, OSError) as error:
        return _Findings(conditions=(f"no library ceilings: torch cannot be imported ({error})",))
    found = library.measure_library(
        threads=threads, budget_s=budget_s, clock=clock, progress=report
    )
    return _Findings(compute=found.compute, overheads=found.overheads)


def _measure_kernels(
    *,
    host: Host,
    topology: Topology,
    threads: int,
    deadline: float,
    clock: Clock,
    report: Progress,
) -> _Findings:
    teams = (1, threads) if threads > 1 else (1,)
    unit = stream_unit(host.architecture, host.instruction_sets)
    sets = _working_sets(topology, teams) if unit else []
    with Crew(threads, topology.cores) as crew:
        report(0.0, "allocating memory")
        buffers = [memory.allocate(byte) for byte in _buffer_byte(sets, threads)]
        crew.each(lambda i: memory.fill(buffers[i], lambda: crew.stopped))
        huge = memory.huge_page_byte()
        trials: list[Trial] = []
        for kernel in compute_kernels(host.architecture, host.instruction_sets):
            report(0.0, f"compiling {kernel.label}")
            compiled = compiler.compile_kernel(kernel)
            trials += [compute_trial(compiled, kernel, team) for team in teams]
        for kernel in stream_kernels(unit, non_temporal=True) if unit else ():
            report(0.0, f"compiling {kernel.label}")
            compiled = compiler.compile_kernel(kernel)
            trials += [
                stream_trial(compiled, kernel, each, buffers)
                for each in sets
                if each.level == DRAM or not kernel.non_temporal
            ]
        for trial in trials:
            report(0.0, f"sizing {trial.label}")
            trial.calibrate(crew)
        budget_s = deadline - clock()

        def run(trial: Trial) -> list[Burst]:
            bursts = bursts_per_call(budget_s, len(trials), trial.burst_s)
            return trial.run(crew, min(bursts, trial.most_bursts or bursts))

        bursts = interleave(
            trials,
            run,
            deadline=deadline,
            clock=clock,
            progress=lambda done, trial: report(done, trial.label),
        )
        pinned = crew.pinned
    rates = [
        estimate(trial.work_per_burst, each) for trial, each in zip(trials, bursts, strict=True)
    ]
    found = list(zip(trials, rates, strict=True))
    return _Findings(
        compute=tuple(
            compute_ceiling(trial, rate) for trial, rate in found if not trial.working_set
        ),
        memory=tuple(memory_levels(found)),
        conditions=(
            *([] if pinned else ["threads could not be pinned to cores"]),
            *([] if unit else [f"no stream kernels for {host.architecture} without vector units"]),
            *([] if topology.caches else ["cache sizes are unknown: only DRAM was measured"]),
            *page_conditions(sum(buffer.size for buffer in buffers), huge),
            *kernel_conditions(found),
        ),
    )


def _working_sets(topology: Topology, teams: Sequence[int]) -> list[WorkingSet]:
    free = available_memory_byte()
    return [
        each
        for team in teams
        for each in (
            *cache_working_sets(topology, team),
            memory_working_set(topology, team, free),
        )
    ]


def _buffer_byte(sets: Sequence[WorkingSet], threads: int) -> list[int]:
    """Bytes of each worker's buffer: room for the largest working set that it takes part in."""
    return [
        memory.extent_byte(max((s.byte_per_thread for s in sets if i < s.threads), default=0), 3)
        for i in range(threads)
    ]
