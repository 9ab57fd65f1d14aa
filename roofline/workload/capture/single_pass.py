"""One pass of a model on other tensors than its own, every operator recorded."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from roofline.workload.capture import without_cuda
from roofline.workload.capture.compiled import is_compiled
from roofline.workload.capture.failures import ran_elsewhere
from roofline.workload.capture.fake_results import same_calls_as_kernels
from roofline.workload.capture.fakes import Fakes
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.operands import Operands, tensors_in
from roofline.workload.capture.packed import packed_in, unpacked
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.recorder import OnCall, Recorder
from roofline.workload.capture.stage import Stage, staged
from roofline.workload.capture.training import Lesson
from roofline.workload.gradients import Gradient, Trained
from roofline.workload.inputs import Inputs
from roofline.workload.modules import Module
from roofline.workload.operators import OperatorRecord
from roofline.workload.runs import Run
from roofline.workload.torch_dtypes import dtype_of


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a model asked for in one pass: its operators, and the tensors it keeps.

    ``run`` is how it was run. ``parameters`` counts elements, ``parameter_size_bytes`` and
    ``buffer_size_bytes`` bytes, tied ones once; ``input_bytes`` those of the given inputs, and of
    what a loss holds outputs against. Parameters that no operator touched are in them.
    ``optimizer_state_bytes`` are those of what an optimizer keeps from step to step. ``modules``
    are in the order of their first calls. ``notes`` say how it was captured where that was not on
    fakes. ``gradients`` are those of parameters, in the order in which they were done; ``trained``
    are all parameters that may get one, in the order of the model.
    """

    run: Run
    records: tuple[OperatorRecord, ...]
    parameters: int
    parameter_size_bytes: int
    buffer_size_bytes: int
    input_bytes: int
    optimizer_state_bytes: int = 0
    modules: tuple[Module, ...] = ()
    gradients: tuple[Gradient, ...] = ()
    trained: tuple[Trained, ...] = ()
    notes: tuple[str, ...] = ()


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
