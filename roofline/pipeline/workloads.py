"""What a model is asked to do: the model, its inputs, and what was decided for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.analysis import InputSpec
from roofline.errors import InputError
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch

    from roofline.workload.inputs import Inputs
    from roofline.workload.models.building import Source

_MOST = 2**40
"""More than any batch or thread count; a larger number is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model and the inputs that it is called with; ``notes`` say what was decided for them."""

    source: Source
    given: Inputs
    specs: tuple[InputSpec, ...]
    notes: tuple[str, ...]


def check_counts(
    *, batch: int | None, seq: int | None, threads: int | None, inputs: object
) -> None:
    """Refuses sizes that are none, and tokens beside given inputs.

    Raises:
        InputError: says which.
    """
    for option, value in (("--batch", batch), ("--seq", seq), ("--threads", threads)):
        # True is a whole number to Python.
        if value is not None and (type(value) is not int or not 1 <= value < _MOST):
            raise InputError(f"{option} {value}: must be a whole number from 1")
    if seq is not None and inputs is not None:
        raise InputError(f"--seq {seq} has no effect beside --input; write {seq} into its shape")


def workload_of(
    model: torch.nn.Module | Callable[..., Any] | str,
    inputs: Any,
    *,
    run: Run,
    batch: int | None,
    seq: int | None,
) -> Workload:
    """The model that is meant, and what it is called with.

    Args:
        model, inputs, batch, seq: as for `roofline.analyze`.
        run: how it is run.

    Raises:
        ModelError: the model is unknown, or cannot be built.
        InputError: the inputs are wrong.
    """
    from roofline.workload.inputs import inputs_for, inputs_of
    from roofline.workload.models import sources
    from roofline.workload.torch_dtypes import input_specs, torch_dtype

    given = inputs_of(inputs)
    source = (
        sources.load(model, seq=seq) if isinstance(model, str) else sources.given(model, seq=seq)
    )
    given = inputs_for(source.module, given, source.default_inputs, name=source.name, batch=batch)
    return Workload(
        source=source,
        given=given,
        specs=input_specs(given, torch_dtype(run.dtype) if run.dtype else None),
        notes=(*source.notes, *(source.input_notes if inputs is None else ())),
    )
