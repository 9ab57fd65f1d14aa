"""A predicted time: with an interval, where it comes from, and what predicts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from roofline.placement import Placement

FAULTS_MATTER = 0.03
"""The share of a settled pass from which page faults are reported, and advised against."""

BOUND_ONLY = "bound only"
"""The source of what is not predicted: nothing like it was ever measured there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The seconds that an operator is expected to take, and the 10-90 % interval around them.

    ``samples`` is how many measured calls of its kind it was learned from, ``distance`` how far the
    nearest of them is: the length of the difference of their sizes as binary logarithms (1: one
    size is twice as large). ``is_extrapolated`` where none is near, or none was of that kind;
    ``is_measured`` where the call itself was timed on its own, ``samples`` times. ``deviation`` is
    the relative standard deviation.
    """

    predicted_s: float
    low_s: float
    high_s: float
    samples: int
    distance: float
    is_extrapolated: bool
    is_measured: bool = False
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.predicted_s <= self.high_s:
            raise ValueError(f"{self.predicted_s} s is not in {self.low_s} … {self.high_s}")

    @property
    def source(self) -> str:
        """Where it comes from, in words."""
        if self.is_measured:
            return f"measured alone: {self.samples} times"
        kind = "extrapolated" if self.is_extrapolated else "calibrated"
        return f"{kind}: {self.samples} samples, distance {self.distance:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrediction:
    """What a whole pass is expected to take: its operators, and what runs between them.

    ``predicted_s`` is the sum of ``operators_s``, ``overhead_s`` and what ``faults`` page faults
    take (null: they, or what one takes, are not known, and none are in it); the interval is from 10
    to 90 %. ``allocator`` names the state of the allocator that they are of (``"default"``; ``""``:
    not known), ``tunables`` the settings of glibc with which there would be no page faults (``""``:
    they take too little to matter). ``overhead_s`` is null where nothing was learned of what runs
    between operators.
    ``calibration`` says in words what it was learned from; ``held_out_error``, a fraction, is the
    mean error of whole models of its type on as many threads whose family was left out, of all
    models where there were few of those, and null where none could be left out.
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
            raise ValueError(f"a pass has 0 page faults or more, got {self.page_faults}")

    @property
    def settled_s(self) -> float:
        """Seconds of the pass where the allocator keeps all memory, so that there are no faults."""
        return self.operators_s + (self.overhead_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A prediction for each operator (None: it is free, or only its bound is known), and the whole.

    ``run`` is null where an operator that does something could not be predicted; ``notes`` say so.
    """

    operators: tuple[Prediction | None, ...] = ()
    run: RunPrediction | None = None
    notes: tuple[str, ...] = ()


class Predicts(Protocol):
    """What predicts the operators of a pass."""

    def predict(self, placements: Sequence[Placement], threads: int, /) -> Predicted:
        """Predictions for placed operators on so many threads, and for the pass."""
        ...

    def operators(
        self, placements: Sequence[Placement], threads: int, /
    ) -> tuple[Prediction | None, ...]:
        """Predictions for the operators alone."""
        ...
