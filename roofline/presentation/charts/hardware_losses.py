"""Paper, peak and median of every ceiling side by side, and what is lost between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.design.hardware_quantities import Quantity, quantities_of
from roofline.foundation.dtypes import dtype
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_byte_per_s, format_flop_per_s
from roofline.machine.hardware import HardwareProfile
from roofline.plots.style import GREY
from roofline.presentation.charts.hardware_lines import colours_of
from roofline.presentation.charts.labels import (
    Box,
    Label,
    Segment,
    cut_to,
    text_box,
    text_width_pt,
)
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.reports.hardware_columns import (
    Line,
    first_of,
    lines_of,
    signed_percent,
    top_of,
)

ROW_PT = 12.5
_HEAD_PT = 16.0
_FOOT_PT = 30.0
_GAP_PT = 18.0
_MOST_ROWS = 48
_NAMES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBar:
    """One ceiling: a bar from nothing to its peak, a dot at its median, on a track to 100 %.

    All lengths are in points. ``peak`` and ``median_x_pt`` are cut at the end of the axis.
    """

    bar: Box
    median_x_pt: float
    y_pt: float
    paper_x_pt: float
    colour: str
    words: Label
    loss: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class LossColumn:
    """The ceilings of one number of threads; ``ticks`` are lines down, with per cents below."""

    heading: Label
    bars: tuple[LossBar, ...]
    ticks: tuple[tuple[Segment, Label], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPanel:
    """The names of the ceilings, then a column of bars for one thread and one for all."""

    names: tuple[Label, ...]
    columns: tuple[LossColumn, ...]
    key: Label


def loss_lines(profile: HardwareProfile) -> tuple[Line, ...]:
    """The ceilings whose theoretical rate is known, in the order of the tables.

    Where they are too many for a picture, the lowest of each data type stay in the table.
    """
    known = [each for each in quantities_of(profile) if each.theoretical is not None]
    compute = lines_of([each for each in known if each.what == "compute"])
    rest = lines_of([each for each in known if each.what != "compute"])

    def order(line: Line) -> tuple[object, ...]:
        each = first_of(line)
        of = dtype(each.subject)
        return (each.kind, of.kind != "float", -of.bits, of.name, -top_of(line))

    by_type: dict[tuple[str, str], list[Line]] = {}
    for line in sorted(compute, key=order):
        each = first_of(line)
        by_type.setdefault((each.kind, each.subject), []).append(line)
    most = max(map(len, by_type.values()), default=0)
    while most > 1 and sum(min(most, len(e)) for e in by_type.values()) + len(rest) > _MOST_ROWS:
        most -= 1
    return (*(line for found in by_type.values() for line in found[:most]), *rest)


def loss_height_pt(lines: Sequence[Line]) -> float:
    """How high a panel of `lines` is."""
    return _HEAD_PT + ROW_PT * len(lines) + _FOOT_PT


def loss_panel(profile: HardwareProfile, lines: Sequence[Line], area: Box) -> LossPanel:
    """The panel in `area`; names are as wide as they are, columns share the rest."""
    known = sorted({threads for line in lines for threads in line})
    counts = list(dict.fromkeys((known[0], known[-1])))
    named = [printable(first_of(line).label) for line in lines]
    wide = max(text_width_pt(name, SMALL_PT) for name in named)
    left = area.left + min(wide, 150.0)
    names = tuple(
        _to_right(cut_to(name, 150.0, SMALL_PT), left, _row_y(area, i))
        for i, name in enumerate(named)
    )
    width = (area.right - left) / len(counts)
    colours = colours_of(each.dtype for each in profile.compute)
    columns = tuple(
        _column(
            [line.get(threads) for line in lines],
            counted(threads, "thread") if profile.has_threads else profile.device,
            Box(left + i * width + _GAP_PT, area.bottom, left + (i + 1) * width, area.top),
            colours,
        )
        for i, threads in enumerate(counts)
    )
    known_lines = {each.identity for each in quantities_of(profile) if each.theoretical}
    more = len(known_lines) - len(lines)
    key = "bar: peak · dot: median · 100 %: on paper · per cent at the right: what the peak lacks"
    if more > 0:
        key += f" · {more} lower ones are in the table"
    return LossPanel(
        names=names,
        columns=columns,
        key=_from_left(key, area.left, area.bottom + SMALL_PT / 2 + 1),
    )


def _row_y(area: Box, row: int) -> float:
    return area.top - _HEAD_PT - ROW_PT * (row + 0.5)


def _column(
    found: Sequence[Quantity | None], heading: str, area: Box, colours: dict[str, str]
) -> LossColumn:
    words = {i: _words(each) for i, each in enumerate(found) if each is not None}
    losses = {i: signed_percent(each.loss) for i, each in enumerate(found) if each is not None}
    word_pt = max(text_width_pt(each, SMALL_PT) for each in words.values())
    loss_pt = max(text_width_pt(each, SMALL_PT) for each in losses.values())
    end = area.right - loss_pt - 8 - word_pt - 8
    most = max([1.0, *(_shares(each)[0] for each in found if each is not None)])

    def x(share: float) -> float:
        return area.left + min(share, most) / most * (end - area.left)

    bars: list[LossBar] = []
    for i, each in enumerate(found):
        if each is None:
            continue
        y = _row_y(area, i)
        peak, median = _shares(each)
        bars.append(
            LossBar(
                bar=Box(area.left, y - 3.2, x(peak), y + 3.2),
                median_x_pt=x(median),
                y_pt=y,
                paper_x_pt=x(1.0),
                colour=colours.get(each.subject, GREY),
                words=_to_right(words[i], area.right - loss_pt - 8, y),
                loss=_to_right(losses[i], area.right, y),
            )
        )
    low = _row_y(area, len(found) - 1) - ROW_PT / 2
    ticks: list[tuple[Segment, Label]] = []
    for share in _NAMES:
        at, text = x(share), f"{share:.0%}".replace("%", " %")
        label = Label(text=text, box=text_box(text, at, low - 6, SMALL_PT), size_pt=SMALL_PT)
        if not ticks or label.box.left > ticks[-1][1].box.right + 3:
            ticks.append((Segment(at, low, at, area.top - _HEAD_PT + 1), label))
    return LossColumn(
        heading=_from_left(heading, area.left, area.top - _HEAD_PT / 2 + 1),
        bars=tuple(bars),
        ticks=tuple(ticks),
    )


def _shares(each: Quantity) -> tuple[float, float]:
    """The peak and the median as parts of the theoretical rate."""
    paper = each.theoretical.per_s if each.theoretical else each.peak
    return each.peak / paper, each.typical / paper


def _words(each: Quantity) -> str:
    """``"? 252 of 256 GFLOP/s"``; the unit once where it is the same."""
    form = format_flop_per_s if each.measure == "flop/s" else format_byte_per_s
    peak, paper = form(each.peak), form(each.theoretical.per_s if each.theoretical else None)
    number, _, unit = peak.partition(" ")
    shown = number if paper.endswith(f" {unit}") else peak
    return f"{'? ' if each.doubt else ''}{shown} of {paper}"


def _from_left(text: str, left: float, y: float) -> Label:
    width = text_width_pt(text, SMALL_PT)
    return Label(text=text, box=text_box(text, left + width / 2, y, SMALL_PT), size_pt=SMALL_PT)


def _to_right(text: str, right: float, y: float) -> Label:
    return _from_left(text, right - text_width_pt(text, SMALL_PT), y)
