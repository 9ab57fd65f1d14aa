"""Rules that take operators away which give what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import INPUT, Graph, Node, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Chain, Match, Rule, Step

_DROPOUTS = frozenset(
    {
        "aten.dropout",
        "aten.feature_dropout",
        "aten.alpha_dropout",
        "aten.feature_alpha_dropout",
        "aten.native_dropout",
    }
)


def source(node: Node) -> Value | Weight | None:
    """The first tensor among a node's arguments; None: it takes none."""
    for _, argument in node.arguments:
        if isinstance(argument, (Value, Weight)):
            return argument
        if isinstance(argument, tuple):
            first = next(iter(cast("tuple[Any, ...]", argument)), None)
            if isinstance(first, (Value, Weight)):
                return first
    return None


def same_tensor_twice(graph: Graph, old: Value, new: Value | Weight) -> str:
    """Says, as a refusal, that the model would return a tensor that is not its own any more.

    Whoever writes to what a model returns must not write to its inputs, its weights or its other
    results, where he did not before.
    """
    if not graph.is_returned(old):
        return ""
    if isinstance(new, Weight):
        return f"the model would return its weight {new} itself"
    if graph.nodes[new.node].op == INPUT:
        return "the model would return its input itself"
    if graph.is_returned(new):
        return "the model would return the same tensor twice"
    if graph.type_of(old).stride != graph.type_of(new).stride:
        return "the model would return it with other strides"
    return ""


def _dropout_refuses(graph: Graph, match: Match) -> str:
    number = match["dropout"]
    node = graph.nodes[number]
    if node["train"] is not False:
        return "training mode: it drops values"
    if graph.users(Value(number, 1)) or graph.is_returned(Value(number, 1)):
        return "the mask of what it drops is used"
    return ""


def _replaced_by_source(editor: Editor, number: int) -> None:
    node = editor.graph.nodes[number]
    given = source(node)
    assert given is not None
    editor.replace(Value(number), given)


register_rule(
    Rule(
        name="drop-dropout",
        summary="takes away dropout that drops nothing, since the model is in eval mode",
        pattern=Chain(steps=(Step(role="dropout", ops=_DROPOUTS),)),
        refuses=_dropout_refuses,
        rewrite=lambda editor, match: _replaced_by_source(editor, match["dropout"]),
    )
)


def _is_number(argument: object, number: float) -> bool:
    return isinstance(argument, (int, float)) and argument == number


def _adds_nothing(node: Node) -> bool:
    return _is_number(node["other"], 0)


def _multiplies_by_one(node: Node) -> bool:
    return _is_number(node["other"], 1) and node.get("rounding_mode") is None


def _takes_one(node: Node) -> bool:
    tensors: tuple[Any, ...] = node["tensors"]
    return len(tensors) == 1


def _pads_nothing(node: Node) -> bool:
    return not any(node["pad"])


def _keeps_all(node: Node) -> bool:
    # A piece that is as long as the whole starts where it starts.
    return len(node.outputs) == 1 and node.get("step", 1) == 1


def _always(node: Node) -> bool:
    return True


_VIEWS = (
    "reshape view view_as _unsafe_view flatten unflatten squeeze expand expand_as contiguous "
    "permute transpose t alias detach movedim swapaxes ravel"
)
# An average or maximum over windows of one element each.
_POOLINGS = "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"
_FRESH: Mapping[str, Callable[[Node], bool]] = {
    "aten.add": _adds_nothing,
    "aten.sub": _adds_nothing,
    "aten.mul": _multiplies_by_one,
    "aten.div": _multiplies_by_one,
    "aten.pow": lambda node: _is_number(node["exponent"], 1),
    "aten.cat": _takes_one,
    "aten.concat": _takes_one,
    "aten.concatenate": _takes_one,
    "aten.pad": _pads_nothing,
    "aten.constant_pad_nd": _pads_nothing,
    "aten.clone": _always,
    "aten._to_copy": _always,
    **{name: lambda node: _is_number(node["p"], 0) for name in _DROPOUTS},
    **{f"aten.{name}": _always for name in _POOLINGS.split()},
}
"""Operators that give a tensor of their own, and when its values are those of what they take."""

_ALIASES: Mapping[str, Callable[[Node], bool]] = {
    **{f"aten.{name}": _always for name in _VIEWS.split()},
    **{
        f"aten.{name}": _keeps_all
        for name in ["slice", "narrow", "split", "split_with_sizes", "chunk", "tensor_split"]
    },
    "aten.to": _always,
}
"""Operators that give what they take itself, or another view of it, and when that is the same."""


@dataclass(frozen=True, slots=True)
class _Identities:
    """Operators whose result has the values, sizes, strides and data type of what they take."""

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        for number, node in graph.nodes.items():
            holds = _FRESH.get(node.op) or _ALIASES.get(node.op)
            given = source(node)
            if holds is None or given is None or node.outputs[0] != graph.type_of(given):
                continue
            if holds(node):
                yield Match(nodes=(("identity", (number,)),))


def _identity_refuses(graph: Graph, match: Match) -> str:
    number = match["identity"]
    node = graph.nodes[number]
    given = source(node)
    assert given is not None
    if graph.users(Value(number, 1)) or graph.is_returned(Value(number, 1)):
        return "the mask of what it drops is used"
    # Both say where tensors lie, and a graph does not.
    if node.get("device") is not None or node.overload == "other":
        return "it may move the tensor to another device"
    if node.get("layout") is not None:
        return "it may give the tensor another layout"
    if node.op in _FRESH or node.get("copy"):
        return same_tensor_twice(graph, Value(number), given)
    return ""


register_rule(
    Rule(
        name="drop-identity",
        summary="takes away operators that give what they take: + 0, * 1, a reshape to the same"
        " shape, a whole slice, a concatenation of one",
        pattern=_Identities(),
        refuses=_identity_refuses,
        rewrite=lambda editor, match: _replaced_by_source(editor, match["identity"]),
    )
)
