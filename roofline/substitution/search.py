"""Algorithm 1 of MetaFlow: a search by cost that lets graphs in that are a little worse.

Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions", SysML 2019. Many rewrites
of a model have nothing to do with each other, and each subset of them is a graph. Two things keep
these away and take nothing from what is found: rewrites that do not cost more are also made one
after the other at once, and the same rewrites in another order are known without being made again.
Two more leave graphs out that would lead nowhere new, unless the search is to be thorough:

* A graph is passed over where another has the same rewrites and more, costs no more, and leaves
  everything possible that was.
* After a rewrite that costs more, others are made near it only, until it has paid: far from it
  they are made without it, too.
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
"""How many of the cheapest graphs are given."""

UNKNOWN_TIME = "it changes operators whose time is not known: costs cannot be compared"
"""Why a rewrite is refused whose graph leaves out other operators than the original."""

# -- what a search gives ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One rule at one place, and what it does to the cost of the whole model.

    ``match`` has the numbers of the graph that it was found in. ``removed`` are nodes of that graph
    that are gone after it, ``added`` the new ones: numbers stay the same along a history, so a node
    that no earlier application added is one of the original graph. Both are empty for a rewrite
    that was tried only.
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
        """What tells it from others in a report."""
        return self.rule, self.where


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A place that looks right for a rule and must not, or cannot, be rewritten."""

    rule: str
    match: Match
    where: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A graph, what it costs, and the rewrites that make it of the original, in their order."""

    graph: Graph
    cost: Cost
    history: tuple[Application, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What a search found.

    ``candidates`` cost less than the original, the cheapest first; none: nothing was gained.
    ``refused`` are places that were not rewritten, each once with its reason. ``costlier`` are
    rewrites that were tried and do not pay: each single one of the original graph and of those on
    the way to the best, with the cost that it would have led to, without those that were made.
    """

    original: Candidate
    candidates: tuple[Candidate, ...]
    refused: tuple[Refusal, ...]
    costlier: tuple[Application, ...]
    statistics: SearchStatistics

    @property
    def best(self) -> Candidate:
        """The cheapest graph; the original where nothing was gained."""
        return self.candidates[0] if self.candidates else self.original


def applied(
    before: Graph, after: Graph, rule: str, match: Match, costs: tuple[Cost, Cost]
) -> Application:
    """A rewrite that made one graph of another, and the costs of both."""
    return Application(
        rule=rule,
        match=match,
        where=where(before, match),
        cost_before=costs[0],
        cost_after=costs[1],
        removed=tuple(number for number in before.nodes if number not in after.nodes),
        added=new_nodes(before, after),
    )


def new_nodes(before: Graph, after: Graph) -> tuple[int, ...]:
    """The nodes that a rewrite added, in the order in which it did."""
    return tuple(n for n in range(before.next_number, after.next_number) if n in after.nodes)


_SHOWN_NAMES = 4


def where(graph: Graph, match: Match) -> str:
    """Where a match is, in words: the modules of its nodes, or its operators.

    What several have in common is said once (``layer1.0.{conv1, bn1}``).
    """
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
    said = ", ".join((*(".".join(each[common:]) for each in parts[:_SHOWN_NAMES]), *more))
    return printable(f"{'.'.join(parts[0][:common])}.{{{said}}}" if common else said)


def places(
    graph: Graph, rules: Sequence[Rule], only: Callable[[Match], bool] | None = None
) -> Iterator[tuple[Rule, Match]]:
    """All matches, those of the first rule first; `only` says which of them count."""
    for rule in rules:
        for match in rule.pattern.matches(graph):
            if only is None or only(match):
                yield rule, match


class Refusals:
    """Places that were not rewritten: each once with a reason, however many graphs have it."""

    def __init__(self) -> None:
        self._met: set[tuple[str, Match, str]] = set()
        self._kept: dict[tuple[str, str, str], Refusal] = {}

    def add(self, graph: Graph, rule: Rule, match: Match, reason: str) -> None:
        """Keeps a place and the reason, if it is not known."""
        if (rule.name, match, reason) not in self._met:
            self._met.add((rule.name, match, reason))
            place = where(graph, match)
            self.keep(Refusal(rule=rule.name, match=match, where=place, reason=reason))

    def keep(self, refusal: Refusal) -> None:
        """Keeps one that another search has met, if its place and reason are not known."""
        self._kept.setdefault((refusal.rule, refusal.where, refusal.reason), refusal)

    def all(self) -> tuple[Refusal, ...]:
        """Those that are kept, in the order in which they were met."""
        return tuple(self._kept.values())


# -- graphs that were met --------------------------------------------------------------------------

_Identity = tuple[int, int] | int
"""A node, whatever the order of rewrites: its number in the original graph, or the rewrite that
made it and which of its new nodes it is."""

_Place = tuple[str, frozenset[int]]
"""A rule, and the original nodes that what it rewrites has come of."""

