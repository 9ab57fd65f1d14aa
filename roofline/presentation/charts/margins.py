"""What stands beside the axes: the legend below, and the strip of operators without FLOP."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.foundation.text import printable
from roofline.foundation.units import format_percent
from roofline.plots.roof import Ceiling, StripPoint, diameter_pt
from roofline.plots.style import Style
from roofline.presentation.charts.labels import Box, Label, cut_to, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.workload.operators import PHASES, Phase

LINE_PT = 15.0
_SWATCH_PT = 20.0
_BETWEEN_PT = 14.0

LineStyle = Literal["main", "other", "library"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """A mark or a line centred at (x, y), and its words; ``style`` None: a plain disc.

    ``phase`` says that it stands for the look of that phase.
    """

    x_pt: float
    y_pt: float
    label: Label
    style: Style | None = None
    diameter_pt: float = 7.0
    line: LineStyle | None = None
    phase: Phase = "forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class StripMark:
    """The mark of an operator without FLOP, hollow where its FLOP is unknown, and its name."""

    point: StripPoint
    style: Style
    x_pt: float
    y_pt: float
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    text: str
    style: Style | None = None
    diameter_pt: float = 7.0
    line: LineStyle | None = None
    phase: Phase = "forward"


def legend_of(
    look: Mapping[str, Style],
    shown: Collection[str],
    phases: Collection[Phase],
    ceilings: Sequence[Ceiling],
    area: Box,
) -> tuple[LegendEntry, ...]:
    """The legend in rows from the top of `area`: types, phases, kinds of lines, and sizes.

    Of a single phase nothing is said. `area` says where rows begin and end; as many rows are made
    as are needed.
    """
    types = [_Wanted(text=printable(each), style=look[each]) for each in look if each in shown]
    kinds = [_Wanted(text=text, line=line) for line, text in _line_kinds(ceilings)]
    sizes = [
        _Wanted(text=f"{percent} % of the time", diameter_pt=diameter_pt(percent / 100))
        for percent in (1, 5, 20)
    ]
    entries: list[LegendEntry] = []
    left, middle = area.left, area.top - LINE_PT / 2
    told_apart = [_Wanted(text=each, phase=each) for each in PHASES if each in phases]
    if len(phases) == 1:
        told_apart = []
    for group in (types, [*told_apart, *kinds, *(sizes if types else [])]):
        if entries and group:
            left, middle = area.left, middle - LINE_PT
        for each in group:
            swatch = max(_SWATCH_PT if each.line else 10.0, each.diameter_pt)
            width = text_width_pt(each.text, SMALL_PT)
            if left + swatch + 4 + width > area.right and left > area.left:
                left, middle = area.left, middle - LINE_PT
            words = left + swatch + 4
            entries.append(
                LegendEntry(
                    x_pt=left + swatch / 2,
                    y_pt=middle,
                    label=Label(
                        text=each.text,
                        box=text_box(each.text, words + width / 2, middle, SMALL_PT),
                        size_pt=SMALL_PT,
                    ),
                    style=each.style,
                    diameter_pt=each.diameter_pt,
                    line=each.line,
                    phase=each.phase,
                )
            )
            left = words + width + _BETWEEN_PT
    return tuple(entries)


def _line_kinds(ceilings: Sequence[Ceiling]) -> list[tuple[LineStyle, str]]:
    kinds: list[tuple[LineStyle, str]] = []
    hardware = [each for each in ceilings if each.kind == "hardware"]
    if any(each.main for each in hardware):
        kinds.append(("main", "hardware ceiling"))
    if any(not each.main for each in hardware):
        kinds.append(("other", "of a data type not in use"))
    if len(hardware) < len(ceilings):
        kinds.append(("library", "what the library reaches"))
    return kinds


def strip_of_marks(
    points: Sequence[StripPoint], corner: Box, look: Mapping[str, Style]
) -> tuple[Box, tuple[StripMark, ...], tuple[Label, ...]]:
    """The strip of operators without FLOP: its box, the marks with their names, and headings.

    The strip stands on the lower left corner of `corner` and is as wide; it grows as high as
    it must, up to the top of `corner`. What finds no room is counted in a last line.
    """
    # A row is a heading, or a point: words that may be cut, words that must stay, and its height.
    rows: list[tuple[StripPoint | None, str, str, float]] = []
    for number, point in enumerate(points):
        if not number or point.why != points[number - 1].why:
            rows.append((None, _HEADING[point.why], "", LINE_PT))
        tail = f" ×{point.count}" if point.count > 1 else ""
        tail += f" · {format_percent(point.share)}" if point.share is not None else ""
        rows.append((point, point.op, tail, max(LINE_PT - 2, point.diameter_pt + 3)))
    most = corner.top - corner.bottom - 6
    kept = len(rows)
    while kept and sum(height for *_, height in rows[:kept]) + LINE_PT * (kept < len(rows)) > most:
        kept -= 1
    left_out = sum(point is not None for point, *_ in rows[kept:])
    shown = rows[:kept]
    if left_out:
        shown.append((None, f"and {left_out} more", "", LINE_PT))
    widest = max((point.diameter_pt for point, *_ in shown if point), default=0.0)
    top = corner.bottom + sum(height for *_, height in shown) + 6
    box = Box(corner.left, corner.bottom, corner.right, top)
    marks: list[StripMark] = []
    words: list[Label] = []
    edge = top - 3
    for point, text, tail, height in shown:
        middle = edge - height / 2
        indent = widest + 10 if point else 5
        room = box.right - box.left - indent - 3 - text_width_pt(tail, SMALL_PT)
        text = cut_to(text, room, SMALL_PT) + tail
        centre = box.left + indent + text_width_pt(text, SMALL_PT) / 2
        label = Label(text=text, box=text_box(text, centre, middle, SMALL_PT), size_pt=SMALL_PT)
        if point is None:
            words.append(label)
        else:
            x = box.left + 5 + widest / 2
            marks.append(
                StripMark(point=point, style=look[point.type], x_pt=x, y_pt=middle, label=label)
            )
        edge -= height
    return box, tuple(marks), tuple(words)


_HEADING = {"no FLOP": "no FLOP, only bytes", "FLOP unknown": "FLOP unknown"}
