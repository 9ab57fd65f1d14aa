"""Kernels with zeros around them, so that convolutions of one value get equal ones and merge."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.activations_behind import other_activations
from roofline.substitution.rules.convolutions import (
    CONVOLUTIONS,
    TRANSPOSED,
    bias_of,
    channel_dim,
    kernel_size,
    not_plain,
)
from roofline.substitution.rules.kernels import CONSTRUCTORS, concatenated, enlarged
from roofline.substitution.rules.refusals import called, tied
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.rules.siblings import SIBLINGS, Siblings, split_again


def _agree(graph: Graph, node: Node) -> Hashable:
    return (
        kernel_size(graph, node),
        graph.type_of(node["weight"]).dtype,
        node["stride"],
        node["padding"],
        node["dilation"],
        node["groups"],
    )


def cannot_join(graph: Graph, numbers: Sequence[int]) -> str:
    """Why convolutions of one value must not become one; ``""``: they may."""
    for number in numbers:
        if found := not_plain(graph, number):
            return found
        if graph.nodes[number]["groups"] != 1:
            return f"{called(graph, number)} has groups: a merged one would mix them up"
    return other_activations(graph, numbers) or tied(graph, numbers)


def _refuses(graph: Graph, match: Match) -> str:
    return cannot_join(graph, match.all(SIBLINGS))


def _rewrite(editor: Editor, match: Match) -> None:
    nodes = [editor.node(number) for number in match.all(SIBLINGS)]
    has_bias = any(node["bias"] is not None for node in nodes)
    merged = editor.add_like(
        nodes[0],
        weight=concatenated([node["weight"] for node in nodes]),
        bias=concatenated([bias_of(node) for node in nodes]) if has_bias else None,
    )
    sizes = [node["weight"].type.shape[0] for node in nodes]
    split_again(editor, match, merged, sizes, channel_dim(editor.graph, nodes[0]))


register_rule(
    Rule(
        name="merge-convolutions",
        summary="convolutions of one value with equal kernels become one, split behind it",
        pattern=Siblings(ops=CONVOLUTIONS | TRANSPOSED, shared="input", agree=_agree),
        refuses=_refuses,
        rewrite=_rewrite,
        constructors=CONSTRUCTORS,
    )
)


CONVOLUTION, PARTNERS = "convolution", "partners"


def _aligned(graph: Graph, node: Node) -> Hashable:
    """Equal for convolutions whose kernels have their centres at the same places."""
    if isinstance(node["padding"], str) or any(each != 1 for each in node["dilation"]):
        return None
    kernel = kernel_size(graph, node)
    before = tuple(2 * padding - k for padding, k in zip(node["padding"], kernel, strict=True))
    return (before, graph.type_of(node["weight"]).dtype, node["stride"], node["groups"])


def _have_other_kernels(graph: Graph, numbers: tuple[int, ...]) -> bool:
    return len({kernel_size(graph, graph.nodes[number]) for number in numbers}) > 1


_SIBLINGS = Siblings(ops=CONVOLUTIONS, shared="input", agree=_aligned, wanted=_have_other_kernels)


def _common_kernel(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    kernels = [kernel_size(graph, graph.nodes[number]) for number in numbers]
    return tuple(map(max, zip(*kernels, strict=True)))


def _enlarged(graph: Graph, node: Node, size: tuple[int, ...]) -> tuple[Weight, tuple[int, ...]]:
    """Its kernel and its padding at another size, which leaves what it gives as it is."""
    kernel = kernel_size(graph, node)
    padding = zip(node["padding"], kernel, size, strict=True)
    grown = tuple(before + (new - old) // 2 for before, old, new in padding)
    return enlarged(node["weight"], size), grown


@dataclass(frozen=True, slots=True)
class _Smaller:
    """Finds convolutions with smaller kernels than siblings that they could merge with.

    Each convolution once for each size to which it may grow: with the siblings that ask for it.
    """

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        for family in _SIBLINGS.families(graph):
            for number in family:
                kernel = _common_kernel(graph, (number,))
                partners: dict[tuple[int, ...], list[int]] = {}
                for other in family:
                    size = _common_kernel(graph, (number, other))
                    if size != kernel:
                        partners.setdefault(size, []).append(other)
                for asking in partners.values():
                    yield Match(nodes=((CONVOLUTION, (number,)), (PARTNERS, tuple(asking))))


def _refuses_to_enlarge(graph: Graph, match: Match) -> str:
    number = match[CONVOLUTION]
    reasons = [cannot_join(graph, (number, partner)) for partner in match.all(PARTNERS)]
    return "" if "" in reasons else reasons[0]


def _enlarge(editor: Editor, match: Match) -> None:
    number = match[CONVOLUTION]
    node = editor.node(number)
    size = _common_kernel(editor.graph, (number, match[PARTNERS]))
    kernel, padding = _enlarged(editor.graph, node, size)
    new = editor.add_like(node, weight=kernel, padding=padding)
    editor.replace(Value(number), Value(new))


def _refuses_to_merge(graph: Graph, match: Match) -> str:
    return cannot_join(graph, match.all(SIBLINGS))


def _enlarge_and_merge(editor: Editor, match: Match) -> None:
    numbers = match.all(SIBLINGS)
    nodes = [editor.node(number) for number in numbers]
    size = _common_kernel(editor.graph, numbers)
    kernels = [_enlarged(editor.graph, node, size)[0] for node in nodes]
    has_bias = any(node["bias"] is not None for node in nodes)
    merged = editor.add_like(
        nodes[0],
        weight=concatenated(kernels),
        bias=concatenated([bias_of(node) for node in nodes]) if has_bias else None,
        padding=_enlarged(editor.graph, nodes[0], size)[1],
    )
    sizes = [kernel.type.shape[0] for kernel in kernels]
    split_again(editor, match, merged, sizes, channel_dim(editor.graph, nodes[0]))


register_rule(
    Rule(
        name="enlarge-kernel",
        summary="a kernel gets zeros around it, to the size of a sibling's",
        safety="adds work",
        pattern=_Smaller(),
        refuses=_refuses_to_enlarge,
        rewrite=_enlarge,
        constructors=CONSTRUCTORS,
    )
)
register_rule(
    Rule(
        name="enlarge-and-merge",
        summary="convolutions of one value with different kernels get equal ones and become one",
        safety="adds work",
        pattern=_SIBLINGS,
        refuses=_refuses_to_merge,
        rewrite=_enlarge_and_merge,
        constructors=CONSTRUCTORS,
    )
)
