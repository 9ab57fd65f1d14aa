"""The least that a graph can take on a machine: bounds of its operators, and their launches."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.placement import Roof, ceiling_types
from roofline.substitution.costs.cost import Cost, CostBasis
from roofline.substitution.costs.counted import (
    CountGraph,
    known_flop,
    launched,
    own_records,
    repeated,
)
from roofline.substitution.costs.launches import Launches
from roofline.substitution.costs.remembered import Remembered
from roofline.substitution.graphs.graph import Graph
from roofline.workload.fusion import fused_traffic
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse, residency


class BoundCosts:
    """Costs by the roofline of a machine: the bound of every operator and its launch, summed.

    An operator whose FLOP, or the ceiling of whose type, is not known has no bound: it is unknown.

    Args:
        count: counts graphs.
        roof: the machine's, for the threads that compute.
        launches: what launches cost there.
    """

    basis: CostBasis = "bound"

    def __init__(self, count: CountGraph, roof: Roof, launches: Launches) -> None:
        self._count = count
        self._roof = roof
        self._launches = launches
        self._bounds = Remembered(
            lambda record, reuses: (
                roof.place(record, reuses).eager_min_time_s if has_bound(record, roof) else None
            )
        )

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        """The cost of one pass; see `Costs`."""
        counted = self._count(graph, around_bytes=around_bytes)
        own = own_records(counted, around_bytes)
        bounds_s = launches_s = 0.0
        unknown: list[str] = []
        for record, reuses in zip(own, self._reuses(counted.records), strict=False):
            if record.state is State.FREE:
                continue
            eager_min_time_s = self._bounds.of(record, reuses)
            if eager_min_time_s is None:
                unknown.append(record.op)
                continue
            bounds_s += eager_min_time_s
            launches_s += self._launches.of(record)
        working = launched(own)
        return Cost(
            total_s=bounds_s + launches_s,
            eager_min_time_s=bounds_s,
            launches=len(working),
            traffic_bytes=sum(each.work.traffic_bytes for each in working),
            flop=known_flop(working),
            unknown=repeated(unknown),
        )

    def _reuses(self, records: Sequence[OperatorRecord]) -> Sequence[tuple[Reuse, ...]]:
        if self._roof.profile.knows_only_dram:
            # Every operand is charged there, wherever it was before.
            return ((),) * len(records)
        return residency(records).steady


class FusedCosts:
    """Costs of graphs whose operators run in fused kernels, as compilers and TensorRT run them.

    A kernel takes what its operators compute or what crosses memory, whichever takes longer, and
    one launch; what a compiler folds into weights takes nothing. What stays in caches between
    kernels is not known of fused ones: all that they move is charged to the farthest memory level.

    Args:
        count, roof, launches: as for `BoundCosts`.
    """

    basis: CostBasis = "bound"

    def __init__(self, count: CountGraph, roof: Roof, launches: Launches) -> None:
        self._count = count
        self._roof = roof
        self._launches = launches

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        """The cost of one pass; see `Costs`."""
        records = own_records(self._count(graph, around_bytes=around_bytes), around_bytes)
        kernels: dict[int, list[OperatorRecord]] = {}
        traffic: dict[int, int] = {}
        for record, fused in zip(records, fused_traffic(records, only_chains=True), strict=True):
            if record.state is State.FREE:
                continue
            traffic[fused.chain] = traffic.get(fused.chain, 0) + fused.traffic_bytes
            members = kernels.setdefault(fused.chain, [])
            if not fused.is_folded:
                members.append(record)
        bounds_s = launches_s = 0.0
        unknown: list[str] = []
        for chain, members in kernels.items():
            eager_min_time_s = kernel_bound_s(members, traffic[chain], self._roof)
            if eager_min_time_s is None:
                # What runs as one takes one time, and that is not known.
                unknown += [each.op for each in members]
                continue
            bounds_s += eager_min_time_s
            launches_s += max(map(self._launches.of, members), default=0.0)
        return Cost(
            total_s=bounds_s + launches_s,
            eager_min_time_s=bounds_s,
            launches=len(kernels),
            traffic_bytes=sum(traffic.values()),
            flop=known_flop(each for members in kernels.values() for each in members),
            unknown=repeated(unknown),
        )


def kernel_bound_s(
    members: Sequence[OperatorRecord], traffic_bytes: int, roof: Roof
) -> float | None:
    """The least seconds of operators that run as one kernel: their arithmetic, or what they move.

    Args:
        members: the operators.
        traffic_bytes: what of theirs crosses memory; it is charged to the farthest level.
        roof: the machine's. None comes back where it does not know one of them.
    """
    if not roof.levels or not all(has_bound(each, roof) for each in members):
        return None
    # What has a bound and no time in its arithmetic has none to do that a ceiling is known for.
    compute_s = sum(filter(None, map(roof.compute_s, members)))
    return max(compute_s, traffic_bytes / roof.levels[-1].bytes_per_s)


def has_bound(record: OperatorRecord, roof: Roof) -> bool:
    """Whether the time that an operator's arithmetic takes at least is known on a machine.

    Arithmetic of whole numbers has no ceilings: there the bytes decide.
    """
    if record.work.min_flop is None:
        return False
    if roof.compute_s(record) is not None:
        return True
    return not ceiling_types(record.inputs, record.outputs, record.work.macs)
