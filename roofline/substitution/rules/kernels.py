"""Kernels and biases that rules make of others: what they are, and how torch makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roofline.substitution.graphs.graph import Node
from roofline.substitution.graphs.weights import TensorType, Weight, contiguous


def concatenated(weights: Sequence[Weight]) -> Weight:
    """Weights one behind the other along the first dimension: outputs of operators side by side."""
    first = weights[0].type
    shape = (sum(each.type.shape[0] for each in weights), *first.shape[1:])
    return _made("concatenated", weights, _type_like(weights, shape))


def zeros(size: int, dtype: str) -> Weight:
    """The bias of an operator that has none."""
    return _made("zeros", (), contiguous((size,), dtype), size=size)


def enlarged(kernel: Weight, size: tuple[int, ...]) -> Weight:
    """A kernel with zeros around it, as many before as behind; itself where it has that size."""
    if kernel.type.shape[2:] == size:
        return kernel
    shape = (*kernel.type.shape[:2], *size)
    return _made("enlarged", (kernel,), _type_like((kernel,), shape), size=size)


def summed(weights: Sequence[Weight]) -> Weight:
    """The sum of weights of one size; itself where it is one."""
    if len(weights) == 1:
        return weights[0]
    return _made("summed", weights, _type_like(weights, weights[0].type.shape))


def identity_kernel(channels: int, groups: int, size: tuple[int, ...], dtype: str) -> Weight:
    """The kernel of a convolution that gives what it takes; sizes are odd."""
    shape = (channels, channels // groups, *size)
    return _made(
        "identity_kernel", (), contiguous(shape, dtype), channels=channels, groups=groups, size=size
    )


def normed(kernel: Weight, bias: Weight | None, norm: Node) -> tuple[Weight, Weight]:
    """The kernel and bias that do a batch norm, too; outputs are the kernel's first dimension.

    Args:
        kernel: of a convolution or linear.
        bias: of the same; None: it has none.
        norm: an ``aten.batch_norm`` with running statistics, in evaluation.
    """
    scale, shift, variance = norm["weight"], norm["bias"], norm["running_var"]
    of_kernel = [each for each in (kernel, variance, scale) if each is not None]
    of_bias = [
        each for each in (norm["running_mean"], variance, bias, scale, shift) if each is not None
    ]
    given: dict[str, object] = {"eps": float(norm["eps"]), "has_scale": scale is not None}
    bias_type = contiguous(kernel.type.shape[:1], kernel.type.dtype)
    return (
        _made("normed_kernel", of_kernel, _type_like((kernel,), kernel.type.shape), **given),
        _made(
            "normed_bias",
            of_bias,
            bias_type,
            **given,
            has_bias=bias is not None,
            has_shift=shift is not None,
        ),
    )


def _made(by: str, of: Sequence[Weight], to: TensorType, **options: object) -> Weight:
    return Weight(type=to, made_by=by, of=tuple(of), options=tuple(options.items()))


def _type_like(weights: Sequence[Weight], shape: tuple[int, ...]) -> TensorType:
    """Channels last where one of the weights is; else contiguous."""
    dtype = weights[0].type.dtype
    if not any(_is_channels_last(each.type) for each in weights):
        return contiguous(shape, dtype)
    outputs, channels, *size = shape
    last = contiguous((outputs, *size, channels), dtype).stride
    return TensorType(shape=shape, stride=(last[0], last[-1], *last[1:-1]), dtype=dtype)


def _is_channels_last(found: TensorType) -> bool:
    channels_and_size = found.shape[1:]
    if len(channels_and_size) < 3 or found.stride == contiguous(found.shape, found.dtype).stride:
        return False
    return found.stride[1] == 1 and found.stride[-1] == found.shape[1]


def _concatenated(*tensors: Tensor) -> Tensor:
    return torch.cat(tensors)


def _zeros(*, size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.float64)


def _enlarged(kernel: Tensor, *, size: tuple[int, ...]) -> Tensor:
    padding: list[int] = []
    for old, new in zip(reversed(kernel.shape[2:]), reversed(size), strict=True):
        padding += [(new - old) // 2] * 2
    return torch.nn.functional.pad(kernel, padding)


def _summed(*tensors: Tensor) -> Tensor:
    return torch.stack(tensors).sum(0)


def _identity_kernel(*, channels: int, groups: int, size: tuple[int, ...]) -> Tensor:
    kernel = torch.zeros(channels, channels // groups, *size, dtype=torch.float64)
    centre = tuple(each // 2 for each in size)
    for channel in range(channels):
        kernel[(channel, channel % (channels // groups), *centre)] = 1
    return kernel


def _normed_kernel(
    kernel: Tensor, variance: Tensor, *scale: Tensor, eps: float, has_scale: bool
) -> Tensor:
    factor = torch.rsqrt(variance + eps)
    if has_scale:
        factor = factor * scale[0]
    return kernel * factor.reshape(-1, *[1] * (kernel.dim() - 1))


def _normed_bias(
    mean: Tensor,
    variance: Tensor,
    *others: Tensor,
    eps: float,
    has_bias: bool,
    has_scale: bool,
    has_shift: bool,
) -> Tensor:
    rest = iter(others)
    result = (next(rest) if has_bias else 0) - mean
    factor = torch.rsqrt(variance + eps)
    result = result * (factor * next(rest) if has_scale else factor)
    return result + next(rest) if has_shift else result


CONSTRUCTORS: dict[str, Any] = {
    "concatenated": _concatenated,
    "zeros": _zeros,
    "enlarged": _enlarged,
    "summed": _summed,
    "identity_kernel": _identity_kernel,
    "normed_kernel": _normed_kernel,
    "normed_bias": _normed_bias,
}
"""For `Rule.constructors`: those that make the weights above."""
