"""A model set up to run on other tensors than its own, as often as is asked, and put back after."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from roofline.errors import ModelError
from roofline.run import Run
from roofline.workload.capture.failures import NoFakesError
from roofline.workload.capture.fakes import Fakes, silent_torch
from roofline.workload.capture.module_stack import others_wait
from roofline.workload.capture.operands import remembering, tensors_in
from roofline.workload.capture.reals import Reals, StandIns
from roofline.workload.capture.restoration import (
    containers_in,
    left_as_it_was,
    process_left_as_it_was,
    tensors_left_as_they_were,
)
from roofline.workload.capture.training import Lesson, Listener
from roofline.workload.inputs import Inputs
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import dtype_for, torch_dtype

_PARAMETER, _BUFFER = Role.PARAMETER, Role.BUFFER


@dataclass(slots=True)
class Stage:
    """A model with other tensors in the place of its own, and what it is called with.

    ``given`` are the inputs by their storage; ``optimizer`` is there once training was prepared.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    given: Mapping[int, torch.Tensor]
    run: Run
    tensors: StandIns
    lesson: Lesson | None
    optimizer: torch.optim.Optimizer | None = None

    def prepare(self, listener: Listener) -> None:
        """Makes the optimizer and its state, where the model is trained."""
        if self.lesson is not None:
            self.optimizer = self.lesson.prepare(self.model, self.tensors, listener)

    def step(self, listener: Listener) -> Any:
        """One pass, in training with its loss, backward pass and update; what must be alive until
        its end."""
        loss = None
        with _autocast(self.run, self.tensors):
            result = self.model(*self.args, **self.kwargs)
            if self.lesson is not None:
                listener.note_owners(self.model)
                with listener.part("<loss>"):
                    loss = self.lesson.loss(result, self.tensors, listener)
        # As its end does, unless the caller has one open too.
        torch.clear_autocast_cache()
        if self.lesson is not None and loss is not None:
            leaves = (*self.model.parameters(), *self.given.values())
            self.lesson.end(leaves, loss, self.optimizer, listener)
        return result, loss


@contextlib.contextmanager
def staged(
    model: torch.nn.Module,
    inputs: Inputs,
    run: Run,
    tensors: StandIns,
    lesson: Lesson | None = None,
) -> Iterator[Stage]:
    """`model` on other tensors, in eval mode and without gradients or in training; afterwards it is
    as it was.

    A NoFakesError: `tensors` are fakes, and it cannot be given such.
    """
    change = torch_dtype(run.dtype) if run.dtype else None
    with (
        # Fakes are of no use to other threads; copies, which may be timed, serve them as well.
        others_wait(model) if isinstance(tensors, Fakes) else contextlib.nullcontext(),
        process_left_as_it_was(),
        left_as_it_was(model, inputs.args, inputs.kwargs),
        silent_torch(),
        remembering(),
        warnings.catch_warnings(),
        # There composite operators are not taken apart.
        torch.inference_mode(False),
        torch.set_grad_enabled(run.train),
        torch.autograd.set_detect_anomaly(False),
        # Keeps what the caller may have switched on out of the pass.
        _autocast(replace(run, autocast=""), tensors),
    ):
        # What stands for them is dense, and that is said.
        warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
        _put_in_place(model, tensors, is_trained=run.train)
        # Operators on fakes never get the tensors that nothing stands for: those in lists and
        # objects, in functions and files, and in TorchScript.
        others = (
            tensors_left_as_they_were(model, inputs.args, inputs.kwargs, but=tensors.storages)
            if isinstance(tensors, Reals)
            else contextlib.nullcontext()
        )
        with others, tensors.mode:
            # Last: a model of its own ideas may change its weights for inference.
            try:
                model.train(run.train)
            except NotImplementedError:
                # Exported programs are fixed in one mode, and refuse to be told another.
                for module in model.modules():
                    module.training = run.train
            args, kwargs = inputs.made(
                lambda request: tensors.given(request, dtype_for(request, change))
            )
            given = {each.untyped_storage()._cdata: each for each in tensors_in([args, kwargs])}
            stage = Stage(model, args, kwargs, given, run, tensors, lesson)
            yield stage
            stage.optimizer = None


@contextlib.contextmanager
def _autocast(run: Run, tensors: StandIns) -> Iterator[None]:
    """Autocast of the run's device as the run has it: on, or off.

    Where it runs for real, tensors may be on the CPU, whatever device the run is for.
    """
    devices = {"cuda" if run.device == "cuda" else "cpu"}
    if isinstance(tensors, Reals):
        devices.add("cpu")
    to = torch_dtype(run.autocast) if run.autocast else None
    with contextlib.ExitStack() as stack:
        for device in sorted(devices):
            stack.enter_context(torch.autocast(device, to, enabled=to is not None))
        yield


def _put_in_place(model: torch.nn.Module, tensors: StandIns, *, is_trained: bool) -> None:
    """Puts other tensors in the place of the model's parameters and buffers."""
    replaced: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            if is_trained:
                raise ModelError(
                    f"{type(module).__name__} is TorchScript, whose parameters cannot be replaced"
                    " by others to train; give the torch.nn.Module that it was made from"
                )
            if isinstance(tensors, Reals):
                # It runs on its own.
                for kept, role in ((module.parameters, _PARAMETER), (module.buffers, _BUFFER)):
                    for tensor in kept(recurse=False):
                        tensors.keep(tensor, role)
                continue
            raise NoFakesError(
                f"{type(module).__name__} is TorchScript, whose parameters cannot be replaced;"
                " give the torch.nn.Module that it was made from"
            )
        for own, role in ((module._parameters, _PARAMETER), (module._buffers, _BUFFER)):
            for name, tensor in own.items():
                if tensor is None:
                    continue
                kind = type(module).__name__
                if is_lazy(tensor):
                    raise ModelError(
                        f"{kind} has a lazy parameter '{name}' without a shape;"
                        " run the model once on a real input first"
                    )
                if tensor.layout is not torch.strided:
                    raise ModelError(
                        f"{kind} keeps '{name}' as a sparse tensor, and sparse"
                        " tensors cannot be counted; give the model with dense ones"
                    )
                own[name] = tensors.of(tensor, role, is_changed=True)
                if tensor.requires_grad:
                    replaced[id(tensor)] = own[name]
        for name, value in module.__dict__.items():
            if type(value) is torch.Tensor and value.layout is torch.strided:
                module.__dict__[name] = tensors.of(value, _BUFFER)
    if not is_trained:
        return
    # Modules may keep parameters a second time: recurrent layers have a list.
    for container in containers_in(model):
        base: Any = dict if isinstance(container, dict) else list
        if isinstance(container, base):
            items = base.items(container) if base is dict else enumerate(base.__iter__(container))
            for key, value in list(items):
                if id(value) in replaced:
                    base.__setitem__(container, key, replaced[id(value)])
