"""ONNX operators that change how tensors look, and those that make some."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import (
    OtherwiseError,
    axes_of,
    numbers,
    operator,
)
from roofline.workload.models.files.onnx_tensors import dtype_of


@operator("Reshape")
def reshape(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    """Into a shape in which 0 stands for the size that was there, and -1 for what is left."""
    sizes = [int(each) for each in numbers(shape)]
    if not node.get("allowzero", 0):
        sizes = [x.shape[place] if each == 0 else each for place, each in enumerate(sizes)]
    return torch.reshape(x, sizes)


@operator("Flatten")
def flatten(node: Node, x: Tensor) -> Tensor:
    """Into a matrix."""
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    rows = math.prod(x.shape[:axis])
    return torch.reshape(x, (rows, math.prod(x.shape[axis:])))


@operator("Transpose")
def transpose(node: Node, x: Tensor) -> Tensor:
    """Dimensions in another order."""
    return x.permute(node.get("perm") or list(reversed(range(x.dim()))))


@operator("Unsqueeze")
def unsqueeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Dimensions of size 1 more."""
    places = axes_of(node, axes) or []
    rank = x.dim() + len(places)
    for place in sorted(each % rank for each in places):
        x = x.unsqueeze(place)
    return x


@operator("Squeeze")
def squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Dimensions of size 1 fewer."""
    places = axes_of(node, axes)
    if places is None:
        return x.squeeze()
    return x.squeeze(tuple(places)) if places else x


@operator("Concat")
def concatenation(node: Node, *operands: Tensor) -> Tensor:
    """Behind each other."""
    return torch.cat(operands, node["axis"])


@operator("Split")
def split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    """Into parts of the sizes that are given, or of the same."""
    axis = node.get("axis", 0)
    given = numbers(sizes) if sizes is not None else node.get("split")
    if not given:
        parts = len(node.outputs)
        return tuple(torch.split(x, -(-x.shape[axis] // parts), axis))
    return tuple(torch.split(x, [int(each) for each in given], axis))


@operator("Slice")
def slices(
    node: Node,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """From starts to ends along axes, in steps."""
    begin = numbers(starts) if starts is not None else node["starts"]
    end = numbers(ends) if ends is not None else node["ends"]
    along = axes_of(node, axes) or list(range(len(begin)))
    stride = numbers(steps) if steps is not None else [1] * len(begin)
    for axis, first, last, step in zip(along, begin, end, stride, strict=True):
        x = _sliced(x, axis % x.dim(), int(first), int(last), int(step))
    return x


def _sliced(x: Tensor, axis: int, first: int, last: int, step: int) -> Tensor:
    size = x.shape[axis]
    if step > 0:
        places = slice(first, last, step).indices(size)
        return x[(slice(None),) * axis + (slice(*places),)]
    places = range(size)[slice(first, last if last >= -size else None, step)]
    return torch.index_select(x, axis, torch.tensor(list(places), dtype=torch.int64))


@operator("Expand")
def expand(_node: Node, x: Tensor, shape: Tensor) -> Tensor:
    """To a shape, either tensor's sizes of 1 repeated."""
    sizes = torch.broadcast_shapes(x.shape, tuple(int(each) for each in numbers(shape)))
    return x.expand(sizes)


