"""Runs a model once and records every operator, on fake tensors: no weight is allocated.

The model runs under a `TorchDispatchMode`, so the records are the aten calls that its eager run
makes on a CPU, after every composite operator took itself apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import psutil
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.nn.parameter import is_lazy

from roofline.errors import ModelError, RooflineError, said_by
from roofline.foundation.units import format_byte
from roofline.workload.capture.fakes import Fakes, silent_torch
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.operands import tensors_in
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.recorder import Recorder
from roofline.workload.capture.restoration import left_as_it_was
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


_one_at_a_time = threading.RLock()
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
    change: torch.dtype | None = None,
    rebuild: Callable[[], torch.nn.Module] | None = None,
) -> Capture:
    """Runs `model` once, without gradients and in eval mode, on fake tensors.

    Where that fails for something that fake tensors cannot do (control flow that depends on values,
    code that leaves torch), it runs once more on real ones, and ``notes`` say so.

    Args:
        model: any module, built for real or on the meta device; it is left as it was.
        inputs: what it is called with.
        name: what messages call the model.
        change: the type that floating parameters and buffers are taken to have.
        rebuild: makes the model with its weights, where `model` has none.

    Raises:
        ModelError: the model raised; the message says in which module, and what torch said.
    """
    with _one_at_a_time:
        try:
            return _captured(model, inputs, name, change, Fakes())
        except _NoFakes as reason:
            said = ModelError(str(reason))
            is_worth_it = True
        except _Failure as failure:
            said, is_worth_it = failure.said, failure.is_fakes_fault
        byte = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
        if byte > _QUICK_BYTE and not is_worth_it:
            raise said from said.__cause__
        if byte > _FREE_MEMORY_SHARE * psutil.virtual_memory().available:
            raise ModelError(
                f"{said} (its {format_byte(byte)} of weights are too many to run it for real)"
            ) from said.__cause__
        try:
            with torch.random.fork_rng(devices=[]):
                real = _with_weights(model, rebuild)
                if real is None:
                    raise said from said.__cause__
                captured = _captured(real, inputs, name, change, Reals())
        except _Failure as failure:
            raise failure.said from failure.said.__cause__
        return replace(
            captured,
            notes=(
                f"{name} could not run without values, so it ran for real, on"
                f" {'the given inputs' if _all_given(inputs) else 'inputs of noise and zeros'}:"
                " what it did with others may differ",
            ),
        )


class _NoFakes(Exception):
    """The model cannot be given fake tensors at all."""


class _Failure(Exception):
    """What the model raised, as users are told, and whether real tensors may do better."""

    def __init__(self, said: ModelError, *, is_fakes_fault: bool) -> None:
        super().__init__(str(said))
        self.said = said
        self.is_fakes_fault = is_fakes_fault


def _captured(
    model: torch.nn.Module,
    inputs: Inputs,
    name: str,
    change: torch.dtype | None,
    tensors: Fakes | Reals,
) -> Capture:
    paths: dict[int, str] = {}
    try:
        paths.update({id(module): path for path, module in model.named_modules()})
        return _run(model, inputs, paths, change, tensors)
    except (KeyboardInterrupt, RooflineError, _NoFakes):
        raise
    # A model may raise anything, SystemExit too; none of it may end in a traceback.
    except BaseException as error:
        said = _model_error(error, name, paths)
        said.__cause__ = error
        raise _Failure(said, is_fakes_fault=_is_fakes_fault(error)) from error


def _run(
    model: torch.nn.Module,
    inputs: Inputs,
    paths: Mapping[int, str],
    change: torch.dtype | None,
    tensors: Fakes | Reals,
) -> Capture:
    with left_as_it_was(model), silent_torch(), torch.no_grad():
        model.eval()
        _put_in_place(model, tensors, change)
        parameters, buffers = _by_storage(model.parameters()), _by_storage(model.buffers())
        modules = ModuleStack(paths)
        with tensors.mode:
            args, kwargs = inputs.made(
                lambda request: tensors.given(request, dtype_for(request, change))
            )
            given = {each.untyped_storage()._cdata: each for each in tensors_in([args, kwargs])}
            recorder = Recorder(tensors, modules)
            with modules.watching(model), recorder:
                # The result is dropped only when the pass is over: it is alive all the time.
                result = model(*args, **kwargs)
            recorder.note_dropped()
            del result
    if modules.elsewhere is not None:
        raise ModelError(
            f"module '{modules.elsewhere}' ran in another thread, whose operators cannot be seen;"
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
    )


def _put_in_place(
    model: torch.nn.Module, tensors: Fakes | Reals, change: torch.dtype | None
) -> None:
    """Puts other tensors in the place of the model's parameters and buffers."""
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            if isinstance(tensors, Reals):
                # Its parameters cannot be replaced; it runs on its own.
                continue
            raise _NoFakes(
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
                own[name] = tensors.of(tensor, role, change)


def _with_weights(
    model: torch.nn.Module, rebuild: Callable[[], torch.nn.Module] | None
) -> torch.nn.Module | None:
    """The model with real tensors in it; None where there is no way to get them."""
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


_FAKES_FAULT = (
    *("fake", "meta tensor", "data pointer", "tensor subclass", "storage", "numpy"),
    *("device meta", "device='meta'"),
)
"""What messages speak of where code asked more of a tensor than its shape."""


def _is_fakes_fault(error: BaseException) -> bool:
    """Whether the same may work on real tensors."""
    kinds = (
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
        NotImplementedError,
    )
    said = said_by(error).lower()
    return isinstance(error, kinds) or any(each in said for each in _FAKES_FAULT)


def _model_error(error: BaseException, name: str, paths: Mapping[int, str]) -> ModelError:
    """What the model said, and the innermost of its modules that was running."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        running = trace.tb_frame.f_locals.get("self")
        if id(running) in paths and isinstance(running, torch.nn.Module):
            where = f"{paths[id(running)] or 'the model itself'} ({type(running).__name__})"
        trace = trace.tb_next
    said = said_by(error)
    fix = "check --input and --dtype against what the model takes"
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        said = f"what {error.func} gives depends on the values in a tensor"
        fix = "only shapes are known here, so leave that step out of the model"
    elif isinstance(error, UnsupportedOperatorException):
        said = f"the shape that {error.func} gives is not known"
        fix = "tell torch with torch.library.register_fake"
    elif isinstance(error, NotImplementedError) and "fake impl" in said:
        fix = "tell torch what it returns with torch.library.register_fake"
    elif not isinstance(error, (RuntimeError, ValueError)):
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return ModelError(f"{name} failed{f' in {where}' if where else ''}: {said}; {fix}")
