"""Measurement with kernels of our own: ceilings, memory levels and costs of page faults."""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from roofline.errors import MeasurementError
from roofline.foundation.progress import Progress
from roofline.foundation.sampling import Sample, quantile
from roofline.foundation.units import format_bytes, format_si
from roofline.machine.hardware import (
    HUGE_PAGE_FAULT,
    PAGE_FAULT,
    BandwidthCurve,
    Clock,
    ComputeCeiling,
    Duration,
    LatencyCurve,
    Link,
    MemoryLevel,
    Overhead,
    Provenance,
)
from roofline.machine.hierarchy.exploration import Probes, explore
from roofline.machine.hierarchy.working_sets import (
    DRAM,
    WorkingSet,
    largest_curve_bytes,
    most_curve_bytes,
    plan_working_sets,
)
from roofline.machine.kernels import compiler
from roofline.machine.kernels.assembly import stream_unit, sve_vector_bits
from roofline.machine.kernels.chase import (
    CHAIN,
    CLOCK_STATE_BYTE,
    ClockKernel,
    HopKernel,
    chase_kernel,
    hop_kernel,
)
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.compute import compute_kernels
from roofline.machine.kernels.stream import stream_kernels
from roofline.machine.measuring.ceilings import (
    METHOD,
    LevelFacts,
    Reached,
    compute_ceiling,
    kernel_conditions,
    memory_levels,
    page_conditions,
    provenance,
    without_lower_mixes,
)
from roofline.machine.measuring.crew import (
    Array,
    Crew,
    allocate,
    extent_bytes,
    fill,
    huge_page_bytes,
)
from roofline.machine.measuring.estimation import Estimate, Program, Series
from roofline.machine.measuring.proximity import HopTimer
from roofline.machine.measuring.rounds import Found, Rounds, run_rounds, run_stretches
from roofline.machine.measuring.selection import (
    Candidate,
    Forms,
    calibrate,
    compile_forms,
    compute_candidates,
    stream_candidates,
)
from roofline.machine.measuring.trials import Shape, Trial
from roofline.machine.nodes.numa import measure_node_links
from roofline.machine.system.activity import minor_faults
from roofline.machine.system.host import theoretical_memory
from roofline.machine.system.situation import Situation
from roofline.machine.theory.microarchitectures import identify_core

# A region is mapped, written by all threads and unmapped, then written again where it is mapped
# already; the difference, by page, is what one page fault adds to a pass that gets its memory
# fresh.

_HUGE_BYTE = 2 * 2**20
_ROUNDS = 15
_FAST = 0.05
_MOST_WRONG = 0.1
"""Share by which faults may differ from the pages of a region; else pages are of another size."""


@dataclass(frozen=True, slots=True)
class _Pages:
    name: str
    page_bytes: int
    advice: str
    """The constant of `mmap` that asks the system for them."""
    region_bytes: int


# A region of small pages is as large as a tensor of a model: threads that write a part each share
# the tables of its pages, and two of them are hardly faster than one. In 16 MiB they are.
_KINDS = (
    _Pages(PAGE_FAULT, mmap.PAGESIZE, "MADV_NOHUGEPAGE", 2 * 2**20),
    _Pages(HUGE_PAGE_FAULT, _HUGE_BYTE, "MADV_HUGEPAGE", 8 * _HUGE_BYTE),
)


def page_fault_overheads(
    crew: Crew, teams: Sequence[int], clock: Callable[[], float]
) -> tuple[Overhead, ...]:
    """Seconds that a page fault adds, for each kind of page that the system has.

    Args:
        crew: threads that write.
        teams: numbers of them.
        clock: seconds.
    """
    found: list[Overhead] = []
    for kind in _KINDS:
        for threads in teams:
            rounds = [_fault_s(crew, threads, kind, clock) for _ in range(_ROUNDS)]
            # Writing what is mapped already takes longer where another process gets the core.
            times_s = tuple(each for each in rounds if each is not None and each > 0)
            if len(times_s) > _ROUNDS // 2:
                found.append(_overhead(kind, threads, times_s))
    return tuple(found)


