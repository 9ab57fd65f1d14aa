"""Fake tensors in the place of real ones: shapes, strides and types, but no memory behind them."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.utils import _pytree as pytree

from roofline.errors import ModelError
from roofline.run import Run
from roofline.workload.capture import known_calls
from roofline.workload.capture.module_stack import works_for_capture
from roofline.workload.capture.operands import result_of
from roofline.workload.inputs import InputRequest, physical_order
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import torch_dtype

# What they say wrong is the order of elements in memory, or that there is a tensor where there is
# none: later operators would copy what needs no copy, or none where one is made. Or they are made
# by other operators.

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


_BY_DIMENSIONS = {4: torch.channels_last, 5: torch.channels_last_3d}


def layout_for(tensor: torch.Tensor) -> torch.memory_format | None:
    """The format with the channels last, for tensors that have one: floating, of 4 or 5 sizes."""
    return _BY_DIMENSIONS.get(tensor.dim()) if tensor.is_floating_point() else None


def refuse_if_trained(kept: torch.Tensor) -> None:
    """Refuses a tensor that the model keeps where it could not be replaced, if it is trained.

    What is computed of another in its place would still be differentiated by the tensor itself, and
    leave a gradient in it.

    Raises:
        ModelError: it is.
    """
    if kept.requires_grad and torch.is_grad_enabled():
        raise ModelError(
            f"a trained tensor of shape {tuple(kept.shape)} is kept where torch does not look for"
            " parameters; keep it as a torch.nn.Parameter of a module"
        )


def with_hooks_of(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Gives `other` the hooks that `tensor` has for its gradient, which are part of a step."""
    for hook in list((tensor._backward_hooks or {}).values()):
        other.register_hook(hook)
    for hook in list((tensor._post_accumulate_grad_hooks or {}).values()):
        other.register_post_accumulate_grad_hook(hook)


