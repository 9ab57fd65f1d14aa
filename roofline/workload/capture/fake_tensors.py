"""Fake tensors that replace a model's own: shapes, strides and types without memory."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.utils import _pytree as pytree

from roofline.run import Run
from roofline.workload.capture.call_cache import CallCache
from roofline.workload.capture.module_stack import is_capture_worker
from roofline.workload.capture.operands import packed_product_result
from roofline.workload.capture.real_tensors import ReplacementTensors, copy_gradient_hooks
from roofline.workload.inputs import InputRequest, physical_order
from roofline.workload.tensors import Role


class _Mode(FakeTensorMode):
    """Fake tensor mode that detects operators of other threads, which are not recorded.

    Operators of another thread on the model's own tensors alone run on these; that thread need not
    be calling the model. ``originals`` maps the identity of a fake to the tensor it replaces.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.allow_meta = True
        self.used_in_other_thread = False
        self.originals: dict[int, torch.Tensor] = {}
        self._thread = threading.get_ident()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if threading.get_ident() != self._thread:
            self.used_in_other_thread = True
            given = args, kwargs or {}
            fakes = [each for each in pytree.tree_leaves(given) if type(each) is FakeTensor]
            are_kept = fakes and all(id(each) in self.originals for each in fakes)
            if are_kept and not is_capture_worker():
                args, kwargs = pytree.tree_map_only(
                    FakeTensor, lambda fake: self.originals[id(fake)], given
                )
                return func(*args, **kwargs)
        return super().__torch_dispatch__(func, types, args, kwargs)


class FakeTensors(ReplacementTensors):
    """Fake tensors that replace those of a model, on the device of the run."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.mode = self._mode = _Mode()
        self._device = torch.device("cuda", 0) if run.device == "cuda" else torch.device(run.device)
        self._has_cuda = run.device == "cuda" or torch.cuda.is_available()
        self._calls = CallCache(self._mode, self._device)

    @property
    def used_in_other_thread(self) -> bool:
        """True if another thread, whose operators are not recorded, used the tensors."""
        return self._mode.used_in_other_thread

    def make_input(self, request: InputRequest, kind: torch.dtype) -> Any:
        """Return a fake input of type `kind`, with the layout of the tensor given for it."""
        like = request.like
        if like is not None and tuple(like.shape) == request.shape:
            return self.replacement_for(like, Role.INPUT, is_changed=like.is_floating_point())
        tensor = torch.empty_permuted(
            request.shape, physical_order(request), dtype=kind, device=self._device
        )
        if layout := self._layout_for(tensor):
            tensor = torch.empty_like(tensor, memory_format=layout)
        self.roles[tensor.untyped_storage()._cdata] = Role.INPUT
        return tensor

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the operator `func`."""
        device = kwargs.get("device")
        if device is not None and device.type == "cuda" and not self._has_cuda:
            # torch's own message. Autograd would abort the process for a fake on that device.
            raise RuntimeError("Torch not compiled with CUDA enabled")
        if func is _GROUPED_PRODUCT and args[0].dtype != torch.bfloat16:
            # The meta kernel accepts bfloat16 only, the CPU kernel any type; shapes are the same.
            named = {name: _as_bfloat16(each) for name, each in kwargs.items()}
            kind = named.pop("out_dtype", None) or args[0].dtype
            result = func(*map(_as_bfloat16, args), **named)
            return torch.empty_strided(
                result.shape, result.stride(), dtype=kind, device=self._device
            )
        if func._opname.startswith("quantize_per_"):
            raise NotImplementedError("fake tensors do not support quantized types")
        if (
            func.namespace == "quantized"
            and (made := packed_product_result(func, args)) is not None
        ):
            return made
        if func in _VIEWS and (view := self._view_of(*args)) is not None:
            return view
        if func in _NESTED_TENSOR_CALLS:
            return _NESTED_TENSOR_CALLS[func](*args, **kwargs)
        result = self._calls.call(func, args, kwargs)
        if (correct := _CORRECTIONS.get(func)) is None:
            return result
        names = [each.name for each in func._schema.arguments]
        return correct({**dict(zip(names, args, strict=False)), **kwargs}, result)

    def _view_of(self, tensor: Any, shape: Any) -> FakeTensor | None:
        """Return a view with the strides of the real kernel, or None if it is no view.

        Fake kernels choose other strides for dimensions of size 1.
        """
        if type(tensor) is not FakeTensor or not tensor.numel():
            return None
        try:
            with in_kernel_invocation_manager(self._mode):
                plain = torch.ops.aten.view.default(tensor, shape)
        except RuntimeError:
            # The fake call raises the error message that users know.
            return None
        return FakeTensor(self._mode, plain, tensor.fake_device)

    def _make(self, tensor: torch.Tensor, to: torch.dtype, role: Role, is_changed: bool) -> Any:
        fake = self._fake(tensor, to, self._layout_for(tensor) if is_changed else None)
        if role is Role.PARAMETER:
            # Makes isinstance(fake, torch.nn.Parameter) true, faster than its constructor.
            fake._is_param = True
        if tensor.requires_grad and (fake.is_floating_point() or fake.is_complex()):
            # Composite operators check this, even without gradients.
            fake.requires_grad = True
            if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
                copy_gradient_hooks(tensor, fake)
        if not tensor.is_meta:
            self._mode.originals[id(fake)] = tensor
        return fake

    def _fake(
        self, tensor: torch.Tensor, to: torch.dtype, layout: torch.memory_format | None
    ) -> Any:
        if (
            type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
            or tensor.layout is not torch.strided
            or tensor.is_quantized
        ):
            fake: Any = self._mode.from_tensor(tensor).to(to)
            return fake if self._device.type in ("cpu", "meta") else fake.to(self._device)
        # A hundred times cheaper than FakeTensorMode.from_tensor.
        storage = tensor.untyped_storage()
        key = (storage._cdata, to)
        size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
        base = self._bases.get(key)
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
        return FakeTensor(self._mode, plain, self._device)


