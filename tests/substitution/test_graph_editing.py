"""Editing: graphs that are rewritten run in an order that works, and have nothing too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.graph import INPUT, Editor, Graph, RewriteError, Value
from tests.substitution.rewriting import OPERATORS, Model, capture_of, graph_of
from tests.substitution.toy_graphs import Builder, complete


def _graph(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    return graph_of(Model(lambda m, *args: function(*args)), *map(torch.ones, shapes))


def _number(graph: Graph, op: str, nth: int = 0) -> int:
    return [number for number, node in graph.nodes.items() if node.op == f"aten.{op}"][nth]


def _ops(graph: Graph) -> list[str]:
    return [node.op.removeprefix("aten.") for node in graph.nodes.values() if node.op != INPUT]


def test_new_nodes_have_defaults_and_types() -> None:
    graph = _graph(lambda x: x.relu(), (2, 3, 4, 4))
    editor = Editor(graph, OPERATORS.complete, "a rule")
    (given_number, *_) = graph.nodes
    pooled = editor.node(editor.add("aten.max_pool2d", self=Value(given_number), kernel_size=2))
    assert dict(pooled.arguments) == {
        "self": Value(given_number),
        "kernel_size": (2, 2),
        "stride": (),
        "padding": (0, 0),
        "dilation": (1, 1),
        "ceil_mode": False,
    }
    assert pooled.rule == "a rule"
    assert (pooled.type.shape, pooled.type.stride) == ((2, 3, 2, 2), (12, 4, 2, 1))
    split = editor.node(
        editor.add("aten.split_with_sizes", self=Value(given_number), split_sizes=[1, 2], dim=1)
    )
    assert split["split_sizes"] == (1, 2)
    assert [each and each.shape for each in split.outputs] == [(2, 1, 4, 4), (2, 2, 4, 4)]


@pytest.mark.parametrize(
    ("op", "arguments", "words"),
    [
        ("aten.mm", {"mat2": Value(0)}, "missing argument 'self'"),
        ("aten.relu", {"self": Value(0), "inplace": True}, "has no argument 'inplace'"),
        ("aten.no_such_thing", {}, "torch has no operator aten.no_such_thing"),
        ("aten.mm", {"self": Value(0), "mat2": Value(0)}, "aten.mm: .*same reduction dim"),
        ("aten.nonzero", {"self": Value(0)}, "depends on tensor values"),
    ],
)
def test_operators_refuse_in_words(op: str, arguments: dict[str, Any], words: str) -> None:
    graph = _graph(lambda x: x.relu(), (2, 3))
    editor = Editor(graph, OPERATORS.complete)
    for _ in range(2):  # Remembered, too.
        with pytest.raises(RewriteError, match=words):
            editor.add(op, **arguments)


def test_numbers_of_other_types_are_other_calls() -> None:
    graph = _graph(lambda x: x.argmax(-1), (2, 3))
    editor = Editor(graph, OPERATORS.complete)
    number = Value(_number(graph, "argmax"))
    types = [
        editor.node(editor.add("aten.mul", overload="Scalar", self=number, other=each)).type.dtype
        for each in (1, 1.0, True)
    ]
    assert types == ["int64", "float32", "int64"]


def test_what_nobody_takes_goes() -> None:
    graph = _graph(lambda x: (x * 2).relu(), (2,))
    editor = Editor(graph, OPERATORS.complete)
    (given_number, *_) = graph.nodes
    editor.replace(Value(_number(graph, "relu")), Value(given_number))
    finished = editor.finished()
    assert _ops(finished) == []
    assert finished.outputs == (Value(given_number),)


def test_new_nodes_run_before_the_first_that_takes_them() -> None:
    graph = _graph(lambda x, y: ((x * 2).relu(), (y * 3).sigmoid()), (2,), (2,))
    editor = Editor(graph, OPERATORS.complete)
    first, second = _number(graph, "mul"), _number(graph, "mul", 1)
    both = editor.add("aten.cat", tensors=(Value(first), Value(second)))
    halves = editor.add("aten.split", overload="Tensor", self=Value(both), split_size=2)
    editor.replace(Value(_number(graph, "relu")), Value(halves, 0))
    finished = editor.finished()
    # What gives the model's outputs comes last.
    assert _ops(finished) == ["mul", "mul", "sigmoid", "cat", "split"]
    assert finished.nodes[both] is editor.node(both)


def test_circles_are_refused() -> None:
    graph = _graph(lambda x: x.relu().sigmoid(), (2,))
    relu, sigmoid = Value(_number(graph, "relu")), Value(_number(graph, "sigmoid"))
    editor = Editor(graph, OPERATORS.complete)
    tanh = editor.add("aten.tanh", self=sigmoid)
    editor.replace(relu, Value(tanh))
    with pytest.raises(RewriteError, match="depend on itself"):
        editor.finished()
    editor = Editor(graph, OPERATORS.complete)
    editor.replace(relu, sigmoid)
    editor.replace(sigmoid, relu)
    with pytest.raises(RewriteError, match="cyclic"):
        editor.finished()


def test_other_sizes_are_refused() -> None:
    graph = _graph(lambda x: x.sum(), (2,))
    editor = Editor(graph, OPERATORS.complete)
    (given_number, *_) = graph.nodes
    with pytest.raises(RewriteError, match="would become"):
        editor.replace(Value(_number(graph, "sum")), Value(given_number))


def test_other_strides_are_taken_on() -> None:
    graph = _graph(lambda x: ((x * 2).relu() + 1).tanh(), (2, 3))
    editor = Editor(graph, OPERATORS.complete)
    product = Value(_number(graph, "mul"))
    turned = editor.add("aten.t", self=product)
    whole = editor.add("aten.contiguous", self=Value(turned))
    back = editor.add("aten.t", self=Value(whole))
    editor.replace(Value(_number(graph, "relu")), Value(back))
    finished = editor.finished()
    assert finished.nodes[_number(graph, "add")].type.stride == (1, 2)
    assert finished.nodes[_number(graph, "tanh")].type.stride == (1, 2)
    assert graph.nodes[_number(graph, "tanh")].type.stride == (3, 1)


def test_a_chain_longer_than_pythons_stack() -> None:
    builder = Builder()
    value = given = builder.input()
    for _ in range(1500):
        value = builder.op("a", value)
    graph = builder.graph(value)
    editor = Editor(graph, complete)
    editor.replace(Value(given.node + 1), given)
    assert len(editor.finished().nodes) == len(graph.nodes) - 1


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_replacement_by_an_equal_value_keeps_what_is_computed(data: st.DataObject) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y.relu_() + x
        return (z * y).sigmoid() + z

    x = torch.tensor([-1.0, 0.5, 2.0])
    model = capture_of(Model(lambda m, x: function(x)), x)
    graph = model.graph
    editor = Editor(graph, OPERATORS.complete)
    ops = [number for number, node in graph.nodes.items() if node.op != INPUT]
    for number in data.draw(st.lists(st.sampled_from(ops), unique=True)):
        negative = editor.add("aten.neg", self=Value(number))
        twice = editor.add("aten.neg", self=Value(negative))
        # Its own users go on with what is equal to it, but for the new node that takes it.
        copy = editor.add_like(graph.nodes[number])
        again = editor.add_like(editor.node(negative), self=Value(copy))
        editor.replace(Value(number), Value(editor.add_like(editor.node(twice), self=Value(again))))
    assert torch.equal(build_module(model, editor.finished())(x), function(x))


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
