"""Where the time of a pass goes, by type of operator, and why FLOP are no measure of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.analysis import Analysis, OperatorRow, working

Kind = Literal["predicted", "bound"]
"""The two times that a machine need not be at hand for; they are never mixed."""

_NEAR_ITS_ROOF = 0.5
"""Below this share of its roof, it is no longer the roof that says how long a part takes."""

_WHOLE = 0.995
_NOUNS = ("convolution", "matrix product")
"""How the types end that are names of operators by themselves."""


def time_of(row: OperatorRow, kind: Kind) -> float | None:
    """The row's predicted time or bound in seconds."""
    return row.predicted_s if kind == "predicted" else row.eager_min_time_s


def kind_of_times(analyses: Sequence[Analysis]) -> Kind | None:
    """The predicted time if every operator of all models has one, else the bound; None: neither."""
    rows = [row for each in analyses for row in working(each.operators)]
    kinds: tuple[Kind, ...] = ("predicted", "bound")
    for kind in kinds:
        if rows and all(time_of(row, kind) is not None for row in rows):
            return kind
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The operators of one type, or (``type`` empty) what runs between operators.

    ``time_s`` is in seconds, ``share`` its part of the whole pass. ``eager_min_time_s`` is the sum
    of their bounds, None where one is unknown; ``ceiling`` binds ``ceiling_share`` of their time,
    more than any other does.
    """

    type: str
    calls: int
    time_s: float
    share: float
    eager_min_time_s: float | None
    ceiling: str
    ceiling_share: float

    @property
    def name(self) -> str:
        """In words: ``"the 17 depthwise convolutions"``."""
        if not self.type:
            return "what runs between operators"
        one = self.type if self.type.endswith(_NOUNS) else f"{self.type} operator"
        return f"the {one}" if self.calls == 1 else f"the {self.calls} {one}s"

    def words(self, whose: str) -> str:
        """What it takes of ``whose`` time, and what binds it.

        ``"the 17 depthwise convolutions take 64 % of it and are bound by L2 read"``; where they
        stay far from their roof, how much of it they reach.
        """
        one = self.calls == 1 or not self.type
        takes, are = ("takes", "is") if one else ("take", "are")
        said = f"{self.name} {takes} {whole_percent(self.share)} of {whose}"
        if not self.ceiling or self.eager_min_time_s is None:
            return said
        reached = self.eager_min_time_s / self.time_s if self.time_s else 1.0
        if reached < _NEAR_ITS_ROOF:
            reach = "reaches" if one else "reach"
            its = "its" if one else "their"
            return f"{said} and {reach} {whole_percent(reached)} of {its} roof, {self.ceiling}"
        if self.ceiling_share >= _WHOLE:
            return f"{said} and {are} bound by {self.ceiling}"
        of_that = whole_percent(self.ceiling_share)
        return f"{said} and {are} bound by {self.ceiling} for {of_that} of that"


def parts_of(analysis: Analysis, kind: Kind) -> tuple[Part, ...]:
    """The parts of a pass, the longest first; with predictions also what runs between operators.

    All operators must have a time of that `kind`.
    """
    by_type: dict[str, list[OperatorRow]] = {}
    for row in working(analysis.operators):
        by_type.setdefault(row.type, []).append(row)
    whole_s = whole_of(analysis, kind)
    found = [_part(name, rows, kind, whole_s) for name, rows in by_type.items()]
    between_s = analysis.prediction.overhead_s if analysis.prediction else None
    if kind == "predicted" and between_s and whole_s:
        found.append(
            Part(
                type="",
                calls=0,
                time_s=between_s,
                share=between_s / whole_s,
                eager_min_time_s=None,
                ceiling="",
                ceiling_share=0.0,
            )
        )
    return tuple(sorted(found, key=lambda part: -part.time_s))


def whole_of(analysis: Analysis, kind: Kind) -> float:
    """The seconds of the whole pass: its prediction, end to end, or the sum of all bounds."""
    if kind == "predicted" and analysis.prediction:
        return analysis.prediction.predicted_s
    return sum(time_of(row, kind) or 0.0 for row in working(analysis.operators))


def leading_part(analysis: Analysis, kind: Kind, against: Analysis | None = None) -> Part | None:
    """The part that says most about how long a pass takes.

    With another design to hold it `against`, both of known FLOP, it is the type that takes the most
    seconds beyond what the same type takes there times the ratio of all FLOP. These excesses add up
    to all that the pass takes beyond what its FLOP promise. Without, it is the longest part.
    """
    parts = parts_of(analysis, kind)
    if not parts:
        return None
    if against is None:
        return parts[0]
    ratio = analysis.totals.flop / against.totals.flop
    there_s = {part.type: part.time_s for part in parts_of(against, kind)}
    return max(parts, key=lambda part: part.time_s - ratio * there_s.get(part.type, 0.0))


def whole_percent(share: float) -> str:
    """A share of a time in whole percent, which is what times are worth: ``"64 %"``."""
    return "< 1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")


def _part(name: str, rows: Sequence[OperatorRow], kind: Kind, whole_s: float) -> Part:
    time_s = sum(time_of(row, kind) or 0.0 for row in rows)
    bounds = [row.eager_min_time_s for row in rows if row.eager_min_time_s is not None]
    by_ceiling: dict[str, float] = {}
    for row in rows:
        if row.ceiling:
            by_ceiling[row.ceiling] = by_ceiling.get(row.ceiling, 0.0) + (time_of(row, kind) or 0.0)
    ceiling = max(by_ceiling, key=lambda each: by_ceiling[each]) if by_ceiling else ""
    return Part(
        type=name,
        calls=len(rows),
        time_s=time_s,
        share=min(1.0, time_s / whole_s) if whole_s else 0.0,
        eager_min_time_s=sum(bounds) if len(bounds) == len(rows) else None,
        ceiling=ceiling,
        ceiling_share=by_ceiling[ceiling] / time_s if ceiling and time_s else 0.0,
    )
