"""Operators of an analysis taken together, by type, by phase or by what binds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow
from roofline.analysis.totals import (
    HasMinimumTimes,
    MinTimes,
    Totals,
    known_work,
    minimum_times_of,
    sum_eager_min_time_s,
    sum_fused_bytes,
)
from roofline.foundation.rows import sum_known
from roofline.workload.operators import State
from roofline.workload.work import Work

GroupTime = Callable[["Group"], float | None]
"""Which of a group's times in seconds counts; None where it is unknown."""

BOUND: GroupTime = attrgetter("eager_min_time_s")
"""The bound, which is known wherever the machine has ceilings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Operators taken together: their calls, work and times.

    ``work`` sums the operators of known FLOP and the bytes of all; ``unknown_operators`` calls have
    no known FLOP. ``fused_bytes`` is what would be left of the traffic in fused kernels, None where
    that is unknown. ``eager_min_time_s`` is None where the hardware has no ceilings, ``share`` is
    its part of the whole. ``fused_min_time_s`` is that of the
    fused kernels, None where one of them has operators in another
    group too, ``model_min_time_s`` None of everything but the whole pass: what rewritings save is
    saved across groups. ``predicted_s`` and ``measured_s`` are None where that of an operator is
    unknown.
    """

    name: str
    calls: int
    work: Work
    unknown_operators: int
    fused_bytes: int | None
    eager_min_time_s: float | None
    share: float | None
    fused_min_time_s: float | None
    model_min_time_s: float | None
    predicted_s: float | None = None
    measured_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The pass that groups are parts of.

    ``kernels`` says of how many operators each fused kernel is made, by the index of the first
    (None: of how many it is not known which they are part of); free operators are in none.
    """

    totals: Totals
    calls: int
    kernels: Mapping[int | None, int]

    @classmethod
    def of(cls, analysis: Analysis) -> Whole:
        """That of an analysis."""
        rows = working(analysis.operators)
        kernels = Counter(row.chain for row in rows)
        return cls(totals=analysis.totals, calls=len(rows), kernels=kernels)


def group_of(name: str, rows: Sequence[OperatorRow], whole: Whole) -> Group:
    """The operators `rows` taken together; none of them is free.

    Args:
        name: what they are called.
        rows: the operators.
        whole: the pass that they are a part of.
    """
    eager_min_time_s, whole_s = sum_eager_min_time_s(rows), whole.totals.eager_min_time_s
    return Group(
        name=name,
        calls=len(rows),
        work=known_work(rows),
        unknown_operators=sum(row.state is State.UNKNOWN for row in rows),
        fused_bytes=sum_fused_bytes(rows) if rows else 0,
        share=eager_min_time_s / whole_s if eager_min_time_s is not None and whole_s else None,
        **minimum_times_of(_minimum_of(rows, whole)),
        predicted_s=sum_known([row.predicted_s for row in rows]),
        measured_s=sum_known([row.measured_s for row in rows]),
    )


def _minimum_of(rows: Sequence[OperatorRow], whole: Whole) -> HasMinimumTimes:
    """The minimum times of operators of a pass, none of them free, as in `Group`."""
    if len(rows) == whole.calls:
        return whole.totals
    eager_min_time_s, fused_s = sum_eager_min_time_s(rows), None
    kernels = Counter(row.chain for row in rows)
    are_inside = all(whole.kernels[chain] == calls for chain, calls in kernels.items())
    if whole.totals.fused_min_time_s is not None and eager_min_time_s is not None and are_inside:
        # As for whole passes, no more than the operators one by one.
        fused_s = min(eager_min_time_s, sum(row.fused_min_time_s or 0.0 for row in rows))
    return MinTimes(eager_min_time_s=eager_min_time_s, fused_min_time_s=fused_s)


def working(rows: Iterable[OperatorRow]) -> list[OperatorRow]:
    """The operators among `rows` that are not free."""
    return [row for row in rows if row.state is not State.FREE]


def groups(
    analysis: Analysis, key: Callable[[OperatorRow], str], *, time_s: GroupTime = BOUND
) -> tuple[Group, ...]:
    """The operators that are not free, grouped by `key`, the longest by `time_s` first."""
    by_name: dict[str, list[OperatorRow]] = {}
    for row in working(analysis.operators):
        by_name.setdefault(key(row), []).append(row)
    whole = Whole.of(analysis)
    found = [group_of(name, rows, whole) for name, rows in by_name.items()]
    return tuple(sorted(found, key=lambda group: length(group, time_s)))


def length(group: Group, time_s: GroupTime) -> tuple[float, int]:
    """What groups are sorted by: the longest time first, then the most traffic."""
    return (-(time_s(group) or 0.0), -group.work.traffic_bytes)
