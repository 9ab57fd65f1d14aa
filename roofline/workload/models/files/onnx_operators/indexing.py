"""ONNX operators that read and write at places."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import (
    OtherwiseError,
    numbers,
    numbers_or_none,
    operator,
)


@operator("Gather")
def gather(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    """Slices along an axis: rows of a table as torch's embedding reads them."""
    axis = node.get("axis", 0) % max(x.dim(), 1)
    known = numbers_or_none(indices) if indices.numel() <= _FEW else None
    if known is not None and not indices.dim():
        return x.select(axis, int(known[0]))
    if known is not None and min(known, default=0) < 0:
        indices = torch.tensor([each % x.shape[axis] for each in known]).reshape(indices.shape)
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return functional.embedding(indices, x)
    chosen = torch.index_select(x, axis, indices.reshape(-1))
    return chosen.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


_FEW = 4096


@operator("GatherElements")
def gather_elements(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    """An element for every index."""
    return torch.gather(x, node.get("axis", 0), indices.to(torch.int64))


@operator("GatherND")
def gather_nd(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    """Slices at places of several indices each."""
    if node.get("batch_dims", 0):
        raise OtherwiseError("GatherND in batches")
    return x[tuple(indices.unbind(-1))]


@operator("ScatterElements", "Scatter")
def scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Elements put at places, or reduced with what is there."""
    axis, how = node.get("axis", 0), node.get("reduction", "none")
    indices = indices.to(torch.int64)
    if how == "none":
        return torch.scatter(x, axis, indices, updates)
    name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[how]
    return torch.scatter_reduce(x, axis, indices, updates, name)


@operator("ScatterND")
def scatter_nd(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Slices put at places of several indices each."""
    how = node.get("reduction", "none")
    if how not in ("none", "add"):
        raise OtherwiseError(f"ScatterND that reduces by {how}")
    places = tuple(indices.unbind(-1))
    return torch.index_put(x, places, updates, accumulate=how == "add")


@operator("OneHot")
def one_hot(node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """Ones, or other values, at the places of indices."""
    classes = int(numbers(depth)[0])
    hot = functional.one_hot(indices.to(torch.int64) % classes, classes)
    off, on = numbers(values)
    result = torch.where(hot > 0, on, off).to(values.dtype)
    return result.movedim(-1, node.get("axis", -1))


@operator("NonZero")
def non_zero(_node: Node, x: Tensor) -> Tensor:
    """Where something is, which depends on values."""
    return torch.nonzero(x).t()
