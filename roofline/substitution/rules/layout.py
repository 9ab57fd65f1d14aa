"""Rule that lets regions of a model compute with channels last in memory (NHWC)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from roofline.substitution.graphs.editing import Editor, RewriteError
from roofline.substitution.graphs.graph import Argument, Graph, Node, Value
from roofline.substitution.graphs.weights import TensorType, Weight, contiguous
from roofline.substitution.rules.layout_regions import (
    CONVOLUTIONS,
    CUTS,
    Region,
    channels_last,
    has_no_area,
    is_anchor,
    is_channels_last,
    is_dense_channels_last,
    is_image,
    region_of,
    regions,
)
from roofline.substitution.rules.refusals import called
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule


@dataclass(frozen=True, slots=True)
class _Regions:
    """Regions in which an operator does not compute with channels last yet; the role is so called.

    One match is one whole region.
    """

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        for region in regions(graph):
            yield Match(nodes=(("region", region.nodes),))


def _of(graph: Graph, match: Match) -> Region:
    # What was a whole region in a piece of a model may be a part of one in all of it.
    return region_of(graph, match.all("region"))


def _refuses(graph: Graph, match: Match) -> str:
    region = _of(graph, match)
    for value in region.exits:
        type = graph.type_of(value)
        is_piece = graph.nodes[value.node].op in CUTS and not graph.is_returned(value)
        if not (is_piece or _is_contiguous(type) or is_dense_channels_last(type)):
            return f"what {called(graph, value.node)} gives has strides of its own where it leaves"
    for number in region.nodes:
        node = graph.nodes[number]
        if node.op in CONVOLUTIONS:
            weight: Weight = node["weight"]
            others = [user for user in graph.weight_users(weight) if user not in region.nodes]
            if others:
                return f"weight {weight} is shared with {called(graph, others[0])}"
    return ""


def _is_contiguous(type: TensorType) -> bool:
    return type.stride == contiguous(type.shape, type.dtype).stride


def _rewrite(editor: Editor, match: Match) -> None:
    graph = editor.graph
    region = _of(graph, match)
    now: dict[Value, Value] = {}
    for value in region.entries:
        path = graph.nodes[graph.users(value)[0]].module_path
        now[value] = _converted(editor, value, path)
    for number in region.nodes:
        node = graph.nodes[number]
        changed = {name: _changed(each, now) for name, each in node.arguments}
        if node.op in CONVOLUTIONS:
            changed["weight"] = _weight_last(node["weight"])
        new = editor.add_like(node, **changed)
        for output, type in enumerate(node.outputs):
            now[Value(number, output)] = _made_last(editor, node, Value(new, output), type)
    for number in region.nodes:
        for output, type in enumerate(graph.nodes[number].outputs):
            value = Value(number, output)
            if type is not None:
                _leave(editor, value, now[value], value in region.exits)


def _converted(editor: Editor, value: Value, path: str) -> Value:
    wanted = torch.channels_last
    number = editor.add("aten.contiguous", module_path=path, self=value, memory_format=wanted)
    return Value(number)


def _made_last(editor: Editor, node: Node, value: Value, type: TensorType | None) -> Value:
    """What a node of the region gives, converted where it does not keep channels last.

    That is so where the first thing that it takes has one channel, and no layout to tell.
    """
    if not is_image(type) or is_channels_last(editor.type_of(value)):
        return value
    if is_anchor(node):
        raise RewriteError(f"{node.op} does not keep channels last")
    return _converted(editor, value, node.module_path)


def _leave(editor: Editor, old: Value, new: Value, is_exit: bool) -> None:
    """Gives others what they need: the layout of before, where they cannot take any."""
    before, now = editor.type_of(old), editor.type_of(new)
    path = editor.graph.nodes[old.node].module_path
    was_last = is_dense_channels_last(before) and not _is_contiguous(before)
    if is_exit and before.stride != now.stride and not was_last:
        op, wanted = "aten.contiguous", torch.contiguous_format
        # Sizes of one make it contiguous as it is, whatever its strides say.
        if has_no_area(before) or before.shape[1] == 1:
            op = "aten.clone"
        new = Value(editor.add(op, module_path=path, self=new, memory_format=wanted))
    editor.replace(old, new)


def _changed(argument: Argument, now: dict[Value, Value]) -> Argument:
    if isinstance(argument, Value):
        return now.get(argument, argument)
    if isinstance(argument, tuple):
        return tuple(_changed(each, now) for each in cast("tuple[Any, ...]", argument))
    return argument


def _weight_last(weight: Weight) -> Weight:
    """A kernel with channels last; itself where that is the same, and cannot be mistaken."""
    type = weight.type
    if has_no_area(type) or type.stride == channels_last(type.shape, type.dtype).stride:
        return weight
    return Weight(type=channels_last(type.shape, type.dtype), made_by="channels_last", of=(weight,))


def _channels_last(kernel: Tensor) -> Tensor:
    return kernel


register_rule(
    Rule(
        name="channels-last",
        summary="a region of convolutions, pooling and what stands between them computes with"
        " channels last",
        safety="changes layout",
        pattern=_Regions(),
        refuses=_refuses,
        rewrite=_rewrite,
        constructors={"channels_last": _channels_last},
    )
)
