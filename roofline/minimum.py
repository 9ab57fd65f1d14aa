"""Minimum times of a pass in fused kernels, and of any run of the same function.

The eager minimum time is the sum of the operators' bounds (`placement`). The *fused* one is the sum
over kernels, as the rules of `workload.fusion` make them, each under the hierarchical roofline. The
*model* minimum is the largest of all arithmetic and of all bytes of each memory level, whatever
kernels there are and in whatever order they run (`workload.rewritings`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roofline.placement import Bound, Placement, Roof
from roofline.workload.dataflow import Dataflow
from roofline.workload.fusion import FusedOperator, fused_records
from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import Reuse, trace_residency
from roofline.workload.rewritings import ModelWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """A minimum time in seconds, the ceiling that sets it (the most of it), and its kind."""

    time_s: float
    ceiling: str
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumTimes:
    """The minimum times of one pass.

    ``kernels_s`` are the seconds of every fused kernel, by the position of its first operator. They
    add up to ``fused``, unless the model minimum is longer than that.
    """

    fused: Minimum
    model: Minimum
    kernels_s: Mapping[int, float]


def minimum_times(
    placements: Sequence[Placement],
    fused: Sequence[FusedOperator],
    work: ModelWork,
    roof: Roof,
    *,
    flow: Dataflow | None = None,
    cold: bool = False,
) -> MinimumTimes | None:
    """The fused and the model minimum of a pass: model ≤ fused ≤ eager.

    ``cold``: nothing is in the caches when it begins. None: the machine has no ceilings.
    """
    eager = [each.eager_min_time_s for each in placements]
    eager_s = sum(each for each in eager if each is not None)
    if not roof.levels or None in eager:
        return None
    model = model_minimum(work, roof, cold=cold)
    kernels = kernel_minimums(placements, fused, roof, flow=flow, cold=cold)
    by_ceiling: dict[tuple[str, Bound], float] = {}
    for each in kernels.values():
        key = (each.ceiling, each.bound)
        by_ceiling[key] = by_ceiling.get(key, 0.0) + each.time_s
    ceiling, bound = max(by_ceiling, key=lambda key: by_ceiling[key], default=("", Bound.FREE))
    # Neither is longer but for rounding (sums in another order): no kernel is longer than its
    # operators, and all bytes that a pass must touch are among those that its operators move.
    fused_s = min(eager_s, sum(each.time_s for each in kernels.values()))
    model = replace(model, time_s=min(eager_s, model.time_s))
    # No run beats the model minimum, so none that a compiler fused does. Kernels may come to less:
    # each is held to its operators, and parts of one result count as one that is touched again.
    of_fused = Minimum(time_s=fused_s, ceiling=ceiling, bound=bound)
    if model.time_s > fused_s:
        of_fused = model
    return MinimumTimes(
        fused=of_fused,
        model=model,
        kernels_s={chain: each.time_s for chain, each in kernels.items()},
    )


def kernel_minimums(
    placements: Sequence[Placement],
    fused: Sequence[FusedOperator],
    roof: Roof,
    *,
    flow: Dataflow | None = None,
    cold: bool = False,
) -> dict[int, Minimum]:
    """The least time of every fused kernel, by the position of its first operator."""
    records = [each.record for each in placements]
    kernels = fused_records(records, fused, flow)
    reuse = trace_residency([kernel for _, kernel in kernels])
    found: dict[int, Minimum] = {}
    for (members, kernel), reuses in zip(
        kernels, reuse.cold if cold else reuse.steady, strict=True
    ):
        traffic_bytes = sum(fused[index].traffic_bytes for index in members)
        done = [records[index] for index in members if fused[index].is_executed]
        minimum = _kernel_minimum(done, kernel, reuses, traffic_bytes, roof)
        eager_s = sum(placements[index].eager_min_time_s or 0.0 for index in members)
        # A run that does not fuse these may be faster: results then take memory that values inside
        # the kernel have left in a cache; and reads pass for stores that stay there, which are
        # faster.
        found[members[0]] = replace(minimum, time_s=min(eager_s, minimum.time_s))
    return found


def _kernel_minimum(
    done: Iterable[OperatorRecord],
    kernel: OperatorRecord,
    reuses: Iterable[Reuse],
    traffic_bytes: int,
    roof: Roof,
) -> Minimum:
    """The least time of operators that run as one kernel: their arithmetic, or what they move.

    `kernel` is what crosses memory, `reuses` how far back that was touched, `traffic_bytes` all of
    it, which is what a machine is charged of which only one level is known. What is unknown of the
    arithmetic takes nothing.
    """
    # Units beside each other may work at once, and products beside other arithmetic.
    compute = _of_compute(
        ((ceiling.unit, bool(is_any)), time_s, ceiling.label)
        for record in done
        for is_any, (time_s, ceiling) in enumerate(roof.compute_times(record) or ())
    )
    level_bytes = roof.level_bytes(reuses)
    if roof.profile.knows_only_dram:
        level_bytes = {roof.profile.memory[0].name: traffic_bytes}
    level_bytes = {name: min(byte, traffic_bytes) for name, byte in level_bytes.items()}
    memory_s, level = roof.memory_bound(level_bytes, sum(each.byte for each in kernel.outputs))
    memory = Minimum(
        time_s=memory_s or 0.0, ceiling=level.label if level else "", bound=Bound.MEMORY
    )
    return max([*compute, memory], key=lambda each: each.time_s)


def _of_compute(parts: Iterable[tuple[Hashable, float, str]]) -> list[Minimum]:
    """Seconds of arithmetic, with their ceilings, summed for each of the units that may overlap."""
    seconds: dict[Hashable, float] = {}
    labels: dict[Hashable, str] = {}
    for unit, time_s, label in parts:
        seconds[unit] = seconds.get(unit, 0.0) + time_s
        labels[unit] = label
    return [
        Minimum(time_s=seconds[unit], ceiling=labels[unit], bound=Bound.COMPUTE) for unit in seconds
    ]


def model_minimum(work: ModelWork, roof: Roof, *, cold: bool = False) -> Minimum:
    """The least time of any run: all products, or all bytes of one memory level.

    A product of whose type no ceiling is known takes nothing. ``cold``: nothing is in the caches
    when the pass begins; else each level has what it can hold of the bytes in it.
    """
    # Units beside each other may work at once.
    found = _of_compute(
        (
            ceiling.unit,
            roof.least_share(record) * min_flop / ceiling.flop_per_s,
            ceiling.label,
        )
        for record, min_flop in work.products
        if (ceiling := roof.ceilings_of(record)[0]) is not None
    )
    crossing = work.read_bytes + work.written_bytes
    level_bytes: dict[str, int] = {}
    for level, held_bytes in zip(roof.profile.memory, roof.held_bytes, strict=True):
        level_bytes[level.name] = crossing
        if not cold and held_bytes is not None:
            crossing = max(0, work.read_bytes + work.written_bytes - held_bytes)
    memory_s, slowest = roof.memory_bound(level_bytes, work.written_bytes)
    if memory_s and slowest is not None:
        found.append(Minimum(time_s=memory_s, ceiling=slowest.label, bound=Bound.MEMORY))
    nothing = Minimum(time_s=0.0, ceiling="", bound=Bound.FREE)
    return max(found, key=lambda each: each.time_s, default=nothing)
