"""Operators on every machine, taken together: their bounds, and which side they are on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from roofline.analysis import Analysis, Group, OperatorRow
from roofline.placement import Bound
from roofline.run import Device
from roofline.workload.operators import State

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
    def eager_min_time_s(self) -> tuple[float | None, ...]:
        """Their bound in seconds on every machine, as in `Group`."""
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


def positions_across(analyses: Sequence[Analysis]) -> tuple[tuple[int, ...], ...]:
    """Where each operator that all of them call stands in each: all, if their operators are those
    of one device.

    Operators of two devices are the same where they are of one kind, in one module and phase, and
    in one order.
    """
    first, *_ = analyses
    found: dict[Device, dict[int, int]] = {}
    for each in analyses:
        if each.run.device == first.run.device:
            found[each.run.device] = {i: i for i in range(len(first.operators))}
        elif each.run.device not in found:
            found[each.run.device] = _matched(first.operators, each.operators)
    columns = [found[each.run.device] for each in analyses]
    return tuple(
        tuple(column[i] for column in columns)
        for i in range(len(first.operators))
        if all(i in column for column in columns)
    )


def _matched(rows: Sequence[OperatorRow], others: Sequence[OperatorRow]) -> dict[int, int]:
    """The place among `others` of each row that is there too, free ones left out."""
    sides = [[row for row in each if row.state is not State.FREE] for each in (rows, others)]
    one, other = ([(row.module_path, row.type, row.phase) for row in each] for each in sides)
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return {
        sides[0][block.a + i].index: sides[1][block.b + i].index
        for block in blocks
        for i in range(block.size)
    }


def changes_sides(bounds: Iterable[Bound]) -> bool:
    """Whether some of `bounds` are compute and others memory."""
    return {Bound.COMPUTE, Bound.MEMORY} <= set(bounds)


def side_of(rows: Sequence[OperatorRow]) -> Side:
    """What binds most of the time of `rows` on one machine."""
    times: dict[Bound, float] = {}
    for row in rows:
        times[row.bound] = times.get(row.bound, 0.0) + (row.eager_min_time_s or 0.0)
    if not times:
        return Side(bound=Bound.UNKNOWN, whole=True)
    return Side(bound=max(times, key=lambda bound: times[bound]), whole=len(times) == 1)
