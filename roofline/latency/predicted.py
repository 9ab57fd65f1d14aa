"""What is predicted of a pass, and what whoever predicts must offer; nothing is learned here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from roofline.latency.prediction import Prediction, RunPrediction
from roofline.placement import Placement


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
