"""Results of fake calls where torch's own fakes say something else than its CPU kernels give.

What they say wrong is the order of elements in memory, or that there is a tensor where there is
none: later operators would copy what needs no copy, or none where one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def view_of(mode: FakeTensorMode, func: Any, args: tuple[Any, ...]) -> FakeTensor | None:
    """The view that `func` gives, with the strides that the kernel gives it; None: it is no view.

    Fakes take other strides where a dimension has size 1.
    """
    if func not in _VIEWS or type(args[0]) is not FakeTensor or not args[0].numel():
        return None
    try:
        with in_kernel_invocation_manager(mode):
            plain = torch.ops.aten.view.default(args[0], args[1])
    except RuntimeError:
        # The fake call says what is wrong in the words that users know.
        return None
    return FakeTensor(mode, plain, args[0].fake_device)


def mended(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Any:
    """What the CPU's kernel gives in the place of `result`."""
    mend = _MENDED.get(func)
    return mend(func, args, kwargs, result) if mend else result


def _contiguous(_func: Any, _args: Any, _kwargs: Any, result: torch.Tensor) -> torch.Tensor:
    if result.is_contiguous():
        return result
    return torch.empty(result.shape, dtype=result.dtype, device=result.device)


def _first_contiguous(func: Any, args: Any, kwargs: Any, result: Sequence[Any]) -> tuple[Any, ...]:
    first, *others = result
    if first is not None:
        first = _contiguous(func, args, kwargs, first)
    return (first, *others)


def _masked(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Sequence[Any]
) -> tuple[Any, ...]:
    names = [each.name for each in func._schema.arguments]
    mask = {**dict(zip(names, args, strict=False)), **kwargs}["output_mask"]
    return tuple(each if is_asked else None for each, is_asked in zip(result, mask, strict=True))


_aten = torch.ops.aten
_MENDED: Mapping[Any, Callable[..., Any]] = {
    # Gradients that are not asked for are not made.
    _aten.native_batch_norm_backward.default: _masked,
    # These write their results in order, whatever order they read.
    _aten.native_layer_norm_backward.default: _first_contiguous,
    _aten.mse_loss_backward.default: _contiguous,
}
