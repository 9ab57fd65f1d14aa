"""What a graph takes as the sum of its operators, each timed once on its own on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from roofline.latency.features import facts_of
from roofline.latency.predictor import Predictor
from roofline.latency.samples import Facts, IsolatedSample
from roofline.placement import Roof
from roofline.substitution.costs.cost import Cost, CostBasis
from roofline.substitution.costs.counted import (
    CountGraph,
    known_flop,
    launched,
    own_records,
    repeated,
)
from roofline.substitution.costs.remembered import Remembered
from roofline.substitution.graphs.graph import Graph
from roofline.workload.operators import State
from roofline.workload.residency import residency

if TYPE_CHECKING:
    from roofline.latency.measuring.calls import Call

TimeCalls = Callable[[Sequence["Call"]], Sequence[IsolatedSample | None]]
"""Times calls each on its own, or remembers their times; None: it cannot be timed."""


class MeasuredCosts:
    """Costs as the sum of operators' own times, and of what runs between them where that is known.

    Operators that were not met before are timed when a graph with them is asked for. Times are
    stated for one pace of the cores, whatever pace they had when they were taken.

    Args:
        count: counts graphs.
        roof: this machine's, for the threads that compute.
        time: times calls.
        predictor: what was learned here: what runs between operators, and how times follow the
            pace of the cores; None: nothing, and the first operators that are timed set the pace.
    """

    basis: CostBasis = "measured"

    def __init__(
        self, count: CountGraph, roof: Roof, time: TimeCalls, predictor: Predictor | None
    ) -> None:
        self._count = count
        self._roof = roof
        self._time = time
        self._learned = predictor if predictor and predictor.calibration.runs else None
        self._known: dict[Call, float | None] = {}
        self._facts = Remembered(
            lambda record, reuses: facts_of(roof.place(record, reuses), roof.threads)
        )
        self._usual = self._learned.calibration.pace if self._learned else None

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        """The cost of one pass; see `Costs`."""
        counted = self._count(graph, around_bytes=around_bytes)
        own = own_records(counted, around_bytes)
        reuses = residency(counted.records).steady
        at_work = [
            (record, self._facts.of(record, each), call)
            for record, each, call in zip(own, reuses, counted.calls, strict=False)
            if record.state is not State.FREE
        ]
        facts = [each for _, each, _ in at_work]
        # Times are of calls alone: where operands come from is part of a call, for what a model
        # keeps is cold then, and the rest was just made.
        self._measure([(each, call) for _, each, call in at_work if call is not None])
        times = [self.time_s(call) for _, _, call in at_work]
        total_s = sum(each for each in times if each is not None)
        if self._learned is not None and facts:
            total_s += self._learned.calibration.overhead_s(
                facts[0].threads, calls=len(own), pace=self._learned.pace
            )
        working = launched(own)
        return Cost(
            total_s=total_s,
            launches=len(working),
            traffic_bytes=sum(each.work.traffic_bytes for each in working),
            flop=known_flop(working),
            unknown=repeated(
                [
                    record.op
                    for (record, _, _), time_s in zip(at_work, times, strict=True)
                    if time_s is None
                ]
            ),
        )

    def time_s(self, call: Call | None) -> float | None:
        """The time of one call as the costs have it; None: it was not, or cannot be, timed."""
        return self._known.get(call) if call is not None else None

    def _measure(self, wanted: Sequence[tuple[Facts, Call]]) -> None:
        """Times the calls that were not met before."""
        new: dict[Call, Facts] = {}
        for facts, call in wanted:
            if call not in self._known:
                new.setdefault(call, facts)
        if not new:
            return
        samples = self._time(list(new))
        self._known.update((call, None) for call in new)
        timed = [
            (call, facts, sample)
            for (call, facts), sample in zip(new.items(), samples, strict=True)
            if sample is not None
        ]
        for (call, _, sample), change in zip(timed, self._changes(timed), strict=True):
            self._known[call] = sample.sample.median_s * change

    def _changes(self, timed: Sequence[tuple[Call, Facts, IsolatedSample]]) -> list[float]:
        """How many times as long each takes at the pace that costs are stated for."""
        paces = [sample.pace for _, _, sample in timed]
        if self._learned is not None:
            return self._learned.calibration.changes(
                [facts for _, facts, _ in timed], paces, self._learned.pace
            )
        if self._usual is None and paces:
            self._usual = paces[0]
        return [self._usual.slowdown(each) if self._usual else 1.0 for each in paces]
