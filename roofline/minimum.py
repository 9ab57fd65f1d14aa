"""Minimum times of a pass: with operator fusion, and of the same function.

The eager minimum is the sum over operators (`placement`). The *fused* one is the sum over kernels,
fused by the rules of `workload.fusion`, each under the hierarchical roofline. The *model* minimum
is the largest of all arithmetic and all bytes per memory level, for any kernels in any order
(`workload.rewritings`).
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
    """A minimum time in seconds, its limiter (the largest part), and its kind."""

    time_s: float
    ceiling: str
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumTimes:
    """Minimum times of one pass.

    ``kernels_s`` are seconds of fused kernels by the index of their first operator. They add up to
    ``fused``, unless the model minimum is longer.
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
    """Return the fused and the model minimum of a pass: model ≤ fused ≤ eager.

    ``cold``: caches are empty at the start. None: the machine has no ceilings.
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
    # Longer only by rounding: no kernel is longer than its operators, and the bytes that a pass
    # must touch are among those that its operators move.
    fused_s = min(eager_s, sum(each.time_s for each in kernels.values()))
    model = replace(model, time_s=min(eager_s, model.time_s))
    # No fused run beats the model minimum. The sum over kernels can be shorter: each kernel is
    # limited by its operators, and parts of one result count as reused.
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
    """Return the minimum time of every fused kernel, by its first operator."""
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
        # Unfused, these can be faster: results then reuse memory that is still in a cache, and
        # reads count as stores that stay there.
        found[members[0]] = replace(minimum, time_s=min(eager_s, minimum.time_s))
    return found


def _kernel_minimum(
    done: Iterable[OperatorRecord],
    kernel: OperatorRecord,
    reuses: Iterable[Reuse],
    traffic_bytes: int,
    roof: Roof,
) -> Minimum:
    """Return the minimum time of operators fused into one kernel.

    `kernel` are the tensors crossing memory, `reuses` their reuse distances, `traffic_bytes` their
    sum, charged to machines with a single known level. Unknown arithmetic takes no time.
    """
    # Units can overlap, and GEMMs with other arithmetic.
    compute = _of_compute(
        ((ceiling.unit, bool(is_any)), time_s, ceiling.label)
        for record in done
        for is_any, (time_s, ceiling) in enumerate(roof.compute_times(record) or ())
    )
    level_bytes = roof.level_bytes(reuses)
    if roof.profile.has_single_memory_level:
        level_bytes = {roof.profile.memory[0].name: traffic_bytes}
    level_bytes = {name: min(byte, traffic_bytes) for name, byte in level_bytes.items()}
    memory_s, level = roof.memory_bound(level_bytes, sum(each.byte for each in kernel.outputs))
    memory = Minimum(
        time_s=memory_s or 0.0, ceiling=level.label if level else "", bound=Bound.MEMORY
    )
    return max([*compute, memory], key=lambda each: each.time_s)


def _of_compute(parts: Iterable[tuple[Hashable, float, str]]) -> list[Minimum]:
    """Return seconds of arithmetic and ceilings, summed by units that can overlap."""
    seconds: dict[Hashable, float] = {}
    labels: dict[Hashable, str] = {}
    for unit, time_s, label in parts:
        seconds[unit] = seconds.get(unit, 0.0) + time_s
        labels[unit] = label
    return [
        Minimum(time_s=seconds[unit], ceiling=labels[unit], bound=Bound.COMPUTE) for unit in seconds
    ]


def model_minimums(work: ModelWork, roof: Roof, *, cold: bool = False) -> list[Minimum]:
    """Return the minimum times of all GEMMs by unit, and that of all bytes of a memory level.

    A GEMM without a ceiling of its type takes no time. ``cold``: caches are empty at the start;
    else each level holds as many of the bytes as fit.
    """
    # Units can overlap.
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
    return found


def model_minimum(work: ModelWork, roof: Roof, *, cold: bool = False) -> Minimum:
    """Return the minimum time of any run: the longest of `model_minimums`."""
    nothing = Minimum(time_s=0.0, ceiling="", bound=Bound.FREE)
    found = model_minimums(work, roof, cold=cold)
    return max(found, key=lambda each: each.time_s, default=nothing)
