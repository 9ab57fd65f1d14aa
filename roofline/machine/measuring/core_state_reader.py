"""Clock and core-to-core latency, as trials and read between measurements."""

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
from roofline.machine.core_state import CoreState
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
from roofline.machine.system.host import architecture

_LINE_BYTE = 128  # the largest cache line
_ITERATIONS = 1000  # some 25 µs per burst
_BURSTS = 4  # the fastest counts

_READINGS = 3


def clock_trial(compiled: CompiledKernel) -> Trial:
    """Return a trial of the clock kernel; its work is cycles, so its rate is in Hz."""
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
        """Return the latency in seconds, after a warm-up burst; None: a thread lost its CPU."""
        self._line[:] = 0
        for number, state in enumerate(self._states):
            state[TURN_BYTE:] = 0
            state[TURN_BYTE:].view(np.uint64)[0] = number
        bursts = self._trial.run(workers, 1)
        if not bursts or any(state[FAILED_BYTE:].view(np.uint64)[0] for state in self._states):
            return None
        # The work is that of both threads; a transfer involves both.
        return bursts[0].wall_s / (self._trial.work_per_burst / self._trial.threads)


@contextmanager
def core_state_reader(
    cores: Sequence[int], *, clock: Callable[[], float] = time.perf_counter
) -> Generator[Callable[[], CoreState]]:
    """Yield a function that reads the core state of `cores` in less than a millisecond.

    The clock is that of the calling thread's core, the latency that between the first two of
    `cores`, one per physical core. Unreadable values are unknown.
    """
    kernels = compile_core_state_kernels()
    if kernels is None:
        yield CoreState
        return
    ticks, transfers = kernels
    trial = clock_trial(ticks)
    state, cycles = trial.states[0], ticks.kernel.work(_ITERATIONS)

    def clock_hz() -> float:
        best_s = float("inf")
        for _ in range(_BURSTS):
            start_s = clock()
            ticks.call(state.ctypes.data, 0, _ITERATIONS)
            best_s = min(best_s, clock() - start_s)
        return cycles / best_s

    with contextlib.ExitStack() as stack:
        workers = None
        if len(cores) > 1:
            # Unknown without a second thread.
            with contextlib.suppress(MeasurementError):
                workers = stack.enter_context(PinnedThreads(2, tuple(cores[:2])))
        timer = CoreToCoreTimer(transfers)

        def core_to_core_latency_s() -> float | None:
            if workers is None or not workers.pinned:
                return None
            core_to_core_s = [
                each for _ in range(_READINGS) if (each := timer(workers)) is not None
            ]
            return statistics.median(core_to_core_s) if core_to_core_s else None

        yield lambda: CoreState(
            clock_hz=clock_hz(), core_to_core_latency_s=core_to_core_latency_s()
        )


@functools.cache
def compile_core_state_kernels() -> tuple[CompiledKernel, CompiledKernel] | None:
    """Return both kernels, also for forked processes; None if they cannot be compiled."""
    if architecture() not in ("x86_64", "aarch64") or not is_available():
        return None
    here = cast("Architecture", architecture())
    try:
        return compile_kernel(clock_kernel(here)), compile_kernel(core_to_core_kernel(here))
    except MeasurementError:
        return None
