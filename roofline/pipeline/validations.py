"""validate: compare predictions from other families with measurements of models."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from roofline.analysis import MinTimes, minimum_times_of
from roofline.core.progress import Progress, Say, silent
from roofline.core.text import counted
from roofline.core.units import sum_known
from roofline.errors import RooflineError
from roofline.latency.accuracy import BOUND_MARGIN, ModelValidation, RatioValidation, Skipped
from roofline.latency.allocator import allocator_here
from roofline.latency.calibration import Calibration
from roofline.latency.calibration_set import DESIGN, CalibrationCase, family_of, grid
from roofline.latency.measuring.rounds import Effort
from roofline.latency.predictor import Predictor
from roofline.latency.store import Store
from roofline.latency.validation import Validation
from roofline.machine.core_state import CoreState
from roofline.machine.system.host import package_version
from roofline.minimum import minimum_times
from roofline.pipeline.calibrations import DESIGN_EFFORT, case_workload, failure_reason
from roofline.pipeline.fresh_processes import fresh_processes
from roofline.pipeline.machines import (
    calibration_of,
    host_environment,
    host_latency_file,
    vector_lanes,
)
from roofline.pipeline.measured_comparisons import Candidate
from roofline.pipeline.predictions import IsolatedOperators
from roofline.pipeline.runs import Workload, build_workload
from roofline.pipeline.timing import (
    Bench,
    MeasuredPass,
    Remeasurement,
    bench,
    main_dtype,
    materialize_model,
    measure,
    remeasure,
)
from roofline.placement import Roof, place
from roofline.run import RunOptions, ValidateKeywords, takes
from roofline.workload.fusion import fused_traffic
from roofline.workload.operators import State
from roofline.workload.rewritings import model_work

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def leave_one_out_predictors(
    calibration: Calibration, lanes: int
) -> Callable[[str, CoreState], Predictor]:
    """Return a function of family and clock state to the predictor from all other families."""

    @functools.cache
    def known(family: str) -> Calibration:
        return Calibration(
            calibration.runs,
            without=family,
            page_fault_s=calibration.page_fault_s,
            # Without one of just enough families, a calibration still stands alone.
            prior=calibration.prior if calibration.uses_prior else None,
        )

    return lambda family, core_state: Predictor(
        calibration=known(family), core_state=core_state, lanes=lanes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedMeasurement:
    """A measured run, and a second measurement of whole passes (None: it failed)."""

    dtype: str
    found: MeasuredPass
    remeasurement: Remeasurement | None = None


def validate_pass(
    measured: RepeatedMeasurement,
    predictor: Predictor,
    *,
    operators_measured_s: float | None = None,
) -> ModelValidation:
    """Return a measured pass with its prediction, and that from operators timed alone."""
    found, remeasurement = measured.found, measured.remeasurement
    placements, samples = found.placements, found.timed.operators
    predicted = predictor.predict(placements, found.roof.threads)
    at_work = [
        index for index, each in enumerate(placements) if each.record.state is not State.FREE
    ]
    # Predictions use the ceilings as measured, minimum times those at this clock.
    passed, roof = found.passed, found.roof_at_clock
    records = passed.capture.records
    limits = place(records, passed.reuse, roof, cache="steady")
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
    shapes = [each.shape for each in passed.inputs if each.shape]
    run = predicted.run
    usual = replace(predictor, core_state=None).predict(placements, found.roof.threads).run
    return ModelValidation(
        model=passed.name,
        family=family_of(passed.name),
        batch=shapes[0][0] if shapes else None,
        dtype=measured.dtype,
        threads=found.roof.threads,
        channels_last=passed.capture.run.channels_last,
        predicted_s=run.predicted_s if run else None,
        predicted_low_s=run.low_s if run else None,
        predicted_high_s=run.high_s if run else None,
        operators_measured_s=operators_measured_s,
        measured_s=found.timed.run.measured_s,
        remeasured_s=remeasurement.sample.median_s if remeasurement else None,
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
        remeasured_clock_hz=remeasurement.core_state.clock_hz if remeasurement else None,
        measured_times_s=found.timed.run.end_to_end.times_s,
        remeasured_times_s=remeasurement.sample.times_s if remeasurement else (),
        discarded=found.timed.run.discarded,
        are_disturbed=found.timed.run.are_disturbed,
    )


DEFAULT_MODELS = (
    *("alexnet", "vgg11", "resnet18", "resnet50", "densenet121", "inception_v3", "squeezenet1_0"),
    *("mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0", "shufflenet_v2_x1_0"),
    *("efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "swin_t", "vit_b_16"),
)
"""One or two of each family of torchvision."""

_EFFORT = Effort(warm_ups=2, min_rounds=5, max_rounds=15, budget_s=1.0)
_QUICK = Effort(warm_ups=1, min_rounds=3, max_rounds=7, budget_s=0.3)


@takes(ValidateKeywords)
def validate(
    models: str | Sequence[str | tuple[str, Any]] | None = None,
    *,
    operators_measured: bool = False,
    designs: bool = False,
    quick: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[ValidateKeywords],
) -> Validation:
    """Predict models from calibration data of other families, then measure them twice.

    Measurements are not added to the calibration data. A model that raises or runs out of memory is
    skipped. Models run once for each batch, number of threads, data type and layout.

    Args:
        models: a name, names, or names with inputs as for `analyze`; None: one or two of each
            family of torchvision.
        operators_measured: also validate the sum of operators timed alone.
        designs: also validate speedups of depthwise-separable over standard convolutions.
        quick: fewer passes.
        force: measure although other processes run.
        progress: called with the progress.
        say: called with notes on waiting, and with skipped models.

    Raises:
        MeasurementError: the machine is busy.
        InputError: options are wrong.
    """
    runs = [
        replace(each, dtype=None) if each.dtype_name == "float32" else each
        for each in RunOptions.every(**run)
    ]
    tell = say or silent
    models = [models] if isinstance(models, str) else models
    names = tuple(models) if models else DEFAULT_MODELS if not designs else ()
    effort = _QUICK if quick else _EFFORT
    found: list[ModelValidation] = []
    skipped: list[Skipped] = []
    ratios: list[RatioValidation] = []
    with bench(force=force, say=tell) as here, fresh_processes() as process:
        with Store(host_latency_file(), host_environment()) as store:
            calibration, notes = calibration_of(store.runs(), here.profile), store.unused_samples()
        runs = [replace(each, threads=each.threads or here.profile.threads) for each in runs]
        thread_counts = tuple(
            dict.fromkeys(here.profile.check_threads(each.threads or 0) for each in runs)
        )
        by_type = [list(some) for _, some in itertools.groupby(runs, lambda each: each.dtype_name)]
        predictor_without = leave_one_out_predictors(calibration, vector_lanes(here.profile))
        total = len(names) * len(by_type) + (len(grid()) if designs else 0)
        done = 0

        def measure_cases(
            name: str, cases: list[ValidationCase]
        ) -> list[RepeatedMeasurement | Skipped]:
            nonlocal done
            if progress is not None:
                progress(done / max(1, total), name)
            try:
                return process(measure_twice, here, cases)
            except (RooflineError, MemoryError) as error:
                # The process ended.
                return [case.skipped(error) for case in cases]

        for each, of_type in itertools.product(names, by_type):
            name, inputs = each if isinstance(each, tuple) else (each, None)
            cases = [
                ValidationCase(name=name, model=name, inputs=inputs, options=each, effort=effort)
                for each in of_type
            ]
            for case, outcome in zip(cases, measure_cases(name, cases), strict=True):
                if isinstance(outcome, Skipped):
                    tell(f"{outcome.model} is skipped: {outcome.problem}")
                    skipped.append(outcome)
                    continue
                family = family_of(outcome.found.passed.name)
                predictor = predictor_without(family, outcome.found.timed.run.core_state)
                alone = None
                if operators_measured:
                    # The measurement itself is kept.
                    with contextlib.suppress(RooflineError, MemoryError):
                        isolated = process(
                            measure_isolated_operators, here, case, outcome.found.roof
                        )
                        alone = isolated.predicted(predictor).run
                found.append(
                    validate_pass(
                        outcome,
                        predictor,
                        operators_measured_s=alone.predicted_s if alone else None,
                    )
                )
            done += 1
        for pair in grid() if designs else ():
            for threads, of_type in itertools.product(thread_counts, by_type):
                options = RunOptions(dtype=of_type[0].dtype, threads=threads, batch=1)
                cases = [
                    ValidationCase(
                        name=each.name,
                        model=each,
                        inputs=None,
                        options=options,
                        effort=DESIGN_EFFORT,
                    )
                    for each in pair
                ]
                outcomes = measure_cases(pair[0].name, cases)
                failed = [each for each in outcomes if isinstance(each, Skipped)]
                if failed:
                    tell(f"{pair[0].name} is skipped: {failed[0].problem}")
                    skipped.append(replace(failed[0], model=pair[0].name))
                    continue
                size = pair[0].shape
                dtype = options.dtype_name or "float32"
                name = f"{DESIGN} {size[1]} channels, {size[2]} px, {dtype}"
                both = [each for each in outcomes if isinstance(each, RepeatedMeasurement)]
                ratios.append(_ratio(f"{name}, {counted(threads, 'thread')}", calibration, *both))
            done += 1
    by = f"predicted by the {calibration.prior.description}" if calibration.prior else ""
    uncalibrated = (
        f"this machine has no calibration: {by or 'no predictions'}; run `roofline calibrate`"
    )
    return Validation(
        models=tuple(found),
        skipped=tuple(skipped),
        ratios=tuple(ratios),
        hardware=here.profile.name,
        torch_version=package_version("torch"),
        date=date.today().isoformat(),
        allocator=allocator_here().name,
        warnings=(
            *here.conditions,
            *here.notes,
            *notes,
            *((uncalibrated,) if not calibration.runs else ()),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationCase(Candidate):
    """A model, or a design of the calibration set, to measure with an effort."""

    effort: Effort

    def workload(self) -> Workload:
        """Return the model or design with its inputs."""
        if isinstance(self.model, CalibrationCase):
            return case_workload(self.model, self.options)
        return build_workload(self.model, self.inputs, self.options)

    def skipped(self, error: BaseException, dtype: str = "") -> Skipped:
        """Return the reason for which it was skipped."""
        return Skipped(
            model=self.name,
            batch=self.options.batch,
            dtype=dtype or self.options.dtype_name or "float32",
            threads=self.threads,
            problem=failure_reason(error),
        )


def measure_twice(
    here: Bench, cases: Sequence[ValidationCase]
) -> list[RepeatedMeasurement | Skipped]:
    """Measure each case, or return the reason it failed; cases of one name share a model.

    Second measurements come after all first ones, so their difference is the noise floor.
    """
    outcomes: list[RepeatedMeasurement | Skipped] = []
    workloads: dict[int, Workload] = {}
    models: dict[str, torch.nn.Module] = {}

    def passes(of: Callable[..., T], position: int, case: ValidationCase) -> T:
        how = {"threads": case.threads, "effort": case.effort}
        return of(here, workloads[position], models[case.name], **how)

    for position, case in enumerate(cases):
        try:
            workload = workloads[position] = case.workload()
            if case.name not in models:
                models[case.name] = materialize_model(workload)
            outcomes.append(
                RepeatedMeasurement(
                    dtype=main_dtype(models[case.name], case.run),
                    found=passes(measure, position, case),
                )
            )
        except (RooflineError, MemoryError) as error:
            model = models.get(case.name)
            dtype = "" if model is None else main_dtype(model, case.run)
            outcomes.append(case.skipped(error, dtype))
    for position, (case, outcome) in enumerate(zip(cases, outcomes, strict=True)):
        if isinstance(outcome, RepeatedMeasurement):
            # The first measurement is kept.
            with contextlib.suppress(RooflineError, MemoryError):
                outcomes[position] = replace(
                    outcome, remeasurement=passes(remeasure, position, case)
                )
    return outcomes


def measure_isolated_operators(here: Bench, case: ValidationCase, roof: Roof) -> IsolatedOperators:
    """Return the operators of a model, each unique one timed alone."""
    return IsolatedOperators(case.workload(), roof=roof, topology=here.topology, say=silent)


def _ratio(
    name: str,
    calibration: Calibration,
    standard: RepeatedMeasurement,
    separable: RepeatedMeasurement,
) -> RatioValidation:
    """Return the predicted and measured speedup of the second of two designs."""
    # Designs of other sizes are in the calibration data.
    predictor = Predictor(calibration=calibration)
    predicted_s: list[float | None] = []
    remeasured_s: list[float | None] = []
    for each in (standard, separable):
        found, core_state = each.found, each.found.timed.run.core_state
        run = (
            replace(predictor, core_state=core_state)
            .predict(found.placements, found.roof.threads)
            .run
        )
        predicted_s.append(run.predicted_s if run else None)
        remeasurement = each.remeasurement
        remeasured_s.append(
            remeasurement.sample.median_s / remeasurement.core_state.slowdown(core_state)
            if remeasurement
            else None
        )
    return RatioValidation(
        name=name,
        predicted=_quotient(*predicted_s),
        measured=standard.found.timed.run.measured_s / separable.found.timed.run.measured_s,
        remeasured=_quotient(*remeasured_s),
    )


def _quotient(first: float | None, second: float | None) -> float | None:
    return first / second if first and second else None
