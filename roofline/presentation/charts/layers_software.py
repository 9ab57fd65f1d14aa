"""How much of the measured roof a model's operators reach, by what binds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.analysis import Analysis, OperatorRow, working
from roofline.analysis.times import kind_of_time, time_of
from roofline.foundation.text import printable
from roofline.foundation.units import format_percent, format_s
from roofline.placement import Bound

_NAMED = 4
"""How many ceilings a note names, those of the longest times first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The operators that one ceiling binds: their bounds and their times in seconds, summed.

    ``low`` and ``high_flop_per_byte`` are the least and the greatest intensity among those that
    have a place on the axes; None where none has.
    """

    ceiling: str
    calls: int
    bound_s: float
    time_s: float
    low_flop_per_byte: float | None
    high_flop_per_byte: float | None

    @property
    def efficiency(self) -> float:
        """The sum of bounds over the sum of times: 1 is the roof."""
        return self.bound_s / self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What software makes of the roof: the efficiency of all operators, weighted by time.

    ``kind`` says which times stand against the bounds. ``whole_s`` are the times of all operators
    that do something; those of unknown bound are in none of the sums of ``reached``.
    """

    kind: Literal["measured", "predicted"]
    whole_s: float
    reached: tuple[Reached, ...]

    @property
    def bound_s(self) -> float:
        """The sum of the bounds."""
        return sum(each.bound_s for each in self.reached)

    @property
    def time_s(self) -> float:
        """The sum of the times of the operators whose bound is known."""
        return sum(each.time_s for each in self.reached)

    @property
    def efficiency(self) -> float:
        """The sum of bounds over the sum of times."""
        return self.bound_s / self.time_s


def software_of(analysis: Analysis) -> Software | None:
    """The software's part of the losses; None without times, or without a known bound.

    Measured times where every operator has one, else predictions where every one has.
    """
    kind = kind_of_time(analysis)
    if kind == "bound":
        return None
    rows = working(analysis.operators)
    by_ceiling: dict[str, list[OperatorRow]] = {}
    for row in rows:
        if row.bound in (Bound.COMPUTE, Bound.MEMORY) and row.bound_s and time_of(row, kind):
            by_ceiling.setdefault(row.ceiling, []).append(row)
    found = [_reached(name, of, kind) for name, of in by_ceiling.items()]
    if not found:
        return None
    return Software(
        kind=kind,
        whole_s=sum(time_of(row, kind) or 0.0 for row in rows),
        reached=tuple(sorted(found, key=lambda each: -each.time_s)),
    )


def _reached(
    ceiling: str, rows: Sequence[OperatorRow], kind: Literal["measured", "predicted"]
) -> Reached:
    intensities = [
        row.intensity_flop_per_byte for row in rows if row.flop and row.intensity_flop_per_byte
    ]
    return Reached(
        ceiling=ceiling,
        calls=len(rows),
        bound_s=sum(row.bound_s or 0.0 for row in rows),
        time_s=sum(time_of(row, kind) or 0.0 for row in rows),
        low_flop_per_byte=min(intensities, default=None),
        high_flop_per_byte=max(intensities, default=None),
    )


def software_note(software: Software | None, *, roof: str) -> str:
    """The efficiency in words, with the sums that it follows from.

    Args:
        software: what is known of it.
        roof: what the bounds stand under: ``"measured roof"``, ``"roof on paper"``.
    """
    if software is None:
        return (
            "Software: how much of the roof the operators reach is not known, for nothing was"
            " measured or predicted; `roofline profile MODEL` measures it"
        )
    part = software.time_s / software.whole_s
    of_all = "" if part >= 1 - 1e-9 else f", over {format_percent(part)} of the time"
    named = [
        f"{printable(each.ceiling)} {format_percent(each.efficiency)}"
        for each in software.reached[:_NAMED]
    ]
    more = len(software.reached) - len(named)
    tail = f", {more} more" if more else ""
    verb = "reach" if software.kind == "measured" else "are predicted to reach"
    return (
        f"Software: the operators {verb} {format_percent(software.efficiency)} of the {roof},"
        f" weighted by time (bounds {format_s(software.bound_s)} ÷ {software.kind}"
        f" {format_s(software.time_s)}{of_all}); of {', '.join(named)}{tail}"
    )
