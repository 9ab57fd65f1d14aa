"""Capture of a model: one recorded pass on fake tensors, or on real ones if it needs values.

The model runs under a `TorchDispatchMode`. Records are the aten calls of its eager run, after
decomposition of composite operators.
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
from roofline.errors import ModelError, RooflineError, argument
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
"""One capture at a time: hooks are global, and the model's own tensors are replaced meanwhile."""

_QUICK_BYTE = 2**28
"""Weights up to this size allocate in under a second: any failure is retried on real tensors."""

_FREE_MEMORY_SHARE = 0.25
"""Largest share of free memory for the weights of a real pass, of which two copies exist."""

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
    """Run `model` once on fake tensors and return its records: inference, or a training step.

    If fake tensors do not support the model (control flow on values, code outside torch), it runs
    again on real tensors, and ``notes`` mention it.

    Args:
        model: any module, on a real or the meta device; left unchanged.
        inputs: the arguments of the call.
        name: name of the model in messages.
        run: settings of the run [default: inference].
        training: loss and optimizer of a training step.
        rebuild: creates the model with its weights, if `model` has none.
        on_call: creates a listener for recorded calls, once per attempted pass; the last one
            created received the calls in ``records``.

    Raises:
        ModelError: the model raised; the message names the module and quotes torch.
    """
    run, training = run or Run(), training or TrainingConfig()

    def tried(model: torch.nn.Module, tensors: ReplacementTensors) -> Capture:
        paths: dict[int, str] = {}
        training_step = training.new_step() if run.train else None
        listener = on_call() if on_call is not None else None
        try:
            paths.update(module_paths(model))
            return run_single_pass(model, inputs, paths, run, tensors, training_step, listener)
        except (KeyboardInterrupt, RooflineError):
            raise
        except FakesUnsupportedError as error:
            raise PassError(ModelError(str(error)), error) from None
        # A model may raise anything, including SystemExit; no traceback reaches the user.
        except BaseException as error:
            if tensors.used_in_other_thread:
                # A pass on real tensors would not detect that.
                raise other_thread_error("part of the model") from error
            raise PassError(model_error(error, name, paths), error) from error

    # Dispatch modes of the caller must not see the pass.
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
                f"{first.model_error} (a run on real tensors needs {format_bytes(byte)} of weights,"
                " too many for the free memory)"
            ) from first.error
        try:
            with torch.random.fork_rng(devices=[]):
                # Fixed seed: the same command gives the same result.
                torch.manual_seed(0)
                real = materialize(model, rebuild)
                if real is None:
                    raise first.model_error from first.error
                captured = tried(real, RealTensors(run))
        except PassError as second:
            # Two failures: the first is reported unless fake tensors caused it.
            is_another = type(first.error) is not type(second.error)
            if is_another and not first.needs_values:
                raise first.model_error from first.error
            raise second.model_error from second.error
        where = "real tensors" if run.device == "cpu" else "real tensors on the CPU"
        are_given = all(
            request.like is not None and tuple(request.like.shape) == request.shape
            for _, request in inputs.requests()
        )
        kind = "the given inputs" if are_given else "random and zero inputs"
        note = f"{name} ran on {where} with {kind} ({first.reason})"
        notes = (f"{note}: other inputs may give other counts", *captured.notes)
        return replace(captured, notes=notes)


def run_on_fakes(model: torch.nn.Module, inputs: Inputs, *, name: str, run: Run) -> Any:
    """Return the result of `model` on fake tensors; inference only, arguments as for `capture`."""
    paths, tensors = module_paths(model), FakeTensors(run)
    # Calls operators as a recorded pass does: torch's fake mode alone rejects some.
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
    """Run `model` once on `tensors` and restore it; exceptions of the model pass through."""
    with prepare_model(model, inputs, run, tensors, training_step) as stage:
        recording = Recording(stage, paths, is_first=True, on_call=on_call)
    return recording.capture()


