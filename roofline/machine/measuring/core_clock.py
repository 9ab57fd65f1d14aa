"""The clock of a core while it computes, measured with a chain of dependent additions."""

from __future__ import annotations

import numpy as np

from roofline.foundation.units import format_si
from roofline.machine.hardware import Clock
from roofline.machine.kernels.clock import CHAIN, STATE_BYTE, ClockKernel
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.measuring.ceilings import METHOD, provenance
from roofline.machine.measuring.estimation import Estimate
from roofline.machine.measuring.trials import Shape, Trial

_MOST_REPEATS = 1 << 40

_APART = 0.03
"""A measured clock further than this from what the system reports is worth a line."""


def clock_trial(compiled: CompiledKernel, kernel: ClockKernel, threads: int = 1) -> Trial:
    """A trial of the clock kernel; its work is cycles, so that its rate is in Hz."""
    states = tuple(np.zeros(STATE_BYTE // 8, dtype=np.uint64) for _ in range(threads))
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
