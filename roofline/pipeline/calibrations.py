"""calibrate: this machine runs real models and designs, so that others can be predicted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from roofline.errors import RooflineError
from roofline.foundation.progress import Progress, Say, silent
from roofline.latency.calibrated import Calibrated, HeldOutError
from roofline.latency.calibration import HeldOut
from roofline.latency.curriculum import DESIGN, designs, models
from roofline.latency.int8_curriculum import int8_designs, int8_models
from roofline.latency.learning import Z_80
from roofline.latency.samples import INT8
from roofline.latency.store import Store
from roofline.pipeline.calibration_runs import measured_steps, problem_of
from roofline.pipeline.calibration_steps import Settings, Step, int8_problem, mixed, steps_of
from roofline.pipeline.fresh_processes import fresh_processes
from roofline.pipeline.learned import (
    calibration_of,
    host_environment,
    host_latency_file,
)
from roofline.pipeline.timing import bench

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
        Store.open(host_latency_file(), host_environment(), say=tell) as store,
        fresh_processes(settled=True) as run,
    ):
        settings = Settings.of(here.profile, dtypes, lambda: run(int8_problem))
        if fresh:
            store.forget_runs("calibrate")
            store.keep_note(_PROGRESS_NOTE, "[]")
        # Waiting for others that measure is no part of it.
        begin = clock()
        before = len(calibration_of(store, here.profile).runs)
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
                    outcomes = [problem_of(error) for _ in steps]
                for step, outcome in zip(steps, outcomes, strict=True):
                    if isinstance(outcome, str):
                        skipped.append(f"{step.subject.name}: {outcome}")
                        continue
                    for each in outcome:
                        store.add(each)
                    # What was disturbed, or failed, is tried again by the next calibration.
                    if len(outcome) == len(step.subject.batches) * len(settings.threads):
                        done.add(step.key)
                store.keep_note(_PROGRESS_NOTE, json.dumps(sorted(done)))
        except KeyboardInterrupt:
            interrupted = True
        calibration, notes = calibration_of(store, here.profile), store.unused()
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


def _progress(store: Store) -> set[str]:
    """The steps that were done before; none where the note is not what is written there."""
    try:
        found = json.loads(store.note(_PROGRESS_NOTE) or "[]")
    except (ValueError, RecursionError):
        return set()
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


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
