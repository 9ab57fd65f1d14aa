"""Batch norms in evaluation, folded into the convolutions and linears before them."""

from __future__ import annotations

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.rules.convolutions import CONVOLUTIONS, TRANSPOSED, not_foldable
from roofline.substitution.rules.kernels import CONSTRUCTORS, normed
from roofline.substitution.rules.refusals import (
    called,
    not_floating,
    not_weights,
    tied,
    used_elsewhere,
)
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Chain, Match, Rule, Step

NORM = "aten.batch_norm"


def not_in_evaluation(graph: Graph, number: int) -> str:
    """Why a batch norm is not the same scale and shift at every pass; ``""``: it is."""
    node = graph.nodes[number]
    if node["training"]:
        return f"{called(graph, number)} takes its statistics from what it is given"
    if node["running_mean"] is None or node["running_var"] is None:
        return f"{called(graph, number)} has no running statistics"
    return not_weights(
        graph, number, ("weight", "bias", "running_mean", "running_var")
    ) or not_floating(node.weights())


def has_other_channels(graph: Graph, node: Node, spatial: int) -> bool:
    """Whether the second dimension of what a norm takes is not the channels before it."""
    return len(graph.type_of(node["input"]).shape) != spatial + 2


def _refuses(graph: Graph, match: Match) -> str:
    number, norm = match["product"], match["norm"]
    node = graph.nodes[number]
    spatial = len(graph.type_of(node["weight"]).shape) - 2
    if has_other_channels(graph, graph.nodes[norm], spatial):
        return f"{called(graph, norm)} takes other channels than {called(graph, number)} gives"
    return (
        not_foldable(graph, number)
        or not_in_evaluation(graph, norm)
        or used_elsewhere(graph, number, (norm,))
        or tied(graph, match.numbers)
    )


def _rewrite(editor: Editor, match: Match) -> None:
    node, norm = (editor.node(match[role]) for role in ("product", "norm"))
    kernel, bias = normed(node["weight"], node["bias"], norm)
    new = editor.add_like(node, weight=kernel, bias=bias)
    editor.replace(Value(match["norm"]), Value(new))


def _before_norm(ops: frozenset[str]) -> Chain:
    return Chain(
        steps=(
            Step(role="product", ops=ops),
            Step(role="norm", ops=frozenset({NORM}), after="product", at="input"),
        )
    )


register_rule(
    Rule(
        name="fold-batch-norm",
        summary="batch norm in evaluation is folded into the convolution before it",
        pattern=_before_norm(CONVOLUTIONS | TRANSPOSED),
        refuses=_refuses,
        rewrite=_rewrite,
        constructors=CONSTRUCTORS,
    )
)
register_rule(
    Rule(
        name="fold-linear-batch-norm",
        summary="batch norm in evaluation is folded into the linear before it",
        pattern=_before_norm(frozenset({"aten.linear"})),
        refuses=_refuses,
        rewrite=_rewrite,
        constructors=CONSTRUCTORS,
    )
)
