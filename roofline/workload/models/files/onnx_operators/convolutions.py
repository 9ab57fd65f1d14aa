"""ONNX's convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import OtherwiseError, operator


def padding_of(node: Node, x: Tensor, kernel: Sequence[int]) -> tuple[list[int], list[int] | None]:
    """The padding at both ends of every dimension, and what must be padded before, if ends differ.

    The second is as `torch.nn.functional.pad` takes it.
    """
    dimensions = len(kernel)
    begins, ends = _pads(node, x, kernel)
    if begins == ends:
        return begins, None
    before: list[int] = []
    for begin, end in zip(reversed(begins), reversed(ends), strict=True):
        before += [begin, end]
    return [0] * dimensions, before


def _pads(node: Node, x: Tensor, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    dimensions = len(kernel)
    how = node.get("auto_pad", "NOTSET")
    if how in ("NOTSET", ""):
        pads = list(node.get("pads") or [0] * 2 * dimensions)
        return pads[:dimensions], pads[dimensions:]
    if how == "VALID":
        return [0] * dimensions, [0] * dimensions
    strides = node.get("strides") or [1] * dimensions
    dilations = node.get("dilations") or [1] * dimensions
    begins: list[int] = []
    ends: list[int] = []
    for size, each, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        results = -(-size // stride)
        total = max(0, (results - 1) * stride + dilation * (each - 1) + 1 - size)
        low, high = total // 2, total - total // 2
        begins.append(low if how == "SAME_UPPER" else high)
        ends.append(high if how == "SAME_UPPER" else low)
    return begins, ends


@operator("Conv")
def convolution(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """In any number of dimensions, with any padding."""
    dimensions = weight.dim() - 2
    padding, before = padding_of(node, x, weight.shape[2:])
    if before is not None:
        x = functional.pad(x, before)
    return torch.convolution(
        x,
        weight,
        bias,
        list(node.get("strides") or [1] * dimensions),
        padding,
        list(node.get("dilations") or [1] * dimensions),
        False,
        [0] * dimensions,
        node.get("group", 1),
    )


@operator("ConvTranspose")
def transposed_convolution(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The same backwards; ends that are padded more are cut off the result."""
    dimensions = weight.dim() - 2
    if node.get("output_shape") or node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", ""):
        raise OtherwiseError("a transposed convolution that is told the shape of its result")
    pads = list(node.get("pads") or [0] * 2 * dimensions)
    begins, ends = pads[:dimensions], pads[dimensions:]
    least = [min(pair) for pair in zip(begins, ends, strict=True)]
    result = torch.convolution(
        x,
        weight,
        bias,
        list(node.get("strides") or [1] * dimensions),
        least,
        list(node.get("dilations") or [1] * dimensions),
        True,
        list(node.get("output_padding") or [0] * dimensions),
        node.get("group", 1),
    )
    for axis in range(dimensions):
        low, high = begins[axis] - least[axis], ends[axis] - least[axis]
        if low or high:
            result = result.narrow(axis + 2, low, result.shape[axis + 2] - low - high)
    return result
