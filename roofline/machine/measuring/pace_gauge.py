"""Reads the pace of the cores between two pieces of work, in less than a millisecond."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import cast

import numpy as np

from roofline.errors import MeasurementError
from roofline.machine.kernels.assembly import Architecture
from roofline.machine.kernels.chase import CLOCK_STATE_BYTE, ClockKernel, hop_kernel
from roofline.machine.kernels.compiler import CompiledKernel, compile_kernel, is_available
from roofline.machine.measuring.crew import Crew
from roofline.machine.measuring.proximity import HopTimer
from roofline.machine.pace import Pace
from roofline.machine.system.host import architecture

_ITERATIONS = 1000
"""Of the chain in one burst: some 25 µs."""

_BURSTS = 4
"""The fastest counts: others wait for a core, or for their instructions."""

_HOPS = 3

_ARCHITECTURES = ("x86_64", "aarch64")


@contextmanager
def pace_gauge(
    cores: Sequence[int], *, clock: Callable[[], float] = time.perf_counter
) -> Generator[Callable[[], Pace]]:
    """Reads the pace of `cores` whenever it is called; what cannot be read here stays unknown.

    The clock is that of the core which the calling thread runs on, the hop that between the first
    two of `cores`, where there are as many.

    Args:
        cores: CPUs that compute together, one for each physical core.
        clock: seconds.
    """
    kernels = _compiled()
    if kernels is None:
        yield Pace
        return
    ticking, hopping = kernels
    state = np.array([3, 5], dtype=np.uint64)
    assert state.nbytes == CLOCK_STATE_BYTE
    cycles = cast("ClockKernel", ticking.kernel).cycles(_ITERATIONS)

    def clock_hz() -> float:
        best_s = float("inf")
        for _ in range(_BURSTS):
            start_s = clock()
            ticking.call(state.ctypes.data, 0, _ITERATIONS)
            best_s = min(best_s, clock() - start_s)
        return cycles / best_s

    with contextlib.ExitStack() as stack:
        core_to_core_latency_s: Callable[[], float | None] = _unknown
        if len(cores) > 1 and (crew := _crew(stack, cores)) is not None:
            timer = HopTimer(hopping, hop_kernel(_architecture()))

            def timed_core_to_core_latency_s() -> float | None:
                found = [each for _ in range(_HOPS) if (each := timer(crew)) is not None]
                return median(found) if found else None

            core_to_core_latency_s = timed_core_to_core_latency_s
        yield lambda: Pace(clock_hz=clock_hz(), core_to_core_latency_s=core_to_core_latency_s())


def compile_gauge() -> None:
    """Compiles what `pace_gauge` runs, so that processes that are forked from now on have it."""
    _compiled()


def _unknown() -> None:
    return None


def _crew(stack: contextlib.ExitStack, cores: Sequence[int]) -> Crew | None:
    """Threads on the first two cores; None where the system does not give them."""
    try:
        crew = stack.enter_context(Crew(2, tuple(cores[:2])))
    except MeasurementError:
        return None
    return crew if crew.pinned else None


def _architecture() -> Architecture:
    return cast("Architecture", architecture())


@functools.cache
def _compiled() -> tuple[CompiledKernel, CompiledKernel] | None:
    """The clock and the hop; None where nothing can be compiled for this CPU."""
    if architecture() not in _ARCHITECTURES or not is_available():
        return None
    try:
        return (
            compile_kernel(ClockKernel(architecture=_architecture())),
            compile_kernel(hop_kernel(_architecture())),
        )
    except MeasurementError:
        return None
