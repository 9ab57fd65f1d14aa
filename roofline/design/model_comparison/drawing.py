"""The picture of models compared: bars of time, and ratios of FLOP and time next to them."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from roofline.design.model_comparison.blocks import grid_with_letters, with_letters
from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.result import Comparison
from roofline.foundation.spreads import interval_cell
from roofline.foundation.units import format_s
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.style import BLUE, INK, SMALL_PT, SOFT, VERMILION

Drawn = Literal["bound", "predicted", "measured", "flop"]
"""What a bar or a mark stands for."""

_TIMES: dict[Drawn, str] = {
    "bound": "eager_min_time_s",
    "predicted": "predicted_s",
    "measured": "measured_s",
}
_QUANTITIES = {**_TIMES, "flop": "flop"}
_COLORS = {"bound": "#aab7c4", "predicted": BLUE, "measured": VERMILION, "flop": INK}
_MARKERS = {"bound": "s", "predicted": "o", "measured": "^", "flop": "D"}
_WORDS = {
    "bound": "minimum time (eager)",
    "predicted": "predicted, 80 % interval",
    "measured": "measured",
    "flop": "FLOP",
}
_GAP = 1.4
"""Between models, in heights of a bar."""

_LONGEST_NAME = 30


def height_of(comparisons: Sequence[Comparison]) -> float:
    """Return the height in inches that gives every bar its room."""
    bars = sum((len(_times(each)) + _GAP) * len(each.names) for each in comparisons)
    return 1.7 + 0.17 * bars + 0.55 * len(comparisons)


def draw_comparison(figure: Figure, shown: Comparison | ComparisonGrid) -> None:
    """Draw, machine by machine, times of each model as bars and ratios to the reference."""
    if isinstance(shown, ComparisonGrid):
        grid, legend = grid_with_letters(shown)
        title = "; ".join(grid.verdict) or ", ".join(grid.names)
        comparisons, machines = grid.comparisons, grid.machines
    else:
        only, legend = with_letters(shown)
        title = only.sentences[0] if len(only.sentences) == 1 else only.title
        comparisons, machines = (only,), (shown.analyses[0].hardware.name,)
    heights = [len(_times(each)) + _GAP for each in comparisons]
    rows = figure.subplots(
        len(comparisons), 2, width_ratios=(2, 1), height_ratios=heights, squeeze=False
    )
    for (times, ratios), each, machine in zip(rows, comparisons, machines, strict=True):
        _draw_times(times, each)
        _draw_ratios(ratios, each)
        ratios.set_ylim(times.get_ylim())
        times.set_title(
            machine, loc="left", fontsize=9, weight="bold", color=INK, pad=10, **words()
        )
    for each in rows[1:, 1]:
        each.sharex(rows[0, 1])
    for each in rows[:-1].flat:
        each.set_xlabel("")
    first = comparisons[0]
    per = "a sample" if first.per_sample else "a pass"
    title_figure(figure, title)
    kinds = [kind for kind in _WORDS if any(kind in _known(each) for each in comparisons)]
    notes = [f"{first.analyses[0].cache} caches; times of {per}"]
    notes += [f"{letter}: {name}" for letter, name in legend]
    foot_figure(figure, [_handle(kind) for kind in kinds], notes)


def _handle(kind: str) -> Line2D:
    face = "white" if kind == "flop" else _COLORS[kind]
    return Line2D(
        (), (), ls="", mec=_COLORS[kind], mfc=face, marker=_MARKERS[kind], label=_WORDS[kind]
    )


def _times(comparison: Comparison) -> list[Drawn]:
    """Return the kinds of times of which one at least is known."""
    return [
        kind
        for kind, name in _TIMES.items()
        if any(value is not None for value in comparison.quantity(name).values)
    ]


def _known(comparison: Comparison) -> list[Drawn]:
    return [*_times(comparison), "flop"]


def _places(comparison: Comparison) -> dict[Drawn, float]:
    """Return the height of each kind within a model's rows, downwards; FLOP stand above times."""
    kinds = _times(comparison)
    middle = (len(kinds) - 1) / 2
    return {"flop": -middle - 1, **{kind: place - middle for place, kind in enumerate(kinds)}}


def _draw_times(axes: Axes, comparison: Comparison) -> None:
    places, step = _places(comparison), len(_times(comparison)) + _GAP
    intervals = {
        "predicted": comparison.intervals_s,
        "measured": comparison.measured_intervals_s,
    }
    longest = 0.0
    noted: set[int] = set()
    for kind in _times(comparison):
        for number, value in enumerate(comparison.quantity(_TIMES[kind]).values):
            if value is None:
                continue
            y = number * step + places[kind]
            ends = intervals[kind][number] if kind in intervals else None
            axes.barh(y, value, height=0.85, color=_COLORS[kind], zorder=2)
            if ends:
                low, high = max(0.0, value - ends[0]), max(0.0, ends[1] - value)
                axes.errorbar(
                    value, y, xerr=[[low], [high]], color=INK, linewidth=1.0, capsize=2, zorder=4
                )
            text = interval_cell(value, *ends) if ends else format_s(value)
            if comparison.analyses[number].fits is False and number not in noted:
                text += ", does not fit"
                noted.add(number)
            far = max(value, ends[1] if ends else 0.0)
            longest = max(longest, far)
            axes.annotate(
                text,
                (far, y),
                (4, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=SMALL_PT,
                color=INK,
                **words(),
            )
    names = [
        each if len(each) <= _LONGEST_NAME else f"{each[: _LONGEST_NAME - 1]}…"
        for each in comparison.names
    ]
    axes.set_yticks([number * step for number in range(len(names))], names)
    for label in axes.get_yticklabels():
        label.set(parse_math=False)
    axes.set_ylim((len(names) - 0.5) * step, -0.5 * step)
    # Room for the words behind the longest bar.
    axes.set_xlim(0, 1.3 * longest or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    prepare_axes(axes, x=f"time of {'a sample' if comparison.per_sample else 'a pass'}")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _tick(value: float) -> str:
    if value <= 0:
        return "0"
    number, unit = format_s(value, 3).split(" ")
    return f"{float(number):g} {unit}"


def _draw_ratios(axes: Axes, comparison: Comparison) -> None:
    places, step = _places(comparison), len(_times(comparison)) + _GAP
    axes.set_xscale("log")
    ends: list[float] = [0.7, 1.4]
    for kind in _known(comparison):
        found = comparison.uncertain_ratios(comparison.quantity(_QUANTITIES[kind]))
        for number, ratio in enumerate(found):
            if ratio is None or ratio.value <= 0 or number == comparison.reference:
                continue
            y, color = number * step + places[kind], _COLORS[kind]
            low, high = ratio.interval or (ratio.value, ratio.value)
            axes.plot((low, high), (y, y), color=color, linewidth=1.2, zorder=3)
            is_flop = kind == "flop"
            axes.plot(
                ratio.value,
                y,
                marker=_MARKERS[kind],
                markersize=5.5,
                mfc="white" if is_flop else color,
                mec=color if is_flop else "white",
                zorder=4,
            )
            ends += [low, ratio.value, high]
    axes.axvline(1.0, color=SOFT, linewidth=1.0, zorder=1)
    axes.set_xlim(0.85 * min(ends), 1.18 * max(ends))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    base = comparison.names[comparison.reference]
    base = base if len(base) <= _LONGEST_NAME else f"{base[: _LONGEST_NAME - 1]}…"
    prepare_axes(axes, x=f"ratio to {base} (left: less)")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.spines["left"].set_visible(False)
