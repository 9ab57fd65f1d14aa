"""What a graph is expected to take on a machine, from what was learned there."""

from __future__ import annotations

from roofline.latency.features import facts_of
from roofline.latency.predictor import Predictor
from roofline.latency.samples import Facts
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


class PredictedCosts:
    """Costs as `roofline predict` tells times: operators from samples of their like, and what runs
    between them.

    Rewritten graphs are made of the same operators again and again: each is predicted once.

    Args:
        count: counts graphs.
        roof: the machine's, for the threads that compute.
        predictor: what was learned there.
    """

    basis: CostBasis = "predicted"

    def __init__(self, count: CountGraph, roof: Roof, predictor: Predictor) -> None:
        self._count = count
        self._roof = roof
        self._predictor = predictor
        self._known: dict[Facts, float | None] = {}
        self._facts = Remembered(
            lambda record, reuses: facts_of(roof.place(record, reuses), roof.threads)
        )

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        """The cost of one pass; see `Costs`."""
        counted = self._count(graph, around_bytes=around_bytes)
        own = own_records(counted, around_bytes)
        reuses = residency(counted.records).steady
        at_work = [
            (record, each)
            for record, each in zip(own, reuses, strict=False)
            if record.state is not State.FREE
        ]
        facts = [self._facts.of(record, each) for record, each in at_work]
        self._learn(facts)
        times = [self._known[each] for each in facts]
        unknown = [
            record.op for (record, _), time_s in zip(at_work, times, strict=True) if time_s is None
        ]
        total_s = sum(each for each in times if each is not None)
        if facts:
            total_s += self._predictor.calibration.overhead_s(
                facts[0].threads, calls=len(own), pace=self._predictor.pace
            )
        working = launched(own)
        return Cost(
            total_s=total_s,
            launches=len(working),
            traffic_bytes=sum(each.work.traffic_bytes for each in working),
            flop=known_flop(working),
            unknown=repeated(unknown),
        )

    def _learn(self, facts: list[Facts]) -> None:
        """Asks for the times of operators that were not met before, all at once."""
        new = [each for each in dict.fromkeys(facts) if each not in self._known]
        if not new:
            return
        found = self._predictor.calibration.predict(new, self._predictor.pace)
        for each, answer in zip(new, found, strict=True):
            self._known[each] = answer[0].predicted_s if answer is not None else None
