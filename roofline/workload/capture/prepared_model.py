"""A model prepared to run on replacement tensors, any number of times, and restored afterwards."""

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
from roofline.workload.capture.fake_tensors import FakeTensors, silence_fake_tensor_log
from roofline.workload.capture.model_errors import FakesUnsupportedError
from roofline.workload.capture.module_stack import block_other_threads
from roofline.workload.capture.operands import cache_unpacked, tensors_in
from roofline.workload.capture.real_tensors import RealTensors, ReplacementTensors
from roofline.workload.capture.restoration import (
    containers_in,
    restore_process_state,
    restore_state,
    restore_tensors,
)
from roofline.workload.capture.training import StepListener, TrainingStep
from roofline.workload.inputs import Inputs
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import input_dtype, torch_dtype

_PARAMETER, _BUFFER = Role.PARAMETER, Role.BUFFER


@dataclass(slots=True)
class PreparedModel:
    """A model with replaced tensors, and its arguments.

    ``given`` maps storages to inputs. ``optimizer`` is set by `prepare`.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    given: Mapping[int, torch.Tensor]
    run: Run
    tensors: ReplacementTensors
    training_step: TrainingStep | None
    optimizer: torch.optim.Optimizer | None = None

    def prepare(self, listener: StepListener) -> None:
        """Create the optimizer and its state, for a training step."""
        if self.training_step is not None:
            self.optimizer = self.training_step.prepare(self.model, self.tensors, listener)

    def step(self, listener: StepListener) -> Any:
        """Run one pass or training step; return the objects that must stay alive until its end."""
        loss = None
        with _autocast(self.run, self.tensors):
            result = self.model(*self.args, **self.kwargs)
            if self.training_step is not None:
                listener.note_parameter_owners(self.model)
                with listener.part("<loss>"):
                    loss = self.training_step.loss(result, self.tensors, listener)
        # Leaving autocast clears the cache, unless the caller has autocast on too.
        torch.clear_autocast_cache()
        if self.training_step is not None and loss is not None:
            leaves = (*self.model.parameters(), *self.given.values())
            self.training_step.end(leaves, loss, self.optimizer, listener)
        return result, loss


@contextlib.contextmanager
def prepare_model(
    model: torch.nn.Module,
    inputs: Inputs,
    run: Run,
    tensors: ReplacementTensors,
    training_step: TrainingStep | None = None,
) -> Iterator[PreparedModel]:
    """Replace the tensors of `model` and set its mode; restore it afterwards.

    Raises:
        FakesUnsupportedError: `tensors` are fake, and the model does not support them.
    """
    change = torch_dtype(run.dtype) if run.dtype else None
    with (
        # Other threads cannot use fake tensors; real copies, which may be timed, work for them too.
        block_other_threads(model)
        if isinstance(tensors, FakeTensors)
        else contextlib.nullcontext(),
        restore_process_state(),
        restore_state(model, inputs.args, inputs.kwargs),
        silence_fake_tensor_log(),
        cache_unpacked(),
        warnings.catch_warnings(),
        # Inference mode would keep composite operators whole.
        torch.inference_mode(False),
        torch.set_grad_enabled(run.train),
        torch.autograd.set_detect_anomaly(False),
        # An autocast of the caller must not affect the pass.
        _autocast(replace(run, autocast=""), tensors),
    ):
        # Nested tensors are replaced by dense ones, and a note says so.
        warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
        _replace_tensors(model, tensors, is_trained=run.train)
        # Only real runs can change tensors without a replacement: those in lists, objects,
        # functions and TorchScript.
        others = (
            restore_tensors(model, inputs.args, inputs.kwargs, but=tensors.storages)
            if isinstance(tensors, RealTensors)
            else contextlib.nullcontext()
        )
        with others, tensors.mode:
            # Last, because train() and eval() of a model may change its weights.
            try:
                model.train(run.train)
            except NotImplementedError:
                # Exported programs have one fixed mode and reject train() and eval().
                for module in model.modules():
                    module.training = run.train
            args, kwargs = inputs.build(
                lambda request: tensors.make_input(request, input_dtype(request, change))
            )
            given = {each.untyped_storage()._cdata: each for each in tensors_in([args, kwargs])}
            stage = PreparedModel(model, args, kwargs, given, run, tensors, training_step)
            yield stage
            stage.optimizer = None


@contextlib.contextmanager
def _autocast(run: Run, tensors: ReplacementTensors) -> Iterator[None]:
    """Set autocast of the run's device, on or off; for real tensors also that of the CPU."""
    devices = {"cuda" if run.device == "cuda" else "cpu"}
    if isinstance(tensors, RealTensors):
        devices.add("cpu")
    to = torch_dtype(run.autocast) if run.autocast else None
    with contextlib.ExitStack() as stack:
        for device in sorted(devices):
            stack.enter_context(torch.autocast(device, to, enabled=to is not None))
        yield


def _replace_tensors(
    model: torch.nn.Module, tensors: ReplacementTensors, *, is_trained: bool
) -> None:
    """Replace the model's parameters and buffers by `tensors`."""
    replaced: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            if is_trained:
                raise ModelError(
                    f"{type(module).__name__} is TorchScript, which cannot be trained here; pass"
                    " the torch.nn.Module that it was made from"
                )
            if isinstance(tensors, RealTensors):
                # It runs on its own tensors.
                for kept, role in ((module.parameters, _PARAMETER), (module.buffers, _BUFFER)):
                    for tensor in kept(recurse=False):
                        tensors.keep(tensor, role)
                continue
            raise FakesUnsupportedError(
                f"{type(module).__name__} is TorchScript, whose parameters cannot be replaced;"
                " pass the torch.nn.Module that it was made from"
            )
        for own, role in ((module._parameters, _PARAMETER), (module._buffers, _BUFFER)):
            for name, tensor in own.items():
                if tensor is None:
                    continue
                kind = type(module).__name__
                if is_lazy(tensor):
                    raise ModelError(
                        f"{kind} has an uninitialized lazy parameter '{name}';"
                        " run the model once on a real input first"
                    )
                if tensor.layout is not torch.strided:
                    raise ModelError(
                        f"{kind}: '{name}' is a sparse tensor, which is not supported;"
                        " make it dense"
                    )
                own[name] = tensors.replacement_for(tensor, role, is_changed=True)
                if tensor.requires_grad:
                    replaced[id(tensor)] = own[name]
        for name, value in module.__dict__.items():
            if type(value) is torch.Tensor and value.layout is torch.strided:
                module.__dict__[name] = tensors.replacement_for(value, _BUFFER)
    if not is_trained:
        return
    # Modules may hold parameters twice: recurrent layers also keep a list.
    for container in containers_in(model):
        base: Any = dict if isinstance(container, dict) else list
        if isinstance(container, base):
            items = base.items(container) if base is dict else enumerate(base.__iter__(container))
            for key, value in list(items):
                if id(value) in replaced:
                    base.__setitem__(container, key, replaced[id(value)])
