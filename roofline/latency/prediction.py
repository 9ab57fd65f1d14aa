"""Predicted times of operators and passes, with 80 % prediction intervals and sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from roofline.latency.samples import EarlierRun
from roofline.placement import Placement, Roof
from roofline.run import Run
from roofline.workload.fusion import FusedOperator
from roofline.workload.operators import OperatorRecord

FAULTS_MATTER = 0.03
"""Share of a pass from which page faults are reported, and advice avoids them."""

BOUND_ONLY = "bound only"
"""Source of operators without a prediction, because calibration data has no similar ones."""

NOT_PREDICTED = " operators are not predicted: "
"""Part of the note on operators without predictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted time of an operator in seconds, with its 80 % interval (10 to 90 %).

    ``samples`` is the number of measured calls of its group, ``distance`` that of the nearest one:
    the norm of the difference of their sizes in binary logarithms (1: one size is twice as large).
    ``is_extrapolated``: none is near, or of that group; ``is_measured``: the call itself was timed
    alone, ``samples`` times. ``deviation`` is the relative standard deviation; ``learned_from``
    names the measurements of other machines, which have no distance.
    """

    predicted_s: float
    low_s: float
    high_s: float
    samples: int
    distance: float
    is_extrapolated: bool
    is_measured: bool = False
    deviation: float = 0.0
    learned_from: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.predicted_s <= self.high_s:
            raise ValueError(f"{self.predicted_s} s is not in {self.low_s} … {self.high_s}")

    @property
    def source(self) -> str:
        """Source in words: ``"calibrated: 90 samples, distance 0.4"``."""
        if self.is_measured:
            return f"measured alone: {self.samples} times"
        if self.learned_from:
            kind = "extrapolated" if self.is_extrapolated else "learned"
            return f"{kind}: {self.learned_from}"
        kind = "extrapolated" if self.is_extrapolated else "calibrated"
        return f"{kind}: {self.samples} samples, distance {self.distance:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrediction:
    """Predicted time of a pass in seconds, with its 80 % interval (10 to 90 %).

    ``predicted_s`` is the sum of ``operators_s``, dispatch overhead ``overhead_s`` (null: unknown)
    and the time of ``page_faults`` (null: unknown, not included). ``allocator`` names the settings
    of malloc (``"default"``; ``""``: unknown), ``tunables`` those of glibc that avoid the page
    faults (``""``: they take too little to matter). ``calibration`` describes the calibration data;
    ``held_out_error`` is its leave-one-family-out MAPE, a fraction: of models of the same type and
    threads, of all if these are few, null without any.
    """

    predicted_s: float
    low_s: float
    high_s: float
    operators_s: float
    overhead_s: float | None
    calibration: str
    page_faults: int | None = None
    allocator: str = ""
    tunables: str = ""
    held_out_error: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.predicted_s <= self.high_s:
            raise ValueError(f"{self.predicted_s} s is not in {self.low_s} … {self.high_s}")
        if self.page_faults is not None and self.page_faults < 0:
            raise ValueError(f"page_faults: must be at least 0, got {self.page_faults}")

    @property
    def settled_s(self) -> float:
        """Predicted time without page faults, in seconds."""
        return self.operators_s + (self.overhead_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Predictions of all operators (None: free, or minimum time only) and of the pass.

    ``run`` is null if an operator could not be predicted, which ``notes`` explain.
    """

    operators: tuple[Prediction | None, ...] = ()
    run: RunPrediction | None = None
    notes: tuple[str, ...] = ()


class OperatorPredictor(Protocol):
    """Interface of predictors of operators."""

    def predict(self, placements: Sequence[Placement], threads: int, /) -> Predicted:
        """Return predictions for placed operators and for the pass."""
        ...

    def operators(
        self, placements: Sequence[Placement], threads: int, /
    ) -> tuple[Prediction | None, ...]:
        """Return predictions for the operators alone."""
        ...


class MachinePredictor(OperatorPredictor, Protocol):
    """Interface of predictors of a machine; ``notes`` accompany every prediction."""

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def description(self) -> str:
        """Description of the measurements behind predictions."""
        ...

    def earlier_run(
        self, placements: Sequence[Placement], run: Run, threads: int
    ) -> EarlierRun | None:
        """Return the last measurement of such a pass on this machine, if any."""
        ...

    def predict_compiled(
        self, records: Sequence[OperatorRecord], fused: Sequence[FusedOperator], roof: Roof
    ) -> RunPrediction | None:
        """Return the prediction of a pass under torch.compile, if any."""
        ...
