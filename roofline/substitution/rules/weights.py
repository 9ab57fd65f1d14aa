"""Weights derived by rules: descriptions, and their construction with torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from roofline.substitution.graphs.graph import Node, TensorType, Weight, contiguous


def concatenate(weights: Sequence[Weight]) -> Weight:
    """Return weights concatenated along the first dimension; a single one unchanged."""
    shape = (sum(each.type.shape[0] for each in weights), *weights[0].type.shape[1:])
    return weights[0] if len(weights) == 1 else _derive_like("concatenated", weights, shape)


def concatenate_columns(weights: Sequence[Weight]) -> Weight:
    """Return weights concatenated along the last dimension; a single one unchanged."""
    if len(weights) == 1:
        return weights[0]
    shape = (*weights[0].type.shape[:-1], sum(each.type.shape[-1] for each in weights))
    return _derive("side_by_side", weights, contiguous(shape, weights[0].type.dtype))


def transpose(weight: Weight) -> Weight:
    shape = tuple(reversed(weight.type.shape))
    return _derive("transposed_matrix", (weight,), contiguous(shape, weight.type.dtype))


def zeros(size: int, dtype: str) -> Weight:
    return _derive("zeros", (), contiguous((size,), dtype), size=size)


def concatenate_biases(
    found: Sequence[Weight | None], sizes: Sequence[int], dtype: str
) -> Weight | None:
    """Return concatenated biases, with zeros for missing ones; None: all are missing."""
    if all(each is None for each in found):
        return None
    pairs = zip(found, sizes, strict=True)
    return concatenate([zeros(size, dtype) if each is None else each for each, size in pairs])


def enlarge(kernel: Weight, size: tuple[int, ...]) -> Weight:
    """Return a kernel padded symmetrically with zeros to a size."""
    if kernel.type.shape[2:] == size:
        return kernel
    return _derive_like("enlarged", (kernel,), (*kernel.type.shape[:2], *size), size=size)


def add_weights(weights: Sequence[Weight]) -> Weight:
    """Return the sum of weights of one size; a single one unchanged."""
    if len(weights) == 1:
        return weights[0]
    return _derive_like("summed", weights, weights[0].type.shape)


def identity_kernel(channels: int, groups: int, size: tuple[int, ...], dtype: str) -> Weight:
    """Return the kernel of an identity convolution of odd size."""
    to = contiguous((channels, channels // groups, *size), dtype)
    return _derive("identity_kernel", (), to, channels=channels, groups=groups, size=size)


def fold_norm(kernel: Weight, bias: Weight | None, norm: Node) -> tuple[Weight, Weight]:
    """Return kernel and bias with a batch norm folded in; output channels are dimension 0."""
    mean, variance = norm["running_mean"], norm["running_var"]
    scale, shift = norm["weight"], norm["bias"]
    of_kernel = [each for each in (kernel, variance, scale) if each is not None]
    of_bias = [each for each in (mean, variance, bias, scale, shift) if each is not None]
    given: dict[str, object] = {"eps": float(norm["eps"]), "has_scale": scale is not None}
    there = {"has_bias": bias is not None, "has_shift": shift is not None}
    bias_type = contiguous(kernel.type.shape[:1], kernel.type.dtype)
    return (
        _derive_like("normed_kernel", of_kernel, kernel.type.shape, like=(kernel,), **given),
        _derive("normed_bias", of_bias, bias_type, **given, **there),
    )


def in_channels_last(kernel: Weight, to: TensorType) -> Weight:
    return _derive("channels_last", (kernel,), to)


def _derive(by: str, of: Sequence[Weight], to: TensorType, **options: object) -> Weight:
    return Weight(type=to, made_by=by, of=tuple(of), options=tuple(options.items()))


def _derive_like(
    by: str,
    of: Sequence[Weight],
    shape: tuple[int, ...],
    like: Sequence[Weight] = (),
    **options: object,
) -> Weight:
    """Return a derived weight; channels-last if a source (or one of `like`) is, else dense."""
    known = [each.type for each in like or of]
    to = contiguous(shape, known[0].dtype)
    if any(map(_is_channels_last, known)):
        outputs, channels, *size = shape
        last = contiguous((outputs, *size, channels), to.dtype).stride
        to = TensorType(shape=shape, stride=(last[0], last[-1], *last[1:-1]), dtype=to.dtype)
    return _derive(by, of, to, **options)


def _is_channels_last(found: TensorType) -> bool:
    if len(found.shape) < 4 or found.is_contiguous:
        return False
    return found.stride[1] == 1 and found.stride[-1] == found.shape[1]


# -- constructors ----------------------------------------------------------------------------------


def _enlarged(kernel: Tensor, *, size: tuple[int, ...]) -> Tensor:
    padding: list[int] = []
    for old, new in zip(reversed(kernel.shape[2:]), reversed(size), strict=True):
        padding += [(new - old) // 2] * 2
    return torch.nn.functional.pad(kernel, padding)


def _identity_kernel(*, channels: int, groups: int, size: tuple[int, ...]) -> Tensor:
    kernel = torch.zeros(channels, channels // groups, *size, dtype=torch.float64)
    center = tuple(each // 2 for each in size)
    for channel in range(channels):
        kernel[(channel, channel % (channels // groups), *center)] = 1
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


CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "concatenated": lambda *tensors: torch.cat(tensors),
    "side_by_side": lambda *matrices: torch.cat(matrices, dim=-1),
    "transposed_matrix": lambda matrix: matrix.t(),
    "zeros": lambda *, size: torch.zeros(size, dtype=torch.float64),
    "enlarged": _enlarged,
    "summed": lambda *tensors: torch.stack(tensors).sum(0),
    "identity_kernel": _identity_kernel,
    "normed_kernel": _normed_kernel,
    "normed_bias": _normed_bias,
    "channels_last": lambda kernel: kernel,
}
"""Constructors of the weights above, for `Rule.constructors`."""
