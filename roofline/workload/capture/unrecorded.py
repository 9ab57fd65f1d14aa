"""A pass of a model on fake tensors of which nothing is written down but what it returns."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.errors import RooflineError
from roofline.workload.capture import without_cuda
from roofline.workload.capture.compiled import path_of_own
from roofline.workload.capture.failures import model_error
from roofline.workload.capture.fakes import Fakes
from roofline.workload.capture.passes import one_at_a_time
from roofline.workload.capture.stage import staged
from roofline.workload.inputs import Inputs
from roofline.workload.runs import Run


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
