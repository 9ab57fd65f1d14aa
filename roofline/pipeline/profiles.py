"""profile: a model is run on this machine, and every operator of it timed in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.analysis import Analysis
from roofline.core.progress import Progress, Say, silent
from roofline.errors import InputError, RooflineError, argument
from roofline.latency.calibration_set import family_of
from roofline.latency.features import run_sample
from roofline.latency.measuring.rounds import Effort
from roofline.latency.samples import Origin, RunSample
from roofline.latency.store import Store
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.analyses import assemble, with_findings
from roofline.pipeline.machines import (
    Hardware,
    hardware_for,
    host_environment,
    host_latency_file,
    means_host,
    predictor_of,
    threads_on,
)
from roofline.pipeline.runs import workload_of
from roofline.pipeline.timing import MeasuredPass, bench, measure, real_model, type_of
from roofline.run import RunKeywords, RunOptions, takes

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model

_DEFAULT = Effort(warm_ups=2, least=7, most=30, budget_s=4.0)
_QUICK = Effort(warm_ups=1, least=3, most=7, budget_s=0.5)


@takes(RunKeywords)
def profile(
    model: Model,
    inputs: Any = None,
    *,
    compiled: bool = False,
    passes: int | None = None,
    quick: bool = False,
    learn: bool = True,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[RunKeywords],
) -> Analysis:
    """Every operator of a model under this machine's roof, with the time that it really took.

    The model runs for real, on copies of its tensors. Passes that are timed as a whole alternate
    with passes in which every operator is timed; those that did not get the cores do not count.
    Times are medians in seconds; the raw ones are in ``measurement`` and the rows.

    Args:
        model, inputs: as for `analyze`. `hardware` is the profile of the CUDA device, where the
            model runs on one; a CPU is this machine's.
        compiled: times it under `torch.compile` too, end to end.
        passes: how many passes count; None: 7 to 30, for about four seconds.
        quick: fewer of them.
        learn: keeps what was measured, for later predictions, unless others disturbed all of it.
        force: measures although others compute.
        progress: told how far it is.
        say: told, in words, what is waited for, and what could not be kept.

    Raises:
        ModelError: the model is unknown, cannot be built, or raised.
        InputError: inputs or options are wrong.
        MeasurementError: the machine is busy, or the operators cannot be timed.
    """
    options = RunOptions.of(inputs, **run)
    task = options.run()
    effort = _effort(passes, quick=quick)
    hardware = options.hardware
    of_device = _profile_of(hardware, task.device)
    asked = workload_of(model, inputs, options)
    tell = say or silent
    with bench(force=force, say=tell, of_device=of_device, progress=progress) as here:
        real = real_model(asked)
        found = measure(
            here,
            asked,
            real,
            threads=threads_on(here.profile, options.threads, alone=True),
            effort=effort,
            compiled=compiled,
            progress=progress,
        )
        kept_as = type_of(real, task)
    predictor = predictor_of(here.profile, hardware, task)
    analysis = assemble(
        found.passed,
        found.roof,
        notes=(*found.passed.notes, *here.notes),
        # Beside a measurement stands what is expected of the cores as they ran.
        predictor=replace(predictor, core_state=found.timed.run.core_state) if predictor else None,
        timed=found.timed,
    )
    # What others disturbed says nothing of this machine.
    is_plain = task.device == "cpu" and not task.autocast
    if learn and is_plain and not found.timed.run.are_disturbed:
        sample = sample_of(found, dtype=kept_as, origin="profile")
        try:
            with Store(host_latency_file(), host_environment()) as store:
                store.add(sample)
        except RooflineError as error:
            tell(f"Not kept for later predictions: {error}")
    return with_findings(analysis, hardware)


def sample_of(
    found: MeasuredPass, *, dtype: str, origin: Origin, family: str | None = None
) -> RunSample:
    """What is kept of a measured pass; the family is that of the model's name, if none is given."""
    name = found.passed.name
    shapes = [each.shape for each in found.passed.inputs if each.shape]
    return run_sample(
        found.placements,
        found.timed,
        model=name,
        family=family or family_of(name),
        origin=origin,
        run=found.passed.capture.run,
        dtype=dtype,
        batch=shapes[0][0] if shapes else None,
        threads=found.roof.threads,
    )


def _effort(passes: int | None, *, quick: bool) -> Effort:
    if passes is None:
        return _QUICK if quick else _DEFAULT
    if quick:
        raise InputError(f"{argument('quick', True)} and {argument('passes', passes)}: choose one")
    if type(passes) is not int or not 1 <= passes <= _MOST_PASSES:
        raise InputError(
            f"{argument('passes', passes)}: must be a whole number from 1 to {_MOST_PASSES}"
        )
    return Effort(warm_ups=2, least=passes, most=passes, budget_s=0.0)


_MOST_PASSES = 10_000


def _profile_of(hardware: Hardware | None, device: str) -> HardwareProfile | None:
    """The profile of the device that is timed, where that is not this machine's CPU."""
    if device == "cpu":
        if means_host(hardware):
            return None
        raise InputError(
            f"profile runs the model on this machine; leave {argument('hardware')} out"
        )
    import torch

    if device != "cuda" or not torch.cuda.is_available():
        why = "this torch has no CUDA device" if device == "cuda" else "it has no kernels that run"
        raise InputError(
            f"{argument('device', device)} cannot be timed: {why}; leave {argument('device')} out"
        )
    if hardware is None:
        raise InputError(
            f"{argument('device', device)}: name its profile with {argument('hardware')}"
            f" (`roofline measure --device {device}` makes it)"
        )
    found, _ = hardware_for(hardware)
    if found.device != device:
        raise InputError(
            f"{argument('hardware', found.name)} is a {found.device} device, not {device}"
        )
    return found
