"""Ceilings and memory levels from rates, with theoretical peaks, doubts and provenance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.core.dtypes import DType
from roofline.core.text import counted
from roofline.core.units import format_capacity, format_percent, format_si
from roofline.machine.hardware import (
    Bandwidth,
    Clock,
    ComputeCeiling,
    MemoryLevel,
    Provenance,
    TheoreticalRate,
    WriteAllocate,
)
from roofline.machine.hierarchy.working_sets import DRAM
from roofline.machine.kernels.compute import ComputeKernel
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.measuring.estimation import BURST_S, BUSY, Estimate, method, provenance
from roofline.machine.measuring.rounds import KernelRate
from roofline.machine.measuring.trials import Trial
from roofline.machine.theory.microarchitectures import Core, NearestCache

METHOD = method(f"{BURST_S * 1e3:g} ms bursts")

AGREEMENT = 0.97
"""What the other form of a kernel must reach of the faster one; else the figure is in doubt."""

UNSTEADY = 0.25
"""Spread from which on a rate depends on when it was measured."""

_MEDIAN_ERROR = 0.93
"""Standard error of a median, over interquartile range by the root of the number of values: 1.253
standard deviations by that root, of which a normal distribution has 1.349 in that range."""

_SURE = 2.0  # standard errors that a difference must exceed not to be noise
_PLACED = 1.25  # peak over sustained from which on they are those of two placements of the CPUs

_NOTABLE = 0.01
"""Fraction of all bursts from which a disturbance is worth a line; each ceiling notes its own."""

_MOVES = {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "triad": (2, 1), "update": (1, 1)}
"""Loads and stores of one element by each kernel of the streams."""

_ALLOCATING = ("write", "copy", "triad")
"""Kernels whose plain stores go to lines that they did not load."""


@dataclass(frozen=True, slots=True)
class TheoreticalPeaks:
    """Theoretical rates of this microarchitecture at the peak of this clock; None: not known.

    Threads have a core each.
    """

    core: Core | None = None
    clock: Clock | None = None

    @property
    def clock_hz(self) -> float | None:
        return self.clock.peak_hz if self.clock else None

    def compute(self, kernel: str, dtype: DType, unit: str, threads: int) -> TheoreticalRate | None:
        """Operations per second of a kernel, as in `ComputeCeiling`."""
        found = self.core.throughput(kernel, dtype, unit) if self.core else None
        if found is None:
            return None
        return self._per_cycle(threads, found.flop_per_cycle(dtype), found.arithmetic(dtype))

    def bandwidth(
        self, level: str, kernel: str, threads: int, vector_bytes: int
    ) -> TheoreticalRate | None:
        """Bytes per second to and from the cores' own caches: of L1, and of reads from L2.

        Known for vectors as wide as the core moves; what is beyond belongs to the chip.
        """
        if self.core is None:
            return None
        byte, l1 = None, self.core.l1
        if level == "L1" and l1:
            byte = _l1_bytes_per_cycle(l1, kernel) if 8 * vector_bytes >= l1.bits else None
        elif (level, kernel) == ("L2", "read"):
            byte = self.core.l2_read_bytes
        return None if byte is None else self._per_cycle(threads, byte, f"{byte:g} byte")

    def _per_cycle(self, threads: int, amount: float, arithmetic: str) -> TheoreticalRate | None:
        core, clock = self.core, self.clock
        if core is None or clock is None:
            return None
        measured = clock.provenance.source == "measured"
        how = (
            "measured, peak of the dependent additions"
            if measured
            else "highest that the document gives"
        )
        return TheoreticalRate(
            per_s=threads * clock.peak_hz * amount,
            provenance=Provenance(
                source="derived",
                reference=f"{core.name}: {core.reference}",
                date=clock.provenance.date,
                tool_version=clock.provenance.tool_version,
                note=f"{counted(threads, 'thread')} x {format_si(clock.peak_hz, 'Hz')} ({how})"
                f" x {arithmetic}",
            ),
        )


def _l1_bytes_per_cycle(cache: NearestCache, kernel: str) -> float | None:
    if kernel not in _MOVES:
        return None
    loads, stores = _MOVES[kernel]
    if stores and (cache.store_bytes is None or cache.together_bytes is None):
        return None
    cycles = max(
        loads / cache.load_bytes,
        stores / cache.store_bytes if cache.store_bytes else 0.0,
        (loads + stores) / cache.together_bytes if cache.together_bytes else 0.0,
    )
    return (loads + stores) / cycles


def doubt(reached: KernelRate[Trial]) -> str:
    """What speaks against a figure, in words; ``""``: nothing."""
    rate, other = reached.rate, reached.other
    reasons = [reached.reservation] if reached.reservation else []
    if rate.only_disturbed:
        reasons.append("every burst was disturbed")
    if other is not None and _disagree(rate, other):
        share = other.sustained / rate.sustained
        reasons.append(f"another form of the kernel reaches {format_percent(share)} of it")
    if reached.moved and rate.peak > _PLACED * rate.sustained:
        reasons.append(
            "the host moved its CPUs: peak and sustained are of different placements of them"
        )
    if rate.spread > UNSTEADY:
        reasons.append(f"unsteady: the interquartile range is {percent(rate.spread)} of it")
    return "; ".join(reasons)


def _disagree(rate: Estimate, other: Estimate) -> bool:
    gap = 1 - other.sustained / rate.sustained
    errors = [
        _MEDIAN_ERROR * each.spread / math.sqrt(max(1, each.bursts - each.disturbed))
        for each in (rate, other)
    ]
    return gap > 1 - AGREEMENT and gap > _SURE * math.hypot(*errors)


def percent(fraction: float) -> str:
    return f"{fraction:.0%}".replace("%", " %")


def compute_ceiling(
    reached: KernelRate[Trial], theoretical_peaks: TheoreticalPeaks
) -> ComputeCeiling:
    """The ceiling that a compute kernel's trial found, in operations per second."""
    trial, rate = reached.trial, reached.rate
    kernel = trial.compiled.kernel
    assert isinstance(kernel, ComputeKernel)
    return ComputeCeiling(
        kind="hardware",
        kernel=kernel.name,
        dtype=kernel.dtype,
        unit=kernel.unit.name,
        threads=trial.threads,
        peak_flop_per_s=rate.peak,
        sustained_flop_per_s=rate.sustained,
        spread=rate.spread,
        clock_hz=theoretical_peaks.clock_hz,
        theoretical=theoretical_peaks.compute(
            kernel.name, kernel.dtype, kernel.unit.name, trial.threads
        ),
        doubt=doubt(reached),
        provenance=provenance(
            f"{METHOD}; {kernel.accumulators} independent sums, unrolled {kernel.unroll} times",
            rate.note,
        ),
    )


