"""Search repeated until the chosen graph holds its proofs, and figures of graphs on a machine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from roofline.analysis import Analysis, minimum_times_of
from roofline.core.sampling import Sample, quantile
from roofline.core.units import sum_known
from roofline.pipeline.analyses import assemble_analysis
from roofline.pipeline.optimization_machine import Machine
from roofline.pipeline.runs import CapturedPass
from roofline.substitution.costs import Cost, Costs, MeasuredCosts, SummedCosts
from roofline.substitution.graphs.graph import Complete, Graph, RewriteError, Weight
from roofline.substitution.result import Figures, Proof, Substitution
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search import (
    Application,
    Candidate,
    Refusal,
    SearchResult,
    make_application,
)
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import trace_residency

if TYPE_CHECKING:
    import torch

    from roofline.pipeline.runs import Workload
    from roofline.substitution.graphs.capturing import CapturedModel
    from roofline.substitution.graphs.counting import Counted
    from roofline.substitution.proof import Prover

_MOST_ROLLBACKS = 6
"""Maximum number of searches restarted after a wrong rewrite; then its rule is disabled."""

_MOST_LAYOUTS = 100
"""Maximum number of regions with changed layout."""

_MOST_REJECTED = 300
"""Maximum number of rejected rewrites in a result."""

_NOT_COMPARED = (
    "original kept: the model runs neither in float64 nor in float32, so outputs could not be"
    " compared"
)

_WRONG = "rolled back: outputs differ"


@dataclass(frozen=True, kw_only=True, eq=False)
class ProvenGraph:
    """Graph of lower cost, its search, and its valid proofs.

    ``name`` states the allowed rules. ``is_tried``: its cost is not lower, but it is worth timing.
    """

    name: str
    candidate: Candidate
    found: SearchResult
    proofs: tuple[Proof, ...] = ()
    is_tried: bool = False


class ProvenSearch:
    """Best graph by all rules, and with alternatives those by fewer rules.

    A lower cost may not mean a lower time: graphs without changed layouts, and by safe rules alone,
    are also candidates. Minimum times do not depend on the layout, and calibrations mostly cover
    one. Unless operators were timed, the best graph in another layout is therefore timed whatever
    its cost.

    ``found`` is the search with all rules, ``proven`` are the graphs, ``rolled_back`` wrong
    rewrites.
    """

    def __init__(
        self,
        rules: tuple[Rule, ...],
        search: Callable[[tuple[Rule, ...]], SearchResult],
        prover: Prover,
        complete: Complete,
        *,
        costs: Costs,
        with_alternatives: bool,
    ) -> None:
        self._search = search
        self._prover = prover
        self._complete = complete
        self._forbidden: set[tuple[str, tuple[str, ...]]] = set()
        self._given_up: set[str] = set()
        self.rolled_back: list[Refusal] = []
        self.notes: tuple[str, ...] = ()
        best = self._proven("all rules", rules)
        self.found = best.found
        self.proven = [best] if best.candidate.history else []
        safety = {rule.name: rule.safety for rule in rules}
        if with_alternatives and self.proven:
            for name, safeties in (
                ("no layouts", {"safe", "adds work"}),
                ("safe rules", {"safe"}),
            ):
                histories = (each.candidate.history for each in self.proven)
                made = {safety[each.rule] for each in chain.from_iterable(histories)}
                fewer = tuple(rule for rule in rules if rule.safety in safeties)
                if made <= safeties or not fewer:
                    continue
                other = self._proven(name, fewer)
                known = {each.candidate.graph.digest for each in self.proven}
                if other.candidate.history and other.candidate.graph.digest not in known:
                    self.proven.append(other)
        has_layout = any(safety[e.rule] == "changes layout" for e in best.candidate.history)
        if with_alternatives and not has_layout and costs.basis != "measured":
            self._try_other_layout(best, rules, costs)

    def _proven(self, name: str, rules: tuple[Rule, ...]) -> ProvenGraph:
        """Return the best graph that holds its proofs; the original if none does."""
        while True:
            found = self._search(self._allowed(rules))
            best = found.best
            if not best.history:
                return ProvenGraph(name=name, candidate=found.original, found=found)
            proofs = self._prover.prove(best.graph)
            failed = [each for each in proofs if not each.holds]
            if not proofs:
                self.notes = (_NOT_COMPARED,)
                return ProvenGraph(name=name, candidate=found.original, found=found)
            if not failed:
                return ProvenGraph(name=name, candidate=best, found=found, proofs=proofs)
            self._roll_back(found.original.graph, best.history, rules, _worst(failed))

    def _try_other_layout(self, best: ProvenGraph, rules: Sequence[Rule], costs: Costs) -> None:
        """Add the graph with other layouts wherever possible, if new and proven."""
        candidate = best.candidate
        for rule in self._allowed([each for each in rules if each.safety == "changes layout"]):
            candidate = self._everywhere(candidate, rule, costs)
        if len(candidate.history) == len(best.candidate.history):
            return
        proofs = self._prover.prove(candidate.graph)
        failed = [each for each in proofs if not each.holds]
        if failed:
            self.rolled_back.append(_rollback_of(candidate.history[-1], _worst(failed)))
        elif proofs:
            other = replace(best, name="other layout", candidate=candidate, proofs=proofs)
            self.proven.append(replace(other, is_tried=True))

    def _everywhere(self, candidate: Candidate, rule: Rule, costs: Costs) -> Candidate:
        """Return the graph after repeated application of a rule to its first match."""
        for _ in range(_MOST_LAYOUTS):
            graph = candidate.graph
            places = (each for each in rule.pattern.matches(graph) if not rule.refuses(graph, each))
            match = next(places, None)
            if match is None:
                break
            try:
                changed = rule.applied(graph, match, self._complete)
                cost = costs.cost(changed)
            except RewriteError:
                break
            made = make_application(graph, changed, rule.name, match, (candidate.cost, cost))
            candidate = Candidate(graph=changed, cost=cost, history=(*candidate.history, made))
        return candidate

    def _allowed(self, rules: Sequence[Rule]) -> tuple[Rule, ...]:
        return tuple(
            self._without_wrong_places(rule) for rule in rules if rule.name not in self._given_up
        )

    def _without_wrong_places(self, rule: Rule) -> Rule:
        if not any(name == rule.name for name, _ in self._forbidden):
            return rule

        def refuses(graph: Graph, match: Match) -> str:
            if (rule.name, _match_digests(graph, match)) in self._forbidden:
                return _WRONG
            return rule.refuses(graph, match)

        return replace(rule, refuses=refuses)

    def _roll_back(
        self,
        graph: Graph,
        history: tuple[Application, ...],
        rules: Sequence[Rule],
        worst: Proof,
    ) -> None:
        """Forbid the first wrong rewrite at its location, or else its whole rule."""
        by_name = {rule.name: rule for rule in rules}
        wrong, before = history[-1], None
        try:
            for each in history:
                changed = by_name[each.rule].applied(graph, each.match, self._complete)
                if self._prover.fails(changed, worst):
                    wrong, before = each, graph
                    break
                graph = changed
        # Histories of subgraphs have other node numbers: then disable the last rule.
        except (RewriteError, KeyError):
            before = None
        self.rolled_back.append(_rollback_of(wrong, worst))
        if before is None or len(self._forbidden) >= _MOST_ROLLBACKS:
            self._given_up.add(wrong.rule)
        else:
            self._forbidden.add((wrong.rule, _match_digests(before, wrong.match)))


def _worst(failed: Sequence[Proof]) -> Proof:
    return max(failed, key=lambda each: each.largest_error / (each.limit or math.ulp(0.0)))


def _rollback_of(wrong: Application, worst: Proof) -> Refusal:
    why = f"{_WRONG} by {worst.largest_error:.1g} of the largest value in {worst.dtype}"
    return Refusal(rule=wrong.rule, match=wrong.match, where=wrong.where, reason=why)


def _match_digests(graph: Graph, match: Match) -> tuple[str, ...]:
    """Return the computations of a match, independent of the order of rewrites."""
    return tuple(graph.digests[number] for number in match.numbers)


# -- models whose modules were searched ------------------------------------------------------------

WholePass = tuple[Cost, Analysis, int]
"""Cost, analysis and size of the weights of one pass."""


def whole_passes(
    asked: Workload,
    machine: Machine,
    costs: SummedCosts,
    captured: CapturedModel,
    graphs: Sequence[Candidate],
    modules: Sequence[torch.nn.Module],
) -> dict[Candidate, WholePass]:
    """Return a captured pass of each model, whose searched modules run a graph; original first."""
    from roofline.latency.measuring.calls import CallLog
    from roofline.substitution.graphs.counting import Counted

    found: dict[Candidate, WholePass] = {}
    searched_bytes = weight_bytes(captured.graph, captured)
    kept_bytes = 0
    for graph, module in zip(graphs, modules, strict=True):
        log = CallLog()
        source = replace(asked.source, module=module, rebuild=None)
        passed = replace(asked, source=source).captured(on_call=log.begin)
        capture, own = passed.capture, weight_bytes(graph.graph, captured)
        counted = Counted(
            records=capture.records, node_of=(-1,) * len(log.calls), calls=tuple(log.calls)
        )
        if not found:
            kept_bytes = capture.parameter_size_bytes + capture.buffer_size_bytes - searched_bytes
        analysis = analysis_of(capture.records, passed, machine)
        found[graph] = costs.cost_of(counted), analysis, kept_bytes + own
    return found


# -- figures ---------------------------------------------------------------------------------------


def analysis_of(
    records: tuple[OperatorRecord, ...], first: CapturedPass, machine: Machine
) -> Analysis:
    """Return the analysis of a graph, or of the model itself, on a machine."""
    paths = {each.module_path for each in records}
    modules = tuple(each for each in first.capture.modules if each.path in paths or not each.path)
    passed = replace(
        first,
        capture=replace(first.capture, records=records, modules=modules, notes=()),
        reuse=trace_residency(records),
    )
    return assemble_analysis(passed, machine.roof, notes=(), predictor=machine.predictor)


def weight_bytes(graph: Graph, captured: CapturedModel) -> int:
    """Return the size of a graph's weights in bytes; tied ones count once."""
    from roofline.workload.torch_dtypes import torch_dtype

    found: dict[object, int] = {}
    returned = (each for each in graph.outputs if isinstance(each, Weight))
    for weight in chain(*(node.weights() for node in graph.nodes.values()), returned):
        type = weight.type
        tensor = captured.weights.get(weight.name) if weight.name else None
        key: object = weight.key
        if tensor is not None:
            key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), type.shape)
        found[key] = torch_dtype(type.dtype).itemsize * math.prod(type.shape)
    return sum(found.values())


