"""Exploration of the memory hierarchy before measuring its bandwidths: curves, then cache sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roofline.core.progress import Progress
from roofline.core.text import counted
from roofline.errors import MeasurementError
from roofline.machine.hardware import BandwidthCurve, LatencyCurve
from roofline.machine.hierarchy.cache_sizes import Hierarchy, ends_in_cache, find_levels
from roofline.machine.hierarchy.curves import (
    CYCLE_BYTE,
    Bandwidths,
    Latencies,
    Timing,
    extend_latencies,
    measure_bandwidths,
    measure_latencies,
)
from roofline.machine.hierarchy.working_sets import note_instances
from roofline.machine.kernels import pointer_chase
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.measuring.estimation import BURST_S, Burst, Quantity, Series
from roofline.machine.measuring.pinned_threads import Array, PinnedThreads, allocate, fill
from roofline.machine.measuring.trials import Shape, Trial, memory_trial
from roofline.machine.system.topology import Topology

_CURVE_BURST_S = 0.5 * BURST_S
"""Short, because of many sizes, but long against the clock overhead and 1000 memory loads."""

_CHASE_BURSTS = 3
_READ_BURSTS = 1

_WARM_PASSES = 5
_LEAST_WARM_PASSES = 2
_WARM_BYTE = 192 << 20
"""Last-level caches of AMD keep little before the third pass. Larger working sets are not cached,
and need fewer passes."""

_PAGE_LINES = 4096 // pointer_chase.LINE_BYTE

_FIRST_RATE = 4e8
"""Expected loads per second (of 64 bytes) of the first size."""


class _SizeTimer:
    """Times working sets of any size in bursts of equal duration."""

    def __init__(self, workers: PinnedThreads, bursts: int) -> None:
        self._workers = workers
        self._bursts = bursts
        self._per_s: dict[int, float] = {}

    def _timing(self, size: int, trial: Trial) -> Timing:
        """Return bursts, sized by the rate at the nearest smaller size."""
        smaller = [each for each in self._per_s if each <= size]
        nearest = max(smaller, default=min(self._per_s, default=0))
        trial.repeats = 1
        work = self._per_s.get(nearest, _FIRST_RATE) * _CURVE_BURST_S
        trial.repeats = max(1, round(work / trial.work_per_burst))
        bursts = trial.run(self._workers, self._bursts)
        shortest_s = min((burst.cpu_s for burst in bursts), default=0.0)
        if shortest_s > 0:
            self._per_s[size] = trial.work_per_burst / shortest_s
        return Timing(work=trial.work_per_burst, bursts=tuple(bursts))


class ChaseTimer(_SizeTimer):
    """Times the pointer chase on the first of `workers`, which has initialized `buffer`.

    A cycle is written once per size and kept, so that sizes can be interleaved. The working set is
    read once before its bursts.
    """

    def __init__(self, compiled: CompiledKernel, workers: PinnedThreads, buffer: Array) -> None:
        super().__init__(workers, _CHASE_BURSTS)
        self._compiled = compiled
        self._buffer = buffer
        # Lines in use per slot; a line has a pointer for each slot.
        self._used = [0] * pointer_chase.SLOTS
        self._trials: dict[int, tuple[Array, Trial]] = {}

    def __call__(self, size_bytes: int) -> Timing:
        """Return bursts over a working set; raise ValueError if the buffer is full."""
        if size_bytes not in self._trials:
            self._trials[size_bytes] = self._prepare(size_bytes)
        memory, trial = self._trials[size_bytes]
        self._workers.each(lambda i: _read_through(memory), 1)
        return self._timing(size_bytes, trial)

    def _prepare(self, size_bytes: int) -> tuple[Array, Trial]:
        lines, room = (
            size_bytes // pointer_chase.LINE_BYTE,
            self._buffer.size // pointer_chase.LINE_BYTE,
        )
        slot = next((i for i, used in enumerate(self._used) if used + lines <= room), None)
        if slot is None:
            raise ValueError(f"no room for a cycle of {lines} lines in {room}")
        first = self._used[slot]
        self._used[slot] = -(-(first + lines) // _PAGE_LINES) * _PAGE_LINES
        memory = self._buffer[
            first * pointer_chase.LINE_BYTE : (first + lines) * pointer_chase.LINE_BYTE
        ]
        order = pointer_chase.random_order(lines, most=CYCLE_BYTE // pointer_chase.LINE_BYTE)
        self._workers.each(lambda i: pointer_chase.write_cycle(memory, slot, order), 1)
        state = np.zeros(pointer_chase.STATE_BYTE, dtype=np.uint8)
        address = memory.ctypes.data + int(order[0]) * pointer_chase.LINE_BYTE + slot * 8
        state.view(np.uint64)[0] = address
        return memory, Trial(
            compiled=self._compiled,
            states=(state,),
            buffers=(self._buffer,),
            shape=lambda repeats: Shape(1, repeats * pointer_chase.UNROLL, 0),
        )


class ReadTimer(_SizeTimer):
    """Times a stream kernel on pinned threads, at the start of the buffer of each.

    A burst repeats over the whole working set until it is long enough.
    """

    def __init__(
        self, compiled: CompiledKernel, workers: PinnedThreads, buffers: Sequence[Array]
    ) -> None:
        super().__init__(workers, _READ_BURSTS)
        self._compiled = compiled
        self._buffers = buffers

    def __call__(self, size_bytes: int) -> Timing:
        """Return bursts over a working set of `size_bytes` per thread, all streams."""
        trial = memory_trial(self._compiled, size_bytes, self._buffers, again=True)
        return self._timing(size_bytes, trial)


def _read_through(memory: Array) -> None:
    """Read every line, to bring it to its level."""
    words = memory.view(np.uint64)[:: pointer_chase.SLOTS]
    for _ in range(max(_LEAST_WARM_PASSES, min(_WARM_PASSES, _WARM_BYTE // memory.size))):
        np.add.reduce(words)


_LATENCY_SHARE = 0.5
"""Share of the time for the latency curve; the rest is for each team's bandwidth curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploredHierarchy:
    """The hierarchy, its curves, and their samples."""

    hierarchy: Hierarchy
    latency_curve: LatencyCurve | None
    bandwidth_curves: tuple[BandwidthCurve, ...]
    series: tuple[Series, ...]
    conditions: tuple[str, ...]


