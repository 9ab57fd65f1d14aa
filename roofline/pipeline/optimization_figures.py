"""What a graph is on a machine, before and after: analyses, figures, and whose rows are whose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofline.analysis import Analysis, minimum_times_of
from roofline.foundation.rows import sum_known
from roofline.foundation.sampling import Sample, quantile
from roofline.pipeline.assembly import assemble
from roofline.pipeline.optimization_machine import Machine
from roofline.pipeline.runs import Workload
from roofline.substitution.costs.cost import Cost, CostBasis, Costs
from roofline.substitution.costs.counted import Counted
from roofline.substitution.costs.measurements import MeasuredCosts
from roofline.substitution.graphs.editing import Complete, Editor, RewriteError
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.result import Figures, Proof, Substitution
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search.found import Application, Candidate, Found, Refusal, where
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import residency

if TYPE_CHECKING:
    from roofline.substitution.graphs.capturing import CapturedModel
    from roofline.workload.operators import Capture


_MOST_ROLLBACKS = 6
"""Searches that are begun anew because a rewrite was wrong, before its rule is given up."""

_MOST_LAYOUTS = 100
"""Regions of a model that are laid out anew."""

Search = Callable[[tuple[Rule, ...]], Found]
Prove = Callable[[Graph], tuple[Proof, ...]]
Fails = Callable[[Graph, Proof], bool]
"""Whether a graph fails a proof as another one failed it."""


class RememberedCosts:
    """Costs that are asked for once for each graph; several searches share them.

    Args:
        costs: gives them.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._known: dict[tuple[str, int], Cost] = {}

    @property
    def basis(self) -> CostBasis:
        """What seconds are."""
        return self._costs.basis

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        """The cost of one pass; see `Costs`."""
        key = graph.digest, around_bytes
        if key not in self._known:
            self._known[key] = self._costs.cost(graph, around_bytes=around_bytes)
        return self._known[key]


@dataclass(frozen=True, kw_only=True, eq=False)
class Proven:
    """A graph that costs less, by which search it was found, and the proofs that it holds.

    ``name`` says which rules were allowed. ``is_tried`` says that it does not cost less, and is
    worth timing all the same.
    """

    name: str
    candidate: Candidate
    found: Found
    proofs: tuple[Proof, ...] = ()
    is_tried: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Searched:
    """What searches found: the best of all rules first, what was rolled back, and what to know."""

    found: Found
    proven: tuple[Proven, ...]
    rolled_back: tuple[Refusal, ...]
    notes: tuple[str, ...] = ()


def searched(
    rules: tuple[Rule, ...],
    search: Search,
    prove: Prove,
    fails: Fails,
    complete: Complete,
    *,
    costs: Costs,
    with_alternatives: bool,
) -> Searched:
    """The best graph that all rules give, and with alternatives those that fewer rules give.

    What pays by its cost may not pay by the clock: the graph without changed layouts, and that of
    safe rules alone, are candidates, too. Bounds are the same in any layout, and calibrations
    have mostly seen one: unless operators were timed, the best graph in another layout is a
    candidate for the clock whatever it costs.
    """
    running = _Running(search=search, prove=prove, fails=fails, complete=complete)
    first = running.proven("all rules", rules)
    chosen = [first] if first.candidate.history else []
    if with_alternatives and chosen:
        used = {rule.name: rule for rule in rules}
        for name, safeties in (
            ("no layouts", ("safe", "adds work")),
            ("safe rules", ("safe",)),
        ):
            made = {
                used[each.rule].safety for proven in chosen for each in proven.candidate.history
            }
            fewer = tuple(rule for rule in rules if rule.safety in safeties)
            if made <= set(safeties) or not fewer:
                continue
            other = running.proven(name, fewer)
            known = {each.candidate.graph.digest for each in chosen}
            if other.candidate.history and other.candidate.graph.digest not in known:
                chosen.append(other)
    has_layout = any(rule.safety == "changes layout" for rule in _used(first.candidate, rules))
    if with_alternatives and not has_layout and costs.basis != "measured":
        tried = running.in_other_layout(first, rules, costs)
        if tried is not None:
            chosen.append(tried)
    return Searched(
        found=first.found,
        proven=tuple(chosen),
        rolled_back=tuple(running.rolled_back),
        notes=running.notes,
    )


def _used(candidate: Candidate, rules: Sequence[Rule]) -> list[Rule]:
    names = {each.rule for each in candidate.history}
    return [rule for rule in rules if rule.name in names]


