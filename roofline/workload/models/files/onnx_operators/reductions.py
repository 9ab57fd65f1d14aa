"""ONNX operators that reduce tensors along axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from roofline.workload.models.files.onnx_graph import Node
from roofline.workload.models.files.onnx_operators.registry import axes_of, numbers, operator


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((each % x.dim() for each in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


_KINDS: Mapping[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceMean": lambda x, axes, keep: torch.mean(x, axes, keepdim=keep),
    "ReduceSum": lambda x, axes, keep: torch.sum(x, axes, keepdim=keep, dtype=x.dtype),
    "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: torch.sum(torch.abs(x), axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keepdim=keep),
    "ReduceSumSquare": lambda x, axes, keep: torch.sum(x * x, axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: torch.log(torch.sum(x, axes, keepdim=keep)),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
}


def _reduced(
    kind: Callable[[Tensor, list[int], bool], Tensor],
    node: Node,
    x: Tensor,
    axes: Tensor | None = None,
) -> Tensor:
    along = axes_of(node, axes)
    if not along:
        if node.get("noop_with_empty_axes", 0):
            return x
        along = list(range(x.dim()))
    return kind(x, along, bool(node.get("keepdims", 1)))


def _register() -> None:
    for name, kind in _KINDS.items():
        operator(name)(functools.partial(_reduced, kind))


_register()


@operator("ArgMax")
def arg_max(node: Node, x: Tensor) -> Tensor:
    """Where the largest is."""
    return torch.argmax(x, node.get("axis", 0), keepdim=bool(node.get("keepdims", 1)))


@operator("ArgMin")
def arg_min(node: Node, x: Tensor) -> Tensor:
    """Where the smallest is."""
    return torch.argmin(x, node.get("axis", 0), keepdim=bool(node.get("keepdims", 1)))


@operator("TopK")
def top_k(node: Node, x: Tensor, count: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The largest or smallest, and where they are."""
    found = torch.topk(
        x,
        int(numbers(count)[0]) if count is not None else node["k"],
        dim=node.get("axis", -1),
        largest=bool(node.get("largest", 1)),
        sorted=bool(node.get("sorted", 1)),
    )
    return found.values, found.indices
