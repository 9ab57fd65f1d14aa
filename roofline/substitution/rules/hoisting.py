"""Rule that multiplies a whole sequence where a model multiplies its steps one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.pieces import Piece, piece
from roofline.substitution.rules.products import CONSTRUCTORS, Product, product, transposed
from roofline.substitution.rules.refusals import called
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule


@dataclass(frozen=True, slots=True)
class _StepProducts:
    """Products of one weight with pieces of one sequence, and of all weights with all of it.

    The role is ``products``.
    """

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        by_sequence: dict[tuple[Value | Weight, int], list[tuple[int, ...]]] = {}
        for (_, of, dim), found in _families(graph).items():
            numbers = tuple(each.number for each, _ in found)
            by_sequence.setdefault((of, dim), []).append(numbers)
        for families in by_sequence.values():
            whole = [each for each in families if not _missing(graph, each)]
            if whole:
                yield Match(nodes=(("products", tuple(n for each in whole for n in each)),))
            for family in families:
                if family not in whole:
                    yield Match(nodes=(("products", family),))


_Family = tuple[tuple[str, ...], Value | Weight, int]


@lru_cache(maxsize=8)
def _families(graph: Graph) -> dict[_Family, list[tuple[Product, Piece]]]:
    """Products by their weights and bias, by the sequence, and by the dimension of its steps."""
    found: dict[_Family, list[tuple[Product, Piece]]] = {}
    for number in graph.nodes:
        one = product(graph, number)
        taken = piece(graph, one.value) if one else None
        if one is None or taken is None or isinstance(taken.of, Weight):
            continue
        if taken.dim == len(graph.type_of(taken.of).shape) - 1:
            continue
        found.setdefault((_weights(graph, one), taken.of, taken.dim), []).append((one, taken))
    return {family: each for family, each in found.items() if len(each) > 1}


def _missing(graph: Graph, numbers: Sequence[int]) -> str:
    """Why pieces are not all of a sequence, each once; ``""``: they are."""
    taken = [each for each in _pieces(graph, numbers) if each.length]
    end = 0
    for each in sorted(taken, key=lambda each: each.start):
        if each.start != end:
            return "it takes some steps of the sequence twice, or not at all: all would add work"
        end += each.length
    size = graph.type_of(taken[0].of).shape[taken[0].dim]
    if end != size:
        return f"it takes {end} of {size} steps of the sequence: all would add work"
    if len({each.is_one for each in taken}) > 1 or len(taken) < len(numbers):
        return "its steps have different numbers of dimensions"
    return ""


def _pieces(graph: Graph, numbers: Sequence[int]) -> list[Piece]:
    found = [piece(graph, each.value) for each in _products(graph, numbers)]
    return [each for each in found if each is not None]


def _products(graph: Graph, numbers: Sequence[int]) -> list[Product]:
    found = [product(graph, number) for number in numbers]
    return [each for each in found if each is not None]


def _hoist_refuses(graph: Graph, match: Match) -> str:
    for numbers in _of_each_weight(graph, match):
        if found := _missing(graph, numbers):
            return found
        first = _products(graph, numbers)[0]
        others = set(graph.weight_users(first.weight)) - set(numbers)
        if _is_turned(first) and others:
            return f"weight {first.weight} is shared with {called(graph, min(others))}"
    return ""


def _is_turned(found: Product) -> bool:
    """Whether the product of the whole sequence needs the weight the other way round."""
    return found.bias is not None and not found.has_rows


def _of_each_weight(graph: Graph, match: Match) -> list[list[int]]:
    """The products of a match, those of one weight and bias together."""
    found: dict[tuple[str, ...], list[int]] = {}
    for each in _products(graph, match.all("products")):
        found.setdefault(_weights(graph, each), []).append(each.number)
    return list(found.values())


def _weights(graph: Graph, found: Product) -> tuple[str, ...]:
    """What must be equal for products to be one."""
    bias = found.bias.key if found.bias else ""
    return (graph.nodes[found.number].op, found.weight.key, bias)


def _hoist(editor: Editor, match: Match) -> None:
    for numbers in _of_each_weight(editor.graph, match):
        _hoist_one(editor, numbers)


def _hoist_one(editor: Editor, numbers: Sequence[int]) -> None:
    graph = editor.graph
    taken = _pieces(graph, numbers)
    order = sorted(range(len(numbers)), key=lambda place: taken[place].start)
    first, of, dim = _products(graph, numbers)[0], taken[0].of, taken[0].dim
    path = graph.nodes[numbers[0]].module_path
    if first.has_rows or first.bias is not None:
        weight = transposed(first.weight) if _is_turned(first) else first.weight
        whole = editor.add(
            "aten.linear", module_path=path, input=of, weight=weight, bias=first.bias
        )
    else:
        whole = editor.add("aten.matmul", module_path=path, self=of, other=first.weight)
    if taken[0].is_one:
        parts = editor.add(
            "aten.unbind", overload="int", module_path=path, self=Value(whole), dim=dim
        )
    else:
        sizes = tuple(taken[place].length for place in order)
        parts = editor.add(
            "aten.split_with_sizes",
            module_path=path,
            self=Value(whole),
            split_sizes=sizes,
            dim=dim,
        )
    for output, place in enumerate(order):
        editor.replace(Value(numbers[place]), Value(parts, output))


register_rule(
    Rule(
        name="hoist-product",
        summary="products of all steps of a sequence with one weight become one product of the"
        " sequence",
        pattern=_StepProducts(),
        refuses=_hoist_refuses,
        rewrite=_hoist,
        constructors=CONSTRUCTORS,
    )
)
