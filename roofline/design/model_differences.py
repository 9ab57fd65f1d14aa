"""In what one model differs from another, in words."""

from __future__ import annotations

from collections.abc import Iterable

from roofline.analysis import Analysis
from roofline.design.pass_times import DIGITS, interval_s, measured_s, predicted_s
from roofline.foundation.units import format_si

_SAME = 1.05
"""A ratio below this is 1 in as many digits as times of passes are worth."""


def work_and_bound(base: Analysis, other: Analysis) -> Iterable[str]:
    """How much more or fewer FLOP `other` has than `base`, and how much higher its bound is."""
    if base.totals.unknown_operators or other.totals.unknown_operators:
        yield "FLOP not fully known"
    else:
        yield _times(base.totals.flop, other.totals.flop, "fewer FLOP", "more FLOP")
    yield _times(base.totals.bound_s, other.totals.bound_s, "lower bound time", "higher bound time")


def times(base: Analysis, other: Analysis) -> Iterable[str]:
    """How much faster `other` is predicted to be than `base`, and was; where both are known."""
    of_base, of_other = predicted_s(base), predicted_s(other)
    if of_base and of_other:
        either = ", though the intervals overlap" if _overlap(base, other) else ""
        yield f"{_as_fast(of_base / of_other, 'predicted')}{either}"
    of_base, of_other = measured_s(base), measured_s(other)
    if of_base and of_other:
        yield _as_fast(of_base / of_other, "measured")


def _times(base: float | None, value: float | None, less: str, more: str) -> str:
    if not base or not value:
        return (
            f"{less.split()[-1]} unknown"
            if base is None or value is None
            else f"no {less.split()[-1]}"
        )
    ratio = base / value
    return f"{ratio:.3g} × {less}" if ratio >= 1 else f"{1 / ratio:.3g} × {more}"


def _as_fast(ratio: float, what: str) -> str:
    """A ratio of times, the reference's first, in no more digits than such times are worth."""
    factor = max(ratio, 1 / ratio)
    if factor < _SAME:
        return f"about the same {what} time"
    return f"{format_si(factor, '', DIGITS)} × {'lower' if ratio > 1 else 'higher'} {what} time"


def _overlap(base: Analysis, each: Analysis) -> bool:
    """Whether the intervals of both predictions do, so that either may be the faster."""
    here, there = interval_s(base), interval_s(each)
    return bool(here and there and max(here[0], there[0]) <= min(here[1], there[1]))
