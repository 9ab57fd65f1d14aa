"""Fake tensors in the place of real ones: shapes, strides and types, but no memory behind them."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from roofline.workload.capture import known_calls
from roofline.workload.inputs import InputRequest, physical_order
from roofline.workload.tensors import Role


class _Mode(FakeTensorMode):
    """Notices operators of other threads, which no mode that records sees."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.was_elsewhere = False
        self._thread = threading.get_ident()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if threading.get_ident() != self._thread:
            self.was_elsewhere = True
        return super().__torch_dispatch__(func, types, args, kwargs)


class Fakes:
    """Fake CPU tensors in the place of those that a model keeps, tied ones staying tied.

    ``mode`` is the context in which they live; ``roles`` are the roles of their storages, by
    address.
    """

    def __init__(self) -> None:
        self.roles: dict[int, Role] = {}
        self.mode = _Mode()
        # The originals are kept, so that no other tensor gets their identity.
        self._made: dict[int, tuple[torch.Tensor, Any]] = {}
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def of(self, tensor: torch.Tensor, role: Role, change: torch.dtype | None = None) -> Any:
        """The fake of `tensor`, of the same strides; a floating type becomes `change` if given."""
        if id(tensor) not in self._made:
            fake = self._fake(tensor, change)
            if role is Role.PARAMETER:
                # What makes isinstance(fake, torch.nn.Parameter) true; its constructor takes ten
                # times as long as the fake itself.
                fake._is_param = True
            if tensor.requires_grad and fake.is_floating_point():
                # Composite operators ask for it, without gradients too.
                fake.requires_grad = True
            self._made[id(tensor)] = tensor, fake
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
        if type(value) is FakeTensor:
            return value
        if isinstance(value, torch.Tensor):
            kept_as = Role.PARAMETER if isinstance(value, torch.nn.Parameter) else Role.BUFFER
            return self.of(value, kept_as)
        if isinstance(value, (list, tuple)):
            return [self.in_place_of(item) for item in value]
        return value

    def given(self, request: InputRequest, kind: torch.dtype) -> Any:
        """An input as asked for, of type `kind`, laid out as the tensor that was given for it."""
        like = request.like
        if like is not None and tuple(like.shape) == request.shape:
            return self.of(like, Role.INPUT, kind if like.is_floating_point() else None)
        tensor = torch.empty_permuted(
            request.shape, physical_order(request), dtype=kind, device="cpu"
        )
        self.roles[tensor.untyped_storage()._cdata] = Role.INPUT
        return tensor

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operator `func` gives."""
        if func is _GROUPED_PRODUCT and args[0].dtype != torch.bfloat16:
            # Its meta kernel takes bfloat16 alone, its CPU kernel any type; shapes are the same.
            named = {name: _as_bfloat16(each) for name, each in kwargs.items()}
            kind = named.pop("out_dtype", None) or args[0].dtype
            result = func(*map(_as_bfloat16, args), **named)
            return torch.empty_strided(result.shape, result.stride(), dtype=kind, device="cpu")
        return known_calls.call(self.mode, func, args, kwargs)

    def _fake(self, tensor: torch.Tensor, change: torch.dtype | None) -> Any:
        to = change if change is not None and tensor.is_floating_point() else tensor.dtype
        if (
            type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
            or tensor.layout is not torch.strided
            or tensor.is_quantized
        ):
            return self.mode.from_tensor(tensor).to(to)
        # A hundred times cheaper than FakeTensorMode.from_tensor, which keeps what we do not need.
        storage = tensor.untyped_storage()
        key = (storage._cdata, to)
        size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
        base = self._bases.get(key)
        if base is not None:
            plain = base.as_strided(size, stride, offset)
        elif tensor.is_meta and tensor.dtype == to:
            plain = self._bases[key] = tensor.detach()
        elif storage.nbytes() == tensor.nbytes and tensor.is_contiguous():
            plain = self._bases[key] = torch.empty_strided(size, stride, dtype=to, device="meta")
        else:
            length = storage.nbytes() // tensor.element_size()
            base = self._bases[key] = torch.empty(length, dtype=to, device="meta")
            plain = base.as_strided(size, stride, offset)
        return FakeTensor(self.mode, plain, torch.device("cpu"))


_GROUPED_PRODUCT = torch.ops.aten._grouped_mm.default


def _as_bfloat16(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=torch.bfloat16, device="cpu")


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
