"""Runs a model once and records every operator, on fake tensors: no weight is allocated.

The model runs under a `TorchDispatchMode`, so the records are the aten calls that its eager run
makes on a CPU, after every composite operator took itself apart.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from roofline.errors import ModelError, RooflineError, said_by
from roofline.workload.fakes import (
    Fakes,
    MakeInputs,
    left_as_it_was,
    put_fakes,
    silent_torch,
)
from roofline.workload.operators import OperatorRecord
from roofline.workload.recorder import Recorder, Storages, tensors_in
from roofline.workload.tensors import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a model asked for in one pass: its operators, and the tensors it keeps.

    ``parameters`` counts elements, ``parameter_bytes`` and ``buffer_bytes`` bytes, tied ones once;
    ``input_bytes`` those of the given inputs. Parameters that no operator touched are in them.
    """

    records: tuple[OperatorRecord, ...]
    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int


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


def capture(
    model: torch.nn.Module,
    inputs: MakeInputs,
    *,
    name: str,
    change: torch.dtype | None = None,
) -> Capture:
    """Runs `model` once, without gradients and in eval mode, on fake tensors.

    Args:
        model: any module, built for real or on the meta device; it is left as it was.
        inputs: makes the positional and keyword inputs as fake tensors of the given mode.
        name: what messages call the model.
        change: the type that floating parameters and buffers are taken to have.

    Raises:
        ModelError: the model raised; the message says in which module, and what torch said.
    """
    with _one_at_a_time:
        paths: dict[int, str] = {}
        try:
            paths.update({id(module): path for path, module in model.named_modules()})
            return _capture(model, inputs, paths, change)
        except (KeyboardInterrupt, RooflineError):
            raise
        # A model may raise anything, SystemExit too; none of it may end in a traceback.
        except BaseException as error:
            raise _model_error(error, name, paths) from error


def _capture(
    model: torch.nn.Module,
    inputs: MakeInputs,
    paths: Mapping[int, str],
    change: torch.dtype | None,
) -> Capture:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = Fakes(mode, {})
    with left_as_it_was(model), silent_torch(), torch.no_grad():
        model.eval()
        put_fakes(model, fakes, change)
        parameters, buffers = _by_storage(model.parameters()), _by_storage(model.buffers())
        with mode:
            args, kwargs = inputs(mode)
            given = {each.untyped_storage()._cdata: each for each in tensors_in([args, kwargs])}
            for address in given:
                fakes.roles.setdefault(address, Role.INPUT)
            recorder = Recorder(fakes, Storages(fakes.roles), paths)
            hooks = [
                register_module_forward_pre_hook(recorder.enter),
                register_module_forward_hook(recorder.leave, always_call=True),
            ]
            try:
                with recorder:
                    # The result is dropped only when the pass is over: it is alive all the time.
                    result = model(*args, **kwargs)
            finally:
                for hook in hooks:
                    hook.remove()
            recorder.note_dropped()
            del result
    if recorder.elsewhere is not None:
        raise ModelError(
            f"module '{recorder.elsewhere}' ran in another thread, whose operators cannot be seen;"
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
