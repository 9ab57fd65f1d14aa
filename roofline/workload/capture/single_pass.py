"""One pass of a model on other tensors than its own, every operator recorded."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from roofline.errors import ModelError
from roofline.workload.capture import without_cuda
from roofline.workload.capture.compiled import is_compiled
from roofline.workload.capture.failures import NoFakesError
from roofline.workload.capture.fakes import Fakes, silent_torch
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.module_table import in_order, modules_in
from roofline.workload.capture.operands import Operands, tensors_in
from roofline.workload.capture.packed import packed_in, remembering
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.recorder import Recorder
from roofline.workload.capture.restoration import (
    containers_in,
    left_as_it_was,
    process_left_as_it_was,
)
from roofline.workload.capture.training import Lesson
from roofline.workload.inputs import Inputs
from roofline.workload.modules import Module
from roofline.workload.operators import OperatorRecord
from roofline.workload.runs import Run
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import dtype_for, torch_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a model asked for in one pass: its operators, and the tensors it keeps.

    ``run`` is how it was run. ``parameters`` counts elements, ``parameter_bytes`` and
    ``buffer_bytes`` bytes, tied ones once; ``input_bytes`` those of the given inputs, and of what a
    loss holds outputs against. Parameters that no operator touched are in them.
    ``optimizer_bytes`` are those of what an optimizer keeps from step to step. ``modules`` are in
    the order of their first calls. ``notes`` say how it was captured where that was not on fakes.
    """

    run: Run
    records: tuple[OperatorRecord, ...]
    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    optimizer_bytes: int = 0
    modules: tuple[Module, ...] = ()
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

    Raises:
        ModelError: what it does cannot be seen.
        NoFakesError: `tensors` are fakes, and it cannot be given such.
        BaseException: whatever the model raises.
    """
    change = torch_dtype(run.dtype) if run.dtype else None
    with (
        process_left_as_it_was(),
        left_as_it_was(model, inputs.args, inputs.kwargs),
        silent_torch(),
        remembering(),
        warnings.catch_warnings(),
        # There composite operators are not taken apart.
        torch.inference_mode(False),
        torch.set_grad_enabled(run.train),
        torch.autograd.set_detect_anomaly(False),
        _no_autocast(run),
    ):
        # Where torch's fast path makes them, it is counted without, and that is said.
        warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
        _put_in_place(model, tensors, is_trained=run.train)
        modules = ModuleStack(paths)
        with tensors.mode:
            # Last: a model of its own ideas may change its weights for inference.
            _set_mode(model, run.train)
            parameters, buffers = _by_storage(model.parameters()), _by_storage(model.buffers())
            packed = _by_storage(packed_in(model))
            found = modules_in(model)
            args, kwargs = inputs.made(
                lambda request: tensors.given(request, dtype_for(request, change))
            )
            given = {each.untyped_storage()._cdata: each for each in tensors_in([args, kwargs])}
            operands = Operands(tensors.roles)
            recorder = Recorder(tensors, modules, operands)
            with modules.watching(model), recorder, without_cuda.made_up_for(run):
                optimizer = lesson.prepare(model, tensors, recorder) if lesson else None
                loss = None
                with _autocast(run):
                    # Dropped only when the pass is over: the result is alive all the time.
                    result = model(*args, **kwargs)
                    if lesson is not None:
                        modules.note_owners(model)
                        with modules.part("<loss>"):
                            loss = lesson.loss(result, tensors, recorder)
                # As its end does, unless the caller has one open too.
                torch.clear_autocast_cache()
                if lesson is not None and loss is not None:
                    leaves = (*model.parameters(), *given.values())
                    lesson.end(leaves, loss, optimizer, recorder, modules.owners)
            recorder.note_dropped()
            del result, loss, optimizer
    if modules.elsewhere is not None or tensors.were_used_elsewhere:
        where = f"module '{modules.elsewhere}'" if modules.elsewhere is not None else "a part of it"
        raise ModelError(
            f"{where} ran in another thread, whose operators cannot be seen;"
            " run it in the thread that calls the model"
        )
    return Capture(
        run=replace(run, loss=lesson.said) if lesson is not None else run,
        records=tuple(recorder.records),
        parameters=sum(elements for elements, _ in (*parameters.values(), *packed.values())),
        parameter_bytes=sum(byte for _, byte in (*parameters.values(), *packed.values())),
        buffer_bytes=sum(
            byte for address, (_, byte) in buffers.items() if address not in parameters
        ),
        input_bytes=sum(each.nbytes for each in given.values())
        + (lesson.target_byte if lesson is not None else 0),
        optimizer_bytes=lesson.state_byte if lesson is not None else 0,
        modules=in_order(found, modules.calls),
        notes=tuple(_notes(model, modules, operands, tensors, run, recorder.records)),
    )


def _autocast(run: Run) -> contextlib.AbstractContextManager[Any]:
    return (
        torch.autocast(run.device, torch_dtype(run.autocast)) if run.autocast else _no_autocast(run)
    )


def _no_autocast(run: Run) -> contextlib.AbstractContextManager[Any]:
    """Keeps what the caller may have switched on out of the pass."""
    return torch.autocast("cuda" if run.device == "cuda" else "cpu", enabled=False)


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
    is_taken_apart = any(each.op == "aten._safe_softmax" for each in records)
    if is_taken_apart and run.device == "cuda" and not torch.cuda.is_available():
        yield (
            "this torch has no CUDA: attention comes as its parts, where a torch with CUDA would"
            " call one kernel that moves less"
        )
    if modules.in_training and not run.train:
        names = ", ".join(sorted(modules.in_training))
        yield (
            f"{names} ran in training mode: torch does not know it as part of the model, so"
            " model.eval() does not reach it"
        )
    if isinstance(tensors, Fakes) and operands.are_alive():
        gc.collect()
        if operands.are_alive():
            yield (
                "the model keeps tensors of this analysis where they could not be taken out again"
                " (in a cache outside its modules); make it anew before you run it"
            )


def _set_mode(model: torch.nn.Module, is_trained: bool) -> None:
    try:
        model.train(is_trained)
    except (KeyboardInterrupt, ModelError):
        raise
    except NotImplementedError:
        # Exported programs are fixed in one mode, and refuse to be told another.
        for module in model.modules():
            module.training = is_trained


def _put_in_place(model: torch.nn.Module, tensors: Fakes | Reals, *, is_trained: bool) -> None:
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
                # Its parameters cannot be replaced; it runs on its own.
                continue
            raise NoFakesError(
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
                _check(tensor, name, module)
                own[name] = tensors.of(tensor, role, is_changed=True)
                if tensor.requires_grad:
                    replaced[id(tensor)] = own[name]
        for name, value in module.__dict__.items():
            if type(value) is torch.Tensor and value.layout is torch.strided:
                module.__dict__[name] = tensors.of(value, Role.BUFFER)
    if is_trained:
        _put_in_containers(model, replaced)


def _check(tensor: torch.Tensor, name: str, module: torch.nn.Module) -> None:
    """Refuses a parameter or buffer that no other tensor can stand for."""
    if is_lazy(tensor):
        raise ModelError(
            f"{type(module).__name__} has a lazy parameter '{name}' without a shape;"
            " run the model once on a real input first"
        )
    if tensor.layout is not torch.strided:
        raise ModelError(
            f"{type(module).__name__} keeps '{name}' as a sparse tensor, and sparse"
            " tensors cannot be counted; give the model with dense ones"
        )


def _put_in_containers(model: torch.nn.Module, replaced: Mapping[int, Any]) -> None:
    """Replaces parameters where modules keep them a second time: recurrent layers have a list."""
    for container in containers_in([module.__dict__ for module in model.modules()]):
        if isinstance(container, dict):
            for key, value in list(dict.items(container)):
                if id(value) in replaced:
                    dict.__setitem__(container, key, replaced[id(value)])
        elif isinstance(container, list):
            for position, value in enumerate(list.__iter__(container)):
                if id(value) in replaced:
                    list.__setitem__(container, position, replaced[id(value)])
