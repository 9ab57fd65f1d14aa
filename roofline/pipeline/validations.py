"""validate: models are predicted without what was measured of their kin, and then measured."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from roofline.analysis import InputSpec, MinTimes, minimum_times_of
from roofline.errors import RooflineError
from roofline.foundation.progress import Progress, Say, silent
from roofline.foundation.rows import sum_known
from roofline.foundation.text import counted
from roofline.latency.accuracy import BOUND_MARGIN, ModelValidation, RatioValidation, Skipped
from roofline.latency.allocator import allocator_here
from roofline.latency.calibration import Calibration
from roofline.latency.calibration_set import DESIGN, Subject, family_of, grid
from roofline.latency.measuring.rounds import Effort
from roofline.latency.predictor import Predictor
from roofline.latency.store import Store
from roofline.latency.validation import Validation
from roofline.machine.pace import Pace
from roofline.machine.system.host import package_version
from roofline.minimum import minimum_times
from roofline.pipeline.calibrations import DESIGN_EFFORT, subject_workload
from roofline.pipeline.fresh_processes import Runs, fresh_processes
from roofline.pipeline.machines import calibration_of, host_environment, host_latency_file, lanes_of
from roofline.pipeline.predictions import OneByOne
from roofline.pipeline.runs import Workload, workload_of
from roofline.pipeline.timing import (
    Bench,
    MeasuredAgain,
    MeasuredPass,
    bench,
    measure,
    measure_again,
    real_model,
    type_of,
)
from roofline.placement import Roof, place
from roofline.run import Run, RunOptions, check_counts
from roofline.workload.fusion import fused_traffic
from roofline.workload.operators import State
from roofline.workload.rewritings import model_work

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What predicts a family without having seen it."""

    all: Calibration
    known: dict[str, Calibration]
    lanes: int

    def predictor(self, family: str, pace: Pace) -> Predictor:
        """What was learned from all other families, for cores that run so fast."""
        if family not in self.known:
            self.known[family] = Calibration(
                self.all.runs, without=family, page_fault_s=self.all.page_fault_s
            )
        return Predictor(calibration=self.known[family], pace=pace, lanes=self.lanes)


def judged_pass(
    name: str,
    specs: Sequence[InputSpec],
    found: MeasuredPass,
    predictor: Predictor,
    *,
    dtype: str,
    again: MeasuredAgain | None,
    operators_measured_s: float | None,
) -> ModelValidation:
    """A measured pass beside its prediction.

    Args:
        again: the whole, measured again; None: it was not.
        operators_measured_s: the prediction from operators timed on their own; None: not asked for.
    """
    placements, samples = found.placements, found.timed.operators
    predicted = predictor.predict(placements, found.roof.threads)
    at_work = [
        index for index, each in enumerate(placements) if each.record.state is not State.FREE
    ]
    # Predictions are learned under the ceilings as measured; minimum times hold at this clock.
    roof, records = found.roof_at_clock, found.capture.records
    limits = place(records, found.reuse, roof, cache="steady")
    errors: list[float] = []
    bounded = below = 0
    for index in at_work:
        eager_min_time_s, took_s = limits[index].eager_min_time_s, samples[index].median_s
        if eager_min_time_s:
            bounded += 1
            below += took_s < BOUND_MARGIN * eager_min_time_s
        prediction = predicted.operators[index]
        if prediction is not None:
            errors.append(abs(prediction.predicted_s - took_s))
    eager_min_time_s = sum_known(limits[index].eager_min_time_s for index in at_work)
    minimum = minimum_times(limits, fused_traffic(records), model_work(records), roof)
    shapes = [each.shape for each in specs if each.shape]
    run = predicted.run
    usual = replace(predictor, pace=None).predict(placements, found.roof.threads).run
    return ModelValidation(
        model=name,
        family=family_of(name),
        batch=shapes[0][0] if shapes else None,
        dtype=dtype,
        threads=found.roof.threads,
        channels_last=found.capture.run.channels_last,
        predicted_s=run.predicted_s if run else None,
        predicted_low_s=run.low_s if run else None,
        predicted_high_s=run.high_s if run else None,
        operators_measured_s=operators_measured_s,
        measured_s=found.timed.run.measured_s,
        remeasured_s=again.sample.median_s if again else None,
        **minimum_times_of(MinTimes.of(eager_min_time_s, minimum)),
        operators=bounded,
        below_bound=below,
        operator_abs_error_s=sum(errors) if len(errors) == len(at_work) else None,
        operators_s=sum(samples[index].median_s for index in at_work),
        samples=sum(len(each.operators) for each in predictor.calibration.runs),
        clock_hz=found.timed.run.clock_hz,
        core_to_core_latency_s=found.timed.run.core_to_core_latency_s,
        predicted_usual_s=usual.predicted_s if usual else None,
        predicted_settled_s=run.settled_s if run else None,
        predicted_page_faults=run.page_faults if run else None,
        page_faults=found.timed.run.page_faults,
        remeasured_clock_hz=again.pace.clock_hz if again else None,
        measured_times_s=found.timed.run.end_to_end.times_s,
        remeasured_times_s=again.sample.times_s if again else (),
        discarded=found.timed.run.discarded,
        are_disturbed=found.timed.run.are_disturbed,
    )


