"""ONNX operators that pool."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.convolutions import padding_of
from roofline.workload.models.files.onnx_operators.registry import OtherwiseError, operator

_MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


@operator("MaxPool")
def max_pool(node: Node, x: Tensor) -> Tensor | tuple[Tensor, ...]:
    """The largest of each window."""
    kernel = list(node["kernel_shape"])
    if len([each for each in node.outputs if each]) > 1:
        raise OtherwiseError("a max pooling that gives where the largest are")
    padding, before = padding_of(node, x, kernel)
    if before is not None:
        x = functional.pad(x, before, value=-math.inf)
    return _MAX[len(kernel)](
        x,
        kernel,
        list(node.get("strides") or [1] * len(kernel)),
        padding,
        list(node.get("dilations") or [1] * len(kernel)),
        bool(node.get("ceil_mode", 0)),
    )


@operator("AveragePool")
def average_pool(node: Node, x: Tensor) -> Tensor:
    """The mean of each window, with what is padded or without."""
    kernel = list(node["kernel_shape"])
    if any(each != 1 for each in node.get("dilations") or ()):
        raise OtherwiseError("average pooling with gaps")
    padding, before = padding_of(node, x, kernel)
    counts_padding = bool(node.get("count_include_pad", 0))
    if before is not None:
        if not counts_padding:
            raise OtherwiseError("average pooling padded at one end, which is not counted")
        x = functional.pad(x, before)
    return _AVERAGE[len(kernel)](
        x,
        kernel,
        list(node.get("strides") or [1] * len(kernel)),
        padding,
        bool(node.get("ceil_mode", 0)),
        counts_padding or not any(padding),
    )


@operator("GlobalAveragePool")
def global_average_pool(_node: Node, x: Tensor) -> Tensor:
    """The mean of each channel."""
    return torch.mean(x, list(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(_node: Node, x: Tensor) -> Tensor:
    """The largest of each channel."""
    return torch.amax(x, list(range(2, x.dim())), keepdim=True)
