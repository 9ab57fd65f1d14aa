"""Rules that take operators away which give what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import INPUT, Graph, Node, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule

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


_CONVERSIONS = frozenset({"aten.contiguous", "aten.clone"})


def _same(graph: Graph, number: int) -> Value | Weight:
    """What a node gives if it gives what it takes; of conversions there and back, what was there.

    Raises:
        ValueError: it takes no tensor.
    """
    node = graph.nodes[number]
    given = source(node)
    if given is None:
        raise ValueError(f"{node.op} takes no tensor")
    if node.op in _CONVERSIONS and isinstance(given, Value):
        there = graph.nodes[given.node]
        before = source(there) if there.op in _CONVERSIONS else None
        if before is not None and graph.type_of(before) == node.type:
            return before
    return given


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


def _needs_mask(graph: Graph, number: int) -> bool:
    return bool(graph.users(Value(number, 1))) or graph.is_returned(Value(number, 1))


def _dropout_refuses(graph: Graph, match: Match) -> str:
    for number in match.all("dropout"):
        if graph.nodes[number]["train"] is not False:
            return "training mode: it drops values"
        if _needs_mask(graph, number):
            return "the mask of what it drops is used"
    return ""


def _rewrite(editor: Editor, match: Match) -> None:
    for number in match.numbers:
        editor.replace(Value(number), _same(editor.graph, number))


@dataclass(frozen=True, slots=True)
class _AtOnce:
    """What `find` finds, all at once where nothing speaks against it, the others one by one.

    One by one, each of them would be a graph of its own to a search, with and without each other.
    """

    role: str
    find: Callable[[Graph], Iterator[int]]
    refuses: Callable[[Graph, Match], str]

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        together: list[int] = []
        alone: list[Match] = []
        for number in self.find(graph):
            match = Match(nodes=((self.role, (number,)),))
            if graph.is_returned(number) or self.refuses(graph, match):
                alone.append(match)
            else:
                together.append(number)
        if together:
            yield Match(nodes=((self.role, tuple(together)),))
        yield from alone


def _dropouts(graph: Graph) -> Iterator[int]:
    for number, node in graph.nodes.items():
        if node.op in _DROPOUTS:
            yield number


register_rule(
    Rule(
        name="drop-dropout",
        summary="takes away dropout that drops nothing, since the model is in eval mode",
        pattern=_AtOnce("dropout", _dropouts, _dropout_refuses),
        refuses=_dropout_refuses,
        rewrite=_rewrite,
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


def _identities(graph: Graph) -> Iterator[int]:
    """Operators whose result has the values, sizes, strides and data type of what they take."""
    for number, node in graph.nodes.items():
        holds = _FRESH.get(node.op) or _ALIASES.get(node.op)
        if holds is None or source(node) is None or not holds(node):
            continue
        if node.outputs[0] == graph.type_of(_same(graph, number)):
            yield number


def _identity_refuses(graph: Graph, match: Match) -> str:
    return next(filter(None, (_stays(graph, each) for each in match.all("identity"))), "")


def _stays(graph: Graph, number: int) -> str:
    node, given = graph.nodes[number], _same(graph, number)
    if _needs_mask(graph, number):
        return "the mask of what it drops is used"
    # Both say where tensors lie, and a graph does not.
    if node.get("device") is not None or node.overload == "other":
        return "it may move the tensor to another device"
    if node.get("layout") is not None:
        return "it may give the tensor another layout"
    is_own = node.op in _FRESH or node.get("copy") or given != source(node)
    if is_own:
        return same_tensor_twice(graph, Value(number), given)
    return ""


register_rule(
    Rule(
        name="drop-identity",
        summary="takes away operators that give what they take: + 0, * 1, a reshape to the same"
        " shape, a whole slice, a concatenation of one",
        pattern=_AtOnce("identity", _identities, _identity_refuses),
        refuses=_identity_refuses,
        rewrite=_rewrite,
    )
)