DEFAULT_MODELS = (
    *("alexnet", "vgg11", "resnet18", "resnet50", "densenet121", "inception_v3", "squeezenet1_0"),
    *("mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0", "shufflenet_v2_x1_0"),
    *("efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "swin_t", "vit_b_16"),
)
"""One or two of each family of torchvision."""

_EFFORT = Effort(warm_ups=2, least=5, most=15, budget_s=1.0)
_QUICK = Effort(warm_ups=1, least=3, most=7, budget_s=0.3)


def validate(
    models: Sequence[str | tuple[str, Any]] | None = None,
    *,
    batches: Sequence[int] | None = None,
    threads: Sequence[int] | None = None,
    dtypes: Sequence[str] | None = None,
    channels_last: bool = False,
    seq: int | None = None,
    operators_measured: bool = False,
    designs: bool = False,
    quick: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Validation:
    """Predicts models without what was learned from their families, then measures them, twice.

    Nothing that is measured here is learned from. A model that raises or runs out of memory is
    skipped, and the rest is done all the same.

    Args:
        models: names, or names with the inputs that `analyze` takes; None: one or two of each
            family of torchvision.
        batches: sizes of the first dimension, each on its own; None: 1.
        threads: numbers of threads, each on its own; None: as many as there are cores.
        dtypes: types, each on its own; None: as models are.
        channels_last: images and weights with their channels last.
        seq: how many tokens models of transformers are given.
        operators_measured: judges also the sum of operators that were timed on their own.
        designs: judges also how many times faster separable convolutions are than standard ones.
        quick: fewer passes.
        force: measures although others compute.
        progress: told how far it is.
        say: told, in words, what is waited for, and what was skipped.

    Raises:
        MeasurementError: the machine is busy.
        InputError: options are wrong.
    """
    for batch in batches or ():
        check_counts(batch=batch, seq=seq, threads=None, inputs=None)
    for each in dtypes or ():
        RunOptions(dtype=each).run()
    for each in threads or ():
        check_counts(batch=None, seq=None, threads=each, inputs=None)
    tell = say or silent
    names = tuple(models) if models else DEFAULT_MODELS if not designs else ()
    effort = _QUICK if quick else _EFFORT
    found: list[ModelValidation] = []
    skipped: list[Skipped] = []
    ratios: list[RatioValidation] = []
    with bench(force=force, say=tell) as here, fresh_processes() as process:
        with Store(host_latency_file(), host_environment()) as store:
            calibration, notes = calibration_of(store, here.profile), store.unused()
        teams = tuple(threads or (here.profile.threads,))
        for each in teams:
            here.profile.check_threads(each)
        judge = Judge(all=calibration, known={}, lanes=lanes_of(here.profile))
        total = len(names) * len(dtypes or (None,)) + (len(grid()) if designs else 0)
        done = 0

        def report(what: str) -> None:
            if progress is not None:
                progress(done / max(1, total), what)

        for each in names:
            name, inputs = each if isinstance(each, tuple) else (each, None)
            for dtype in dtypes or (None,):
                report(name)
                one = ValidationCase(
                    name=name,
                    inputs=inputs,
                    run=Run(
                        dtype=dtype if dtype and dtype != "float32" else "",
                        channels_last=channels_last,
                    ),
                    seq=seq,
                    batches=tuple(batches or (None,)),
                    teams=teams,
                    effort=effort,
                )
                measured, failed = _measured(process, here, one)
                for one_failed in failed:
                    tell(f"{one_failed.model} is skipped: {one_failed.problem}")
                skipped += failed
                for each_measured in measured:
                    alone = (
                        _alone(process, here, one, each_measured) if operators_measured else None
                    )
                    found.append(_judged(judge, each_measured, alone))
                done += 1
        for pair in grid() if designs else ():
            report(pair[0].name)
            for each, dtype in itertools.product(teams, dtypes or ("float32",)):
                try:
                    ratios.append(_ratio(process, here, judge, pair, each, dtype))
                except (RooflineError, MemoryError) as error:
                    problem = str(error) or "ran out of memory"
                    tell(f"{pair[0].name} is skipped: {problem}")
                    skipped.append(
                        Skipped(
                            model=pair[0].name,
                            batch=1,
                            dtype=dtype,
                            threads=each,
                            problem=problem,
                        )
                    )
            done += 1
    return Validation(
        models=tuple(found),
        skipped=tuple(skipped),
        ratios=tuple(ratios),
        hardware=here.profile.name,
        torch_version=package_version("torch"),
        date=date.today().isoformat(),
        allocator=allocator_here().name,
        warnings=(*here.conditions, *here.notes, *notes, *_without(calibration.runs)),
    )


def _without(runs: Sequence[object]) -> tuple[str, ...]:
    if runs:
        return ()
    return ("this machine is not calibrated, so nothing is predicted; run `roofline calibrate`",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationCase:
    """One model in one type, at all sizes of its batch and numbers of threads."""

    name: str
    inputs: Any
    run: Run
    seq: int | None
    batches: tuple[int | None, ...]
    teams: tuple[int, ...]
    effort: Effort

    def skipped(self, batch: int | None, threads: int, dtype: str, error: BaseException) -> Skipped:
        """Why a run of it could not be judged."""
        return Skipped(
            model=self.name,
            batch=batch,
            dtype=dtype,
            threads=threads,
            problem=str(error) or "ran out of memory",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run that was measured, and its whole once more (None: it failed the second time)."""

    name: str
    specs: tuple[InputSpec, ...]
    batch: int | None
    dtype: str
    found: MeasuredPass
    again: MeasuredAgain | None


def measured_twice(here: Bench, model: ValidationCase) -> tuple[list[Measured], list[Skipped]]:
    """What a model took, and what of it could not be measured."""
    measured: list[Measured] = []
    workloads: list[Workload] = []
    skipped: list[Skipped] = []
    module: torch.nn.Module | None = None
    dtype = model.run.dtype or "float32"
    for batch, threads in itertools.product(model.batches, model.teams):
        try:
            asked = workload_of(model.name, model.inputs, run=model.run, batch=batch, seq=model.seq)
            module = module if module is not None else real_model(asked)
            dtype = type_of(module, model.run)
            found = measure(
                here, asked, module, run=model.run, threads=threads, effort=model.effort
            )
        except (RooflineError, MemoryError) as error:
            skipped.append(model.skipped(batch, threads, dtype, error))
            continue
        workloads.append(asked)
        measured.append(
            Measured(
                name=asked.source.name,
                specs=asked.specs,
                batch=batch,
                dtype=dtype,
                found=found,
                again=None,
            )
        )
    # Apart in time from the first: what moved in between is noise.
    for index, (asked, each) in enumerate(zip(workloads, measured, strict=True)):
        assert module is not None
        # It ran once, and that is judged all the same.
        with contextlib.suppress(RooflineError, MemoryError):
            again = measure_again(
                here,
                asked,
                module,
                run=model.run,
                threads=each.found.roof.threads,
                effort=model.effort,
            )
            measured[index] = replace(each, again=again)
    return measured, skipped


def measured_alone(here: Bench, model: ValidationCase, batch: int | None, roof: Roof) -> OneByOne:
    """The operators of a model, each unique one timed on its own."""
    asked = workload_of(model.name, model.inputs, run=model.run, batch=batch, seq=model.seq)
    return OneByOne(asked, run=model.run, roof=roof, topology=here.topology, say=silent)


def measured_pair(
    here: Bench, pair: tuple[Subject, Subject], threads: int, run: Run
) -> list[tuple[MeasuredPass, MeasuredAgain]]:
    """Two designs, each measured twice."""
    found: list[tuple[MeasuredPass, MeasuredAgain]] = []
    for subject in pair:
        asked = subject_workload(subject, run, None)
        model = real_model(asked)
        first = measure(here, asked, model, run=run, threads=threads, effort=DESIGN_EFFORT)
        again = measure_again(here, asked, model, run=run, threads=threads, effort=DESIGN_EFFORT)
        found.append((first, again))
    return found


def _measured(
    process: Runs, here: Bench, model: ValidationCase
) -> tuple[list[Measured], list[Skipped]]:
    try:
        return process(measured_twice, here, model)
    except (RooflineError, MemoryError) as error:
        # All of it ended with its process.
        dtype = model.run.dtype or "float32"
        return [], [
            model.skipped(batch, threads, dtype, error)
            for batch, threads in itertools.product(model.batches, model.teams)
        ]


def _alone(
    process: Runs, here: Bench, model: ValidationCase, measured: Measured
) -> OneByOne | None:
    try:
        return process(measured_alone, here, model, measured.batch, measured.found.roof)
    except (RooflineError, MemoryError):
        # It was measured, and that is judged all the same.
        return None


def _judged(judge: Judge, measured: Measured, alone: OneByOne | None) -> ModelValidation:
    predictor = judge.predictor(family_of(measured.name), measured.found.timed.run.pace)
    said = alone.predicted(predictor).run if alone is not None else None
    return judged_pass(
        measured.name,
        measured.specs,
        measured.found,
        predictor,
        dtype=measured.dtype,
        again=measured.again,
        operators_measured_s=said.predicted_s if said else None,
    )


def _ratio(
    process: Runs,
    here: Bench,
    judge: Judge,
    pair: tuple[Subject, Subject],
    threads: int,
    dtype: str,
) -> RatioValidation:
    """How many times faster the second of two designs is, as predicted and as measured."""
    run = Run(dtype=dtype if dtype != "float32" else "")
    predicted_s: list[float | None] = []
    measured_s: list[float] = []
    again_s: list[float] = []
    # Designs of other sizes are learned from, and that is said where ratios are reported.
    learned = Predictor(calibration=judge.all)
    for found, again in process(measured_pair, here, pair, threads, run):
        predictor = replace(learned, pace=found.timed.run.pace)
        said = predictor.predict(found.placements, threads).run
        predicted_s.append(said.predicted_s if said else None)
        measured_s.append(found.timed.run.measured_s)
        again_s.append(again.sample.median_s / again.pace.slowdown(found.timed.run.pace))
    standard_s, separable_s = predicted_s
    size = pair[0].shape
    team = f"{counted(threads, 'thread')}"
    return RatioValidation(
        name=f"{DESIGN} {size[1]} channels, {size[2]} px, {dtype}, {team}",
        predicted=standard_s / separable_s if standard_s and separable_s else None,
        measured=measured_s[0] / measured_s[1],
        remeasured=again_s[0] / again_s[1],
    )
