"""Captures a model: one recorded pass, on fake tensors, or on real ones where it needs values.

The model runs under a `TorchDispatchMode`, so the records are the aten calls that its eager run
makes on a CPU, after every composite operator took itself apart.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import psutil
import torch
from torch.utils._python_dispatch import _disable_current_modes

from roofline.core.units import format_bytes
from roofline.errors import ModelError, RooflineError
from roofline.run import Run
from roofline.workload.capture import cuda_emulation
from roofline.workload.capture.fake_tensors import FakeTensors, match_kernel_calls
from roofline.workload.capture.model_errors import (
    FakesUnsupportedError,
    PassError,
    model_error,
    other_thread_error,
    raise_as_model_error,
)
from roofline.workload.capture.module_stack import ModuleStack, is_compiled, without_compile_wrapper
from roofline.workload.capture.operands import Operands, packed_tensors, storage_use, tensors_in
from roofline.workload.capture.prepared_model import PreparedModel, prepare_model
from roofline.workload.capture.real_tensors import RealTensors, ReplacementTensors
from roofline.workload.capture.recorder import OnCall, Recorder
from roofline.workload.capture.training import TrainingConfig, TrainingStep
from roofline.workload.inputs import Inputs
from roofline.workload.operators import Capture, Gradient, Module, TrainedParameter
from roofline.workload.torch_dtypes import dtype_of

capture_lock = threading.RLock()
"""Hooks are global, and a model's own tensors are away while it runs: one capture at a time."""

_QUICK_BYTE = 2**28
"""Weights up to this size are made in well under a second: any failure is worth a second try."""

_FREE_MEMORY_SHARE = 0.25
"""Of the free memory, the most that the weights of a real pass may take: they are there twice, and
activations come on top."""

_RELEASE_TIMEOUT_S = 0.02


def capture(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    name: str,
    run: Run | None = None,
    training: TrainingConfig | None = None,
    rebuild: Callable[[], torch.nn.Module] | None = None,
    on_call: Callable[[], OnCall] | None = None,
) -> Capture:
    """Runs `model` once on fake tensors: in eval mode without gradients, or a step of training.

    Where that fails for something that fake tensors cannot do (control flow that depends on values,
    code that leaves torch), it runs once more on real ones, and ``notes`` say so.

    Args:
        model: any module, built for real or on the meta device; it is left as it was.
        inputs: what it is called with.
        name: what messages call the model.
        run: by default inference as the model is.
        training: how it is trained, if it is.
        rebuild: makes the model with its weights, where `model` has none.
        on_call: makes what is told of each recorded call, again for every pass that is tried: the
            last one made was told of the calls in ``records``.

    Raises:
        ModelError: the model raised; the message says in which module, and what torch said.
    """
    run, training = run or Run(), training or TrainingConfig()

    def tried(model: torch.nn.Module, tensors: ReplacementTensors) -> Capture:
        paths: dict[int, str] = {}
        training_step = training.new_step() if run.train else None
        told = on_call() if on_call is not None else None
        try:
            paths.update(module_paths(model))
            return run_single_pass(model, inputs, paths, run, tensors, training_step, told)
        except (KeyboardInterrupt, RooflineError):
            raise
        except FakesUnsupportedError as error:
            raise PassError(ModelError(str(error)), error) from None
        # A model may raise anything, SystemExit too; none of it may end in a traceback.
        except BaseException as error:
            if tensors.used_in_other_thread:
                # A pass on real tensors would not see that.
                raise other_thread_error("a part of it") from error
            raise PassError(model_error(error, name, paths), error) from error

    # What looks on at its caller has no part in it.
    with capture_lock, _disable_current_modes():
        try:
            return tried(model, FakeTensors(run))
        except PassError as failure:
            first = failure
        byte = weights_bytes(model)
        if byte > _QUICK_BYTE and not first.needs_values:
            raise first.model_error from first.error
        if not fits_in_memory(byte):
            raise ModelError(
                f"{first.model_error} (its {format_bytes(byte)} of weights are too many to run it for"
                " real)"
            ) from first.error
        try:
            with torch.random.fork_rng(devices=[]):
                # The same noise every time, so that the same command gives the same answer.
                torch.manual_seed(0)
                real = materialize(model, rebuild)
                if real is None:
                    raise first.model_error from first.error
                captured = tried(real, RealTensors(run))
        except PassError as second:
            # Two reasons for two passes: where the first was no fault of the fakes, it is the one.
            is_another = type(first.error) is not type(second.error)
            if is_another and not first.needs_values:
                raise first.model_error from first.error
            raise second.model_error from second.error
        where = "for real" if run.device == "cpu" else "for real and on the CPU"
        are_given = all(
            request.like is not None and tuple(request.like.shape) == request.shape
            for _, request in inputs.requests()
        )
        kind = "the given inputs" if are_given else "inputs of noise and zeros"
        note = f"{name} ran {where}, on {kind} ({first.reason})"
        notes = (f"{note}: what it does with others may differ", *captured.notes)
        return replace(captured, notes=notes)


