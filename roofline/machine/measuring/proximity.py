"""How near the CPUs of two threads are to each other, and whether the host moves them about.

A hypervisor may place two virtual CPUs on cores of one die, which share a last cache and its way
to memory, or on two dies, and change that at any time. Bandwidth on both threads then has two
values, a factor of two apart. How long a cache line takes from core to core tells which it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofline.foundation.sampling import Sample, quantile
from roofline.foundation.units import format_percent, format_s
from roofline.machine.hardware import Duration, Overhead
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.hop import FAILED_BYTE, STATE_BYTE, TURN_BYTE, HopKernel
from roofline.machine.measuring.buffers import Array
from roofline.machine.measuring.ceilings import provenance
from roofline.machine.measuring.crew import Crew
from roofline.machine.measuring.drift import two_groups
from roofline.machine.measuring.estimation import Burst
from roofline.machine.measuring.trials import Shape, Trial

_TURNS = 200
"""Of each thread in a burst: 20 to 80 µs."""

_BURSTS = 1
"""After one that is not counted; it is timed before every call on several threads."""

_LINE_BYTE = 128
"""As many as the largest lines have: nothing else may lie on it."""

_FAST = 0.05

_APART = 1.5
"""Ratio of hops from which on they are those of two placements."""

_LEAST_SHARE = 0.02
"""Of all hops that a placement must have; fewer were disturbed by something else."""


class HopTimer:
    """Times the hop between the first two workers of a crew.

    Args:
        compiled: a `HopKernel`.
        kernel: the same.
    """

    def __init__(self, compiled: CompiledKernel, kernel: HopKernel) -> None:
        self._line = _aligned(_LINE_BYTE)
        self._states = (_aligned(STATE_BYTE), _aligned(STATE_BYTE))
        for state in self._states:
            state.view(np.uint64)[0] = self._line.ctypes.data
        self._trial = Trial(
            compiled=compiled,
            threads=2,
            working_set=None,
            states=self._states,
            buffers=(self._line,),
            shape=lambda repeats: Shape(1, repeats, 0),
            work=kernel.hops,
            most_repeats=_TURNS,
            repeats=_TURNS,
        )

    def __call__(self, crew: Crew) -> float | None:
        """Median seconds of a hop; None: a thread lost its CPU, and they gave up."""
        self._line[:] = 0
        for number, state in enumerate(self._states):
            state[TURN_BYTE:] = 0
            state[TURN_BYTE:].view(np.uint64)[0] = number
        bursts = self._trial.run(crew, _BURSTS)
        given_up = any(state[FAILED_BYTE:].view(np.uint64)[0] for state in self._states)
        return None if given_up else self._median_s(bursts)

    def _median_s(self, bursts: Sequence[Burst]) -> float | None:
        # The work of a trial is that of all its threads; a journey has both.
        hops = self._trial.work_per_burst / self._trial.threads
        return statistics.median(burst.wall_s / hops for burst in bursts) if bursts else None


def _aligned(byte: int) -> Array:
    whole = np.zeros(byte + _LINE_BYTE, dtype=np.uint8)
    skip = -whole.ctypes.data % _LINE_BYTE
    return whole[skip : skip + byte]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proximity:
    """Seconds of hops (NaN: not known), and which of them are of the placement figures are from.

    ``low_s`` and ``high_s`` bound the hops of the placement that was met more often; None on both
    sides where there was only one.
    """

    hops_s: tuple[float, ...]
    low_s: float | None = None
    high_s: float | None = None

    @property
    def moved(self) -> bool:
        """Whether the CPUs were near each other at times and apart at others."""
        return self.low_s is not None or self.high_s is not None

    def prevails(self, core_to_core_latency_s: float) -> bool:
        """Whether the CPUs were where they mostly were when a hop took so long."""
        if not self.moved:
            return True
        above = self.low_s is None or core_to_core_latency_s > self.low_s
        below = self.high_s is None or core_to_core_latency_s <= self.high_s
        return not math.isnan(core_to_core_latency_s) and above and below

    @property
    def prevailing_s(self) -> list[float]:
        """The hops of the placement that was met more often."""
        return [each for each in self.hops_s if not math.isnan(each) and self.prevails(each)]


def proximity(hops_s: Sequence[float]) -> Proximity:
    """What hops that were timed over a while say about where the CPUs were."""
    hops_s = tuple(hops_s)
    known = [each for each in hops_s if not math.isnan(each)]
    threshold_s = two_groups(known)
    if threshold_s is None:
        return Proximity(hops_s=hops_s)
    near = [each for each in known if each <= threshold_s]
    far = [each for each in known if each > threshold_s]
    rare = min(len(near), len(far)) < max(2, _LEAST_SHARE * len(known))
    if rare or statistics.median(far) <= _APART * statistics.median(near):
        return Proximity(hops_s=hops_s)
    if len(near) > len(far):
        return Proximity(hops_s=hops_s, high_s=threshold_s)
    return Proximity(hops_s=hops_s, low_s=threshold_s)


def proximity_condition(found: Proximity) -> str:
    """That the host moved the CPUs, in words; ``""``: it did not, as far as can be told."""
    if not found.moved:
        return ""
    mostly = found.prevailing_s
    otherwise = [each for each in found.hops_s if not math.isnan(each) and not found.prevails(each)]
    share = format_percent(len(mostly) / (len(mostly) + len(otherwise)))
    where = ["near each other", "apart"]
    if found.low_s is not None:
        where.reverse()
    return (
        f"the host moved its CPUs: {share} of the time they were {where[0]} (a cache line took"
        f" {format_s(statistics.median(mostly))} from core to core), else {where[1]}"
        f" ({format_s(statistics.median(otherwise))}); on several threads, sustained rates are"
        " those of the former, peaks the best of both"
    )


def hop_overhead(found: Proximity) -> Overhead | None:
    """The hop, where the CPUs mostly were; None: not known."""
    times = found.prevailing_s
    if not times:
        return None
    sample = Sample(times_s=tuple(times))
    return Overhead(
        name="hop of a cache line",
        threads=2,
        time=Duration(
            fast_s=quantile(times, _FAST),
            median_s=sample.median_s,
            spread=sample.spread,
            provenance=provenance(
                "5th percentile (fast) and median of bursts in which two threads hand a cache line"
                " to and fro",
                f"{len(times)} bursts of {2 * _TURNS} hops",
            ),
        ),
    )