_NEAR = 3
"""Rewrites are near each other that are so many operators apart at most: two branches that begin
or end at the same operator, with an activation in each, are."""


@dataclass(eq=False, slots=True, kw_only=True)
class _State:
    """A graph that was met, and how: the rewrite ``by`` which its parent became it.

    ``made`` are the rewrites that make it of the original graph, in any order, ``places`` where
    they were made, ``possible`` where more can be. ``origins`` are the original nodes that new ones
    have come of. ``tried`` are rewrites of it, with the costs that they lead to. ``level`` is the
    cost before the rewrites that have cost more and have not paid yet, or its own where there are
    none; ``unpaid`` are the nodes that those changed.
    """

    graph: Graph
    cost: Cost
    parent: _State | None = None
    by: tuple[str, Match] | None = None
    steps: int = 0
    made: frozenset[int] = frozenset()
    identities: dict[int, _Identity] = field(default_factory=dict[int, _Identity])
    places: frozenset[_Place] = frozenset()
    possible: frozenset[_Place] = frozenset()
    origins: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    tried: list[tuple[str, Match, Cost]] = field(default_factory=list[tuple[str, Match, Cost]])
    unpaid: frozenset[int] = frozenset()
    level: Cost = field(init=False)

    def __post_init__(self) -> None:
        self.level = self.cost

    def place(self, rule: str, match: Match) -> _Place:
        own = (self.origins.get(number, frozenset((number,))) for number in match.numbers)
        return rule, frozenset[int]().union(*own)

    def near(self) -> frozenset[int] | None:
        """The nodes near those that have not paid yet; None: all have."""
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
        """Whether it has the rewrites of another and more, costs no more, and hinders none.

        A rewrite of what has come of several nodes covers that of some of them.
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
            applied(state.parent.graph, state.graph, *state.by, (state.parent.cost, state.cost))
            for state in self.path()
            if state.parent is not None and state.by is not None
        )
        return Candidate(graph=self.graph, cost=self.cost, history=made)

    def costlier(self) -> tuple[Application, ...]:
        """What was tried on the way to this graph and does not pay; each place once."""
        made = {each.place for each in self.candidate().history}
        found: dict[tuple[str, str], Application] = {}
        for state in self.path():
            for rule, match, cost in state.tried:
                if cost.total_s < state.cost.total_s:
                    continue
                each = Application(
                    rule=rule,
                    match=match,
                    where=where(state.graph, match),
                    cost_before=state.cost,
                    cost_after=cost,
                )
                if each.place not in made:
                    found[each.place] = each
        return tuple(found.values())


def _is_covered(place: _Place, by: frozenset[_Place]) -> bool:
    rule, origins = place
    return place in by or any(rule == other and origins <= wider for other, wider in by)


# -- the search ------------------------------------------------------------------------------------

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
    around: Around | None = None,
    only: Callable[[Match], bool] | None = None,
    is_thorough: bool = False,
) -> Found:
    """Searches for cheaper graphs that compute the same: of all of a model, or of a piece of it
    with the rest `around`.

    The same arguments give the same result, unless the time limit ends the search.

    Args:
        complete: gives new nodes their arguments and types.
        alpha: graphs are followed that cost less than `alpha` times the best; at 1 none that costs
            as much as the best.
        budget: how many graphs are looked through for rewrites at most.
        time_limit_s: when to stop with the best so far; looked at before every rewrite.
        only: says which places may be rewritten; None: all.
        is_thorough: also look through graphs that are not expected to lead to anything new.
    """
    check(alpha, budget)
    begin = clock()
    running = _Search(
        rules=rules,
        costs=costs,
        complete=complete,
        alpha=alpha,
        around=around or Around(),
        only=only,
        is_thorough=is_thorough,
        first=graph,
        is_late=lambda: time_limit_s is not None and clock() - begin >= time_limit_s,
    )
    ended = running.run(budget, progress)
    cheaper = sorted(running.cheaper, key=lambda each: each.cost.total_s)
    return Found(
        original=Candidate(graph=graph, cost=running.original.cost),
        candidates=tuple(state.candidate() for state in cheaper[:MOST_CANDIDATES]),
        refused=running.refusals.all(),
        costlier=running.best.costlier(),
        statistics=SearchStatistics(
            **running.counts, pieces=1, seconds=clock() - begin, ended=ended
        ),
    )


def check(alpha: float, budget: int) -> None:
    """Refuses, as an InputError, what a search may not be asked for."""
    if not isinstance(alpha, Real) or isinstance(alpha, bool) or not float(alpha) >= 1.0:
        raise InputError(
            f"{argument('alpha', alpha)}: must be a number from 1 (1: improvements only)"
        )
    # True is a whole number to Python.
    if type(budget) is not int or budget < 1:
        raise InputError(f"{argument('budget', budget)}: must be a whole number of graphs from 1")


NOTHING_COUNTED = {"expanded": 0, "evaluated": 0, "duplicates": 0, "pruned": 0}
"""What is counted of a search, as `SearchStatistics` has it."""


@dataclass(eq=False, kw_only=True)
class _Search:
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
    counts: dict[str, int] = field(default_factory=NOTHING_COUNTED.copy)
    cheaper: list[_State] = field(default_factory=list[_State])
    refusals: Refusals = field(default_factory=Refusals)

    def __post_init__(self) -> None:
        self.original = self.best = _State(graph=self.first, cost=self._cost(self.first))
        # The same rewrites of the same nodes give the same graph in any order, so that it need not
        # be made to be known. A cost is None where they could not be made, or costs not compared.
        self._rewrites: dict[object, int] = {}
        self._by_made: dict[frozenset[int], Cost | None] = {frozenset(): self.original.cost}
        self._by_digest: dict[str, Cost] = {self.first.digest: self.original.cost}
        self._waiting: list[tuple[float, int, int, _State]] = []
        self._through: list[_State] = []
        self._number_put = count()
        self._put(self.original)

    def run(self, budget: int, progress: Progress | None) -> Ended:
        """Looks through graphs until none is left, or the budget or time is used up."""
        while self._waiting:
            if self.counts["expanded"] >= budget:
                return "budget"
            if self.is_late():
                return "time"
            if progress is not None:
                best_s = self.around.total_s + self.best.cost.total_s
                words = f"{self.counts['evaluated']} graphs, best {format_s(best_s)}"
                progress(self.counts["expanded"] / budget, words)
            *_, state = heapq.heappop(self._waiting)
            if self._is_less(self.best.cost, state.cost, 1.0 / self.alpha):
                # The cheapest is too dear: so are all that wait behind it.
                self.counts["pruned"] += 1 + len(self._waiting)
                break
            try:
                self._look_through(state)
            except _LateError:
                return "time"
        return "exhausted"

    def _cost(self, graph: Graph) -> Cost:
        return self.costs.cost(graph, around_bytes=self.around.touched_bytes)

    def _put(self, state: _State) -> None:
        # Of graphs that cost as much, but for rounding, the one with more rewrites comes first.
        part = state.cost.total_s / (self.around.total_s + self.original.cost.total_s or 1.0)
        rank = (round(part, _RANK_DIGITS), -state.steps, next(self._number_put))
        heapq.heappush(self._waiting, (*rank, state))

    def _is_less(self, cost: Cost, other: Cost, times: float = 1.0) -> bool:
        """Whether the model would cost less with one graph than that many times with another."""
        limit_s = times * (self.around.total_s + other.total_s)
        return self.around.total_s + cost.total_s < limit_s * (1.0 - _ROUNDING)

    def _look_through(self, state: _State) -> None:
        near = None if self.is_thorough else state.near()
        possible = [
            (rule, match)
            for rule, match in places(state.graph, self.rules, self.only)
            if (near is None or not near.isdisjoint(match.numbers))
            and self._may_be_made(state, rule, match)
        ]
        if not self.is_thorough:
            state.possible = frozenset(state.place(rule.name, match) for rule, match in possible)
            if any(each.covers(state, self._is_less) for each in self._through):
                self.counts["pruned"] += 1
                return
            self._through.append(state)
        self.counts["expanded"] += 1
        paying: list[tuple[_State, Rule, Match]] = []
        for rule, match in possible:
            child = self._tried(state, rule, match)
            if child is not None and not self._is_less(state.cost, child.cost):
                paying.append((child, rule, match))
        self._make_together(paying)

    def _make_together(self, paying: list[tuple[_State, Rule, Match]]) -> None:
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

    def _may_be_made(self, state: _State, rule: Rule, match: Match) -> bool:
        if self.is_late():
            raise _LateError
        reason = rule.refuses(state.graph, match)
        if reason:
            self.refusals.add(state.graph, rule, match, reason)
        return not reason

    def _tried(self, state: _State, rule: Rule, match: Match) -> _State | None:
        """The graph that a rewrite makes, if it is a new one."""
        if self.is_late():
            raise _LateError
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
                return self._evaluated(state, graph, rule, match, rewrite)
            self._by_made[made] = self._by_digest[graph.digest]
        self.counts["duplicates"] += 1
        cost = self._by_made[made]
        if cost is not None:
            state.tried.append((rule.name, match, cost))
        return None

    def _number(self, state: _State, rule: str, match: Match) -> int:
        """The number of a rewrite, the same where its nodes are; one made again has another."""
        nodes = tuple(
            (role, tuple(state.identities.get(number, number) for number in numbers))
            for role, numbers in match.nodes
        )
        number = self._rewrites.setdefault((rule, nodes), len(self._rewrites))
        while number in state.made:
            number = self._rewrites.setdefault(number, len(self._rewrites))
        return number

    def _evaluated(
        self, state: _State, graph: Graph, rule: Rule, match: Match, rewrite: int
    ) -> _State | None:
        """What became of a graph by a rewrite; None: its cost cannot be compared."""
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
            self._put(child)
        else:
            self.counts["pruned"] += 1
        return child
