"""Graphs in pieces: cut where the fewest matches are lost, and the same when joined again."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.errors import InputError
from roofline.substitution.graphs.graph import (
    INPUT,
    Graph,
    Node,
    Value,
    Weight,
    contiguous,
    values_in,
)
from roofline.substitution.partitioned_search import Piece, band, cut, partition, piece_of
from roofline.substitution.rules.rule import Match
from tests.substitution.toy_graphs import Builder, chain, random_graph

OPS = ("a", "b", "c")


def operators(graph: Graph) -> tuple[int, ...]:
    return tuple(number for number, node in graph.nodes.items() if node.op != INPUT)


def taken_across(graph: Graph, upstream: frozenset[int]) -> set[int]:
    """The operators upstream whose values somebody downstream takes."""
    return {number for number in upstream if set(graph.users(number)) - upstream}


def lost(matches: list[frozenset[int]], upstream: frozenset[int]) -> int:
    return sum(bool(each & upstream) and bool(each - upstream) for each in matches)


def some_matches(graph: Graph, draw: st.DataObject) -> list[frozenset[int]]:
    numbers = operators(graph)
    member = st.sets(st.sampled_from(numbers), min_size=2, max_size=min(3, len(numbers)))
    return [frozenset(each) for each in draw.draw(st.lists(member, max_size=12))]


@settings(max_examples=150)
@given(seed=st.integers(0, 10_000), size=st.integers(3, 12), draw=st.data())
def test_no_other_cut_loses_fewer_matches(seed: int, size: int, draw: st.DataObject) -> None:
    graph = random_graph(seed, size, OPS)
    numbers, matches = operators(graph), some_matches(graph, draw)
    begin, end = band(len(numbers))

    first, second = cut(graph, numbers, matches)

    # By brute force: every choice from the band whose parts can run one after the other.
    found: list[tuple[int, int, int]] = []
    for size_of in range(end - begin + 1):
        for chosen in combinations(numbers[begin:end], size_of):
            upstream = frozenset((*numbers[:begin], *chosen))
            before = {v.node for n in upstream for v in graph.nodes[n].values()}
            if before - upstream - {0}:
                continue
            across = taken_across(graph, upstream)
            off = sum(abs(2 * numbers.index(n) - len(numbers)) for n in across)
            found.append((lost(matches, upstream), len(across), off))
    across = taken_across(graph, frozenset(first))
    off = sum(abs(2 * numbers.index(n) - len(numbers)) for n in across)
    assert (lost(matches, frozenset(first)), len(across), off) == min(found)
    assert sorted(first + second) == sorted(numbers)


def connected_graph(seed: int, size: int) -> Graph:
    """Every operator depends on the first, and the last on every one."""
    draw = random.Random(seed)
    builder = Builder()
    values = [builder.op("a", builder.input())]
    for _ in range(size):
        values.append(builder.op("b", *(draw.choice(values) for _ in range(draw.choice((1, 2))))))
    used = {value.node for node in builder.nodes.values() for value in node.values()}
    ends = [value for value in values if value.node not in used]
    return builder.graph(builder.op("c", *ends))


@settings(max_examples=100)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 9))
def test_without_matches_it_is_a_minimum_vertex_cut(seed: int, size: int) -> None:
    """Of ways through the graph: an operator off all of them may have to be cut off besides."""
    graph = connected_graph(seed, size)
    numbers = operators(graph)
    begin, end = band(len(numbers))
    late = set(numbers[end:])

    def separates(vertices: frozenset[int]) -> bool:
        """Whether every way from the operators before the band to those behind leads through."""
        waiting, reached = [n for n in numbers[:begin] if n not in vertices], set[int]()
        while waiting:
            number = waiting.pop()
            if number not in reached:
                reached.add(number)
                waiting += [n for n in graph.users(number) if n not in vertices or n in late]
        return not reached & late

    smallest = next(
        size_of
        for size_of in range(end + 1)
        if any(separates(frozenset(each)) for each in combinations(numbers[:end], size_of))
    )

    first, _ = cut(graph, numbers, [])

    assert len(taken_across(graph, frozenset(first))) == smallest


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 30, 1000, 100_000])
def test_the_band_leaves_something_on_both_sides(count: int) -> None:
    begin, end = band(count)
    assert 1 <= begin <= end < count
    assert end - begin <= 300
    assert count < 6 or min(begin, count - end) >= count // 3


def test_a_match_that_spans_two_values_counts_once() -> None:
    """Cut in the waist: two values cross, both of one match. Elsewhere two matches are lost."""
    builder = Builder()
    a = builder.op("a", builder.input())
    b = builder.op("b", a)
    left, right = builder.op("c", b), builder.op("c", b)
    end = builder.op("d", left, right)
    graph = builder.graph(builder.op("e", end))
    one = frozenset({left.node, right.node, end.node})
    others = [frozenset({a.node, b.node})] * 2 + [frozenset({b.node, left.node, right.node})] * 2

    first, second = cut(graph, operators(graph), [one, *others])

    assert (first, second) == ((1, 2, 3, 4), (5, 6))


def test_a_chain_is_cut_between_rewrites() -> None:
    graph = chain(*["conv", "norm", "relu"] * 4)
    matches = [Match(nodes=(("all", (n, n + 1, n + 2)),)) for n in range(1, 13, 3)]
    assert partition(graph, matches, 6) == (tuple(range(1, 7)), tuple(range(7, 13)))
    assert partition(chain(), [], 5) == ()
    with pytest.raises(InputError, match="pieces of 0 operators"):
        partition(graph, [], 0)


def joined_again(graph: Graph, pieces: list[Piece]) -> Graph:
    """The whole, made of pieces alone."""
    nodes: dict[int, Node] = {n: node for n, node in graph.nodes.items() if node.op == INPUT}
    for piece in pieces:
        for number, node in piece.graph.nodes.items():
            if node.op != INPUT:
                origin = piece.origin
                nodes[number] = node.taking(lambda value, of=origin: of.get(value.node, value))
    return Graph(nodes=nodes, outputs=graph.outputs, next_number=graph.next_number)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 40), draw=st.data())
def test_pieces_joined_again_are_the_whole(seed: int, size: int, draw: st.DataObject) -> None:
    graph = random_graph(seed, size, OPS)
    threshold = draw.draw(st.integers(1, 12))
    matches = (
        [Match(nodes=(("all", tuple(sorted(each))),)) for each in some_matches(graph, draw)]
        if size > 1
        else []
    )

    numbers = partition(graph, matches, threshold)

    assert all(1 <= len(each) <= threshold for each in numbers)
    assert sorted(n for each in numbers for n in each) == sorted(operators(graph))
    pieces = [piece_of(graph, each, graph.next_number) for each in numbers]
    whole = joined_again(graph, pieces)
    assert whole.digest == graph.digest
    made = {n for n, node in graph.nodes.items() if node.op == INPUT}
    for piece, each in zip(pieces, numbers, strict=True):
        taken = {value for n in each for value in graph.nodes[n].values()}
        outside = {value for value in taken if value.node not in each} - {Value(0)}
        assert set(piece.origin.values()) == outside
        assert {value.node for value in outside} <= made  # What runs before it gives them.
        made |= set(each)


def test_a_piece_knows_what_comes_from_others_and_what_they_take() -> None:
    builder = Builder()
    x = builder.input("image")
    split_node = builder.op("split", x, sizes=(1, 1, 1))
    first, second = Value(split_node.node, 0), Value(split_node.node, 2)
    here = builder.op("a", first, x)
    also = builder.op("b", here, second)
    after = builder.op("c", also)
    graph = builder.graph(after, here)

    piece = piece_of(graph, (here.node, also.node), 50)

    nodes = piece.graph.nodes
    assert piece.origin == {50: first, 51: second}
    assert nodes[x.node] is graph.nodes[x.node] and nodes[x.node]["role"] == "input"
    assert [nodes[n]["role"] for n in (50, 51)] == ["activation"] * 2
    assert len({nodes[n]["name"] for n in (50, 51, x.node)}) == 3
    assert nodes[50].type == graph.type_of(first)
    assert list(values_in(nodes[also.node].arguments[1][1])) == [Value(51)]
    assert piece.graph.outputs == (here, also)
    assert piece.graph.next_number == 52
    assert list(nodes)[-2:] == [here.node, also.node]


def test_a_weight_that_other_pieces_take_is_tied() -> None:
    ours = Weight(type=contiguous((4,), "float32"), name="ours")
    shared = Weight(type=contiguous((4,), "float32"), name="shared")
    builder = Builder()
    first = builder.op("a", builder.input(), weight=ours, bias=shared)
    graph = builder.graph(builder.op("a", first, weight=shared))

    assert piece_of(graph, (first.node,), 9).graph.tied == {"shared"}


def test_long_graphs_are_split_into_pieces_of_some_size() -> None:
    builder = Builder()
    value = builder.input()
    for place in range(1000):
        left, right = builder.op("a", value), builder.op("b", value)
        value = builder.op("c", left, right, path=f"block{place}")
    graph = builder.graph(value)

    pieces = partition(graph, [], 200)

    assert len(pieces) <= 32
    assert all(200 // 3 <= len(each) <= 200 for each in pieces)
    assert pieces == partition(graph, [], 200)
    crossing = [len(piece_of(graph, each, 9000).origin) for each in pieces]
    assert crossing == [0, *[1] * (len(pieces) - 1)]
