"""Rule that lets regions of a model compute with channels last in memory (NHWC)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from roofline.substitution.graphs.editing import Editor, RewriteError
from roofline.substitution.graphs.graph import Argument, Graph, Node, Value
from roofline.substitution.graphs.weights import TensorType, Weight, contiguous
from roofline.substitution.rules.activations_behind import ACTIVATIONS
from roofline.substitution.rules.refusals import called
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule


def _ops(names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in names.split())


CONVOLUTIONS = _ops("conv2d conv_transpose2d")
_ANCHORS = CONVOLUTIONS | _ops(
    "max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d"
)
"""For these the layout decides how fast they are: a region has one at least."""

CUTS = _ops("split split_with_sizes chunk slice narrow")
_KEEPS = (
    _ANCHORS
    | ACTIVATIONS
    | CUTS
    | _ops("batch_norm group_norm dropout feature_dropout prelu pad constant_pad_nd cat concat")
    | _ops("add sub mul div maximum minimum clamp clamp_min clamp_max abs neg exp sqrt rsqrt pow")
    | _ops("upsample_nearest2d upsample_bilinear2d upsample_bicubic2d")
)
"""Operators that give channels last where they are given that; checked on what they really give."""

_REDUCTIONS = _ops("mean sum amax amin")
_RESHAPES = _ops("flatten reshape view squeeze")
_NORMALIZING = _ops("layer_norm linear reshape flatten contiguous")
"""Operators that give the same strides, whatever those of what they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Operators that keep a layout, and what goes in and out.

    ``entries`` are values that are converted first, ``exits`` those that others than these
    operators need in the layout that they had.
    """

    nodes: tuple[int, ...]
    entries: tuple[Value, ...]
    exits: tuple[Value, ...]


def is_channels_last(type: TensorType) -> bool:
    """Whether channels vary fastest, then columns, then rows; sizes of one do not matter."""
    step = 1
    for dim in (1, 3, 2, 0):
        if type.shape[dim] > 1:
            if type.stride[dim] < step:
                return False
            step = type.stride[dim] * type.shape[dim]
    return True


def is_dense_channels_last(type: TensorType) -> bool:
    """Whether it lies like that with nothing in between."""
    expected = channels_last(type.shape, type.dtype).stride
    return all(
        size == 1 or stride == wanted
        for size, stride, wanted in zip(type.shape, type.stride, expected, strict=True)
    )


def channels_last(shape: tuple[int, ...], dtype: str) -> TensorType:
    """The type of a tensor [N, C, H, W] that lies densely, channels fastest."""
    n, c, h, w = shape
    step = contiguous((n, h, w, c), dtype).stride
    return TensorType(shape=shape, stride=(step[0], step[3], step[1], step[2]), dtype=dtype)


def has_no_area(type: TensorType) -> bool:
    """Whether it is [N, C, 1, 1]."""
    return type.shape[2:] == (1, 1)


def is_image(type: TensorType | None) -> bool:
    """Whether it is a floating-point tensor of four dimensions."""
    floating = ("float16", "bfloat16", "float32", "float64")
    return type is not None and len(type.shape) == 4 and type.dtype in floating


def _keeps(graph: Graph, node: Node) -> bool:
    """Whether it is one that can be in a region."""
    if not is_image(node.outputs[0] if node.outputs else None):
        return False
    if node.op in _REDUCTIONS:
        return bool(node.get("keepdim")) and _is_over_area(node)
    if node.op not in _KEEPS or not any(True for _ in node.values()):
        return False
    is_convolution = node.op in CONVOLUTIONS
    if is_convolution and not isinstance(node["weight"], Weight):
        return False
    if not is_convolution and any(
        len(each.type.shape) == 4 and not has_no_area(each.type) for each in node.weights()
    ):
        return False
    # What is larger in more than channels would be taken apart along other dimensions.
    return all(len(graph.type_of(value).shape) <= 4 for value in node.values())


def _is_over_area(node: Node) -> bool:
    dims = node.get("dim")
    return isinstance(dims, tuple) and {each % 4 for each in cast("tuple[int, ...]", dims)} == {
        2,
        3,
    }


@lru_cache(maxsize=8)
def regions(graph: Graph) -> tuple[Region, ...]:
    """The largest ones; in the order of their first operators."""
    kept = [number for number, node in graph.nodes.items() if _keeps(graph, node)]
    groups = {number: number for number in kept}

    def root(number: int) -> int:
        while groups[number] != number:
            groups[number] = groups[groups[number]]
            number = groups[number]
        return number

    for number in kept:
        for value in graph.nodes[number].values():
            if value.node in groups:
                groups[root(number)] = root(value.node)
    found: dict[int, list[int]] = {}
    for number in kept:
        found.setdefault(root(number), []).append(number)
    return tuple(
        region_of(graph, tuple(numbers))
        for numbers in found.values()
        if any(
            is_anchor(graph.nodes[each]) and not is_channels_last(graph.nodes[each].type)
            for each in numbers
        )
    )


def is_anchor(node: Node) -> bool:
    """Whether the layout decides how fast it is, and it can tell which one it has."""
    if node.op not in _ANCHORS:
        return False
    # Neither what it takes nor its kernel [K, 1, 1, 1] has a layout to tell.
    return not any(each.type.shape[1:] == (1, 1, 1) for each in node.weights())


def region_of(graph: Graph, numbers: tuple[int, ...]) -> Region:
    """These operators, in the order in which they run, and what goes in and out."""
    inside = set(numbers)
    entries: dict[Value, None] = {}
    exits: list[Value] = []
    for number in numbers:
        node = graph.nodes[number]
        for value in node.values():
            if value.node not in inside and _must_be_converted(graph.type_of(value)):
                entries[value] = None
        for output in range(len(node.outputs)):
            value = Value(number, output)
            others = [user for user in graph.users(value) if user not in inside]
            if graph.is_returned(value) or not all(
                _takes_any(graph, user, node.outputs[output]) for user in others
            ):
                exits.append(value)
    return Region(nodes=numbers, entries=tuple(entries), exits=tuple(exits))


def _must_be_converted(type: TensorType) -> bool:
    return is_image(type) and not has_no_area(type) and not is_dense_channels_last(type)


def _takes_any(graph: Graph, number: int, type: TensorType | None) -> bool:
    """Whether an operator outside gives the same, in the same layout, for any layout."""
    user = graph.nodes[number]
    if type is None or len(type.shape) != 4:
        return False
    if user.op in _REDUCTIONS:
        return _is_over_area(user) and not user.get("keepdim")
    if user.op in _RESHAPES and has_no_area(type):
        return len(user.type.shape) == 2
    if user.op == "aten.permute" and tuple(each % 4 for each in user["dims"]) == (0, 2, 3, 1):
        users = graph.users(number)
        return not graph.is_returned(number) and all(
            graph.nodes[each].op in _NORMALIZING for each in users
        )
    return False


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