def is_slower(after: Analysis, before: Analysis, own: Analysis) -> bool:
    """Return whether a result takes at least as long as the model's own pass, if that has fewer
    operators than its graph (torch's fast path for transformers).
    """
    if len(own.operators) >= len(before.operators):
        return False
    if after.prediction is not None and own.prediction is not None:
        return after.prediction.predicted_s >= own.prediction.predicted_s
    times = after.totals.eager_min_time_s, own.totals.eager_min_time_s
    return times[0] is not None and times[1] is not None and times[0] >= times[1]


def figures_of(
    cost: Cost, analysis: Analysis, weight_bytes: int, sample: Sample | None = None
) -> Figures:
    """Return the figures of one forward pass; rates use the measured time, else the cost.

    With operator fusion, the roofline is that of fused kernels; timed passes are eager.
    """
    time_s = sample.median_s if sample is not None else cost.total_s
    # Without unknown operators, a time is comparable with the minimum of all of them.
    is_whole = sample is not None or not cost.unknown
    least_s = analysis.totals.eager_min_time_s if is_whole else None
    if sample is None and cost.eager_min_time_s is not None and not cost.unknown:
        least_s = cost.eager_min_time_s
    return Figures(
        cost_s=cost.total_s,
        traffic_bytes=cost.traffic_bytes,
        launches=cost.launches,
        flop=cost.flop,
        weight_bytes=weight_bytes,
        measured_s=sample.median_s if sample else None,
        measured_low_s=quantile(sample.times_s, 0.1) if sample else None,
        measured_high_s=quantile(sample.times_s, 0.9) if sample else None,
        flop_per_s=cost.flop / time_s if cost.flop is not None and time_s > 0 else None,
        share_of_roof=least_s / time_s if least_s is not None and time_s > 0 else None,
        **minimum_times_of(analysis.totals),
    )