def write_allocate(kernel: str, *, nearest: bool) -> WriteAllocate:
    """Whether a kernel's stores make a level fetch lines first, beside the bytes that are counted.

    In the nearest level the lines are there already; beyond it each is read before it is written,
    unless it was just loaded or the store goes past the caches.
    """
    return "not counted" if kernel in _ALLOCATING and not nearest else "none"


def _bandwidth(
    reached: KernelRate[Trial],
    theoretical_peaks: TheoreticalPeaks,
    memory: TheoreticalRate | None,
    *,
    nearest: bool,
) -> Bandwidth:
    trial, rate = reached.trial, reached.rate
    kernel, working_set = trial.compiled.kernel, trial.working_set
    assert isinstance(kernel, StreamKernel) and working_set is not None
    allocate = write_allocate(kernel.name, nearest=nearest)
    of_core = theoretical_peaks.bandwidth(
        working_set.level, kernel.name, trial.threads, kernel.vector_bytes
    )
    return Bandwidth(
        kernel=kernel.name,
        threads=trial.threads,
        peak_bytes_per_s=rate.peak,
        sustained_bytes_per_s=rate.sustained,
        spread=rate.spread,
        # Caches are clocked with the cores, or not at all faster for it; memory is not.
        clock_hz=theoretical_peaks.clock_hz if working_set.level != DRAM else None,
        write_allocate=allocate,
        # Where lines are fetched besides, the bus moves more than the bytes that are counted.
        theoretical=memory if memory and allocate == "none" else of_core,
        doubt=doubt(reached),
        provenance=provenance(
            f"{METHOD}; {kernel.vector_bytes} byte loads and stores; {working_set.note}", rate.note
        ),
    )


