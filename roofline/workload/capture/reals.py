"""Real tensors for a pass that needs values: copies, so that the model's own stay as they are."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from roofline.workload.inputs import InputRequest, physical_order
from roofline.workload.tensors import Role


class Reals:
    """Copies in the place of the tensors that a model keeps, tied ones staying tied.

    Has what `Fakes` has, so that a pass is recorded in the same way.
    """

    def __init__(self) -> None:
        self.roles: dict[int, Role] = {}
        self.mode = contextlib.nullcontext()
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def of(self, tensor: torch.Tensor, role: Role, change: torch.dtype | None = None) -> Any:
        """The copy of `tensor`, of the same strides; a floating type becomes `change` if given."""
        if id(tensor) not in self._made:
            to = change if change is not None and tensor.is_floating_point() else tensor.dtype
            copy = self._copy(tensor.detach(), to)
            if isinstance(tensor, torch.nn.Parameter):
                copy = torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
            self._made[id(tensor)] = tensor, copy
            self._known(copy, role)
        return self._made[id(tensor)][1]

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
            if value.untyped_storage()._cdata in self.roles:
                return value
            kept_as = Role.PARAMETER if isinstance(value, torch.nn.Parameter) else Role.BUFFER
            return self.of(value, kept_as)
        if isinstance(value, (list, tuple)):
            return [self.in_place_of(item) for item in value]
        return value

    def given(self, request: InputRequest, kind: torch.dtype) -> torch.Tensor:
        """An input as asked for: a copy of the given tensor, else noise, or zeros as indices."""
        like = request.like
        if like is not None and tuple(like.shape) == request.shape:
            tensor = self._copy(like.detach(), kind)
        else:
            order = physical_order(request)
            tensor = torch.empty_permuted(request.shape, order, dtype=kind)
            if kind == torch.bool:
                tensor.fill_(True)
            elif kind.is_floating_point or kind.is_complex:
                tensor.copy_(torch.randn(request.shape))
            else:
                tensor.zero_()
        self._known(tensor, Role.INPUT)
        return tensor

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operator `func` gives."""
        result = func(*args, **kwargs)
        for each in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(each, torch.Tensor) and each.layout is torch.strided:
                self._known(each, Role.ACTIVATION)
        return result

    def _known(self, tensor: torch.Tensor, role: Role) -> None:
        self.roles.setdefault(tensor.untyped_storage()._cdata, role)

    def _copy(self, tensor: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return tensor.clone() if tensor.dtype == to else tensor.to(to)
        storage = tensor.untyped_storage()
        key = (storage._cdata, to)
        if key not in self._bases:
            length = storage.nbytes() // tensor.element_size()
            whole = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (length,), (1,))
            self._bases[key] = whole.to(to, copy=True)
        place = (tensor.size(), tensor.stride(), tensor.storage_offset())
        return self._bases[key].as_strided(*place)
