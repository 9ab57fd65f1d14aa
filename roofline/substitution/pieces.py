"""The search of large models: piece by piece, joined again, and then across the cuts.

Algorithm 2 of MetaFlow cuts a large graph in two where the fewest rewrites are lost, again and
again. Jia et al. look for a minimum vertex cut, vertices weighted by the matches that span them. A
match that spans two vertices of the cut counts twice there; here it is a vertex of the flow network
of its own, so that each lost match counts once. Of cuts that lose as few, the one is taken that
fewer values cross, then the one nearer the middle.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import networkx as nx

from roofline.core.progress import Progress
from roofline.core.units import sum_known
from roofline.errors import InputError
from roofline.substitution.costs import Cost, Costs
from roofline.substitution.graphs.graph import (
    INPUT,
    Complete,
    Graph,
    Node,
    RewriteError,
    Value,
)
from roofline.substitution.result import SearchStatistics
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search import (
    DEFAULT_ALPHA,
    DEFAULT_BUDGET,
    MOST_CANDIDATES,
    NOTHING_COUNTED,
    Application,
    Around,
    Candidate,
    Ended,
    Found,
    Refusals,
    check,
    new_nodes,
    places,
    search,
)

# -- cutting ---------------------------------------------------------------------------------------

_WIDEST_BAND = 300
"""A cut is looked for among as many operators at most, in the middle: a wider band would make the
flow network larger than it is worth."""

_Vertex = tuple[str, int]
_SOURCE: _Vertex = ("source", 0)
_SINK: _Vertex = ("sink", 0)


def split(graph: Graph, matches: Sequence[Match], threshold: int) -> tuple[tuple[int, ...], ...]:
    """The operators of a graph in pieces of `threshold` or fewer, each in one; inputs are in none.

    Pieces are in an order in which they can run: none takes what a later one gives. Nodes within a
    piece run in the graph's order. `matches` are rewrites that should stay whole.
    """
    if threshold < 1:
        raise InputError(f"pieces of {threshold} operators; give 1 or more")
    operators = tuple(number for number, node in graph.nodes.items() if node.op != INPUT)
    pieces: list[tuple[int, ...]] = []
    waiting = [(operators, [frozenset(each.numbers) for each in matches])]
    while waiting:
        numbers, inside = waiting.pop()
        if len(numbers) <= threshold:
            pieces.append(numbers)
            continue
        first, second = cut(graph, numbers, inside)
        for part in (second, first):
            members = frozenset(part)
            waiting.append((part, [each & members for each in inside if len(each & members) > 1]))
    return tuple(piece for piece in pieces if piece)


def band(count: int) -> tuple[int, int]:
    """Where `count` operators may be cut: those from the first to before the second place.

    What runs before the band is upstream of the cut, what runs after it downstream; each is a third
    of the operators at least, and never nothing.
    """
    width = min(count - 2 * (count // 3), _WIDEST_BAND, count - 2)
    begin = max(1, (count - width) // 2)
    return begin, begin + width


def cut(
    graph: Graph, numbers: Sequence[int], matches: Iterable[frozenset[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cuts two or more operators, given in the order in which they run, in two.

    The first part takes nothing that the second gives. Of all such parts with the operators before
    the `band` in the first and those after it in the second, these lose the fewest matches.
    """
    network = _network(graph, numbers, matches)
    _, (upstream, _) = nx.minimum_cut(
        network, _SOURCE, _SINK, flow_func=nx.algorithms.flow.preflow_push
    )
    begin, _ = band(len(numbers))
    first = {*numbers[:begin], *(number for kind, number in upstream if kind == "node")}
    return tuple(n for n in numbers if n in first), tuple(n for n in numbers if n not in first)


