"""Captures a model: one recorded pass, on fake tensors, or on real ones where it needs values.

The model runs under a `TorchDispatchMode`, so the records are the aten calls that its eager run
makes on a CPU, after every composite operator took itself apart.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from roofline.errors import ModelError, RooflineError
from roofline.foundation.units import format_bytes
from roofline.run import Run
from roofline.workload.capture import without_cuda
from roofline.workload.capture.failures import NoFakesError, PassError, model_error, ran_elsewhere
from roofline.workload.capture.fakes import Fakes, same_calls_as_kernels
from roofline.workload.capture.module_stack import ModuleStack, is_compiled, path_of_own
from roofline.workload.capture.operands import Operands, packed_in, tensors_in, unpacked
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.recorder import OnCall, Recorder
from roofline.workload.capture.stage import Stage, staged
from roofline.workload.capture.training import Lesson
from roofline.workload.capture.training import Teaching as Teaching
from roofline.workload.inputs import Inputs
from roofline.workload.operators import Capture, Gradient, Module, OperatorRecord, Trained
from roofline.workload.torch_dtypes import dtype_of


def result_on_fakes(model: torch.nn.Module, inputs: Inputs, *, name: str, run: Run) -> Any:
    """What `model` returns, its tensors without memory; for inference.

    Args:
        model: any module; it is left as it was.
        inputs: what it is called with.
        name: what messages call it.
        run: in which types it is run.

    Raises:
        ModelError: the model raised.
    """
    paths = {id(each): path_of_own(path) for path, each in model.named_modules()}
    tensors = Fakes(run)
    with one_at_a_time:
        try:
            with (
                staged(model, inputs, run, tensors) as stage,
                _Calls(tensors),
                without_cuda.made_up_for(run),
            ):
                return model(*stage.args, **stage.kwargs)
        except (KeyboardInterrupt, RooflineError):
            raise
        # A model may raise anything, SystemExit too; none of it may end in a traceback.
        except BaseException as error:
            raise model_error(error, name, paths) from error


class _Calls(TorchDispatchMode):
    """Calls operators as a recorded pass does: fakes of torch's alone would refuse some."""

    def __init__(self, tensors: Fakes) -> None:
        super().__init__()
        self._tensors = tensors

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        put = self._tensors.in_place_of
        named = {key: put(value) for key, value in (kwargs or {}).items()}
        return self._tensors.call(func, tuple(map(put, args)), named)


class Told(Protocol):
    """How far a pass is, and what tensors are in its records."""

    @property
    def operators(self) -> int:
        """How many operators have a record."""
        ...

    def storages(self, tensors: Iterable[torch.Tensor]) -> frozenset[int]:
        """Numbers of the storages that tensors lie in."""
        ...


