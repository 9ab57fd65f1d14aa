"""A finding, with the operators that a trial of it would time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.analysis import Finding, OperatorRow
from roofline.design.advice.alternatives import Alternative, as_it_is


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Operators, and those that would take their place; the latter's time counts `factor` times."""

    before: tuple[Alternative, ...]
    after: tuple[Alternative, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A finding, and what to time for it; ``swaps`` is empty where single operators cannot tell."""

    finding: Finding
    swaps: tuple[Swap, ...] = ()


def left_out(rows: Iterable[OperatorRow]) -> tuple[Swap, ...]:
    """Each operator, with nothing in its place."""
    return tuple(Swap(before=(as_it_is(row),)) for row in rows)