# -- rewrites --------------------------------------------------------------------------------------


def applied_rewrites(
    candidate: Candidate,
    rules: Sequence[Rule],
    before: Counted,
    after: Counted,
    costs: MeasuredCosts | None,
    *,
    is_applied: bool,
) -> tuple[Substitution, ...]:
    """Return the rewrites of a candidate, with the analysis rows that they remove and add."""
    summaries = {rule.name: rule.summary for rule in rules}
    found: list[Substitution] = []
    for each, gone, new in zip(candidate.history, *_trace_nodes(candidate), strict=True):
        olds, news = _rows_of(gone, before), _rows_of(new, after)
        found.append(
            replace(
                _from_application(each, summaries.get(each.rule, "")),
                is_applied=is_applied,
                measured_before_s=_measured_s(olds, before, costs),
                measured_after_s=_measured_s(news, after, costs),
                before_operators=olds,
                after_operators=news,
            )
        )
    return tuple(found)


def _trace_nodes(candidate: Candidate) -> tuple[list[set[int]], list[set[int]]]:
    """Return, for each rewrite, the original nodes that it removes, directly or through earlier
    rewrites, and the final nodes that it adds, directly or through later ones.
    """
    comes_from: dict[int, set[int]] = {}
    gone: list[set[int]] = []
    for each in candidate.history:
        gone.append({origin for node in each.removed for origin in comes_from.get(node, {node})})
        comes_from |= dict.fromkeys(each.added, gone[-1])
    becomes: dict[int, set[int]] = {}
    new: list[set[int]] = []
    for each in reversed(candidate.history):
        now = {final for node in each.added for final in becomes.get(node, {node})}
        new.append(now & candidate.graph.nodes.keys())
        becomes |= dict.fromkeys(each.removed, new[-1])
    return gone, new[::-1]


