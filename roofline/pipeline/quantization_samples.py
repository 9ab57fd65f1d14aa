"""What outputs are compared on: tensors that were given, or noise that is always the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from roofline.errors import InputError
from roofline.foundation.units import format_shape
from roofline.pipeline.workloads import Workload
from roofline.workload.runs import Run

if TYPE_CHECKING:
    from roofline.workload.inputs import InputRequest, Inputs

_SEED = 0


@contextmanager
def seeded() -> Iterator[None]:
    """Random numbers are the same every time, and go on afterwards as if there had been none."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        yield


def samples_for(asked: Workload, samples: Any) -> tuple[Inputs, str]:
    """What a model is run on, and that in words: ``"random numbers of 4x3x8x8"``.

    Args:
        asked: the model and its inputs.
        samples: what is to be taken, as the inputs of `analyze`; None: the model's inputs.

    Raises:
        InputError: `samples` are none.
    """
    from roofline.workload.inputs import inputs_of

    given = asked.given if samples is None else inputs_of(samples)
    if given is None:
        raise InputError("samples: there are none; give tensors, as the inputs of a model")
    requests = [request for _, request in given.requests()]
    if not requests:
        return given, "no tensors"
    tensors = "the given inputs" if samples is None else "given samples"
    kinds = dict.fromkeys(_kind_words(each, tensors) for each in requests)
    shapes = ", ".join(format_shape(each.shape) for each in requests)
    return given, f"{' and '.join(kinds)} of {shapes}"


def _kind_words(request: InputRequest, tensors: str) -> str:
    """What `made_for` gives: a tensor that was given, else noise; where there is none, one number.

    Args:
        request: what is asked for.
        tensors: what tensors are called that were given.
    """
    import torch

    from roofline.workload.torch_dtypes import dtype_for

    if request.like is not None and tuple(request.like.shape) == request.shape:
        return tensors
    kind = dtype_for(request, None)
    if kind.is_floating_point or kind.is_complex:
        return "random numbers"
    return "ones" if kind == torch.bool else "zeros"


def made_for(given: Inputs, run: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Tensors as asked for: those given, else noise, or zeros as indices."""
    from roofline.workload.capture.reals import Reals
    from roofline.workload.torch_dtypes import dtype_for, torch_dtype

    reals = Reals(run)
    change = torch_dtype(run.dtype) if run.dtype else None
    with seeded():
        return given.made(lambda each: reals.given(each, dtype_for(each, change)).detach())