def _network(
    graph: Graph, numbers: Sequence[int], matches: Iterable[frozenset[int]]
) -> nx.DiGraph[_Vertex]:
    """The flow network: edges without a capacity are never cut.

    A vertex ("node", v) is with the source where v is upstream; ("value", v) is with the sink where
    somebody downstream takes what v gives, and the edge between them is then cut.
    """
    count = len(numbers)
    begin, end = band(count)
    vertex = {n: ("node", n) for n in numbers}
    vertex |= dict.fromkeys(numbers[:begin], _SOURCE) | dict.fromkeys(numbers[end:], _SINK)
    # One lost match weighs more than all values, one value more than all distances.
    per_value = count * count + 1
    per_match = per_value * (count + 1)
    network: nx.DiGraph[_Vertex] = nx.DiGraph()
    network.add_nodes_from((_SOURCE, _SINK))
    for place, number in enumerate(numbers[:end]):
        here, value = vertex[number], ("value", number)
        takers = dict.fromkeys(vertex[n] for n in graph.users(number) if n in vertex)
        takers.pop(_SOURCE, None)
        if not takers:
            continue
        network.add_edge(here, value, capacity=per_value + abs(2 * place - count))
        for taker in takers:
            network.add_edge(value, taker)
            if here != _SOURCE and taker != _SINK:
                network.add_edge(taker, here)
    # Matches of the same vertices together, of those that a cut could lose.
    spanned = (frozenset(vertex[n] for n in each if n in vertex) for each in matches)
    lost = Counter(each for each in spanned if len(each) > 1 and not {_SOURCE, _SINK} <= each)
    for place, (taken, times) in enumerate(lost.items()):
        network.add_edge(("match", place), ("lost", place), capacity=times * per_match)
        for each in sorted(taken):
            network.add_edge(each, ("match", place))
            network.add_edge(("lost", place), each)
    return network


