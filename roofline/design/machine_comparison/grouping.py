"""Operators on every machine, taken together: their bounds, and which side they are on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.analysis import Group, OperatorRow
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
    """Operators taken together: what they come to on every machine, and which side they are on."""

    operators: tuple[Across, ...]
    groups: tuple[Group, ...]
    sides: tuple[Side, ...]

    @property
    def bound_s(self) -> tuple[float | None, ...]:
        """Their bound in seconds on every machine, as in `Group`."""
        return tuple(each.bound_s for each in self.groups)

    @property
    def eager_min_time_s(self) -> tuple[float | None, ...]:
        """Their eager minimum in seconds on every machine: the same as ``bound_s``."""
        return tuple(each.eager_min_time_s for each in self.groups)

    @property
    def fused_min_time_s(self) -> tuple[float | None, ...]:
        """Their fused minimum in seconds on every machine, as in `Group`."""
        return tuple(each.fused_min_time_s for each in self.groups)

    @property
    def model_min_time_s(self) -> tuple[float | None, ...]:
        """The model minimum in seconds on every machine; None of all but the whole pass."""
        return tuple(each.model_min_time_s for each in self.groups)

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Fractions of every machine's bound; None where that is unknown."""
        return tuple(each.share for each in self.groups)

    @property
    def predicted_s(self) -> tuple[float | None, ...]:
        """Predicted seconds on every machine; None where that of an operator is not known."""
        return tuple(each.predicted_s if each.calls else None for each in self.groups)

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