class Recording:
    """One recorded pass of a prepared model; call `capture` once the model is restored.

    ``paths`` maps the identity of each module to its path. ``is_first``: the optimizer has yet to
    be created.
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
            # Kept until the pass is over, as a caller keeps the result.
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
        """Record gradients in the order of DistributedDataParallel, by the same kind of hook."""

        def note(name: str, parameter: torch.Tensor) -> None:
            # Once per pass: of repeated accumulations the last one counts.
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
        """Wait until only the tensors in `left` are alive, up to a time limit.

        A thread that samples the frames of others (a profiler, Dask's workers) holds their local
        variables a moment longer; tensors alive after a pass count as its results.
        """
        expected = self._operands.storages(tensors_in(left))
        end = time.monotonic() + _RELEASE_TIMEOUT_S
        while self._operands.alive() - expected and time.monotonic() < end:
            time.sleep(0.001)

    def capture(self) -> Capture:
        """Return the records and totals of the pass."""
        stage, in_thread = self._stage, self._modules.other_thread_module
        run, training_step = stage.run, stage.training_step
        if in_thread is not None or stage.tensors.used_in_other_thread:
            raise other_thread_error(
                f"module '{in_thread}'" if in_thread is not None else "part of the model"
            )
        parameters = self._parameters
        return Capture(
            run=replace(run, loss=training_step.loss_description) if training_step else run,
            records=tuple(self.recorder.records),
            parameters=sum(each.elements for each in parameters.values()),
            parameter_size_bytes=sum(each.used_bytes for each in parameters.values()),
            buffer_size_bytes=sum(
                each.used_bytes for key, each in self._buffers.items() if key not in parameters
            ),
            input_bytes=sum(each.nbytes for each in stage.given.values())
            + (training_step.target_bytes if training_step else 0),
            optimizer_state_bytes=training_step.state_bytes if training_step else 0,
            modules=tuple(self._in_order()),
            gradients=tuple(self._gradients.values()),
            trained=tuple(
                TrainedParameter(parameter=name, elements=each.numel(), dtype=dtype_of(each.dtype))
                for name, each in self._trained.items()
            ),
            notes=tuple(self._notes()),
        )

    def _in_order(self) -> Iterator[Module]:
        """Yield modules in the order of their first calls, then those that did not run."""
        known = {each.path: each for each in self._found}
        for path, calls in self._modules.calls.items():
            # Modules created during the pass are named by their class.
            kind = path.rpartition(".")[2].strip("<>")
            made = Module(path=path, kind=kind, calls=0, parameters=0)
            yield replace(known.pop(path, made), calls=calls)
        yield from known.values()

    def _notes(self) -> Iterator[str]:
        if any(map(is_compiled, self._stage.model.modules())):
            yield (
                "compiled modules are counted as run without torch.compile, whose fused kernels are"
                f" not visible here ({argument('fused', True)} shows traffic after operator fusion)"
            )
        if any(each.op == "aten._nested_tensor_from_mask" for each in self.recorder.records):
            yield (
                "torch's fast path for transformers skips padding, as the mask's values say: FLOP"
                " and traffic include all tokens, minimum times one token"
            )
        if self._modules.in_training and not self._stage.run.train:
            names = ", ".join(sorted(self._modules.in_training))
            yield (
                f"{names} ran in training mode: not a registered submodule, so model.eval() has no"
                " effect on it"
            )
        if isinstance(self._stage.tensors, FakeTensors) and self._operands.alive():
            gc.collect()
            if self._operands.alive():
                yield (
                    "the model keeps fake tensors of this analysis in a cache outside its modules;"
                    " create it again before you run it"
                )


def module_paths(model: torch.nn.Module) -> dict[int, str]:
    """Return the path of each module by identity, without the wrappers of torch.compile."""
    return {id(module): without_compile_wrapper(path) for path, module in model.named_modules()}


def _modules_in(model: torch.nn.Module) -> tuple[Module, ...]:
    """Return every module of `model` with its own parameters, packed ones included.

    Shared parameters belong to the first module.
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
    """Return the size of all parameters and buffers, in bytes."""
    kept = (*model.parameters(), *model.buffers())
    return sum(each.nbytes for each in kept if each.layout is torch.strided)


def fits_in_memory(weight_bytes: int) -> bool:
    """Return whether free memory allows a real run with weights of this size."""
    return weight_bytes <= _FREE_MEMORY_SHARE * psutil.virtual_memory().available


def materialize(
    model: torch.nn.Module, rebuild: Callable[[], torch.nn.Module] | None
) -> torch.nn.Module | None:
    """Return the model with real tensors, built by `rebuild` if needed; None if impossible."""
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
