"""Convolutions of one value that agree in kernel, stride, padding and dilation become one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node
from roofline.substitution.rules.activations_behind import other_activations
from roofline.substitution.rules.convolutions import (
    CONVOLUTIONS,
    TRANSPOSED,
    bias_of,
    channel_dim,
    kernel_size,
    not_plain,
)
from roofline.substitution.rules.kernels import CONSTRUCTORS, concatenated
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
