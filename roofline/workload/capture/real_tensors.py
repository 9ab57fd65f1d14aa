"""Tensors that replace a model's own during capture, and real copies for passes on values."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from roofline.errors import ModelError
from roofline.run import Run
from roofline.workload.inputs import InputRequest, physical_order
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import torch_dtype

_PLAIN = frozenset((bool, int, float, str, torch.dtype, torch.device, FakeTensor, type(None)))
"""Argument types that are never replaced."""

_BY_DIMENSIONS = {4: torch.channels_last, 5: torch.channels_last_3d}


class ReplacementTensors(ABC):
    """Tensors that replace those of a model; tied tensors stay tied.

    ``mode`` is the context in which they are valid, ``roles`` the role of each storage by address.
    Types and layouts are those of the run.
    """

    def __init__(self, run: Run) -> None:
        self.roles: dict[int, Role] = {}
        self.mode: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        # Originals are kept alive so that no other tensor gets their identity.
        self._made: dict[int, tuple[torch.Tensor, Any]] = {}
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._change = torch_dtype(run.dtype) if run.dtype else None
        self._channels_last = run.channels_last

    @property
    def used_in_other_thread(self) -> bool:
        """True if another thread, whose operators are not recorded, used the tensors."""
        return False

    def replacement_for(self, tensor: torch.Tensor, role: Role, *, is_changed: bool = False) -> Any:
        """Return the replacement of `tensor`; `is_changed` applies the run's type and layout."""
        if id(tensor) not in self._made:
            is_cast = is_changed and self._change is not None and tensor.is_floating_point()
            to = self._change if self._change is not None and is_cast else tensor.dtype
            made = self._make(tensor, to, role, is_changed)
            self._made[id(tensor)] = tensor, made
            self.roles.setdefault(made.untyped_storage()._cdata, role)
        return self._made[id(tensor)][1]

    def replace_in(self, value: Any) -> Any:
        """Return `value` with replacements for the model's own tensors in it.

        These are tensors that torch does not register: in plain attributes, in lists, in modules
        that are in lists. Raises ModelError for a trained one: the backward pass would leave a
        gradient in the original.
        """
        if type(value) in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            if not self._is_own(value):
                return value
            if value.requires_grad and torch.is_grad_enabled():
                raise ModelError(
                    f"a trained tensor of shape {tuple(value.shape)} is not registered as a"
                    " parameter; assign it to a module as a torch.nn.Parameter"
                )
            is_parameter = isinstance(value, torch.nn.Parameter)
            return self.replacement_for(value, Role.PARAMETER if is_parameter else Role.BUFFER)
        if isinstance(value, (list, tuple)):
            # Usually sizes or strides.
            if value and type(value[0]) is int:
                return value
            return [self.replace_in(item) for item in value]
        return value

    @abstractmethod
    def make_input(self, request: InputRequest, kind: torch.dtype) -> Any:
        """Return an input of type `kind`, with the layout of the tensor given for it."""

    @abstractmethod
    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the operator `func`."""

    @abstractmethod
    def _make(self, tensor: torch.Tensor, to: torch.dtype, role: Role, is_changed: bool) -> Any:
        """Return a new replacement for `tensor`, of type `to`."""

    def _is_own(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor belongs to the model."""
        return True

    def _layout_for(self, tensor: torch.Tensor) -> torch.memory_format | None:
        """Return the channels-last format if the run uses it for such a tensor, else None."""
        if not self._channels_last or not tensor.is_floating_point():
            return None
        return _BY_DIMENSIONS.get(tensor.dim())


def copy_gradient_hooks(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Copy the gradient hooks of `tensor`, which are part of a training step, to `other`."""
    for hook in list((tensor._backward_hooks or {}).values()):
        other.register_hook(hook)
    for hook in list((tensor._post_accumulate_grad_hooks or {}).values()):
        other.register_post_accumulate_grad_hook(hook)


class RealTensors(ReplacementTensors):
    """Copies that replace a model's tensors, on device `on` [default: that of the originals]."""

    def __init__(self, run: Run, on: torch.device | None = None) -> None:
        super().__init__(run)
        self._on = on
        # Storage addresses of operator results, which the model does not own.
        self._results: set[int] = set()

    @property
    def storages(self) -> frozenset[int]:
        """Addresses of the copies' storages."""
        return frozenset(copy.untyped_storage()._cdata for _, copy in self._made.values())

    def keep(self, tensor: torch.Tensor, role: Role) -> None:
        """Register the role of a tensor that cannot be replaced by a copy."""
        self.roles.setdefault(tensor.untyped_storage()._cdata, role)

    def make_input(self, request: InputRequest, kind: torch.dtype) -> torch.Tensor:
        """Return a copy of the given tensor, else random floats, or zeros for other types."""
        like = request.like
        if like is not None and tuple(like.shape) == request.shape:
            tensor = self._copy(like.detach(), kind).requires_grad_(like.requires_grad)
        else:
            order = physical_order(request)
            tensor = torch.empty_permuted(request.shape, order, dtype=kind, device=self._on)
            if kind == torch.bool:
                tensor.fill_(True)
            elif kind.is_floating_point or kind.is_complex:
                tensor.copy_(torch.randn(request.shape, device=self._on))
            else:
                tensor.zero_()
        if layout := self._layout_for(tensor):
            tensor = tensor.contiguous(memory_format=layout)
        self.keep(tensor, Role.INPUT)
        return tensor

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the operator `func`."""
        result = func(*args, **kwargs)
        for each in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(each, torch.Tensor) and each.layout is torch.strided:
                self._results.add(each.untyped_storage()._cdata)
        return result

    def _make(self, tensor: torch.Tensor, to: torch.dtype, role: Role, is_changed: bool) -> Any:
        copy = self._copy(tensor.detach(), to)
        if is_changed and (layout := self._layout_for(copy)):
            copy = copy.contiguous(memory_format=layout)
        if isinstance(tensor, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
            copy_gradient_hooks(tensor, copy)
        return copy

    def _is_own(self, tensor: torch.Tensor) -> bool:
        if tensor.layout is not torch.strided:
            return False
        address = tensor.untyped_storage()._cdata
        return address not in self.roles and address not in self._results

    def _copy(self, tensor: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return tensor.to(self._on or tensor.device, to, copy=True)
        storage = tensor.untyped_storage()
        key = (storage._cdata, to)
        if key not in self._bases:
            length = storage.nbytes() // tensor.element_size()
            whole = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (length,), (1,))
            self._bases[key] = whole.to(self._on or whole.device, to, copy=True)
        place = (tensor.size(), tensor.stride(), tensor.storage_offset())
        return self._bases[key].as_strided(*place)
