"""ONNX operators that are products of matrices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import OtherwiseError, operator


@operator("MatMul")
def matrix_product(_node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Of matrices or stacks of them."""
    return torch.matmul(x, y)


@operator("Gemm")
def general_product(node: Node, x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """alpha x y + beta bias, either matrix transposed; torch's linear layer where it is one."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    x = x.t() if node.get("transA", 0) else x
    is_vector = bias is None or (bias.dim() == 1 and bias.shape[0] != 1)
    if node.get("transB", 0) and alpha == 1 and beta == 1 and is_vector:
        return functional.linear(x, y, bias)
    y = y.t() if node.get("transB", 0) else y
    if bias is None:
        return torch.mm(x, y) if alpha == 1 else alpha * torch.mm(x, y)
    return torch.addmm(bias, x, y, beta=beta, alpha=alpha)


@operator("com.microsoft.FusedMatMul")
def fused_product(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """alpha x y, either stack of matrices transposed."""
    x = x.transpose(-1, -2) if node.get("transA", 0) else x
    y = y.transpose(-1, -2) if node.get("transB", 0) else y
    alpha = node.get("alpha", 1.0)
    return torch.matmul(x, y) if alpha == 1 else alpha * torch.matmul(x, y)


@operator("Einsum")
def einsum(node: Node, *operands: Tensor) -> Tensor:
    """As its equation says."""
    return torch.einsum(node["equation"], *operands)


@operator("Attention")
def attention(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Softmax of scaled products of queries and keys, times values."""
    if node.get("softcap", 0.0) or len([each for each in node.outputs if each]) > 3:
        raise OtherwiseError("attention with a soft cap, or that gives its products")
    if mask is not None and node.get("is_causal", 0):
        raise OtherwiseError("attention that is causal and has a mask")
    is_flat = query.dim() == 3
    if is_flat:
        heads, key_heads = node["q_num_heads"], node["kv_num_heads"]
        query = query.unflatten(-1, (heads, -1)).transpose(1, 2)
        key = key.unflatten(-1, (key_heads, -1)).transpose(1, 2)
        value = value.unflatten(-1, (key_heads, -1)).transpose(1, 2)
    if past_key is not None and past_value is not None:
        key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
    result = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        mask,
        is_causal=bool(node.get("is_causal", 0)),
        scale=node.get("scale"),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    result = result.transpose(1, 2).flatten(2) if is_flat else result
    return (result, key, value) if len(node.outputs) > 1 else result


@operator("Softmax")
def softmax(node: Node, x: Tensor) -> Tensor:
    """Along an axis; before opset 13, along all from that axis on."""
    if node.opset >= 13:
        return torch.softmax(x, node.get("axis", -1))
    axis = node.get("axis", 1) % max(x.dim(), 1)
    if axis == x.dim() - 1:
        return torch.softmax(x, axis)
    return torch.softmax(x.flatten(axis), axis).reshape(x.shape)


@operator("LogSoftmax")
def log_softmax(node: Node, x: Tensor) -> Tensor:
    """The logarithm of it."""
    if node.opset >= 13:
        return torch.log_softmax(x, node.get("axis", -1))
    axis = node.get("axis", 1) % max(x.dim(), 1)
    if axis == x.dim() - 1:
        return torch.log_softmax(x, axis)
    return torch.log_softmax(x.flatten(axis), axis).reshape(x.shape)