def memory_levels(
    found: Sequence[KernelRate[Trial]],
    theoretical_peaks: TheoreticalPeaks,
    memory: TheoreticalRate | None = None,
) -> Iterable[MemoryLevel]:
    """The memory levels that kernels ran at, nearest first, with the bandwidths of each.

    ``memory`` is the theoretical rate of all channels: that of the bandwidths of DRAM on all
    threads whose bytes all cross the bus.
    """
    most = max((each.trial.threads for each in found), default=0)
    sets = {
        each.trial.working_set.level: each.trial.working_set
        for each in found
        if each.trial.working_set
    }
    names = sorted(sets, key=lambda level: (level == DRAM, level))
    for name in names:
        yield MemoryLevel(
            name=name,
            capacity_bytes=sets[name].capacity_bytes,
            scope=sets[name].scope,
            bandwidth=tuple(
                _bandwidth(
                    each,
                    theoretical_peaks,
                    memory if name == DRAM and each.trial.threads == most else None,
                    nearest=name == names[0] and name != DRAM,
                )
                for each in found
                if each.trial.working_set and each.trial.working_set.level == name
            ),
        )


def drop_slower_mixes(compute: Sequence[ComputeCeiling]) -> tuple[ComputeCeiling, ...]:
    """The ceilings without those of additions beside FMAs that are no higher than the FMA's.

    A CPU that adds with the units that multiply gains nothing by the mix.
    """
    products = {
        (each.dtype, each.unit, each.threads): each.peak_flop_per_s
        for each in compute
        if each.kernel == "fma"
    }
    higher = {
        (each.dtype, each.unit)
        for each in compute
        if each.kernel == "fma-add"
        and each.sustained_flop_per_s > products.get((each.dtype, each.unit, each.threads), 0.0)
    }
    return tuple(
        each for each in compute if each.kernel != "fma-add" or (each.dtype, each.unit) in higher
    )


def kernel_conditions(found: Sequence[KernelRate[Trial]]) -> list[str]:
    """What the bursts say about how undisturbed they were; empty: nothing to say."""
    rates = [rate for each in found for rate in (each.rate, each.other) if rate is not None]
    bursts = sum(rate.bursts for rate in rates)
    disturbed = sum(rate.disturbed for rate in rates)
    hopeless = [each.trial.label for each in found if each.rate.only_disturbed]
    page_faults = sum(each.trial.page_faults for each in found)
    conditions: list[str] = []
    if disturbed > _NOTABLE * bursts:
        conditions.append(
            f"contention: in {disturbed} of {bursts} bursts a thread had its CPU for less than"
            f" {percent(BUSY)} of the time; they are left out"
        )
    if hopeless:
        conditions.append(
            f"too low, because every burst was disturbed: {', '.join(hopeless)};"
            " stop what else runs and measure again"
        )
    unsteady = dict.fromkeys(each.trial.place for each in found if each.rate.spread > UNSTEADY)
    if unsteady:
        conditions.append(
            f"unsteady: bursts of {', '.join(unsteady)} differ by more than {percent(UNSTEADY)};"
            " the host has faster and slower phases, and another measurement may meet others"
        )
    if page_faults > _NOTABLE * bursts:
        conditions.append(f"page faults: {page_faults} happened inside timed calls")
    return conditions


def page_conditions(wanted_bytes: int, huge_bytes: int | None) -> list[str]:
    """That the buffers are not in huge pages; empty if most are, or it is not known."""
    if huge_bytes is None or huge_bytes >= wanted_bytes / 2:
        return []
    return [
        f"small pages: {format_capacity(huge_bytes)} of {format_capacity(wanted_bytes)} are in huge"
        " pages; scattered small ones can lower the bandwidth of L2 and beyond"
    ]