def explore(
    workers: PinnedThreads,
    chase: CompiledKernel | None,
    read: CompiledKernel | None,
    topology: Topology,
    teams: Sequence[int],
    *,
    largest_bytes: int,
    max_bytes: int | None = None,
    budget_s: float,
    clock: Callable[[], float],
    report: Progress,
) -> ExploredHierarchy:
    """Measure the curves in about `budget_s` seconds and return the caches.

    Curves end at `largest_bytes` on all threads. A latency curve that ends in a cache is extended
    up to `max_bytes` (None: not), beyond the budget.
    """
    begin = clock()
    report(0.0, "allocating memory for curves")
    memory = [_written(workers, largest_bytes)]
    conditions: list[str] = []
    latencies: Latencies | None = None
    if chase is not None:
        report(0.0, "latency of random loads over the working set")
        try:
            latencies = measure_latencies(
                ChaseTimer(chase, workers, memory[0]),
                largest_bytes=largest_bytes,
                deadline=begin + _LATENCY_SHARE * budget_s,
                clock=clock,
            )
            latencies = _extended(
                latencies,
                chase,
                workers,
                memory,
                max_bytes or largest_bytes,
                clock,
                conditions,
            )
        except MeasurementError as error:
            conditions.append(f"cache sizes not measured: {error}")
    memory += [allocate(memory[0].size // workers.threads) for _ in range(1, workers.threads)]
    workers.each(lambda i: fill(memory[i], lambda: workers.stopped) if i else None)
    bandwidths: list[Bandwidths] = []
    for number, team in enumerate(teams if read else (), start=1):
        assert read is not None and isinstance(read.kernel, StreamKernel)
        report(0.0, f"read bandwidth over the working set, {counted(team, 'thread')}")
        share = _LATENCY_SHARE + (1 - _LATENCY_SHARE) * number / len(teams)
        try:
            found = measure_bandwidths(
                ReadTimer(read, workers, memory[:team]),
                kernel=read.kernel.name,
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
    used = topology.cores[: workers.threads] or tuple(range(workers.threads))
    hierarchy = replace(
        hierarchy, levels=tuple(note_instances(each, used) for each in hierarchy.levels)
    )
    series = [
        _point(f"latency of {size} byte", "load", 1, seconds)
        for size, seconds in (latencies.samples.items() if latencies else ())
    ]
    for found in bandwidths:
        on = f"byte per thread, {found.curve.threads} threads"
        series += [
            _point(f"{found.curve.kernel} of {size} {on}", "byte", size, [size / r for r in rates])
            for size, rates in found.samples.items()
        ]
    return ExploredHierarchy(
        hierarchy=hierarchy,
        latency_curve=latencies.curve if latencies else None,
        bandwidth_curves=tuple(each.curve for each in bandwidths),
        series=tuple(series),
        conditions=(*hierarchy.conditions, *conditions),
    )


def _point(label: str, quantity: Quantity, work: float, walls_s: Iterable[float]) -> Series:
    """Return the samples of one curve size, as rates without CPU times."""
    bursts = tuple(Burst(wall_s=each, cpu_s=math.nan, busy=math.nan) for each in walls_s)
    return Series(label=label, quantity=quantity, work=work, bursts=bursts)


def _written(workers: PinnedThreads, byte: int) -> Array:
    memory = allocate(byte)
    workers.each(lambda i: fill(memory, lambda: workers.stopped), 1)
    return memory


def _extended(
    latencies: Latencies,
    chase: CompiledKernel,
    workers: PinnedThreads,
    memory: list[Array],
    max_bytes: int,
    clock: Callable[[], float],
    conditions: list[str],
) -> Latencies:
    """Return the curve extended beyond the caches, or to `max_bytes`; `memory` grows."""
    in_cache = ends_in_cache(latencies)
    while in_cache and memory[0].size < max_bytes:
        in_cache = ends_in_cache(latencies)
        end = min(2 * memory[0].size, max_bytes)
        try:
            memory[0] = _written(workers, end)
            latencies = extend_latencies(
                latencies,
                ChaseTimer(chase, workers, memory[0]),
                largest_bytes=end,
                clock=clock,
            )
        except MeasurementError as error:
            conditions.append(f"latency curve not extended: {error}")
            break
    return latencies