def run_on_fakes(model: torch.nn.Module, inputs: Inputs, *, name: str, run: Run) -> Any:
    """What `model` returns, its tensors without memory; for inference, else as `capture`."""
    paths, tensors = module_paths(model), FakeTensors(run)
    # Calls operators as a recorded pass does: fakes of torch's alone would refuse some.
    recorder = Recorder(tensors, ModuleStack(paths), Operands(tensors.roles))
    with (
        capture_lock,
        raise_as_model_error(name, paths),
        prepare_model(model, inputs, run, tensors) as stage,
        recorder,
        recorder.paused(),
        cuda_emulation.emulate_cuda(run),
    ):
        return model(*stage.args, **stage.kwargs)


def run_single_pass(
    model: torch.nn.Module,
    inputs: Inputs,
    paths: Mapping[int, str],
    run: Run,
    tensors: ReplacementTensors,
    training_step: TrainingStep | None = None,
    on_call: OnCall | None = None,
) -> Capture:
    """Runs `model` once, on `tensors`, and leaves it as it was; raises whatever it raises."""
    with prepare_model(model, inputs, run, tensors, training_step) as stage:
        recording = Recording(stage, paths, is_first=True, on_call=on_call)
    return recording.capture()


class Recording:
    """One pass on a stage, every operator recorded; `capture` is asked when the model has its own
    tensors again.

    ``paths`` are those of every module that the model knows of, by identity; ``is_first``: what is
    trained has yet to be prepared.
    """

    def __init__(
        self,
        stage: PreparedModel,
        paths: Mapping[int, str],
        *,
        is_first: bool,
        on_call: OnCall | None = None,
    ) -> None:
        model = stage.model
        self._stage = stage
        self._modules = ModuleStack(paths)
        self._parameters = storage_use((*model.parameters(), *packed_tensors(model.modules())))
        self._buffers = storage_use(model.buffers())
        self._found = _modules_in(model)
        self._operands = Operands(stage.tensors.roles)
        self.recorder = Recorder(stage.tensors, self._modules, self._operands, on_call)
        self._gradients: dict[str, Gradient] = {}
        self._trained = {
            name: each
            for name, each in model.named_parameters()
            if stage.run.train and each.requires_grad
        }
        with (
            self._modules.watch(model),
            self.recorder,
            cuda_emulation.emulate_cuda(stage.run),
            match_kernel_calls(),
        ):
            if is_first:
                stage.prepare(self.recorder)
            # Dropped only when the pass is over: the result is alive all the time.
            with self._note_gradients():
                alive = stage.step(self.recorder)
            states = stage.optimizer.state if stage.optimizer is not None else {}
            for name, parameter in model.named_parameters():
                if name in self._gradients:
                    kept = tensors_in(dict(states.get(parameter, {})))
                    self._gradients[name] = replace(
                        self._gradients[name], state_bytes=sum(each.nbytes for each in kept)
                    )
        self._await_release((alive, [each.grad for each in model.parameters()]))
        self.recorder.note_dropped()

    @contextlib.contextmanager
    def _note_gradients(self) -> Iterator[None]:
        """While this is open, gradients are written down in the order in which
        DistributedDataParallel sees them: both hooks follow the node that accumulates."""

        def note(name: str, parameter: torch.Tensor) -> None:
            # Once a pass; where the backward pass goes through it again, the last time counts.
            self._gradients.pop(name, None)
            self._gradients[name] = Gradient(
                parameter=name,
                elements=parameter.numel(),
                dtype=dtype_of(parameter.dtype),
                after=self.recorder.operators,
                storage=min(self._operands.storages(tensors_in(parameter.grad))),
            )

        with contextlib.ExitStack() as after:
            for name, each in self._trained.items():
                handle = each.register_post_accumulate_grad_hook(functools.partial(note, name))
                after.callback(handle.remove)
            yield

    def _await_release(self, left: object) -> None:
        """Wait until only the tensors in `left` are left, or the model evidently keeps more.

        A thread that samples the frames of others (a profiler, Dask's workers) holds their local
        variables for a moment longer, and what is left after a pass counts as written by it.
        """
        expected = self._operands.storages(tensors_in(left))
        end = time.monotonic() + _RELEASE_TIMEOUT_S
        while self._operands.alive() - expected and time.monotonic() < end:
            time.sleep(0.001)

    def capture(self) -> Capture:
        """What the model asked for."""
        stage, elsewhere = self._stage, self._modules.other_thread_module
        run, training_step = stage.run, stage.training_step
        if elsewhere is not None or stage.tensors.used_in_other_thread:
            raise other_thread_error(
                f"module '{elsewhere}'" if elsewhere is not None else "a part of it"
            )
        parameters = self._parameters
        return Capture(
            run=replace(run, loss=training_step.loss_description)
            if training_step is not None
            else run,
            records=tuple(self.recorder.records),
            parameters=sum(each.elements for each in parameters.values()),
            parameter_size_bytes=sum(each.used_bytes for each in parameters.values()),
            buffer_size_bytes=sum(
                each.used_bytes for key, each in self._buffers.items() if key not in parameters
            ),
            input_bytes=sum(each.nbytes for each in stage.given.values())
            + (training_step.target_bytes if training_step is not None else 0),
            optimizer_state_bytes=training_step.state_bytes if training_step is not None else 0,
            modules=tuple(self._in_order()),
            gradients=tuple(self._gradients.values()),
            trained=tuple(
                TrainedParameter(parameter=name, elements=each.numel(), dtype=dtype_of(each.dtype))
                for name, each in self._trained.items()
            ),
            notes=tuple(self._notes()),
        )

    def _in_order(self) -> Iterator[Module]:
        """Every module that ran, in the order of first calls, then those that did not."""
        known = {each.path: each for each in self._found}
        for path, calls in self._modules.calls.items():
            # What was made during the pass is named by its class.
            kind = path.rpartition(".")[2].strip("<>")
            made = Module(path=path, kind=kind, calls=0, parameters=0)
            yield replace(known.pop(path, made), calls=calls)
        yield from known.values()

    def _notes(self) -> Iterator[str]:
        if any(map(is_compiled, self._stage.model.modules())):
            yield (
                "compiled modules are counted as they run without torch.compile: its kernels, which"
                " join operators, cannot be seen (--fused shows what joining them saves)"
            )
        if any(each.op == "aten._nested_tensor_from_mask" for each in self.recorder.records):
            yield (
                "torch's fast path for transformers drops padding, and the mask's values decide how"
                " much: FLOP and traffic count all tokens, minimum times one token"
            )
        if self._modules.in_training and not self._stage.run.train:
            names = ", ".join(sorted(self._modules.in_training))
            yield (
                f"{names} ran in training mode: torch does not know it as part of the model, so"
                " model.eval() does not reach it"
            )
        if isinstance(self._stage.tensors, FakeTensors) and self._operands.alive():
            gc.collect()
            if self._operands.alive():
                yield (
                    "the model keeps tensors of this analysis where they could not be taken out"
                    " again (in a cache outside its modules); make it anew before you run it"
                )


