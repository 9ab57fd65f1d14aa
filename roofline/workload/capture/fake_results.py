"""Results of fake calls where torch's own fakes say something else than its kernels give.

What they say wrong is the order of elements in memory, or that there is a tensor where there is
none: later operators would copy what needs no copy, or none where one is made. Or they are made by
other operators.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """What the kernel gives in the place of `result`."""
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


def _without_draws(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Sequence[Any]
) -> tuple[Any, ...]:
    """Where nothing is dropped, nobody writes or reads where random numbers began."""
    names = [each.name for each in func._schema.arguments]
    if {**dict(zip(names, args, strict=False)), **kwargs}.get("dropout_p", 0) > 0:
        return tuple(result)
    return tuple(
        each.new_empty(0) if isinstance(each, torch.Tensor) and each.dtype in _OF_DRAWS else each
        for each in result
    )


_OF_DRAWS = (torch.int64, torch.uint64)

_aten = torch.ops.aten
_MENDED: Mapping[Any, Callable[..., Any]] = {
    # Gradients that are not asked for are not made.
    _aten.native_batch_norm_backward.default: _masked,
    # These write their results in order, whatever order they read.
    _aten.native_layer_norm_backward.default: _first_contiguous,
    _aten.mse_loss_backward.default: _contiguous,
    _aten._scaled_dot_product_flash_attention.default: _without_draws,
    _aten._scaled_dot_product_efficient_attention.default: _without_draws,
}


def _padded(t: torch.Tensor, mask: torch.Tensor, mask_check: bool = True) -> torch.Tensor:
    return torch.empty_like(t, memory_format=torch.contiguous_format)


def _in_full(
    self: torch.Tensor, padding: float, output_size: Sequence[int] | None = None
) -> torch.Tensor:
    return torch.empty(output_size or self.shape, dtype=self.dtype, device=self.device)


PADDED: Mapping[Any, Callable[..., Any]] = {
    # Masks that leave a sequence from its start on; others keep torch from dropping padding.
    _aten._nested_tensor_from_mask_left_aligned.default: lambda t, mask: True,
    _aten._nested_tensor_from_mask.default: _padded,
    _aten.to_padded_tensor.default: _in_full,
}
"""What makes nested tensors, and dense ones of them again: dense all the way, padding included."""


@contextlib.contextmanager
def same_calls_as_kernels() -> Iterator[None]:
    """Has functions that take another way for fakes call what they call for real tensors."""
    before = torch.nn.functional.one_hot

    def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        # The number of classes is in the values where it is not given; others raise in torch's.
        kind = tensor.device.type if type(tensor) is FakeTensor and tensor.numel() else ""
        if kind not in ("cpu", "cuda") or tensor.dtype != torch.int64 or num_classes <= 0:
            return before(tensor, num_classes)
        if kind == "cpu":
            # Whether all classes are from 0 to `num_classes`.
            torch.aminmax(tensor)
        zeros = torch.zeros((*tensor.shape, num_classes), dtype=tensor.dtype, device=tensor.device)
        return zeros.scatter_(-1, tensor.unsqueeze(-1), 1)

    torch.nn.functional.one_hot = one_hot
    try:
        yield
    finally:
        torch.nn.functional.one_hot = before
