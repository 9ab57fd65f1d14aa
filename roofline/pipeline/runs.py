"""A run as a user declares it, made what the capture takes: model, inputs, run, training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.analysis import InputSpec
from roofline.run import Run

if TYPE_CHECKING:
    import torch

    from roofline.workload.capture.training import Teaching
    from roofline.workload.inputs import Inputs
    from roofline.workload.models.building import Source
    from roofline.workload.operators import Capture

    Model = torch.nn.Module | Callable[..., Any] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model and the inputs that it is called with; ``notes`` say what was decided for them."""

    source: Source
    given: Inputs
    specs: tuple[InputSpec, ...]
    notes: tuple[str, ...]

    def capture(self, run: Run, teaching: Teaching | None = None, **how: Any) -> Capture:
        """Capture a pass; `how` is what else `roofline.workload.capture.passes.capture` takes."""
        from roofline.workload.capture.passes import capture

        source = self.source
        options = {"name": source.name, "rebuild": source.rebuild, **how}
        return capture(source.module, self.given, run=run, teaching=teaching, **options)


def workload_of(
    model: Model, inputs: Any, *, run: Run, batch: int | None, seq: int | None
) -> Workload:
    """The model that is meant, and what it is called with.

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


@contextmanager
def seeded() -> Iterator[None]:
    """Random numbers are the same every time, and go on afterwards as if there had been none."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def arguments_of(given: Inputs, run: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with: given tensors, else noise, or zeros as indices."""
    from roofline.workload.capture.reals import Reals
    from roofline.workload.torch_dtypes import dtype_for, torch_dtype

    reals = Reals(run)
    change = torch_dtype(run.dtype) if run.dtype else None
    with seeded():
        return given.made(lambda each: reals.given(each, dtype_for(each, change)).detach())
