"""How long each operator takes, its share of the whole, and which beat their bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from roofline.analysis import Analysis, OperatorRow, Totals, working
from roofline.foundation.text import printable
from roofline.foundation.units import format_s
from roofline.latency.accuracy import BOUND_MARGIN

TOLERANCE = 1 / BOUND_MARGIN
"""What clocks and ceilings are worth: what beats its roof by less is not reported."""

Kind = Literal["measured", "predicted", "bound"]
"""The three times of an operator; they are never mixed in a sum."""

_NAMED = 5
"""How many of the operators that beat their bound have a line."""


def kind_of_time(analysis: Analysis) -> Kind:
    """The best kind of time that every operator that does something has; else the bound."""
    rows = working(analysis.operators)
    if rows and all(row.measured_s is not None for row in rows):
        return "measured"
    return "predicted" if rows and all(row.predicted_s is not None for row in rows) else "bound"


def minimum_words(totals: Totals) -> tuple[str, ...]:
    """The fused and the model minimum with their limiters: ``"fused 12.1 ms (DRAM read)"``."""
    if totals.fused_min_time_s is None or totals.model_min_time_s is None:
        return ()
    return (
        _minimum("fused", totals.fused_min_time_s, totals.fused_limiter),
        _minimum("model", totals.model_min_time_s, totals.model_limiter),
    )


def _minimum(name: str, time_s: float, limiter: str) -> str:
    return f"{name} {format_s(time_s)}{f' ({printable(limiter)})' if limiter else ''}"


def time_of(row: OperatorRow, kind: Kind) -> float | None:
    """The row's time of that kind in seconds."""
    times = {
        "measured": row.measured_s,
        "predicted": row.predicted_s,
        "bound": row.eager_min_time_s,
    }
    return times[kind]


def sum_s(rows: Iterable[OperatorRow], kind: Kind) -> float:
    """The sum in seconds of the times of that kind that are known."""
    return sum(time_of(row, kind) or 0.0 for row in rows)


def time_s(row: OperatorRow) -> float | None:
    """The seconds that a picture shows: the measured time if there is one, else the bound."""
    return row.eager_min_time_s if row.measured_s is None else row.measured_s


def total_s(analysis: Analysis) -> float:
    """The sum in seconds of all times that a picture shows and that are known."""
    return sum(time_s(row) or 0.0 for row in working(analysis.operators))


def rounded_share(share: float) -> float:
    """A share of sums that were added in another order: it must not show as more than all."""
    return min(1.0, round(share, 12))


def rate_flop_per_s(row: OperatorRow) -> float | None:
    """The height of a row's point: FLOP over its measured time, else what its bound lets it attain.

    The convention counts FLOP that a kernel need not do (padding taps, the masked half of
    attention); placement keeps them from lifting a bound above its ceiling.
    """
    if row.measured_s is None:
        return row.attainable_flop_per_s
    return row.flop / row.measured_s if row.flop is not None and row.measured_s else None


def beats_bound(row: OperatorRow) -> bool:
    """Whether a row was measured faster than its bound by more than measurements are worth."""
    return bool(
        row.measured_s
        and row.eager_min_time_s
        and row.measured_s * TOLERANCE < row.eager_min_time_s
    )


def above_roof(analysis: Analysis) -> tuple[str, ...]:
    """Lines about the operators that stand above their roof, with what that means.

    A time below the bound is an error of ours: in a count, a data type or a ceiling; each has its
    line, as far as there are few. A rate above the ceiling at a time that is not below the bound is
    none: there the convention counts FLOP that a kernel need not do. Those share a line for each
    ceiling.
    """
    faster = sorted(filter(beats_bound, analysis.operators), key=_time_over_bound)
    lines = [
        f"{row.op} in '{row.module_path}' (operator {row.index}) ran in {format_s(row.measured_s)},"
        f" faster than its bound of {format_s(row.eager_min_time_s)}: its count, its data type or"
        " its ceiling is wrong; please report it"
        for row in faster[:_NAMED]
    ]
    more = len(faster) - _NAMED
    if more > 0:
        lines.append(f"{more} more ran faster than their bounds, by less than these")
    by_ceiling: dict[str, int] = {}
    for row in analysis.operators:
        if _above_by_convention(row):
            by_ceiling[row.ceiling] = by_ceiling.get(row.ceiling, 0) + 1
    for ceiling, count in by_ceiling.items():
        who = "1 operator stands" if count == 1 else f"{count} operators stand"
        lines.append(
            f"{who} above {ceiling} without beating the bound: the convention counts FLOP that a"
            " kernel need not do (padding, masked attention, Winograd), and the bound leaves them"
            " out"
        )
    return tuple(lines)


def _time_over_bound(row: OperatorRow) -> float:
    return (row.measured_s or 0.0) / (row.eager_min_time_s or 1.0)


def _above_by_convention(row: OperatorRow) -> bool:
    rate, attainable = rate_flop_per_s(row), row.attainable_flop_per_s
    if rate is None or attainable is None or beats_bound(row):
        return False
    return rate > TOLERANCE * attainable
