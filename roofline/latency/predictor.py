"""Predicts placed operators, and the pass that they are, from what was learned on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.latency.allocator import DEFAULT, Allocator
from roofline.latency.calibration import Calibration
from roofline.latency.features import facts_of
from roofline.latency.predicted import Predicted
from roofline.latency.prediction import FAULTS_MATTER, Prediction
from roofline.latency.samples import RunSample
from roofline.machine.pace import Pace
from roofline.placement import Placement
from roofline.workload.operators import State
from roofline.workload.page_faults import PageFaults, page_faults, settling


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """What was learned on a machine, ready to be asked.

    ``pace`` is how fast the cores run (None: as usual); ``notes`` are said with every prediction
    (samples of another torch, say). ``is_of_host`` says that it was learned on this machine, with
    the torch that is there now. ``allocator`` is that of the process in which a pass will run,
    ``lanes`` the float32 elements in a vector register.
    """

    calibration: Calibration
    pace: Pace | None = None
    notes: tuple[str, ...] = ()
    is_of_host: bool = False
    allocator: Allocator = DEFAULT
    lanes: int = 16

    @property
    def runs_here(self) -> Sequence[RunSample]:
        """The runs that it was learned from, as far as they were measured on this machine."""
        return self.calibration.runs if self.is_of_host else ()

    def predict(self, placements: Sequence[Placement], threads: int, /) -> Predicted:
        """Predicts the operators of a pass on so many threads, and the whole of it."""
        at_work = [
            place for place, each in enumerate(placements) if each.record.state is not State.FREE
        ]
        facts = [facts_of(placements[place], threads) for place in at_work]
        found = self.calibration.predict(facts, self.pace)
        operators: list[Prediction | None] = [None] * len(placements)
        for place, each in zip(at_work, found, strict=True):
            operators[place] = each[0] if each is not None else None
        known = [each for each in found if each is not None]
        run, notes = None, list(self.notes)
        if facts and len(known) == len(found):
            faults = self._faults(placements, threads)
            run = self.calibration.predict_run(
                facts, known, calls=len(placements), pace=self.pace, faults=faults
            )
            if faults is not None:
                run = replace(run, allocator=self.allocator.name)
                if run.predicted_s > (1 + FAULTS_MATTER) * run.settled_s:
                    run = replace(run, tunables=self._tunables(placements, threads))
                if faults.unknown:
                    notes.append(
                        f"page faults leave out scratch memory of {', '.join(faults.unknown)}"
                    )
            else:
                notes.append(self._no_faults)
        elif facts:
            kinds = sorted(
                {each.dtype for each, known in zip(facts, found, strict=True) if known is None}
            )
            notes.append(
                f"{len(found) - len(known)} of {len(found)} operators are not predicted: too little"
                f" in {', '.join(kinds)} on {threads} thread{'s' * (threads != 1)} was measured"
                " (`roofline calibrate` measures it)"
            )
        return Predicted(operators=tuple(operators), run=run, notes=tuple(notes))

    def _tunables(self, placements: Sequence[Placement], threads: int) -> str:
        """The settings of glibc with which a pass has no page faults by the simulation."""
        records = [each.record for each in placements]
        found = settling(records, threads=threads, lanes=self.lanes)
        return (
            f"glibc.malloc.mmap_threshold={found.mmap_threshold_byte}"
            f":glibc.malloc.trim_threshold={found.trim_threshold_byte}"
        )

    @property
    def _no_faults(self) -> str:
        """Why predictions are those of an allocator that keeps all memory."""
        if self.allocator.settings is None:
            return (
                f"page faults of {self.allocator.library} are not simulated: predicted times are"
                " those without page faults"
            )
        return (
            "costs of page faults are not known: predicted times are those without page faults"
            " (`roofline measure` measures them)"
        )

    def _faults(self, placements: Sequence[Placement], threads: int) -> PageFaults | None:
        """The page faults of a pass; None: their number is not known, or not what one takes."""
        settings = self.allocator.settings
        if settings is None or threads not in self.calibration.fault_s:
            return None
        records = [each.record for each in placements]
        return page_faults(records, settings, threads=threads, lanes=self.lanes)
