"""ONNX operators that normalise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import OtherwiseError, operator


@operator("BatchNormalization")
def batch_norm(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> tuple[Tensor, ...]:
    """By the statistics that were learned."""
    if node.get("training_mode", 0):
        raise OtherwiseError("a batch norm in training mode; export the model in eval mode")
    return (
        functional.batch_norm(
            x, mean, variance, scale, bias, training=False, eps=node.get("epsilon", 1e-5)
        ),
    )


@operator("InstanceNormalization")
def instance_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Each channel of each sample by its own statistics."""
    return functional.instance_norm(x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_norm(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    """All from an axis on; also its mean and inverse deviation, where the node gives them."""
    axis = node.get("axis", -1) % x.dim()
    shape = tuple(x.shape[axis:])
    epsilon = node.get("epsilon", 1e-5)
    if scale.shape != shape:
        scale = scale.expand(shape)
        bias = bias.expand(shape) if bias is not None else None
    if len([each for each in node.outputs if each]) == 1:
        return (functional.layer_norm(x, shape, scale, bias, epsilon),)
    return tuple(torch.native_layer_norm(x, shape, scale, bias, epsilon))


@operator("SkipLayerNormalization", "com.microsoft.SkipLayerNormalization")
def skip_layer_norm(
    node: Node,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    before: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """A layer norm of a sum."""
    total = x + skip if before is None else x + skip + before
    result = functional.layer_norm(total, (x.shape[-1],), scale, bias, node.get("epsilon", 1e-5))
    return result, total, total, total


@operator("GroupNormalization")
def group_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Groups of channels; before opset 21, with one scale a group."""
    groups = node["num_groups"]
    if scale.shape[0] != x.shape[1]:
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return functional.group_norm(x, groups, scale, bias, node.get("epsilon", 1e-5))


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    """By the root of the mean square, from an axis on."""
    axis = node.get("axis", -1) % x.dim()
    return functional.rms_norm(x, tuple(x.shape[axis:]), scale, node.get("epsilon", 1e-5))


@operator("LpNormalization")
def lp_norm(node: Node, x: Tensor) -> Tensor:
    """By a norm along an axis."""
    return functional.normalize(x, float(node.get("p", 2)), node.get("axis", -1))


@operator("LRN")
def local_response_norm(node: Node, x: Tensor) -> Tensor:
    """By what is near among the channels."""
    return functional.local_response_norm(
        x,
        node["size"],
        node.get("alpha", 1e-4),
        node.get("beta", 0.75),
        node.get("bias", 1.0),
    )
