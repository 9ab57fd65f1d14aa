"""From the rates of trials to ceilings and memory levels, with where each number comes from."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from roofline.foundation.units import format_capacity
from roofline.machine.estimation import BUSY, PEAK_QUANTILE, Estimate
from roofline.machine.hardware import Bandwidth, ComputeCeiling, MemoryLevel, Provenance
from roofline.machine.host import package_version
from roofline.machine.kernels.compute import UNROLL, ComputeKernel
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.schedule import BURST_S
from roofline.machine.trials import Trial
from roofline.machine.working_sets import DRAM

Found = Sequence[tuple[Trial, Estimate]]
"""Trials with the rates they reached."""

_NOTABLE = 0.01
"""Fraction of all bursts from which a disturbance is worth a line; each ceiling notes its own."""

_UNSTEADY = 0.25
"""Spread from which on a rate depends on when it was measured."""

METHOD = (
    f"{PEAK_QUANTILE * 100:.0f}th percentile (peak) and median (sustained) of interleaved"
    f" {BURST_S * 1e3:g} ms bursts"
)


def provenance(reference: str, note: str = "") -> Provenance:
    """Where a number measured now and here comes from."""
    return Provenance(
        source="measured",
        reference=reference,
        date=datetime.date.today().isoformat(),
        tool_version=package_version("roofline"),
        note=note,
    )


def compute_ceiling(trial: Trial, rate: Estimate) -> ComputeCeiling:
    """The ceiling that a compute kernel's trial found, in flop per second."""
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
        provenance=provenance(
            f"{METHOD}; {kernel.accumulators} independent sums, unrolled {UNROLL} times",
            _bursts_note(rate),
        ),
    )


def _bandwidth(trial: Trial, rate: Estimate) -> Bandwidth:
    kernel, working_set = trial.compiled.kernel, trial.working_set
    assert isinstance(kernel, StreamKernel) and working_set is not None
    return Bandwidth(
        kernel=kernel.name,
        threads=trial.threads,
        peak_byte_per_s=rate.peak,
        sustained_byte_per_s=rate.sustained,
        spread=rate.spread,
        provenance=provenance(
            f"{METHOD}; {kernel.vector_byte} byte loads and stores; {working_set.note}",
            _bursts_note(rate),
        ),
    )


def _bursts_note(rate: Estimate) -> str:
    left_out = f", {rate.disturbed} disturbed" if rate.disturbed else ""
    return f"{rate.bursts} bursts{left_out}"


def memory_levels(found: Found) -> Iterable[MemoryLevel]:
    """The memory levels that trials ran at, nearest first, with the bandwidths of each."""
    sets = {trial.working_set.level: trial.working_set for trial, _ in found if trial.working_set}
    for name in sorted(sets, key=lambda level: (level == DRAM, level)):
        yield MemoryLevel(
            name=name,
            capacity_byte=sets[name].capacity_byte,
            scope=sets[name].scope,
            bandwidth=tuple(
                _bandwidth(trial, rate)
                for trial, rate in found
                if trial.working_set and trial.working_set.level == name
            ),
        )


def kernel_conditions(found: Found) -> list[str]:
    """What the bursts say about how undisturbed they were, in words; empty: nothing to say."""
    bursts = sum(rate.bursts for _, rate in found)
    disturbed = sum(rate.disturbed for _, rate in found)
    hopeless = [trial.label for trial, rate in found if rate.only_disturbed]
    faults = sum(trial.faults for trial, _ in found)
    conditions: list[str] = []
    if disturbed > _NOTABLE * bursts:
        conditions.append(
            f"contention: in {disturbed} of {bursts} bursts a thread had its CPU for less than"
            f" {BUSY:.0%} of the time; they are left out".replace("%", " %")
        )
    if hopeless:
        conditions.append(
            f"too low, because every burst was disturbed: {', '.join(hopeless)};"
            " stop what else runs and measure again"
        )
    unsteady = dict.fromkeys(_where(trial) for trial, rate in found if rate.spread > _UNSTEADY)
    if unsteady:
        conditions.append(
            f"unsteady: bursts of {', '.join(unsteady)} differ by more than {_UNSTEADY:.0%}; the"
            " host has faster and slower phases, and another measurement may meet others".replace(
                "%", " %"
            )
        )
    if faults > _NOTABLE * bursts:
        conditions.append(f"page faults: {faults} happened inside timed calls")
    return conditions


def _where(trial: Trial) -> str:
    threads = "1 thread" if trial.threads == 1 else f"{trial.threads} threads"
    return f"{trial.working_set.level if trial.working_set else 'compute'} on {threads}"


def page_conditions(wanted_byte: int, huge_byte: int | None) -> list[str]:
    """That the buffers are not in huge pages, in words; empty if most are, or it is not known."""
    if huge_byte is None or huge_byte >= wanted_byte / 2:
        return []
    return [
        f"small pages: {format_capacity(huge_byte)} of {format_capacity(wanted_byte)} are in huge"
        " pages; scattered small ones can lower the bandwidth of L2 and beyond"
    ]
