"""Costs of graphs: minimum, predicted, or summed measured operator times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from roofline.core.units import format_s, sum_known
from roofline.latency.features import features_of
from roofline.latency.predictor import Predictor
from roofline.latency.samples import IsolatedSample, OperatorFeatures
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Roof, ceiling_types
from roofline.substitution.graphs.graph import Graph
from roofline.workload.fusion import fused_traffic
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse, trace_residency

if TYPE_CHECKING:
    from roofline.latency.measuring.calls import Call
    from roofline.substitution.graphs.counting import Counted

CostBasis = Literal["bound", "predicted", "measured"]
"""Kind of cost: minimum times and launches, predictions of a calibration, or summed measured
operator times.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of one forward pass of a graph.

    Attributes:
        total_s: sum over operators of known time.
        unknown: other operators, sorted, one entry per call. Costs are comparable only if these are
            equal.
        launches: number of kernel launches; `traffic_bytes` and `flop` are of these kernels.
        flop: None: an operator has no formula.
        eager_min_time_s: part of ``total_s`` without launches; None unless times are minimum times.
    """

    total_s: float
    launches: int
    traffic_bytes: int
    flop: int | None
    unknown: tuple[str, ...] = ()
    eager_min_time_s: float | None = None

    def is_comparable(self, other: Cost) -> bool:
        """Return whether both costs leave out the same operators."""
        return self.unknown == other.unknown


class Costs(Protocol):
    """Cost model of graphs; deterministic."""

    @property
    def basis(self) -> CostBasis: ...

    def cost(self, graph: Graph, /, *, rest_bytes: int = 0) -> Cost:
        """Return the cost of one forward pass.

        Args:
            graph: a model, or a subgraph.
            rest_bytes: bytes that the rest of the model touches between two passes of a subgraph;
                0: the graph is the whole model.
        """
        ...


class CountGraph(Protocol):
    """Static counter of a graph's operators."""

    def __call__(self, graph: Graph, /, *, rest_bytes: int = 0) -> Counted:
        """Return the operators of a graph; with `rest_bytes`, a last one touches as many bytes."""
        ...


class CachedCosts:
    """Costs cached by graph; shared by several searches."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._known: dict[tuple[str, int], Cost] = {}

    @property
    def basis(self) -> CostBasis:
        return self._costs.basis

    def cost(self, graph: Graph, /, *, rest_bytes: int = 0) -> Cost:
        key = graph.digest, rest_bytes
        if key not in self._known:
            self._known[key] = self._costs.cost(graph, rest_bytes=rest_bytes)
        return self._known[key]


# -- launches --------------------------------------------------------------------------------------

_OF_DEVICES = ("launch", "launch of an empty kernel", "dispatch of add")
_OF_CPUS = ("dispatch of add", "launch", "launch of an empty kernel")
"""Names of launch overheads in profiles, best known first."""

_OF_KINDS = {
    "convolution": "dispatch of convolution",
    "depthwise convolution": "dispatch of convolution",
    "matrix product": "dispatch of linear",
}
"""Operator types with their own overhead on a CPU, where the call also enters a library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTimes:
    """Launch overhead by operator type, in seconds.

    ``default_s`` is for all other types (0: unknown), ``source`` describes the origin.
    """

    default_s: float
    source: str
    by_kind_s: Mapping[str, float] = field(default_factory=dict[str, float])

    def of(self, record: OperatorRecord) -> float:
        """Return the launch overhead of an operator, in seconds."""
        return self.by_kind_s.get(record.type, self.default_s)


def launch_times(profile: HardwareProfile) -> LaunchTimes:
    """Return the median launch overheads in a hardware profile."""
    known = {each.name: each.time.median_s for each in profile.overheads if each.threads == 1}
    is_cpu = profile.device == "cpu"
    name = next((each for each in (_OF_CPUS if is_cpu else _OF_DEVICES) if each in known), None)
    if name is None:
        return LaunchTimes(
            default_s=0.0,
            source=f"hardware '{profile.name}' has no launch overhead: launches are counted, but"
            " cost no time",
        )
    by_kind = {kind: known[other] for kind, other in _OF_KINDS.items() if is_cpu and other in known}
    used = dict.fromkeys((name, *(_OF_KINDS[kind] for kind in by_kind)))
    words = ", ".join(f"{format_s(known[each], 2)} ({each})" for each in used)
    return LaunchTimes(
        default_s=known[name],
        source=f"launch overhead {words}, from hardware '{profile.name}'",
        by_kind_s=by_kind,
    )


# -- costs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    """Operators that run as one kernel, their traffic and time; None: unknown."""

    records: Sequence[OperatorRecord]
    traffic_bytes: int
    time_s: float | None
    launch_s: float = 0.0


