"""The memory hierarchy, found before anything is measured in it: curves, then cache sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roofline.errors import MeasurementError
from roofline.foundation.progress import Progress
from roofline.foundation.text import counted
from roofline.machine.hardware import BandwidthCurve, LatencyCurve
from roofline.machine.hierarchy.cache_sizes import Hierarchy, ends_in_a_cache, find_levels
from roofline.machine.hierarchy.curves import (
    CYCLE_BYTE,
    Bandwidths,
    Latencies,
    Timing,
    extend_latencies,
    measure_bandwidths,
    measure_latencies,
)
from roofline.machine.hierarchy.working_sets import with_instances
from roofline.machine.kernels import chase
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.stream import StreamKernel, stream_state
from roofline.machine.measuring.crew import Array, Crew, allocate, fill, lay_out
from roofline.machine.measuring.estimation import BURST_S, Burst, Quantity, Series
from roofline.machine.measuring.trials import Shape, Trial
from roofline.machine.system.topology import Topology

_CURVE_BURST_S = 0.5 * BURST_S
"""There are many sizes; this is still long against the clock's cost, and 1000 loads from memory."""

_CHASE_BURSTS = 3
_READ_BURSTS = 1

_WARM_PASSES = 5
_LEAST_WARM_PASSES = 2
_WARM_BYTE = 192 << 20
"""What one pass reads, last caches need not keep: those of AMD hold little of it before the third.
A working set of this size and more cannot be held, and fewer passes do."""

_PAGE_LINES = 4096 // chase.LINE_BYTE

_FIRST_RATE = 4e8
"""Loads per second that the first size is expected to take, and 64 bytes each; then it is known."""


class _Paces:
    """How fast sizes went, so that a burst of the next one takes about as long as wanted."""

    def __init__(self) -> None:
        self._per_s: dict[int, float] = {}

    def expected(self, size: int) -> float:
        """The rate at `size`, or at the nearest smaller size that was timed."""
        if not self._per_s:
            return _FIRST_RATE
        smaller = [each for each in self._per_s if each <= size]
        return self._per_s[max(smaller, default=min(self._per_s))]

    def timing(self, size: int, trial: Trial, bursts: Sequence[Burst]) -> Timing:
        """What was timed at `size`, whose rate is kept."""
        shortest_s = min((burst.cpu_s for burst in bursts), default=0.0)
        if shortest_s > 0:
            self._per_s[size] = trial.work_per_burst / shortest_s
        return Timing(work=trial.work_per_burst, bursts=tuple(bursts))


