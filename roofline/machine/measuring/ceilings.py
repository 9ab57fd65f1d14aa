"""Ceilings and memory levels from burst rates, with theoretical peaks, doubts and provenance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

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

Figure = TypeVar("Figure", ComputeCeiling, Bandwidth)

METHOD = method(f"{BURST_S * 1e3:g} ms bursts")

AGREEMENT = 0.97
"""Minimum rate of the other kernel variant, relative to the faster one."""

UNSTEADY = 0.25
"""Spread above which a rate is marked unsteady."""

_MEDIAN_ERROR = 0.93
"""Standard error of a median, relative to interquartile range over the root of the count: 1.253 /
1.349 for a normal distribution."""

_SURE = 2.0  # standard errors of a significant difference
_PLACED = 1.25  # peak over sustained that indicates two CPU placements

_FEWER_FASTER = 2.0
"""Rate on fewer threads over that on more which indicates a disturbed measurement."""

_NOTABLE = 0.01
"""Fraction of bursts above which a disturbance is reported; ceilings note their own."""

_MOVES = {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "triad": (2, 1), "update": (1, 1)}
"""Loads and stores per element of each stream kernel."""

_ALLOCATING = ("write", "copy", "triad")
"""Kernels with plain stores to lines that they did not load."""


@dataclass(frozen=True, slots=True)
class TheoreticalPeaks:
    """Theoretical peaks of a microarchitecture at the peak of a clock; None: unknown.

    Each thread has its own core.
    """

    core: Core | None = None
    clock: Clock | None = None

    @property
    def clock_hz(self) -> float | None:
        return self.clock.peak_hz if self.clock else None

    def compute(self, kernel: str, dtype: DType, unit: str, threads: int) -> TheoreticalRate | None:
        """Return the theoretical peak of a kernel, in FLOP/s."""
        found = self.core.throughput(kernel, dtype, unit) if self.core else None
        if found is None:
            return None
        return self._per_cycle(threads, found.flop_per_cycle(dtype), found.arithmetic(dtype))

    def bandwidth(
        self, level: str, kernel: str, threads: int, vector_bytes: int
    ) -> TheoreticalRate | None:
        """Return the theoretical bandwidth of L1, or of L2 reads, in byte/s.

        Known for full-width vectors; farther levels depend on the chip.
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
        how = "measured peak of dependent additions" if measured else "document maximum"
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


def doubt(kernel_rate: KernelRate[Trial]) -> str:
    """Return the reasons why a figure may be wrong, or ``""``."""
    rate, other = kernel_rate.rate, kernel_rate.other
    reasons = [kernel_rate.initial_doubt] if kernel_rate.initial_doubt else []
    if rate.only_disturbed:
        reasons.append("all bursts disturbed by other processes")
    if other is not None and _disagree(rate, other):
        share = other.sustained / rate.sustained
        reasons.append(
            f"not reproduced: the second kernel variant reaches {format_percent(share)} of it,"
            f" {percent(AGREEMENT)} expected"
        )
    if kernel_rate.moved and rate.peak > _PLACED * rate.sustained:
        reasons.append("the host moved its CPUs: peak and sustained are from different placements")
    if rate.spread > UNSTEADY:
        reasons.append(f"unsteady: interquartile range {percent(rate.spread)} of the median")
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
    kernel_rate: KernelRate[Trial], theoretical_peaks: TheoreticalPeaks
) -> ComputeCeiling:
    """Return the ceiling measured by a compute kernel's trial."""
    trial, rate = kernel_rate.trial, kernel_rate.rate
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
        doubt=doubt(kernel_rate),
        provenance=provenance(
            f"{METHOD}; {kernel.accumulators} independent sums, unrolled {kernel.unroll} times",
            rate.note,
        ),
    )


def write_allocate(kernel: str, *, nearest: bool) -> WriteAllocate:
    """Return the write-allocate traffic of a kernel's stores.

    Beyond the nearest level, a line is read before it is written, unless it was just loaded or the
    store is non-temporal.
    """
    return "not counted" if kernel in _ALLOCATING and not nearest else "none"


