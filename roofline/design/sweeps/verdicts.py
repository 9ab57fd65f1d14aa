"""Which design wins at a point of a sweep, by how much, and whether that can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.design.model_comparison.ratios import ratio_of_predictions
from roofline.design.pass_times import DIGITS
from roofline.design.sweeps.cells import Cell

Basis = Literal["predicted", "bound", ""]

SAME_BOUND = 1.05
"""Bounds that differ by less than this factor are too close to call."""

RULE = (
    "a design wins where its predicted time is the lowest; it is too close to call (~) where the"
    " 10-90 % interval of the ratio to another design's holds 1"
)

RULE_OF_MEMORY = "a design whose peak memory exceeds the memory there is marked !, and wins nothing"

RULE_OF_BOUNDS = (
    "where a design has no prediction all are compared by their bounds, which are too close to"
    f" call (~) within {100 * (SAME_BOUND - 1):.0f} %"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who wins at one point.

    ``winner`` is the index of the design with the lowest time of ``basis``, None where no two
    times are known. ``ratio`` is the reference's time over the best of the others: above 1 another
    design is faster, below 1 the reference is. ``is_close`` where the winner cannot be told.
    """

    winner: int | None
    ratio: float | None
    rivals: tuple[int, ...]
    basis: Basis

    @property
    def is_close(self) -> bool:
        """Whether the winner cannot be told."""
        return bool(self.rivals)

    @property
    def factor(self) -> float | None:
        """How many times faster the winner is than the reference, or, being it, than the next."""
        return max(self.ratio, 1 / self.ratio) if self.ratio else None


_NOTHING = Verdict(winner=None, ratio=None, rivals=(), basis="")


def verdict_of(cells: Sequence[Cell], reference: int) -> Verdict:
    """The verdict on designs at one point; those that cannot run there take no part.

    A design that cannot be built there cannot run, nor can one that does not fit into memory.
    """
    able = [index for index, each in enumerate(cells) if each.can_run]
    if len(able) < 2:
        # One that stands alone has nobody to beat.
        return _NOTHING
    basis: Basis = "predicted"
    times = {i: cells[i].predicted_s for i in able}
    if any(not time for time in times.values()):
        basis, times = "bound", {i: cells[i].eager_min_time_s for i in able}
    known = {i: time for i, time in times.items() if time}
    if len(known) < len(able):
        return _NOTHING
    winner = min(known, key=lambda i: (known[i], i))
    others = [known[i] for i in able if i != reference]
    ratio = known[reference] / min(others) if reference in known and others else None
    return Verdict(
        winner=winner,
        ratio=ratio,
        rivals=tuple(i for i in able if i != winner and _is_close(cells[winner], cells[i], basis)),
        basis=basis,
    )


def factor_text(factor: float) -> str:
    """A factor from 1 on, in as many digits as ratios of predictions are worth: ``"3.4"``."""
    number = float(f"{factor:.{DIGITS - 1}e}")
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"


def _is_close(best: Cell, other: Cell, basis: Basis) -> bool:
    if basis == "bound":
        return (other.eager_min_time_s or 0.0) < SAME_BOUND * (best.eager_min_time_s or 0.0)
    if not best.predicted_s or not other.predicted_s:
        return False
    ratio = ratio_of_predictions(
        other.predicted_s, other.interval_s, best.predicted_s, best.interval_s
    )
    # Equal times leave no more to choose than an interval around 1 does.
    return ratio.may_be_either or ratio.value == 1
