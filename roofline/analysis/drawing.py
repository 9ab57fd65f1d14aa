"""The roofline picture of an analysis."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.analysis.memory_fit import fit_warnings
from roofline.analysis.points import drawn, points_of, strip_of
from roofline.analysis.result import Analysis
from roofline.analysis.roof import Roofs, roof_lines
from roofline.analysis.times import above_roof, time_s
from roofline.analysis.words import machine_words, provenance_words
from roofline.foundation.spreads import interval_words, median_text
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_s, format_shape
from roofline.plots.figures import foot_figure, title_figure
from roofline.plots.roofline import draw_roofline
from roofline.plots.style import styles
from roofline.workload.operators import State


def draw_analysis(
    figure: Figure,
    analysis: Analysis,
    *,
    labels: int = 12,
    roofs: Roofs = "in use",
) -> None:
    """Draw the roofline of an analysis: measured times where there are any, else minimum times.

    Args:
        figure: an empty one.
        analysis: what to draw.
        labels: number of the longest operators to name, where there is room.
        roofs: every ceiling that is known, or only those of the data types in use.
    """
    axes = figure.subplots()
    handles = draw_on(axes, analysis, labels=labels, roofs=roofs)
    title_figure(figure, title_of(analysis), subtitle_of(analysis))
    foot_figure(figure, handles, [provenance_words(analysis.hardware)], picture_warnings(analysis))


def draw_on(axes: Axes, analysis: Analysis, *, labels: int = 12, roofs: Roofs = "in use"):
    """Draw ceilings, memory levels and operators into axes; return handles for a legend."""
    kind = "measured" if is_measured(analysis) else "minimum"
    return draw_roofline(
        axes,
        roof_lines(analysis, roofs),
        points_of(analysis),
        aside=strip_of(analysis),
        look=styles(types_by_time(analysis)),
        labels=labels,
        rate=f"FLOP/s (FLOP / {kind} time)",
    )


def is_measured(analysis: Analysis) -> bool:
    """Return whether points stand at measured times."""
    return any(row.measured_s is not None for row in analysis.operators)


def types_by_time(analysis: Analysis) -> list[str]:
    """Return the types of the operators that are not free, longest first."""
    times: dict[str, float] = {}
    for row in analysis.operators:
        if row.state is not State.FREE:
            times[row.type] = times.get(row.type, 0.0) + (time_s(row) or 0.0)
    return sorted(times, key=lambda kind: -times[kind])


def subtitle_of(analysis: Analysis) -> str:
    """Return machine, threads, state of the caches, and what points stand for."""
    profile = analysis.hardware
    state = "steady state" if analysis.cache == "steady" else "cold caches"
    points = "points: eager minimum times"
    if profile.knows_only_dram:
        points = f"points: minimum times with every operand from {profile.memory[0].name}"
    if is_measured(analysis):
        points = "points: measured times"
    return machine_words(analysis, state, points)


def title_of(analysis: Analysis) -> str:
    """Return model, inputs, and how long the pass takes."""
    inputs = [f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs]
    step = "a training step of " if analysis.run.train else ""
    names = [f"Roofline of {step}{printable(analysis.model)}", ", ".join(inputs), _time(analysis)]
    return " · ".join(filter(None, names))


def _time(analysis: Analysis) -> str:
    """How long the pass took, or else its minimum and predicted time."""
    totals, prediction = analysis.totals, analysis.prediction
    if analysis.measurement is not None:
        return f"{median_text(analysis.measurement.end_to_end)} measured"
    if totals.measured_s is not None:
        return f"{format_s(totals.measured_s)} measured"
    parts = [f"minimum {format_s(totals.bound_s)}"] if totals.bound_s is not None else []
    if prediction is not None:
        words = interval_words(prediction.predicted_s, prediction.low_s, prediction.high_s)
        parts.append(f"predicted {words[0]}")
    return ", ".join(parts)


def picture_warnings(analysis: Analysis) -> list[str]:
    """Return what a reader of the picture must know, most important first."""
    missing = sum(bool(row.flop) and not drawn(row) for row in analysis.operators)
    found = [*above_roof(analysis), *map(printable, fit_warnings(analysis))]
    if missing:
        found.append(
            f"{counted(missing, 'operator')} cannot be drawn: hardware"
            f" '{printable(analysis.hardware.name)}' has no ceilings that give a time"
        )
    return found
