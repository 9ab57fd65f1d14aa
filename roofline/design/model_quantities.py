"""What models are compared by: one quantity of each, as numbers and in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roofline.analysis import Analysis
from roofline.design.pass_times import DIGITS, measured_s, predicted_s
from roofline.foundation.units import (
    format_byte,
    format_flop,
    format_intensity,
    format_s,
    format_si,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One quantity of every model: ``values`` in the unit its name carries, None where unknown."""

    name: str
    title: str
    values: tuple[float | None, ...]
    text: tuple[str, ...]


def quantities_of(analyses: Sequence[Analysis]) -> tuple[Quantity, ...]:
    """FLOP, parameters, bytes, memory, intensity, bound and times of every model."""
    found: list[Quantity] = []
    for name, title, value, form, is_flop in _QUANTITIES:
        values: list[float | None] = []
        text: list[str] = []
        for each in analyses:
            partial = is_flop and each.totals.unknown_operators > 0
            # What is only known in part is shown as a least, and compared with nothing.
            values.append(None if partial else value(each))
            text.append(("≥ " if partial else "") + form(value(each)))
        found.append(Quantity(name=name, title=title, values=tuple(values), text=tuple(text)))
    return tuple(found)


def _time(value_s: float | None) -> str:
    return format_s(value_s, DIGITS)


_QUANTITIES: tuple[
    tuple[str, str, Callable[[Analysis], float | None], Callable[[float | None], str], bool], ...
] = (
    ("flop", "FLOP", lambda each: each.totals.flop, format_flop, True),
    (
        "multiply_add",
        "multiply-adds",
        lambda each: each.totals.multiply_add,
        lambda value: format_si(value, ""),
        True,
    ),
    (
        "parameters",
        "parameters",
        lambda each: each.totals.parameters,
        lambda value: format_si(value, ""),
        False,
    ),
    (
        "parameter_bytes",
        "parameter size",
        lambda each: each.totals.parameter_bytes,
        format_byte,
        False,
    ),
    ("traffic_byte", "traffic", lambda each: each.totals.traffic_byte, format_byte, False),
    (
        "peak_memory_byte",
        "peak memory",
        lambda each: each.totals.peak_memory_byte,
        format_byte,
        False,
    ),
    (
        "intensity_flop_per_byte",
        "intensity (FLOP/B)",
        lambda each: each.totals.intensity_flop_per_byte,
        format_intensity,
        False,
    ),
    ("bound_s", "bound", lambda each: each.totals.bound_s, format_s, False),
    ("predicted_s", "predicted", predicted_s, _time, False),
    ("measured_s", "measured", measured_s, _time, False),
)
