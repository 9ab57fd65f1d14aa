"""The picture of a validation: predicted against measured times, and errors by family."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from roofline.foundation.text import counted
from roofline.foundation.units import format_percent, format_s
from roofline.latency.judged_runs import ModelValidation, RatioValidation, Setting
from roofline.latency.validation import Validation
from roofline.latency.validation_blocks import setting_words
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.roofline import log_axes, place_texts
from roofline.plots.style import (
    BLACK,
    BLUE,
    DARK_RED,
    GREEN,
    GREY,
    GREY_TEXT,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    SMALL_PT,
    VERMILION,
    Style,
)

T = TypeVar("T", bound=Hashable)

Drawn = Literal["predictions", "minimum times", "speed-ups", "nothing"]
"""What is compared with the measurements: minimum times where nothing was predicted."""

_COLORS = (BLUE, VERMILION, SKY, ORANGE, GREEN, PURPLE, BLACK, DARK_RED)
"""The last is that of all others, where these are too few."""

_MARKERS = ("o", "s", "^", "D", "v")
_REST = "others"
_BANDS = {0.2: "#eef1f4", 0.1: "#dbe2e9"}
"""Shades of what is near the measured time, the wider first."""

_FEW = 20
_FAR_OFF = 1.2
"""Where points are many, those are named that are off by more than this factor."""

_MOST_ROWS = 24
_MOST_FACTOR = 30.0
_NAME_CHARACTERS = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPoint:
    """A run or a pair of designs: ``said`` of it, and ``measured``, both in s or both ratios.

    ``group`` is the family of the model, or the kind of the designs.
    """

    name: str
    group: str
    style: Style
    measured: float
    said: float
    low: float | None
    high: float | None

    @property
    def error(self) -> float:
        """(said - measured) / measured."""
        return (self.said - self.measured) / self.measured

    @property
    def factor_off(self) -> float:
        """How many times too much or too little was said, at least 1."""
        return max(self.said / self.measured, self.measured / self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPoints:
    """All points, and what their colors and markers stand for (nothing, where all are alike)."""

    drawn: Drawn
    points: tuple[JudgedPoint, ...]
    key: tuple[tuple[str, Style], ...]


def judged_points(validation: Validation) -> JudgedPoints:
    """Return runs that were predicted; else runs under minimum times; else pairs of designs."""
    if runs := [each for each in validation.models if each.predicted_s]:
        return _of_runs("predictions", runs, lambda run: run.predicted_s)
    if runs := [each for each in validation.models if each.bound_s]:
        return _of_runs("minimum times", runs, lambda run: run.bound_s)
    ratios = [] if validation.models else [each for each in validation.ratios if each.predicted]
    return JudgedPoints(
        drawn="speed-ups" if ratios else "nothing",
        points=tuple(_of_ratio(each, each.predicted) for each in ratios if each.predicted),
        key=(),
    )


def _of_runs(
    drawn: Literal["predictions", "minimum times"],
    runs: Sequence[ModelValidation],
    said: Callable[[ModelValidation], float | None],
) -> JudgedPoints:
    colors = _ranks(sorted(_kind_of(each.setting) for each in runs), len(_COLORS))
    batches = sorted((each.batch for each in runs), key=lambda each: each or math.inf)
    markers = _ranks(batches, len(_MARKERS))
    is_predicted = drawn == "predictions"
    points = tuple(
        JudgedPoint(
            name=run.model,
            group=run.family,
            style=Style(_COLORS[colors[_kind_of(run.setting)]], _MARKERS[markers[run.batch]]),
            measured=run.measured_s,
            said=said(run) or 0.0,
            low=run.predicted_low_s if is_predicted else None,
            high=run.predicted_high_s if is_predicted else None,
        )
        for run in runs
    )
    key = (*_color_key(colors), *_marker_key(markers))
    return JudgedPoints(drawn=drawn, points=points, key=key)


def _of_ratio(ratio: RatioValidation, predicted: float) -> JudgedPoint:
    name = ratio.name.removeprefix("design ")
    return JudgedPoint(
        name=name,
        group=name.partition(", ")[0],
        style=Style(BLUE, "o"),
        measured=ratio.measured,
        said=predicted,
        low=None,
        high=None,
    )


_Kind = tuple[int, str, bool]


def _kind_of(setting: Setting) -> _Kind:
    """What the color of a run stands for."""
    return (setting.threads, setting.dtype, setting.channels_last)


def _ranks(in_order: Sequence[T], most: int) -> dict[T, int]:
    """A number from 0 for each value, in the order given; beyond `most` the rare share the last."""
    counts = Counter(in_order)
    kept = len(counts) if len(counts) <= most else most - 1
    own = {value for value, _ in counts.most_common(kept)}
    found = {value: i for i, value in enumerate(each for each in counts if each in own)}
    return {value: found.get(value, most - 1) for value in counts}


def _color_key(colors: dict[_Kind, int]) -> list[tuple[str, Style]]:
    """What the colors mean, without what all runs share."""
    if len(colors) < 2:
        return []
    threads, dtypes, layouts = ({each[i] for each in colors} for i in range(3))
    found: dict[int, str] = {}
    for kind, rank in sorted(colors.items(), key=lambda each: each[1]):
        parts = [kind[1]] if len(dtypes) > 1 else []
        parts += [counted(kind[0], "thread")] if len(threads) > 1 else []
        if len(layouts) > 1:
            parts += ["channels last" if kind[2] else "channels first"]
        found[rank] = _REST if rank in found else ", ".join(parts)
    return [(text, Style(_COLORS[rank], "o")) for rank, text in found.items()]


def _marker_key(markers: dict[int | None, int]) -> list[tuple[str, Style]]:
    if len(markers) < 2:
        return []
    found: dict[int, str] = {}
    for batch, rank in sorted(markers.items(), key=lambda each: each[1]):
        text = "own batch" if batch is None else f"batch {batch}"
        found[rank] = _REST if rank in found else text
    return [(text, Style(GREY, _MARKERS[rank])) for rank, text in found.items()]


def draw_validation(figure: Figure, validation: Validation, *, labels: int = 10) -> None:
    """Draw predicted against measured times, run by run, and the errors by family."""
    found = judged_points(validation)
    near = found.drawn in ("predictions", "speed-ups")
    handles: list[Artist] = []
    if found.points:
        axes, rows = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_points(axes, found, labels, near=near)
        _draw_errors(rows, found, near=near)
        handles = _handles(found, near=near)
    else:
        figure.subplots().set_axis_off()
    title_figure(figure, validation.summary, _subtitle(validation))
    foot_figure(figure, handles, _notes(validation, found))


def _draw_points(axes: Axes, found: JudgedPoints, labels: int, *, near: bool) -> None:
    points = found.points
    values = [value for each in points for value in (each.measured, each.said)]
    low, high = min(values) / 1.3, max(values) * 1.3
    # Of few runs alike, the bands must not fill the picture.
    grown = max(1.0, math.sqrt(6.0 / (high / low)))
    ends = (low / grown, high * grown)
    log_axes(axes, ends, ends)
    axes.set_box_aspect(1)
    across, up = {
        "predictions": ("measured time", "predicted time"),
        "minimum times": ("measured time", "eager minimum time"),
    }.get(found.drawn, ("measured speed-up (times as fast)", "predicted speed-up (times as fast)"))
    prepare_axes(axes, x=across, y=up)
    form = format_s if found.drawn != "speed-ups" else lambda value, _: f"{value:g}"
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: form(value, 1)))
    if near:
        for share, shade in _BANDS.items():
            below, above = ([factor * end for end in ends] for factor in (1 - share, 1 + share))
            axes.fill_between(ends, below, above, color=shade, linewidth=0, zorder=0.6)
    axes.plot(ends, ends, color=INK, linewidth=0.8, zorder=2)
    diameter = 7.0 if len(points) <= _FEW else 5.5 if len(points) <= 150 else 4.2
    spans = [each for each in points if each.low is not None]
    axes.vlines(
        [each.measured for each in spans],
        # An interval may begin at 0, which logarithmic axes have not.
        [max(each.low or 0.0, ends[0]) for each in spans],
        [each.high or each.said for each in spans],
        colors=[each.style.colour for each in spans],
        linewidth=0.7,
        alpha=0.45,
        zorder=3,
    )
    _dots(axes, points, [(each.measured, each.said) for each in points], diameter, near=near)
    few = len(points) <= _FEW
    worst = sorted(points, key=lambda each: -each.factor_off)
    named = [each for each in worst if few or each.factor_off > _FAR_OFF]
    named = named[: max(labels, _FEW) if few and labels else max(0, labels)]
    others = [each for each in points if each not in named]
    place_texts(
        axes,
        [(each.measured, each.said, _name(each, near=near)) for each in named],
        avoid=[(each.measured, each.said) for each in (*named, *others)],
        diameters_pt=[diameter] * len(points),
        lines=[(ends, ends)],
    )


def _name(point: JudgedPoint, *, near: bool) -> str:
    name = point.name
    if len(name) > _NAME_CHARACTERS:
        name = "…" + name[1 - _NAME_CHARACTERS :]
    return f"{name} {100 * point.error:+.0f} %" if near else name


def _dots(
    axes: Axes,
    points: Sequence[JudgedPoint],
    places: Sequence[tuple[float, float]],
    diameter_pt: float,
    *,
    near: bool,
) -> None:
    for style in dict.fromkeys(each.style for each in points):
        x, y = zip(
            *(place for each, place in zip(points, places, strict=True) if each.style == style),
            strict=True,
        )
        size = {"o": 1.0, "s": 0.8, "D": 0.6}.get(style.marker, 1.1) * diameter_pt**2
        axes.scatter(
            x,
            y,
            s=size,
            marker=style.marker,
            facecolor=style.colour if near else "none",
            edgecolor="white" if near else style.colour,
            linewidth=0.3 if near else 1.0,
            alpha=0.85,
            zorder=4,
        )


def families_of(found: JudgedPoints) -> list[tuple[str, list[JudgedPoint]]]:
    """Return points by family, the worst first; those that are too many are taken together."""
    by_name: dict[str, list[JudgedPoint]] = {}
    for each in found.points:
        by_name.setdefault(each.group, []).append(each)
    groups = sorted(by_name.items(), key=lambda each: -mean_error(each[1]))
    if len(groups) <= _MOST_ROWS:
        return groups
    kept, rest = groups[: _MOST_ROWS - 1], groups[_MOST_ROWS - 1 :]
    return [*kept, (f"{len(rest)} others", [each for _, members in rest for each in members])]


def mean_error(points: Sequence[JudgedPoint]) -> float:
    """Return the mean of |said - measured| / measured."""
    return math.fsum(abs(each.error) for each in points) / len(points)


def _draw_errors(axes: Axes, found: JudgedPoints, *, near: bool) -> None:
    """Draw a row of dots for each family, on an axis of said / measured."""
    groups = families_of(found)
    factors = np.clip(
        [each.said / each.measured for each in found.points], 1 / _MOST_FACTOR, _MOST_FACTOR
    )
    low, high = min(0.75, *factors) / 1.03, max(1.3 if near else 1.0, *factors) * 1.03
    axes.set(xscale="log", xlim=(low, high), ylim=(len(groups) - 0.5, -0.5), autoscale_on=False)
    prepare_axes(axes, grid=False)
    title = "error of the prediction, %" if near else "minimum, % of the measured time"
    axes.set_xlabel(title, fontsize=SMALL_PT + 0.5, color=INK)
    if near:
        for share, shade in _BANDS.items():
            axes.axvspan(1 - share, 1 + share, color=shade, linewidth=0, zorder=0.4)
    axes.axvline(1.0, color=INK, linewidth=0.8, zorder=2)
    ticks = [value for value in (0.1, 0.2, 0.5, 0.8, 1.0, 1.2, 1.5, 2, 5, 10) if low < value < high]
    shown = [f"{100 * (each - 1):+.0f}" if near else f"{100 * each:.0f}" for each in ticks]
    axes.set_xticks(ticks, [each if each != "+0" else "0" for each in shown])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x", color="#ececec", linewidth=0.7)
    names = [name if len(name) <= 18 else f"{name[:17]}…" for name, _ in groups]
    axes.set_yticks(range(len(groups)), names, fontsize=SMALL_PT, **words())
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=SMALL_PT)
    axes.spines["left"].set_visible(False)
    for row, (_, members) in enumerate(groups):
        places = [(_clipped(each, low, high), row + _lane(i)) for i, each in _ranked(members)]
        _dots(axes, [each for _, each in _ranked(members)], places, 4.0, near=near)
        mean = mean_error(members)
        axes.annotate(
            format_percent(mean if near else 1 - mean),
            (1.0, row),
            (6, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT,
            color=INK,
            annotation_clip=False,
        )
    heading = "designs" if found.drawn == "speed-ups" else "family"
    style = {"fontsize": SMALL_PT, "color": GREY_TEXT}
    axes.set_title(heading, loc="left", x=-0.02, ha="right", **style)
    axes.set_title("mean", loc="right", x=1.02, ha="left", **style)


def _ranked(members: Sequence[JudgedPoint]) -> list[tuple[int, JudgedPoint]]:
    return list(enumerate(sorted(members, key=lambda each: each.said / each.measured)))


def _lane(number: int) -> float:
    """Where in its row a dot stands: neighbors one below the other."""
    return (0.0, 0.18, -0.18, 0.32, -0.32)[number % 5]


def _clipped(point: JudgedPoint, low: float, high: float) -> float:
    return min(high, max(low, point.said / point.measured))


def _handles(found: JudgedPoints, *, near: bool) -> list[Artist]:
    marks = [
        Line2D(
            [], [], ls="none", marker=style.marker, ms=7, label=text, mec=style.colour,
            mfc=style.colour if near else "none",
        )
        for text, style in found.key
    ]  # fmt: skip
    exact = Line2D([], [], color=INK, lw=0.8, label="predicted = measured" if near else "minimum")
    bands = [
        Patch(color=shade, label=f"within ±{100 * share:.0f} %")
        for share, shade in reversed(_BANDS.items())
    ]
    has_interval = any(each.low is not None for each in found.points)
    interval = Line2D(
        [], [], ls="none", marker="|", ms=10, color=INK, label="80 % prediction interval"
    )
    return [*marks, exact, *(bands if near else []), *([interval] if has_interval else [])]


def _subtitle(validation: Validation) -> str:
    parts = [validation.hardware, f"torch {validation.torch_version}"]
    settings = list({each.setting: None for each in validation.models})
    if len(settings) == 1:
        (only,) = settings
        parts.append(setting_words(only.batch, only.dtype, only.threads, only.channels_last))
    return " · ".join([*parts, f"measured on {validation.date[:10]}"])


def _notes(validation: Validation, found: JudgedPoints) -> list[str]:
    """What is not in the picture."""
    notes: list[str] = []
    left_out = len(validation.models) - len(found.points)
    if found.drawn == "predictions" and left_out:
        runs = counted(validation.totals.runs, "run")
        notes.append(f"{left_out} of {runs} could not be predicted: not drawn")
    if found.drawn == "minimum times":
        notes.append(
            "Minimum times stand where predictions would: too little was learned; run"
            " `roofline calibrate`"
        )
    if found.drawn == "nothing":
        notes.append("There is neither a prediction nor a minimum time to draw: see the tables")
    if validation.ratios and found.drawn != "speed-ups":
        pairs = counted(len(validation.ratios), "pair")
        notes.append(f"Speed-ups of {pairs} of designs were judged as well: see the tables")
    return notes
