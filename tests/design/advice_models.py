"""Small models, and a machine on which operators take what the test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from roofline.analysis import Analysis, Finding
from roofline.design.advice.rules import findings_of
from roofline.latency.prediction import Predicted, Prediction, RunPrediction
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.analyses import assemble_analysis
from roofline.pipeline.runs import capture_pass
from roofline.placement import Placement, Roof
from roofline.run import RunOptions
from roofline.workload.operators import OperatorRecord, State
from tests.analysis.examples import full_profile

TimeOf = Callable[[OperatorRecord], float]


def by_flop(record: OperatorRecord) -> float:
    """100 GFLOP/s and 10 GB/s, one after the other, and 10 microseconds a call."""
    return (record.work.flop or 0) / 1e11 + record.work.traffic_bytes / 1e10 + 1e-5


@dataclass
class Clock:
    """Predicts what it is told, give or take 1 %."""

    time_of: TimeOf = by_flop

    def predict(self, placements: Sequence[Placement], threads: int, /) -> Predicted:
        """The time of each, and their sum."""
        known = [
            None if each.record.state is State.FREE else _prediction(self.time_of(each.record))
            for each in placements
        ]
        total_s = sum(each.predicted_s for each in known if each)
        run = RunPrediction(
            predicted_s=total_s,
            low_s=0.9 * total_s,
            high_s=1.1 * total_s,
            operators_s=total_s,
            overhead_s=0.0,
            calibration="a test",
        )
        return Predicted(operators=tuple(known), run=run)

    def operators(
        self, placements: Sequence[Placement], threads: int, /
    ) -> tuple[Prediction | None, ...]:
        """The time of each."""
        return self.predict(placements, threads).operators


def _prediction(time_s: float) -> Prediction:
    return Prediction(
        predicted_s=time_s,
        low_s=0.99 * time_s,
        high_s=1.01 * time_s,
        samples=9,
        distance=0.0,
        is_extrapolated=False,
    )


def analysed(
    model: Any,
    *shape: int,
    clock: Clock | None = None,
    profile: HardwareProfile | None = None,
    **options: Any,
) -> Analysis:
    """The analysis of a model on a machine with AVX-512 and two cores, as the pipeline makes it."""
    chosen = RunOptions(**options)
    captured = capture_pass(model, shape, chosen, on="cpu")
    machine = profile or full_profile()
    return assemble_analysis(captured, Roof(machine, machine.threads), notes=(), predictor=clock)


def found_in(
    model: Any, *shape: int, time_of: TimeOf = by_flop, **options: Any
) -> dict[str, Finding]:
    """What the rules find in a model on that machine, by rule."""
    clock = Clock(time_of)
    analysis = analysed(model, *shape, clock=clock, **options)
    return {each.rule: each for each in findings_of(analysis, clock)}
