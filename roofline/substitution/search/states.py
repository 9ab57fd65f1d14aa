"""Graphs that a search has met, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from roofline.substitution.costs.cost import Cost
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.rules.rule import Match
from roofline.substitution.search.found import Application, Candidate, where

Identity = tuple[int, int] | int
"""A node, whatever the order of rewrites: its number in the original graph, or the rewrite that
made it and which of its new nodes it is."""


@dataclass(eq=False, slots=True, kw_only=True)
class State:
    """A graph that was met, and how: the rewrite ``by`` which its parent became it.

    ``made`` are the rewrites that make it of the original graph, in any order. ``tried`` are
    rewrites of it, with the costs that they lead to.
    """

    graph: Graph
    cost: Cost
    parent: State | None = None
    by: tuple[str, Match] | None = None
    steps: int = 0
    made: frozenset[int] = frozenset()
    identities: dict[int, Identity] = field(default_factory=dict[int, Identity])
    tried: list[tuple[str, Match, Cost]] = field(default_factory=list[tuple[str, Match, Cost]])

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
