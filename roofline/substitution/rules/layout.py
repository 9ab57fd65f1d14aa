"""Rule for channels-last (NHWC) memory layout in regions of a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import networkx as nx
import torch

from roofline.substitution.graphs.graph import (
    Editor,
    Graph,
    Node,
    RewriteError,
    TensorType,
    Value,
    Weight,
    contiguous,
)
from roofline.substitution.rules.matching import (
    ACTIVATIONS,
    FLOATING,
    builtin_rule,
    first_reason,
    node_name,
    shared,
)
from roofline.substitution.rules.rule import FunctionPattern, Match
from roofline.substitution.rules.weights import in_channels_last
from roofline.workload.fusion_kinds import aten

_CONVOLUTIONS = aten("conv2d conv_transpose2d")
_ANCHORS = _CONVOLUTIONS | aten(
    "max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d"
)
"""Operators whose speed depends on the layout; every region contains one."""

_CUTS = aten("split split_with_sizes chunk slice narrow")
_KEEPS = (
    _ANCHORS
    | ACTIVATIONS
    | _CUTS
    | aten("batch_norm group_norm dropout feature_dropout prelu pad constant_pad_nd cat concat")
    | aten("add sub mul div maximum minimum clamp clamp_min clamp_max abs neg exp sqrt rsqrt pow")
    | aten("upsample_nearest2d upsample_bilinear2d upsample_bicubic2d")
)
"""Operators that preserve channels-last layout; verified on their actual outputs."""

_REDUCTIONS = aten("mean sum amax amin")
_RESHAPES = aten("flatten reshape view squeeze")
_NORMALIZING = aten("layer_norm linear reshape flatten contiguous")
"""Operators whose output strides do not depend on the input strides."""


# -- layouts ---------------------------------------------------------------------------------------


def is_channels_last(type: TensorType) -> bool:
    """Return whether channels vary fastest, then columns, then rows; sizes of one do not count."""
    step = 1
    for dim in (1, 3, 2, 0):
        if type.shape[dim] > 1:
            if type.stride[dim] < step:
                return False
            step = type.stride[dim] * type.shape[dim]
    return True


def _is_dense_channels_last(type: TensorType) -> bool:
    expected = _channels_last(type).stride
    return all(
        size == 1 or stride == wanted
        for size, stride, wanted in zip(type.shape, type.stride, expected, strict=True)
    )


def _channels_last(type: TensorType) -> TensorType:
    """Return the dense channels-last type of a tensor [N, C, H, W]."""
    n, c, h, w = type.shape
    step = contiguous((n, h, w, c), type.dtype).stride
    stride = (step[0], step[3], step[1], step[2])
    return TensorType(shape=type.shape, stride=stride, dtype=type.dtype)


def _has_no_area(type: TensorType) -> bool:
    """Return whether the shape is [N, C, 1, 1]."""
    return type.shape[2:] == (1, 1)


def _is_image(type: TensorType | None) -> bool:
    return type is not None and len(type.shape) == 4 and type.dtype in FLOATING


# -- regions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Region:
    """Operators that keep a layout, with the values at its border.

    ``entries`` are converted on entry; ``exits`` are read outside, in their former layout.
    """

    nodes: tuple[int, ...]
    entries: tuple[Value, ...]
    exits: tuple[Value, ...]


def _keeps(graph: Graph, node: Node) -> bool:
    if not _is_image(node.outputs[0] if node.outputs else None):
        return False
    if node.op in _REDUCTIONS:
        return bool(node.get("keepdim")) and _is_over_area(node)
    if node.op not in _KEEPS or not any(True for _ in node.values()):
        return False
    is_convolution = node.op in _CONVOLUTIONS
    if is_convolution and not isinstance(node["weight"], Weight):
        return False
    if not is_convolution and any(
        len(each.type.shape) == 4 and not _has_no_area(each.type) for each in node.weights()
    ):
        return False
    # Operands with more than four dimensions would broadcast differently.
    return all(len(graph.type_of(value).shape) <= 4 for value in node.values())


def _is_over_area(node: Node) -> bool:
    dims = node.get("dim")
    if not isinstance(dims, tuple):
        return False
    return {each % 4 for each in cast("tuple[int, ...]", dims)} == {2, 3}


@lru_cache(maxsize=8)
def _regions(graph: Graph) -> tuple[Match, ...]:
    """Return the largest regions with an operator that is not channels-last yet.

    One match per region, in order of the first operators.
    """
    kept = dict.fromkeys(number for number, node in graph.nodes.items() if _keeps(graph, node))
    links: nx.Graph[int] = nx.Graph()
    links.add_nodes_from(kept)
    for number in kept:
        taken = (value.node for value in graph.nodes[number].values())
        links.add_edges_from((each, number) for each in taken if each in kept)
    regions = (
        sorted(each, key=graph.position.__getitem__) for each in nx.connected_components(links)
    )
    return tuple(
        Match(nodes=(("region", tuple(numbers)),))
        for numbers in sorted(regions, key=lambda each: graph.position[each[0]])
        if any(
            _is_anchor(graph.nodes[each]) and not is_channels_last(graph.nodes[each].type)
            for each in numbers
        )
    )


def _is_anchor(node: Node) -> bool:
    """Return whether speed depends on the layout, and the layout is unambiguous."""
    if node.op not in _ANCHORS:
        return False
    # A kernel [K, 1, 1, 1] has no unambiguous layout.
    return not any(each.type.shape[1:] == (1, 1, 1) for each in node.weights())


def _region(graph: Graph, match: Match) -> _Region:
    # A region of a subgraph may be a part of a larger one in the model.
    numbers = match.all("region")
    inside = set(numbers)
    entries: dict[Value, None] = {}
    exits: list[Value] = []
    for number in numbers:
        node = graph.nodes[number]
        for value in node.values():
            type = graph.type_of(value)
            is_other = _is_image(type) and not _has_no_area(type)
            if value.node not in inside and is_other and not _is_dense_channels_last(type):
                entries[value] = None
        for output in range(len(node.outputs)):
            value = Value(number, output)
            others = [user for user in graph.users(value) if user not in inside]
            if graph.is_returned(value) or not all(
                _takes_any(graph, user, node.outputs[output]) for user in others
            ):
                exits.append(value)
    return _Region(nodes=numbers, entries=tuple(entries), exits=tuple(exits))


def _takes_any(graph: Graph, number: int, type: TensorType | None) -> bool:
    """Return whether an outside operator has the same result for any input layout."""
    user = graph.nodes[number]
    if type is None or len(type.shape) != 4:
        return False
    if user.op in _REDUCTIONS:
        return _is_over_area(user) and not user.get("keepdim")
    if user.op in _RESHAPES and _has_no_area(type):
        return len(user.type.shape) == 2
    if user.op == "aten.permute" and tuple(each % 4 for each in user["dims"]) == (0, 2, 3, 1):
        users = graph.users(number)
        return not graph.is_returned(number) and all(
            graph.nodes[each].op in _NORMALIZING for each in users
        )
    return False


# -- the rule --------------------------------------------------------------------------------------


def _refuses(graph: Graph, match: Match) -> str:
    region = _region(graph, match)
    for value in region.exits:
        type = graph.type_of(value)
        is_piece = graph.nodes[value.node].op in _CUTS and not graph.is_returned(value)
        if not (is_piece or type.is_contiguous or _is_dense_channels_last(type)):
            name = node_name(graph, value.node)
            return f"the output of {name} is neither contiguous nor channels-last"
    convolutions = (graph.nodes[number] for number in region.nodes)
    weights = (node["weight"] for node in convolutions if node.op in _CONVOLUTIONS)
    return first_reason(shared(graph, weight, region.nodes) for weight in weights)


@builtin_rule(
    "channels-last",
    "use channels-last layout in a region of convolutions and pooling",
    FunctionPattern(lambda graph: iter(_regions(graph))),
    _refuses,
    "changes layout",
)
def _rewrite(editor: Editor, match: Match) -> None:
    graph = editor.graph
    region = _region(graph, match)
    now: dict[Value, Value | Weight] = {}
    for value in region.entries:
        path = graph.nodes[graph.users(value)[0]].module_path
        now[value] = _converted(editor, value, path)
    for number in region.nodes:
        node = graph.nodes[number]
        changed = dict(node.taking(lambda value: now.get(value, value)).arguments)
        if node.op in _CONVOLUTIONS:
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
    """Return the output of a node, converted if it is not channels-last.

    This happens if its first operand has one channel, and thus an ambiguous layout.
    """
    if not _is_image(type) or is_channels_last(editor.type_of(value)):
        return value
    if _is_anchor(node):
        raise RewriteError(f"{node.op} does not keep channels last")
    return _converted(editor, value, node.module_path)


def _leave(editor: Editor, old: Value, new: Value | Weight, is_exit: bool) -> None:
    """Pass an output to outside users, in its former layout where they require it."""
    before, now = editor.type_of(old), editor.type_of(new)
    path = editor.graph.nodes[old.node].module_path
    was_last = _is_dense_channels_last(before) and not before.is_contiguous
    if is_exit and before.stride != now.stride and not was_last:
        op, wanted = "aten.contiguous", torch.contiguous_format
        # With sizes of one, any strides count as contiguous.
        if _has_no_area(before) or before.shape[1] == 1:
            op = "aten.clone"
        new = Value(editor.add(op, module_path=path, self=new, memory_format=wanted))
    editor.replace(old, new)


def _weight_last(weight: Weight) -> Weight:
    """Return a kernel in channels-last layout; itself if equal and unambiguous."""
    to = _channels_last(weight.type)
    if _has_no_area(to) or weight.type.stride == to.stride:
        return weight
    return in_channels_last(weight, to)
