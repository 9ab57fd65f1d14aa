"""Trials: a compiled kernel with its data, ready to run bursts on pinned threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from roofline.core.text import counted
from roofline.machine.hierarchy.working_sets import DRAM, WorkingSet
from roofline.machine.kernels.compiler import TIMES, CompiledKernel, Plan, clocks
from roofline.machine.kernels.compute import ComputeKernel
from roofline.machine.kernels.stream import StreamKernel, random_state, stream_state
from roofline.machine.measuring.estimation import (
    BURST_S,
    CALL_LIMIT_S,
    Burst,
    repeats_for,
    team_bursts,
)
from roofline.machine.measuring.pinned_threads import Array, PinnedThreads, lay_out
from roofline.machine.system.activity import minor_faults

_FACTOR = 2.0**-10
"""Factor of triad and update: small, so that values stay finite."""

_SLICE_BYTE = 1 << 16  # granularity of the memory of one burst
_ROUNDING = 1e-9  # avoids visiting a slice twice

_ATTEMPTS = 5
"""Attempts if the threads of a team never run at the same time."""


@dataclass(slots=True)
class Shape:
    """One burst: `passes` kernel calls of `length`; the next burst starts `length` later."""

    passes: int
    length: int
    period: int


@dataclass(slots=True, kw_only=True)
class Cursor:
    """Common position of trials in shared memory, as a fraction.

    Continuing where the last trial stopped avoids cache hits on its data.
    """

    fraction: float = 0.0


@dataclass(slots=True, kw_only=True)
class Trial:
    """A kernel at a memory level on pinned threads, one for each state.

    The level is None for register kernels. ``shape`` returns the burst for a number of repeats;
    ``buffers`` keeps the memory alive. ``cursor`` is the position of the next call; ``page_faults``
    counts those during timing.
    """

    compiled: CompiledKernel
    states: tuple[Array, ...]
    working_set: WorkingSet | None = None
    buffers: tuple[Array, ...] = ()
    shape: Callable[[int], Shape] = lambda repeats: Shape(1, repeats, 0)
    most_repeats: int = 1 << 40
    repeats: int = 1
    burst_s: float = BURST_S
    cursor: Cursor = field(default_factory=Cursor)
    page_faults: int = 0

    @property
    def threads(self) -> int:
        return len(self.states)

    @property
    def label(self) -> str:
        """Name in progress: ``"L2 triad avx512, 2 threads"``."""
        level = f"{self.working_set.level} " if self.working_set else ""
        return f"{level}{self.compiled.kernel.label}, {counted(self.threads, 'thread')}"

    @property
    def name(self) -> str:
        """Name in findings, without threads: ``"float32 avx512 fma"``, ``"L2 triad"``."""
        kernel = self.compiled.kernel
        if isinstance(kernel, ComputeKernel):
            return f"{kernel.dtype} {kernel.unit.name} {kernel.name}"
        if isinstance(kernel, StreamKernel) and self.working_set is not None:
            return f"{self.working_set.level} {kernel.name}"
        return kernel.label

    @property
    def place(self) -> str:
        """Level and threads: ``"DRAM on 2 threads"``, ``"compute on 1 thread"``.

        Non-temporal stores go to memory, whichever level the loads come from.
        """
        level = self.working_set.level if self.working_set else "compute"
        kernel = self.compiled.kernel
        if isinstance(kernel, StreamKernel) and kernel.non_temporal:
            level = DRAM
        return f"{level} on {counted(self.threads, 'thread')}"

    @property
    def quantity(self) -> Literal["flop", "byte", "cycle"]:
        return self.compiled.kernel.quantity

    @property
    def work_per_burst(self) -> int:
        """FLOP, bytes or cycles of one burst on all threads."""
        shape = self.shape(self.repeats)
        return self.compiled.kernel.work(shape.length) * shape.passes * self.threads

    @property
    def most_bursts(self) -> int | None:
        """Bursts per call without reuse of data; None: no limit."""
        shape = self.shape(self.repeats)
        slices = shape.period // shape.length
        return slices - 1 if slices > 1 else None

    def calibrate(self, workers: PinnedThreads) -> None:
        """Set the repeats for a burst of `BURST_S`, and its actual duration."""

        def run(repeats: int) -> float:
            self.repeats = repeats
            return self._shortest_s(workers)

        self.repeats = repeats_for(run, BURST_S, most=self.most_repeats)
        self.burst_s = self._shortest_s(workers)
        self.page_faults = 0

    def calibrate_like(self, other: Trial) -> None:
        """Scale the calibration of `other`, of the same kind."""
        mine, its = (each.work_per_burst / each.repeats / each.threads for each in (self, other))
        wanted = round(other.repeats * its / mine)
        self.repeats = max(1, min(self.most_repeats, wanted))
        self.burst_s = other.burst_s * (self.repeats * mine) / (other.repeats * its)

    def _shortest_s(self, workers: PinnedThreads) -> float:
        """Return the CPU seconds of the shortest burst, unaffected by other processes."""
        for _ in range(_ATTEMPTS):
            if bursts := self.run(workers, 2):
                return min(burst.cpu_s for burst in bursts)
        return BURST_S

    def run(self, workers: PinnedThreads, bursts: int) -> list[Burst]:
        """Run bursts, after an uncounted one that loads the data; return them."""
        shape = self.shape(self.repeats)
        address, wall_clock, cpu_clock = clocks()
        rows = bursts + 1
        slices = max(1, shape.period // shape.length) if shape.length else 1
        first = int(self.cursor.fraction * slices + _ROUNDING) % slices

        def work(i: int) -> tuple[list[list[int]], int]:
            times = np.zeros((rows, TIMES), dtype=np.int64)
            plan = Plan(
                state=self.states[i].ctypes.data,
                team=workers.team_address,
                threads=self.threads,
                bursts=rows,
                passes=shape.passes,
                length=shape.length,
                first=first * shape.length,
                period=shape.period,
                limit_ns=round(CALL_LIMIT_S * 1e9),
                clock_gettime=address,
                wall_clock=wall_clock,
                cpu_clock=cpu_clock,
                times=times.ctypes.data,
            )
            before = minor_faults()
            done = self.compiled.bench(plan)
            return times[1:done].tolist(), minor_faults() - before

        outcomes = workers.each(work, self.threads)
        self.page_faults += sum(page_faults for _, page_faults in outcomes)
        self.cursor.fraction = (first + rows) / slices % 1.0
        return team_bursts([readings for readings, _ in outcomes])


def compute_trial(compiled: CompiledKernel, threads: int) -> Trial:
    """Return a trial of a compute kernel with finite random operands."""
    kernel = compiled.kernel
    assert isinstance(kernel, ComputeKernel)
    return Trial(compiled=compiled, states=tuple(random_state(kernel) for _ in range(threads)))


def memory_trial(
    compiled: CompiledKernel, byte: int, buffers: Sequence[Array], *, again: bool
) -> Trial:
    """Return a trial of a stream kernel over `byte` bytes at the start of each worker's buffer.

    Each burst covers all of it (``again``), or the next part, so that it never reuses data.
    """
    kernel = compiled.kernel
    assert isinstance(kernel, StreamKernel)
    layout = lay_out(byte, kernel.streams, kernel.block_bytes)

    def shape(repeats: int) -> Shape:
        if again:
            return Shape(repeats, layout.length, layout.length)
        length = repeats * _SLICE_BYTE
        return Shape(1, length, layout.length // length * length)

    return Trial(
        compiled=compiled,
        states=tuple(
            stream_state(tuple(int(each.ctypes.data) + at for at in layout.starts), _FACTOR)
            for each in buffers
        ),
        buffers=tuple(buffers),
        shape=shape,
        most_repeats=1 << 40 if again else max(1, layout.length // 4 // _SLICE_BYTE),
    )


def stream_trial(
    compiled: CompiledKernel,
    working_set: WorkingSet,
    buffers: Sequence[Array],
    cursor: Cursor | None = None,
) -> Trial:
    """Return a trial over a working set; trials that share memory share a `cursor`."""
    trial = memory_trial(
        compiled,
        working_set.bytes_per_thread,
        buffers[: working_set.threads],
        again=working_set.level != DRAM,
    )
    trial.working_set = working_set
    trial.cursor = cursor or trial.cursor
    return trial
