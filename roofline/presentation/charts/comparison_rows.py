"""The rows of the picture of a comparison: one model's bars of time, and its ratios, as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.design.model_comparison.ratios import Ratio
from roofline.design.model_comparison.result import Comparison
from roofline.foundation.spreads import interval_cell
from roofline.foundation.text import printable
from roofline.foundation.units import format_s
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, Segment, cut_to, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT

Drawn = Literal["bound", "predicted", "measured", "flop"]
"""What a bar or a mark stands for."""

BAR_PT = 9.0
_BETWEEN_PT = 1.5
_ROW_GAP_PT = 13.0
_NAME_SIZE_PT = 8.5
_MOST_NAME_PT = 150.0
_TICKS = 5

_TIMES: tuple[Drawn, ...] = ("bound", "predicted", "measured")
_QUANTITY = {
    "bound": "eager_min_time_s",
    "predicted": "predicted_s",
    "measured": "measured_s",
    "flop": "flop",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeScale:
    """A linear scale of seconds from 0, up to the longest time and what rounds it up."""

    longest_s: float
    start_pt: float
    end_pt: float

    @property
    def step_s(self) -> float:
        """Seconds from tick to tick: 1, 2 or 5 times a power of ten; 0 where there is no time."""
        if self.longest_s <= 0:
            return 0.0
        least = self.longest_s / _TICKS
        power = 10.0 ** math.floor(math.log10(least))
        return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Seconds from 0 on with their words; none where there is no time."""
        if not self.step_s:
            return ()
        count = math.floor(self.longest_s / self.step_s * (1 + 1e-9))
        values = [i * self.step_s for i in range(count + 1)]
        return tuple((value, _tick(value)) for value in values)

    def pt(self, value_s: float) -> float:
        """Where a time stands on paper, in points."""
        if self.longest_s <= 0:
            return self.start_pt
        return self.start_pt + (self.end_pt - self.start_pt) * value_s / self.longest_s


