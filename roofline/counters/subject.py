"""Model for a counter: a copy with real or fake tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from roofline.workload.capture.training import Loss, make_default_loss
from roofline.workload.inputs import InputRequest, Inputs
from roofline.workload.torch_dtypes import input_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Model with positional `inputs` that returns tensors only, to run within `mode`.

    It is in training mode with a `loss`, else in eval mode.
    """

    model: Positional
    inputs: tuple[torch.Tensor, ...]
    mode: AbstractContextManager[Any] = field(default_factory=nullcontext)
    loss: Loss | None = None

    def run(self) -> None:
        """Run the forward pass, and with a loss the backward pass."""
        if self.loss is None:
            self.model(*self.inputs)
            return
        with torch.enable_grad():
            self.loss(self.model.output(*self.inputs)).backward()


class Positional(torch.nn.Module):
    """Module called with positional tensors, as tracers require."""

    def __init__(self, model: torch.nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.model = model
        self._inputs = inputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model with `tensors` as inputs, and return all output tensors."""
        return tuple(_tensors_in(self.output(*tensors), set()))

    def output(self, *tensors: torch.Tensor) -> Any:
        """Return the output of the model."""
        waiting = iter(tensors)
        args, kwargs = self._inputs.build(lambda _: next(waiting))
        return self.model(*args, **kwargs)


def real_subject(
    module: torch.nn.Module,
    inputs: Inputs,
    change: torch.dtype | None,
    rebuild: Callable[[], torch.nn.Module] | None,
    loss: Loss | None = None,
) -> Subject:
    """Return the model with weights: rebuilt if `module` has none, else a copy."""
    if not any(each.is_meta for each in (*module.parameters(), *module.buffers())):
        model = copy.deepcopy(module)
    elif rebuild is not None:
        model = rebuild()
    else:
        raise ValueError("the module is on the meta device, without weights")
    if change is not None:
        model.to(change)
    model.train(loss is not None)
    made = _made(inputs, change)
    return Subject(model=Positional(model, inputs), inputs=made, loss=loss)


def fake_subject(
    module: torch.nn.Module, inputs: Inputs, change: torch.dtype | None, loss: Loss | None = None
) -> Subject:
    """Return the model with fake tensors on a CPU."""
    mode = FakeTensorMode()
    with torch.device("meta"):
        model = copy.deepcopy(module).to("meta")
    made: dict[int, torch.Tensor] = {}
    with mode:
        for part in model.modules():
            tables: list[Any] = [part._parameters, part._buffers]
            for own in tables:
                for name, tensor in own.items():
                    if tensor is not None:
                        own[name] = made.setdefault(id(tensor), _on_cpu(tensor, change))
        model.train(loss is not None)
        made_inputs = _made(inputs, change)
    return Subject(model=Positional(model, inputs), inputs=made_inputs, mode=mode, loss=loss)


def default_loss(output: Any) -> torch.Tensor:
    """Return the default training loss."""
    loss, _ = make_default_loss(output, lambda shape, kind: _input(InputRequest(shape=shape), kind))
    return loss


def _on_cpu(tensor: torch.Tensor, change: torch.dtype | None) -> Any:
    kind = change if change is not None and tensor.is_floating_point() else tensor.dtype
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device="cpu")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


def _made(inputs: Inputs, change: torch.dtype | None) -> tuple[torch.Tensor, ...]:
    tensors: list[torch.Tensor] = []

    def make(request: InputRequest) -> None:
        tensors.append(_input(request, input_dtype(request, change)))

    inputs.build(make)
    return tuple(tensors)


def _input(request: InputRequest, kind: torch.dtype) -> torch.Tensor:
    like = request.like
    if like is not None and tuple(like.shape) == request.shape:
        return like.detach().to(kind, copy=True)
    if kind == torch.bool:
        return torch.ones(request.shape, dtype=kind)
    if kind.is_floating_point or kind.is_complex:
        return torch.randn(request.shape).to(kind)
    return torch.zeros(request.shape, dtype=kind)


def _tensors_in(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the distinct tensors of a model's output."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in dict.values(value):
            yield from _tensors_in(each, seen)
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            yield from _tensors_in(each, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, torch.nn.Module)):
        yield from _tensors_in(vars(value), seen)
