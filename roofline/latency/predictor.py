"""Predictions of placed operators and of their pass, from the calibration of a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roofline.core.text import counted
from roofline.latency.allocator import DEFAULT, Allocator
from roofline.latency.calibration import Calibration
from roofline.latency.features import features_of
from roofline.latency.generic import NAME
from roofline.latency.learning import Z_80
from roofline.latency.prediction import (
    FAULTS_MATTER,
    NOT_PREDICTED,
    Predicted,
    Prediction,
    RunPrediction,
)
from roofline.latency.samples import EarlierRun, OperatorFeatures
from roofline.machine.core_state import CoreState
from roofline.placement import Placement, Roof
from roofline.run import Run
from roofline.workload.fusion import FusedOperator
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.page_faults import PageFaults, count_page_faults, fault_free_settings

_FAULT_DEVIATION = 0.2
"""Relative deviation of the time of a page fault over machine states: 2.0, 2.3, 2.4 and 3.4 µs were
the medians of four measurements of one shared host within two hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """Calibration of a machine with the conditions of predictions.

    ``core_state`` defaults to the usual one; ``notes`` accompany every prediction.
    ``is_of_host``: calibrated on this machine, with the present torch. ``allocator`` is that of the
    process to predict, ``page_fault_s`` the seconds of a page fault by threads (None: as
    calibrated), ``lanes`` the float32 elements of a vector register.
    """

    calibration: Calibration
    core_state: CoreState | None = None
    notes: tuple[str, ...] = ()
    is_of_host: bool = False
    allocator: Allocator = DEFAULT
    page_fault_s: Mapping[int, float] | None = None
    lanes: int = 16

    @property
    def description(self) -> str:
        """Description of the calibration data."""
        return self.calibration.description

    def earlier_run(
        self, placements: Sequence[Placement], run: Run, threads: int
    ) -> EarlierRun | None:
        """Return the last measurement of such a pass on this machine, if any."""
        if not self.is_of_host:
            return None
        features = tuple(_features(placements, threads))
        return self.calibration.earlier_run(
            features, channels_last=run.channels_last, train=run.train
        )

    def predict_compiled(
        self, records: Sequence[OperatorRecord], fused: Sequence[FusedOperator], roof: Roof
    ) -> None:
        """Return None: calibrations are of eager passes."""
        del records, fused, roof

    def predict(self, placements: Sequence[Placement], threads: int, /) -> Predicted:
        """Return predictions of operators on a number of threads, and of their pass."""
        features, found = self._predicted(placements, threads)
        known = [each for each in found if each is not None]
        run, notes = None, list(self.notes)
        if features and len(known) == len(found):
            base = self.calibration.predict_run(
                features, known, calls=len(placements), core_state=self.core_state
            )
            run, more = self.with_faults(base, placements, threads)
            notes += more
            prior = None if self.calibration.has_runs else self.calibration.prior
            if prior and threads > prior.threads:
                notes.append(
                    f"the generic CPU model was learned on 1 to {prior.threads} threads; {threads}"
                    " are extrapolated"
                )
        elif features:
            at_work = [each.record for each in placements if each.record.state is not State.FREE]
            left = [place for place, known in enumerate(found) if known is None]
            types = ", ".join(sorted({features[place].dtype for place in left}))
            setting = f"{types} on {counted(threads, 'thread')}"
            reason = f"too few samples in {setting}; run `roofline calibrate`"
            if not self.calibration.has_runs and all(
                at_work[place].state is State.UNKNOWN for place in left
            ):
                names = ", ".join(sorted({at_work[place].op for place in left}))
                reason = f"unknown FLOP of {names}; add a formula (docs/how-to/formulas.md)"
            count = f"{len(left)} of {len(found)}"
            notes.append(f"{count}{NOT_PREDICTED}{reason}")
        return Predicted(operators=_align(placements, found), run=run, notes=tuple(notes))

    def operators(
        self, placements: Sequence[Placement], threads: int, /
    ) -> tuple[Prediction | None, ...]:
        """Return predictions of operators alone, without simulating the allocator."""
        return _align(placements, self._predicted(placements, threads)[1])

    def _predicted(
        self, placements: Sequence[Placement], threads: int
    ) -> tuple[list[OperatorFeatures], list[Prediction | None]]:
        """Return features and predictions of operators that are not free.

        The generic model predicts from FLOP: operators of unknown FLOP have none from it.
        """
        at_work = [each for each in placements if each.record.state is not State.FREE]
        features = _features(placements, threads)
        found = self.calibration.predict(features, self.core_state)
        return features, [
            None
            if known and known.learned_from == NAME and each.record.state is State.UNKNOWN
            else known
            for each, known in zip(at_work, found, strict=True)
        ]

    def with_faults(
        self, base: RunPrediction, placements: Sequence[Placement], threads: int
    ) -> tuple[RunPrediction, tuple[str, ...]]:
        """Return the prediction of a pass with its page faults, and notes on them."""
        costs = self.calibration.page_fault_s if self.page_fault_s is None else self.page_fault_s
        page_fault_s = costs.get(threads)
        excluded = "predicted times exclude page faults"
        if self.allocator.settings is None:
            return base, (f"{excluded}: {self.allocator.library} is not simulated",)
        if page_fault_s is None:
            return base, (f"{excluded}: their cost is unknown; run `roofline measure`",)
        records = [each.record for each in placements]
        page_faults = count_page_faults(
            records, self.allocator.settings, threads=threads, lanes=self.lanes
        )
        run = replace(_add_faults(base, page_faults, page_fault_s), allocator=self.allocator.name)
        # The 10 % quantile: other settings gain nothing without page faults.
        if page_faults.low * page_fault_s > FAULTS_MATTER * run.settled_s:
            # These avoid all page faults in the simulation.
            kept = fault_free_settings(records, threads=threads, lanes=self.lanes)
            run = replace(
                run,
                tunables=f"glibc.malloc.mmap_threshold={kept.mmap_threshold_bytes}"
                f":glibc.malloc.trim_threshold={kept.trim_threshold_bytes}",
            )
        if not page_faults.unknown:
            return run, ()
        unknown = ", ".join(page_faults.unknown)
        return run, (f"predicted page faults exclude scratch memory of {unknown}",)


def _features(placements: Sequence[Placement], threads: int) -> list[OperatorFeatures]:
    """Return the features of each operator that is not free."""
    return [
        features_of(each, threads) for each in placements if each.record.state is not State.FREE
    ]


def _align(
    placements: Sequence[Placement], found: Sequence[Prediction | None]
) -> tuple[Prediction | None, ...]:
    """Return the predictions in a sequence of all operators, None for free ones."""
    left = iter(found)
    return tuple(None if each.record.state is State.FREE else next(left) for each in placements)


def _add_faults(base: RunPrediction, page_faults: PageFaults, page_fault_s: float) -> RunPrediction:
    """Return the prediction with page faults of `page_fault_s` each.

    The interval widens by the uncertainty of their number and cost.
    """
    faults_s = page_faults.page_faults * page_fault_s
    predicted_s = base.predicted_s + faults_s
    by_operators_s = base.predicted_s * math.log(base.high_s / base.low_s) / (2 * Z_80)
    by_number_s = (page_faults.high - page_faults.low) * page_fault_s / (2 * Z_80)
    deviation_s = math.hypot(by_operators_s, by_number_s, _FAULT_DEVIATION * faults_s)
    factor = math.exp(Z_80 * deviation_s / predicted_s)
    return replace(
        base,
        predicted_s=predicted_s,
        low_s=predicted_s / factor,
        high_s=predicted_s * factor,
        page_faults=page_faults.page_faults,
    )
