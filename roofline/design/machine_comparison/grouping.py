"""Operators on every machine, taken together: their bounds, and which side they are on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.analysis import OperatorRow
from roofline.placement import Bound

Across = tuple[OperatorRow, ...]
"""One operator: its row on every machine, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What most of a time is bound by, and whether that holds for all of it."""

    bound: Bound
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAcross:
    """Operators taken together, on every machine: ``bound_s``, ``shares`` and ``sides`` are theirs.

    ``shares`` are fractions of the machine's bound; None where that is unknown. ``predicted_s`` is
    None where that of an operator is.
    """

    operators: tuple[Across, ...]
    bound_s: tuple[float | None, ...]
    shares: tuple[float | None, ...]
    sides: tuple[Side, ...]
    predicted_s: tuple[float | None, ...]

    @property
    def largest_share(self) -> float:
        """The most of a machine's bound that this takes; 0 where none is known."""
        return max((share for share in self.shares if share is not None), default=0.0)

    @property
    def changes_sides(self) -> bool:
        """Whether it is compute-bound on one machine and memory-bound on another."""
        return changes_sides(side.bound for side in self.sides)


def changes_sides(bounds: Iterable[Bound]) -> bool:
    """Whether some of `bounds` are compute and others memory."""
    return {Bound.COMPUTE, Bound.MEMORY} <= set(bounds)


def side_of(rows: Sequence[OperatorRow]) -> Side:
    """What binds most of the time of `rows` on one machine."""
    times: dict[Bound, float] = {}
    for row in rows:
        times[row.bound] = times.get(row.bound, 0.0) + (row.bound_s or 0.0)
    if not times:
        return Side(bound=Bound.UNKNOWN, whole=True)
    return Side(bound=max(times, key=lambda bound: times[bound]), whole=len(times) == 1)
