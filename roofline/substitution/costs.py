"""What a graph costs: a bound, a prediction, or the sum of what its operators were measured at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from roofline.core.units import format_s, sum_known
from roofline.latency.features import facts_of
from roofline.latency.predictor import Predictor
from roofline.latency.samples import Facts, IsolatedSample
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
"""What seconds are: bounds and launches, predictions from a calibration, or the sum of operators'
measured times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one pass of a graph costs.

    ``total_s`` is the sum over operators whose time is known; ``unknown`` are the others, sorted,
    each as often as it is called: two costs can be compared only where these are equal.
    ``launches`` are kernels that are called, ``traffic_bytes`` what they move, ``flop`` what they
    compute, None where one of them has no formula. ``eager_min_time_s`` is the part of ``total_s``
    that the roofline bounds from below, without launches; None where seconds are no bounds.
    """

    total_s: float
    launches: int
    traffic_bytes: int
    flop: int | None
    unknown: tuple[str, ...] = ()
    eager_min_time_s: float | None = None

    def is_comparable(self, other: Cost) -> bool:
        """Whether both leave out the same operators."""
        return self.unknown == other.unknown


class Costs(Protocol):
    """Gives graphs their costs, the same graph always the same."""

    @property
    def basis(self) -> CostBasis: ...

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        """The cost of one pass.

        Args:
            graph: a model, or a piece of one.
            around_bytes: what the rest of the model touches between two passes of a piece; 0: the
                graph is all of the model.
        """
        ...


class CountGraph(Protocol):
    """Counts graphs, without running anything."""

    def __call__(self, graph: Graph, /, *, around_bytes: int = 0) -> Counted:
        """The operators of a graph, and with `around_bytes` a last one that touches so much."""
        ...


class RememberedCosts:
    """Costs that are asked for once for each graph; several searches share them."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._known: dict[tuple[str, int], Cost] = {}

    @property
    def basis(self) -> CostBasis:
        return self._costs.basis

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        key = graph.digest, around_bytes
        if key not in self._known:
            self._known[key] = self._costs.cost(graph, around_bytes=around_bytes)
        return self._known[key]


# -- launches --------------------------------------------------------------------------------------

_OF_DEVICES = ("launch", "launch of an empty kernel", "dispatch of add")
_OF_CPUS = ("dispatch of add", "launch", "launch of an empty kernel")
"""What profiles call the seconds of a call that computes next to nothing, the best known first."""

_OF_KINDS = {
    "convolution": "dispatch of convolution",
    "depthwise convolution": "dispatch of convolution",
    "matrix product": "dispatch of linear",
}
"""Kinds of operators that have their own on a CPU, where a call is the library's, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Seconds of a launch by kind of operator; ``usual_s`` of all others, 0 where none is known.

    ``said`` says in words where they come from.
    """

    usual_s: float
    said: str
    by_kind_s: Mapping[str, float] = field(default_factory=dict[str, float])

    def of(self, record: OperatorRecord) -> float:
        """The seconds that calling this operator takes."""
        return self.by_kind_s.get(record.type, self.usual_s)


def launches_on(profile: HardwareProfile) -> Launches:
    """What launches cost on a machine, as far as its profile knows: medians."""
    known = {each.name: each.time.median_s for each in profile.overheads if each.threads == 1}
    is_cpu = profile.device == "cpu"
    name = next((each for each in (_OF_CPUS if is_cpu else _OF_DEVICES) if each in known), None)
    if name is None:
        return Launches(
            usual_s=0.0,
            said=f"hardware '{profile.name}' does not know what a launch costs: launches are"
            " counted, and take no time in the costs",
        )
    by_kind = {kind: known[other] for kind, other in _OF_KINDS.items() if is_cpu and other in known}
    used = dict.fromkeys((name, *(_OF_KINDS[kind] for kind in by_kind)))
    words = ", ".join(f"{format_s(known[each], 2)} ({each})" for each in used)
    return Launches(
        usual_s=known[name],
        said=f"every launch costs {words}, as hardware '{profile.name}' has it",
        by_kind_s=by_kind,
    )


# -- costs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    """Operators that run as one, what they move, and their time; None: it is not known."""

    records: Sequence[OperatorRecord]
    traffic_bytes: int
    time_s: float | None
    launch_s: float = 0.0


