"""ONNX operators between floats and codes; products of codes are those of whole numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import OtherwiseError, operator
from roofline.workload.models.files.onnx_tensors import DTYPES


@operator("DequantizeLinear")
def dequantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Codes as floats: their distance from the zero point, times the scale."""
    shape = _along(x, scale, node.get("axis", 1))
    codes = x.to(scale.dtype)
    if zero is not None:
        codes = codes - zero.to(scale.dtype).reshape(shape)
    return codes * scale.reshape(shape)


@operator("QuantizeLinear")
def quantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Floats as codes: over the scale, rounded, moved by the zero point, and held in its range."""
    shape = _along(x, scale, node.get("axis", 1))
    kind = zero.dtype if zero is not None else DTYPES.get(node.get("output_dtype", 2))
    if kind is None or kind.is_floating_point:
        raise OtherwiseError("codes that are no whole numbers of torch")
    codes = torch.round(x / scale.reshape(shape))
    if zero is not None:
        codes = codes + zero.to(codes.dtype).reshape(shape)
    limits = torch.iinfo(kind)
    return torch.clamp(codes, limits.min, limits.max).to(kind)


def _along(x: Tensor, scale: Tensor, axis: int) -> tuple[int, ...]:
    """The shape that a scale a channel has beside the tensor."""
    if scale.numel() == 1:
        return ()
    if scale.dim() != 1:
        raise OtherwiseError("quantisation in blocks")
    axis %= x.dim()
    return tuple(scale.numel() if each == axis else 1 for each in range(x.dim()))
