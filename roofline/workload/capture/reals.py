"""Real tensors for a pass that needs values: copies, so that the model's own stay as they are."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from roofline.run import Run
from roofline.workload.capture.fakes import layout_for, refuse_if_trained, with_hooks_of
from roofline.workload.inputs import InputRequest, physical_order
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import torch_dtype


class Reals:
    """Copies in the place of the tensors that a model keeps, tied ones staying tied.

    Has what `Fakes` has, so that a pass is recorded in the same way.

    Args:
        run: which type and layout they are to have.
        on: the device that they are to be on; None: where the model's own are.
    """

    def __init__(self, run: Run, on: torch.device | None = None) -> None:
        self._on = on
        self.roles: dict[int, Role] = {}
        self.mode = contextlib.nullcontext()
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        # Addresses of what operators gave: no tensors that the model keeps.
        self._results: set[int] = set()
        self._change = torch_dtype(run.dtype) if run.dtype else None
        self._channels_last = run.channels_last

    def of(self, tensor: torch.Tensor, role: Role, *, is_changed: bool = False) -> Any:
        """The copy of `tensor`, with its strides and type unless those of the run are to be had."""
        if id(tensor) not in self._made:
            to = tensor.dtype
            if is_changed and self._change is not None and tensor.is_floating_point():
                to = self._change
            copy = self._copy(tensor.detach(), to)
            if is_changed and self._channels_last and (layout := layout_for(copy)):
                copy = copy.contiguous(memory_format=layout)
            if isinstance(tensor, torch.nn.Parameter):
                copy = torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
                with_hooks_of(tensor, copy)
            self._made[id(tensor)] = tensor, copy
            self._known(copy, role)
        return self._made[id(tensor)][1]

    def keep(self, tensor: torch.Tensor, role: Role) -> None:
        """Has a tensor that no copy can stand for known as what it is."""
        self._known(tensor, role)

    @property
    def storages(self) -> frozenset[int]:
        """Addresses of the storages that copies lie in."""
        return frozenset(copy.untyped_storage()._cdata for _, copy in self._made.values())

    @property
    def were_used_elsewhere(self) -> bool:
        """Not known of real tensors; a pass on fakes came first."""
        return False

    def in_place_of(self, value: Any) -> Any:
        """`value` with a copy for every tensor in it that no operator made.

        Those are tensors that the model keeps where torch does not look.
        """
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                return value
            address = value.untyped_storage()._cdata
            if address in self.roles or address in self._results:
                return value
            refuse_if_trained(value)
            kept_as = Role.PARAMETER if isinstance(value, torch.nn.Parameter) else Role.BUFFER
            return self.of(value, kept_as)
        if isinstance(value, (list, tuple)):
            return [self.in_place_of(item) for item in value]
        return value

    def given(self, request: InputRequest, kind: torch.dtype) -> torch.Tensor:
        """An input as asked for: a copy of the given tensor, else noise, or zeros as indices."""
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
        if self._channels_last and (layout := layout_for(tensor)):
            tensor = tensor.contiguous(memory_format=layout)
        self._known(tensor, Role.INPUT)
        return tensor

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operator `func` gives."""
        result = func(*args, **kwargs)
        for each in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(each, torch.Tensor) and each.layout is torch.strided:
                self._results.add(each.untyped_storage()._cdata)
        return result

    def _known(self, tensor: torch.Tensor, role: Role) -> None:
        self.roles.setdefault(tensor.untyped_storage()._cdata, role)

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