class _Running:
    def __init__(self, *, search: Search, prove: Prove, fails: Fails, complete: Complete) -> None:
        self._search = search
        self._prove = prove
        self._fails = fails
        self._complete = complete
        self._forbidden: set[tuple[str, tuple[str, ...]]] = set()
        self._given_up: set[str] = set()
        self.rolled_back: list[Refusal] = []
        self.notes: tuple[str, ...] = ()

    def proven(self, name: str, rules: tuple[Rule, ...]) -> Proven:
        """The best graph that holds its proofs; the original where none does."""
        while True:
            found = self._search(self._allowed(rules))
            best = found.best
            if not best.history:
                return Proven(name=name, candidate=found.original, found=found)
            proofs = self._prove(best.graph)
            failed = [each for each in proofs if not each.holds]
            if not proofs:
                self.notes = (_NOT_COMPARED,)
                return Proven(name=name, candidate=found.original, found=found)
            if not failed:
                return Proven(name=name, candidate=best, found=found, proofs=proofs)
            self._roll_back(found.original.graph, best.history, rules, _worst(failed))

    def in_other_layout(self, best: Proven, rules: Sequence[Rule], costs: Costs) -> Proven | None:
        """The graph with other layouts wherever that can be; None: nowhere, or it is wrong."""
        candidate = best.candidate
        for rule in self._allowed([each for each in rules if each.safety == "changes layout"]):
            candidate = self._everywhere(candidate, rule, costs)
        if len(candidate.history) == len(best.candidate.history):
            return None
        proofs = self._prove(candidate.graph)
        failed = [each for each in proofs if not each.holds]
        if not proofs:
            return None
        if failed:
            wrong = candidate.history[-1]
            self.rolled_back.append(_rolled_back(wrong, _worst(failed)))
            return None
        return Proven(
            name="other layout",
            candidate=candidate,
            found=best.found,
            proofs=proofs,
            is_tried=True,
        )

    def _everywhere(self, candidate: Candidate, rule: Rule, costs: Costs) -> Candidate:
        """A graph after a rule was applied at its first place, then at the first that is left …"""
        for _ in range(_MOST_LAYOUTS):
            graph = candidate.graph
            match = next(
                (each for each in rule.pattern.matches(graph) if not rule.refuses(graph, each)),
                None,
            )
            if match is None:
                break
            try:
                editor = Editor(graph, self._complete, rule.name)
                rule.rewrite(editor, match)
                changed = editor.finished()
                cost = costs.cost(changed)
            except RewriteError:
                break
            made = Application(
                rule=rule.name,
                match=match,
                where=where(graph, match),
                cost_before=candidate.cost,
                cost_after=cost,
                removed=tuple(each for each in graph.nodes if each not in changed.nodes),
                added=tuple(each for each in changed.nodes if each not in graph.nodes),
            )
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
            if (rule.name, place_of(graph, match)) in self._forbidden:
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
        """Forbids the first rewrite after which the outputs are wrong, there; if that was of no
        avail, or cannot be found, the whole rule."""
        by_name = {rule.name: rule for rule in rules}
        wrong, before = history[-1], None
        try:
            for each in history:
                editor = Editor(graph, self._complete, each.rule)
                by_name[each.rule].rewrite(editor, each.match)
                changed = editor.finished()
                if self._fails(changed, worst):
                    wrong, before = each, graph
                    break
                graph = changed
        # Histories of pieces have other numbers than the whole: then it is the last rule.
        except (RewriteError, KeyError):
            before = None
        self.rolled_back.append(_rolled_back(wrong, worst))
        if before is None or len(self._forbidden) >= _MOST_ROLLBACKS:
            self._given_up.add(wrong.rule)
        else:
            self._forbidden.add((wrong.rule, place_of(before, wrong.match)))


def _worst(failed: Sequence[Proof]) -> Proof:
    return max(failed, key=lambda each: each.largest_error / each.limit)


def _rolled_back(wrong: Application, worst: Proof) -> Refusal:
    why = f"{_WRONG}: {worst.largest_error:.1g} of the largest value, in {worst.dtype}"
    return Refusal(rule=wrong.rule, match=wrong.match, where=wrong.where, reason=why)


_NOT_COMPARED = (
    "the model runs neither in float64 nor in float32, so that no outputs could be compared, and"
    " nothing is chosen that was not"
)

_WRONG = "rolled back: the outputs are others than before"


def place_of(graph: Graph, match: Match) -> tuple[str, ...]:
    """What the operators of a match compute: the same place in whichever order graphs were made."""
    return tuple(graph.digests[number] for number in match.numbers)


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
    """The operators of a graph, or of the model itself, under the ceilings of a machine."""
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
        costs: those that operators were timed for; None: they were not.
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
