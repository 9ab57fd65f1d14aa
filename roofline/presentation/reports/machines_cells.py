"""The cells of the tables of one model on several machines."""

from __future__ import annotations

from roofline.analysis.tables import prediction_cell
from roofline.design.machine_comparison import GroupAcross, Side
from roofline.foundation.spreads import interval_cell
from roofline.foundation.units import MISSING, format_percent, format_s
from roofline.placement import Bound

_LETTERS = {Bound.COMPUTE: "C", Bound.MEMORY: "M"}


def range_of(group: GroupAcross) -> tuple[str, str]:
    """The shortest and the longest bound on any machine."""
    known = [time for time in group.eager_min_time_s if time is not None]
    return (format_s(min(known, default=None)), format_s(max(known, default=None)))


def in_words(side: Side) -> str:
    """What binds, in words: ``"compute"``, ``"mostly memory"``."""
    return str(side.bound) if side.whole else f"mostly {side.bound}"


def letter(side: Side) -> str:
    """What binds, as a letter: C, M or ?, small where it is most of the time, not all."""
    found = _LETTERS.get(side.bound, "?")
    return found if side.whole else found.lower()


def predicted_cell(group: GroupAcross, place: int) -> str:
    """What the operators are predicted to take on the machine at `place`, without an interval."""
    is_known = group.predicted_s[place] is not None
    if not is_known and all(across[place].predicted_s is None for across in group.operators):
        return prediction_cell(None, None, group.eager_min_time_s[place])
    # Of sums of which an operator is not predicted, nothing is known.
    return interval_cell(group.predicted_s[place], None, None)


def share_cell(group: GroupAcross) -> str:
    """The largest share of any machine's bound."""
    known = any(share is not None for share in group.shares)
    # Rounding in a sum must not show as "> 99.9 %".
    return format_percent(min(1.0, round(group.largest_share, 12))) if known else MISSING
