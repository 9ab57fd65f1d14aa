"""Fake tensors in the place of real ones: shapes, strides and types, but no memory behind them."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parameter import is_lazy

from roofline.errors import InputError, ModelError
from roofline.foundation.dtypes import DType, dtype
from roofline.workload.sources import InputRequest
from roofline.workload.tensors import InputSpec, Role


@functools.cache
def dtype_of(torch_dtype: torch.dtype) -> DType:
    """Our name for torch's data type."""
    return dtype(str(torch_dtype).removeprefix("torch."))


class Fakes:
    """Fake CPU tensors in the place of those that a model keeps, tied ones staying tied.

    ``roles`` are the roles of their storages, by address.
    """

    def __init__(self, mode: FakeTensorMode, roles: dict[int, Role]) -> None:
        self.roles = roles
        self._mode = mode
        # The originals are kept, so that no other tensor gets their identity.
        self._made: dict[int, tuple[torch.Tensor, Any]] = {}
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def of(self, tensor: torch.Tensor, role: Role, change: torch.dtype | None = None) -> Any:
        """The fake of `tensor`, of the same strides; a floating type becomes `change` if given."""
        if id(tensor) not in self._made:
            fake = self._fake(tensor, change)
            if role is Role.PARAMETER:
                fake = torch.nn.Parameter(fake, requires_grad=False)
            self._made[id(tensor)] = tensor, fake
            self.roles.setdefault(fake.untyped_storage()._cdata, role)
        return self._made[id(tensor)][1]

    def in_place_of(self, value: Any) -> Any:
        """`value` with a fake for every tensor in it that is none.

        Those are tensors that the model keeps where torch does not look: in plain attributes, in
        lists, in modules that are in lists.
        """
        if isinstance(value, torch.Tensor):
            if isinstance(value, FakeTensor):
                return value
            kept_as = Role.PARAMETER if isinstance(value, torch.nn.Parameter) else Role.BUFFER
            return self.of(value, kept_as)
        if isinstance(value, (list, tuple)):
            return [self.in_place_of(item) for item in value]
        return value

    def _fake(self, tensor: torch.Tensor, change: torch.dtype | None) -> Any:
        to = change if change is not None and tensor.is_floating_point() else tensor.dtype
        if (
            type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
            or tensor.layout is not torch.strided
            or tensor.is_quantized
        ):
            return self._mode.from_tensor(tensor).to(to)
        # A hundred times cheaper than FakeTensorMode.from_tensor, which keeps what we do not need.
        storage = tensor.untyped_storage()
        key = (storage._cdata, to)
        if key not in self._bases:
            length = storage.nbytes() // tensor.element_size()
            self._bases[key] = torch.empty(length, dtype=to, device="meta")
        view = self._bases[key].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return FakeTensor(self._mode, view, torch.device("cpu"))


def torch_dtype(name: str) -> torch.dtype:
    """torch's data type called `name`.

    Raises:
        InputError: torch has no tensors of that type.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"torch has no dtype '{name}'; try float32, bfloat16, float16 or float64")
    return found


MakeInputs = Callable[[FakeTensorMode], tuple[list[Any], dict[str, Any]]]


def fake_inputs(
    requests: Sequence[InputRequest],
    values: Mapping[int, torch.Tensor],
    change: torch.dtype | None,
) -> tuple[tuple[InputSpec, ...], MakeInputs]:
    """What the model will be given, and a function that makes it as fake tensors.

    Args:
        requests: shape, and data type or None, of each input.
        values: the tensors that were given for some of them, by position; they set strides too.
        change: the type of floating inputs for which none was asked.
    """
    kinds = [
        torch_dtype(request.dtype.name)
        if request.dtype
        else (
            values[position].dtype
            if position in values and not (change and values[position].is_floating_point())
            else change or torch.get_default_dtype()
        )
        for position, request in enumerate(requests)
    ]

    def make(mode: FakeTensorMode) -> tuple[list[Any], dict[str, Any]]:
        fakes = Fakes(mode, {})
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for position, (request, kind) in enumerate(zip(requests, kinds, strict=True)):
            value = values.get(position)
            if value is not None and tuple(value.shape) == request.shape:
                tensor = fakes.of(value, Role.INPUT, kind)
            else:
                tensor = torch.empty(request.shape, dtype=kind, device="cpu")
            if request.name:
                kwargs[request.name] = tensor
            else:
                args.append(tensor)
        return args, kwargs

    for request, kind in zip(requests, kinds, strict=True):
        if dtype_of(kind).name.startswith(("qint", "quint")):
            raise InputError(f"an input of dtype {request.dtype} cannot be made; give a tensor")
    specs = tuple(
        InputSpec(name=request.name, shape=request.shape, dtype=dtype_of(kind))
        for request, kind in zip(requests, kinds, strict=True)
    )
    return specs, make


@contextlib.contextmanager
def left_as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Puts back all attributes of all modules, and what their lists, sets and dicts held.

    So a forward pass that keeps something (a feature map, a counter, a module made on first use)
    leaves nothing behind.
    """
    before = [
        (container, container.copy())
        for module in model.modules()
        for container in (module.__dict__, *module.__dict__.values())
        if type(container) in (dict, OrderedDict, list, set)
    ]
    try:
        yield
    finally:
        for container, content in before:
            container.clear()
            if isinstance(container, list):
                container.extend(content)
            else:
                container.update(content)


def put_fakes(model: torch.nn.Module, fakes: Fakes, change: torch.dtype | None) -> None:
    """Puts fake tensors in the place of the model's parameters and buffers."""
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"{type(module).__name__} is TorchScript, whose parameters cannot be replaced;"
                " give the torch.nn.Module that it was made from"
            )
        for own, role in (
            (module._parameters, Role.PARAMETER),
            (module._buffers, Role.BUFFER),
        ):
            for name, tensor in own.items():
                if tensor is None:
                    continue
                if is_lazy(tensor):
                    raise ModelError(
                        f"{type(module).__name__} has a lazy parameter '{name}' without a shape;"
                        " run the model once on a real input first"
                    )
                own[name] = fakes.of(tensor, role, change)


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
