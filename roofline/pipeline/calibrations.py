"""calibrate: this machine runs real models and designs, so that others can be predicted."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from roofline.core.progress import Progress, Say, silent
from roofline.errors import InputError, RooflineError, argument
from roofline.latency.calibrated import Calibrated, HeldOutError
from roofline.latency.calibration import Calibration, HeldOut
from roofline.latency.calibration_set import (
    DESIGN,
    Subject,
    designs,
    int8_designs,
    int8_models,
    models,
)
from roofline.latency.learning import Z_80
from roofline.latency.measuring.rounds import Effort
from roofline.latency.samples import INT8, RunSample
from roofline.latency.store import Store
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.fresh_processes import fresh_processes
from roofline.pipeline.machines import calibration_of, host_environment, host_latency_file
from roofline.pipeline.profiles import sample_of
from roofline.pipeline.runs import Workload, workload_of
from roofline.pipeline.timing import Bench, bench, measure, real_model
from roofline.run import RunOptions

if TYPE_CHECKING:
    import torch


_NATIVE_HALF = ("avx512_bf16", "amx_bf16", "bf16")
"""Instruction sets that compute in bfloat16: without them nobody runs a model in it for speed."""

_NATIVE_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8")
"""The same of int8."""


def chosen_dtypes(
    profile: HardwareProfile, dtypes: Sequence[str] | None, int8_problem: Callable[[], str]
) -> tuple[str, ...]:
    """The types that all subjects are measured in, each once.

    By default float32, and those that the CPU computes in. `int8_problem` says why torch cannot
    compute in int8, ``""`` if it can.
    """
    half = ("bfloat16",) * computes_in_bfloat16(profile)
    int8 = (INT8,) * _has(profile, _NATIVE_INT8)
    chosen = tuple(dict.fromkeys(dtypes or ("float32", *half, *int8)))
    for each in chosen:
        if each != INT8:
            RunOptions(dtype=each)
    problem = int8_problem() if INT8 in chosen else ""
    if problem and dtypes:
        raise InputError(f"{argument('dtypes', INT8)}: {problem}; leave it out")
    return tuple(each for each in chosen if not (problem and each == INT8))


def teams_of(profile: HardwareProfile) -> tuple[int, ...]:
    """All threads of a machine, and one."""
    return tuple(dict.fromkeys((profile.threads, 1)))


def computes_in_bfloat16(profile: HardwareProfile) -> bool:
    """Whether the CPU has instructions for it; without, it is converted at every step."""
    return _has(profile, _NATIVE_HALF)


def _has(profile: HardwareProfile, instruction_sets: Sequence[str]) -> bool:
    return profile.host is not None and bool({*profile.host.instruction_sets} & {*instruction_sets})


def int8_problem() -> str:
    """Why torch cannot compute in int8 here; ``""``: it can."""
    from roofline.quantization.native_variants import why_no_int8

    return why_no_int8()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A subject in one type: what is measured at a stretch."""

    subject: Subject
    dtype: str

    @property
    def key(self) -> str:
        """What tells it from others."""
        layout = " channels-last" if self.subject.channels_last else ""
        return f"{self.subject.name} {self.dtype}{layout}"


def steps_of(subjects: Sequence[Subject], dtypes: Sequence[str], done: set[str]) -> list[Step]:
    """Each subject in each type, but for those that were done."""
    steps = (Step(subject=each, dtype=dtype) for each in subjects for dtype in dtypes)
    return [each for each in steps if each.key not in done]


