"""A run as a user declares it, made what the capture takes, and captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.analysis import InputSpec
from roofline.pipeline import capture_cache
from roofline.run import Run, RunOptions
from roofline.workload.operators import Capture
from roofline.workload.residency import Residency, residency

if TYPE_CHECKING:
    import torch

    from roofline.workload.capture.training import Teaching
    from roofline.workload.inputs import Inputs
    from roofline.workload.models.building import Source

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPass:
    """One pass of a model, which may be placed under the ceilings of any machine.

    ``notes`` are what was noticed while the model was built and run, in the order of that.
    ``workload`` is None where the capture was read from disk, which imports no torch.
    """

    name: str
    inputs: tuple[InputSpec, ...]
    capture: Capture
    reuse: Residency
    notes: tuple[str, ...]
    workload: Workload | None = None

    @property
    def model(self) -> Workload:
        """The model itself and what it is called with, of a pass that was captured `with_model`."""
        assert self.workload is not None, "captured without the model"
        return self.workload


def captured_pass(
    model: Model, inputs: Any, options: RunOptions, *, on: str, with_model: bool = False
) -> CapturedPass:
    """The model, run once on fake tensors, or as it is known from an earlier run.

    Args:
        model, inputs: as for `analyze`.
        options: how it is run.
        on: the device of the machine, whose operators are called unless `options` name one.
        with_model: whether the model itself is needed, for which a library model is built again.

    Raises:
        ModelError: the model is unknown, cannot be built, or rejects its inputs.
        InputError: inputs are wrong.
    """
    file = None
    guess = options.run(on, is_known=False)
    if not with_model:
        file = capture_cache.file_of(model, inputs, options, guess)
        kept = capture_cache.read(file) if file else None
        if kept is not None:
            return CapturedPass(
                name=kept.name,
                inputs=kept.specs,
                capture=kept.capture,
                reuse=residency(kept.capture.records),
                notes=kept.notes,
            )
    run = options.run(on)
    asked = workload_of(model, inputs, run=run, batch=options.batch, seq=options.seq)
    found = captured_workload(asked, options, run=run)
    # Libraries that were imported meanwhile may have changed what torch does.
    if file and run == guess and capture_cache.has_defaults():
        capture_cache.keep(
            file,
            capture_cache.Kept(
                name=found.name, specs=found.inputs, notes=found.notes, capture=found.capture
            ),
        )
    return found


def captured_workload(
    asked: Workload, options: RunOptions, *, run: Run, is_rebuilt: bool = True
) -> CapturedPass:
    """A workload, run once on fake tensors.

    Raises:
        ModelError: the model rejects its inputs.
    """
    source = asked.source
    captured = asked.capture(
        run, options.teaching(), rebuild=source.rebuild if is_rebuilt else None
    )
    return CapturedPass(
        name=source.name,
        inputs=asked.specs,
        capture=captured,
        reuse=residency(captured.records),
        notes=(*asked.notes, *captured.notes),
        workload=asked,
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
