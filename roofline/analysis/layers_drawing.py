"""The picture of a roofline in layers: theoretical, measured, and reached by software."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from roofline.analysis.drawing import (
    is_measured,
    picture_warnings,
    subtitle_of,
    title_of,
)
from roofline.analysis.layers import (
    RoofLayers,
    layers_of_analysis,
    layers_of_machine,
    library_note,
    software_note,
)
from roofline.analysis.points import points_of, strip_of, types_by_time
from roofline.analysis.result import Analysis
from roofline.analysis.words import provenance_words
from roofline.foundation.text import printable
from roofline.foundation.units import format_intensity, format_percent
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.losses import Layer, loss_notes, loss_words
from roofline.machine.roof import LevelRoof
from roofline.plots.figures import foot_figure, title_figure
from roofline.plots.roofline import draw_roofline, name_points
from roofline.plots.style import BLUE, THEORETICAL, styles

HEIGHT_INCH = 8.0

_LOSS: dict[str, Any] = {
    # Strokes across one of them tell both apart in grey print.
    "facecolor": "#fbe3d2",
    "edgecolor": "#eeb28b",
    "hatch": "////",
    "linewidth": 0.0,
    "zorder": 0.6,
}
_SOFTWARE: dict[str, Any] = {"facecolor": BLUE, "alpha": 0.13, "linewidth": 0.0, "zorder": 0.7}
_REACHED: dict[str, Any] = {"color": BLUE, "linewidth": 1.3}
_MOST_WORDS = 4

_THIN = 0.025
"""Part of the height of the axes: areas less high than this have no words."""

_NARROW = 0.02
"""Part of the width of the axes: areas of operators are no narrower than this."""


def draw_layers(
    figure: Figure,
    subject: Analysis | HardwareProfile,
    *,
    paper: HardwareProfile | str | Path | None = None,
    labels: int = 12,
) -> None:
    """Draw the theoretical roof, the measured one and what software reaches, shaded between.

    Args:
        figure: an empty one.
        subject: an analysis, whose operators are drawn under the roof; or a machine's profile.
        paper: the profile with the theoretical peaks, its name or file; None: those that the
            machine's own profile knows.
        labels: number of the longest operators to name, where there is room.

    Raises:
        InputError: `paper` is of another kind of machine, or has no theoretical peaks for this one.
        HardwareError: `paper` is not known.
    """
    theory = load_hardware(paper) if isinstance(paper, str | Path) else paper
    axes = figure.subplots()
    if isinstance(subject, HardwareProfile):
        layers, points = layers_of_machine(subject, theory), ()
        handles = draw_roofline(axes, layers.lines)
        who = printable(subject.host.cpu_model if subject.host else subject.description)
        kinds = {
            "theoretical": any(each.theoretical_per_s for each in layers.all),
            "measured": any(each.measured_per_s for each in layers.all),
        }
        known = " and ".join(kind for kind, is_known in kinds.items() if is_known)
        title = f"Roofline of {subject.name}" + f": {known} peaks" * bool(known)
        below = " · ".join(filter(None, (who, describe_threads(subject, subject.threads))))
        notes, warnings = [library_note(layers)], []
    else:
        layers, points = layers_of_analysis(subject, theory), points_of(subject)
        kind = "measured" if is_measured(subject) else "minimum"
        handles = draw_roofline(
            axes,
            layers.lines,
            points,
            aside=strip_of(subject),
            look=styles(types_by_time(subject)),
            labels=0,
            rate=f"FLOP/s (FLOP / {kind} time)",
            spots=[end for each in layers.shown for end in layers.ends(each)],
        )
        title, below = title_of(subject), subtitle_of(subject)
        notes, warnings = [software_note(layers)], picture_warnings(subject)
    profile = subject if isinstance(subject, HardwareProfile) else subject.hardware
    _shade_losses(axes, layers)
    _shade_software(axes, layers)
    for x, y in layers.theoretical_ridges:
        axes.plot(x, y, "D", markersize=5, zorder=4, mfc="white", mec=THEORETICAL)
    texts = [*_words_of_losses(axes, layers), *_words_of_software(layers)]
    name_points(axes, points, labels, layers.lines, texts=texts)
    title_figure(figure, title, below)
    foot_figure(
        figure,
        [*handles, *_handles(layers)],
        [*loss_notes(layers.all), *filter(None, notes), provenance_words(profile)],
        warnings,
        columns=4,
    )


def _is_lost(each: Layer) -> bool:
    return (each.loss or 0.0) > 0


def _shade_losses(axes: Axes, layers: RoofLayers) -> None:
    """Shade what the hardware loses: between theoretical and measured, where both are known."""
    # Beyond the axes, where they cut: straight lines stay straight on logarithmic axes.
    left = axes.get_xlim()[0] / 10
    top = layers.top_flop_per_s or axes.get_ylim()[1] * 10
    for each in filter(_is_lost, layers.all):
        low, high = each.per_s, each.theoretical_per_s or 0.0
        if each.what == "compute":
            _between(axes, low, high, layers.fastest_bytes_per_s, _LOSS)
        else:
            x = (left, top / low, top / high, left)
            axes.fill(x, (left * low, top, top, left * high), **_LOSS)
    if layers.software is None:
        for each, best in layers.library_gaps:
            fastest = max((level.per_s for level in layers.memory), default=None)
            _between(axes, best.flop_per_s, each.per_s, fastest, _SOFTWARE)


def _between(
    axes: Axes, low: float, high: float, bytes_per_s: float | None, look: dict[str, Any]
) -> None:
    """Shade between two ceilings, right of a memory level if any is known."""
    left, right = axes.get_xlim()[0] / 10, axes.get_xlim()[1] * 10
    starts = (low / bytes_per_s, high / bytes_per_s) if bytes_per_s else (left, left)
    axes.fill((*starts, right, right), (low, high, high, low), **look)


def _shade_software(axes: Axes, layers: RoofLayers) -> None:
    """Shade what software loses: under each line, as far as its operators reach."""
    left, right = axes.get_xlim()
    narrow = (right / left) ** _NARROW
    for each in layers.shown:
        (low, _), (high, _) = layers.ends(each)
        by = math.sqrt(max(1.0, narrow * low / high))
        x = (low / by, high * by)
        roof = [layers.roof[each.ceiling].height(place) for place in x]
        reached = [each.efficiency * rate for rate in roof]
        axes.fill_between(x, reached, roof, **_SOFTWARE)
        axes.plot(x, reached, zorder=2.2, **_REACHED)


def _words_of_losses(axes: Axes, layers: RoofLayers) -> Iterator[tuple[float, float, str]]:
    """Return the losses at their areas, where those are high enough, and theoretical ridges."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for each in filter(_is_lost, layers.all):
        high = each.theoretical_per_s or 0.0
        middle = math.sqrt(each.per_s * high)
        if math.log(high / each.per_s) < _THIN * math.log(top / bottom):
            continue
        if each.what == "compute":
            yield right**0.95 * left**0.05, middle, loss_words(each.loss or 0.0)
        else:
            start = max(left, bottom / middle)
            x = math.sqrt(start * min((layers.top_flop_per_s or top) / middle, right))
            yield x, x * middle, loss_words(each.loss or 0.0)
    main = layers.lines.main_top_flop_per_s or 1.0
    measured = [(each.ridge_flop_per_byte, main) for each in layers.lines.diagonals]
    for x, y in layers.theoretical_ridges:
        apart = [
            abs(math.log(x / other)) > _THIN * math.log(right / left)
            or abs(math.log(y / main)) > _THIN * math.log(top / bottom)
            for other, _ in measured
            if other
        ]
        if any(apart):
            yield x, y, f"{format_intensity(x)} theoretical"


def _words_of_software(layers: RoofLayers) -> Iterator[tuple[float, float, str]]:
    """Return the efficiencies under each line, at the outer end of the line that they reach."""
    what = "reached" if layers.software and layers.software.kind == "measured" else "predicted"
    for each in layers.shown[:_MOST_WORDS]:
        line = layers.roof[each.ceiling]
        x, y = layers.ends(each)[0 if isinstance(line, LevelRoof) else 1]
        yield x, y, f"{format_percent(each.efficiency)} of {printable(line.subject)} {what}"


def _handles(layers: RoofLayers) -> Iterator[Artist]:
    """Return what a legend explains beside lines and marks."""
    if any(map(_is_lost, layers.all)):
        yield Patch(label="hardware loss: below the theoretical peak", **_LOSS)
    if layers.shown and layers.software:
        kind = "reached" if layers.software.kind == "measured" else "predicted to be reached"
        yield Patch(label=f"software loss: below the roof, not {kind}", **_SOFTWARE)
        yield Line2D([], [], label=f"{kind} by the operators, on average", **_REACHED)
    elif layers.software is None and layers.library_gaps:
        yield Patch(label="software loss: not reached by the library", **_SOFTWARE)
