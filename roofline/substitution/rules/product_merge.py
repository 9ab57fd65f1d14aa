"""Rules that join products of one value with several matrices into one product."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Argument, Graph, Node, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.activations_behind import other_activations
from roofline.substitution.rules.products import (
    CONSTRUCTORS,
    LEFT,
    RIGHT,
    Product,
    biases_of,
    matrix_of,
    product,
    side_by_side,
    stacked,
)
from roofline.substitution.rules.refusals import called, not_weights, tied
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.rules.siblings import SIBLINGS, Siblings, split_again


def _is_twice(weights: list[Weight]) -> str:
    for place, weight in enumerate(weights):
        if weight in weights[:place]:
            return f"weight {weight} is taken twice: it would be doubled"
    return ""


def _agree_linears(graph: Graph, node: Node) -> Hashable:
    weight = node["weight"]
    if not isinstance(weight, Weight) or len(weight.type.shape) != 2:
        return None
    return weight.type.dtype


def _linears_refuse(graph: Graph, match: Match) -> str:
    numbers = match.all(SIBLINGS)
    for number in numbers:
        if found := not_weights(graph, number, ("bias",)):
            return found
    return (
        other_activations(graph, numbers)
        or _is_twice([graph.nodes[number]["weight"] for number in numbers])
        or tied(graph, numbers)
    )


def _merge_linears(editor: Editor, match: Match) -> None:
    found = _products(editor.graph, match)
    nodes = [editor.node(each.number) for each in found]
    merged = editor.add_like(
        nodes[0], weight=stacked([each.weight for each in found]), bias=biases_of(found)
    )
    split_again(editor, match, merged, [each.width for each in found], _last(nodes[0]))


def _products(graph: Graph, match: Match) -> list[Product]:
    found = [product(graph, number) for number in match.all(SIBLINGS)]
    return [each for each in found if each is not None]


def _last(node: Node) -> int:
    return len(node.type.shape) - 1


register_rule(
    Rule(
        name="merge-linears",
        summary="linears of one value become one, split behind it (queries, keys and values)",
        pattern=Siblings(ops=frozenset({"aten.linear"}), shared="input", agree=_agree_linears),
        refuses=_linears_refuse,
        rewrite=_merge_linears,
        constructors=CONSTRUCTORS,
    )
)


def _agree_matmuls(graph: Graph, node: Node) -> Hashable:
    """What the right operands must have in common to lie side by side."""
    right = node[RIGHT[node.op]]
    type = graph.type_of(right)
    left = graph.type_of(node[LEFT[node.op]])
    if len(type.shape) < 2 or len(left.shape) < 2:
        return None
    if node.op == "aten.addmm" and not _has_plain_bias(node, type.shape[-1]):
        return None
    return (_kind(graph, node), type.shape[:-1], type.dtype)


def _has_plain_bias(node: Node, width: int) -> bool:
    bias = node["self"]
    is_whole = isinstance(bias, Weight) and bias.type.shape == (width,)
    return is_whole and node["beta"] == 1 and node["alpha"] == 1


def _kind(graph: Graph, node: Node) -> str:
    """What is on the right: a weight, one that is transposed there, or what is computed."""
    if isinstance(node[RIGHT[node.op]], Weight):
        return "weight"
    return "value" if matrix_of(graph, node) is None else "transposed weight"


@dataclass(frozen=True, slots=True)
class _ProductSiblings:
    """Products with one left operand."""

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        for ops, shared in (
            (frozenset({"aten.matmul", "aten.mm", "aten.bmm"}), "self"),
            (frozenset({"aten.addmm"}), "mat1"),
        ):
            yield from Siblings(ops=ops, shared=shared, agree=_agree_matmuls).matches(graph)


def _matmuls_refuse(graph: Graph, match: Match) -> str:
    numbers = match.all(SIBLINGS)
    if found := other_activations(graph, numbers):
        return found
    nodes = [graph.nodes[number] for number in numbers]
    kind = _kind(graph, nodes[0])
    if kind == "value":
        return _needs_another(graph, numbers)
    inside = [value.node for node in nodes for value in _rights(node)]
    matrices = [found[0] for node in nodes if (found := matrix_of(graph, node))]
    return _is_twice(matrices) or tied(graph, (*inside, *numbers))


def _rights(node: Node) -> list[Value]:
    return [each for each in (node[RIGHT[node.op]],) if isinstance(each, Value)]


def _needs_another(graph: Graph, numbers: tuple[int, ...]) -> str:
    """One sibling multiplies by what is computed of another: they cannot be one."""
    first = min(map(graph.position.__getitem__, numbers))
    waiting = [value.node for number in numbers for value in _rights(graph.nodes[number])]
    seen: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in numbers:
            return f"what {called(graph, number)} gives is a factor of another one"
        if number not in seen and graph.position[number] > first:
            seen.add(number)
            waiting += [value.node for value in graph.nodes[number].values()]
    return ""


def _merge_matmuls(editor: Editor, match: Match) -> None:
    graph = editor.graph
    nodes = [graph.nodes[number] for number in match.all(SIBLINGS)]
    first, kind = nodes[0], _kind(graph, nodes[0])
    rights = [node[RIGHT[node.op]] for node in nodes]
    if kind == "transposed weight":
        found = _products(graph, match)
        merged = editor.add(
            "aten.linear",
            module_path=first.module_path,
            input=first[LEFT[first.op]],
            weight=stacked([each.weight for each in found]),
            bias=biases_of(found),
        )
    else:
        changed: dict[str, Argument] = {}
        if kind == "weight":
            changed[RIGHT[first.op]] = side_by_side(rights)
        else:
            dim = len(graph.type_of(rights[0]).shape) - 1
            path = first.module_path
            joined = editor.add("aten.cat", module_path=path, tensors=tuple(rights), dim=dim)
            changed[RIGHT[first.op]] = Value(joined)
        if first.op == "aten.addmm":
            changed["self"] = stacked([node["self"] for node in nodes])
        merged = editor.add_like(first, **changed)
    split_again(editor, match, merged, [node.type.shape[-1] for node in nodes], _last(first))


register_rule(
    Rule(
        name="merge-matmuls",
        summary="matrix products with the same left operand become one, split behind it",
        pattern=_ProductSiblings(),
        refuses=_matmuls_refuse,
        rewrite=_merge_matmuls,
        constructors=CONSTRUCTORS,
    )
)
