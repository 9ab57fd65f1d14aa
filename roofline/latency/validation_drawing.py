"""Plot of a validation: predicted against measured times, and errors by family."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from roofline.core.rows import grouped
from roofline.core.text import counted
from roofline.core.units import format_percent, format_s
from roofline.latency.accuracy import ModelValidation
from roofline.latency.validation import Validation
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.roofline import log_axes, place_texts, scatter
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

_COLORS = (BLUE, VERMILION, SKY, ORANGE, GREEN, PURPLE, BLACK, DARK_RED)
_MARKERS = ("o", "s", "^", "D", "v")
_REST = "others"
"""Rare settings or batches share the last style."""

_BANDS = {0.2: "#eef1f4", 0.1: "#dbe2e9"}
"""Colors of error bands, the wider band first."""

_FEW = 20
_LARGE_ERROR = 1.2
"""Factor of error from which points are named if there are many."""

_MAX_ROWS = 24
_MAX_FACTOR = 30.0
_MAX_NAME = 42


class _Plot(NamedTuple):
    """Axis labels; ``predicted``: the plot shows predictions, else minimum times."""

    x: str
    y: str
    predicted: bool = True


_PREDICTIONS = _Plot("measured time", "predicted time")
_MINIMUM_TIMES = _Plot("measured time", "minimum time (eager)", predicted=False)
_SPEEDUPS = _Plot("measured speedup", "predicted speedup")


class _Dot(NamedTuple):
    """A run or a pair of designs; times in s, or ratios. `group` is its row on the right."""

    name: str
    group: str
    style: Style
    measured: float
    estimate: float
    interval: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        return self.estimate / self.measured


def draw_validation(figure: Figure, validation: Validation, *, labels: int) -> None:
    """Draw predicted against measured times, run by run, and the errors by family."""
    if not validation.models:
        plot, dots, key = _SPEEDUPS, _ratio_dots(validation), list[Artist]()
    else:
        plot = _PREDICTIONS if validation.totals.predicted_runs else _MINIMUM_TIMES
        dots, key = _run_dots(validation, plot)
    if dots:
        axes, rows = figure.subplots(1, 2, width_ratios=(9, 5))
        _draw_dots(axes, plot, dots, labels)
        _draw_errors(rows, plot, dots)
        key += _meanings(plot, dots)
    else:
        figure.subplots().set_axis_off()
    settings = {str(each.setting) for each in validation.models}
    shared = settings if len(settings) == 1 else ()
    software = f"torch {validation.torch_version}"
    where = (validation.hardware, software, *shared, f"measured on {validation.date[:10]}")
    title_figure(figure, validation.summary, " · ".join(where))
    foot_figure(figure, key, _notes(validation, plot, dots))


def _ratio_dots(validation: Validation) -> list[_Dot]:
    return [
        _Dot(name, name.partition(", ")[0], Style(BLUE, "o"), each.measured, each.predicted)
        for each in validation.ratios
        if each.predicted and (name := each.name.removeprefix("design "))
    ]


def _run_dots(validation: Validation, plot: _Plot) -> tuple[list[_Dot], list[Artist]]:
    """Return runs, and handles of a legend for what differs between them."""
    hollow = not plot.predicted
    found = [
        (run, estimate_s)
        for run in validation.models
        if (estimate_s := run.eager_min_time_s if hollow else run.predicted_s)
    ]
    runs = [run for run, _ in found]
    varied = [len(set(values)) > 1 for values in zip(*map(_kind, runs), strict=True)]

    def kind(run: ModelValidation) -> str:
        return ", ".join(compress(_kind(run), varied))

    in_order = sorted(runs, key=lambda run: (run.threads, run.dtype, run.channels_last))
    colors = _looks(map(kind, in_order), _COLORS)
    in_order = sorted(runs, key=lambda run: run.batch or math.inf)
    markers = _looks(map(_batch, in_order), _MARKERS)
    dots = [
        _Dot(
            run.model,
            run.family,
            Style(colors[kind(run)][1], markers[_batch(run)][1], hollow),
            run.measured_s,
            estimate_s,
            None if low is None or high is None or hollow else (low, high),
        )
        for run, estimate_s in found
        for low, high in [(run.predicted_low_s, run.predicted_high_s)]
    ]
    looks = [(text, Style(color, "o", hollow)) for text, color in colors.values()]
    shapes = [(text, Style(GREY, marker, hollow)) for text, marker in markers.values()]
    shown = (*looks * (len(colors) > 1), *shapes * (len(markers) > 1))
    return dots, [_mark(text, style) for text, style in dict.fromkeys(shown)]


def _kind(run: ModelValidation) -> tuple[str, str, str]:
    layout = "channels last" if run.channels_last else "channels first"
    return run.dtype, counted(run.threads, "thread"), layout


def _batch(run: ModelValidation) -> str:
    return "own batch" if run.batch is None else f"batch {run.batch}"


def _looks(names: Iterable[str], looks: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return name and look of each name; of too many, the rare ones share the last look."""
    counts = Counter(names)
    most = len(looks) if len(counts) <= len(looks) else len(looks) - 1
    own = {name for name, _ in counts.most_common(most)}
    left = iter(looks)
    return {name: (name, next(left)) if name in own else (_REST, looks[-1]) for name in counts}


