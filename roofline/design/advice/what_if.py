"""How long operators would take that are not there, from what was learned, else from bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from roofline.analysis import Analysis, Basis, working
from roofline.design.advice.alternatives import Alternative
from roofline.design.advice.times import Time
from roofline.latency.predicted import Predicts
from roofline.placement import Placement, Roof
from roofline.workload.residency import Reuse


class WhatIf(Protocol):
    """Says how long operators would take, all on one basis."""

    @property
    def basis(self) -> Basis:
        """What its times are."""
        ...

    def times(self, operators: Sequence[Alternative], /) -> list[Time | None]:
        """The time of each; None: nobody can say."""
        ...


class OnMachine:
    """Times on the machine and threads of an analysis: predicted where it is, else bounds.

    Args:
        analysis: of the model as it is.
        predictor: what was learned on its machine; None: nothing.
    """

    def __init__(self, analysis: Analysis, predictor: Predicts | None) -> None:
        self._roof = Roof(analysis.hardware, analysis.threads)
        at_work = working(analysis.operators)
        is_predicted = bool(at_work) and all(row.predicted_s is not None for row in at_work)
        self._predictor = predictor if is_predicted else None

    @property
    def basis(self) -> Basis:
        """Predictions where the whole model has them."""
        return "bound" if self._predictor is None else "prediction"

    def times(self, operators: Sequence[Alternative], /) -> list[Time | None]:
        """The time of each, by the predictor or the roof."""
        placements = [self._placed(each) for each in operators]
        if self._predictor is None:
            bounds_s = [each.eager_min_time_s for each in placements]
            return [Time(s=each) if each is not None else None for each in bounds_s]
        found = self._predictor.predict(placements, self._roof.threads).operators
        return [
            Time(s=each.predicted_s, low_s=each.low_s, high_s=each.high_s) if each else None
            for each in found or (None,) * len(placements)
        ]

    def _placed(self, operator: Alternative) -> Placement:
        reuses = reuses_for(operator.level_bytes, self._roof)
        return self._roof.place(operator.record, reuses)


def reuses_for(level_bytes: Mapping[str, int], roof: Roof) -> list[Reuse]:
    """Reuses by which a roof finds these bytes at its levels again, nearest level first."""
    levels = roof.profile.memory
    byte = [level_bytes.get(level.name, 0) for level in levels]
    reuses: list[Reuse] = []
    inner = 0
    for place, capacity in enumerate(roof.held_bytes):
        farther = byte[place + 1] if place + 1 < len(levels) else 0
        stays = max(0, byte[place] - farther)
        if place + 1 == len(levels) or capacity is None:
            reuses.append(Reuse(stays, None))
            break
        # Of bytes that were last touched together, only what a nearer level has no room for comes
        # from beyond it: in pieces that fit between two levels, all of them do.
        pieces = math.ceil(stays / max(1, capacity - inner))
        for piece in range(pieces):
            size = stays // pieces + (piece < stays % pieces)
            reuses.append(Reuse(size, (inner + size) if place else 0))
        inner = capacity
    return reuses


def time_of_pass(analysis: Analysis, basis: Basis) -> float | None:
    """The seconds of a pass that savings are held against."""
    if basis == "bound":
        return analysis.totals.eager_min_time_s
    return analysis.prediction.predicted_s if analysis.prediction else None
