"""What is said of a measured pass without its family, held against the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.analysis import InputSpec, MinTimes, minimum_times_of
from roofline.foundation.rows import sum_known
from roofline.latency.calibration import Calibration
from roofline.latency.families import family_of
from roofline.latency.predictor import Predictor
from roofline.latency.validation import BOUND_MARGIN, ModelValidation
from roofline.machine.pace import Pace
from roofline.minimum import minimum_times
from roofline.pipeline.timing import MeasuredAgain, MeasuredPass
from roofline.placement import place
from roofline.workload.fusion import fused_traffic
from roofline.workload.operators import State
from roofline.workload.rewritings import model_work


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
        name: the model's.
        specs: its inputs.
        found: what was measured.
        predictor: what has not seen its family, at the pace of the measurement.
        dtype: the type that it mostly computed in.
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