def _bandwidth(
    kernel_rate: KernelRate[Trial],
    theoretical_peaks: TheoreticalPeaks,
    memory: TheoreticalRate | None,
    *,
    nearest: bool,
) -> Bandwidth:
    trial, rate = kernel_rate.trial, kernel_rate.rate
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
        # DRAM does not follow the core clock.
        clock_hz=theoretical_peaks.clock_hz if working_set.level != DRAM else None,
        write_allocate=allocate,
        # With write-allocate, the bus moves more than the counted bytes.
        theoretical=memory if memory and allocate == "none" else of_core,
        doubt=doubt(kernel_rate),
        provenance=provenance(
            f"{METHOD}; {kernel.vector_bytes} byte loads and stores; {working_set.note}", rate.note
        ),
    )


def memory_levels(
    found: Sequence[KernelRate[Trial]],
    theoretical_peaks: TheoreticalPeaks,
    memory: TheoreticalRate | None = None,
) -> Iterable[MemoryLevel]:
    """Yield the measured memory levels, nearest first, with their bandwidths.

    ``memory`` is the theoretical rate of all channels, assigned to DRAM kernels on all threads
    without write-allocate.
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
            bandwidth=mark_slower_teams(
                [
                    _bandwidth(
                        each,
                        theoretical_peaks,
                        memory if name == DRAM and each.trial.threads == most else None,
                        nearest=name == names[0] and name != DRAM,
                    )
                    for each in found
                    if each.trial.working_set and each.trial.working_set.level == name
                ]
            ),
        )


def mark_slower_teams(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    """Return the figures, with a doubt on those far below the same kernel on fewer threads."""
    marked: list[Figure] = []
    for each in figures:
        fewer = [
            other
            for other in figures
            if _kernel_of(other) == _kernel_of(each) and other.threads < each.threads
        ]
        best = max(fewer, key=_sustained, default=each)
        factor = _sustained(best) / _sustained(each)
        if factor > _FEWER_FASTER:
            reason = (
                f"{factor:.1f}× slower than on {counted(best.threads, 'thread')}: disturbed by"
                " other processes"
            )
            each = replace(each, doubt="; ".join(filter(None, (each.doubt, reason))))
        marked.append(each)
    return tuple(marked)


def _kernel_of(figure: ComputeCeiling | Bandwidth) -> tuple[str, str]:
    return figure.kind, figure.label if isinstance(figure, ComputeCeiling) else figure.kernel


def _sustained(figure: ComputeCeiling | Bandwidth) -> float:
    if isinstance(figure, ComputeCeiling):
        return figure.sustained_flop_per_s
    return figure.sustained_bytes_per_s


def drop_slower_mixes(compute: Sequence[ComputeCeiling]) -> tuple[ComputeCeiling, ...]:
    """Return the ceilings without FMA-and-add mixes that do not exceed the FMA ceiling."""
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
    """Return notes on disturbed bursts."""
    rates = [rate for each in found for rate in (each.rate, each.other) if rate is not None]
    bursts = sum(rate.bursts for rate in rates)
    disturbed = sum(rate.disturbed for rate in rates)
    always_disturbed = [each.trial.label for each in found if each.rate.only_disturbed]
    page_faults = sum(each.trial.page_faults for each in found)
    conditions: list[str] = []
    if disturbed > _NOTABLE * bursts:
        conditions.append(
            f"contention: other processes disturbed {disturbed} of {bursts} bursts (thread on its"
            f" CPU for less than {percent(BUSY)} of the time); discarded"
        )
    if always_disturbed:
        conditions.append(
            f"too low, all bursts disturbed by other processes: {', '.join(always_disturbed)}; stop"
            " them and measure again"
        )
    unsteady = dict.fromkeys(each.trial.place for each in found if each.rate.spread > UNSTEADY)
    if unsteady:
        conditions.append(
            f"unsteady: bursts of {', '.join(unsteady)} differ by more than {percent(UNSTEADY)};"
            " other measurements may differ"
        )
    if page_faults > _NOTABLE * bursts:
        conditions.append(f"page faults: {page_faults} during timed calls")
    return conditions


def page_conditions(wanted_bytes: int, huge_bytes: int | None) -> list[str]:
    """Return a note if most of the buffers are not in huge pages."""
    if huge_bytes is None or huge_bytes >= wanted_bytes / 2:
        return []
    return [
        f"small pages: only {format_capacity(huge_bytes)} of {format_capacity(wanted_bytes)} in"
        " huge pages; small ones can lower the bandwidth of L2 and beyond"
    ]
