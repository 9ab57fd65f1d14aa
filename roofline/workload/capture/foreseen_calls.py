"""What some calls on fake tensors return, said without asking torch.

Torch takes these operators apart into a dozen others on fakes, 10 to 30 ms for every new shape: a
third of the time that networks took. What they give follows from their operands' shapes, where
those lie in memory in order, or channels last where a normalization keeps that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""The shape, strides and type of a new tensor, which begins where its storage does."""

_TYPES = (torch.float32, torch.float64)

_HALF = (torch.float16, torch.bfloat16)
"""Types that normalizations take with weights in float32 (autocast), too."""


def strides_in_order(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor of `shape` whose elements lie one after the other."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def foreseen(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device
) -> tuple[Form, ...] | None:
    """Forms of what a valid call on fakes of `device` gives; None: torch is to say it."""
    say = _SAID.get(func)
    if say is None or kwargs or not args:
        return None
    if not args[0].numel():
        return None
    return say(args, device)


def _is_in_order(tensor: torch.Tensor) -> bool:
    return tensor.stride() == strides_in_order(tensor.shape)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in order and is of a type that nothing is cast from."""
    return tensor.dtype in _TYPES and _is_in_order(tensor)


def _like_first(args: Sequence[Any], _device: torch.device) -> tuple[Form, ...] | None:
    return (_form(args[0]),) if len(args) == 1 and _is_plain(args[0]) else None


def _rolled(args: Sequence[Any], _device: torch.device) -> tuple[Form, ...] | None:
    if len(args) != 3 or not args[2] or len(args[1]) != len(args[2]) or not _is_plain(args[0]):
        return None
    dimensions = args[0].dim()
    if not all(-dimensions <= each < dimensions for each in args[2]):
        return None
    return (_form(args[0]),)


def _batch_norm(args: Sequence[Any], device: torch.device) -> tuple[Form, ...] | None:
    if len(args) != 8 or args[0].dim() < 2:
        return None
    x, weight, bias, mean, variance, is_training = args[:6]
    # Where a size is 1, several strides say the same.
    is_channels_last = min(x.shape) > 1 and x.is_contiguous(memory_format=torch.channels_last)
    if not is_channels_last and not _is_in_order(x):
        return None
    channels = x.shape[1]
    if not _are_for((weight, bias, mean, variance), (channels,), x.dtype):
        return None
    if is_training:
        # A single value a channel has no variance.
        if x.numel() == channels:
            return None
    elif mean is None or variance is None:
        return None
    kept = (channels,) if is_training or device.type != "cpu" else (0,)
    kept_type = torch.float32 if x.dtype in _HALF and device.type != "cpu" else x.dtype
    return (_form(x), (kept, (1,), kept_type), (kept, (1,), kept_type))


def _layer_norm(args: Sequence[Any], device: torch.device) -> tuple[Form, ...] | None:
    if len(args) != 5:
        return None
    x, shape, weight, bias = args[0], tuple(args[1]), args[2], args[3]
    if not shape or tuple(x.shape[-len(shape) :]) != shape or not _is_in_order(x):
        return None
    if not _are_for((weight, bias), shape, x.dtype):
        return None
    kept = (*x.shape[: -len(shape)], *(1 for _ in shape))
    kept_type = torch.float32 if x.dtype in _HALF and device.type != "cpu" else x.dtype
    form = (kept, strides_in_order(kept), kept_type)
    return (_form(x), form, form)


def _are_for(tensors: Sequence[Any], shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether these are weights for what is of `dtype`."""
    kinds = {torch.float32, dtype} if dtype in _HALF else {dtype} & set(_TYPES)
    given = [each for each in tensors if each is not None]
    return dtype in (*_TYPES, *_HALF) and all(
        tuple(each.shape) == shape and each.dtype in kinds for each in given
    )


def _form(tensor: torch.Tensor) -> Form:
    return (tuple(tensor.shape), tensor.stride(), tensor.dtype)


_aten = torch.ops.aten
_SAID: Mapping[Any, Callable[[Sequence[Any], torch.device], tuple[Form, ...] | None]] = {
    _aten.native_batch_norm.default: _batch_norm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.roll.default: _rolled,
    _aten.hardswish.default: _like_first,
    _aten.hardsigmoid.default: _like_first,
}
