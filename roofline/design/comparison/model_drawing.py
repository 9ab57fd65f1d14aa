"""Plot of a comparison of models: bars of time, and ratios of FLOP and time."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from roofline.core.sampling import interval_cell
from roofline.core.units import format_s
from roofline.design.comparison.model_blocks import with_letters
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words, write
from roofline.plots.style import BLUE, INK, SOFT, VERMILION

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

Drawn = Literal["bound", "predicted", "measured", "flop"]  # Quantity of a bar or a mark

_QUANTITIES: dict[Drawn, str] = {
    "bound": "eager_min_time_s",
    "predicted": "predicted_s",
    "measured": "measured_s",
    "flop": "flop",
}
_COLORS = {"bound": "#aab7c4", "predicted": BLUE, "measured": VERMILION, "flop": INK}
_MARKERS = {"bound": "s", "predicted": "o", "measured": "^", "flop": "D"}
_WORDS: dict[Drawn, str] = {
    "bound": "minimum time (eager)",
    "predicted": "predicted, 80 % interval",
    "measured": "measured",
    "flop": "FLOP",
}
_GAP = 1.4  # Between models, in bar heights
_LONGEST_NAME = 30


def height_of(machines: Sequence[Comparison]) -> float:
    """Return the figure height for all bars in inches."""
    bars = sum((len(_times(each)) + _GAP) * len(each.designs) for each in machines)
    return 1.7 + 0.17 * bars + 0.55 * len(machines)


def draw_models(figure: Figure, comparison: Comparison) -> None:
    """Draw times by machine and model as bars, and ratios to the reference."""
    comparison, legend = with_letters(comparison)
    machines = comparison.each_machine
    if len(machines) > 1:
        heading = "; ".join(comparison.verdict) or ", ".join(comparison.designs)
    else:
        heading = comparison.summary
    heights = [len(_times(each)) + _GAP for each in machines]
    rows = figure.subplots(
        len(machines), 2, width_ratios=(2, 1), height_ratios=heights, squeeze=False
    )
    for (times, ratios), each, name in zip(rows, machines, comparison.machine_names, strict=True):
        _draw_times(times, each)
        _draw_ratios(ratios, each)
        ratios.set_ylim(times.get_ylim())
        times.set_title(name, loc="left", fontsize=9, weight="bold", color=INK, pad=10, **words())
    for each in rows[1:, 1]:
        each.sharex(rows[0, 1])
    for each in rows[:-1].flat:
        each.set_xlabel("")
    title_figure(figure, heading)
    per = "sample" if comparison.per_sample else "pass"
    caches = "cold" if comparison.analyses[0].cache == "cold" else "warm"
    notes = [f"{caches} caches; time per {per}"]
    notes += [f"{letter}: {name}" for letter, name in legend]
    handles = [
        Line2D(
            (), (), ls="", mec=_COLORS[kind], mfc="white" if kind == "flop" else _COLORS[kind],
            marker=_MARKERS[kind], label=label,
        )
        for kind, label in _WORDS.items()
        if kind == "flop" or any(kind in _times(each) for each in machines)
    ]  # fmt: skip
    foot_figure(figure, handles, notes)


def _times(comparison: Comparison) -> list[Drawn]:
    return [
        kind
        for kind, name in _QUANTITIES.items()
        if kind != "flop" and any(getattr(each, name) is not None for each in comparison.cells[0])
    ]


def _places(comparison: Comparison) -> dict[Drawn, float]:
    """Return the vertical position of each kind within a model's rows; FLOP above times."""
    kinds = _times(comparison)
    middle = (len(kinds) - 1) / 2
    return {"flop": -middle - 1, **{kind: place - middle for place, kind in enumerate(kinds)}}


def _draw_times(axes: Axes, comparison: Comparison) -> None:
    places, step = _places(comparison), len(_times(comparison)) + _GAP
    longest = 0.0
    for number, cell in enumerate(comparison.cells[0]):
        note = ", does not fit" if cell.fits is False else ""
        for kind in _times(comparison):
            value = getattr(cell, _QUANTITIES[kind])
            if value is None:
                continue
            y = number * step + places[kind]
            intervals = {"predicted": cell.interval_s, "measured": cell.measured_interval_s}
            ends = intervals.get(kind)
            axes.barh(y, value, height=0.85, color=_COLORS[kind], zorder=2)
            if ends:
                low, high = max(0.0, value - ends[0]), max(0.0, ends[1] - value)
                axes.errorbar(
                    value, y, xerr=[[low], [high]], color=INK, linewidth=1.0, capsize=2, zorder=4
                )
            far = max(value, ends[1] if ends else 0.0)
            longest = max(longest, far)
            text = interval_cell(value, *ends) if ends else format_s(value)
            write(axes, text + note, (far, y), (4, 0), va="center_baseline")
            note = ""
    ticks = [number * step for number in range(len(comparison.designs))]
    axes.set_yticks(ticks, list(map(_cut, comparison.designs)))
    for label in axes.get_yticklabels():
        label.set(parse_math=False)
    axes.set_ylim((len(ticks) - 0.5) * step, -0.5 * step)
    # Room for labels.
    axes.set_xlim(0, 1.3 * longest or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    prepare_axes(axes, x=f"time per {'sample' if comparison.per_sample else 'pass'}")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _tick(value: float, _: int) -> str:
    if value <= 0:
        return "0"
    number, unit = format_s(value, 3).split(" ")
    return f"{float(number):g} {unit}"


def _draw_ratios(axes: Axes, comparison: Comparison) -> None:
    places, step = _places(comparison), len(_times(comparison)) + _GAP
    axes.set_xscale("log")
    ends: list[float] = [0.7, 1.4]
    for kind, place in places.items():
        found = comparison.uncertain_ratios(comparison.quantity(_QUANTITIES[kind]))
        for number, ratio in enumerate(found):
            if ratio is None or ratio.value <= 0 or number == comparison.reference:
                continue
            y, color = number * step + place, _COLORS[kind]
            low, high = ratio.interval or (ratio.value, ratio.value)
            axes.plot((low, high), (y, y), color=color, linewidth=1.2, zorder=3)
            face, edge = ("white", color) if kind == "flop" else (color, "white")
            axes.plot(
                ratio.value, y, marker=_MARKERS[kind], markersize=5.5, mfc=face, mec=edge, zorder=4
            )
            ends += [low, ratio.value, high]
    axes.axvline(1.0, color=SOFT, linewidth=1.0, zorder=1)
    axes.set_xlim(0.85 * min(ends), 1.18 * max(ends))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    base = _cut(comparison.designs[comparison.reference])
    prepare_axes(axes, x=f"ratio to {base}")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.spines["left"].set_visible(False)
