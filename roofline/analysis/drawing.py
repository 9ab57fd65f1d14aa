"""Roofline plot of an analysis."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.analysis.points import Roofs, drawn, points_of, roof_lines, strip_of, types_by_time
from roofline.analysis.result import Analysis
from roofline.analysis.rows import fit_warnings
from roofline.analysis.words import above_roofline, machine_text, provenance_text
from roofline.core.sampling import interval_text, median_text
from roofline.core.text import NOTE, counted, printable
from roofline.core.units import format_s, format_shape
from roofline.errors import InputError
from roofline.machine.hardware import HardwareProfile
from roofline.plots.figures import foot_figure, shown_figure, title_figure
from roofline.plots.roof import RoofLines, Spot
from roofline.plots.roofline import draw_roofline
from roofline.plots.style import styles


def draw_analysis(
    figure: Figure, analysis: Analysis, *, labels: int = 12, roofs: Roofs = "in use"
) -> None:
    """Draw the roofline of an analysis: measured times where there are any, else minimum times."""
    handles = draw_on(figure.subplots(), analysis, roof_lines(analysis, roofs), labels=labels)
    title_figure(figure, title_of(analysis), subtitle_of(analysis))
    foot_figure(figure, handles, [provenance_text(analysis.hardware)], picture_warnings(analysis))


def draw_on(
    axes: Axes, analysis: Analysis, lines: RoofLines, *, labels: int, spots: Iterable[Spot] = ()
) -> list[Artist]:
    """Draw a roof and the operators under it into axes; return handles for a legend."""
    kind = "measured" if is_measured(analysis) else "minimum"
    return draw_roofline(
        axes,
        lines,
        points_of(analysis),
        aside=strip_of(analysis),
        look=styles(types_by_time(analysis)),
        labels=labels,
        rate=f"FLOP/s (FLOP / {kind} time)",
        spots=spots,
    )


def is_measured(analysis: Analysis) -> bool:
    """Return whether points stand at measured times."""
    return any(row.measured_s is not None for row in analysis.operators)


def subtitle_of(analysis: Analysis) -> str:
    """Return machine, threads, state of the caches, and what points stand for."""
    profile = analysis.hardware
    state = "warm caches" if analysis.cache == "steady" else "cold caches"
    points = "points: eager minimum times"
    if profile.has_single_memory_level:
        points = f"points: eager minimum times, all operands from {profile.memory[0].name}"
    if is_measured(analysis):
        points = "points: measured times"
    return machine_text(analysis, state, points)


def title_of(analysis: Analysis) -> str:
    """Return model, inputs, and how long the pass takes."""
    inputs = [f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs]
    step = ", training step" * analysis.run.train
    names = [f"Roofline of {printable(analysis.model)}{step}", ", ".join(inputs), _time(analysis)]
    return " · ".join(filter(None, names))


def _time(analysis: Analysis) -> str:
    totals, prediction = analysis.totals, analysis.prediction
    if analysis.measurement is not None:
        return f"{median_text(analysis.measurement.end_to_end)} measured"
    if totals.measured_s is not None:
        return f"{format_s(totals.measured_s)} measured"
    parts: list[str] = []
    if totals.eager_min_time_s is not None:
        parts.append(f"minimum {format_s(totals.eager_min_time_s)}")
    if prediction is not None:
        words = interval_text(prediction.predicted_s, prediction.low_s, prediction.high_s)
        parts.append(f"predicted {words[0]}")
    return ", ".join(parts)


def picture_warnings(analysis: Analysis) -> list[str]:
    """Return what a reader of the picture must know, most important first."""
    missing = sum(bool(row.flop) and not drawn(row) for row in analysis.operators)
    above = (each.removeprefix(NOTE) for each in above_roofline(analysis))
    found = [*above, *map(printable, fit_warnings(analysis))]
    if missing:
        found.append(
            f"{counted(missing, 'operator')} not drawn: hardware"
            f" '{printable(analysis.hardware.name)}' has no ceilings for them"
        )
    return found


def plot(
    analysis: Analysis | HardwareProfile,
    *,
    labels: int = 12,
    roofs: Roofs | None = None,
    layers: bool = False,
    paper: HardwareProfile | str | Path | None = None,
    width_inch: float = 10.0,
    height_inch: float | None = None,
) -> Figure:
    """Return the roofline plot of an analysis or a machine.

    Args:
        analysis: the analysis, with measured times if there are any, else minimum times; or a
            machine: theoretical and measured ceilings, with curves (only the width counts).
        labels: maximum number of operators to label, longest first.
        roofs: "all" ceilings, or those of the data types in use (None).
        layers: draw theoretical and measured roofline, with losses of hardware and software shaded.
        paper: machine of the theoretical roofline (profile, name or file); None: the profile's own
            theoretical figures. Needs `layers`.
        width_inch: width in inches.
        height_inch: height in inches; None: 6.5, with layers as needed.

    Raises:
        InputError: options without effect, or a `paper` that does not match.
        HardwareError: `paper` is unknown.
    """
    if isinstance(analysis, HardwareProfile):
        if not layers and paper is None:
            return analysis.plot(width_inch=width_inch, height_inch=height_inch)
        from roofline.analysis.layers_drawing import HEIGHT_INCH, draw_layers

        figure = shown_figure(width_inch, height_inch or HEIGHT_INCH)
        draw_layers(figure, analysis, paper=paper, labels=labels)
        return figure
    if layers or paper is not None:
        if roofs is not None:
            raise InputError("roofs: has no effect with layers; leave it out")
        options: dict[str, Any] = {"layers": layers, "paper": paper}
    else:
        options = {"roofs": roofs or "in use"}
    return analysis.plot(labels=labels, width_inch=width_inch, height_inch=height_inch, **options)
