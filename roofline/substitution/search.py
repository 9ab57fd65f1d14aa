"""Algorithm 1 of MetaFlow: cost-based search that also expands slightly worse graphs.

Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions", SysML 2019. Many rewrites
are independent, and each subset of them is a graph. Two lossless measures limit their number:
rewrites that do not raise the cost are also applied jointly, and the same rewrites in another order
are recognized without applying them. Unless the search is exhaustive, two more prune graphs:

* Skip a graph if another one has the same rewrites and more, costs no more, and allows everything
  that the first one allows.
* After a rewrite that raises the cost, apply only nearby ones until it pays. Distant rewrites are
  also reached without it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from numbers import Real
from typing import Literal

from roofline.core.progress import Progress
from roofline.core.text import printable
from roofline.core.units import format_s
from roofline.errors import InputError, argument
from roofline.substitution.costs import Cost, Costs
from roofline.substitution.graphs.graph import INPUT, Complete, Graph, RewriteError
from roofline.substitution.result import SearchStatistics
from roofline.substitution.rules.rule import Match, Rule

DEFAULT_ALPHA = 1.05
DEFAULT_BUDGET = 300
MOST_CANDIDATES = 8
"""Number of cheapest graphs returned."""

UNKNOWN_TIME = "changes operators of unknown time: costs are not comparable"
"""Reason for rejecting a rewrite that changes the set of operators of unknown time."""

# -- results of a search ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One rule applied to one match, and its effect on the cost of the model.

    Attributes:
        match: node numbers of the graph before.
        removed: nodes of the graph before that are gone; empty for a rewrite that was only tried,
            like `added`.
        added: new nodes. Numbers stay the same along a history: a node that no application added is
            in the original graph.
    """

    rule: str
    match: Match
    where: str
    cost_before: Cost
    cost_after: Cost
    removed: tuple[int, ...] = ()
    added: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[str, str]:
        """Rule and location, as shown in the report."""
        return self.rule, self.where


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Match that must not, or cannot, be rewritten."""

    rule: str
    match: Match
    where: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """Graph, its cost, and the rewrites that lead to it, in order."""

    graph: Graph
    cost: Cost
    history: tuple[Application, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchResult:
    """Result of a search.

    Attributes:
        candidates: graphs of lower cost than the original, cheapest first.
        refused: matches that were not rewritten, each once with its reason.
        costlier: rewrites that do not pay, of the original and of graphs on the way to the best
            one, each with its cost.
    """

    original: Candidate
    candidates: tuple[Candidate, ...]
    refused: tuple[Refusal, ...]
    costlier: tuple[Application, ...]
    statistics: SearchStatistics

    @property
    def best(self) -> Candidate:
        return self.candidates[0] if self.candidates else self.original


def make_application(
    before: Graph, after: Graph, rule: str, match: Match, costs: tuple[Cost, Cost]
) -> Application:
    """Return the application that turns one graph into another, with both costs."""
    return Application(
        rule=rule,
        match=match,
        where=describe_match(before, match),
        cost_before=costs[0],
        cost_after=costs[1],
        removed=tuple(number for number in before.nodes if number not in after.nodes),
        added=new_nodes(before, after),
    )


def new_nodes(before: Graph, after: Graph) -> tuple[int, ...]:
    return tuple(n for n in range(before.next_number, after.next_number) if n in after.nodes)


_SHOWN_NAMES = 4


def describe_match(graph: Graph, match: Match) -> str:
    """Return the modules, or operators, of a match: ``"layer1.0.{conv1, bn1}"``."""
    nodes = [graph.nodes[number] for number in match.numbers]
    made = [node for node in nodes if node.op != INPUT]
    paths = list(dict.fromkeys(node.module_path for node in made if node.module_path))
    names = paths or list(dict.fromkeys(node.op.removeprefix("aten.") for node in made or nodes))
    parts = [name.split(".") for name in names]
    common = 0
    if len(paths) > 1:
        shortest = min(map(len, parts))
        while common + 1 < shortest and len({each[common] for each in parts}) == 1:
            common += 1
    more = [f"{len(names) - _SHOWN_NAMES} more"] if len(names) > _SHOWN_NAMES else []
    text = ", ".join((*(".".join(each[common:]) for each in parts[:_SHOWN_NAMES]), *more))
    return printable(f"{'.'.join(parts[0][:common])}.{{{text}}}" if common else text)


def find_matches(
    graph: Graph, rules: Sequence[Rule], only: Callable[[Match], bool] | None = None
) -> Iterator[tuple[Rule, Match]]:
    """Yield the matches of all rules, in order of the rules, filtered by `only`."""
    for rule in rules:
        for match in rule.pattern.matches(graph):
            if only is None or only(match):
                yield rule, match


class Refusals:
    """Rejected matches, each once with a reason, across all graphs."""

    def __init__(self) -> None:
        self._met: set[tuple[str, Match, str]] = set()
        self._kept: dict[tuple[str, str, str], Refusal] = {}

    def add(self, graph: Graph, rule: Rule, match: Match, reason: str) -> None:
        """Store a match with its reason, unless known."""
        if (rule.name, match, reason) not in self._met:
            self._met.add((rule.name, match, reason))
            place = describe_match(graph, match)
            self.keep(Refusal(rule=rule.name, match=match, where=place, reason=reason))

    def keep(self, refusal: Refusal) -> None:
        self._kept.setdefault((refusal.rule, refusal.where, refusal.reason), refusal)

    def all(self) -> tuple[Refusal, ...]:
        return tuple(self._kept.values())


# -- states ----------------------------------------------------------------------------------------

_NodeIdentity = tuple[int, int] | int
"""Node identity, independent of the order of rewrites: number in the original graph, or a rewrite
and the position among its new nodes.
"""

_MatchOrigin = tuple[str, frozenset[int]]
"""Rule, and the original nodes from which its match was derived."""

_NEAR = 3
"""Maximum distance, in operators, of rewrites near each other. It spans two branches, each with an
activation, that share their first or last operator.
"""


@dataclass(eq=False, slots=True, kw_only=True)
class _State:
    """Graph met in the search, with the rewrite ``by`` which it was reached.

    Attributes:
        made: rewrites from the original graph, unordered; ``places`` are their origins.
        possible: origins of further rewrites.
        origins: original nodes of new ones.
        tried: rewrites of this graph, with the resulting costs.
        level: cost before the rewrites that do not pay yet; the own cost if there are none.
        unpaid: nodes changed by those rewrites.
    """

    graph: Graph
    cost: Cost
    parent: _State | None = None
    by: tuple[str, Match] | None = None
    steps: int = 0
    made: frozenset[int] = frozenset()
    identities: dict[int, _NodeIdentity] = field(default_factory=dict[int, _NodeIdentity])
    places: frozenset[_MatchOrigin] = frozenset()
    possible: frozenset[_MatchOrigin] = frozenset()
    origins: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    tried: list[tuple[str, Match, Cost]] = field(default_factory=list[tuple[str, Match, Cost]])
    unpaid: frozenset[int] = frozenset()
    level: Cost = field(init=False)

    def __post_init__(self) -> None:
        self.level = self.cost

    def place(self, rule: str, match: Match) -> _MatchOrigin:
        own = (self.origins.get(number, frozenset((number,))) for number in match.numbers)
        return rule, frozenset[int]().union(*own)

    def near(self) -> frozenset[int] | None:
        """Return the nodes near rewrites that do not pay yet; None: all pay."""
        if not self.unpaid:
            return None
        graph = self.graph
        found = {number for number in self.unpaid if number in graph.nodes}
        for _ in range(_NEAR):
            takers = {user for number in found for user in graph.users(number)}
            given = {value.node for number in found for value in graph.nodes[number].values()}
            found |= takers | given
        return frozenset(found)

    def covers(self, other: _State, is_less: Callable[[Cost, Cost], bool]) -> bool:
        """Return whether this graph has the rewrites of `other` and more, costs no more, and blocks
        none.

        A rewrite derived from several nodes covers those derived from some of them.
        """
        return (
            other.steps < self.steps
            and not is_less(other.cost, self.cost)
            and all(_is_covered(place, self.places) for place in other.places)
            and all(
                _is_covered(place, self.places) or _is_covered(place, self.possible)
                for place in other.possible
            )
        )

    def path(self) -> list[_State]:
        states: list[_State] = [self]
        while states[-1].parent is not None:
            states.append(states[-1].parent)
        return states[::-1]

    def candidate(self) -> Candidate:
        made = tuple(
            make_application(
                state.parent.graph, state.graph, *state.by, (state.parent.cost, state.cost)
            )
            for state in self.path()
            if state.parent is not None and state.by is not None
        )
        return Candidate(graph=self.graph, cost=self.cost, history=made)

    def costlier(self) -> tuple[Application, ...]:
        """Return the unprofitable rewrites tried on the way to this graph, each location once."""
        made = {each.place for each in self.candidate().history}
        found: dict[tuple[str, str], Application] = {}
        for state in self.path():
            for rule, match, cost in state.tried:
                if cost.total_s < state.cost.total_s:
                    continue
                each = Application(
                    rule=rule,
                    match=match,
                    where=describe_match(state.graph, match),
                    cost_before=state.cost,
                    cost_after=cost,
                )
                if each.place not in made:
                    found[each.place] = each
        return tuple(found.values())


def _is_covered(place: _MatchOrigin, by: frozenset[_MatchOrigin]) -> bool:
    rule, origins = place
    return place in by or any(rule == other and origins <= wider for other, wider in by)


# -- the search ------------------------------------------------------------------------------------

_RANK_DIGITS = 9
"""Decimal digits of relative costs in the ranking; graphs equal to these are ranked by their
rewrites.
"""

_ROUNDING = 1e-12
"""Relative rounding error of sums in different order; smaller differences are no gain."""

Ended = Literal["exhausted", "budget", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOfModel:
    """Cost and traffic of the rest of a model, during the search of a subgraph.

    Attributes:
        total_s: cost of the rest: `alpha` is relative to the whole model.
        touched_bytes: bytes touched between two passes of the subgraph.
    """

    total_s: float = 0.0
    touched_bytes: int = 0


class _TimeLimitError(Exception): ...


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
    rest: RestOfModel | None = None,
    only: Callable[[Match], bool] | None = None,
    is_exhaustive: bool = False,
) -> SearchResult:
    """Search a graph, or a subgraph of a model, for equivalent graphs of lower cost.

    Deterministic, unless the time limit ends the search.

    Args:
        complete: adds missing arguments and types to new nodes.
        alpha: expand graphs that cost less than `alpha` times the best; 1: improvements only.
        budget: maximum number of graphs to expand.
        time_limit_s: checked before every rewrite; the best graph so far is returned.
        rest: rest of the model, if the graph is a subgraph.
        only: filter of matches; None: all.
        is_exhaustive: disable the pruning that relies on independence of rewrites.
    """
    check_search(alpha, budget)
    begin = clock()
    running = _Search(
        rules=rules,
        costs=costs,
        complete=complete,
        alpha=alpha,
        rest=rest or RestOfModel(),
        only=only,
        is_exhaustive=is_exhaustive,
        first=graph,
        is_out_of_time=lambda: time_limit_s is not None and clock() - begin >= time_limit_s,
    )
    ended = running.run(budget, progress)
    cheaper = sorted(running.cheaper, key=lambda each: each.cost.total_s)
    return SearchResult(
        original=Candidate(graph=graph, cost=running.original.cost),
        candidates=tuple(state.candidate() for state in cheaper[:MOST_CANDIDATES]),
        refused=running.refusals.all(),
        costlier=running.best.costlier(),
        statistics=SearchStatistics(
            **running.counts, pieces=1, seconds=clock() - begin, ended=ended
        ),
    )


def check_search(alpha: float, budget: int) -> None:
    """Check the search options; raise an InputError if invalid."""
    if not isinstance(alpha, Real) or isinstance(alpha, bool) or not float(alpha) >= 1.0:
        raise InputError(
            f"{argument('alpha', alpha)}: must be a number from 1 (1: improvements only)"
        )
    # bool is a subclass of int.
    if type(budget) is not int or budget < 1:
        raise InputError(f"{argument('budget', budget)}: must be a whole number of graphs from 1")


NO_COUNTS = {"expanded": 0, "evaluated": 0, "duplicates": 0, "pruned": 0}
"""Counters of a search, named as in `SearchStatistics`."""


@dataclass(eq=False, kw_only=True)
class _Search:
    """State of a running search: known graphs, and the queue of graphs to expand."""

    rules: tuple[Rule, ...]
    costs: Costs
    complete: Complete
    alpha: float
    rest: RestOfModel
    only: Callable[[Match], bool] | None
    is_exhaustive: bool
    first: Graph
    is_out_of_time: Callable[[], bool]
    counts: dict[str, int] = field(default_factory=NO_COUNTS.copy)
    cheaper: list[_State] = field(default_factory=list[_State])
    refusals: Refusals = field(default_factory=Refusals)

    def __post_init__(self) -> None:
        self.original = self.best = _State(graph=self.first, cost=self._cost(self.first))
        # The same rewrites of the same nodes give the same graph in any order. A cost is None if
        # the rewrite failed, or its cost is not comparable.
        self._rewrites: dict[object, int] = {}
        self._by_made: dict[frozenset[int], Cost | None] = {frozenset(): self.original.cost}
        self._by_digest: dict[str, Cost] = {self.first.digest: self.original.cost}
        self._queue: list[tuple[float, int, int, _State]] = []
        self._expanded: list[_State] = []
        self._sequence = count()
        self._enqueue(self.original)

    def run(self, budget: int, progress: Progress | None) -> Ended:
        """Expand graphs until the queue is empty, or the budget or time is used up."""
        while self._queue:
            if self.counts["expanded"] >= budget:
                return "budget"
            if self.is_out_of_time():
                return "time"
            if progress is not None:
                best_s = self.rest.total_s + self.best.cost.total_s
                words = f"{self.counts['evaluated']} graphs, best {format_s(best_s)}"
                progress(self.counts["expanded"] / budget, words)
            *_, state = heapq.heappop(self._queue)
            if self._is_less(self.best.cost, state.cost, 1.0 / self.alpha):
                # The queue is sorted: all others cost more.
                self.counts["pruned"] += 1 + len(self._queue)
                break
            try:
                self._expand(state)
            except _TimeLimitError:
                return "time"
        return "exhausted"

    def _cost(self, graph: Graph) -> Cost:
        return self.costs.cost(graph, rest_bytes=self.rest.touched_bytes)

    def _enqueue(self, state: _State) -> None:
        # Among graphs of equal cost, the one with more rewrites comes first.
        part = state.cost.total_s / (self.rest.total_s + self.original.cost.total_s or 1.0)
        rank = (round(part, _RANK_DIGITS), -state.steps, next(self._sequence))
        heapq.heappush(self._queue, (*rank, state))

    def _is_less(self, cost: Cost, other: Cost, times: float = 1.0) -> bool:
        """Return whether the model costs less with `cost` than `times` its cost with `other`."""
        limit_s = times * (self.rest.total_s + other.total_s)
        return self.rest.total_s + cost.total_s < limit_s * (1.0 - _ROUNDING)

    def _expand(self, state: _State) -> None:
        near = None if self.is_exhaustive else state.near()
        possible = [
            (rule, match)
            for rule, match in find_matches(state.graph, self.rules, self.only)
            if (near is None or not near.isdisjoint(match.numbers))
            and self._is_allowed(state, rule, match)
        ]
        if not self.is_exhaustive:
            state.possible = frozenset(state.place(rule.name, match) for rule, match in possible)
            if any(each.covers(state, self._is_less) for each in self._expanded):
                self.counts["pruned"] += 1
                return
            self._expanded.append(state)
        self.counts["expanded"] += 1
        paying: list[tuple[_State, Rule, Match]] = []
        for rule, match in possible:
            child = self._apply(state, rule, match)
            if child is not None and not self._is_less(state.cost, child.cost):
                paying.append((child, rule, match))
        self._apply_jointly(paying)

    def _apply_jointly(self, paying: list[tuple[_State, Rule, Match]]) -> None:
        """Apply all rewrites that do not raise the cost, best first, skipping overlaps.

        Rewrites of equal cost may enable others.
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
            if not self._is_allowed(state, rule, match):
                continue
            child = self._apply(state, rule, match)
            if child is not None and not self._is_less(state.cost, child.cost):
                state = child
                touched |= numbers

    def _is_allowed(self, state: _State, rule: Rule, match: Match) -> bool:
        if self.is_out_of_time():
            raise _TimeLimitError
        reason = rule.refuses(state.graph, match)
        if reason:
            self.refusals.add(state.graph, rule, match, reason)
        return not reason

    def _apply(self, state: _State, rule: Rule, match: Match) -> _State | None:
        """Return the graph after a rewrite, if it is new."""
        if self.is_out_of_time():
            raise _TimeLimitError
        rewrite = self._number(state, rule.name, match)
        made = state.made | {rewrite}
        if made not in self._by_made:
            self._by_made[made] = None
            try:
                graph = rule.applied(state.graph, match, self.complete)
            except RewriteError as error:
                self.refusals.add(state.graph, rule, match, str(error))
                return None
            if graph.digest not in self._by_digest:
                return self._evaluate(state, graph, rule, match, rewrite)
            self._by_made[made] = self._by_digest[graph.digest]
        self.counts["duplicates"] += 1
        cost = self._by_made[made]
        if cost is not None:
            state.tried.append((rule.name, match, cost))
        return None

    def _number(self, state: _State, rule: str, match: Match) -> int:
        """Return the number of a rewrite: equal for equal nodes, different if applied again."""
        nodes = tuple(
            (role, tuple(state.identities.get(number, number) for number in numbers))
            for role, numbers in match.nodes
        )
        number = self._rewrites.setdefault((rule, nodes), len(self._rewrites))
        while number in state.made:
            number = self._rewrites.setdefault(number, len(self._rewrites))
        return number

    def _evaluate(
        self, state: _State, graph: Graph, rule: Rule, match: Match, rewrite: int
    ) -> _State | None:
        """Return the state after a rewrite; None: its cost is not comparable."""
        cost = self._cost(graph)
        self.counts["evaluated"] += 1
        if not cost.is_comparable(self.original.cost):
            self.refusals.add(state.graph, rule, match, UNKNOWN_TIME)
            return None
        state.tried.append((rule.name, match, cost))
        place, new = state.place(rule.name, match), new_nodes(state.graph, graph)
        made = {n: (rewrite, n - state.graph.next_number) for n in new}
        known = {n: each for n, each in state.identities.items() if n in graph.nodes}
        child = _State(
            graph=graph,
            cost=cost,
            parent=state,
            by=(rule.name, match),
            steps=state.steps + 1,
            made=state.made | {rewrite},
            identities={**known, **made},
            places=state.places | {place},
            origins={**state.origins, **dict.fromkeys(new, place[1])},
        )
        self._by_made[child.made] = self._by_digest[graph.digest] = cost
        if self._is_less(state.level, cost):
            old = state.graph.nodes
            changed = {n for n, node in graph.nodes.items() if old.get(n) is not node}
            child.level, child.unpaid = state.level, state.unpaid | changed
        if self._is_less(cost, self.original.cost):
            self.cheaper.append(child)
        if self._is_less(cost, self.best.cost):
            self.best = child
        if child is self.best or self._is_less(cost, self.best.cost, self.alpha):
            self._enqueue(child)
        else:
            self.counts["pruned"] += 1
        return child
