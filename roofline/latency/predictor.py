"""Predicts placed operators, and the pass that they are, from what was learned on a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roofline.core.text import counted
from roofline.latency.allocator import DEFAULT, Allocator
from roofline.latency.calibration import Calibration
from roofline.latency.features import facts_of
from roofline.latency.learning import Z_80
from roofline.latency.prediction import FAULTS_MATTER, Predicted, Prediction, RunPrediction
from roofline.latency.samples import EarlierRun, Facts
from roofline.machine.core_state import CoreState
from roofline.placement import Placement
from roofline.run import Run
from roofline.workload.operators import State
from roofline.workload.page_faults import PageFaults, count_page_faults, fault_free_settings

_FAULT_DEVIATION = 0.2
"""The relative deviation of what a page fault takes, from machine state to machine state: of 2.0,
2.3, 2.4 and 3.4 µs, the medians of four measurements of one shared host within two hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """What was learned on a machine, ready to be asked.

    ``core_state`` is how fast the cores run (None: as usual); ``notes`` are shown with every
    prediction (samples of another torch, say). ``is_of_host`` says that it was learned on this
    machine, with the torch that is there now. ``allocator`` is that of the process in which a pass
    will run, ``page_fault_s`` the seconds that a page fault adds there by threads (None: as
    calibrated), ``lanes`` the float32 elements in a vector register.
    """

    calibration: Calibration
    core_state: CoreState | None = None
    notes: tuple[str, ...] = ()
    is_of_host: bool = False
    allocator: Allocator = DEFAULT
    page_fault_s: Mapping[int, float] | None = None
    lanes: int = 16

    def earlier_run(
        self, placements: Sequence[Placement], run: Run, threads: int
    ) -> EarlierRun | None:
        """Return the last such pass that was measured on this machine; None: there is none."""
        if not self.is_of_host:
            return None
        facts = tuple(_facts(placements, threads))
        return self.calibration.earlier_run(facts, channels_last=run.channels_last, train=run.train)

    def predict(self, placements: Sequence[Placement], threads: int, /) -> Predicted:
        """Predicts the operators of a pass on so many threads, and the whole of it."""
        facts = _facts(placements, threads)
        found = self.calibration.predict(facts, self.core_state)
        known = [each for each in found if each is not None]
        run, notes = None, list(self.notes)
        if facts and len(known) == len(found):
            settled = self.calibration.predict_run(
                facts, known, calls=len(placements), core_state=self.core_state
            )
            run, more = self.with_faults(settled, placements, threads)
            notes += more
        elif facts:
            unknown = zip(facts, found, strict=True)
            types = ", ".join(sorted({each.dtype for each, known in unknown if known is None}))
            notes.append(
                f"{len(found) - len(known)} of {len(found)} operators are not predicted: too little"
                f" in {types} on {counted(threads, 'thread')} was measured"
                " (`roofline calibrate` measures it)"
            )
        return Predicted(operators=_placed(placements, found), run=run, notes=tuple(notes))

    def operators(
        self, placements: Sequence[Placement], threads: int, /
    ) -> tuple[Prediction | None, ...]:
        """Predict the operators of a pass alone, which takes no simulation of the allocator."""
        facts = _facts(placements, threads)
        return _placed(placements, self.calibration.predict(facts, self.core_state))

    def with_faults(
        self, settled: RunPrediction, placements: Sequence[Placement], threads: int
    ) -> tuple[RunPrediction, tuple[str, ...]]:
        """A pass with its page faults in the process that will run it, and notes on them."""
        costs = self.calibration.page_fault_s if self.page_fault_s is None else self.page_fault_s
        page_fault_s = costs.get(threads)
        without = "predicted times are those without page faults"
        if self.allocator.settings is None:
            what = f"page faults of {self.allocator.library} are not simulated"
            return settled, (f"{what}: {without}",)
        if page_fault_s is None:
            fix = "(`roofline measure` measures them)"
            return settled, (f"costs of page faults are not known: {without} {fix}",)
        records = [each.record for each in placements]
        page_faults = count_page_faults(
            records, self.allocator.settings, threads=threads, lanes=self.lanes
        )
        run = replace(_added(settled, page_faults, page_fault_s), allocator=self.allocator.name)
        # In nine of ten simulated processes: other settings gain nothing where there are none.
        if page_faults.low * page_fault_s > FAULTS_MATTER * run.settled_s:
            # With these there would be no page faults by the simulation.
            kept = fault_free_settings(records, threads=threads, lanes=self.lanes)
            run = replace(
                run,
                tunables=f"glibc.malloc.mmap_threshold={kept.mmap_threshold_bytes}"
                f":glibc.malloc.trim_threshold={kept.trim_threshold_bytes}",
            )
        if not page_faults.unknown:
            return run, ()
        return run, (f"page faults leave out scratch memory of {', '.join(page_faults.unknown)}",)


def _facts(placements: Sequence[Placement], threads: int) -> list[Facts]:
    """Return the facts of each operator that is not free."""
    return [facts_of(each, threads) for each in placements if each.record.state is not State.FREE]


def _placed(
    placements: Sequence[Placement], found: Sequence[Prediction | None]
) -> tuple[Prediction | None, ...]:
    """Predictions of those operators, at the places of all."""
    left = iter(found)
    return tuple(None if each.record.state is State.FREE else next(left) for each in placements)


def _added(settled: RunPrediction, page_faults: PageFaults, page_fault_s: float) -> RunPrediction:
    """A pass with page faults of so many seconds each.

    The interval is wider by what is not known of their number and their cost.
    """
    faults_s = page_faults.page_faults * page_fault_s
    predicted_s = settled.predicted_s + faults_s
    by_operators_s = settled.predicted_s * math.log(settled.high_s / settled.low_s) / (2 * Z_80)
    by_number_s = (page_faults.high - page_faults.low) * page_fault_s / (2 * Z_80)
    deviation_s = math.hypot(by_operators_s, by_number_s, _FAULT_DEVIATION * faults_s)
    factor = math.exp(Z_80 * deviation_s / predicted_s)
    return replace(
        settled,
        predicted_s=predicted_s,
        low_s=predicted_s / factor,
        high_s=predicted_s * factor,
        page_faults=page_faults.page_faults,
    )
