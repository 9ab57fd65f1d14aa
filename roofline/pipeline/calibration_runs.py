"""What a calibration measures in processes of their own: subjects on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roofline.errors import RooflineError
from roofline.latency.curriculum import Subject
from roofline.latency.measuring.rounds import Effort
from roofline.latency.samples import INT8, RunSample
from roofline.pipeline.calibration_steps import Step
from roofline.pipeline.profiles import sample_of
from roofline.pipeline.timing import Bench, measure, real_model
from roofline.pipeline.workloads import Workload, workload_of
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch

MODEL_EFFORT = Effort(warm_ups=1, least=3, most=7, budget_s=0.3)
DESIGN_EFFORT = Effort(warm_ups=2, least=5, most=15, budget_s=0.06)


def measured_steps(
    here: Bench, steps: Sequence[Step], teams: Sequence[int]
) -> list[list[RunSample] | str]:
    """What each step gave, or why it could not be measured."""
    found: list[list[RunSample] | str] = []
    for step in steps:
        try:
            found.append(measured_runs(here, step, teams))
        except (RooflineError, MemoryError) as error:
            found.append(problem_of(error))
    return found


def problem_of(error: BaseException) -> str:
    """Why something could not be measured, in words."""
    return str(error) or "ran out of memory"


def measured_runs(here: Bench, step: Step, teams: Sequence[int]) -> list[RunSample]:
    """One subject in one type, at all of its batches and on all numbers of threads.

    Runs that others disturbed are left out.

    Args:
        here: this machine.
        step: the subject and the type.
        teams: numbers of threads.

    Raises:
        ModelError, MeasurementError: it cannot be built, or timed.
    """
    if step.dtype != INT8:
        dtype = "" if step.dtype == "float32" else step.dtype
        kept: list[torch.nn.Module] = []

        def once(asked: Workload, _threads: int) -> torch.nn.Module:
            if not kept:
                kept.append(real_model(asked))
            return kept[0]

        return _measured_runs(here, step, teams, dtype, once)
    from roofline.latency.measuring.team import team
    from roofline.quantization.modules.companions import in_int8, int8_kernels

    def packed(asked: Workload, threads: int) -> torch.nn.Module:
        # oneDNN's weights lie as the first pass wants them. Where a pass of another size or on
        # other threads wants them differently, they are reordered at every call, for milliseconds.
        with team(threads, here.topology.cores):
            return in_int8(real_model(asked), asked.given)

    with int8_kernels():
        return _measured_runs(here, step, teams, "", packed)


def _measured_runs(
    here: Bench,
    step: Step,
    teams: Sequence[int],
    dtype: str,
    made: Callable[[Workload, int], torch.nn.Module],
) -> list[RunSample]:
    subject = step.subject
    run = Run(dtype=dtype, channels_last=subject.channels_last)
    samples: list[RunSample] = []
    for batch in subject.batches:
        asked = subject_workload(subject, run, batch)
        for threads in teams:
            found = measure(
                here,
                asked,
                made(asked, threads),
                run=run,
                threads=threads,
                effort=DESIGN_EFFORT if subject.is_design else MODEL_EFFORT,
            )
            if not found.timed.run.are_disturbed:
                samples.append(
                    sample_of(
                        asked, found, dtype=step.dtype, origin="calibrate", family=subject.family
                    )
                )
    return samples


def subject_workload(subject: Subject, run: Run, batch: int | None) -> Workload:
    """The model or the design of a subject, with its inputs.

    Raises:
        ModelError: its library is not there, or it cannot be built.
    """
    if not subject.is_design:
        return workload_of(subject.name, None, run=run, batch=batch, seq=None)
    from roofline.workload.models.designs import design

    built = workload_of(
        design(subject.kind, *subject.sizes), subject.shape, run=run, batch=None, seq=None
    )
    return replace(built, source=replace(built.source, name=subject.name))
