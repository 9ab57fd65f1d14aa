"""Operators of an analysis taken together, by type, by module or by what binds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow
from roofline.analysis.totals import known_work, sum_bound_s
from roofline.workload.operators import State
from roofline.workload.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Operators taken together: their calls, work and bound.

    ``work`` sums the operators of known FLOP and the bytes of all; ``unknown_operators`` calls have
    no known FLOP. ``bound_s`` is None where the hardware has no ceilings, ``share`` is its part of
    the whole.
    """

    name: str
    calls: int
    work: Work
    unknown_operators: int
    bound_s: float | None
    share: float | None


def groups(analysis: Analysis, key: Callable[[OperatorRow], str]) -> tuple[Group, ...]:
    """The operators that are not free, grouped by `key`, longest bound first."""
    by_name: dict[str, list[OperatorRow]] = {}
    for row in analysis.operators:
        if row.state is not State.FREE:
            by_name.setdefault(key(row), []).append(row)
    whole = analysis.totals.bound_s
    found: list[Group] = []
    for name, rows in by_name.items():
        bound_s = sum_bound_s(rows)
        found.append(
            Group(
                name=name,
                calls=len(rows),
                work=known_work(rows),
                unknown_operators=sum(row.state is State.UNKNOWN for row in rows),
                bound_s=bound_s,
                share=bound_s / whole if bound_s is not None and whole else None,
            )
        )
    return tuple(sorted(found, key=lambda each: (-(each.bound_s or 0.0), -each.work.traffic_byte)))