class _SummedCosts:
    """Costs that are sums over kernels, one for each operator unless they are fused."""

    basis: CostBasis

    def __init__(self, count: CountGraph, roof: Roof) -> None:
        self._count = count
        self._roof = roof
        self._worked_out: dict[tuple[int, int, tuple[Reuse, ...]], tuple[OperatorRecord, Any]] = {}

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        counted = self._count(graph, around_bytes=around_bytes)
        # Of a piece of a model the last record stands for the rest of it.
        own = counted.records[:-1] if around_bytes else counted.records
        kernels = self._kernels(own, counted)
        known = [(each.time_s, each.launch_s) for each in kernels if each.time_s is not None]
        times_s = sum((time_s for time_s, _ in known), 0.0)
        total_s = times_s + sum((launch_s for _, launch_s in known), 0.0)
        # What runs as one takes one time, and that may not be known.
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
        """What runs between operators."""
        return 0.0

    def _work_out(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> Any:
        raise NotImplementedError

    def _known_of(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> Any:
        """What is worked out for each operator once; rewritten graphs have the same ones.

        Operators are the same where graphs were counted with the same call of the same operator,
        whose work and attributes records share, and where their operands were touched as far back.
        """
        key = id(record.work), id(record.attributes), reuses
        if key not in self._worked_out:
            # The record is kept, so that no other work or attributes get its place in memory.
            self._worked_out[key] = record, self._work_out(record, reuses)
        return self._worked_out[key][1]


class BoundCosts(_SummedCosts):
    """Costs by the roofline of a machine: the bound of every operator and its launch, summed.

    An operator whose FLOP, or the ceiling of whose type, is not known has no bound: it is unknown.
    """

    basis: CostBasis = "bound"

    def __init__(self, count: CountGraph, roof: Roof, launches: Launches) -> None:
        super().__init__(count, roof)
        self._launches = launches

    def _kernels(self, own: Sequence[OperatorRecord], counted: Counted) -> list[_Kernel]:
        # Where only DRAM is known, every operand is charged there, wherever it was before.
        reuses: Sequence[tuple[Reuse, ...]] = ((),) * len(own)
        if not self._roof.profile.knows_only_dram:
            reuses = trace_residency(counted.records).steady
        return [
            _Kernel(
                (record,),
                record.work.traffic_bytes,
                self._known_of(record, each),
                self._launches.of(record),
            )
            for record, each in zip(own, reuses, strict=False)
            if record.state is not State.FREE
        ]

    def _work_out(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> float | None:
        if not _has_bound(record, self._roof):
            return None
        return self._roof.place(record, reuses).eager_min_time_s


class FusedCosts(BoundCosts):
    """Costs of graphs whose operators run in fused kernels, as compilers and TensorRT run them.

    A kernel takes what its operators compute or what crosses memory, whichever takes longer, and
    one launch; what a compiler folds into weights takes nothing. What stays in caches between
    kernels is not known of fused ones: all that they move is charged to the farthest memory level.
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
                kernel_bound_s(records, traffic[chain], self._roof),
                max(map(self._launches.of, records), default=0.0),
            )
            for chain, records in members.items()
        ]


def kernel_bound_s(
    members: Iterable[OperatorRecord], traffic_bytes: int, roof: Roof
) -> float | None:
    """The least seconds of operators that run as one kernel: their arithmetic, or what of theirs
    crosses memory, all charged to the farthest level. None: the machine does not know one of them.
    """
    if not roof.levels or not all(_has_bound(each, roof) for each in members):
        return None
    # What has a bound and no time in its arithmetic has none to do that a ceiling is known for.
    compute_s = sum(filter(None, map(roof.compute_s, members)))
    return max(compute_s, traffic_bytes / roof.levels[-1].bytes_per_s)


def _has_bound(record: OperatorRecord, roof: Roof) -> bool:
    """Whether the time that an operator's arithmetic takes at least is known on a machine.

    Arithmetic of whole numbers has no ceilings: there the bytes decide.
    """
    if record.work.min_flop is None:
        return False
    if roof.compute_s(record) is not None:
        return True
    return not ceiling_types(record.inputs, record.outputs, record.work.macs)


class _LearnedCosts(_SummedCosts):
    """Costs with what was learned of a machine: what runs between operators; None: nothing was."""

    def __init__(self, count: CountGraph, roof: Roof, predictor: Predictor | None) -> None:
        super().__init__(count, roof)
        self._predictor = predictor

    def _kernels(self, own: Sequence[OperatorRecord], counted: Counted) -> list[_Kernel]:
        reuses = trace_residency(counted.records).steady
        at_work = [
            (record, self._known_of(record, each), call)
            for record, each, call in zip(own, reuses, counted.calls, strict=False)
            if record.state is not State.FREE
        ]
        times = self._times([(facts, call) for _, facts, call in at_work])
        return [
            _Kernel((record,), record.work.traffic_bytes, time_s)
            for (record, _, _), time_s in zip(at_work, times, strict=True)
        ]

    def _times(self, wanted: Sequence[tuple[Facts, Call | None]]) -> list[float | None]:
        raise NotImplementedError

    def _work_out(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> Facts:
        return facts_of(self._roof.place(record, reuses), self._roof.threads)

    def _overhead_s(self, calls: int) -> float:
        if self._predictor is None:
            return 0.0
        return self._predictor.calibration.overhead_s(
            self._roof.threads, calls=calls, pace=self._predictor.pace
        )


class PredictedCosts(_LearnedCosts):
    """Costs as `roofline predict` tells times: operators from samples of their like, and what runs
    between them. Each operator is predicted once, those that are new all at once.
    """

    basis: CostBasis = "predicted"

    def __init__(self, count: CountGraph, roof: Roof, predictor: Predictor) -> None:
        super().__init__(count, roof, predictor)
        self._predict = predictor
        self._known: dict[Facts, float | None] = {}

    def _times(self, wanted: Sequence[tuple[Facts, Call | None]]) -> list[float | None]:
        if new := [each for each in dict.fromkeys(f for f, _ in wanted) if each not in self._known]:
            found = self._predict.calibration.predict(new, self._predict.pace)
            for each, answer in zip(new, found, strict=True):
                self._known[each] = answer.predicted_s if answer is not None else None
        return [self._known[facts] for facts, _ in wanted]


TimeCalls = Callable[[Sequence["Call"]], Sequence[IsolatedSample | None]]
"""Times calls each on its own, or remembers their times; None: it cannot be timed."""


class MeasuredCosts(_LearnedCosts):
    """Costs as the sum of operators' own times, and of what runs between them where that is known.

    Operators that were not met before are timed when a graph with them is asked for. Times are
    stated for one pace of the cores, whatever pace they had when they were taken: that of what was
    learned here, else of the first operators that are timed.
    """

    basis: CostBasis = "measured"

    def __init__(
        self, count: CountGraph, roof: Roof, time: TimeCalls, predictor: Predictor | None
    ) -> None:
        learned = predictor if predictor and predictor.calibration.runs else None
        super().__init__(count, roof, learned)
        self._time = time
        self._known: dict[Call, float | None] = {}
        self._usual = learned.calibration.pace if learned else None

    def time_s(self, call: Call | None) -> float | None:
        """The time of one call as the costs have it; None: it was not, or cannot be, timed."""
        return self._known.get(call) if call is not None else None

    def _times(self, wanted: Sequence[tuple[Facts, Call | None]]) -> list[float | None]:
        # Times are of calls alone: where operands come from is part of a call, for what a model
        # keeps is cold then, and the rest was just made.
        new: dict[Call, Facts] = {}
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
            for (call, _, sample), change in zip(timed, self._changes(timed), strict=True):
                self._known[call] = sample.sample.median_s * change
        return [self.time_s(call) for _, call in wanted]

    def _changes(self, timed: Sequence[tuple[Call, Facts, IsolatedSample]]) -> list[float]:
        """How many times as long each takes at the pace that costs are stated for."""
        paces = [sample.pace for _, _, sample in timed]
        if self._predictor is not None:
            facts = [facts for _, facts, _ in timed]
            return self._predictor.calibration.changes(facts, paces, self._predictor.pace)
        if self._usual is None and paces:
            self._usual = paces[0]
        return [self._usual.slowdown(each) if self._usual else 1.0 for each in paces]
