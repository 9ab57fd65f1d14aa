"""The model that a counter is given: one of its own, with real tensors or fake ones."""

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
    """A model that takes `inputs` positionally and returns tensors only, to run within `mode`.

    It is in eval mode, or in training mode where there is a `loss` of its output.
    """

    model: Positional
    inputs: tuple[torch.Tensor, ...]
    mode: AbstractContextManager[Any] = field(default_factory=nullcontext)
    loss: Loss | None = None

    def run(self) -> None:
        """Runs it forward, and backward where there is a loss."""
        if self.loss is None:
            self.model(*self.inputs)
            return
        with torch.enable_grad():
            self.loss(self.model.output(*self.inputs)).backward()


class Positional(torch.nn.Module):
    """A model called with tensors by position, whatever it is called with, as tracers need it."""

    def __init__(self, model: torch.nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.model = model
        self._inputs = inputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Calls the model with `tensors` where its inputs have them, and lists what it returns."""
        return tuple(_tensors_in(self.output(*tensors), set()))

    def output(self, *tensors: torch.Tensor) -> Any:
        """What the model itself returns."""
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
    """The model with weights: built anew where `module` has none, else a copy of it."""
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
    """The model with tensors without memory, as if on a CPU."""
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
    """The loss that a model is trained with where nobody says which."""
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
    """Every tensor that can be reached from what a model returned, each once."""
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
