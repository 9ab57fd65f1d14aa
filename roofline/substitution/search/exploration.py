"""How a search goes on: which graph is looked through next, and what becomes of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from roofline.foundation.progress import Progress
from roofline.foundation.units import format_s
from roofline.substitution.costs.cost import Cost, Costs
from roofline.substitution.graphs.editing import Complete, Editor, RewriteError
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search.places import Refusals, places
from roofline.substitution.search.states import Known, State, Through, changed_nodes, new_nodes

UNKNOWN_TIME = "it changes operators whose time is not known: costs cannot be compared"
"""Why a rewrite is refused whose graph leaves out other operators than the original."""

_RANK_DIGITS = 9
"""Costs that differ less, as a part of the original, are in order of rewrites, not of costs."""

_ROUNDING = 1e-12
"""Sums of the same seconds in another order differ by less than this fraction: that is no gain."""

Ended = Literal["exhausted", "budget", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the rest of a model costs and touches, where a piece of it is searched.

    ``total_s`` are its seconds: what a rewrite may add is relative to the whole model.
    ``touched_bytes`` is what it touches between two passes of the piece.
    """

    total_s: float = 0.0
    touched_bytes: int = 0


class _LateError(Exception):
    """The time limit is over."""


@dataclass(eq=False, kw_only=True)
class Exploration:
    """A search that is running: what has been met, and what waits to be looked through."""

    rules: tuple[Rule, ...]
    costs: Costs
    complete: Complete
    alpha: float
    around: Around
    only: Callable[[Match], bool] | None
    is_thorough: bool
    first: Graph
    is_late: Callable[[], bool]
    expanded: int = 0
    evaluated: int = 0
    duplicates: int = 0
    pruned: int = 0
    cheaper: list[State] = field(default_factory=list[State])
    refusals: Refusals = field(default_factory=Refusals)

    def __post_init__(self) -> None:
        self.original = self.best = State(graph=self.first, cost=self._cost(self.first))
        self._known = Known()
        self._known.note(self.original.made, self.first.digest, self.original.cost)
        self._waiting: list[tuple[float, int, int, State]] = []
        self._through: list[Through] = []
        self._put_before = 0
        self._put(self.original)

    def run(self, budget: int, progress: Progress | None) -> Ended:
        """Looks through graphs until none is left, or the budget or time is used up."""
        while self._waiting:
            if self.expanded >= budget:
                return "budget"
            if self.is_late():
                return "time"
            if progress is not None:
                progress(self.expanded / budget, self._words())
            *_, state = heapq.heappop(self._waiting)
            if self._is_less(self.best.cost, state.cost, 1.0 / self.alpha):
                # The cheapest is too dear: so are all that wait behind it.
                self.pruned += 1 + len(self._waiting)
                break
            try:
                self._look_through(state)
            except _LateError:
                return "time"
        return "exhausted"

    def _words(self) -> str:
        best_s = self.around.total_s + self.best.cost.total_s
        return f"{self.evaluated} graphs, best {format_s(best_s)}"

    def _cost(self, graph: Graph) -> Cost:
        return self.costs.cost(graph, around_bytes=self.around.touched_bytes)

    def _put(self, state: State) -> None:
        # Of graphs that cost as much, but for rounding, the one with more rewrites comes first.
        part = state.cost.total_s / (self.around.total_s + self.original.cost.total_s or 1.0)
        rank = (round(part, _RANK_DIGITS), -state.steps, self._put_before)
        heapq.heappush(self._waiting, (*rank, state))
        self._put_before += 1

    def _is_less(self, cost: Cost, other: Cost, times: float = 1.0) -> bool:
        """Whether the model would cost less with one graph than that many times with another."""
        limit_s = times * (self.around.total_s + other.total_s)
        return self.around.total_s + cost.total_s < limit_s * (1.0 - _ROUNDING)

    def _look_through(self, state: State) -> None:
        near = None if self.is_thorough else state.near()
        possible = [
            (rule, match)
            for rule, match in places(state.graph, self.rules, self.only)
            if (near is None or not near.isdisjoint(match.numbers))
            and self._may_be_made(state, rule, match)
        ]
        if not self.is_thorough:
            through = Through(
                state=state,
                made=state.places,
                possible=frozenset(state.place(rule.name, match) for rule, match in possible),
            )
            if any(each.covers(through, self._is_less) for each in self._through):
                self.pruned += 1
                return
            self._through.append(through)
        self.expanded += 1
        self._expand(state, possible)

    def _expand(self, state: State, possible: list[tuple[Rule, Match]]) -> None:
        paying: list[tuple[State, Rule, Match]] = []
        for rule, match in possible:
            child = self._tried(state, rule, match)
            if child is not None and not self._is_less(state.cost, child.cost):
                paying.append((child, rule, match))
        self._make_together(paying)

    def _make_together(self, paying: list[tuple[State, Rule, Match]]) -> None:
        """Makes all rewrites that cost no more, the best first; of those that overlap the better.

        Those that cost as much may let others pay.
        """
        paying.sort(key=lambda each: each[0].cost.total_s)
        if len(paying) < 2:
            return
        state, _, match = paying[0]
        touched = set(match.numbers)
        for _, rule, match in paying[1:]:
            numbers = set(match.numbers)
            if numbers & touched or not numbers <= state.graph.nodes.keys():
                continue
            if not self._may_be_made(state, rule, match):
                continue
            child = self._tried(state, rule, match)
            if child is not None and not self._is_less(state.cost, child.cost):
                state = child
                touched |= numbers

    def _may_be_made(self, state: State, rule: Rule, match: Match) -> bool:
        if self.is_late():
            raise _LateError
        reason = rule.refuses(state.graph, match)
        if reason:
            self.refusals.add(state.graph, rule, match, reason, state.steps)
        return not reason

    def _tried(self, state: State, rule: Rule, match: Match) -> State | None:
        """The graph that a rewrite makes, if it is a new one."""
        if self.is_late():
            raise _LateError
        rewrite = self._known.rewrite(state, rule.name, match)
        made = state.made | {rewrite}
        if self._known.has(made):
            self._met_again(state, rule, match, self._known.cost_of(made))
            return None
        try:
            graph = self._rewritten(state.graph, rule, match)
        except RewriteError as error:
            self.refusals.add(state.graph, rule, match, str(error), state.steps)
            self._known.note(made, "", None)
            return None
        cost = self._known.cost_by_digest(graph.digest)
        if cost is not None:
            self._met_again(state, rule, match, cost)
            self._known.note(made, "", cost)
            return None
        cost = self._cost(graph)
        self.evaluated += 1
        if not cost.is_comparable(self.original.cost):
            self.refusals.add(state.graph, rule, match, UNKNOWN_TIME, state.steps)
            self._known.note(made, "", None)
            return None
        self._known.note(made, graph.digest, cost)
        state.tried.append((rule.name, match, cost))
        place = state.place(rule.name, match)
        child = State(
            graph=graph,
            cost=cost,
            parent=state,
            by=(rule.name, match),
            steps=state.steps + 1,
            made=made,
            identities=self._known.identities(state, rewrite, graph),
            places=state.places | {place},
            origins={**state.origins, **dict.fromkeys(new_nodes(state.graph, graph), place[1])},
        )
        if self._is_less(state.level, cost):
            child.level = state.level
            child.unpaid = state.unpaid | changed_nodes(state.graph, graph)
        self._weigh(child)
        return child

    def _met_again(self, state: State, rule: Rule, match: Match, cost: Cost | None) -> None:
        self.duplicates += 1
        if cost is not None:
            state.tried.append((rule.name, match, cost))

    def _rewritten(self, graph: Graph, rule: Rule, match: Match) -> Graph:
        editor = Editor(graph, self.complete, rule.name)
        rule.rewrite(editor, match)
        return editor.finished()

    def _weigh(self, state: State) -> None:
        if self._is_less(state.cost, self.original.cost):
            self.cheaper.append(state)
        if self._is_less(state.cost, self.best.cost):
            self.best = state
        if state is self.best or self._is_less(state.cost, self.best.cost, self.alpha):
            self._put(state)
        else:
            self.pruned += 1