def _rows_of(nodes: Iterable[int], counted: Counted) -> tuple[int, ...]:
    known = set(nodes)
    return tuple(row for row, node in enumerate(counted.node_of) if node in known)


def _measured_s(rows: Sequence[int], counted: Counted, costs: MeasuredCosts | None) -> float | None:
    """Return the time of operators in seconds; None: one of them was not timed."""
    if costs is None:
        return None
    working = [row for row in rows if counted.records[row].state is not State.FREE]
    return sum_known(costs.time_s(counted.calls[row]) for row in working)


def rejected_rewrites(
    found: SearchResult,
    chosen: Candidate,
    rolled_back: Sequence[Refusal],
    lost: Sequence[ProvenGraph],
) -> tuple[Substitution, ...]:
    """Return the rejected rewrites, each once with its reason; at most a few hundred.

    Order: rolled back, of other candidates, of higher cost, refused.
    """
    made_there = {each.place for each in chosen.history}
    wrong_there = {(each.rule, each.where) for each in rolled_back}
    by_reason: defaultdict[str, list[Application]] = defaultdict(list)
    for other in lost:
        why = f"in candidate '{other.name}', not chosen by its times"
        by_reason[why] += [e for e in other.candidate.history if e.place not in made_there]
    there = made_there.union(each.place for other in lost for each in other.candidate.history)
    by_reason["no saving"] += [each for each in found.costlier if each.place not in there]
    rows = [
        *(_from_refusal(each) for each in rolled_back),
        *(_from_application(each, why) for why, tried in by_reason.items() for each in tried),
        *(
            _from_refusal(each)
            for each in found.refused
            if (each.rule, each.where) not in wrong_there
        ),
    ]
    unique = {(each.rule, each.where, each.why): each for each in reversed(rows)}
    return tuple(reversed(unique.values()))[:_MOST_REJECTED]


def _from_refusal(refusal: Refusal) -> Substitution:
    return Substitution(
        rule=refusal.rule, where=refusal.where, why=refusal.reason, is_applied=False
    )


def _from_application(tried: Application, why: str) -> Substitution:
    return Substitution(
        rule=tried.rule,
        where=tried.where,
        why=why,
        is_applied=False,
        cost_before_s=tried.cost_before.total_s,
        cost_after_s=tried.cost_after.total_s,
    )
