"""calibrate: this machine runs real models and designs, so that others can be predicted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from roofline.errors import RooflineError
from roofline.latency.calibrated import Calibrated, HeldOutError
from roofline.latency.calibration import HeldOut
from roofline.latency.curriculum import (
    DESIGN,
    Subject,
    designs,
    models,
)
from roofline.latency.int8_curriculum import int8_designs, int8_models
from roofline.latency.learning import Z_80
from roofline.latency.measuring.rounds import Effort
from roofline.latency.samples import INT8, RunSample
from roofline.latency.store import Store
from roofline.pipeline.calibration_steps import Settings, Step, int8_problem, mixed, steps_of
from roofline.pipeline.fresh_processes import fresh_processes
from roofline.pipeline.learned import (
    FAULT_NOTE,
    calibration_of,
    host_environment,
    host_latency_file,
)
from roofline.pipeline.machines import Progress
from roofline.pipeline.profiles import sample_of
from roofline.pipeline.timing import Bench, Say, bench, measure, real_model
from roofline.pipeline.workloads import Workload, workload_of
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch

BUDGET_S = 285.0
"""Of a calibration, so that it ends within five minutes: what is running is finished."""

QUICK_BUDGET_S = 50.0

_DESIGN_SHARE, _SHARE_WITH_INT8 = 0.25, 0.35
"""Of the time, what designs may have; models have the rest. int8 is learned from designs first."""

_TOGETHER = 8
"""Designs that are measured in one process."""

MODEL_EFFORT = Effort(warm_ups=1, least=3, most=7, budget_s=0.3)
DESIGN_EFFORT = Effort(warm_ups=2, least=5, most=15, budget_s=0.06)

_PROGRESS_NOTE = "calibrate"


def calibrate(
    *,
    quick: bool = False,
    fresh: bool = False,
    dtypes: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    budget_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Calibrated:
    """Measures models and designs on this machine, and keeps what is to be learned from them.

    Each is kept as soon as it was measured: an interrupted calibration goes on where it was when it
    is called again, and one that is complete adds what a further five minutes can.

    Args:
        quick: within a minute; fewer models.
        fresh: forgets what earlier calibrations measured.
        dtypes: in which types; None: float32, and bfloat16 and int8 where the CPU computes in them.
            int8 is learned from layers that torch quantises with given scales, and from a few
            models once all others were measured.
        force: measures although others compute.
        progress: told how far it is.
        say: told, in words, what is waited for.
        budget_s: seconds; None: five minutes, or one.
        clock: seconds.

    Raises:
        MeasurementError: the machine is busy.
        InputError: a type that there is not, or a file that cannot be written.
    """
    if budget_s is None:
        budget_s = QUICK_BUDGET_S if quick else BUDGET_S
    tell = say or _silent
    skipped: list[tuple[str, str]] = []
    interrupted = False
    with (
        bench(force=force, say=tell, progress=None) as here,
        Store.open(host_latency_file(), host_environment(), say=tell) as store,
        fresh_processes() as run,
    ):
        settings = Settings.of(here.profile, dtypes, lambda: run(int8_problem))
        if fresh:
            store.forget_runs("calibrate")
            store.keep_note(_PROGRESS_NOTE, "[]")
        # Waiting for others that measure is no part of it.
        begin = clock()
        before = len(calibration_of(store).runs)
        if fresh or not calibration_of(store).fault_s:
            store.keep_note(FAULT_NOTE, json.dumps(run(fault_costs, here, settings.threads)))
        done = _progress(store)
        try:
            for steps in _steps(settings, done, begin, budget_s, clock):
                if progress is not None:
                    fraction = min(1.0, (clock() - begin) / budget_s)
                    progress(fraction, f"{steps[0].subject.name} {steps[0].dtype}")
                try:
                    outcomes = run(measured_steps, here, steps, settings.threads)
                except (RooflineError, MemoryError) as error:
                    # All of it ended with its process.
                    outcomes = [_problem(error) for _ in steps]
                for step, outcome in zip(steps, outcomes, strict=True):
                    if isinstance(outcome, str):
                        skipped.append((step.subject.name, outcome))
                        continue
                    for each in outcome:
                        store.add(each)
                    # What was disturbed, or failed, is tried again by the next calibration.
                    if len(outcome) == len(step.subject.batches) * len(settings.threads):
                        done.add(step.key)
                store.keep_note(_PROGRESS_NOTE, json.dumps(sorted(done)))
        except KeyboardInterrupt:
            interrupted = True
        calibration, notes = calibration_of(store), store.unused()
        seconds = clock() - begin
    runs = calibration.runs
    return Calibrated(
        runs=len(runs),
        operators=sum(len(each.operators) for each in runs),
        models=len({each.model for each in runs if each.family != DESIGN}),
        families=len({each.family for each in runs if each.family != DESIGN}),
        new_runs=len(runs) - before,
        seconds=seconds,
        held_out=() if interrupted else settings_of(calibration.held_out, calibration.spread),
        skipped=tuple(skipped),
        interrupted=interrupted,
        file=str(host_latency_file()),
        warnings=(*here.conditions, *here.notes, *notes),
    )


def _steps(
    settings: Settings,
    done: set[str],
    begin: float,
    budget_s: float,
    clock: Callable[[], float],
) -> Iterator[list[Step]]:
    """What is still to be measured, until the time is over: designs have their share of it.

    A model has a process of its own; designs, which are over before it has begun, share one.
    """

    of_models = steps_of(models(), settings.floating, done)
    of_designs = steps_of(designs(), settings.floating, done)
    share = _DESIGN_SHARE
    if INT8 in settings.dtypes:
        of_models += steps_of(int8_models(), (INT8,), done)
        every = max(1, len(settings.floating))
        in_int8 = steps_of(int8_designs(), (INT8,), done)
        of_designs = mixed(of_designs, in_int8, every=every)
        share = _SHARE_WITH_INT8
    spent = {True: 0.0, False: 0.0}
    while (of_models or of_designs) and clock() - begin < budget_s:
        has_share = spent[True] <= share * (spent[True] + spent[False])
        is_design = bool(of_designs) and (has_share or not of_models)
        start = clock()
        left_over, count = (of_designs, _TOGETHER) if is_design else (of_models, 1)
        chosen = left_over[:count]
        del left_over[:count]
        yield chosen
        spent[is_design] += clock() - start


def measured_steps(
    here: Bench, steps: Sequence[Step], teams: Sequence[int]
) -> list[list[RunSample] | str]:
    """What each step gave, or why it could not be measured."""
    found: list[list[RunSample] | str] = []
    for step in steps:
        try:
            found.append(measured_runs(here, step, teams))
        except (RooflineError, MemoryError) as error:
            found.append(_problem(error))
    return found


def _problem(error: BaseException) -> str:
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


def _progress(store: Store) -> set[str]:
    """The steps that were done before; none where the note is not what is written there."""
    try:
        found = json.loads(store.note(_PROGRESS_NOTE) or "[]")
    except (ValueError, RecursionError):
        return set()
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def fault_costs(here: Bench, teams: Sequence[int]) -> dict[int, float]:
    """Seconds that a page fault adds, by threads."""
    from roofline.latency.measuring.page_faults import page_fault_s
    from roofline.latency.measuring.team import team

    found: dict[int, float] = {}
    for threads in teams:
        with team(threads, here.topology.cores):
            cost = page_fault_s()
        if cost is not None:
            found[threads] = cost
    return found


def subject_workload(subject: Subject, run: Run, batch: int | None) -> Workload:
    """The model or the design of a subject, with its inputs.

    Raises:
        ModelError: its library is not there, or it cannot be built.
    """
    if not subject.is_design:
        return workload_of(subject.name, None, run=run, batch=batch, seq=None)
    from dataclasses import replace

    from roofline.workload.models.designs import design

    built = workload_of(
        design(subject.kind, *subject.sizes), subject.shape, run=run, batch=None, seq=None
    )
    return replace(built, source=replace(built.source, name=subject.name))


def settings_of(held_out: Sequence[HeldOut], spread: float) -> tuple[HeldOutError, ...]:
    """How far off whole models are whose family was left out, by threads and type."""
    found: dict[tuple[int, str], list[HeldOut]] = {}
    for each in held_out:
        # A design is a part of a model: its errors are those of operators.
        if each.run.family != DESIGN:
            found.setdefault((each.run.threads, each.run.dtype), []).append(each)
    return tuple(
        HeldOutError(
            threads=threads,
            dtype=dtype,
            runs=len(each),
            mape=float(np.mean([abs(one.error) for one in each])),
            median_error=float(np.median([abs(one.error) for one in each])),
            within_10_percent=float(np.mean([abs(one.error) <= 0.1 for one in each])),
            interval_coverage=float(
                np.mean([abs(np.log1p(one.error)) <= Z_80 * one.deviation * spread for one in each])
            ),
        )
        for (threads, dtype), each in sorted(found.items())
    )


def _silent(_: str) -> None:
    pass
