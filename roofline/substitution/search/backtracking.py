"""Algorithm 1 of MetaFlow: a search by cost that lets graphs in that are a little worse.

Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions", SysML 2019. Two things
are added that take nothing away. Rewrites that pay one by one are also made one after the other at
once, so that many independent ones do not need a graph for each subset of them; and the same
rewrites in another order are known without being made again.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from roofline.errors import InputError
from roofline.foundation.units import format_s
from roofline.substitution.costs.cost import Cost, Costs
from roofline.substitution.graphs.editing import Complete, Editor, RewriteError
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.result import SearchStatistics
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search.found import Candidate, Found
from roofline.substitution.search.places import Refusals, places
from roofline.substitution.search.states import Known, State

DEFAULT_ALPHA = 1.05
DEFAULT_BUDGET = 300
DEFAULT_KEEP = 8

UNKNOWN_TIME = "it changes operators whose time is not known: costs cannot be compared"
"""Why a rewrite is refused whose graph leaves out other operators than the original."""

_ROUNDING = 1e-12
"""Sums of the same seconds in another order differ by less than this fraction: that is no gain."""

Progress = Callable[[float, str], None]
"""Told the fraction of the budget that is used, 0 to 1, and how far the search is, in words."""

Ended = Literal["exhausted", "budget", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the rest of a model costs and touches, where a piece of it is searched.

    ``total_s`` are its seconds: what a rewrite may add is relative to the whole model.
    ``touched_byte`` is what it touches between two passes of the piece.
    """

    total_s: float = 0.0
    touched_byte: int = 0


def search(
    graph: Graph,
    rules: tuple[Rule, ...],
    costs: Costs,
    complete: Complete,
    *,
    alpha: float = DEFAULT_ALPHA,
    budget: int = DEFAULT_BUDGET,
    time_limit_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    progress: Progress | None = None,
    keep: int = DEFAULT_KEEP,
    around: Around | None = None,
    only: Callable[[Match], bool] | None = None,
) -> Found:
    """Searches for cheaper graphs that compute the same.

    The same arguments give the same result, unless the time limit ends the search.

    Args:
        graph: what the model is, or a piece of it.
        rules: which rewrites to try, in this order.
        costs: what graphs cost.
        complete: gives new nodes their arguments and types.
        alpha: graphs are followed that cost less than `alpha` times the best; at 1 none that costs
            as much as the best.
        budget: how many graphs are looked through for rewrites at most.
        time_limit_s: when to stop with the best so far; looked at before every rewrite.
        clock: gives seconds.
        progress: told how far the search is.
        keep: how many of the cheapest graphs are given at most.
        around: the rest of the model, where the graph is a piece; None: it is all of the model.
        only: says which places may be rewritten; None: all.

    Raises:
        InputError: alpha is below 1, or the budget or `keep` is.
    """
    check(alpha, budget, keep)
    begin = clock()
    running = _Search(
        rules=rules,
        costs=costs,
        complete=complete,
        alpha=alpha,
        around=around or Around(),
        only=only,
        first=graph,
        is_late=lambda: time_limit_s is not None and clock() - begin >= time_limit_s,
    )
    ended = running.run(budget, progress)
    cheaper = sorted(running.cheaper, key=lambda each: each.cost.total_s)
    return Found(
        original=Candidate(graph=graph, cost=running.original.cost),
        candidates=tuple(state.candidate() for state in cheaper[:keep]),
        refused=running.refusals.all(),
        costlier=running.best.costlier(),
        statistics=SearchStatistics(
            expanded=running.expanded,
            evaluated=running.evaluated,
            duplicates=running.duplicates,
            pruned=running.pruned,
            pieces=1,
            seconds=clock() - begin,
            ended=ended,
        ),
    )


def check(alpha: float, budget: int, keep: int) -> None:
    """Checks what a search is asked for.

    Raises:
        InputError: one of them is below 1.
    """
    if not alpha >= 1.0:
        raise InputError(f"alpha is {alpha:g}; give 1 (never follow a worse graph) or more")
    if budget < 1 or keep < 1:
        raise InputError(f"search budget {budget}, {keep} graphs kept; give at least 1 of each")


class _LateError(Exception):
    """The time limit is over."""


@dataclass(eq=False, kw_only=True)
class _Search:
    rules: tuple[Rule, ...]
    costs: Costs
    complete: Complete
    alpha: float
    around: Around
    only: Callable[[Match], bool] | None
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
        self._waiting: list[tuple[float, int, State]] = []
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
            _, _, state = heapq.heappop(self._waiting)
            if self._is_less(self.best.cost, state.cost, 1.0 / self.alpha):
                # The cheapest is too dear: so are all that wait behind it.
                self.pruned += 1 + len(self._waiting)
                break
            self.expanded += 1
            try:
                self._expand(state)
            except _LateError:
                return "time"
        return "exhausted"

    def _words(self) -> str:
        best_s = self.around.total_s + self.best.cost.total_s
        return f"{self.evaluated} graphs, best {format_s(best_s)}"

    def _cost(self, graph: Graph) -> Cost:
        return self.costs.cost(graph, around_byte=self.around.touched_byte)

    def _put(self, state: State) -> None:
        heapq.heappush(self._waiting, (state.cost.total_s, self._put_before, state))
        self._put_before += 1

    def _is_less(self, cost: Cost, other: Cost, times: float = 1.0) -> bool:
        """Whether the model would cost less with one graph than that many times with another."""
        limit_s = times * (self.around.total_s + other.total_s)
        return self.around.total_s + cost.total_s < limit_s * (1.0 - _ROUNDING)

    def _expand(self, state: State) -> None:
        paying: list[tuple[State, Rule, Match]] = []
        for rule, match in places(state.graph, self.rules, self.only):
            child = self._tried(state, rule, match)
            if child is not None and self._is_less(child.cost, state.cost):
                paying.append((child, rule, match))
        self._make_together(paying)

    def _make_together(self, paying: list[tuple[State, Rule, Match]]) -> None:
        """Makes all rewrites that pay alone, the best first; of those that overlap the better."""
        paying.sort(key=lambda each: each[0].cost.total_s)
        if len(paying) < 2:
            return
        state, _, match = paying[0]
        touched = set(match.numbers)
        for _, rule, match in paying[1:]:
            numbers = set(match.numbers)
            if numbers & touched or not numbers <= state.graph.nodes.keys():
                continue
            child = self._tried(state, rule, match)
            if child is not None and self._is_less(child.cost, state.cost):
                state = child
                touched |= numbers

    def _tried(self, state: State, rule: Rule, match: Match) -> State | None:
        """The graph that a rewrite makes, if it is a new one."""
        if self.is_late():
            raise _LateError
        reason = rule.refuses(state.graph, match)
        if reason:
            self.refusals.add(state.graph, rule, match, reason, state.steps)
            return None
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
        child = State(
            graph=graph,
            cost=cost,
            parent=state,
            by=(rule.name, match),
            steps=state.steps + 1,
            made=made,
            identities=self._known.identities(state, rewrite, graph),
        )
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
