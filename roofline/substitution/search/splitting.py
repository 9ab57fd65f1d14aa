"""Algorithm 2 of MetaFlow: a large graph is cut in two where the fewest rewrites are lost, again
and again.

Jia et al. look for a minimum vertex cut, vertices weighted by the matches that span them. A match
that spans two vertices of the cut counts twice there; here it is a vertex of the flow network of
its own, so that each lost match counts once. Of cuts that lose as few, the one is taken that fewer
values cross, then the one nearer the middle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import networkx as nx

from roofline.errors import InputError
from roofline.substitution.graphs.graph import INPUT, Argument, Graph, Node, Value
from roofline.substitution.rules.rule import Match

_WIDEST_BAND = 300
"""A cut is looked for among as many operators at most, in the middle: a wider band would make the
flow network larger than it is worth."""

_Vertex = tuple[str, int]
_SOURCE: _Vertex = ("source", 0)
_SINK: _Vertex = ("sink", 0)


def split(graph: Graph, matches: Sequence[Match], threshold: int) -> tuple[tuple[int, ...], ...]:
    """The operators of a graph in pieces of `threshold` or fewer.

    Each operator is in one piece. Pieces are in an order in which they can run: none takes what a
    later one gives. Nodes within a piece run in the graph's order.

    Args:
        graph: what is split; its inputs are in no piece.
        matches: rewrites that should stay whole.
        threshold: how many operators a piece has at most.

    Raises:
        InputError: the threshold is below 1.
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
    for place, (taken, times) in enumerate(_spanning(matches, vertex).items()):
        network.add_edge(("match", place), ("lost", place), capacity=times * per_match)
        for each in sorted(taken):
            network.add_edge(each, ("match", place))
            network.add_edge(("lost", place), each)
    return network


def _spanning(
    matches: Iterable[frozenset[int]], vertex: dict[int, _Vertex]
) -> Counter[frozenset[_Vertex]]:
    """How many matches have the same vertices, of those that a cut could lose."""
    spanned = (frozenset(vertex[n] for n in each if n in vertex) for each in matches)
    return Counter(each for each in spanned if len(each) > 1 and not {_SOURCE, _SINK} <= each)


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
    """Some operators of a graph as a graph of their own.

    Args:
        graph: the whole.
        numbers: the operators, in the order in which they run.
        next_number: new nodes have this number or higher ones; no node of the whole has.
    """
    members = frozenset(numbers)
    stand_ins: dict[Value, int] = {}
    inputs: dict[int, Node] = {}
    for value in _taken(graph, numbers):
        taken = graph.nodes[value.node]
        if taken.op == INPUT:
            inputs[value.node] = taken
        elif value.node not in members and value not in stand_ins:
            number = next_number + len(stand_ins)
            stand_ins[value] = number
            inputs[number] = _activation(graph, value)
    operators = {number: _taking(graph.nodes[number], stand_ins) for number in numbers}
    return Piece(
        graph=Graph(
            nodes={**inputs, **operators},
            outputs=_given(graph, numbers, members),
            tied=graph.tied | _shared_weights(graph, numbers, members),
            next_number=next_number + len(stand_ins),
        ),
        origin={number: value for value, number in stand_ins.items()},
    )


def _taken(graph: Graph, numbers: Sequence[int]) -> Iterator[Value]:
    for number in numbers:
        yield from graph.nodes[number].values()


def _taking(node: Node, stand_ins: dict[Value, int]) -> Node:
    if not any(value in stand_ins for value in node.values()):
        return node
    arguments = tuple((name, _standing_in(each, stand_ins)) for name, each in node.arguments)
    return replace(node, arguments=arguments)


def _standing_in(argument: Argument, stand_ins: dict[Value, int]) -> Argument:
    if isinstance(argument, Value):
        return Value(stand_ins[argument]) if argument in stand_ins else argument
    if isinstance(argument, tuple):
        inside = cast("tuple[Argument, ...]", argument)
        return tuple(_standing_in(each, stand_ins) for each in inside)
    return argument


def _activation(graph: Graph, value: Value) -> Node:
    arguments = (("name", f"value_{value.node}_{value.output}"), ("role", "activation"))
    output = graph.nodes[value.node].outputs[value.output]
    return Node(op=INPUT, arguments=arguments, outputs=(output,))


def _given(graph: Graph, numbers: Sequence[int], members: frozenset[int]) -> tuple[Value, ...]:
    """What others take of a piece, in the order in which it is made."""
    returned = {each for each in graph.outputs if isinstance(each, Value)}
    found: list[Value] = []
    for number in numbers:
        outside = [graph.nodes[n] for n in graph.users(number) if n not in members]
        taken = returned.union(*(node.values() for node in outside))
        values = (Value(number, place) for place in range(len(graph.nodes[number].outputs)))
        found += [value for value in values if value in taken]
    return tuple(found)


def _shared_weights(
    graph: Graph, numbers: Sequence[int], members: frozenset[int]
) -> frozenset[str]:
    """The model's own weights that other pieces take, too: to change one would double it."""
    own = {w for n in numbers for weight in graph.nodes[n].weights() for w in weight.originals()}
    return frozenset(w.name for w in own if not members.issuperset(graph.weight_users(w)))
