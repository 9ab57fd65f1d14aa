"""Clock and core-to-core latency: as trials, and read between two pieces of work."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np

from roofline.errors import MeasurementError
from roofline.machine.kernels.assembly import Architecture
from roofline.machine.kernels.compiler import CompiledKernel, compile_kernel, is_available
from roofline.machine.kernels.pointer_chase import (
    CORE_TO_CORE_STATE_BYTE,
    FAILED_BYTE,
    TURN_BYTE,
    clock_kernel,
    core_to_core_kernel,
)
from roofline.machine.measuring.core_placement import CORE_TO_CORE_TURNS
from roofline.machine.measuring.pinned_threads import PinnedThreads, aligned
from roofline.machine.measuring.trials import Trial
from roofline.machine.pace import Pace
from roofline.machine.system.host import architecture

_LINE_BYTE = 128  # as many as the largest lines have: nothing else may lie on it
_ITERATIONS = 1000  # of the chain in one burst: some 25 µs
_BURSTS = 4  # the fastest counts: others wait for a core, or for their instructions

_HOPS = 3


def clock_trial(compiled: CompiledKernel) -> Trial:
    """A trial of the clock kernel; its work is cycles, so that its rate is in Hz."""
    return Trial(compiled=compiled, states=(np.array([3, 5], dtype=np.uint64),))


class CoreToCoreTimer:
    """Core-to-core latency between two pinned threads, by a compiled `core_to_core_kernel`."""

    def __init__(self, compiled: CompiledKernel) -> None:
        self._line = aligned(_LINE_BYTE, _LINE_BYTE)
        self._states = tuple(aligned(CORE_TO_CORE_STATE_BYTE, _LINE_BYTE) for _ in range(2))
        for state in self._states:
            state.view(np.uint64)[0] = self._line.ctypes.data
        self._trial = Trial(compiled=compiled, states=self._states, repeats=CORE_TO_CORE_TURNS)

    def __call__(self, workers: PinnedThreads) -> float | None:
        """Seconds of a hop, after one burst that is not counted; None: a thread lost its CPU."""
        self._line[:] = 0
        for number, state in enumerate(self._states):
            state[TURN_BYTE:] = 0
            state[TURN_BYTE:].view(np.uint64)[0] = number
        bursts = self._trial.run(workers, 1)
        if not bursts or any(state[FAILED_BYTE:].view(np.uint64)[0] for state in self._states):
            return None
        # The work of a trial is that of all its threads; a journey has both.
        return bursts[0].wall_s / (self._trial.work_per_burst / self._trial.threads)


@contextmanager
def pace_gauge(
    cores: Sequence[int], *, clock: Callable[[], float] = time.perf_counter
) -> Generator[Callable[[], Pace]]:
    """Reads the pace of `cores` whenever it is called; what cannot be read here stays unknown.

    Takes less than a millisecond. The clock is that of the core which the calling thread runs on,
    the hop that between the first two of `cores`, one for each physical core.
    """
    kernels = compile_gauge()
    if kernels is None:
        yield Pace
        return
    ticking, hopping = kernels
    trial = clock_trial(ticking)
    state, cycles = trial.states[0], ticking.kernel.work(_ITERATIONS)

    def clock_hz() -> float:
        best_s = float("inf")
        for _ in range(_BURSTS):
            start_s = clock()
            ticking.call(state.ctypes.data, 0, _ITERATIONS)
            best_s = min(best_s, clock() - start_s)
        return cycles / best_s

    with contextlib.ExitStack() as stack:
        workers = None
        if len(cores) > 1:
            # Where the system does not give two threads, the latency is not known.
            with contextlib.suppress(MeasurementError):
                workers = stack.enter_context(PinnedThreads(2, tuple(cores[:2])))
        timer = CoreToCoreTimer(hopping)

        def core_to_core_latency_s() -> float | None:
            if workers is None or not workers.pinned:
                return None
            core_to_core_s = [each for _ in range(_HOPS) if (each := timer(workers)) is not None]
            return statistics.median(core_to_core_s) if core_to_core_s else None

        yield lambda: Pace(clock_hz=clock_hz(), core_to_core_latency_s=core_to_core_latency_s())


@functools.cache
def compile_gauge() -> tuple[CompiledKernel, CompiledKernel] | None:
    """The clock and the hop, for processes forked later too; None: nothing can be compiled."""
    if architecture() not in ("x86_64", "aarch64") or not is_available():
        return None
    here = cast("Architecture", architecture())
    try:
        return compile_kernel(clock_kernel(here)), compile_kernel(core_to_core_kernel(here))
    except MeasurementError:
        return None
