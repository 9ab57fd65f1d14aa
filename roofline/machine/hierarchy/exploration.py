"""The memory hierarchy, found before anything is measured in it: curves, then cache sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from roofline.errors import MeasurementError
from roofline.foundation.progress import Progress
from roofline.foundation.text import counted
from roofline.machine.hardware import BandwidthCurve, LatencyCurve
from roofline.machine.hierarchy.cache_levels import with_instances
from roofline.machine.hierarchy.cache_sizes import Hierarchy, ends_in_a_cache, find_levels
from roofline.machine.hierarchy.curves import (
    Bandwidths,
    Latencies,
    Samples,
    extend_latencies,
    measure_bandwidths,
    measure_latencies,
)
from roofline.machine.hierarchy.sweeps import ChaseTimer, ReadTimer
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.measuring import buffers
from roofline.machine.measuring.buffers import Array
from roofline.machine.measuring.crew import Crew
from roofline.machine.measuring.estimation import Burst
from roofline.machine.measuring.samples import Series
from roofline.machine.system.topology import Topology

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The kernels that explore: a pointer chase, and a read (None: the host has no vectors)."""

    chase: CompiledKernel | None
    read: CompiledKernel | None


def explore(
    crew: Crew,
    probes: Probes,
    topology: Topology,
    teams: Sequence[int],
    *,
    largest_byte: int,
    most_byte: int | None = None,
    budget_s: float,
    clock: Callable[[], float],
    report: Progress,
) -> Explored:
    """Measures the curves in about `budget_s` seconds and finds the caches in them.

    It takes longer where the latency curve still ends in a cache and is extended.

    Args:
        crew: of as many workers as the largest team.
        probes: what runs.
        topology: what the operating system reports.
        teams: numbers of threads; latency is that of one.
        largest_byte: where the curves end, on all threads together.
        most_byte: how far they may be extended (None: not at all).
        budget_s: seconds, by `clock`.
        clock: seconds.
        report: told what is measured next.
    """
    begin = clock()
    report(0.0, "allocating memory for curves")
    memory = [_written(crew, largest_byte)]
    conditions: list[str] = []
    latencies: Latencies | None = None
    bandwidths: list[Bandwidths] = []
    if probes.chase is not None:
        report(0.0, "latency of random loads, by working set")
        try:
            latencies = measure_latencies(
                ChaseTimer(probes.chase, crew, memory[0]),
                largest_byte=largest_byte,
                deadline=begin + _LATENCY_SHARE * budget_s,
                clock=clock,
            )
        except MeasurementError as error:
            conditions.append(f"cache sizes could not be looked for: {error}")
    if probes.chase is not None and latencies is not None:
        latencies = _extended(
            latencies, probes.chase, crew, memory, most_byte or largest_byte, clock, conditions
        )
    memory += _written_by_others(crew, memory[0].size // crew.threads)
    for number, team in enumerate(teams, start=1):
        kernel = probes.read.kernel if probes.read else None
        if probes.read is None or not isinstance(kernel, StreamKernel):
            break
        report(0.0, f"read bandwidth by working set, {counted(team, 'thread')}")
        share = _LATENCY_SHARE + (1 - _LATENCY_SHARE) * number / len(teams)
        try:
            found = measure_bandwidths(
                ReadTimer(probes.read, kernel, crew, memory, team),
                kernel=kernel.name,
                threads=team,
                largest_byte=min(each.size for each in memory[:team]),
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
    return Explored(
        hierarchy=hierarchy,
        latency_curve=latencies.curve if latencies else None,
        bandwidth_curves=tuple(each.curve for each in bandwidths),
        series=(
            *(_latency_series(latencies.samples) if latencies else ()),
            *(each for found in bandwidths for each in _bandwidth_series(found)),
        ),
        conditions=(*hierarchy.conditions, *conditions),
    )


def _written(crew: Crew, byte: int) -> Array:
    """Memory of the first worker."""
    memory = buffers.allocate(byte)
    crew.each(lambda i: buffers.fill(memory, lambda: crew.stopped), 1)
    return memory


def _written_by_others(crew: Crew, byte: int) -> list[Array]:
    """Memory of every other worker, `byte` each."""
    memory = [buffers.allocate(byte) for _ in range(1, crew.threads)]
    crew.each(lambda i: buffers.fill(memory[i - 1], lambda: crew.stopped) if i else None)
    return memory


def _extended(
    latencies: Latencies,
    chase: CompiledKernel,
    crew: Crew,
    memory: list[Array],
    most_byte: int,
    clock: Callable[[], float],
    conditions: list[str],
) -> Latencies:
    """The curve up to where it left the caches an octave ago, or to `most_byte`.

    `memory` is given back for a larger one each time; what prevents that is told in `conditions`.
    """
    in_cache = ends_in_a_cache(latencies)
    while in_cache and memory[0].size < most_byte:
        in_cache = ends_in_a_cache(latencies)
        end = min(2 * memory[0].size, most_byte)
        try:
            memory[0] = _written(crew, end)
            latencies = extend_latencies(
                latencies, ChaseTimer(chase, crew, memory[0]), largest_byte=end, clock=clock
            )
        except MeasurementError as error:
            conditions.append(f"the latency curve could not be extended: {error}")
            break
    return latencies


def _latency_series(samples: Samples) -> list[Series]:
    return [
        Series(
            label=f"latency of {size} byte",
            quantity="load",
            work=1,
            bursts=tuple(_rate_only(each) for each in values),
        )
        for size, values in samples.items()
    ]


def _bandwidth_series(found: Bandwidths) -> list[Series]:
    curve = found.curve
    return [
        Series(
            label=f"{curve.kernel} of {size} byte per thread, {curve.threads} threads",
            quantity="byte",
            work=size,
            bursts=tuple(_rate_only(size / each) for each in rates),
        )
        for size, rates in found.samples.items()
    ]


def _rate_only(wall_s: float) -> Burst:
    """A point of a curve keeps its rate, not the CPU time of its bursts."""
    return Burst(wall_s=wall_s, cpu_s=math.nan, busy=math.nan)
