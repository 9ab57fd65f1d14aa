"""Models compared as a picture: their times, and how far FLOP and times differ, as data.

Places on paper are in points from the lower left corner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.result import Comparison
from roofline.foundation.text import printable
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.comparison_rows import (
    BAR_PT,
    ChartRow,
    Drawn,
    TimeScale,
    chart_row,
    drawn_kinds,
    ratios_of,
    row_height_pt,
    times_of,
)
from roofline.presentation.charts.labels import (
    Box,
    Label,
    Segment,
    cut_to,
    text_box,
    text_width_pt,
)
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.reports.comparison_labels import grid_with_letters, with_letters

TITLE_SIZE_PT = 11.0
LEGEND_LINE_PT = 12.0
_TITLE_LINE_PT = 15.0
_EDGE_PT = 14.0
_NAME_PT = (60.0, 150.0)
_VALUE_PT = 80.0
_RATIO_SHARE = 0.34
_BEYOND = 1.05
"""By what factor an axis of ratios reaches beyond its last ticks."""
_GAP_PT = 22.0
_TICKS_PT = 34.0
_MACHINE_PT = 20.0
_KEY_PT = 22.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMark:
    """An entry of the key: what is drawn for a kind of time or ratio, and its words."""

    kind: Drawn
    x_pt: float
    y_pt: float
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPanel:
    """One machine: a row for each model; times on the left, ratios to the reference on the right.

    ``title`` names the machine where there are several. ``ticks`` are lines across the rows with
    their values. ``one`` is where a ratio is 1; None: there is no ratio to draw.
    """

    title: Label | None
    times: Box
    ratios: Box
    rows: tuple[ChartRow, ...]
    ticks: tuple[tuple[Segment, Label], ...]
    one: Segment | None
    captions: tuple[Label, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonChart:
    """A picture of ``width_pt`` x ``height_pt``; ``title`` is what follows from it, in lines.

    ``legend`` are lines that say which letter stands for which name, where names are long.
    """

    width_pt: float
    height_pt: float
    title: tuple[str, ...]
    subtitle: str
    legend: tuple[str, ...]
    key: tuple[KeyMark, ...]
    panels: tuple[ComparisonPanel, ...]


def comparison_chart_of(
    comparison: Comparison | ComparisonGrid, *, width_pt: float = 720.0
) -> ComparisonChart:
    """The picture of models on one machine or several; its height follows from their number.

    Args:
        comparison: what to draw.
        width_pt: the picture's width in points.
    """
    if isinstance(comparison, ComparisonGrid):
        shown, legend = grid_with_letters(comparison)
        comparisons, machines = shown.comparisons, shown.machines
    else:
        shown, legend = with_letters(comparison)
        comparisons, machines = (shown,), ("",)
    room_pt = width_pt - 2 * _EDGE_PT
    title = _wrapped(_title(shown), room_pt)
    kinds = drawn_kinds(comparisons)
    head_pt = _EDGE_PT + _TITLE_LINE_PT * len(title) + 16 + LEGEND_LINE_PT * len(legend) + _KEY_PT
    heights = [
        _panel_height_pt(each, named=bool(name))
        for each, name in zip(comparisons, machines, strict=True)
    ]
    height_pt = head_pt + sum(heights) + _EDGE_PT / 2
    ratio_ends = _ratio_ends(comparisons)
    panels: list[ComparisonPanel] = []
    top = height_pt - head_pt
    for each, name, height in zip(comparisons, machines, heights, strict=True):
        area = Box(_EDGE_PT, top - height, width_pt - _EDGE_PT, top)
        panels.append(_panel(each, name, area, ratio_ends))
        top -= height
    return ComparisonChart(
        width_pt=width_pt,
        height_pt=height_pt,
        title=title,
        subtitle=cut_to(_subtitle(comparisons[0], is_grid=bool(machines[0])), room_pt, 8.5),
        legend=tuple(cut_to(f"{letter}: {name}", room_pt, 8.5) for letter, name in legend),
        key=_key(kinds, height_pt - head_pt + _KEY_PT - 11),
        panels=tuple(panels),
    )


def _title(comparison: Comparison | ComparisonGrid) -> str:
    """The one sentence there is, or who wins where."""
    if isinstance(comparison, ComparisonGrid):
        return printable("; ".join(comparison.verdict) or ", ".join(comparison.names))
    sentences = comparison.sentences
    if len(sentences) == 1:
        return printable(sentences[0])
    names = list(map(printable, comparison.names))
    base = names.pop(comparison.reference)
    return f"{base} against {', '.join(names)}"


def _subtitle(first: Comparison, *, is_grid: bool) -> str:
    analysis = first.analyses[0]
    where = "" if is_grid else f"on {printable(analysis.hardware.name)}, "
    per = "a sample" if first.per_sample else "a pass"
    return f"{where}{analysis.cache} caches; times of {per}"


def _panel_height_pt(comparison: Comparison, *, named: bool) -> float:
    rows = len(comparison.names) * row_height_pt([comparison])
    return rows + _TICKS_PT + (_MACHINE_PT if named else 4.0)


def _ratio_ends(comparisons: Sequence[Comparison]) -> tuple[float, float] | None:
    """The ends of the axis of ratios, which all machines share; None: no ratio is known."""
    values = [
        value
        for each in comparisons
        for found in ratios_of(each)
        for _, ratio in found
        for value in (ratio.value, *(ratio.interval or ()))
        if value > 0
    ]
    if not values:
        return None
    # With little between them, a few percent must not look like much.
    low, high = min(*values, 0.7), max(*values, 1.4)
    # Every mark stands between two ticks.
    return _tick_below(low) / _BEYOND, 1 / _tick_below(1 / high) * _BEYOND


def _tick_below(value: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is no more than `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1, 2, 5) if step * power <= value)


def _panel(
    comparison: Comparison, machine: str, area: Box, ratio_ends: tuple[float, float] | None
) -> ComparisonPanel:
    names_pt = max(text_width_pt(printable(each), 8.5) for each in comparison.names)
    names_pt = max(_NAME_PT[0], min(_NAME_PT[1], names_pt)) + 8
    top = area.top - (_MACHINE_PT if machine else 4.0)
    bottom = area.bottom + _TICKS_PT
    ratios_pt = _RATIO_SHARE * (area.right - area.left)
    left = area.left + names_pt
    times = Box(left, bottom, area.right - ratios_pt - _GAP_PT - _VALUE_PT, top)
    ratios = Box(area.right - ratios_pt, bottom, area.right, top)
    longest_s = max((value for found in times_of(comparison) for value in found.lengths), default=0)
    scale = TimeScale(longest_s=longest_s, start_pt=times.left, end_pt=times.right)
    axis = None
    if ratio_ends:
        low, high = ratio_ends
        axis = LogAxis(title="", low=low, high=high, start_pt=ratios.left, end_pt=ratios.right)
    height = row_height_pt([comparison])
    rows = tuple(
        chart_row(comparison, i, scale, axis, top - (i + 0.5) * height, names_right=left - 8)
        for i in range(len(comparison.names))
    )
    title = cut_to(printable(machine), area.right - area.left, 9.5)
    return ComparisonPanel(
        title=_from_left(title, area.left, top + 9, 9.5) if machine else None,
        times=times,
        ratios=ratios,
        rows=rows,
        ticks=(*_time_ticks(scale, times), *_ratio_ticks(axis, ratios)),
        one=Segment(axis.pt(1.0), bottom, axis.pt(1.0), top) if axis else None,
        captions=_captions(comparison, times, ratios, axis),
    )


def _time_ticks(scale: TimeScale, times: Box) -> list[tuple[Segment, Label]]:
    return [
        (
            Segment(scale.pt(value), times.bottom, scale.pt(value), times.top),
            _centred(text, scale.pt(value), times.bottom - 8),
        )
        for value, text in scale.ticks
    ]


def _ratio_ticks(axis: LogAxis | None, ratios: Box) -> list[tuple[Segment, Label]]:
    return (
        [
            (
                Segment(axis.pt(value), ratios.bottom, axis.pt(value), ratios.top),
                _centred(f"{text} ×", axis.pt(value), ratios.bottom - 8),
            )
            for value, text in (axis.ticks if axis else ())
        ]
        if axis
        else []
    )


def _captions(
    comparison: Comparison, times: Box, ratios: Box, axis: LogAxis | None
) -> tuple[Label, ...]:
    base = printable(comparison.names[comparison.reference])
    per = "a sample" if comparison.per_sample else "a pass"
    found = [_centred(f"time of {per}", (times.left + times.right) / 2, times.bottom - 21)]
    if axis:
        middle, room = (ratios.left + ratios.right) / 2, ratios.right - ratios.left
        words = cut_to(f"times that of {base} (left: less)", room, SMALL_PT)
        found.append(_centred(words, middle, ratios.bottom - 21))
    return tuple(found)


_WORDS: dict[Drawn, str] = {
    "bound": "bound",
    "predicted": "prediction, 10 to 90 %",
    "measured": "measurement",
    "flop": "FLOP",
}


def _key(kinds: Sequence[Drawn], y_pt: float) -> tuple[KeyMark, ...]:
    found: list[KeyMark] = []
    x = _EDGE_PT + BAR_PT
    for kind in kinds:
        words = _from_left(_WORDS[kind], x + 14, y_pt, SMALL_PT)
        found.append(KeyMark(kind=kind, x_pt=x, y_pt=y_pt, label=words))
        x = words.box.right + 22
    return tuple(found)


def _centred(text: str, x_pt: float, y_pt: float) -> Label:
    return Label(text=text, box=text_box(text, x_pt, y_pt, SMALL_PT), size_pt=SMALL_PT)


def _from_left(text: str, left_pt: float, y_pt: float, size_pt: float) -> Label:
    width = text_width_pt(text, size_pt)
    box = Box(left_pt, y_pt - 0.625 * size_pt, left_pt + width, y_pt + 0.625 * size_pt)
    return Label(text=text, box=box, size_pt=size_pt)


def _wrapped(text: str, width_pt: float) -> tuple[str, ...]:
    """The text in lines that are no wider than that; a word that is gets cut."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width_pt(longer, TITLE_SIZE_PT) <= width_pt:
            lines[-1] = longer
        else:
            lines.append(word)
    return tuple(cut_to(each, width_pt, TITLE_SIZE_PT) for each in lines)
