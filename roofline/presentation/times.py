"""How long each operator takes, its share of the whole, and which beat their bound."""

from __future__ import annotations

from roofline.analysis import Analysis, OperatorRow
from roofline.foundation.units import format_s

TOLERANCE = 1.01
"""Measured times and ceilings are worth about 1 %: a point must beat its roof by more to be reported."""


def time_s(row: OperatorRow) -> float | None:
    """The time in seconds that presentation shows: the measured one if there is one, else the bound."""
    return row.bound_s if row.measured_s is None else row.measured_s


def total_s(analysis: Analysis) -> float:
    """The sum in seconds of all times that are known."""
    return sum(time_s(row) or 0.0 for row in analysis.operators)


def above_roof(analysis: Analysis) -> tuple[str, ...]:
    """One line for each operator that stands above its roof, with what that means.

    A time below the bound is an error of ours: in a count, a data type or a ceiling. A rate above
    the compute ceiling at a time that is not below the bound is none: there the definition counts
    FLOP that a kernel need not do.
    """
    lines: list[str] = []
    for row in analysis.operators:
        time = time_s(row)
        if not time or not row.bound_s:
            continue
        where = f"{row.op} in '{row.module_path}' (operator {row.index})"
        if time * TOLERANCE < row.bound_s:
            lines.append(
                f"{where} ran in {format_s(time)}, faster than its bound of {format_s(row.bound_s)}:"
                " its count, its data type or its ceiling is wrong; please report it"
            )
        elif exceeds_by_definition(row):
            lines.append(
                f"{where} stands above {row.ceiling}: its definition counts FLOP that a kernel need"
                " not do, and the bound leaves those out"
            )
    return tuple(lines)


def exceeds_by_definition(row: OperatorRow) -> bool:
    """Whether FLOP over time is above the compute ceiling only because least_flop is below flop."""
    time = time_s(row)
    if not time or not row.bound_s or row.bound != "compute":
        return False
    if row.flop is None or row.least_flop is None:
        return False
    return row.flop / time > TOLERANCE * row.least_flop / row.bound_s
