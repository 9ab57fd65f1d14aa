"""Runs a model once and records every operator, on fake tensors: no weight is allocated.

The model runs under a `TorchDispatchMode`, so the records are the aten calls that its eager run
makes on a CPU, after every composite operator took itself apart.
"""

from __future__ import annotations

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

from roofline.errors import ModelError, RooflineError
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


def _tied_once(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that lie in different places."""
    places = {
        (each.untyped_storage()._cdata, each.storage_offset(), each.shape, each.stride()): each
        for each in tensors
    }
    return list(places.values())


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
    paths = {id(module): path for path, module in model.named_modules()}
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = Fakes(mode, {})
    with left_as_it_was(model), silent_torch(), torch.no_grad():
        model.eval()
        put_fakes(model, fakes, change)
        parameters, buffers = _tied_once(model.parameters()), _tied_once(model.buffers())
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
            except RooflineError:
                raise
            except Exception as error:
                raise _model_error(error, name, paths) from error
            finally:
                for hook in hooks:
                    hook.remove()
            recorder.note_dropped()
            del result
    return Capture(
        records=tuple(recorder.records),
        parameters=sum(each.numel() for each in parameters),
        parameter_bytes=sum(each.nbytes for each in parameters),
        buffer_bytes=sum(each.nbytes for each in buffers),
        input_bytes=sum(each.nbytes for each in given.values()),
    )


def _model_error(error: Exception, name: str, paths: Mapping[int, str]) -> ModelError:
    """What the model said, and the innermost of its modules that was running."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        running = trace.tb_frame.f_locals.get("self")
        if id(running) in paths and isinstance(running, torch.nn.Module):
            where = f"{paths[id(running)] or 'the model itself'} ({type(running).__name__})"
        trace = trace.tb_next
    said = " ".join(str(error).split()) or type(error).__name__
    fix = "check --input and --dtype against what the model takes"
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        said = f"what {error.func} gives depends on the values in a tensor"
        fix = "only shapes are known here, so leave that step out of the model"
    elif isinstance(error, UnsupportedOperatorException):
        said = f"the shape that {error.func} gives is not known"
        fix = "tell torch with torch.library.register_fake"
    elif not isinstance(error, (RuntimeError, ValueError)):
        said = f"{type(error).__name__}: {said}"
    return ModelError(f"{name} failed{f' in {where}' if where else ''}: {said}; {fix}")
