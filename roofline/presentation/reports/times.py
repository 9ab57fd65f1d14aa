"""How long each operator takes, its share of the whole, and which beat their bound."""

from __future__ import annotations

from roofline.analysis import Analysis, OperatorRow
from roofline.foundation.units import format_s

TOLERANCE = 1.01
"""Times and ceilings are worth about 1 %: what beats its roof by less is not reported."""


def time_s(row: OperatorRow) -> float | None:
    """The time in seconds that is shown: the measured one if there is one, else the bound."""
    return row.bound_s if row.measured_s is None else row.measured_s


def total_s(analysis: Analysis) -> float:
    """The sum in seconds of all times that are known."""
    return sum(time_s(row) or 0.0 for row in analysis.operators)


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
    return bool(row.measured_s and row.bound_s and row.measured_s * TOLERANCE < row.bound_s)


def above_roof(analysis: Analysis) -> tuple[str, ...]:
    """Lines about the operators that stand above their roof, with what that means.

    A time below the bound is an error of ours: in a count, a data type or a ceiling; each has its
    line. A rate above the ceiling at a time that is not below the bound is none: there the
    convention counts FLOP that a kernel need not do. Those share a line for each ceiling.
    """
    lines = [
        f"{row.op} in '{row.module_path}' (operator {row.index}) ran in {format_s(row.measured_s)},"
        f" faster than its bound of {format_s(row.bound_s)}: its count, its data type or its"
        " ceiling is wrong; please report it"
        for row in analysis.operators
        if beats_bound(row)
    ]
    by_ceiling: dict[str, int] = {}
    for row in analysis.operators:
        if _above_by_convention(row):
            by_ceiling[row.ceiling] = by_ceiling.get(row.ceiling, 0) + 1
    for ceiling, count in by_ceiling.items():
        who = "1 operator stands" if count == 1 else f"{count} operators stand"
        lines.append(
            f"{who} above {ceiling} without beating the bound: the convention counts FLOP that a"
            " kernel need not do (padding, masked attention), and the bound leaves them out"
        )
    return tuple(lines)


def _above_by_convention(row: OperatorRow) -> bool:
    rate, attainable = rate_flop_per_s(row), row.attainable_flop_per_s
    if rate is None or attainable is None or beats_bound(row):
        return False
    return rate > TOLERANCE * attainable
