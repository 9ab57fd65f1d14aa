"""Activations that stand behind operators: which they are, and when they are the same one."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.substitution.graphs.graph import Graph, Node, Value, values_in

ACTIVATIONS = frozenset(
    {
        "aten.relu",
        "aten.relu6",
        "aten.leaky_relu",
        "aten.elu",
        "aten.selu",
        "aten.celu",
        "aten.gelu",
        "aten.silu",
        "aten.mish",
        "aten.sigmoid",
        "aten.log_sigmoid",
        "aten.tanh",
        "aten.softplus",
        "aten.softsign",
        "aten.hardtanh",
        "aten.hardsigmoid",
        "aten.hardswish",
        "aten.softshrink",
        "aten.hardshrink",
        "aten.threshold",
    }
)
"""Operators that take each element on its own, and no weights."""


def is_activation(node: Node) -> bool:
    """Whether it is an activation of one value."""
    return node.op in ACTIVATIONS and len(tuple(node.values())) == 1


def activation_behind(graph: Graph, number: int) -> int | None:
    """The activation that alone takes what a node gives; None: there is no such."""
    user = graph.only_user(number)
    if user is None or not is_activation(graph.nodes[user]):
        return None
    return user


def same_activations(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    """The activations behind nodes, where all have one and the same one; empty: they do not."""
    found = _behind(graph, numbers)
    return found if found and _are_same(graph, found) else ()


def other_activations(graph: Graph, numbers: Sequence[int]) -> str:
    """Says, as a refusal, that all nodes have activations, but not the same; ``""``: not so."""
    found = _behind(graph, numbers)
    if not found or _are_same(graph, found):
        return ""
    names = dict.fromkeys(_said(graph.nodes[number]) for number in found)
    return f"their activations are different: {', '.join(names)}"


def _behind(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    found = [activation_behind(graph, number) for number in numbers]
    behind = tuple(number for number in found if number is not None)
    return behind if len(behind) == len(found) else ()


def _are_same(graph: Graph, activations: Sequence[int]) -> bool:
    return len({_kind(graph.nodes[number]) for number in activations}) == 1


def _kind(node: Node) -> tuple[object, ...]:
    """Everything that decides what it computes; in place or not is the same."""
    settings = tuple(
        (name, type(each).__name__, str(each))
        for name, each in node.arguments
        if not any(True for _ in values_in(each))
    )
    return (node.op, node.overload, settings)


def _said(node: Node) -> str:
    settings = [f"{name}={each}" for name, each in node.arguments if not isinstance(each, Value)]
    name = node.op.removeprefix("aten.")
    return f"{name}({', '.join(settings)})" if settings else name