class _Mode(FakeTensorMode):
    """Notices operators of other threads, which no mode that records sees.

    Where these are of the model's own tensors alone, which another thread may use without calling
    the model, they run on those. ``originals`` are the tensors that fakes stand for, by identity.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.allow_meta = True
        self.was_elsewhere = False
        self.originals: dict[int, torch.Tensor] = {}
        self._thread = threading.get_ident()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if threading.get_ident() != self._thread:
            self.was_elsewhere = True
            given = args, kwargs or {}
            fakes = [each for each in pytree.tree_leaves(given) if type(each) is FakeTensor]
            are_kept = fakes and all(id(each) in self.originals for each in fakes)
            if are_kept and not works_for_capture():
                args, kwargs = pytree.tree_map_only(
                    FakeTensor, lambda fake: self.originals[id(fake)], given
                )
                return func(*args, **kwargs)
        return super().__torch_dispatch__(func, types, args, kwargs)


class Fakes:
    """Fake tensors in the place of those that a model keeps, tied ones staying tied.

    ``mode`` is the context in which they live; ``roles`` are the roles of their storages, by
    address.

    Args:
        run: on which device they are, and which type and layout they are to have.
    """

    def __init__(self, run: Run) -> None:
        self.roles: dict[int, Role] = {}
        self.mode = _Mode()
        self._device = torch.device("cuda", 0) if run.device == "cuda" else torch.device(run.device)
        self._has_cuda = run.device == "cuda" or torch.cuda.is_available()
        self._calls = known_calls.Calls(self.mode, self._device)
        self._change = torch_dtype(run.dtype) if run.dtype else None
        self._channels_last = run.channels_last
        # The originals are kept, so that no other tensor gets their identity.
        self._made: dict[int, tuple[torch.Tensor, Any]] = {}
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def of(self, tensor: torch.Tensor, role: Role, *, is_changed: bool = False) -> Any:
        """The fake of `tensor`, with its strides and type unless those of the run are to be had."""
        if id(tensor) not in self._made:
            fake = self._fake(tensor, is_changed)
            if role is Role.PARAMETER:
                # What makes isinstance(fake, torch.nn.Parameter) true; its constructor takes ten
                # times as long as the fake itself.
                fake._is_param = True
            if tensor.requires_grad and (fake.is_floating_point() or fake.is_complex()):
                # Composite operators ask for it, without gradients too.
                fake.requires_grad = True
                if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
                    with_hooks_of(tensor, fake)
            self._made[id(tensor)] = tensor, fake
            if not tensor.is_meta:
                self.mode.originals[id(fake)] = tensor
            self.roles.setdefault(fake.untyped_storage()._cdata, role)
        return self._made[id(tensor)][1]

    @property
    def were_used_elsewhere(self) -> bool:
        """Whether they were in another thread, whose operators are not recorded."""
        return self.mode.was_elsewhere

    def in_place_of(self, value: Any) -> Any:
        """`value` with a fake for every tensor in it that is none.

        Those are tensors that the model keeps where torch does not look: in plain attributes, in
        lists, in modules that are in lists.
        """
        kind = type(value)
        if kind is FakeTensor or value is None or kind in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            refuse_if_trained(value)
            kept_as = Role.PARAMETER if isinstance(value, torch.nn.Parameter) else Role.BUFFER
            return self.of(value, kept_as)
        if isinstance(value, (list, tuple)):
            # Sizes and strides, most often.
            if value and type(value[0]) is int:
                return value
            return [self.in_place_of(item) for item in value]
        return value

    def given(self, request: InputRequest, kind: torch.dtype) -> Any:
        """An input as asked for, of type `kind`, laid out as the tensor that was given for it."""
        like = request.like
        if like is not None and tuple(like.shape) == request.shape:
            return self.of(like, Role.INPUT, is_changed=like.is_floating_point())
        tensor = torch.empty_permuted(
            request.shape, physical_order(request), dtype=kind, device=self._device
        )
        if self._channels_last and (layout := layout_for(tensor)):
            tensor = torch.empty_like(tensor, memory_format=layout)
        self.roles[tensor.untyped_storage()._cdata] = Role.INPUT
        return tensor

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operator `func` gives."""
        asked = kwargs.get("device")
        if asked is not None and asked.type == "cuda" and not self._has_cuda:
            # What torch says; autograd would end the process for a fake that is there.
            raise RuntimeError("Torch not compiled with CUDA enabled")
        if func is _GROUPED_PRODUCT and args[0].dtype != torch.bfloat16:
            # Its meta kernel takes bfloat16 alone, its CPU kernel any type; shapes are the same.
            named = {name: _as_bfloat16(each) for name, each in kwargs.items()}
            kind = named.pop("out_dtype", None) or args[0].dtype
            result = func(*map(_as_bfloat16, args), **named)
            return torch.empty_strided(
                result.shape, result.stride(), dtype=kind, device=self._device
            )
        if func._opname.startswith("quantize_per_"):
            raise NotImplementedError("quantised tensors have no fakes")
        if func.namespace == "quantized" and (made := result_of(func, args)) is not None:
            return made
        if (view := view_of(self.mode, func, args)) is not None:
            return view
        if func in PADDED:
            return PADDED[func](*args, **kwargs)
        return mended(func, args, kwargs, self._calls.call(func, args, kwargs))

    def _fake(self, tensor: torch.Tensor, is_changed: bool) -> Any:
        to = tensor.dtype
        if is_changed and self._change is not None and tensor.is_floating_point():
            to = self._change
        if (
            type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
            or tensor.layout is not torch.strided
            or tensor.is_quantized
        ):
            fake: Any = self.mode.from_tensor(tensor).to(to)
            return fake if self._device.type in ("cpu", "meta") else fake.to(self._device)
        # A hundred times cheaper than FakeTensorMode.from_tensor, which keeps what we do not need.
        storage = tensor.untyped_storage()
        key = (storage._cdata, to)
        size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
        base = self._bases.get(key)
        layout = layout_for(tensor) if is_changed and self._channels_last else None
        if base is not None:
            plain = base.as_strided(size, stride, offset)
        elif layout is not None and storage.nbytes() == tensor.nbytes:
            plain = torch.empty(size, dtype=to, device="meta", memory_format=layout)
            self._bases[key] = plain
        elif tensor.is_meta and tensor.dtype == to and not tensor.is_inference():
            plain = self._bases[key] = tensor.detach()
        elif storage.nbytes() == tensor.nbytes and tensor.is_contiguous():
            plain = self._bases[key] = torch.empty_strided(size, stride, dtype=to, device="meta")
        else:
            length = storage.nbytes() // tensor.element_size()
            base = self._bases[key] = torch.empty(length, dtype=to, device="meta")
            plain = base.as_strided(size, stride, offset)
        return FakeTensor(self.mode, plain, self._device)


_PLAIN = (bool, int, float, str, torch.dtype, torch.device)
"""Types of arguments that are, and hold, no tensors."""

_GROUPED_PRODUCT = torch.ops.aten._grouped_mm.default


def _as_bfloat16(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    device = value.device
    return torch.empty_strided(value.shape, value.stride(), dtype=torch.bfloat16, device=device)


@contextlib.contextmanager
def silent_torch() -> Iterator[None]:
    """Keeps torch from logging a traceback where an operator rejects its inputs: we say it."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