class ChaseTimer:
    """Times the pointer chase on the first worker of `crew`, in `buffer`.

    A cycle is written when its size is first asked for; all stay, so that sizes can take turns.
    Before its bursts a working set is read through, from one end to the other.

    Args:
        compiled: a `ChaseKernel`.
        crew: of one worker at least.
        buffer: written before by that worker, and as large as the largest working set.
    """

    def __init__(self, compiled: CompiledKernel, crew: Crew, buffer: Array) -> None:
        self._compiled = compiled
        self._crew = crew
        self._buffer = buffer
        # Lines that each slot's cycles take: as many lie one on another as a line has pointers.
        self._used = [0] * chase.SLOTS
        self._trials: dict[int, tuple[Array, Trial]] = {}
        self._paces = _Paces()

    def __call__(self, size_bytes: int) -> Timing:
        """Bursts over a working set; a ValueError if it does not fit beside those before it."""
        if size_bytes not in self._trials:
            self._trials[size_bytes] = self._prepare(size_bytes)
        memory, trial = self._trials[size_bytes]
        loads = self._paces.expected(size_bytes) * _CURVE_BURST_S
        trial.repeats = max(1, round(loads / chase.UNROLL))
        self._crew.each(lambda i: _read_through(memory), 1)
        bursts = trial.run(self._crew, _CHASE_BURSTS)
        return self._paces.timing(size_bytes, trial, bursts)

    def _prepare(self, size_bytes: int) -> tuple[Array, Trial]:
        lines, room = size_bytes // chase.LINE_BYTE, self._buffer.size // chase.LINE_BYTE
        slot = next((i for i, used in enumerate(self._used) if used + lines <= room), None)
        if slot is None:
            raise ValueError(f"no room for another cycle of {lines} lines among {room}")
        first = self._used[slot]
        self._used[slot] = -(-(first + lines) // _PAGE_LINES) * _PAGE_LINES
        memory = self._buffer[first * chase.LINE_BYTE : (first + lines) * chase.LINE_BYTE]
        order = chase.random_order(lines, most=CYCLE_BYTE // chase.LINE_BYTE)
        self._crew.each(lambda i: chase.write_cycle(memory, slot, order), 1)
        state = np.zeros(chase.STATE_BYTE, dtype=np.uint8)
        address = memory.ctypes.data + int(order[0]) * chase.LINE_BYTE + slot * 8
        state.view(np.uint64)[0] = address
        trial = Trial(
            compiled=self._compiled,
            states=(state,),
            buffers=(self._buffer,),
            shape=lambda repeats: Shape(1, repeats * chase.UNROLL, 0),
            work=lambda length: length,
        )
        return memory, trial


class ReadTimer:
    """Times a stream kernel on the first `threads` workers of `crew`, at the start of `buffers`.

    Every burst goes over the whole of each thread's working set, again and again until it has
    taken long enough.

    Args:
        compiled: the `kernel`, compiled.
        kernel: what is run.
        crew: of `threads` workers at least.
        buffers: one per worker, written before by it.
        threads: how many workers go over a working set of the same size, each its own.
    """

    def __init__(
        self,
        compiled: CompiledKernel,
        kernel: StreamKernel,
        crew: Crew,
        buffers: Sequence[Array],
        threads: int,
    ) -> None:
        self._compiled = compiled
        self._kernel = kernel
        self._crew = crew
        self._buffers = tuple(buffers[:threads])
        self._paces = _Paces()

    def __call__(self, size_bytes: int) -> Timing:
        """Bursts over a working set of so many bytes per thread, all streams together."""
        kernel = self._kernel
        layout = lay_out(size_bytes, kernel.streams, kernel.block_bytes)
        trial = Trial(
            compiled=self._compiled,
            threads=len(self._buffers),
            states=tuple(
                stream_state(tuple(buffer.ctypes.data + start for start in layout.starts), 1.0)
                for buffer in self._buffers
            ),
            buffers=self._buffers,
            shape=lambda repeats: Shape(repeats, layout.length, layout.length),
            work=kernel.byte,
        )
        byte = self._paces.expected(size_bytes) * _CURVE_BURST_S
        trial.repeats = max(1, round(byte / trial.work_per_burst))
        bursts = trial.run(self._crew, _READ_BURSTS)
        return self._paces.timing(size_bytes, trial, bursts)


def _read_through(memory: Array) -> None:
    """Brings every line to the level that holds it."""
    words = memory.view(np.uint64)[:: chase.SLOTS]
    for _ in range(max(_LEAST_WARM_PASSES, min(_WARM_PASSES, _WARM_BYTE // memory.size))):
        np.add.reduce(words)


_LATENCY_SHARE = 0.5
"""Of the time for curves; each team's bandwidth curve has an equal share of the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """The hierarchy, the curves that show it, and the samples behind them."""

    hierarchy: Hierarchy
    latency_curve: LatencyCurve | None
    bandwidth_curves: tuple[BandwidthCurve, ...]
    series: tuple[Series, ...]
    conditions: tuple[str, ...]


def explore(
    crew: Crew,
    pointer_chase: CompiledKernel | None,
    read: CompiledKernel | None,
    topology: Topology,
    teams: Sequence[int],
    *,
    largest_bytes: int,
    max_bytes: int | None = None,
    budget_s: float,
    clock: Callable[[], float],
    report: Progress,
) -> Explored:
    """Measures the curves in about `budget_s` seconds and finds the caches in them.

    It takes longer where the latency curve still ends in a cache and is extended.

    Args:
        crew: of as many workers as the largest team.
        pointer_chase: a pointer chase; None: latencies stay unknown.
        read: a kernel that reads; None: the host has no vectors.
        topology: what the operating system reports.
        teams: numbers of threads; latency is that of one.
        largest_bytes: where the curves end, on all threads together.
        max_bytes: how far they may be extended (None: not at all).
        budget_s: seconds, by `clock`.
        clock: seconds.
        report: told what is measured next.
    """
    begin = clock()
    report(0.0, "allocating memory for curves")
    memory = [_written(crew, largest_bytes)]
    conditions: list[str] = []
    latencies: Latencies | None = None
    bandwidths: list[Bandwidths] = []
    if pointer_chase is not None:
        report(0.0, "latency of random loads, by working set")
        try:
            latencies = measure_latencies(
                ChaseTimer(pointer_chase, crew, memory[0]),
                largest_bytes=largest_bytes,
                deadline=begin + _LATENCY_SHARE * budget_s,
                clock=clock,
            )
        except MeasurementError as error:
            conditions.append(f"cache sizes could not be looked for: {error}")
    if pointer_chase is not None and latencies is not None:
        latencies = _extended(
            latencies, pointer_chase, crew, memory, max_bytes or largest_bytes, clock, conditions
        )
    # And memory of every other worker.
    memory += [allocate(memory[0].size // crew.threads) for _ in range(1, crew.threads)]
    crew.each(lambda i: fill(memory[i], lambda: crew.stopped) if i else None)
    for number, team in enumerate(teams, start=1):
        kernel = read.kernel if read else None
        if read is None or not isinstance(kernel, StreamKernel):
            break
        report(0.0, f"read bandwidth by working set, {counted(team, 'thread')}")
        share = _LATENCY_SHARE + (1 - _LATENCY_SHARE) * number / len(teams)
        try:
            found = measure_bandwidths(
                ReadTimer(read, kernel, crew, memory, team),
                kernel=kernel.name,
                threads=team,
                largest_bytes=min(each.size for each in memory[:team]),
                deadline=begin + share * budget_s,
                clock=clock,
            )
        except MeasurementError as error:
            conditions.append(f"no bandwidth curve on {team} threads: {error}")
            continue
        bandwidths.append(found)
    hierarchy = find_levels(latencies, topology)
    used = topology.cores[: crew.threads] or tuple(range(crew.threads))
    hierarchy = replace(
        hierarchy, levels=tuple(with_instances(each, used) for each in hierarchy.levels)
    )
    series: list[Series] = []
    for size, seconds in latencies.samples.items() if latencies else ():
        series.append(_point(f"latency of {size} byte", "load", 1, seconds))
    for found in bandwidths:
        on = f"byte per thread, {found.curve.threads} threads"
        for size, rates in found.samples.items():
            label = f"{found.curve.kernel} of {size} {on}"
            series.append(_point(label, "byte", size, (size / each for each in rates)))
    return Explored(
        hierarchy=hierarchy,
        latency_curve=latencies.curve if latencies else None,
        bandwidth_curves=tuple(each.curve for each in bandwidths),
        series=tuple(series),
        conditions=(*hierarchy.conditions, *conditions),
    )


def _point(label: str, quantity: Quantity, work: float, walls_s: Iterable[float]) -> Series:
    """The samples of a size of a curve: their rate, not the CPU time of their bursts."""
    bursts = tuple(Burst(wall_s=each, cpu_s=math.nan, busy=math.nan) for each in walls_s)
    return Series(label=label, quantity=quantity, work=work, bursts=bursts)


def _written(crew: Crew, byte: int) -> Array:
    """Memory of the first worker."""
    memory = allocate(byte)
    crew.each(lambda i: fill(memory, lambda: crew.stopped), 1)
    return memory


def _extended(
    latencies: Latencies,
    pointer_chase: CompiledKernel,
    crew: Crew,
    memory: list[Array],
    max_bytes: int,
    clock: Callable[[], float],
    conditions: list[str],
) -> Latencies:
    """The curve up to where it left the caches an octave ago, or to `max_bytes`.

    `memory` is given back for a larger one each time; what prevents that is told in `conditions`.
    """
    in_cache = ends_in_a_cache(latencies)
    while in_cache and memory[0].size < max_bytes:
        in_cache = ends_in_a_cache(latencies)
        end = min(2 * memory[0].size, max_bytes)
        try:
            memory[0] = _written(crew, end)
            latencies = extend_latencies(
                latencies,
                ChaseTimer(pointer_chase, crew, memory[0]),
                largest_bytes=end,
                clock=clock,
            )
        except MeasurementError as error:
            conditions.append(f"the latency curve could not be extended: {error}")
            break
    return latencies
