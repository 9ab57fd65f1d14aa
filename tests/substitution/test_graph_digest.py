"""A graph's digest tells what is the same from what is not."""

from __future__ import annotations

from roofline.substitution.graphs.graph import Graph, Value
from tests.substitution.toy_graphs import Builder


def forked(*, takes_other: bool, swapped: bool = False) -> Graph:
    """Two equal operators on one input; the last takes the first of them, or the second."""
    builder = Builder()
    x = builder.input()
    first, second = builder.op("a", x), builder.op("a", x)
    if swapped:
        first, second = second, first
    left = builder.op("b", first)
    right = builder.op("c", second if takes_other else first)
    return builder.graph(left, right, builder.op("d", second))


def test_digests_tell_what_is_taken_and_not_in_which_order() -> None:
    graph = forked(takes_other=True)
    assert graph.digest == forked(takes_other=True, swapped=True).digest
    assert graph.digest != forked(takes_other=False).digest
    turned = Graph(nodes=graph.nodes, outputs=graph.outputs[::-1], next_number=graph.next_number)
    assert turned.digest != graph.digest


def test_which_of_two_equal_values_is_returned_does() -> None:
    builder = Builder()
    x = builder.input()
    first, second = builder.op("a", x), builder.op("a", x)
    end = builder.op("b", first)
    one = Graph(nodes=builder.nodes, outputs=(end, first), next_number=9)
    other = Graph(nodes=builder.nodes, outputs=(end, second), next_number=9)
    assert one.digest != other.digest


def test_which_output_is_taken_does() -> None:
    def taken(output: int) -> Graph:
        builder = Builder()
        split = builder.op("split", builder.input(), sizes=(1, 1))
        return builder.graph(builder.op("a", Value(split.node, output)))

    assert taken(0).digest != taken(1).digest