def module_paths(model: torch.nn.Module) -> dict[int, str]:
    """The paths of a model's modules as its user knows them, by their identity."""
    return {id(module): without_compile_wrapper(path) for path, module in model.named_modules()}


def _modules_in(model: torch.nn.Module) -> tuple[Module, ...]:
    """Every module of `model`, before it is called, each with the parameters that are its own.

    Packed parameters are counted too. What several modules share is the first one's.
    """
    seen: set[int] = set()
    found: list[Module] = []
    for path, module in model.named_modules():
        elements = 0
        for each in (*module._parameters.values(), *packed_tensors([module])):
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                elements += each.numel()
        found.append(Module(path=path, kind=type(module).__name__, calls=0, parameters=elements))
    return tuple(found)


def weights_bytes(model: torch.nn.Module) -> int:
    """The bytes of all parameters and buffers."""
    kept = (*model.parameters(), *model.buffers())
    return sum(each.nbytes for each in kept if each.layout is torch.strided)


def fits_in_memory(weight_bytes: int) -> bool:
    """Whether there is memory to run a model with weights of so many bytes for real."""
    return weight_bytes <= _FREE_MEMORY_SHARE * psutil.virtual_memory().available


def materialize(
    model: torch.nn.Module, rebuild: Callable[[], torch.nn.Module] | None
) -> torch.nn.Module | None:
    """The model with real tensors in it, by `rebuild` if it was built without; None: it cannot."""
    if not any(each.is_meta for each in (*model.parameters(), *model.buffers())):
        return model
    if rebuild is None:
        return None
    try:
        return rebuild()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