_GROUPED_PRODUCT = torch.ops.aten._grouped_mm.default


def _as_bfloat16(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    device = value.device
    return torch.empty_strided(value.shape, value.stride(), dtype=torch.bfloat16, device=device)


# -- corrections of fake kernels -------------------------------------------------------------------

# Some fake kernels return another memory order than the real ones, or a tensor where there is none:
# later operators would then copy where they need not, or skip a copy. Others call other operators.

_aten = torch.ops.aten
_VIEWS = (_aten.view.default, _aten._unsafe_view.default)


def _contiguous(_given: Any, result: torch.Tensor) -> torch.Tensor:
    if result.is_contiguous():
        return result
    return torch.empty(result.shape, dtype=result.dtype, device=result.device)


def _without_random_state(given: Mapping[str, Any], result: Sequence[Any]) -> tuple[Any, ...]:
    """Return `result` with an empty random state where no dropout uses it."""
    if given.get("dropout_p", 0) > 0:
        return tuple(result)
    return tuple(
        each.new_empty(0)
        if isinstance(each, torch.Tensor) and each.dtype in _RANDOM_STATE_TYPES
        else each
        for each in result
    )


_RANDOM_STATE_TYPES = (torch.int64, torch.uint64)

_CORRECTIONS: Mapping[Any, Callable[..., Any]] = {
    # Gradients that are not requested are not computed.
    _aten.native_batch_norm_backward.default: lambda given, result: tuple(
        each if is_asked else None
        for each, is_asked in zip(result, given["output_mask"], strict=True)
    ),
    # These kernels write contiguous results for any input layout.
    _aten.native_layer_norm_backward.default: lambda given, result: (
        result[0] if result[0] is None else _contiguous(given, result[0]),
        *result[1:],
    ),
    _aten.mse_loss_backward.default: _contiguous,
    _aten._scaled_dot_product_flash_attention.default: _without_random_state,
    _aten._scaled_dot_product_efficient_attention.default: _without_random_state,
}


_NESTED_TENSOR_CALLS: Mapping[Any, Callable[..., Any]] = {
    # True for masks that keep a prefix of each sequence; torch drops padding only for those.
    _aten._nested_tensor_from_mask_left_aligned.default: lambda t, mask: True,
    _aten._nested_tensor_from_mask.default: lambda t, mask, mask_check=True: torch.empty_like(
        t, memory_format=torch.contiguous_format
    ),
    _aten.to_padded_tensor.default: lambda self, padding, output_size=None: torch.empty(
        output_size or self.shape, dtype=self.dtype, device=self.device
    ),
}
"""Conversions to and from nested tensors, replaced by dense tensors that include the padding."""


@contextlib.contextmanager
def match_kernel_calls() -> Iterator[None]:
    """Make functions with a special path for fakes call the operators of real tensors."""
    before = torch.nn.functional.one_hot

    def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        # Without num_classes it follows from the values; invalid calls raise in torch's version.
        kind = tensor.device.type if type(tensor) is FakeTensor and tensor.numel() else ""
        if kind not in ("cpu", "cuda") or tensor.dtype != torch.int64 or num_classes <= 0:
            return before(tensor, num_classes)
        if kind == "cpu":
            # torch's check that all classes are below `num_classes`.
            torch.aminmax(tensor)
        zeros = torch.zeros((*tensor.shape, num_classes), dtype=tensor.dtype, device=tensor.device)
        return zeros.scatter_(-1, tensor.unsqueeze(-1), 1)

    with mock.patch.object(torch.nn.functional, "one_hot", one_hot):
        yield


def silence_fake_tensor_log() -> contextlib.AbstractContextManager[Any]:
    """Keep torch from logging a traceback for rejected inputs, which roofline reports itself."""
    return mock.patch.object(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
