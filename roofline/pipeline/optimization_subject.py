"""The model that is optimized, for real: what it is called with, and in the type asked for."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from roofline.errors import ModelError, said_by
from roofline.foundation.text import printable
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch

    from roofline.workload.inputs import Inputs


def arguments_of(given: Inputs, run: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with: given tensors, else noise, or zeros as indices."""
    import torch

    from roofline.workload.capture.reals import Reals
    from roofline.workload.torch_dtypes import dtype_for, torch_dtype

    reals = Reals(run)
    change = torch_dtype(run.dtype) if run.dtype else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return given.made(lambda request: reals.given(request, dtype_for(request, change)).detach())


def in_type_of(run: Run, original: torch.nn.Module, *, name: str) -> torch.nn.Module:
    """The model itself, or a copy of it in the type that it is to be run in.

    Raises:
        ModelError: it cannot be copied.
    """
    if not run.dtype:
        return original
    from roofline.workload.torch_dtypes import torch_dtype

    try:
        return copy.deepcopy(original).to(torch_dtype(run.dtype))
    # Locks, generators and tensors that were computed cannot be copied.
    except Exception as error:
        raise ModelError(
            f"{name} cannot be copied, which another type takes:"
            f" {type(error).__name__}: {printable(said_by(error)[:200])};"
            " cast it before, and leave --dtype out"
        ) from error