def _mark(text: str, style: Style) -> Artist:
    face = "none" if style.hollow else style.colour
    return Line2D(
        [], [], ls="none", marker=style.marker, ms=7, mec=style.colour, mfc=face, label=text
    )


def _meanings(plot: _Plot, dots: Sequence[_Dot]) -> list[Artist]:
    what = "predicted" if plot.predicted else "minimum"
    found: list[Artist] = [Line2D([], [], color=INK, lw=0.8, label=f"{what} = measured")]
    for share, shade in reversed(_BANDS.items()) if plot.predicted else ():
        found.append(Patch(color=shade, label=f"within ±{100 * share:.0f} %"))
    if any(each.interval for each in dots):
        label = "80 % prediction interval"
        found.append(Line2D([], [], ls="none", marker="|", ms=10, color=INK, label=label))
    return found


def _notes(validation: Validation, plot: _Plot, dots: Sequence[_Dot]) -> Iterable[str]:
    """Yield notes on runs and pairs that are not drawn."""
    if not dots:
        yield "No predictions and no minimum times to draw: see the tables"
    elif not plot.predicted:
        yield (
            "Minimum times in place of predictions: calibration data is missing; run"
            " `roofline calibrate`"
        )
    elif (left_out := len(validation.models) - len(dots)) > 0:
        runs = counted(len(validation.models), "run")
        yield f"{left_out} of {runs} could not be predicted: not drawn"
    if validation.models and validation.ratios:
        yield f"Speedups of {counted(len(validation.ratios), 'pair')} of designs: see the tables"


def _draw_dots(axes: Axes, plot: _Plot, dots: Sequence[_Dot], labels: int) -> None:
    values = [value for each in dots for value in (each.measured, each.estimate)]
    low, high = min(values) / 1.3, max(values) * 1.3
    # The bands must not fill the plot of few similar runs.
    grown = max(1.0, math.sqrt(6.0 / (high / low)))
    ends = (low / grown, high * grown)
    log_axes(axes, ends, ends)
    axes.set_box_aspect(1)
    axes.set_anchor("N")
    prepare_axes(axes, x=plot.x, y=plot.y)
    ratios = plot is _SPEEDUPS
    form = FuncFormatter(lambda value, _: f"{value:g}×" if ratios else format_s(value, 1))
    axes.xaxis.set_major_formatter(form)
    axes.yaxis.set_major_formatter(form)
    for share, shade in _BANDS.items() if plot.predicted else ():
        below, above = ([factor * end for end in ends] for factor in (1 - share, 1 + share))
        axes.fill_between(ends, below, above, color=shade, linewidth=0, zorder=0.6)
    axes.plot(ends, ends, color=INK, linewidth=0.8, zorder=2)
    spans = [(each, *each.interval) for each in dots if each.interval]
    axes.vlines(
        [each.measured for each, _, _ in spans],
        # An interval may begin at 0, which has no place on logarithmic axes.
        [max(below, ends[0]) for _, below, _ in spans],
        [above for _, _, above in spans],
        colors=[each.style.colour for each, _, _ in spans],
        linewidth=0.7,
        alpha=0.45,
        zorder=3,
    )
    few = len(dots) <= _FEW
    sizes = [7.0 if few else 5.5 if len(dots) <= 150 else 4.2] * len(dots)
    spots = [(each.measured, each.estimate) for each in dots]
    scatter(axes, spots, [each.style for each in dots], sizes)
    worst = sorted(dots, key=lambda each: -abs(math.log(each.ratio)))
    far = [each for each in worst if few or abs(math.log(each.ratio)) > math.log(_LARGE_ERROR)]
    named = far[: max(labels, _FEW) if few and labels > 0 else max(0, labels)]
    place_texts(
        axes,
        [(each.measured, each.estimate, _name(each, plot)) for each in named],
        avoid=[*((each.measured, each.estimate) for each in named), *spots],
        diameters_pt=[sizes[0]] * (len(named) + len(dots)),
        lines=[(ends, ends)],
    )