def _tick(value_s: float) -> str:
    if not value_s:
        return "0"
    number, unit = format_s(value_s, 3).split(" ")
    return f"{float(number):g} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A time as a bar from 0, its interval as a line, and its value in words behind both."""

    kind: Drawn
    box: Box
    interval: Segment | None
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioMark:
    """How many times the reference's a quantity is: a mark, and its interval as a line."""

    kind: Drawn
    x_pt: float
    y_pt: float
    interval: Segment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRow:
    """One model: its name, the bars of its times, and the marks of its ratios."""

    name: Label
    bars: tuple[Bar, ...]
    marks: tuple[RatioMark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTimes:
    """What is known of how long a model takes: by kind the seconds and their interval."""

    times: tuple[tuple[Drawn, float, tuple[float, float] | None], ...]

    @property
    def lengths(self) -> tuple[float, ...]:
        """All of them, with the far ends of intervals."""
        return tuple(max(value, ends[1] if ends else 0.0) for _, value, ends in self.times)


def times_of(comparison: Comparison) -> tuple[KnownTimes, ...]:
    """The known times of each model in seconds, of one sample where batches differ."""
    found: list[list[tuple[Drawn, float, tuple[float, float] | None]]] = [
        [] for _ in comparison.names
    ]
    intervals = {
        "predicted": comparison.intervals_s,
        "measured": comparison.measured_intervals_s,
    }
    for kind in _TIMES:
        values = comparison.quantity(_QUANTITY[kind]).values
        for i, value in enumerate(values):
            if value is not None:
                ends = intervals[kind][i] if kind in intervals else None
                found[i].append((kind, value, ends))
    return tuple(KnownTimes(times=tuple(each)) for each in found)


def ratios_of(comparison: Comparison) -> tuple[tuple[tuple[Drawn, Ratio], ...], ...]:
    """What is drawn of each model's ratios: FLOP, then every time; nothing of the reference."""
    found: list[list[tuple[Drawn, Ratio]]] = [[] for _ in comparison.names]
    for kind in ("flop", *_TIMES):
        ratios = comparison.uncertain_ratios(comparison.quantity(_QUANTITY[kind]))
        for i, ratio in enumerate(ratios):
            if ratio is not None and ratio.value > 0 and i != comparison.reference:
                found[i].append((kind, ratio))
    return tuple(map(tuple, found))


def drawn_kinds(comparisons: Sequence[Comparison]) -> tuple[Drawn, ...]:
    """Which kinds of times and ratios there are to draw, in the order of the key."""
    known = {kind for each in comparisons for one in times_of(each) for kind, *_ in one.times}
    known |= {kind for each in comparisons for one in ratios_of(each) for kind, _ in one}
    order: tuple[Drawn, ...] = (*_TIMES, "flop")
    return tuple(kind for kind in order if kind in known)


def row_height_pt(comparisons: Sequence[Comparison]) -> float:
    """How high a row is, so that each kind of time has its bar."""
    bars = max(1, sum(kind != "flop" for kind in drawn_kinds(comparisons)))
    return bars * (BAR_PT + _BETWEEN_PT) + _ROW_GAP_PT


def chart_row(
    comparison: Comparison,
    number: int,
    scale: TimeScale,
    axis: LogAxis | None,
    middle_pt: float,
    *,
    names_right: float,
) -> ChartRow:
    """The row of one model.

    Args:
        comparison: whose model.
        number: which one.
        scale: where times stand.
        axis: where ratios stand; None: there are none.
        middle_pt: the height of the row's middle.
        names_right: where names end.
    """
    known = drawn_kinds([comparison])
    kinds: list[Drawn] = [kind for kind in _TIMES if kind in known]
    step = BAR_PT + _BETWEEN_PT
    heights: dict[Drawn, float] = {"flop": middle_pt + (len(kinds) + 1) / 2 * step}
    for place, kind in enumerate(kinds):
        heights[kind] = middle_pt + ((len(kinds) - 1) / 2 - place) * step
    times = times_of(comparison)[number].times
    # Said once a row, at the first of its times: the bound, which has no interval.
    marked = times[:1] if comparison.analyses[number].fits is False else ()
    bars = [
        _bar(each, scale, heights[each[0]], note=", does not fit" * (each in marked))
        for each in times
    ]
    name = cut_to(printable(comparison.names[number]), _MOST_NAME_PT, _NAME_SIZE_PT)
    width = text_width_pt(name, _NAME_SIZE_PT)
    box = Box(names_right - width, middle_pt - 5.5, names_right, middle_pt + 5.5)
    return ChartRow(
        name=Label(text=name, box=box, size_pt=_NAME_SIZE_PT),
        bars=tuple(bars),
        marks=_marks(ratios_of(comparison)[number], axis, heights) if axis else (),
    )


def _bar(
    known: tuple[Drawn, float, tuple[float, float] | None],
    scale: TimeScale,
    middle_pt: float,
    *,
    note: str,
) -> Bar:
    kind, value_s, ends = known
    half = BAR_PT / 2
    right = scale.pt(value_s)
    box = Box(scale.start_pt, middle_pt - half, right, middle_pt + half)
    line = Segment(scale.pt(ends[0]), middle_pt, scale.pt(ends[1]), middle_pt) if ends else None
    text = interval_cell(value_s, *ends) if ends else format_s(value_s, 3 if kind == "bound" else 2)
    text += note
    left = max(right, line.x1 if line else 0.0) + 4
    words = Box(left, middle_pt - half, left + text_width_pt(text, SMALL_PT), middle_pt + half)
    label = Label(text=text, box=words, size_pt=SMALL_PT)
    return Bar(kind=kind, box=box, interval=line, label=label)


def _marks(
    ratios: Sequence[tuple[Drawn, Ratio]],
    axis: LogAxis,
    heights: dict[Drawn, float],
) -> tuple[RatioMark, ...]:
    """FLOP above the bars, each time at the height of its bar."""
    found: list[RatioMark] = []
    for kind, ratio in ratios:
        y = heights[kind]
        ends = ratio.interval
        line = Segment(axis.pt(ends[0]), y, axis.pt(ends[1]), y) if ends else None
        found.append(RatioMark(kind=kind, x_pt=axis.pt(ratio.value), y_pt=y, interval=line))
    return tuple(found)