def mixed(first: Sequence[Step], second: Sequence[Step], *, every: int) -> list[Step]:
    """One of the `second` behind every so many of the `first`, and what is left of either."""
    found: list[Step] = []
    others = iter(second)
    for place in range(0, len(first), every):
        found += [*first[place : place + every], *islice(others, 1)]
    return [*found, *others]


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
    """
    subject, is_int8 = step.subject, step.dtype == INT8
    dtype = None if step.dtype in ("float32", INT8) else step.dtype
    options = RunOptions(dtype=dtype, channels_last=subject.channels_last)
    effort = DESIGN_EFFORT if subject.is_design else MODEL_EFFORT
    samples: list[RunSample] = []
    model: torch.nn.Module | None = None
    kernels: AbstractContextManager[object] = contextlib.nullcontext()
    if is_int8:
        from roofline.quantization.native_variants import int8_kernels

        kernels = int8_kernels()
    with kernels:
        for batch in subject.batches:
            asked = subject_workload(subject, replace(options, batch=batch))
            for threads in teams:
                if is_int8:
                    model = _int8_model(here, asked, threads)
                elif model is None:
                    model = real_model(asked)
                found = measure(here, asked, model, threads=threads, effort=effort)
                if not found.timed.run.are_disturbed:
                    samples.append(
                        sample_of(
                            found, dtype=step.dtype, origin="calibrate", family=subject.family
                        )
                    )
    return samples


def _int8_model(here: Bench, asked: Workload, threads: int) -> torch.nn.Module:
    from roofline.latency.measuring.rounds import team
    from roofline.quantization.native_variants import in_int8

    # oneDNN's weights lie as the first pass wants them. Where a pass of another size or on other
    # threads wants them differently, they are reordered at every call, for milliseconds.
    with team(threads, here.topology.cores):
        return in_int8(real_model(asked), asked.given)


def subject_workload(subject: Subject, options: RunOptions) -> Workload:
    """The model of a subject, or the design, whose batch is that of its shape."""
    if not subject.is_design:
        return workload_of(subject.name, None, options)
    from roofline.workload.models.designs import design

    made = design(subject.kind, *subject.sizes)
    built = workload_of(made, subject.shape, replace(options, batch=None))
    return replace(built, source=replace(built.source, name=subject.name))


BUDGET_S = 285.0
"""Of a calibration, so that it ends within five minutes: what is running is finished."""

QUICK_BUDGET_S = 50.0

_DESIGN_SHARE, _SHARE_WITH_INT8 = 0.25, 0.35
"""Of the time, what designs may have; models have the rest. int8 is learned from designs first."""

_TOGETHER = 8
"""Designs that are measured in one process."""

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
    tell = say or silent
    skipped: list[str] = []
    interrupted = False
    with (
        bench(force=force, say=tell, progress=None) as here,
        Store(host_latency_file(), host_environment()) as store,
        fresh_processes(settled=True) as run,
    ):
        kinds = chosen_dtypes(here.profile, dtypes, lambda: run(int8_problem))
        teams = teams_of(here.profile)
        if fresh:
            store.forget_runs("calibrate")
            store.keep_note(_PROGRESS_NOTE, "[]")
        # Waiting for others that measure is no part of it.
        begin = clock()
        before = len(calibration_of(store.runs(), here.profile).runs)
        done = _progress(store)
        try:
            for steps in _steps(kinds, done, begin, budget_s, clock):
                if progress is not None:
                    fraction = min(1.0, (clock() - begin) / budget_s)
                    progress(fraction, f"{steps[0].subject.name} {steps[0].dtype}")
                try:
                    outcomes = run(measured_steps, here, steps, teams)
                except (RooflineError, MemoryError) as error:
                    # All of it ended with its process.
                    outcomes = [problem_of(error) for _ in steps]
                for step, outcome in zip(steps, outcomes, strict=True):
                    if isinstance(outcome, str):
                        skipped.append(f"{step.subject.name}: {outcome}")
                        continue
                    for each in outcome:
                        store.add(each)
                    # What was disturbed, or failed, is tried again by the next calibration.
                    if len(outcome) == len(step.subject.batches) * len(teams):
                        done.add(step.key)
                store.keep_note(_PROGRESS_NOTE, json.dumps(sorted(done)))
        except KeyboardInterrupt:
            interrupted = True
        calibration, notes = calibration_of(store.runs(), here.profile), store.unused()
        seconds = clock() - begin
    runs = calibration.runs
    return Calibrated(
        runs=len(runs),
        operators=sum(len(each.operators) for each in runs),
        models=len({each.model for each in runs if each.family != DESIGN}),
        families=len({each.family for each in runs if each.family != DESIGN}),
        new_runs=len(runs) - before,
        seconds=seconds,
        held_out=() if interrupted else _held_out_errors(calibration),
        skipped=tuple(skipped),
        interrupted=interrupted,
        file=str(host_latency_file()),
        warnings=(*here.conditions, *here.notes, *notes),
    )


def _steps(
    dtypes: Sequence[str],
    done: set[str],
    begin: float,
    budget_s: float,
    clock: Callable[[], float],
) -> Iterator[list[Step]]:
    """What is still to be measured, until the time is over: designs have their share of it.

    A model has a process of its own; designs, which are over before it has begun, share one.
    """
    floating = tuple(each for each in dtypes if each != INT8)
    of_models = steps_of(models(), floating, done)
    of_designs = steps_of(designs(), floating, done)
    share = _DESIGN_SHARE
    if INT8 in dtypes:
        of_models += steps_of(int8_models(), (INT8,), done)
        in_int8 = steps_of(int8_designs(), (INT8,), done)
        of_designs = mixed(of_designs, in_int8, every=max(1, len(floating)))
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


def _progress(store: Store) -> set[str]:
    """The steps that were done before; none where the note is not what is written there."""
    try:
        found = json.loads(store.note(_PROGRESS_NOTE) or "[]")
    except (ValueError, RecursionError):
        return set()
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def _held_out_errors(calibration: Calibration) -> tuple[HeldOutError, ...]:
    """How far off whole models are whose family was left out, by threads and type."""
    found: dict[tuple[int, str], list[HeldOut]] = {}
    for each in calibration.held_out:
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
                np.mean(
                    [
                        abs(np.log1p(one.error)) <= Z_80 * one.deviation * calibration.spread
                        for one in each
                    ]
                )
            ),
        )
        for (threads, dtype), each in sorted(found.items())
    )
