"""profile: run a model on this machine and time every operator in place."""

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
from roofline.pipeline.analyses import add_findings, assemble_analysis
from roofline.pipeline.machines import (
    Hardware,
    host_environment,
    host_latency_file,
    load_calibrated,
    names_host,
    resolve_hardware,
    threads_on,
)
from roofline.pipeline.runs import build_workload
from roofline.pipeline.timing import MeasuredPass, bench, main_dtype, materialize_model, measure
from roofline.run import RunKeywords, RunOptions, takes

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model

_DEFAULT = Effort(warm_ups=2, min_rounds=7, max_rounds=30, budget_s=4.0)
_QUICK = Effort(warm_ups=1, min_rounds=3, max_rounds=7, budget_s=0.5)


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
    """Measure a model on this machine, with every operator timed in place.

    The model runs on copies of its tensors. Passes timed as a whole alternate with passes in which
    every operator is timed; passes that waited for cores are discarded. Times are medians in
    seconds; all times are in ``measurement`` and the rows.

    Args:
        model, inputs: as for `analyze`. `hardware` is the profile of a CUDA device to run on.
        compiled: also time it under `torch.compile`, end to end.
        passes: number of passes; None: 7 to 30, for about four seconds.
        quick: fewer passes.
        learn: store the measurement for later predictions, unless it was disturbed.
        force: measure although other processes run.
        progress: called with the progress.
        say: called with notes on waiting, and on measurements that could not be stored.

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
    asked = build_workload(model, inputs, options)
    tell = say or silent
    with bench(force=force, say=tell, of_device=of_device, progress=progress) as here:
        real = materialize_model(asked)
        found = measure(
            here,
            asked,
            real,
            threads=threads_on(here.profile, options.threads, alone=True),
            effort=effort,
            compiled=compiled,
            progress=progress,
        )
        kept_as = main_dtype(real, task)
    predictor = load_calibrated(here.profile, hardware, task)
    analysis = assemble_analysis(
        found.passed,
        found.roof,
        notes=(*found.passed.notes, *here.notes),
        # The prediction is for the core clock state of the measurement.
        predictor=replace(predictor, core_state=found.timed.run.core_state) if predictor else None,
        timed=found.timed,
    )
    # Disturbed measurements are not learned from.
    is_plain = task.device == "cpu" and not task.autocast
    if learn and is_plain and not found.timed.run.are_disturbed:
        sample = sample_of(found, dtype=kept_as, origin="profile")
        try:
            with Store(host_latency_file(), host_environment()) as store:
                store.add(sample)
        except RooflineError as error:
            tell(f"Not stored for later predictions: {error}")
    return add_findings(analysis, hardware)


def sample_of(
    found: MeasuredPass, *, dtype: str, origin: Origin, family: str | None = None
) -> RunSample:
    """Return the sample of a measured pass; without a family, that of the model's name."""
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
    return Effort(warm_ups=2, min_rounds=passes, max_rounds=passes, budget_s=0.0)


_MOST_PASSES = 10_000


def _profile_of(hardware: Hardware | None, device: str) -> HardwareProfile | None:
    """Return the profile of the device to time; None for this machine's CPU."""
    if device == "cpu":
        if names_host(hardware):
            return None
        raise InputError(
            f"profile runs the model on this machine; leave {argument('hardware')} out"
        )
    import torch

    if device != "cuda" or not torch.cuda.is_available():
        why = "torch finds no CUDA device" if device == "cuda" else "it has no kernels to run"
        raise InputError(
            f"{argument('device', device)} cannot be timed: {why}; leave {argument('device')} out"
        )
    if hardware is None:
        raise InputError(
            f"{argument('device', device)}: name its profile with {argument('hardware')}"
            f" (from `roofline measure --device {device}`)"
        )
    found, _ = resolve_hardware(hardware)
    if found.device != device:
        raise InputError(
            f"{argument('hardware', found.name)} is a {found.device} device, not {device}"
        )
    return found
