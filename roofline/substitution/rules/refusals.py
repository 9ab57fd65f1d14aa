"""Reasons, in words, for which several rules refuse; ``""`` is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.substitution.graphs.graph import Graph, Value
from roofline.substitution.graphs.weights import Weight


def called(graph: Graph, number: int) -> str:
    """What to call a node: its module, or its operator."""
    node = graph.nodes[number]
    return node.module_path or node.op.removeprefix("aten.")


def used_elsewhere(graph: Graph, number: int, inside: Iterable[int]) -> str:
    """What a node gives would vanish, but others than the nodes `inside` need it."""
    if graph.is_returned(number):
        return f"the model returns what {called(graph, number)} gives"
    known = frozenset(inside)
    others = [user for user in graph.users(number) if user not in known]
    if others:
        return f"{called(graph, others[0])} takes what {called(graph, number)} gives, too"
    return ""


def tied(graph: Graph, numbers: Sequence[int]) -> str:
    """A weight of these nodes has several names, or is used by others: it would be doubled."""
    known = frozenset(numbers)
    for number in numbers:
        for weight in graph.nodes[number].weights():
            for original in weight.originals():
                if original.name in graph.tied:
                    return f"weight {original.name} is tied: it has several names"
            others = [user for user in graph.weight_users(weight) if user not in known]
            if others:
                return f"weight {weight} is shared with {called(graph, others[0])}"
    return ""


def not_weights(graph: Graph, number: int, names: Sequence[str]) -> str:
    """One of these arguments is computed when the model runs; None is as good as a weight."""
    for name in names:
        if isinstance(graph.nodes[number].get(name), Value):
            return f"the {name} of {called(graph, number)} is computed when the model runs"
    return ""


FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})


def not_floating(weights: Iterable[Weight]) -> str:
    """A weight has a data type in which nothing can be folded."""
    for weight in weights:
        if weight.type.dtype not in FLOATING:
            return f"weight {weight} has data type {weight.type.dtype}"
    return ""
