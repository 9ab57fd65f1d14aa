"""Operators that come again and again in rewritten graphs, and what was worked out for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import Reuse

T = TypeVar("T")


class Remembered(Generic[T]):
    """Works something out for each operator once.

    Operators are the same where graphs were counted with the same call of the same operator, whose
    work and attributes records share, and where their operands were touched as far back.

    Args:
        work_out: gives what is remembered for a record, from how its operands are reused.
    """

    def __init__(self, work_out: Callable[[OperatorRecord, tuple[Reuse, ...]], T]) -> None:
        self._work_out = work_out
        self._known: dict[tuple[int, int, tuple[Reuse, ...]], tuple[OperatorRecord, T]] = {}

    def of(self, record: OperatorRecord, reuses: tuple[Reuse, ...]) -> T:
        """What was worked out for an operator."""
        key = id(record.work), id(record.attributes), reuses
        known = self._known.get(key)
        if known is None:
            # The record is kept, so that no other work or attributes get its place in memory.
            known = self._known[key] = record, self._work_out(record, reuses)
        return known[1]
