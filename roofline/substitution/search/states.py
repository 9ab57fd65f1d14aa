"""Graphs that a search has met, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from roofline.substitution.costs.cost import Cost
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.rules.rule import Match
from roofline.substitution.search.found import Application, Candidate, where

Identity = tuple[int, int] | int
"""A node, whatever the order of rewrites: its number in the original graph, or the rewrite that
made it and which of its new nodes it is."""

Place = tuple[str, frozenset[int]]
"""A rule, and the original nodes that what it rewrites has come of."""

_NEAR = 3
"""Rewrites are near each other that are so many operators apart at most: two branches that begin
or end at the same operator, with an activation in each, are."""


@dataclass(eq=False, slots=True, kw_only=True)
class State:
    """A graph that was met, and how: the rewrite ``by`` which its parent became it.

    ``made`` are the rewrites that make it of the original graph, in any order, ``places`` where
    they were made. ``origins`` are the original nodes that new ones have come of. ``tried`` are
    rewrites of it, with the costs that they lead to. ``level`` is the cost before the rewrites that
    have cost more and have not paid yet, or its own where there are none; ``unpaid`` are the nodes
    that those changed.
    """

    graph: Graph
    cost: Cost
    parent: State | None = None
    by: tuple[str, Match] | None = None
    steps: int = 0
    made: frozenset[int] = frozenset()
    identities: dict[int, Identity] = field(default_factory=dict[int, Identity])
    places: frozenset[Place] = frozenset()
    origins: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    tried: list[tuple[str, Match, Cost]] = field(default_factory=list[tuple[str, Match, Cost]])
    unpaid: frozenset[int] = frozenset()
    level: Cost = field(init=False)

    def __post_init__(self) -> None:
        self.level = self.cost

    def place(self, rule: str, match: Match) -> Place:
        """Where a rewrite of it is."""
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

    def path(self) -> Iterator[State]:
        """The graphs from the original to this one."""
        states: list[State] = []
        state: State | None = self
        while state is not None:
            states.append(state)
            state = state.parent
        return reversed(states)

    def candidate(self) -> Candidate:
        """What the search gives of it."""
        made = tuple(_application(state) for state in self.path() if state.parent is not None)
        return Candidate(graph=self.graph, cost=self.cost, history=made)

    def costlier(self) -> tuple[Application, ...]:
        """What was tried on the way to this graph and does not pay; each place once."""
        made = {_place(state) for state in self.path() if state.parent is not None}
        found: dict[tuple[str, str], Application] = {}
        for state in self.path():
            for rule, match, cost in state.tried:
                place = rule, where(state.graph, match)
                if cost.total_s >= state.cost.total_s and place not in made:
                    found[place] = Application(
                        rule=rule,
                        match=match,
                        where=place[1],
                        cost_before=state.cost,
                        cost_after=cost,
                    )
        return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Through:
    """A graph that was looked through: what was made, and what is possible in it."""

    state: State
    made: frozenset[Place]
    possible: frozenset[Place]

    def covers(self, other: Through, is_less: Callable[[Cost, Cost], bool]) -> bool:
        """Whether it has the rewrites of another and more, costs no more, and hinders none.

        A rewrite of what has come of several nodes covers that of some of them.
        """
        return (
            other.state.steps < self.state.steps
            and not is_less(other.state.cost, self.state.cost)
            and all(_is_covered(place, self.made) for place in other.made)
            and all(
                _is_covered(place, self.made) or _is_covered(place, self.possible)
                for place in other.possible
            )
        )


def _is_covered(place: Place, by: frozenset[Place]) -> bool:
    rule, origins = place
    return place in by or any(rule == other and origins <= wider for other, wider in by)


def changed_nodes(before: Graph, after: Graph) -> frozenset[int]:
    """The nodes that are new, or take other values than before."""
    old = before.nodes
    return frozenset(number for number, node in after.nodes.items() if old.get(number) is not node)


def _place(state: State) -> tuple[str, str]:
    assert state.parent is not None and state.by is not None
    rule, match = state.by
    return rule, where(state.parent.graph, match)


def _application(state: State) -> Application:
    assert state.parent is not None and state.by is not None
    before, after = state.parent.graph, state.graph
    rule, match = state.by
    return Application(
        rule=rule,
        match=match,
        where=where(before, match),
        cost_before=state.parent.cost,
        cost_after=state.cost,
        removed=tuple(number for number in before.nodes if number not in after.nodes),
        added=new_nodes(before, after),
    )


def new_nodes(before: Graph, after: Graph) -> tuple[int, ...]:
    """The nodes that a rewrite added, in the order in which it did."""
    return tuple(n for n in range(before.next_number, after.next_number) if n in after.nodes)


class Known:
    """The costs of graphs that were met: by what they compute, and by the rewrites made.

    The same rewrites of the same nodes give the same graph in any order, so that it need not be
    made to be known.
    """

    def __init__(self) -> None:
        self._rewrites: dict[object, int] = {}
        self._by_made: dict[frozenset[int], Cost | None] = {}
        self._by_digest: dict[str, Cost] = {}

    def rewrite(self, state: State, rule: str, match: Match) -> int:
        """The number of a rewrite, the same where its nodes are; one made again has another."""
        nodes = tuple(
            (role, tuple(state.identities.get(number, number) for number in numbers))
            for role, numbers in match.nodes
        )
        number = self._rewrites.setdefault((rule, nodes), len(self._rewrites))
        while number in state.made:
            number = self._rewrites.setdefault(number, len(self._rewrites))
        return number

    def has(self, made: frozenset[int]) -> bool:
        """Whether these rewrites were made, in any order."""
        return made in self._by_made

    def cost_of(self, made: frozenset[int]) -> Cost | None:
        """The cost to which they led; None: they could not be made, or costs not be compared."""
        return self._by_made[made]

    def cost_by_digest(self, digest: str) -> Cost | None:
        """The cost of a graph that computes the same; None: none was met."""
        return self._by_digest.get(digest)

    def note(self, made: frozenset[int], digest: str, cost: Cost | None) -> None:
        """Keeps what was found out about a graph."""
        self._by_made[made] = cost
        if digest and cost is not None:
            self._by_digest[digest] = cost

    def identities(self, state: State, rewrite: int, after: Graph) -> dict[int, Identity]:
        """Which nodes the new numbers of a rewritten graph are."""
        known = {number: each for number, each in state.identities.items() if number in after.nodes}
        first = state.graph.next_number
        known.update((n, (rewrite, n - first)) for n in new_nodes(state.graph, after))
        return known
