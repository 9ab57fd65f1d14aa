"""What a graph is on a machine, before and after: analyses, figures, and whose rows are whose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofline.analysis import Analysis, minimum_times_of
from roofline.foundation.rows import sum_known
from roofline.foundation.sampling import Sample, quantile
from roofline.pipeline.assembly import assemble
from roofline.pipeline.optimization_machine import Machine
from roofline.pipeline.optimization_search import Proven
from roofline.pipeline.workloads import Workload
from roofline.substitution.costs.cost import Cost
from roofline.substitution.costs.counted import Counted
from roofline.substitution.costs.measurements import MeasuredCosts
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.result import Figures, Substitution
from roofline.substitution.rules.rule import Rule
from roofline.substitution.search.found import Application, Candidate, Found, Refusal
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import residency

if TYPE_CHECKING:
    from roofline.substitution.graphs.capturing import CapturedModel
    from roofline.workload.capture.passes import Capture

_MOST_REJECTED = 300
"""More rewrites that were not made than anybody reads."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """A graph with its operators, and its weights in bytes, each tensor once."""

    graph: Graph
    counted: Counted
    weight_bytes: int


def analysis_of(
    records: tuple[OperatorRecord, ...], first: Capture, asked: Workload, machine: Machine
) -> Analysis:
    """The operators of a graph, or of the model itself, under the ceilings of a machine.

    Args:
        records: the operators.
        first: the pass of the model itself: what it is called with, and its modules.
        asked: the model.
        machine: where.
    """
    paths = {each.module_path for each in records}
    capture = replace(
        first,
        records=records,
        modules=tuple(each for each in first.modules if each.path in paths or not each.path),
        notes=(),
    )
    predictor = machine.predictor
    return assemble(
        asked.source.name,
        asked.specs,
        capture,
        residency(records),
        machine.roof,
        cold=False,
        notes=(),
        predictor=predictor,
        runs=(),
    )


def weight_bytes(graph: Graph, captured: CapturedModel) -> int:
    """What the weights of a graph take, those with several names once."""
    found: dict[object, int] = {}
    for weight in _weights(graph):
        type = weight.type
        byte = _item_bytes(type.dtype)
        for size in type.shape:
            byte *= size
        tensor = captured.weights.get(weight.name) if weight.name else None
        key: object = weight.key
        if tensor is not None:
            key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), type.shape)
        found[key] = byte
    return sum(found.values())


def _weights(graph: Graph) -> Iterable[Weight]:
    for node in graph.nodes.values():
        yield from node.weights()
    yield from (each for each in graph.outputs if isinstance(each, Weight))


def _item_bytes(dtype: str) -> int:
    from roofline.workload.torch_dtypes import torch_dtype

    return torch_dtype(dtype).itemsize


def is_slower(after: Analysis, before: Analysis, own: Analysis) -> bool:
    """Whether a result takes no less than the model's own pass, whose operators are others than
    those of its graph: torch's fast path for transformers calls one where a graph has a dozen.

    Args:
        after: of the result.
        before: of the graph that was captured.
        own: of the model itself.
    """
    if len(own.operators) >= len(before.operators):
        return False
    if after.prediction is not None and own.prediction is not None:
        return after.prediction.predicted_s >= own.prediction.predicted_s
    times = after.totals.eager_min_time_s, own.totals.eager_min_time_s
    return times[0] is not None and times[1] is not None and times[0] >= times[1]


def figures_of(
    cost: Cost, analysis: Analysis, counts: Counts, sample: Sample | None = None
) -> Figures:
    """One pass in figures; rates are of the measured time, else of the cost.

    The roof of fused kernels is theirs; timed passes are those of eager operators.
    """
    time_s = sample.median_s if sample is not None else cost.total_s
    eager_min_time_s = analysis.totals.eager_min_time_s
    if sample is None and cost.eager_min_time_s is not None and not cost.unknown:
        eager_min_time_s = cost.eager_min_time_s
    return Figures(
        cost_s=cost.total_s,
        traffic_bytes=cost.traffic_bytes,
        launches=cost.launches,
        flop=cost.flop,
        weight_bytes=counts.weight_bytes,
        measured_s=sample.median_s if sample else None,
        measured_low_s=quantile(sample.times_s, 0.1) if sample else None,
        measured_high_s=quantile(sample.times_s, 0.9) if sample else None,
        flop_per_s=cost.flop / time_s if cost.flop is not None and time_s > 0 else None,
        share_of_roof=eager_min_time_s / time_s
        if eager_min_time_s is not None and time_s > 0
        else None,
        **minimum_times_of(analysis.totals),
    )


# -- rewrites --------------------------------------------------------------------------------------


def made(
    candidate: Candidate,
    rules: Sequence[Rule],
    before: Counts,
    after: Counts,
    costs: MeasuredCosts | None,
    *,
    is_applied: bool,
) -> tuple[Substitution, ...]:
    """The rewrites that make a candidate, with the rows that each takes away and puts there.

    Args:
        candidate: whose.
        rules: those that were allowed.
        before: the original.
        after: the candidate.
        costs: those that operators were timed for; None: they were not.
        is_applied: whether the candidate is the result.
    """
    summaries = {rule.name: rule.summary for rule in rules}
    gone, new = _traced(candidate)
    rows_before, rows_after = _rows(before.counted), _rows(after.counted)
    found: list[Substitution] = []
    for place, each in enumerate(candidate.history):
        olds = _rows_of(gone[place], rows_before)
        news = _rows_of(new[place], rows_after)
        found.append(
            Substitution(
                rule=each.rule,
                where=each.where,
                why=summaries.get(each.rule, ""),
                is_applied=is_applied,
                cost_before_s=each.cost_before.total_s,
                cost_after_s=each.cost_after.total_s,
                measured_before_s=_measured_s(olds, before.counted, costs),
                measured_after_s=_measured_s(news, after.counted, costs),
                before_operators=olds,
                after_operators=news,
            )
        )
    return tuple(found)


def _traced(candidate: Candidate) -> tuple[list[set[int]], list[set[int]]]:
    """For each rewrite the nodes of the original that it takes away, itself or what rewrites before
    it made of them; and the nodes of the result that are there by it, or by those after it."""
    history = candidate.history
    comes_from: dict[int, set[int]] = {}
    gone: list[set[int]] = []
    for each in history:
        old = {origin for node in each.removed for origin in comes_from.get(node, {node})}
        gone.append(old)
        for node in each.added:
            comes_from[node] = old
    becomes: dict[int, set[int]] = {}
    new: list[set[int]] = []
    for each in reversed(history):
        now = {final for node in each.added for final in becomes.get(node, {node})} & set(
            candidate.graph.nodes
        )
        new.append(now)
        for node in each.removed:
            becomes[node] = now
    new.reverse()
    return gone, new


def _rows(counted: Counted) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row, node in enumerate(counted.node_of):
        rows.setdefault(node, []).append(row)
    return rows


def _rows_of(nodes: Iterable[int], rows: dict[int, list[int]]) -> tuple[int, ...]:
    return tuple(sorted({row for node in nodes for row in rows.get(node, ())}))


def _measured_s(rows: Sequence[int], counted: Counted, costs: MeasuredCosts | None) -> float | None:
    """The time of some operators; None where one of them was not timed."""
    if costs is None:
        return None
    working = [row for row in rows if counted.records[row].state is not State.FREE]
    return sum_known(costs.time_s(counted.calls[row]) for row in working)


def rejected(
    found: Found, chosen: Candidate, rolled_back: Sequence[Refusal], lost: Sequence[Proven]
) -> tuple[Substitution, ...]:
    """The rewrites that were not made, each once with its reason; at most a few hundred.

    Those that were rolled back come first, then those of graphs that lost against the one that was
    chosen, those that cost more, and those refused.

    Args:
        found: what the search of the chosen one met.
        chosen: what is told of as the result.
        rolled_back: what changed results.
        lost: what other searches chose.
    """
    made_there = {(each.rule, each.where) for each in chosen.history}
    lost_there = {(each.rule, each.where) for other in lost for each in other.candidate.history}
    wrong_there = {(each.rule, each.where) for each in rolled_back}
    rows = [
        *(_refused(each) for each in rolled_back),
        *(
            _tried(each, f"made in '{other.name}', which did not gain as much when it was timed")
            for other in lost
            for each in other.candidate.history
            if (each.rule, each.where) not in made_there
        ),
        *(
            _tried(each, "it does not pay")
            for each in found.costlier
            if (each.rule, each.where) not in made_there | lost_there
        ),
        *(_refused(each) for each in found.refused if (each.rule, each.where) not in wrong_there),
    ]
    unique = {(each.rule, each.where, each.why): each for each in reversed(rows)}
    return tuple(reversed(unique.values()))[:_MOST_REJECTED]


def _refused(refusal: Refusal) -> Substitution:
    return Substitution(
        rule=refusal.rule, where=refusal.where, why=refusal.reason, is_applied=False
    )


def _tried(tried: Application, why: str) -> Substitution:
    return Substitution(
        rule=tried.rule,
        where=tried.where,
        why=why,
        is_applied=False,
        cost_before_s=tried.cost_before.total_s,
        cost_after_s=tried.cost_after.total_s,
    )