# -- pieces ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of a graph as a graph of its own.

    Values that come from other pieces are inputs with the role "activation"; ``origin`` tells for
    each of these nodes whose value it is in the whole graph. All other nodes have the numbers that
    they have there. What other pieces or the model's user take are outputs.
    """

    graph: Graph
    origin: dict[int, Value]


def piece_of(graph: Graph, numbers: Sequence[int], next_number: int) -> Piece:
    """Some operators of a graph, in the order in which they run, as a graph of their own, whose new
    nodes have `next_number` or higher ones.
    """
    members = frozenset(numbers)
    stand_ins: dict[Value, Value] = {}
    inputs: dict[int, Node] = {}
    for value in chain.from_iterable(graph.nodes[number].values() for number in numbers):
        taken = graph.nodes[value.node]
        if taken.op == INPUT:
            inputs[value.node] = taken
        elif value.node not in members and value not in stand_ins:
            name = f"value_{value.node}_{value.output}"
            stand_in = stand_ins[value] = Value(next_number + len(stand_ins))
            inputs[stand_in.node] = Node(
                op=INPUT,
                arguments=(("name", name), ("role", "activation")),
                outputs=(taken.outputs[value.output],),
            )
    operators = {
        number: graph.nodes[number].taking(lambda value: stand_ins.get(value, value))
        for number in numbers
    }
    own = {w for n in numbers for weight in graph.nodes[n].weights() for w in weight.originals()}
    # The model's own weights that other pieces take, too: to change one would double it.
    shared = {w.name for w in own if not members.issuperset(graph.weight_users(w))}
    return Piece(
        graph=Graph(
            nodes={**inputs, **operators},
            # What others take of it, in the order in which it is made.
            outputs=tuple(
                value
                for number in numbers
                for place in range(len(graph.nodes[number].outputs))
                for value in (Value(number, place),)
                if graph.is_returned(value) or not members.issuperset(graph.users(value))
            ),
            tied=graph.tied | shared,
            next_number=next_number + len(stand_ins),
        ),
        origin={stand_in.node: value for value, stand_in in stand_ins.items()},
    )


def _in_whole(match: Match, piece: Piece) -> Match | None:
    """The match by the numbers of the whole.

    None: it has a stand-in for a value that is not its node's first. A rule would take the first.
    """
    origin = {number: piece.origin[number] for number in match.numbers if number in piece.origin}
    if any(value.output for value in origin.values()):
        return None
    return Match(
        nodes=tuple(
            (role, tuple(origin[n].node if n in origin else n for n in numbers))
            for role, numbers in match.nodes
        )
    )


def cost_of_whole(whole: Cost, before: Cost, after: Cost) -> Cost:
    """What the whole would cost if a part of it cost something else than before."""

    def changed(name: str) -> Any:
        old = getattr(before, name)
        return sum_known(
            (getattr(whole, name), getattr(after, name), None if old is None else -old)
        )

    names = ("total_s", "launches", "traffic_bytes", "flop", "eager_min_time_s")
    return Cost(unknown=whole.unknown, **{name: changed(name) for name in names})


# -- the search ------------------------------------------------------------------------------------

DEFAULT_PIECE = 120
"""Operators that a piece has at most."""

_LAST_PASS = 0.1
"""The part of the budget that is kept for rewrites across the cuts."""

_NO_PIECE = -1
"""Where nodes are that were made across the cuts."""


def search_in_pieces(
    graph: Graph,
    rules: tuple[Rule, ...],
    costs: Costs,
    complete: Complete,
    *,
    threshold: int = DEFAULT_PIECE,
    alpha: float = DEFAULT_ALPHA,
    budget: int = DEFAULT_BUDGET,
    time_limit_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    progress: Progress | None = None,
) -> Found:
    """Searches a graph in pieces of at most `threshold` operators; one that is no larger as a
    whole.

    Alpha is relative to the cost of all of the model. What was found for a piece is made in the
    whole graph, where preconditions are looked at again, and its cost counted anew; costs along
    histories are those of the whole as far as the piece alone changes it. At last rewrites across
    the cuts are made while they pay. Budget and time are for all pieces together, shared by how
    many matches they have; what one leaves is for those after it. All else is as for `search`.
    """
    check(alpha, budget)
    begin = clock()
    refusals, found_places, refused_places = Refusals(), list[Match](), set[tuple[str, Match]]()
    for rule, match in places(graph, rules):
        reason = rule.refuses(graph, match)
        if reason:
            refusals.add(graph, rule, match, reason)
            refused_places.add((rule.name, match))
        else:
            found_places.append(match)
    pieces = split(graph, found_places, threshold)
    searching = partial(search, rules=rules, costs=costs, complete=complete, clock=clock)
    if len(pieces) < 2:
        return searching(
            graph, alpha=alpha, budget=budget, time_limit_s=time_limit_s, progress=progress
        )
    running = _InPieces(
        search=searching,
        rules={rule.name: rule for rule in rules},
        costs=costs,
        complete=complete,
        alpha=alpha,
        budget=budget,
        left_s=lambda: None if time_limit_s is None else begin + time_limit_s - clock(),
        progress=progress,
        original=Candidate(graph=graph, cost=costs.cost(graph)),
        refusals=refusals,
        refused_places=refused_places,
    )
    running.search_each(pieces, found_places)
    running.search_across()
    cheaper = [each for each in running.joined if _pays(each, running.original)]
    # What does not pay, each place once, without what was made.
    made = {each.place for each in running.now.history}
    costlier = {each.place: each for each in running.costlier}
    return Found(
        original=running.original,
        candidates=tuple(sorted(cheaper, key=lambda each: each.cost.total_s)[:MOST_CANDIDATES]),
        refused=refusals.all(),
        costlier=tuple(each for place, each in costlier.items() if place not in made),
        statistics=SearchStatistics(
            **running.counts, pieces=len(pieces), seconds=clock() - begin, ended=running.ended
        ),
    )


@dataclass(eq=False, kw_only=True)
class _InPieces:
    """A search of pieces, one after the other; ``now`` is what the model has become.

    ``joined`` is the model after each piece, ``costlier`` what does not pay. ``left_s`` are the
    seconds that are left; None: there is no limit.
    """

    search: Callable[..., Found]
    rules: dict[str, Rule]
    costs: Costs
    complete: Complete
    alpha: float
    budget: int
    left_s: Callable[[], float | None]
    progress: Progress | None
    original: Candidate
    refusals: Refusals
    refused_places: set[tuple[str, Match]]
    ended: Ended = "exhausted"

    def __post_init__(self) -> None:
        self.now = self.original
        self.joined: list[Candidate] = []
        self.costlier: list[Application] = []
        self.counts = dict(NOTHING_COUNTED)
        self._home: dict[int, int] = {}

    def search_each(self, pieces: Sequence[tuple[int, ...]], matches: Sequence[Match]) -> None:
        """Searches all pieces that have matches, in the order in which they run."""
        self._home = {number: place for place, each in enumerate(pieces) for number in each}
        homes = [self._homes(match) for match in matches]
        counts = [homes.count({place}) for place in range(len(pieces))]
        total, done = sum(counts), 0
        for place, (numbers, count) in enumerate(zip(pieces, counts, strict=True)):
            if not count:
                continue
            left = self.budget - int(self.budget * _LAST_PASS) - self.counts["expanded"]
            if left < 1:
                self.ended = "budget"
                return
            if self._is_late():
                return
            share = count / (total - done)
            words = f"piece {place + 1} of {len(pieces)}"
            told = self._told(words, done / total, (done + count) / total)
            self._search_piece(place, numbers, max(1, int(left * share)), share, told)
            done += count

    def search_across(self) -> None:
        """Makes rewrites of more than one piece, and what they let others do, while they pay."""
        left = min(self.budget - self.counts["expanded"], max(1, int(self.budget * _LAST_PASS)))
        if left < 1 or self._is_late():
            return
        before = self.now
        if not any(self._spans(m) for _, m in places(before.graph, tuple(self.rules.values()))):
            return
        found = self.search(
            before.graph,
            alpha=1.0,
            budget=left,
            time_limit_s=self.left_s(),
            progress=self._told("across the cuts", 1.0, 1.0),
            only=self._spans,
        )
        self._count(found)
        self.costlier += found.costlier
        self.joined += [
            replace(each, history=before.history + each.history)
            for each in reversed(found.candidates)
        ]
        if found.candidates:
            self.now = self.joined[-1]

    def _spans(self, match: Match) -> bool:
        homes = self._homes(match)
        return len(homes) > 1 or _NO_PIECE in homes

    def _homes(self, match: Match) -> set[int]:
        """The pieces that the operators of a match are of."""
        nodes = self.original.graph.nodes
        numbers = (n for n in match.numbers if n not in nodes or nodes[n].op != INPUT)
        return {self._home.get(number, _NO_PIECE) for number in numbers}

    def _is_late(self) -> bool:
        left_s = self.left_s()
        if left_s is None or left_s > 0:
            return False
        self.ended = "time"
        return True

    def _told(self, words: str, begin: float, end: float) -> Progress | None:
        progress = self.progress
        if progress is None:
            return None
        return lambda part, said: progress(
            (begin + part * (end - begin)) * (1.0 - _LAST_PASS), f"{words}: {said}"
        )

    def _search_piece(
        self, place: int, numbers: Sequence[int], budget: int, share: float, told: Progress | None
    ) -> None:
        whole = self.now
        present = tuple(number for number in numbers if number in whole.graph.nodes)
        piece = piece_of(whole.graph, present, whole.graph.next_number)
        # What all but the piece costs and touches.
        alone = self.costs.cost(piece.graph).traffic_bytes
        touched_bytes = max(0, whole.cost.traffic_bytes - alone)
        own = self.costs.cost(piece.graph, around_bytes=touched_bytes)
        rest_s = max(0.0, whole.cost.total_s - own.total_s)
        left_s = self.left_s()
        found = self.search(
            piece.graph,
            alpha=self.alpha,
            budget=budget,
            time_limit_s=None if left_s is None else left_s * share,
            progress=told,
            around=Around(total_s=rest_s, touched_bytes=touched_bytes),
        )
        self._count(found)
        part = found.original.cost
        self.costlier += [_of_whole(each, whole.cost, part) for each in found.costlier]
        joined = self._joined(piece, found.best.history) if found.candidates else None
        if joined is None:
            return
        made = joined.history[len(whole.history) :]
        if _pays(joined, whole):
            self._home.update((number, place) for each in made for number in each.added)
            self.joined.append(joined)
            self.now = joined
        else:
            self.costlier += [replace(each, cost_after=joined.cost) for each in made[-1:]]

    def _count(self, found: Found) -> None:
        statistics = found.statistics
        for name in self.counts:
            self.counts[name] += getattr(statistics, name)
        if self.ended == "exhausted" or statistics.ended == "time":
            self.ended = statistics.ended
        for refusal in found.refused:
            if (refusal.rule, refusal.match) not in self.refused_places:
                self.refusals.keep(refusal)

    def _joined(self, piece: Piece, history: Sequence[Application]) -> Candidate | None:
        """The whole after the rewrites of a piece, as far as they can be made there.

        One that the whole refuses ends it: those after it may build on it. The costs of the history
        are those of the whole as far as the piece alone changes it; the cost of what is given is
        counted anew. None: nothing can be made, or costs not be compared.
        """
        whole, made = self.now, list[Application]()
        # New nodes then have the numbers that they had in the piece.
        graph = replace(whole.graph, next_number=piece.graph.next_number)
        for each in history:
            match, rule = _in_whole(each.match, piece), self.rules[each.rule]
            if match is None or rule.refuses(graph, match):
                break
            try:
                new = rule.applied(graph, match, self.complete)
            except RewriteError:
                break
            if new_nodes(graph, new) != each.added:
                break
            gone = tuple(number for number in graph.nodes if number not in new.nodes)
            there = _of_whole(each, whole.cost, history[0].cost_before)
            made.append(replace(there, match=match, removed=gone))
            graph = new
        cost = self.costs.cost(graph) if made else whole.cost
        if not made or not cost.is_comparable(whole.cost):
            return None
        return Candidate(graph=graph, cost=cost, history=(*whole.history, *made))


def _pays(candidate: Candidate, before: Candidate) -> bool:
    return candidate.cost.total_s < before.cost.total_s


def _of_whole(each: Application, whole: Cost, part: Cost) -> Application:
    """A rewrite of a piece that costs `part`, with the costs of the whole."""
    return replace(
        each,
        cost_before=cost_of_whole(whole, part, each.cost_before),
        cost_after=cost_of_whole(whole, part, each.cost_after),
    )