@dataclass(slots=True, kw_only=True)
class Gradients:
    """The gradients of one pass, in the order in which they were done.

    ``trained`` are the parameters that may get one, in the model's order.
    """

    found: list[Gradient] = field(default_factory=list[Gradient])
    trained: tuple[Trained, ...] = ()

    def note_states(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """Writes down what the optimizer keeps for each parameter."""
        named = dict(model.named_parameters())
        kept = optimizer.state if optimizer is not None else {}
        self.found = [
            replace(
                each,
                state_bytes=sum(
                    tensor.nbytes
                    for tensor in tensors_in(dict(kept.get(named[each.parameter], {})))
                ),
            )
            for each in self.found
        ]


@contextlib.contextmanager
def noting_gradients(model: torch.nn.Module, is_trained: bool, told: Told) -> Iterator[Gradients]:
    """While this is open, gradients of `model` are written down as they are accumulated.

    The order is that in which DistributedDataParallel sees them: both hooks follow the node that
    accumulates.

    Args:
        model: whose parameters, those that are trained.
        is_trained: whether any is: an inference pass has no gradients.
        told: what is asked at each gradient.
    """
    trained = {
        name: each for name, each in model.named_parameters() if is_trained and each.requires_grad
    }
    noted = Gradients(
        trained=tuple(
            Trained(parameter=name, elements=each.numel(), dtype=dtype_of(each.dtype))
            for name, each in trained.items()
        )
    )
    done: set[str] = set()
    handles = [
        each.register_post_accumulate_grad_hook(_noting(noted.found, done, name, told))
        for name, each in trained.items()
    ]
    try:
        yield noted
    finally:
        for handle in handles:
            handle.remove()


def _noting(
    found: list[Gradient], done: set[str], name: str, told: Told
) -> Callable[[torch.Tensor], None]:
    def note(parameter: torch.Tensor) -> None:
        # Once a pass, unless the backward pass goes through it again: then the last time counts.
        if name in done:
            found[:] = [each for each in found if each.parameter != name]
        done.add(name)
        found.append(
            Gradient(
                parameter=name,
                elements=parameter.numel(),
                dtype=dtype_of(parameter.dtype),
                after=told.operators,
                storage=min(told.storages(tensors_in(parameter.grad))),
            )
        )

    return note


def modules_in(model: torch.nn.Module) -> tuple[Module, ...]:
    """Every module of `model`, before it is called, each with the parameters that are its own.

    Packed parameters are counted too. What several modules share is the first one's.
    """
    seen: set[int] = set()
    found: list[Module] = []
    for path, module in model.named_modules():
        elements = 0
        for each in (*module._parameters.values(), *_packed(module)):
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                elements += each.numel()
        kind = type(module).__name__
        found.append(Module(path=path, kind=kind, calls=0, parameters=elements))
    return tuple(found)


def _packed(module: torch.nn.Module) -> Iterable[torch.Tensor | None]:
    for value in module.__dict__.values():
        if type(value) is torch.ScriptObject:
            yield from unpacked(value) or ()


def in_order(modules: Iterable[Module], calls: Mapping[str, int]) -> tuple[Module, ...]:
    """Every module that ran, in the order of `calls`, then those of `modules` that did not.

    Args:
        modules: those of the model; what was made during the pass is named by its class.
        calls: how often each module ran, by its path.
    """
    known = {each.path: each for each in modules}
    ran: list[Module] = []
    for path, count in calls.items():
        module = known.pop(path, None)
        kind = module.kind if module else path.rpartition(".")[2].strip("<>")
        parameters = module.parameters if module else 0
        ran.append(Module(path=path, kind=kind, calls=count, parameters=parameters))
    return (*ran, *known.values())


def _by_storage(tensors: Iterable[torch.Tensor]) -> dict[int, tuple[int, int]]:
    """Elements and bytes in each storage, by its address; the same place counts once."""
    places: set[tuple[object, ...]] = set()
    found: dict[int, tuple[int, int]] = {}
    for each in tensors:
        storage = each.untyped_storage()
        address, byte = storage._cdata, each.nbytes
        if byte < storage.nbytes():
            # Others may lie beside it, or over it; overlapping views have no more than all of it.
            place = (address, each.storage_offset(), each.shape, each.stride())
            if place in places:
                continue
            places.add(place)
            byte = min(found.get(address, (0, 0))[1] + byte, storage.nbytes())
        else:
            byte = storage.nbytes()
        found[address] = byte // each.element_size(), byte
    return found


def single_pass(
    model: torch.nn.Module,
    inputs: Inputs,
    paths: Mapping[int, str],
    run: Run,
    tensors: Fakes | Reals,
    lesson: Lesson | None = None,
    on_call: OnCall | None = None,
) -> Capture:
    """Runs `model` once, in eval mode and without gradients or one step of training, and leaves it
    as it was.

    Args:
        model: any module.
        inputs: what it is called with.
        paths: the path of every module that it knows of, by identity.
        run: in which types and layout, and whether it is trained.
        tensors: make what stands in the place of its own tensors and of the inputs.
        lesson: how it is trained, if it is.
        on_call: told of each call that is recorded.

    Raises:
        ModelError: what it does cannot be seen.
        NoFakesError: `tensors` are fakes, and it cannot be given such.
        BaseException: whatever the model raises.
    """
    with staged(model, inputs, run, tensors, lesson) as stage:
        recording = record(stage, paths, is_first=True, on_call=on_call)
        stage.optimizer = None
    return recording.capture()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One pass, recorded; `capture` is asked when the model has its own tensors again."""

    stage: Stage
    recorder: Recorder
    modules: ModuleStack
    operands: Operands
    found: tuple[Module, ...]
    parameters: Mapping[int, tuple[int, int]]
    buffers: Mapping[int, tuple[int, int]]
    gradients: Gradients

    def capture(self) -> Capture:
        """What the model asked for.

        Raises:
            ModelError: some of it ran where it cannot be seen.
        """
        stage, modules = self.stage, self.modules
        run, tensors, lesson = stage.run, stage.tensors, stage.lesson
        if modules.elsewhere is not None or tensors.were_used_elsewhere:
            is_known = modules.elsewhere is not None
            raise ran_elsewhere(f"module '{modules.elsewhere}'" if is_known else "a part of it")
        records = self.recorder.records
        buffers = (byte for key, (_, byte) in self.buffers.items() if key not in self.parameters)
        return Capture(
            run=replace(run, loss=lesson.said) if lesson is not None else run,
            records=tuple(records),
            parameters=sum(elements for elements, _ in self.parameters.values()),
            parameter_size_bytes=sum(byte for _, byte in self.parameters.values()),
            buffer_size_bytes=sum(buffers),
            input_bytes=sum(each.nbytes for each in stage.given.values())
            + (lesson.target_bytes if lesson is not None else 0),
            optimizer_state_bytes=lesson.state_bytes if lesson is not None else 0,
            modules=in_order(self.found, modules.calls),
            gradients=tuple(self.gradients.found),
            trained=self.gradients.trained,
            notes=tuple(_notes(stage.model, modules, self.operands, tensors, run, records)),
        )


def record(
    stage: Stage, paths: Mapping[int, str], *, is_first: bool, on_call: OnCall | None = None
) -> Recording:
    """One pass on `stage`, every operator recorded.

    Args:
        stage: what runs.
        paths: the path of every module that the model knows of, by identity.
        is_first: whether what is trained has yet to be prepared.
        on_call: told of each call that is recorded.

    Raises:
        BaseException: whatever the model raises.
    """
    model = stage.model
    modules = ModuleStack(paths)
    parameters, buffers = _by_storage(model.parameters()), _by_storage(model.buffers())
    packed = _by_storage(packed_in(model))
    found = modules_in(model)
    operands = Operands(stage.tensors.roles)
    recorder = Recorder(stage.tensors, modules, operands, on_call)
    with (
        modules.watching(model),
        recorder,
        without_cuda.made_up_for(stage.run),
        same_calls_as_kernels(),
    ):
        if is_first:
            stage.prepare(recorder)
        # Dropped only when the pass is over: the result is alive all the time.
        with noting_gradients(model, stage.run.train, recorder) as gradients:
            alive = stage.step(recorder, modules)
        gradients.note_states(model, stage.optimizer)
    _await_release(operands, (alive, [each.grad for each in model.parameters()]))
    recorder.note_dropped()
    del alive
    return Recording(
        stage=stage,
        recorder=recorder,
        modules=modules,
        operands=operands,
        found=found,
        parameters={**parameters, **packed},
        buffers=buffers,
        gradients=gradients,
    )


_PATIENCE_S = 0.02


def _await_release(operands: Operands, left: object) -> None:
    """Wait until only the tensors in `left` are left of a pass, or the model evidently keeps more.

    A thread that samples the frames of others (a profiler, Dask's workers) holds their local
    variables for a moment longer, and what is left after a pass counts as written by it.
    """
    expected = operands.storages(tensors_in(left))
    end = time.monotonic() + _PATIENCE_S
    while operands.alive() - expected and time.monotonic() < end:
        time.sleep(0.001)


def _notes(
    model: torch.nn.Module,
    modules: ModuleStack,
    operands: Operands,
    tensors: Fakes | Reals,
    run: Run,
    records: Sequence[OperatorRecord],
) -> Iterable[str]:
    if any(map(is_compiled, model.modules())):
        yield (
            "compiled modules are counted as they run without torch.compile: its kernels, which"
            " join operators, cannot be seen (--fused shows what joining them saves)"
        )
    if any(each.op == "aten._nested_tensor_from_mask" for each in records):
        yield (
            "torch's fast path for transformers drops padding, and the mask's values decide how"
            " much: FLOP and traffic count all tokens, minimum times one token"
        )
    if modules.in_training and not run.train:
        names = ", ".join(sorted(modules.in_training))
        yield (
            f"{names} ran in training mode: torch does not know it as part of the model, so"
            " model.eval() does not reach it"
        )
    if isinstance(tensors, Fakes) and operands.alive():
        gc.collect()
        if operands.alive():
            yield (
                "the model keeps tensors of this analysis where they could not be taken out again"
                " (in a cache outside its modules); make it anew before you run it"
            )


one_at_a_time = threading.RLock()
"""Hooks are global, and a model's own tensors are away while it runs: one capture at a time."""


_QUICK_BYTE = 2**28
"""Weights up to this size are made in well under a second: any failure is worth a second try."""

_FREE_MEMORY_SHARE = 0.25
"""Of the free memory, the most that the weights of a real pass may take: they are there twice, and
activations come on top."""


def capture(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    name: str,
    run: Run | None = None,
    teaching: Teaching | None = None,
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
        run: in which types and layout it is run, and whether it is trained; by default inference
            as it is.
        teaching: how it is trained, if it is.
        rebuild: makes the model with its weights, where `model` has none.
        on_call: makes what is told of each call that is recorded; asked anew for every pass that is
            tried, so that the last one made was told of the calls in ``records``.

    Raises:
        ModelError: the model raised; the message says in which module, and what torch said.
    """
    asked = _Asked(model, inputs, name, run or Run(), teaching or Teaching(), on_call)
    # What looks on at its caller has no part in it.
    with one_at_a_time, _disable_current_modes():
        try:
            return asked.captured(Fakes(asked.run))
        except NoFakesError as reason:
            said, why, is_worth_it = ModelError(str(reason)), "it is TorchScript", True
            first = None
        except PassError as failure:
            said, why, is_worth_it = failure.said, failure.reason, failure.is_fakes_fault
            first = failure
        byte = sum(
            each.nbytes
            for each in (*model.parameters(), *model.buffers())
            if each.layout is torch.strided
        )
        if byte > _QUICK_BYTE and not is_worth_it:
            raise said from said.__cause__
        if not has_room_for(byte):
            raise ModelError(
                f"{said} (its {format_bytes(byte)} of weights are too many to run it for real)"
            ) from said.__cause__
        try:
            with torch.random.fork_rng(devices=[]):
                # The same noise every time, so that the same command gives the same answer.
                torch.manual_seed(0)
                real = with_weights(model, rebuild)
                if real is None:
                    raise said from said.__cause__
                captured = replace(asked, model=real).captured(Reals(asked.run))
        except PassError as second:
            # Two reasons for two passes: where the first was no fault of the fakes, it is the one.
            is_another = first is not None and type(first.error) is not type(second.error)
            if is_another and not is_worth_it:
                raise said from said.__cause__
            raise second.said from second.error
        real = "for real" if asked.run.device == "cpu" else "for real and on the CPU"
        kind = "the given inputs" if _all_given(inputs) else "inputs of noise and zeros"
        return replace(
            captured,
            notes=(
                f"{name} ran {real}, on {kind} ({why}): what it does with others may differ",
                *captured.notes,
            ),
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pass that is asked for."""

    model: torch.nn.Module
    inputs: Inputs
    name: str
    run: Run
    teaching: Teaching
    on_call: Callable[[], OnCall] | None

    def captured(self, tensors: Fakes | Reals) -> Capture:
        paths: dict[int, str] = {}
        lesson = self.teaching.lesson() if self.run.train else None
        on_call = self.on_call() if self.on_call is not None else None
        try:
            paths.update(
                {id(module): path_of_own(path) for path, module in self.model.named_modules()}
            )
            return single_pass(self.model, self.inputs, paths, self.run, tensors, lesson, on_call)
        except (KeyboardInterrupt, RooflineError, NoFakesError):
            raise
        # A model may raise anything, SystemExit too; none of it may end in a traceback.
        except BaseException as error:
            if tensors.were_used_elsewhere:
                # A pass on real tensors would not see that.
                raise ran_elsewhere("a part of it") from error
            raise PassError(model_error(error, self.name, paths), error) from error


def has_room_for(weight_bytes: int) -> bool:
    """Whether there is memory to run a model with weights of so many bytes for real."""
    return weight_bytes <= _FREE_MEMORY_SHARE * psutil.virtual_memory().available


def with_weights(
    model: torch.nn.Module, rebuild: Callable[[], torch.nn.Module] | None
) -> torch.nn.Module | None:
    """The model with real tensors in it; None where there is no way to get them.

    Args:
        model: as it was given or built.
        rebuild: makes it with its weights, where it was built without.
    """
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


def _all_given(inputs: Inputs) -> bool:
    return all(
        request.like is not None and tuple(request.like.shape) == request.shape
        for _, request in inputs.requests()
    )