@operator("Tile")
def tile(_node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    """Again and again along every axis."""
    return x.repeat([int(each) for each in numbers(repeats)])


@operator("Constant")
def constant(node: Node) -> Tensor:
    """What the node holds."""
    if node.get("value") is not None:
        return node["value"]
    for name, kind in (("value_float", torch.float32), ("value_floats", torch.float32)):
        if name in node.attributes:
            return torch.tensor(node[name], dtype=kind)
    for name in ("value_int", "value_ints"):
        if name in node.attributes:
            return torch.tensor(node[name], dtype=torch.int64)
    raise OtherwiseError("a constant of texts, or a sparse one")


@operator("ConstantOfShape")
def constant_of_shape(node: Node, shape: Tensor) -> Tensor:
    """One value everywhere."""
    value = node.get("value")
    sizes = [int(each) for each in numbers(shape)]
    if value is None:
        return torch.zeros(sizes)
    return torch.full(sizes, numbers(value)[0], dtype=value.dtype)


@operator("Range")
def number_range(_node: Node, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """Numbers in equal steps."""
    first, last, step = (numbers(each)[0] for each in (start, limit, delta))
    return torch.arange(first, last, step, dtype=start.dtype)


@operator("EyeLike")
def eye_like(node: Node, x: Tensor) -> Tensor:
    """Ones on a diagonal."""
    kind = dtype_of(Path(node.name), node["dtype"], node.name) if node.get("dtype") else x.dtype
    ones = torch.ones(tuple(x.shape), dtype=kind)
    offset = node.get("k", 0)
    return torch.triu(torch.tril(ones, offset), offset)


@operator("Pad")
def pad(
    node: Node,
    x: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    """At the ends of axes, with a value, the border, or what is mirrored there."""
    given = [int(each) for each in (numbers(pads) if pads is not None else node["pads"])]
    along = axes_of(node, axes) or list(range(x.dim()))
    both = {axis % x.dim(): (given[i], given[i + len(along)]) for i, axis in enumerate(along)}
    order: list[int] = []
    for axis in reversed(range(x.dim())):
        order += both.get(axis, (0, 0))
    while len(order) > 2 and order[-2:] == [0, 0]:
        order = order[:-2]
    mode: str = node.get("mode", "constant")
    mode = {"edge": "replicate", "wrap": "circular"}.get(mode, mode)
    if mode != "constant":
        return functional.pad(x, order, mode)
    filling = numbers(value)[0] if value is not None else node.get("value", 0.0)
    return functional.pad(x, order, value=filling)


@operator("DepthToSpace")
def depth_to_space(node: Node, x: Tensor) -> Tensor:
    """Channels into pixels; torch's pixel shuffle is the order CRD."""
    block = node["blocksize"]
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_shuffle(x, block)
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, block, block, channels // block**2, height, width)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(
        batch, channels // block**2, height * block, width * block
    )


@operator("SpaceToDepth")
def space_to_depth(node: Node, x: Tensor) -> Tensor:
    """Pixels into channels."""
    block = node["blocksize"]
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, channels, height // block, block, width // block, block)
    return parts.permute(0, 3, 5, 1, 2, 4).reshape(
        batch, channels * block**2, height // block, width // block
    )


@operator("Trilu")
def triangle(node: Node, x: Tensor, diagonal: Tensor | None = None) -> Tensor:
    """The upper or the lower triangle."""
    offset = int(numbers(diagonal)[0]) if diagonal is not None else 0
    return torch.triu(x, offset) if node.get("upper", 1) else torch.tril(x, offset)


@operator("RandomNormalLike", "RandomUniformLike")
def random_like(node: Node, x: Tensor) -> Tensor:
    """Noise in the shape of another tensor."""
    return torch.randn_like(x) if "Normal" in node.operator else torch.rand_like(x)


_NEVER_BESIDE = frozenset(
    {
        *("MatMul", "Gemm", "Einsum", "FusedMatMul", "Conv", "ConvTranspose", "Attention"),
        *("LSTM", "GRU", "RNN", "Pad", "OneHot", "Resize", "Upsample"),
    }
)
"""Products, which must be counted, and what makes much of few numbers."""


def made_elements(node: Node, operands: list[Any]) -> int:
    """How many elements an operator would make, at most, of operands whose values are known."""
    try:
        return _made_elements(node, operands)
    # Of values that no size has the operator itself will say what is wrong.
    except (ArithmeticError, ValueError, TypeError):
        return 2**62


def _made_elements(node: Node, operands: list[Any]) -> int:
    given = [each for each in operands if each is not None]
    sizes = [each.numel() for each in given]
    match node.operator:
        case _ if node.operator in _NEVER_BESIDE:
            return 2**62
        case "ConstantOfShape" if given:
            return math.prod(int(each) for each in numbers(given[0]))
        case "Expand" | "Tile" if len(given) == 2:
            return math.prod(int(each) for each in numbers(given[1])) * sizes[0]
        case "Range" if len(given) == 3 and all(sizes):
            first, last, step = (numbers(each)[0] for each in given)
            return math.ceil(abs((last - first) / step)) if step else 0
        case "Concat":
            return sum(sizes)
        case _ if math.prod(sizes) <= 2**24:
            return math.prod(sizes)
        case _:
            return _joined_elements(given)


def _joined_elements(operands: list[Any]) -> int:
    try:
        return math.prod(torch.broadcast_shapes(*(each.shape for each in operands)))
    except RuntimeError:
        return 2**62
