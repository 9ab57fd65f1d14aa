"""What a roofline picture is of, in words and values, before anything has its place on paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roofline.analysis import Analysis, fit_warnings
from roofline.analysis.points import drawn, points_of, strip_of
from roofline.analysis.times import above_roof, time_s
from roofline.analysis.words import machine_words, provenance_words
from roofline.foundation.spreads import interval_words, median_text
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_s, format_shape
from roofline.plots.roof import Point, RoofLines, StripPoint
from roofline.plots.style import Style, styles
from roofline.workload.operators import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a roofline picture is of.

    ``names`` and ``tail`` are its title: what does not fit is cut from the names, never from the
    tail, for a number cut short is another one. ``height`` says what FLOP/s are of. ``aside`` are
    the operators without a place on the axes, ``look`` has the style of each type of operator.
    """

    names: str
    tail: str = ""
    machine: str
    provenance: str
    height: str = "FLOP/s"
    lines: RoofLines
    points: tuple[Point, ...] = ()
    aside: tuple[StripPoint, ...] = ()
    look: Mapping[str, Style] = field(default_factory=dict[str, Style])
    warnings: tuple[str, ...] = ()


def subject_of(analysis: Analysis, lines: RoofLines) -> Subject:
    """An analysis under the lines of its machine."""
    measured = any(row.measured_s is not None for row in analysis.operators)
    time = _time(analysis)
    return Subject(
        names=_names(analysis),
        tail=f" · {time}" if time else "",
        machine=_machine(analysis, measured=measured),
        provenance=provenance_words(analysis.hardware),
        height=f"FLOP/s (FLOP / {'measured' if measured else 'bound'} time)",
        lines=lines,
        points=points_of(analysis),
        aside=strip_of(analysis),
        look=styles(_types_by_time(analysis)),
        warnings=(
            *above_roof(analysis),
            *map(printable, fit_warnings(analysis)),
            *_without_place(analysis),
        ),
    )


def _types_by_time(analysis: Analysis) -> list[str]:
    """The types of the operators that are not free, longest first."""
    times: dict[str, float] = {}
    for row in analysis.operators:
        if row.state is not State.FREE:
            times[row.type] = times.get(row.type, 0.0) + (time_s(row) or 0.0)
    return sorted(times, key=lambda kind: -times[kind])


def _machine(analysis: Analysis, *, measured: bool) -> str:
    profile = analysis.hardware
    state = "steady state" if analysis.cache == "steady" else "cold caches"
    points = "points: eager minimum times"
    if profile.knows_only_dram:
        points = f"points: bounds with every operand from {printable(profile.memory[0].name)}"
    if measured:
        points = "points: measured times"
    return machine_words(analysis, state, points)


def _names(analysis: Analysis) -> str:
    """The model, and what it was given."""
    inputs = [f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs]
    step = "a training step of " if analysis.run.train else ""
    names = [f"Roofline of {step}{printable(analysis.model)}", ", ".join(inputs)]
    return " · ".join(filter(None, names))


def _time(analysis: Analysis) -> str:
    """How long the pass took, or else what it takes at least and is expected to take."""
    totals, prediction = analysis.totals, analysis.prediction
    if analysis.measurement is not None:
        return f"{median_text(analysis.measurement.end_to_end)} measured"
    if totals.measured_s is not None:
        return f"{format_s(totals.measured_s)} measured"
    parts = [f"bound {format_s(totals.bound_s)}"] if totals.bound_s is not None else []
    if prediction is not None:
        words = interval_words(prediction.predicted_s, prediction.low_s, prediction.high_s)
        parts.append(f"predicted {words[0]}")
    return ", ".join(parts)


def _without_place(analysis: Analysis) -> tuple[str, ...]:
    missing = sum(bool(row.flop) and not drawn(row) for row in analysis.operators)
    if not missing:
        return ()
    return (
        f"{counted(missing, 'operator')} cannot be drawn: hardware"
        f" '{printable(analysis.hardware.name)}' has no ceilings that give a time",
    )
