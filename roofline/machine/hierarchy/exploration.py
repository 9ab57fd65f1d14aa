"""The memory hierarchy, found before anything is measured in it: curves, then cache sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roofline.errors import MeasurementError
from roofline.machine.hardware import BandwidthCurve, LatencyCurve
from roofline.machine.hierarchy.cache_sizes import Hierarchy, find_levels
from roofline.machine.hierarchy.curves import (
    Bandwidths,
    Latencies,
    Samples,
    measure_bandwidths,
    measure_latencies,
)
from roofline.machine.hierarchy.sweeps import ChaseTimer, ReadTimer
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.measuring import buffers
from roofline.machine.measuring.crew import Crew
from roofline.machine.measuring.estimation import Burst
from roofline.machine.measuring.samples import Series
from roofline.machine.measuring.schedule import Progress
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
    budget_s: float,
    clock: Callable[[], float],
    report: Progress,
) -> Explored:
    """Measures the curves in about `budget_s` seconds and finds the caches in them.

    Args:
        crew: of as many workers as the largest team.
        probes: what runs.
        topology: what the operating system reports.
        teams: numbers of threads; latency is that of one.
        largest_byte: where the curves end, on all threads together.
        budget_s: seconds, by `clock`.
        clock: seconds.
        report: told what is measured next.
    """
    begin = clock()
    report(0.0, "allocating memory for curves")
    memory = [buffers.allocate(largest_byte // (1 if i == 0 else 2)) for i in range(crew.threads)]
    crew.each(lambda i: buffers.fill(memory[i], lambda: crew.stopped))
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
    for number, team in enumerate(teams, start=1):
        kernel = probes.read.kernel if probes.read else None
        if probes.read is None or not isinstance(kernel, StreamKernel):
            break
        report(0.0, f"read bandwidth by working set, {team} thread{'s' * (team != 1)}")
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


def _latency_series(samples: Samples) -> list[Series]:
    return [
        Series(
            label=f"latency of {size} byte",
            quantity="load",
            work=1,
            bursts=tuple(Burst(wall_s=each, cpu_s=each, busy=1.0) for each in values),
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
            bursts=tuple(Burst(wall_s=size / each, cpu_s=size / each, busy=1.0) for each in rates),
        )
        for size, rates in found.samples.items()
    ]