class SummedCosts:
    """Costs as sums over kernels; one kernel per operator unless fused."""

    basis: CostBasis

    def __init__(self, count: CountGraph, roof: Roof) -> None:
        self._count = count
        self._roof = roof
        self._cache: dict[tuple[int, int, tuple[Reuse, ...]], tuple[OperatorRecord, Any]] = {}

    def cost(self, graph: Graph, /, *, rest_bytes: int = 0) -> Cost:
        return self.cost_of(self._count(graph, rest_bytes=rest_bytes), has_rest=bool(rest_bytes))

    def cost_of(self, counted: Counted, *, has_rest: bool = False) -> Cost:
        """Return the cost of counted operators; with `has_rest` the last is the rest of a model."""
        own = counted.records[:-1] if has_rest else counted.records
        kernels = self._kernels(own, counted)
        known = [(each.time_s, each.launch_s) for each in kernels if each.time_s is not None]
        times_s = sum((time_s for time_s, _ in known), 0.0)
        total_s = times_s + sum((launch_s for _, launch_s in known), 0.0)
        # A fused kernel has one time, which may be unknown.
        unknown = (
            each.op for kernel in kernels if kernel.time_s is None for each in kernel.records
        )
        return Cost(
            total_s=total_s + (self._overhead_s(len(own)) if kernels else 0.0),
            eager_min_time_s=times_s if self.basis == "bound" else None,
            launches=len(kernels),
            traffic_bytes=sum(each.traffic_bytes for each in kernels),
            flop=sum_known(each.work.flop for kernel in kernels for each in kernel.records),
            unknown=tuple(sorted(unknown)),
        )

    def _kernels(self, own: Sequence[OperatorRecord], counted: Counted) -> list[_Kernel]:
        raise NotImplementedError

    def _overhead_s(self, calls: int) -> float:
        """Return the time between operators."""
        return 0.0

    def _evaluate(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> Any:
        raise NotImplementedError

    def _cached(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> Any:
        """Return a value that is computed once per operator; rewritten graphs share most operators.

        Operators are equal if records share work and attributes (same call) and reuse distances
        agree.
        """
        key = id(record.work), id(record.attributes), reuses
        if key not in self._cache:
            # Keep the record, so that its id is not reused.
            self._cache[key] = record, self._evaluate(record, reuses)
        return self._cache[key][1]


class MinimumTimeCosts(SummedCosts):
    """Costs from the roofline: minimum time and launch of every operator, summed.

    Operators of unknown FLOP or ceiling are unknown.
    """

    basis: CostBasis = "bound"

    def __init__(self, count: CountGraph, roof: Roof, launches: LaunchTimes) -> None:
        super().__init__(count, roof)
        self._launches = launches

    def _kernels(self, own: Sequence[OperatorRecord], counted: Counted) -> list[_Kernel]:
        # If only DRAM is known, every operand is charged to it.
        reuses: Sequence[tuple[Reuse, ...]] = ((),) * len(own)
        if not self._roof.profile.has_single_memory_level:
            reuses = trace_residency(counted.records).steady
        return [
            _Kernel(
                (record,),
                record.work.traffic_bytes,
                self._cached(record, each),
                self._launches.of(record),
            )
            for record, each in zip(own, reuses, strict=False)
            if record.state is not State.FREE
        ]

    def _evaluate(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> float | None:
        if not _has_min_time(record, self._roof):
            return None
        return self._roof.place(record, reuses).eager_min_time_s


class FusedCosts(MinimumTimeCosts):
    """Costs of graphs with operator fusion, as in compilers and TensorRT.

    A kernel takes its arithmetic or its memory traffic, whichever takes longer, and one launch.
    Operators folded into weights take no time. Reuse between fused kernels is unknown: all traffic
    is charged to the farthest memory level.
    """

    def _kernels(self, own: Sequence[OperatorRecord], counted: Counted) -> list[_Kernel]:
        members: dict[int, list[OperatorRecord]] = {}
        traffic: dict[int, int] = {}
        for record, fused in zip(own, fused_traffic(own, only_chains=True), strict=True):
            if record.state is not State.FREE:
                traffic[fused.chain] = traffic.get(fused.chain, 0) + fused.traffic_bytes
                members.setdefault(fused.chain, []).extend(() if fused.is_folded else (record,))
        return [
            _Kernel(
                records,
                traffic[chain],
                kernel_min_time_s(records, traffic[chain], self._roof),
                max(map(self._launches.of, records), default=0.0),
            )
            for chain, records in members.items()
        ]


def kernel_min_time_s(
    members: Iterable[OperatorRecord], traffic_bytes: int, roof: Roof
) -> float | None:
    """Return the minimum time of one fused kernel, in seconds; None: unknown for a member.

    All traffic is charged to the farthest memory level.
    """
    if not roof.levels or not all(_has_min_time(each, roof) for each in members):
        return None
    # Operators without an arithmetic time have no arithmetic with a known ceiling.
    compute_s = sum(filter(None, map(roof.compute_s, members)))
    return max(compute_s, traffic_bytes / roof.levels[-1].bytes_per_s)


def _has_min_time(record: OperatorRecord, roof: Roof) -> bool:
    """Return whether the arithmetic time of an operator is known.

    Integer arithmetic has no ceilings: only its bytes count.
    """
    if record.work.min_flop is None:
        return False
    if roof.compute_s(record) is not None:
        return True
    return not ceiling_types(record.inputs, record.outputs, record.work.macs)


class _CalibratedCosts(SummedCosts):
    """Costs with the calibrated overhead between operators; without a predictor, no overhead."""

    def __init__(self, count: CountGraph, roof: Roof, predictor: Predictor | None) -> None:
        super().__init__(count, roof)
        self._predictor = predictor

    def _kernels(self, own: Sequence[OperatorRecord], counted: Counted) -> list[_Kernel]:
        reuses = trace_residency(counted.records).steady
        at_work = [
            (record, self._cached(record, each), call)
            for record, each, call in zip(own, reuses, counted.calls, strict=False)
            if record.state is not State.FREE
        ]
        times = self._times([(facts, call) for _, facts, call in at_work])
        return [
            _Kernel((record,), record.work.traffic_bytes, time_s)
            for (record, _, _), time_s in zip(at_work, times, strict=True)
        ]

    def _times(self, wanted: Sequence[tuple[OperatorFeatures, Call | None]]) -> list[float | None]:
        raise NotImplementedError

    def _evaluate(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> OperatorFeatures:
        return features_of(self._roof.place(record, reuses), self._roof.threads)

    def _overhead_s(self, calls: int) -> float:
        if self._predictor is None:
            return 0.0
        return self._predictor.calibration.overhead_s(
            self._roof.threads, calls=calls, core_state=self._predictor.core_state
        )


class PredictedCosts(_CalibratedCosts):
    """Costs as in `roofline predict`: predicted operators and overhead; each operator predicted
    once.
    """

    basis: CostBasis = "predicted"

    def __init__(self, count: CountGraph, roof: Roof, predictor: Predictor) -> None:
        super().__init__(count, roof, predictor)
        self._predict = predictor
        self._known: dict[OperatorFeatures, float | None] = {}

    def _times(self, wanted: Sequence[tuple[OperatorFeatures, Call | None]]) -> list[float | None]:
        if new := [each for each in dict.fromkeys(f for f, _ in wanted) if each not in self._known]:
            found = self._predict.calibration.predict(new, self._predict.core_state)
            for each, answer in zip(new, found, strict=True):
                self._known[each] = answer.predicted_s if answer is not None else None
        return [self._known[facts] for facts, _ in wanted]


TimeCalls = Callable[[Sequence["Call"]], Sequence[IsolatedSample | None]]
"""Time calls in isolation, or look their times up; None: not measurable."""


class MeasuredCosts(_CalibratedCosts):
    """Costs as summed measured operator times, plus the overhead between them if known.

    New operators are timed on demand. Times refer to one core clock state: that of the calibration,
    else that of the first timed operators.
    """

    basis: CostBasis = "measured"

    def __init__(
        self, count: CountGraph, roof: Roof, time: TimeCalls, predictor: Predictor | None
    ) -> None:
        learned = predictor if predictor and predictor.calibration.has_runs else None
        super().__init__(count, roof, learned)
        self._time = time
        self._known: dict[Call, float | None] = {}
        self._usual = learned.calibration.core_state if learned else None

    def time_s(self, call: Call | None) -> float | None:
        """Return the time of one call; None: not timed, or not measurable."""
        return self._known.get(call) if call is not None else None

    def _times(self, wanted: Sequence[tuple[OperatorFeatures, Call | None]]) -> list[float | None]:
        # Calls are timed in isolation, and include operand placement: persistent operands are
        # cold, others were just written.
        new: dict[Call, OperatorFeatures] = {}
        for facts, call in wanted:
            if call is not None and call not in self._known:
                new.setdefault(call, facts)
        if new:
            samples = self._time(list(new))
            self._known.update((call, None) for call in new)
            timed = [
                (call, facts, sample)
                for (call, facts), sample in zip(new.items(), samples, strict=True)
                if sample is not None
            ]
            for (call, _, sample), change in zip(timed, self._state_factors(timed), strict=True):
                self._known[call] = sample.sample.median_s * change
        return [self.time_s(call) for _, call in wanted]

    def _state_factors(
        self, timed: Sequence[tuple[Call, OperatorFeatures, IsolatedSample]]
    ) -> list[float]:
        """Return the factors that scale times to the reference clock state."""
        core_states = [sample.pace for _, _, sample in timed]
        if self._predictor is not None:
            facts = [facts for _, facts, _ in timed]
            return self._predictor.calibration.time_ratios(
                facts, core_states, self._predictor.core_state
            )
        if self._usual is None and core_states:
            self._usual = core_states[0]
        return [self._usual.slowdown(each) if self._usual else 1.0 for each in core_states]
