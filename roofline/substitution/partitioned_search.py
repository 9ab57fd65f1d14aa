"""Search of large models: by subgraphs, joined again, then across the cuts.

Algorithm 2 of MetaFlow splits a large graph recursively where the fewest rewrites are lost. Jia et
al. use a minimum vertex cut, with vertices weighted by the matches that span them. A match that
spans two vertices of the cut counts twice there. Here it is a vertex of the flow network, so that
each lost match counts once. Ties are broken by fewer values across the cut, then by the distance
from the middle.
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
    NO_COUNTS,
    Application,
    Candidate,
    Ended,
    Refusals,
    RestOfModel,
    SearchResult,
    check_search,
    find_matches,
    new_nodes,
    search,
)

# -- cutting ---------------------------------------------------------------------------------------

_WIDEST_BAND = 300
"""Maximum number of operators among which a cut is searched; limits the size of the flow network.
"""

_Vertex = tuple[str, int]
_SOURCE: _Vertex = ("source", 0)
_SINK: _Vertex = ("sink", 0)


def partition(
    graph: Graph, matches: Sequence[Match], threshold: int
) -> tuple[tuple[int, ...], ...]:
    """Return the operators of a graph in pieces of at most `threshold`, without inputs.

    Pieces are in execution order: none reads values of a later one. `matches` should stay whole.
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
    """Return the range of positions at which `count` operators may be cut.

    At least a third of the operators is before the band, and as many after it.
    """
    width = min(count - 2 * (count // 3), _WIDEST_BAND, count - 2)
    begin = max(1, (count - width) // 2)
    return begin, begin + width


def cut(
    graph: Graph, numbers: Sequence[int], matches: Iterable[frozenset[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cut two or more operators, in execution order, in two parts.

    The first part reads no value of the second. Among such parts, the cut within the `band` that
    loses the fewest matches is taken.
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
    """Return the flow network; edges without capacity are never cut.

    Vertex ("node", v) is on the source side if v is upstream. Vertex ("value", v) is on the sink
    side if v has readers downstream, which cuts the edge between the two.
    """
    count = len(numbers)
    begin, end = band(count)
    vertex = {n: ("node", n) for n in numbers}
    vertex |= dict.fromkeys(numbers[:begin], _SOURCE) | dict.fromkeys(numbers[end:], _SINK)
    # A lost match weighs more than all values, a value more than all distances.
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
    # Group matches of the same vertices; skip those that every cut, or no cut, loses.
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
    """Subgraph of a graph, with its own inputs and outputs.

    Values of other pieces are inputs with the role "activation"; ``origin`` maps these nodes to the
    values of the whole graph. All other nodes keep their numbers. Outputs are the values that other
    pieces or the caller read.
    """

    graph: Graph
    origin: dict[int, Value]


def piece_of(graph: Graph, numbers: Sequence[int], next_number: int) -> Piece:
    """Return a subgraph of operators in execution order; its new nodes begin at `next_number`."""
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
    # Weights shared with other pieces: changing one would duplicate it.
    shared = {w.name for w in own if not members.issuperset(graph.weight_users(w))}
    return Piece(
        graph=Graph(
            nodes={**inputs, **operators},
            # Values read elsewhere, in execution order.
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


def _match_in_model(match: Match, piece: Piece) -> Match | None:
    """Return the match with node numbers of the whole graph.

    None: it contains a second or later output of a node of another piece, which rules cannot name.
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


def cost_of_model(whole: Cost, before: Cost, after: Cost) -> Cost:
    """Return the cost of the model after the cost of a part has changed."""

    def changed(name: str) -> Any:
        old = getattr(before, name)
        return sum_known(
            (getattr(whole, name), getattr(after, name), None if old is None else -old)
        )

    names = ("total_s", "launches", "traffic_bytes", "flop", "eager_min_time_s")
    return Cost(unknown=whole.unknown, **{name: changed(name) for name in names})


# -- the search ------------------------------------------------------------------------------------

DEFAULT_PIECE = 120
"""Maximum number of operators of a piece."""

_LAST_PASS = 0.1
"""Fraction of the budget that is reserved for rewrites across the cuts."""

_NO_PIECE = -1
"""Piece number of nodes that were added across the cuts."""


def search_partitions(
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
) -> SearchResult:
    """Search a graph in pieces of at most `threshold` operators, as `search` does.

    `alpha` is relative to the cost of the whole model. Rewrites found in a piece are applied to the
    whole graph, where preconditions are checked and costs computed again. Costs along histories are
    estimates: the piece's change added to the cost of the model. Finally, rewrites across the cuts
    are applied as long as they pay. All pieces share budget and time limit, in proportion to their
    matches; what a piece leaves over goes to later ones.
    """
    check_search(alpha, budget)
    begin = clock()
    refusals, found_places, refused_places = Refusals(), list[Match](), set[tuple[str, Match]]()
    for rule, match in find_matches(graph, rules):
        reason = rule.refuses(graph, match)
        if reason:
            refusals.add(graph, rule, match, reason)
            refused_places.add((rule.name, match))
        else:
            found_places.append(match)
    pieces = partition(graph, found_places, threshold)
    searching = partial(search, rules=rules, costs=costs, complete=complete, clock=clock)
    if len(pieces) < 2:
        return searching(
            graph, alpha=alpha, budget=budget, time_limit_s=time_limit_s, progress=progress
        )
    running = _PartitionedSearch(
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
    # Unprofitable rewrites, each location once, without applied ones.
    made = {each.place for each in running.now.history}
    costlier = {each.place: each for each in running.costlier}
    return SearchResult(
        original=running.original,
        candidates=tuple(sorted(cheaper, key=lambda each: each.cost.total_s)[:MOST_CANDIDATES]),
        refused=refusals.all(),
        costlier=tuple(each for place, each in costlier.items() if place not in made),
        statistics=SearchStatistics(
            **running.counts, pieces=len(pieces), seconds=clock() - begin, ended=running.ended
        ),
    )


@dataclass(eq=False, kw_only=True)
class _PartitionedSearch:
    """State of a search of pieces in sequence; ``now`` is the current model.

    ``joined`` is the model after each piece, ``costlier`` the unprofitable rewrites. ``left_s``
    returns the remaining seconds; None: no limit.
    """

    search: Callable[..., SearchResult]
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
        self.counts = dict(NO_COUNTS)
        self._piece_of: dict[int, int] = {}

    def search_each(self, pieces: Sequence[tuple[int, ...]], matches: Sequence[Match]) -> None:
        """Search all pieces with matches, in execution order."""
        self._piece_of = {number: place for place, each in enumerate(pieces) for number in each}
        homes = [self._pieces_of(match) for match in matches]
        counts = [homes.count({place}) for place in range(len(pieces))]
        total, done = sum(counts), 0
        for place, (numbers, count) in enumerate(zip(pieces, counts, strict=True)):
            if not count:
                continue
            left = self.budget - int(self.budget * _LAST_PASS) - self.counts["expanded"]
            if left < 1:
                self.ended = "budget"
                return
            if self._is_out_of_time():
                return
            share = count / (total - done)
            words = f"piece {place + 1} of {len(pieces)}"
            progress = self._subprogress(words, done / total, (done + count) / total)
            self._search_piece(place, numbers, max(1, int(left * share)), share, progress)
            done += count

    def search_across(self) -> None:
        """Apply rewrites that span pieces, and rewrites enabled by them, as long as they pay."""
        left = min(self.budget - self.counts["expanded"], max(1, int(self.budget * _LAST_PASS)))
        if left < 1 or self._is_out_of_time():
            return
        before = self.now
        if not any(
            self._spans(m) for _, m in find_matches(before.graph, tuple(self.rules.values()))
        ):
            return
        found = self.search(
            before.graph,
            alpha=1.0,
            budget=left,
            time_limit_s=self.left_s(),
            progress=self._subprogress("across the cuts", 1.0, 1.0),
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
        homes = self._pieces_of(match)
        return len(homes) > 1 or _NO_PIECE in homes

    def _pieces_of(self, match: Match) -> set[int]:
        nodes = self.original.graph.nodes
        numbers = (n for n in match.numbers if n not in nodes or nodes[n].op != INPUT)
        return {self._piece_of.get(number, _NO_PIECE) for number in numbers}

    def _is_out_of_time(self) -> bool:
        left_s = self.left_s()
        if left_s is None or left_s > 0:
            return False
        self.ended = "time"
        return True

    def _subprogress(self, words: str, begin: float, end: float) -> Progress | None:
        progress = self.progress
        if progress is None:
            return None
        return lambda part, text: progress(
            (begin + part * (end - begin)) * (1.0 - _LAST_PASS), f"{words}: {text}"
        )

    def _search_piece(
        self,
        place: int,
        numbers: Sequence[int],
        budget: int,
        share: float,
        progress: Progress | None,
    ) -> None:
        whole = self.now
        present = tuple(number for number in numbers if number in whole.graph.nodes)
        piece = piece_of(whole.graph, present, whole.graph.next_number)
        # Cost and traffic of everything but the piece.
        alone = self.costs.cost(piece.graph).traffic_bytes
        touched_bytes = max(0, whole.cost.traffic_bytes - alone)
        own = self.costs.cost(piece.graph, rest_bytes=touched_bytes)
        rest_s = max(0.0, whole.cost.total_s - own.total_s)
        left_s = self.left_s()
        found = self.search(
            piece.graph,
            alpha=self.alpha,
            budget=budget,
            time_limit_s=None if left_s is None else left_s * share,
            progress=progress,
            rest=RestOfModel(total_s=rest_s, touched_bytes=touched_bytes),
        )
        self._count(found)
        part = found.original.cost
        self.costlier += [_with_model_costs(each, whole.cost, part) for each in found.costlier]
        joined = self._joined(piece, found.best.history) if found.candidates else None
        if joined is None:
            return
        made = joined.history[len(whole.history) :]
        if _pays(joined, whole):
            self._piece_of.update((number, place) for each in made for number in each.added)
            self.joined.append(joined)
            self.now = joined
        else:
            self.costlier += [replace(each, cost_after=joined.cost) for each in made[-1:]]

    def _count(self, found: SearchResult) -> None:
        statistics = found.statistics
        for name in self.counts:
            self.counts[name] += getattr(statistics, name)
        if self.ended == "exhausted" or statistics.ended == "time":
            self.ended = statistics.ended
        for refusal in found.refused:
            if (refusal.rule, refusal.match) not in self.refused_places:
                self.refusals.keep(refusal)

    def _joined(self, piece: Piece, history: Sequence[Application]) -> Candidate | None:
        """Return the model after the rewrites of a piece, up to the first one that is rejected
        there.

        Costs of the history are estimates; the cost of the candidate is computed again. None: no
        rewrite is possible, or costs are not comparable.
        """
        whole, made = self.now, list[Application]()
        # New nodes get the numbers that they had in the piece.
        graph = replace(whole.graph, next_number=piece.graph.next_number)
        for each in history:
            match, rule = _match_in_model(each.match, piece), self.rules[each.rule]
            if match is None or rule.refuses(graph, match):
                break
            try:
                new = rule.applied(graph, match, self.complete)
            except RewriteError:
                break
            if new_nodes(graph, new) != each.added:
                break
            gone = tuple(number for number in graph.nodes if number not in new.nodes)
            there = _with_model_costs(each, whole.cost, history[0].cost_before)
            made.append(replace(there, match=match, removed=gone))
            graph = new
        cost = self.costs.cost(graph) if made else whole.cost
        if not made or not cost.is_comparable(whole.cost):
            return None
        return Candidate(graph=graph, cost=cost, history=(*whole.history, *made))


def _pays(candidate: Candidate, before: Candidate) -> bool:
    return candidate.cost.total_s < before.cost.total_s


def _with_model_costs(each: Application, whole: Cost, part: Cost) -> Application:
    """Return a rewrite of a piece that costs `part`, with costs of the model."""
    return replace(
        each,
        cost_before=cost_of_model(whole, part, each.cost_before),
        cost_after=cost_of_model(whole, part, each.cost_after),
    )