def _name(dot: _Dot, plot: _Plot) -> str:
    name = dot.name
    if len(name) > _MAX_NAME:
        name = "…" + name[1 - _MAX_NAME :]
    return f"{name} {100 * (dot.ratio - 1):+.0f} %" if plot.predicted else name


def _mean_error(dots: Sequence[_Dot]) -> float:
    return math.fsum(abs(each.ratio - 1) for each in dots) / len(dots)


def _families(dots: Iterable[_Dot]) -> list[tuple[str, list[_Dot]]]:
    """Return dots by group, the worst first; the best beyond `_MAX_ROWS` are merged."""
    by_name = grouped(dots, lambda each: each.group)
    groups = sorted(by_name.items(), key=lambda each: -_mean_error(each[1]))
    if len(groups) <= _MAX_ROWS:
        return groups
    rest = groups[_MAX_ROWS - 1 :]
    together = [each for _, members in rest for each in members]
    return [*groups[: _MAX_ROWS - 1], (f"{len(rest)} others", together)]


def _draw_errors(axes: Axes, plot: _Plot, dots: Sequence[_Dot]) -> None:
    """Draw a row of dots for each family, on an axis of estimate / measured."""
    near = plot.predicted
    groups = _families(dots)
    ratios = np.clip([each.ratio for each in dots], 1 / _MAX_FACTOR, _MAX_FACTOR)
    low, high = min(0.75, *ratios) / 1.03, max(1.3 if near else 1.0, *ratios) * 1.03
    axes.set(xscale="log", xlim=(low, high), ylim=(len(groups) - 0.5, -0.5), autoscale_on=False)
    prepare_axes(
        axes, x="error of prediction (%)" if near else "minimum / measured time (%)", grid=False
    )
    axes.axvline(1.0, color=INK, linewidth=0.8, zorder=2)
    for share, shade in _BANDS.items() if near else ():
        axes.axvspan(1 - share, 1 + share, color=shade, linewidth=0, zorder=0.4)
    marks = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0) if high / low < 8 else (0.1, 0.3, 1.0, 3.0, 10.0)
    ticks = [value for value in marks if low < value < high]
    shown = [f"{100 * (each - 1):+.0f}" if near else f"{100 * each:.0f}" for each in ticks]
    axes.set_xticks(ticks, [each.replace("+0", "0") for each in shown])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x", color="#ececec", linewidth=0.7)
    names = [name if len(name) <= 18 else f"{name[:17]}…" for name, _ in groups]
    axes.set_yticks(range(len(groups)), names, **words())
    axes.tick_params(axis="y", length=0, labelsize=SMALL_PT)
    axes.spines["left"].set_visible(False)
    for row, (_, members) in enumerate(groups):
        in_order = sorted(members, key=lambda each: each.ratio)
        # Neighbors stand one below the other.
        lanes = [row + (0.0, 0.18, -0.18, 0.32, -0.32)[i % 5] for i in range(len(in_order))]
        places = [min(high, max(low, each.ratio)) for each in in_order]
        spots = list(zip(places, lanes, strict=True))
        scatter(axes, spots, [each.style for each in in_order], [4.0] * len(in_order))
        mean = math.fsum(each.ratio for each in members) / len(members)
        axes.annotate(
            format_percent(_mean_error(members) if near else mean),
            (1.0, row),
            (6, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT,
            color=INK,
            annotation_clip=False,
        )
    style = {"fontsize": SMALL_PT, "color": GREY_TEXT}
    group = "designs" if plot is _SPEEDUPS else "family"
    axes.set_title(group, loc="left", x=-0.02, ha="right", **style)
    axes.set_title("MAPE" if near else "mean", loc="right", x=1.02, ha="left", **style)
