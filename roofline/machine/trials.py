"""Trials: a compiled kernel with its data, ready to run bursts on a crew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from roofline.foundation.dtypes import DType
from roofline.machine.activity import minor_faults
from roofline.machine.buffers import Array, lay_out
from roofline.machine.crew import Crew
from roofline.machine.estimation import Burst, team_bursts
from roofline.machine.kernels import stream
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.compute import SLOT_BYTE, ComputeKernel
from roofline.machine.kernels.harness import TIMES, Plan, clocks
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.schedule import BURST_S, CALL_LIMIT_S, repeats_for
from roofline.machine.working_sets import DRAM, WorkingSet

_FACTOR = 2.0**-10
"""Of triad and update: so small that values stay finite however often kernels feed each other."""

_SLICE_BYTE = 1 << 16
"""Step in which the part of memory that one burst streams is sized."""

_MOST_REPEATS = 1 << 40

_ATTEMPTS = 5
"""A team whose threads do not get their CPUs at the same time finishes no burst; then try again."""


@dataclass(slots=True)
class Shape:
    """One burst: `passes` kernel calls of `length`, the next burst's `length` further on."""

    passes: int
    length: int
    period: int


@dataclass(slots=True, kw_only=True)
class Trial:
    """A kernel on the first `threads` workers of a crew, at a memory level (None: registers only).

    ``shape`` gives the burst for a number of repeats; ``work`` the flop or byte of one kernel call
    of a given length on one thread. ``buffers`` keeps the memory alive whose addresses are in the
    states. ``position`` is where in its streams the next call goes on; ``faults`` counts the page
    faults that happened while it was timed.
    """

    compiled: CompiledKernel
    threads: int
    working_set: WorkingSet | None
    states: tuple[Array, ...]
    buffers: tuple[Array, ...] = ()
    shape: Callable[[int], Shape]
    work: Callable[[int], int]
    most_repeats: int
    repeats: int = 1
    burst_s: float = BURST_S
    position: int = 0
    faults: int = 0
    clocks: tuple[int, int, int] = field(default_factory=clocks)

    @property
    def label(self) -> str:
        """How progress names it: ``"L2 triad avx512, 2 threads"``."""
        level = f"{self.working_set.level} " if self.working_set else ""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{level}{self.compiled.kernel.label}, {threads}"

    @property
    def work_per_burst(self) -> int:
        """Flop or byte of one burst, all threads together."""
        shape = self.shape(self.repeats)
        return self.work(shape.length) * shape.passes * self.threads

    @property
    def most_bursts(self) -> int | None:
        """Bursts in one call that come upon nothing twice; None: they shall (a level holds it)."""
        shape = self.shape(self.repeats)
        slices = shape.period // shape.length
        return slices - 1 if slices > 1 else None

    def calibrate(self, crew: Crew) -> None:
        """Finds the repeats that make a burst of `BURST_S`, and how long it really takes."""

        def run(repeats: int) -> float:
            self.repeats = repeats
            return self._shortest_s(crew)

        self.repeats = repeats_for(run, BURST_S, most=self.most_repeats)
        self.burst_s = self._shortest_s(crew)
        self.position = 0
        self.faults = 0

    def _shortest_s(self, crew: Crew) -> float:
        """CPU seconds of the shortest of a few bursts: what others do on the CPU does not count."""
        for _ in range(_ATTEMPTS):
            if bursts := self.run(crew, 2):
                return min(burst.cpu_s for burst in bursts)
        return BURST_S

    def run(self, crew: Crew, bursts: int) -> list[Burst]:
        """Runs that many bursts, after one that brings the data to its level and is not counted."""
        shape = self.shape(self.repeats)
        address, wall_clock, cpu_clock = self.clocks
        rows = bursts + 1
        if self.position + shape.length > shape.period:
            self.position = 0

        def work(i: int) -> tuple[list[list[int]], int]:
            times = np.zeros((rows, TIMES), dtype=np.int64)
            plan = Plan(
                state=self.states[i].ctypes.data,
                team=crew.team_address,
                threads=self.threads,
                bursts=rows,
                passes=shape.passes,
                length=shape.length,
                first=self.position,
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

        outcomes = crew.each(work, self.threads)
        self.faults += sum(faults for _, faults in outcomes)
        if shape.period > shape.length:
            self.position = (self.position + rows * shape.length) % shape.period
        return team_bursts([readings for readings, _ in outcomes])


def _lines(byte: int) -> Array:
    """Zeroed bytes that start on a cache line."""
    whole = np.zeros(byte + SLOT_BYTE, dtype=np.uint8)
    skip = -whole.ctypes.data % SLOT_BYTE
    return whole[skip : skip + byte]


def element_bits(values: Array, element: DType) -> Array:
    """Numbers as the bytes of float32, float64 or bfloat16 elements (cut, not rounded)."""
    if element.name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(element.name).view(np.uint8)


def compute_state(kernel: ComputeKernel, m: Array, a: Array, accumulators: Array) -> Array:
    """A kernel's state: the factors `m` and `a`, and a row per accumulator, as bytes."""
    state = _lines(kernel.state_byte)
    slots = state.reshape(-1, SLOT_BYTE)
    sums = kernel.dtype if kernel.name == "fma" else DType("float32", 32, "float")
    for slot, values, element in [
        (slots[0], m, kernel.dtype),
        (slots[1], a, kernel.dtype),
        *((slot, row, sums) for slot, row in zip(slots[2:], accumulators, strict=True)),
    ]:
        data = element_bits(values, element)
        slot[: data.size] = data
    return state


def stream_state(addresses: tuple[int, ...], factor: float) -> Array:
    """A stream kernel's state: the addresses of its streams and its factor."""
    state = _lines(stream.STATE_BYTE)
    state.view(np.uint64)[: len(addresses)] = addresses
    state[stream.FACTOR_BYTE :].view(np.float32)[0] = factor
    return state


def compute_trial(compiled: CompiledKernel, kernel: ComputeKernel, threads: int) -> Trial:
    """A trial of a compute kernel with finite random operands in registers."""
    random = np.random.default_rng(0)
    lanes = SLOT_BYTE * 8 // kernel.dtype.bits
    m, a = random.standard_normal((2, lanes)) * _FACTOR
    sums = random.standard_normal((kernel.accumulators, min(lanes, SLOT_BYTE // 4)))
    return Trial(
        compiled=compiled,
        threads=threads,
        working_set=None,
        states=tuple(compute_state(kernel, m, a, sums) for _ in range(threads)),
        shape=lambda repeats: Shape(1, repeats, 0),
        work=kernel.flop,
        most_repeats=_MOST_REPEATS,
    )


def stream_trial(
    compiled: CompiledKernel, kernel: StreamKernel, working_set: WorkingSet, buffers: list[Array]
) -> Trial:
    """A trial of a stream kernel over a working set at the start of each worker's buffer."""
    layout = lay_out(working_set.byte_per_thread, kernel.streams, kernel.block_byte)
    states = tuple(
        stream_state(tuple(_address(buffer) + start for start in layout.starts), _FACTOR)
        for buffer in buffers[: working_set.threads]
    )

    def resident(repeats: int) -> Shape:
        return Shape(repeats, layout.length, layout.length)

    def streaming(repeats: int) -> Shape:
        length = repeats * _SLICE_BYTE
        return Shape(1, length, layout.length // length * length)

    in_memory = working_set.level == DRAM
    return Trial(
        compiled=compiled,
        threads=working_set.threads,
        working_set=working_set,
        states=states,
        buffers=tuple(buffers),
        shape=streaming if in_memory else resident,
        work=kernel.byte,
        most_repeats=max(1, layout.length // 4 // _SLICE_BYTE) if in_memory else _MOST_REPEATS,
    )


def _address(buffer: Array) -> int:
    return int(buffer.ctypes.data)
