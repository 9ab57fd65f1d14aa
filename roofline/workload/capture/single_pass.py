"""One pass of a model on other tensors than its own, every operator recorded."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.nn.parameter import is_lazy

from roofline.errors import ModelError
from roofline.workload.capture.failures import NoFakesError
from roofline.workload.capture.fakes import Fakes, silent_torch
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.operands import Operands, tensors_in
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.recorder import Recorder
from roofline.workload.capture.restoration import left_as_it_was, process_left_as_it_was
from roofline.workload.inputs import Inputs
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import dtype_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a model asked for in one pass: its operators, and the tensors it keeps.

    ``parameters`` counts elements, ``parameter_bytes`` and ``buffer_bytes`` bytes, tied ones once;
    ``input_bytes`` those of the given inputs. Parameters that no operator touched are in them.
    ``notes`` say how it was captured where that was not on fake tensors.
    """

    records: tuple[OperatorRecord, ...]
    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    notes: tuple[str, ...] = ()


def _by_storage(tensors: Iterable[torch.Tensor]) -> dict[int, tuple[int, int]]:
    """Elements and bytes in each storage, by its address; the same place counts once."""
    places = {
        (each.untyped_storage()._cdata, each.storage_offset(), each.shape, each.stride()): each
        for each in tensors
    }
    found: dict[int, tuple[int, int]] = {}
    for each in places.values():
        storage = each.untyped_storage()
        _, before = found.get(storage._cdata, (0, 0))
        # Overlapping views cannot have more than their storage.
        byte = min(before + each.nbytes, storage.nbytes())
        found[storage._cdata] = byte // each.element_size(), byte
    return found


def single_pass(
    model: torch.nn.Module,
    inputs: Inputs,
    paths: Mapping[int, str],
    change: torch.dtype | None,
    tensors: Fakes | Reals,
) -> Capture:
    """Runs `model` once, without gradients and in eval mode, and leaves it as it was.

    Args:
        model: any module.
        inputs: what it is called with.
        paths: the path of every module that it knows of, by identity.
        change: the type that floating parameters and buffers are taken to have.
        tensors: make what stands in the place of its own tensors and of the inputs.

    Raises:
        ModelError: what it does cannot be seen.
        NoFakesError: `tensors` are fakes, and it cannot be given such.
        BaseException: whatever the model raises.
    """
    with (
        process_left_as_it_was(),
        left_as_it_was(model, inputs.args, inputs.kwargs),
        silent_torch(),
        warnings.catch_warnings(),
        torch.no_grad(),
    ):
        # Compiled modules warn about hooks that hold for all modules; ours go when the pass ends.
        warnings.filterwarnings("ignore", message=".*global.*hook")
        # Where torch's fast path makes them, it is counted without, and that is said.
        warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
        _put_in_place(model, tensors, change)
        modules = ModuleStack(paths)
        with tensors.mode:
            # Last: a model of its own ideas may change its weights for inference.
            _as_for_inference(model)
            parameters, buffers = _by_storage(model.parameters()), _by_storage(model.buffers())
            args, kwargs = inputs.made(
                lambda request: tensors.given(request, dtype_for(request, change))
            )
            given = {each.untyped_storage()._cdata: each for each in tensors_in([args, kwargs])}
            operands = Operands(tensors.roles)
            recorder = Recorder(tensors, modules, operands)
            with modules.watching(model), recorder:
                # The result is dropped only when the pass is over: it is alive all the time.
                result = model(*args, **kwargs)
            recorder.note_dropped()
            del result
    if modules.elsewhere is not None or tensors.were_used_elsewhere:
        where = f"module '{modules.elsewhere}'" if modules.elsewhere is not None else "a part of it"
        raise ModelError(
            f"{where} ran in another thread, whose operators cannot be seen;"
            " run it in the thread that calls the model"
        )
    return Capture(
        records=tuple(recorder.records),
        parameters=sum(elements for elements, _ in parameters.values()),
        parameter_bytes=sum(byte for _, byte in parameters.values()),
        buffer_bytes=sum(
            byte for address, (_, byte) in buffers.items() if address not in parameters
        ),
        input_bytes=sum(each.nbytes for each in given.values()),
        notes=tuple(_notes(modules, operands, tensors)),
    )


def _notes(modules: ModuleStack, operands: Operands, tensors: Fakes | Reals) -> Iterable[str]:
    if modules.in_training:
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


def _as_for_inference(model: torch.nn.Module) -> None:
    try:
        model.eval()
    except (KeyboardInterrupt, ModelError):
        raise
    except NotImplementedError:
        # Exported programs are fixed in one mode, and refuse to be told another.
        for module in model.modules():
            module.training = False


def _put_in_place(
    model: torch.nn.Module, tensors: Fakes | Reals, change: torch.dtype | None
) -> None:
    """Puts other tensors in the place of the model's parameters and buffers."""
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
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
                own[name] = tensors.of(tensor, role, change)
        for name, value in module.__dict__.items():
            if type(value) is torch.Tensor and value.layout is torch.strided:
                module.__dict__[name] = tensors.of(value, Role.BUFFER)
