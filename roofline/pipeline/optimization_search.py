"""Searches for cheaper graphs until those that it chose compute what the model computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from roofline.substitution.costs.cost import Cost, CostBasis, Costs
from roofline.substitution.graphs.editing import Complete, Editor, RewriteError
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.result import Proof
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search.found import Application, Candidate, Found, Refusal, where

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

    Args:
        rules: which rewrites to try.
        search: searches with some of them.
        prove: compares a graph with the model.
        fails: tells whether another graph fails a proof, too.
        complete: gives new nodes their arguments and types.
        costs: what graphs cost.
        with_alternatives: gives candidates beside the cheapest, which the clock decides between.
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