def _overhead(kind: _Pages, threads: int, times_s: tuple[float, ...]) -> Overhead:
    sample = Sample(times_s=times_s)
    return Overhead(
        name=kind.name,
        threads=threads,
        time=Duration(
            fast_s=quantile(times_s, _FAST),
            median_s=sample.median_s,
            spread=sample.spread,
            provenance=provenance(
                f"5th percentile (fast) and median of mapping, writing and unmapping"
                f" {format_bytes(kind.region_bytes)}, less writing what is mapped already",
                f"pages of {format_bytes(kind.page_bytes)}, cleared by the system;"
                f" {len(times_s)} rounds",
            ),
        ),
    )


def _fault_s(crew: Crew, threads: int, kind: _Pages, clock: Callable[[], float]) -> float | None:
    """Seconds by page; None: the system has no such pages, or does not count faults."""
    advice = getattr(mmap, kind.advice, None)
    if advice is None:
        return None
    begin_s = clock()
    try:
        # Room to begin at a huge page.
        region = mmap.mmap(
            -1, kind.region_bytes + _HUGE_BYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        region.madvise(advice)
    except (OSError, ValueError):
        return None
    address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    address += -address % _HUGE_BYTE
    part_bytes = kind.region_bytes // threads

    def write(worker: int) -> int:
        before = minor_faults()
        ctypes.memset(address + worker * part_bytes, 1, part_bytes)
        return minor_faults() - before

    page_faults = sum(crew.each(write, threads))
    written_s = clock()
    crew.each(write, threads)
    again_s = clock()
    region.close()
    end_s = clock()
    pages = threads * part_bytes // kind.page_bytes
    if not abs(page_faults - pages) <= _MOST_WRONG * pages + 1:
        return None
    fresh_s = written_s - begin_s + end_s - again_s
    return (fresh_s - (again_s - written_s)) / pages


_MOST_REPEATS = 1 << 40

_APART = 0.03
"""A measured clock further than this from what the system reports is worth a line."""


def clock_trial(compiled: CompiledKernel, kernel: ClockKernel, threads: int = 1) -> Trial:
    """A trial of the clock kernel; its work is cycles, so that its rate is in Hz."""
    states = tuple(np.zeros(CLOCK_STATE_BYTE // 8, dtype=np.uint64) for _ in range(threads))
    for state in states:
        state[:] = 3, 5
    return Trial(
        compiled=compiled,
        threads=threads,
        working_set=None,
        states=states,
        shape=lambda repeats: Shape(1, repeats, 0),
        work=kernel.cycles,
        most_repeats=_MOST_REPEATS,
    )


def measured_clock(rate: Estimate) -> Clock:
    """The clock that the trial of one thread found."""
    left_out = f", {rate.disturbed} disturbed" if rate.disturbed else ""
    return Clock(
        peak_hz=rate.peak,
        median_hz=rate.sustained,
        provenance=provenance(
            f"{METHOD}; chain of {CHAIN} dependent additions of one cycle each",
            f"{rate.bursts} bursts{left_out}; one busy core, without vector instructions",
        ),
    )


def clock_conditions(clock: Clock, reported_hz: float | None) -> list[str]:
    """That the measured clock is not the highest one reported, in words; empty if it is.

    Args:
        clock: as measured.
        reported_hz: what the system says the hardware reaches (`Frequency.most_hz`); None: nothing.
    """
    if reported_hz is None or abs(clock.peak_hz / reported_hz - 1) <= _APART:
        return []
    way = "above" if clock.peak_hz > reported_hz else "below"
    apart = f"{abs(clock.peak_hz / reported_hz - 1):.0%}".replace("%", " %")
    return [
        f"clock: measured {format_si(clock.peak_hz, 'Hz')} is {apart} {way} the"
        f" {format_si(reported_hz, 'Hz')} that the operating system reports as the highest;"
        " theoretical rates take the measured one"
    ]


_STREAMS = 3
"""Arrays that a stream kernel goes over at most."""

_LINKS_SHARE = 0.2
"""Of the time that is left, for the ways between nodes; on a single node none is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFindings:
    """What our own kernels found; ``sets`` are the working sets that levels were measured with."""

    compute: tuple[ComputeCeiling, ...] = ()
    memory: tuple[MemoryLevel, ...] = ()
    clock: Clock | None = None
    overheads: tuple[Overhead, ...] = ()
    links: tuple[Link, ...] = ()
    latency_curve: LatencyCurve | None = None
    bandwidth_curves: tuple[BandwidthCurve, ...] = ()
    sets: tuple[WorkingSet, ...] = ()
    series: tuple[Series, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernels:
    """Everything compiled."""

    compute: tuple[Forms, ...]
    streams: tuple[Forms, ...]
    clock: CompiledKernel | None
    chase: CompiledKernel | None
    hop: HopTimer | None
    conditions: tuple[str, ...]

    @property
    def read(self) -> CompiledKernel | None:
        """The kernel that only loads."""
        streams = (each[0] for each in self.streams)
        return next((each for each in streams if each.kernel.label.startswith("read ")), None)


def measure_kernels(
    situation: Situation,
    teams: Sequence[int],
    program: Program,
    *,
    deadline: float,
    clock: Callable[[], float],
    report: Progress,
    found: Found,
    before_timing: Callable[[], None],
) -> KernelFindings:
    """Compiles all kernels that this host can run, and measures what they reach.

    Args:
        situation: this host.
        teams: numbers of threads, the largest last.
        program: what fits into the time.
        deadline: when rounds end, by `clock`.
        clock: seconds.
        report: told the fraction done, and what comes next.
        found: told of rates.
        before_timing: called when all is compiled, before the first kernel is timed.

    Raises:
        MeasurementError: threads cannot be started, or a ceiling has no usable timing.
    """
    kernels = _compiled(situation, program, report)
    before_timing()
    topology = situation.topology
    with Crew(teams[-1], topology.cores) as crew:
        explored = explore(
            crew,
            Probes(chase=kernels.chase, read=kernels.read),
            topology,
            teams,
            largest_bytes=largest_curve_bytes(topology, situation.available_bytes),
            max_bytes=most_curve_bytes(situation.available_bytes),
            budget_s=program.curve_s,
            clock=clock,
            report=report,
        )
        sets, scarcity = plan_working_sets(
            explored.hierarchy.levels, topology, teams, situation.available_bytes
        )
        links_until = clock() + _LINKS_SHARE * (deadline - clock())
        links = measure_node_links(
            situation, kernels.read, explored.hierarchy, in_time=lambda: clock() < links_until
        )
        memory, pages = _memory(crew, sets, report)
        candidates = _candidates(kernels, sets, memory, teams, scarcity)
        calibrate(candidates, crew, lambda what: report(0.0, what))
        rounds = run_rounds(
            candidates,
            crew,
            kernels.hop if teams[-1] > 1 else None,
            deadline=deadline,
            clock=clock,
            report=report,
            found=found,
        )
        stretches = _stretches(rounds, crew, program, clock, report, found)
        page_faults = page_fault_overheads(crew, teams, clock)
        pinning = crew.pinning
    reached = stretches.reached
    core_clock = next(
        (measured_clock(each.rate) for each in reached if each.trial.quantity == "cycle"), None
    )
    core = identify_core(cpus=topology.cores[: teams[-1]] or (0,))
    levels = {
        level.name: LevelFacts(capacity_provenance=level.provenance, latency=level.latency)
        for level in explored.hierarchy.levels
    }
    levels[DRAM] = _memory_facts(
        situation,
        explored.hierarchy.memory_latency,
        caches_bytes=max((each.capacity_bytes or 0 for each in sets), default=0),
    )
    return KernelFindings(
        compute=without_lower_mixes(
            [compute_ceiling(each, core, core_clock) for each in _of(reached, "flop")]
        ),
        memory=tuple(
            memory_levels(_of(reached, "byte"), levels, core, core_clock, theoretical_memory())
        ),
        clock=core_clock,
        overheads=(*rounds.overheads, *page_faults),
        links=links.links,
        latency_curve=explored.latency_curve,
        bandwidth_curves=explored.bandwidth_curves,
        sets=tuple(sets),
        series=(*explored.series, *rounds.series, *stretches.series),
        conditions=(
            *([pinning] if pinning else []),
            *([] if kernels.streams else [f"no stream kernels for {situation.host.architecture}"]),
            *kernels.conditions,
            *explored.conditions,
            *scarcity,
            *pages,
            *kernel_conditions(rounds.reached),
            *rounds.conditions,
            *stretches.conditions,
            *(clock_conditions(core_clock, situation.frequency.most_hz) if core_clock else ()),
            *links.conditions,
        ),
    )


def _memory_facts(
    situation: Situation, latency: Duration | None, *, caches_bytes: int
) -> LevelFacts:
    """What the system says of its memory: the size, within the limit of the container.

    Unknown where not told, and where the limit is below the largest cache, of `caches_bytes`.
    """
    known = {
        "reported by the operating system": situation.memory_bytes,
        "limit of the container (cgroup)": situation.memory_limit_bytes,
    }
    sizes = {how: byte for how, byte in known.items() if byte is not None}
    how = min(sizes, key=sizes.__getitem__, default="")
    if not how or sizes[how] < caches_bytes:
        return LevelFacts(latency=latency)
    return LevelFacts(
        capacity_bytes=sizes[how],
        capacity_provenance=Provenance(source="datasheet", reference=how, date=""),
        latency=latency,
    )


def _of(reached: Sequence[Reached], quantity: str) -> list[Reached]:
    return [each for each in reached if each.trial.quantity == quantity]


def _compiled(situation: Situation, program: Program, report: Progress) -> _Kernels:
    host = situation.host
    sets = host.instruction_sets

    def say(what: str) -> None:
        report(0.0, what)

    unit = stream_unit(host.architecture, sets)
    compute, obstacles = compile_forms(
        compute_kernels(
            host.architecture,
            (*sets, *compiler.unlisted_instruction_sets()),
            sve_bits=sve_vector_bits(),
        ),
        second_forms=program.second_forms,
        report=say,
    )
    streams, more = compile_forms(
        stream_kernels(unit, non_temporal=True) if unit else (),
        second_forms=program.second_forms,
        report=say,
    )
    conditions = [*obstacles, *more]
    plain = _plain_kernels(host.architecture, conditions)
    hop = plain.get("hop")
    return _Kernels(
        compute=tuple(compute),
        streams=tuple(streams),
        clock=plain.get("clock"),
        chase=plain.get("pointer chase"),
        hop=HopTimer(hop, hop.kernel) if hop and isinstance(hop.kernel, HopKernel) else None,
        conditions=tuple(conditions),
    )


def _plain_kernels(architecture: str, conditions: list[str]) -> dict[str, CompiledKernel]:
    """The kernels that need nothing of a CPU but its architecture, by their labels."""
    if architecture not in ("x86_64", "aarch64"):
        return {}
    compiled: dict[str, CompiledKernel] = {}
    kernels = (
        ClockKernel(architecture=architecture),
        chase_kernel(architecture),
        hop_kernel(architecture),
    )
    for kernel in kernels:
        try:
            compiled[kernel.label] = compiler.compile_kernel(kernel)
        except MeasurementError as error:
            conditions.append(f"left out: {error}")
    return compiled


def _memory(
    crew: Crew, sets: Sequence[WorkingSet], report: Progress
) -> tuple[list[Array], list[str]]:
    """A buffer for each worker, with room for the largest working set that it takes part in."""
    report(0.0, "allocating memory")
    memory = [
        allocate(
            extent_bytes(
                max((each.bytes_per_thread for each in sets if i < each.threads), default=0),
                _STREAMS,
            )
        )
        for i in range(crew.threads)
    ]
    crew.each(lambda i: fill(memory[i], lambda: crew.stopped))
    huge = huge_page_bytes(memory)
    return memory, page_conditions(sum(each.size for each in memory), huge)


def _candidates(
    kernels: _Kernels,
    sets: Sequence[WorkingSet],
    memory: list[Array],
    teams: Sequence[int],
    scarcity: Sequence[str],
) -> list[Candidate]:
    reservations = {DRAM: "; ".join(scarcity)} if scarcity else {}
    compiled = kernels.clock
    clock = compiled.kernel if compiled else None
    return [
        *(
            [Candidate(trials=(clock_trial(compiled, clock),), kind=clock.label)]
            if compiled and isinstance(clock, ClockKernel)
            else []
        ),
        *compute_candidates(kernels.compute, teams),
        *stream_candidates(kernels.streams, sets, memory, reservations),
    ]


def _stretches(
    rounds: Rounds,
    crew: Crew,
    program: Program,
    clock: Callable[[], float],
    report: Progress,
    found: Found,
) -> Rounds:
    if not program.stretch_s:
        return dataclasses.replace(rounds, series=(), conditions=())
    return run_stretches(
        rounds.reached,
        crew,
        stretch_s=program.stretch_s,
        clock=clock,
        report=report,
        found=found,
    )
