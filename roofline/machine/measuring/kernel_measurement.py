"""Measurement with own kernels: ceilings, memory levels and page-fault costs."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofline.core.progress import Progress
from roofline.core.units import format_bytes, format_si
from roofline.errors import MeasurementError
from roofline.machine.hardware import (
    HUGE_PAGE_FAULT,
    PAGE_FAULT,
    Clock,
    MemoryLevel,
    Overhead,
    Provenance,
)
from roofline.machine.hierarchy import working_sets
from roofline.machine.hierarchy.exploration import explore
from roofline.machine.hierarchy.working_sets import DRAM, WorkingSet
from roofline.machine.kernels import compiler, pointer_chase
from roofline.machine.kernels.assembly import stream_unit, sve_vector_bits
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.compute import compute_kernels
from roofline.machine.kernels.stream import stream_kernels
from roofline.machine.measuring import ceilings, selection
from roofline.machine.measuring.core_state_reader import CoreToCoreTimer, clock_trial
from roofline.machine.measuring.estimation import (
    Estimate,
    Finding,
    MeasuredFigures,
    TimeBudget,
    duration,
    provenance,
)
from roofline.machine.measuring.pinned_threads import (
    HUGE_BYTE,
    Array,
    PinnedThreads,
    allocate,
    extent_bytes,
    fill,
    huge_page_bytes,
)
from roofline.machine.measuring.rounds import (
    Candidate,
    Rounds,
    Runner,
    drift_conditions,
    run_continuously,
    run_rounds,
)
from roofline.machine.measuring.trials import Trial
from roofline.machine.numa import measure_node_links
from roofline.machine.system.activity import minor_faults
from roofline.machine.system.host import theoretical_memory
from roofline.machine.system.host_state import HostState
from roofline.machine.theory.microarchitectures import identify_core

_STREAMS = 3  # arrays of a stream kernel, at most

_LINKS_SHARE = 0.2
"""Share of the remaining time for links between nodes; unused on a single node."""

_APART = 0.03  # reported difference between measured and reported clock


def measure_kernels(
    host_state: HostState,
    teams: Sequence[int],
    program: TimeBudget,
    *,
    deadline: float,
    clock: Callable[[], float],
    report: Progress,
    found: Callable[[Finding], None],
    before_timing: Callable[[], object],
) -> MeasuredFigures:
    """Compile all kernels that this host can run, and measure their ceilings.

    ``teams`` are numbers of threads, the largest last. Rounds end at ``deadline`` by ``clock``;
    ``before_timing`` is called after compilation.
    """

    def say(what: str) -> None:
        report(0.0, what)

    host, topology = host_state.host, host_state.topology
    unit = stream_unit(host.architecture, host.instruction_sets)
    compute, obstacles = selection.compile_variants(
        compute_kernels(
            host.architecture,
            (*host.instruction_sets, *compiler.unlisted_instruction_sets()),
            sve_bits=sve_vector_bits(),
        ),
        program.second_variants,
        say,
    )
    streams, more = selection.compile_variants(
        stream_kernels(unit) if unit else (), program.second_variants, say
    )
    obstacles += more
    plain = _plain_kernels(host.architecture, obstacles)
    read = next((forms[0] for forms in streams if forms[0].kernel.label.startswith("read ")), None)
    before_timing()
    with PinnedThreads(teams[-1], topology.cores) as workers:
        explored = explore(
            workers,
            plain.get("pointer chase"),
            read,
            topology,
            teams,
            largest_bytes=working_sets.first_curve_bytes(topology, host_state.available_bytes),
            max_bytes=working_sets.max_curve_bytes(host_state.available_bytes),
            budget_s=program.curve_s,
            clock=clock,
            report=report,
        )
        sets, scarcity = working_sets.plan_working_sets(
            explored.hierarchy.levels, topology, teams, host_state.available_bytes
        )
        links_until = clock() + _LINKS_SHARE * (deadline - clock())
        links = measure_node_links(
            host_state, read, explored.hierarchy, in_time=lambda: clock() < links_until
        )
        say("allocating memory")
        memory = _memory(workers, sets)
        pages = ceilings.page_conditions(sum(each.size for each in memory), huge_page_bytes(memory))
        candidates = [
            *selection.compute_candidates(compute, teams),
            *selection.stream_candidates(
                streams, sets, memory, {DRAM: "; ".join(scarcity)} if scarcity else {}
            ),
        ]
        if "clock" in plain:
            candidates.insert(0, Candidate(trials=(clock_trial(plain["clock"]),), kind="clock"))
        selection.calibrate(candidates, workers, say)
        timer = (
            CoreToCoreTimer(plain["core-to-core"])
            if "core-to-core" in plain and teams[-1] > 1
            else None
        )
        runner: Runner[Trial] = Runner(
            run=lambda trial, bursts: trial.run(workers, bursts),
            clock=clock,
            report=report,
            found=found,
            core_to_core=(lambda: timer(workers)) if timer else None,
        )
        rounds = run_rounds(candidates, runner, deadline=deadline)
        continuous = Rounds(rates=rounds.rates)
        if program.continuous_s:
            continuous = run_continuously(rounds.rates, runner, continuous_s=program.continuous_s)
        page_faults = page_fault_overheads(workers, teams, clock)
        pinning = workers.pinning
    by_quantity = {
        quantity: [each for each in continuous.rates if each.trial.quantity == quantity]
        for quantity in ("cycle", "flop", "byte")
    }
    core_clock = measured_clock(by_quantity["cycle"][0].rate) if by_quantity["cycle"] else None
    core = identify_core(cpus=topology.cores[: teams[-1]] or (0,))
    theoretical_peaks = ceilings.TheoreticalPeaks(core, core_clock)
    caches = {cache.name: cache for cache in explored.hierarchy.levels}
    capacity_bytes, capacity_provenance = memory_capacity(
        host_state, caches_bytes=max((each.capacity_bytes or 0 for each in sets), default=0)
    )
    memory_latency = explored.hierarchy.memory_latency

    def known(level: MemoryLevel) -> MemoryLevel:
        if cache := caches.get(level.name):
            return replace(level, capacity_provenance=cache.provenance, latency=cache.latency)
        return replace(
            level,
            capacity_bytes=capacity_bytes,
            capacity_provenance=capacity_provenance,
            latency=memory_latency,
        )

    levels = ceilings.memory_levels(by_quantity["byte"], theoretical_peaks, theoretical_memory())
    return MeasuredFigures(
        compute=ceilings.drop_slower_mixes(
            ceilings.mark_slower_teams(
                [ceilings.compute_ceiling(each, theoretical_peaks) for each in by_quantity["flop"]]
            )
        ),
        memory=tuple(map(known, levels)),
        clock=core_clock,
        overheads=(*rounds.overheads, *page_faults),
        links=links.links,
        latency_curve=explored.latency_curve,
        bandwidth_curves=explored.bandwidth_curves,
        sets=tuple(sets),
        series=(*explored.series, *rounds.series, *continuous.series),
        conditions=(
            *([pinning] if pinning else []),
            *([] if streams else [f"no stream kernels for {host.architecture}"]),
            *obstacles,
            *explored.conditions,
            *scarcity,
            *pages,
            *ceilings.kernel_conditions(rounds.rates),
            *rounds.conditions,
            *drift_conditions(
                (trial.place, trial.work_per_burst, bursts) for trial, bursts in rounds.usual_bursts
            ),
            *continuous.conditions,
            *(clock_conditions(core_clock, host_state.frequency.most_hz) if core_clock else ()),
            *links.conditions,
        ),
    )


def _plain_kernels(architecture: str, conditions: list[str]) -> dict[str, CompiledKernel]:
    """Return the kernels that need no instruction set, by label."""
    compiled: dict[str, CompiledKernel] = {}
    if architecture in ("x86_64", "aarch64"):
        for make in (
            pointer_chase.clock_kernel,
            pointer_chase.chase_kernel,
            pointer_chase.core_to_core_kernel,
        ):
            kernel = make(architecture)
            try:
                compiled[kernel.label] = compiler.compile_kernel(kernel)
            except MeasurementError as error:
                conditions.append(f"not measured: {error}")
    return compiled


def _memory(workers: PinnedThreads, sets: Sequence[WorkingSet]) -> list[Array]:
    """Return an initialized buffer for each worker, for its largest working set."""
    largest = (
        max((each.bytes_per_thread for each in sets if worker < each.threads), default=0)
        for worker in range(workers.threads)
    )
    memory = [allocate(extent_bytes(byte, _STREAMS)) for byte in largest]
    workers.each(lambda worker: fill(memory[worker], lambda: workers.stopped))
    return memory


def memory_capacity(
    host_state: HostState, *, caches_bytes: int
) -> tuple[int | None, Provenance | None]:
    """Return the memory size within the container's limit, with its provenance.

    None if unknown, or if the limit is below the largest cache.
    """
    known = {
        "reported by the operating system": host_state.memory_bytes,
        "limit of the container (cgroup)": host_state.memory_limit_bytes,
    }
    sizes = {how: byte for how, byte in known.items() if byte is not None}
    how = min(sizes, key=sizes.__getitem__, default="")
    if not how or sizes[how] < caches_bytes:
        return None, None
    return sizes[how], Provenance(source="datasheet", reference=how, date="")


def measured_clock(rate: Estimate) -> Clock:
    return Clock(
        peak_hz=rate.peak,
        median_hz=rate.sustained,
        provenance=provenance(
            f"{ceilings.METHOD}; chain of {pointer_chase.CHAIN} dependent additions, 1 cycle each",
            f"{rate.note}; one busy core, without vector instructions",
        ),
    )


def clock_conditions(clock: Clock, reported_hz: float | None) -> list[str]:
    """Return a note if the measured clock differs from the reported maximum."""
    if reported_hz is None or abs(clock.peak_hz / reported_hz - 1) <= _APART:
        return []
    way = "above" if clock.peak_hz > reported_hz else "below"
    return [
        f"clock: measured {format_si(clock.peak_hz, 'Hz')} is"
        f" {ceilings.percent(abs(clock.peak_hz / reported_hz - 1))} {way} the reported maximum of"
        f" {format_si(reported_hz, 'Hz')}; theoretical peaks use the measured clock"
    ]


# A region is mapped, written by all threads, written again, and unmapped. The difference per page
# is the cost of a page fault in a pass with fresh memory.

_ROUNDS = 15
_MOST_WRONG = 0.1
"""Tolerance between faults and pages of a region; otherwise pages have another size."""


class _Pages(NamedTuple):
    """A page size; ``advice`` is the `mmap` constant that requests it."""

    name: str
    page_bytes: int
    advice: str
    region_bytes: int


# A region of small pages has the size of a tensor: its threads share page tables, and two are
# hardly faster than one, unlike in 16 MiB.
_KINDS = (
    _Pages(PAGE_FAULT, mmap.PAGESIZE, "MADV_NOHUGEPAGE", 2 * 2**20),
    _Pages(HUGE_PAGE_FAULT, HUGE_BYTE, "MADV_HUGEPAGE", 8 * HUGE_BYTE),
)


def page_fault_overheads(
    workers: PinnedThreads, teams: Sequence[int], clock: Callable[[], float]
) -> tuple[Overhead, ...]:
    """Measure the cost of a page fault in seconds, by page size and team."""
    found: list[Overhead] = []
    for kind in _KINDS:
        for threads in teams:
            rounds = [_fault_s(workers, threads, kind, clock) for _ in range(_ROUNDS)]
            # Negative if another process disturbed the second write.
            times_s = [each for each in rounds if each is not None and each > 0]
            if len(times_s) > _ROUNDS // 2:
                time = duration(
                    times_s,
                    "5th percentile (fast) and median of mapping, writing and unmapping"
                    f" {format_bytes(kind.region_bytes)}, minus writing mapped memory",
                    f"pages of {format_bytes(kind.page_bytes)}, cleared by the system;"
                    f" {len(times_s)} rounds",
                )
                found.append(Overhead(name=kind.name, threads=threads, time=time))
    return tuple(found)


def _fault_s(
    workers: PinnedThreads, threads: int, kind: _Pages, clock: Callable[[], float]
) -> float | None:
    """Return the seconds per page; None if unsupported or faults are not counted."""
    advice = getattr(mmap, kind.advice, None)
    if advice is None:
        return None
    begin_s = clock()
    try:
        # Extra space for alignment to a huge page.
        region = mmap.mmap(
            -1, kind.region_bytes + HUGE_BYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        region.madvise(advice)
    except (OSError, ValueError):
        return None
    address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    address += -address % HUGE_BYTE
    part_bytes = kind.region_bytes // threads

    def write(worker: int) -> int:
        before = minor_faults()
        ctypes.memset(address + worker * part_bytes, 1, part_bytes)
        return minor_faults() - before

    page_faults = sum(workers.each(write, threads))
    written_s = clock()
    workers.each(write, threads)
    again_s = clock()
    region.close()
    end_s = clock()
    pages = threads * part_bytes // kind.page_bytes
    if not abs(page_faults - pages) <= _MOST_WRONG * pages + 1:
        return None
    fresh_s = written_s - begin_s + end_s - again_s
    return (fresh_s - (again_s - written_s)) / pages
