"""Cache of calls on fake tensors: the same call gives the same shapes again.

`FakeTensorMode` runs the meta kernel of an operator, and caches results under a key of thirty
fields per tensor. This cache covers simple calls with a short key: aten operators on plain strided
tensors that return new tensors, a view of one operand, or their first operand, changed in place.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._prims_common import make_contiguous_strides_for
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

# On fake tensors torch decomposes these operators into a dozen others, 10 to 30 ms for each new
# shape: a third of the capture time of networks. Their results follow from the operands' shapes if
# these are contiguous, or channels last for normalizations that keep the layout.

Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, strides and type of a new tensor without storage offset."""

_TYPES = (torch.float32, torch.float64)

_HALF = (torch.float16, torch.bfloat16)
"""Types that normalizations accept with float32 weights too (autocast)."""


def infer_results(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device
) -> tuple[Form, ...] | None:
    """Return the results' forms of a valid call on fakes of `device`; None if torch must run it."""
    infer = _INFERENCE.get(func)
    if infer is None or kwargs or not args:
        return None
    if not args[0].numel():
        return None
    return infer(args, device)


def _is_in_order(tensor: torch.Tensor) -> bool:
    return tensor.stride() == make_contiguous_strides_for(tensor.shape)


def _form_of(tensor: torch.Tensor) -> Form:
    return (tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _like_first(args: Sequence[Any], _device: torch.device) -> tuple[Form, ...] | None:
    """Return the form of the first operand, if it is contiguous and never cast."""
    is_plain = args[0].dtype in _TYPES and _is_in_order(args[0])
    return (_form_of(args[0]),) if is_plain and len(args) == 1 else None


def _roll(args: Sequence[Any], device: torch.device) -> tuple[Form, ...] | None:
    if len(args) != 3 or not args[2] or len(args[1]) != len(args[2]):
        return None
    dimensions = args[0].dim()
    are_valid = all(-dimensions <= each < dimensions for each in args[2])
    return _like_first(args[:1], device) if are_valid else None


def _batch_norm(args: Sequence[Any], device: torch.device) -> tuple[Form, ...] | None:
    if len(args) != 8 or args[0].dim() < 2:
        return None
    x, weight, bias, mean, variance, is_training = args[:6]
    # With a size of 1, strides are ambiguous.
    is_channels_last = min(x.shape) > 1 and x.is_contiguous(memory_format=torch.channels_last)
    if not is_channels_last and not _is_in_order(x):
        return None
    channels = x.shape[1]
    if not _are_valid_weights((weight, bias, mean, variance), (channels,), x.dtype):
        return None
    if is_training:
        # A single value per channel has no variance.
        if x.numel() == channels:
            return None
    elif mean is None or variance is None:
        return None
    kept = (channels,) if is_training or device.type != "cpu" else (0,)
    kept_type = torch.float32 if x.dtype in _HALF and device.type != "cpu" else x.dtype
    return (_form_of(x), (kept, (1,), kept_type), (kept, (1,), kept_type))


def _layer_norm(args: Sequence[Any], device: torch.device) -> tuple[Form, ...] | None:
    if len(args) != 5:
        return None
    x, shape, weight, bias = args[0], tuple(args[1]), args[2], args[3]
    if not shape or tuple(x.shape[-len(shape) :]) != shape or not _is_in_order(x):
        return None
    if not _are_valid_weights((weight, bias), shape, x.dtype):
        return None
    kept = (*x.shape[: -len(shape)], *(1 for _ in shape))
    kept_type = torch.float32 if x.dtype in _HALF and device.type != "cpu" else x.dtype
    form = (kept, make_contiguous_strides_for(kept), kept_type)
    return (_form_of(x), form, form)


def _are_valid_weights(tensors: Sequence[Any], shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Return whether `tensors` are valid weights for an operand of `dtype`."""
    kinds = {torch.float32, dtype} if dtype in _HALF else {dtype} & set(_TYPES)
    given = [each for each in tensors if each is not None]
    return dtype in (*_TYPES, *_HALF) and all(
        tuple(each.shape) == shape and each.dtype in kinds for each in given
    )


_aten = torch.ops.aten
_INFERENCE: Mapping[Any, Callable[[Sequence[Any], torch.device], tuple[Form, ...] | None]] = {
    _aten.native_batch_norm.default: _batch_norm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.roll.default: _roll,
    _aten.hardswish.default: _like_first,
    _aten.hardsigmoid.default: _like_first,
}


_VALUES = (bool, int, float, str, torch.dtype, torch.layout, torch.device, torch.memory_format)
"""Arguments that are distinguished by type and value."""

_MAX_CALLS = 20_000
"""Limit of cached calls, about 50 MB; a large model has a thousand different ones."""


class _UncacheableError(Exception):
    """An operand or argument that the cache does not cover."""


@dataclass(frozen=True, slots=True)
class _CachedTensor:
    """A result tensor; ``base`` is the position of the operand that it views (None: new)."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    base: int | None


@dataclass(frozen=True, slots=True)
class _CachedResult:
    """Results ``made`` in a container of type ``kind``; None: the call's first operand."""

    made: tuple[_CachedTensor, ...]
    kind: type | None


_results: dict[tuple[Any, ...], _CachedResult] = {}

_UNKNOWABLE = (
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
)


@functools.cache
def _is_simple(func: Any) -> bool:
    """Return whether an operator writes nothing, or only its first operand, which it returns."""
    if func.namespace != "aten" or any(tag in func.tags for tag in _UNKNOWABLE):
        return False
    schema = func._schema
    written = [
        position
        for position, each in enumerate(schema.arguments)
        if each.alias_info is not None and each.alias_info.is_write
    ]
    returns = schema.returns
    if written:
        returned = len(returns) == 1 and returns[0].alias_info is not None
        return written == [0] and returned and func._opname.endswith("_")
    return bool(returns) and all(str(each.type) == "Tensor" for each in returns)


class CallCache:
    """Calls on fake tensors of one mode and device; calls with others are not cached."""

    def __init__(self, mode: FakeTensorMode, device: torch.device) -> None:
        self._mode = mode
        self._device = device

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of `func` for fake `args` and `kwargs`, as the mode computes it."""
        if not _is_simple(func):
            return func(*args, **kwargs)
        try:
            key = self._key(func, args, kwargs)
        except _UncacheableError:
            return func(*args, **kwargs)
        known = _results.get(key)
        if known is None and (forms := infer_results(func, args, kwargs, self._device)):
            made = tuple(
                _CachedTensor(shape, stride, 0, kind, None) for shape, stride, kind in forms
            )
            known = _CachedResult(made, torch.Tensor if len(func._schema.returns) == 1 else tuple)
            _remember(key, known)
        if known is None:
            result = func(*args, **kwargs)
            with contextlib.suppress(_UncacheableError):
                if (known := self._seen(key, result, args)) is not None:
                    _remember(key, known)
            return result
        if known.kind is None:
            return args[0]
        with in_kernel_invocation_manager(self._mode):
            if known.kind is torch.Tensor:
                return self._again(known.made[0], args)
            return known.kind(self._again(each, args) for each in known.made)

    def _again(self, made: _CachedTensor, args: Sequence[Any]) -> FakeTensor:
        if made.base is None:
            plain = torch.empty_strided(made.shape, made.stride, dtype=made.dtype, device="meta")
        else:
            plain = args[made.base].as_strided(made.shape, made.stride, made.offset)
        return FakeTensor(self._mode, plain, self._device)

    def _key(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        named = [(name, self._part(value)) for name, value in kwargs.items()] if kwargs else ()
        # The division of integers returns the default type.
        parts = map(self._part, args)
        return (func, torch.get_default_dtype(), self._device, *parts, *named)

    def _part(self, value: Any) -> Any:
        """Return the part of the key for an argument."""
        kind = type(value)
        if kind is FakeTensor:
            return self._form(value)
        if value is None:
            return None
        if kind is list or kind is tuple:
            return (kind, *map(self._part, value))
        if kind in _VALUES:
            return (kind, value)
        raise _UncacheableError

    def _form(self, tensor: FakeTensor) -> tuple[Any, ...]:
        device = tensor.fake_device
        # A constant has known values, which a cached result would lose.
        if (
            tensor.constant is not None
            or tensor.layout is not torch.strided
            or tensor.dtype.is_complex
            or (device is not self._device and device != self._device)
        ):
            raise _UncacheableError
        return (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)

    def _seen(self, key: tuple[Any, ...], result: Any, args: Sequence[Any]) -> _CachedResult | None:
        """Return the cacheable form of a result, or None."""
        storages: set[int] = set()
        if isinstance(result, torch.Tensor) and args and result is args[0]:
            # Only operators that write their first operand may return it.
            is_own = key[0]._schema.is_mutable and self._form(result) == key[3]  # pyright: ignore
            return _CachedResult((), None) if is_own else None
        if isinstance(result, torch.Tensor):
            return _CachedResult((self._made(result, args, storages),), torch.Tensor)
        if type(result) in (tuple, list):
            made = tuple(self._made(each, args, storages) for each in result)
            return _CachedResult(made, type(result))
        return None

    def _made(self, tensor: Any, args: Sequence[Any], seen: set[int]) -> _CachedTensor:
        """Return the cacheable form of `tensor`."""
        if type(tensor) is not FakeTensor:
            raise _UncacheableError
        shape, stride, offset, dtype = self._form(tensor)
        address = tensor.untyped_storage()._cdata
        base = None
        for position, value in enumerate(args):
            for each in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(each, torch.Tensor) and each.untyped_storage()._cdata == address:
                    if each is not value or each is tensor or each.dtype != dtype:
                        raise _UncacheableError
                    base = position if base is None else base
        if base is None:
            length = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
            length = (length + 1 if tensor.numel() else 0) * tensor.element_size()
            if address in seen or offset or tensor.untyped_storage().nbytes() != length:
                raise _UncacheableError
            seen.add(address)
        return _CachedTensor(shape, stride, offset, dtype, base)


def _remember(key: tuple[Any, ...], result: _CachedResult) -> None:
    if len(_results) >= _MAX_CALLS:
        _results.clear()
    _results[key] = result
