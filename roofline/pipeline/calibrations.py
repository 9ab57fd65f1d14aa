"""calibrate: measure models and designs on this machine, as data for predictions."""

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
from roofline.core.rows import grouped
from roofline.errors import InputError, RooflineError, argument
from roofline.latency.calibrated import Calibrated, HeldOutError
from roofline.latency.calibration import Calibration
from roofline.latency.calibration_set import (
    DESIGN,
    CalibrationCase,
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
from roofline.pipeline.runs import Workload, build_workload
from roofline.pipeline.timing import Bench, bench, materialize_model, measure
from roofline.run import RunOptions

if TYPE_CHECKING:
    import torch


_NATIVE_HALF = ("avx512_bf16", "amx_bf16", "bf16")
"""Instruction sets that compute in bfloat16, without which it is slower than float32."""

_NATIVE_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8")


def calibration_dtypes(
    profile: HardwareProfile, dtypes: Sequence[str] | None, int8_problem: Callable[[], str]
) -> tuple[str, ...]:
    """Return the data types to measure: by default float32, and those that the CPU computes in.

    `int8_problem` returns the reason why torch cannot compute in int8, ``""`` if it can.
    """
    half = ("bfloat16",) * computes_in_bfloat16(profile)
    int8 = (INT8,) * _has(profile, _NATIVE_INT8)
    chosen = tuple(dict.fromkeys(dtypes or ("float32", *half, *int8)))
    problem = int8_problem() if INT8 in chosen else ""
    if problem and dtypes:
        raise InputError(f"{argument('dtypes', INT8)}: {problem}; leave it out")
    return tuple(each for each in chosen if not (problem and each == INT8))


def thread_counts(profile: HardwareProfile) -> tuple[int, ...]:
    """Return the numbers of threads to measure with: all of a machine, and one."""
    return tuple(dict.fromkeys((profile.threads, 1)))


def computes_in_bfloat16(profile: HardwareProfile) -> bool:
    """Return True if the CPU has bfloat16 instructions; without them every step converts."""
    return _has(profile, _NATIVE_HALF)


def _has(profile: HardwareProfile, instruction_sets: Sequence[str]) -> bool:
    return profile.host is not None and bool({*profile.host.instruction_sets} & {*instruction_sets})


def int8_problem() -> str:
    """Return the reason why torch cannot compute in int8 here, ``""`` if it can."""
    from roofline.quantization.native_variants import int8_problem

    return int8_problem()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A case in one data type, measured in one process."""

    case: CalibrationCase
    dtype: str

    @property
    def key(self) -> str:
        """Unique name of the step."""
        layout = " channels-last" if self.case.channels_last else ""
        return f"{self.case.name} {self.dtype}{layout}"


def pending_steps(
    cases: Sequence[CalibrationCase], dtypes: Sequence[str], done: set[str]
) -> list[Step]:
    """Return the steps of each case in each type that are not done."""
    steps = (Step(case=each, dtype=dtype) for each in cases for dtype in dtypes)
    return [each for each in steps if each.key not in done]


def interleave(first: Sequence[Step], second: Sequence[Step], *, every: int) -> list[Step]:
    """Return both lists, with one of `second` after each `every` of `first`."""
    found: list[Step] = []
    others = iter(second)
    for place in range(0, len(first), every):
        found += [*first[place : place + every], *islice(others, 1)]
    return [*found, *others]


MODEL_EFFORT = Effort(warm_ups=1, min_rounds=3, max_rounds=7, budget_s=0.3)
DESIGN_EFFORT = Effort(warm_ups=2, min_rounds=5, max_rounds=15, budget_s=0.06)


def measure_steps(
    here: Bench, steps: Sequence[Step], thread_counts: Sequence[int]
) -> list[list[RunSample] | str]:
    """Measure each step; return its runs, or the reason it failed."""
    found: list[list[RunSample] | str] = []
    for step in steps:
        try:
            found.append(measure_step(here, step, thread_counts))
        except (RooflineError, MemoryError) as error:
            found.append(failure_reason(error))
    return found


def failure_reason(error: BaseException) -> str:
    """Return the reason why a measurement failed."""
    return str(error) or "ran out of memory"


def measure_step(here: Bench, step: Step, thread_counts: Sequence[int]) -> list[RunSample]:
    """Measure a step at all of its batches and numbers of threads, without disturbed runs."""
    case, is_int8 = step.case, step.dtype == INT8
    dtype = None if step.dtype in ("float32", INT8) else step.dtype
    options = RunOptions(dtype=dtype, channels_last=case.channels_last)
    effort = DESIGN_EFFORT if case.is_design else MODEL_EFFORT
    samples: list[RunSample] = []
    model: torch.nn.Module | None = None
    kernels: AbstractContextManager[object] = contextlib.nullcontext()
    if is_int8:
        from roofline.quantization.native_variants import int8_kernels

        kernels = int8_kernels()
    with kernels:
        for batch in case.batches:
            workload = case_workload(case, replace(options, batch=batch))
            for threads in thread_counts:
                if is_int8:
                    model = _int8_model(here, workload, threads)
                elif model is None:
                    model = materialize_model(workload)
                found = measure(here, workload, model, threads=threads, effort=effort)
                if not found.timed.run.are_disturbed:
                    samples.append(
                        sample_of(found, dtype=step.dtype, origin="calibrate", family=case.family)
                    )
    return samples


def _int8_model(here: Bench, workload: Workload, threads: int) -> torch.nn.Module:
    from roofline.latency.measuring.rounds import torch_threads
    from roofline.quantization.native_variants import quantize_int8

    # oneDNN's weights have the layout of the first pass. A pass of another size or on other threads
    # would reorder them at every call, for milliseconds.
    with torch_threads(threads, here.topology.cores):
        return quantize_int8(materialize_model(workload), workload.given)


def case_workload(case: CalibrationCase, options: RunOptions) -> Workload:
    """Return the model or design of a case; the batch of a design is that of its shape."""
    if not case.is_design:
        return build_workload(case.name, None, options)
    from roofline.workload.models.designs import design

    module = design(case.kind, *case.sizes)
    built = build_workload(module, case.shape, replace(options, batch=None))
    return replace(built, source=replace(built.source, name=case.name))


BUDGET_S = 285.0
"""Time after which no step begins. The start, the last step and the evaluation come on top."""

QUICK_BUDGET_S = 40.0

_QUICK_MODELS = 9
"""The first models, of each kind of kernel, which correct the generic CPU model at batch 1."""

_DESIGN_SHARE, _SHARE_WITH_INT8 = 0.25, 0.35
"""Share of the time for designs, of which int8 needs more; models have the rest."""

_DESIGNS_PER_PROCESS = 8

_PROGRESS_NOTE, _QUICK_NOTE = "calibrate", "calibrate --quick"


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
    """Measure models and designs on this machine, and store their operator times.

    Each is stored at once: a further call continues an interrupted calibration, and adds data to a
    complete one.

    Args:
        quick: up to 60 seconds, with few models at batch 1; they correct the generic CPU model.
        fresh: delete data of earlier calibrations.
        dtypes: data types; None: float32, and bfloat16 and int8 if the CPU computes in them and not
            `quick`. int8 is measured on layers that torch quantizes with given scales, then on a
            few models.
        force: measure although other processes run.
        progress: called with the progress.
        say: called with notes on waiting.
        budget_s: time in seconds after which no model begins; None: 285, or 40 if quick.
        clock: clock in seconds.

    Raises:
        MeasurementError: the machine is busy.
        InputError: unknown data type, or a file that cannot be written.
    """
    if budget_s is None:
        budget_s = QUICK_BUDGET_S if quick else BUDGET_S
    if quick and not dtypes:
        dtypes = ("float32",)
    for each in dtypes or ():
        if each != INT8:
            RunOptions(dtype=each)
    progress_note = _QUICK_NOTE if quick else _PROGRESS_NOTE
    tell = say or silent
    changed = ""
    skipped: list[str] = []
    interrupted = False
    with (
        bench(force=force, say=tell, progress=None) as here,
        Store(host_latency_file(), host_environment()) as store,
        fresh_processes(settled=True) as run,
    ):
        kinds = calibration_dtypes(here.profile, dtypes, lambda: run(int8_problem))
        counts = thread_counts(here.profile)
        if fresh:
            store.delete_runs("calibrate")
            for each in (_PROGRESS_NOTE, _QUICK_NOTE):
                store.keep_note(each, "[]")
        # The budget excludes waiting for other measurements.
        begin = clock()
        before = calibration_of(store.runs(), here.profile).runs
        done = _progress(store, progress_note)
        repeated = [each for each in pending_steps(models(), kinds, set()) if each.key in done][:1]

        def outcomes_of(steps: Sequence[Step]) -> list[list[RunSample] | str]:
            try:
                return run(measure_steps, here, steps, counts)
            except (RooflineError, MemoryError) as error:
                # The process ended.
                return [failure_reason(error) for _ in steps]

        try:
            for steps in _steps(kinds, done, begin, budget_s, clock, quick=quick):
                if repeated:
                    changed = _change(before, outcomes_of(repeated))
                    repeated = []
                    if changed:
                        tell(changed)
                if progress is not None:
                    fraction = min(1.0, (clock() - begin) / budget_s)
                    progress(fraction, f"{steps[0].case.name} {steps[0].dtype}")
                for step, outcome in zip(steps, outcomes_of(steps), strict=True):
                    if isinstance(outcome, str):
                        skipped.append(f"{step.case.name}: {outcome}")
                        continue
                    for each in outcome:
                        store.add(each)
                    # Disturbed and failed steps are repeated by the next calibration.
                    if len(outcome) == len(step.case.batches) * len(counts):
                        done.add(step.key)
                store.keep_note(progress_note, json.dumps(sorted(done)))
        except KeyboardInterrupt:
            interrupted = True
        calibration, notes = calibration_of(store.runs(), here.profile), store.unused_samples()
        seconds = clock() - begin
    runs = calibration.runs
    return Calibrated(
        runs=len(runs),
        operators=sum(len(each.operators) for each in runs),
        models=len({each.model for each in runs if each.family != DESIGN}),
        families=len({each.family for each in runs if each.family != DESIGN}),
        new_runs=len(runs) - len(before),
        seconds=seconds,
        held_out=() if interrupted else _held_out_errors(calibration),
        skipped=tuple(skipped),
        interrupted=interrupted,
        file=str(host_latency_file()),
        warnings=(*here.conditions, *here.notes, *notes, *filter(None, [changed])),
    )


_CHANGED = 1.25
"""Ratio of two times of a model from which the machine is reported to have another speed."""


def _change(before: Sequence[RunSample], again: Sequence[list[RunSample] | str]) -> str:
    """Return a warning if a model takes another time than in earlier runs, else ``""``.

    Virtual machines move between hosts; data of both would make predictions of neither.
    """
    earlier = {_setting(each): each.end_to_end_s for each in before if each.origin == "calibrate"}
    repeated = [
        each
        for runs in again
        if not isinstance(runs, str)
        for each in runs
        if _setting(each) in earlier
    ]
    if not repeated:
        return ""
    ratio = float(np.median([each.end_to_end_s / earlier[_setting(each)] for each in repeated]))
    if 1 / _CHANGED < ratio < _CHANGED:
        return ""
    return (
        f"{repeated[0].model} takes {ratio:.2f} times as long as in earlier calibrations;"
        f" {argument('fresh')} discards their data"
    )


def _setting(run: RunSample) -> tuple[object, ...]:
    return run.model, run.dtype, run.batch, run.threads, run.channels_last


def _steps(
    dtypes: Sequence[str],
    done: set[str],
    begin: float,
    budget_s: float,
    clock: Callable[[], float],
    *,
    quick: bool = False,
) -> Iterator[list[Step]]:
    """Yield the steps of each process until the time is over: one model, or several designs."""
    floating = tuple(each for each in dtypes if each != INT8)
    cases = models()
    if quick:
        cases = tuple(replace(each, batches=(1,)) for each in cases[:_QUICK_MODELS])
    of_models = pending_steps(cases, floating, done)
    of_designs = pending_steps(designs(), floating, done)
    share = _DESIGN_SHARE
    if INT8 in dtypes:
        of_models += pending_steps(int8_models(), (INT8,), done)
        in_int8 = pending_steps(int8_designs(), (INT8,), done)
        of_designs = interleave(of_designs, in_int8, every=max(1, len(floating)))
        share = _SHARE_WITH_INT8
    spent = {True: 0.0, False: 0.0}
    while (of_models or of_designs) and clock() - begin < budget_s:
        has_share = spent[True] <= share * (spent[True] + spent[False])
        is_design = bool(of_designs) and (has_share or not of_models)
        start = clock()
        left_over, count = (of_designs, _DESIGNS_PER_PROCESS) if is_design else (of_models, 1)
        chosen = left_over[:count]
        del left_over[:count]
        yield chosen
        spent[is_design] += clock() - start


def _progress(store: Store, note: str) -> set[str]:
    """Return the keys of steps that are done; none if the note is damaged."""
    try:
        found = json.loads(store.note(note) or "[]")
    except (ValueError, RecursionError):
        return set()
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def _held_out_errors(calibration: Calibration) -> tuple[HeldOutError, ...]:
    """Return the errors of whole models whose family was left out, by threads and type."""
    # Designs are parts of models.
    models = (each for each in calibration.held_out if each.run.family != DESIGN)
    found = grouped(models, lambda each: (each.run.threads, each.run.dtype))
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
                        abs(np.log1p(one.error))
                        <= Z_80 * one.deviation * calibration.interval_factor
                        for one in each
                    ]
                )
            ),
        )
        for (threads, dtype), each in sorted(found.items())
    )
