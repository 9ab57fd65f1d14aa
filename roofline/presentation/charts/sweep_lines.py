"""A sweep over one axis: the time of each design, with its interval, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.design.sweeps.axes import text_of
from roofline.design.sweeps.cells import Cell
from roofline.design.sweeps.result import SweepResult
from roofline.foundation.text import printable
from roofline.foundation.units import format_s
from roofline.plots.style import roof_styles
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, cut_to, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.sweep_words import (
    TITLE_PT,
    subtitle_of,
    texts_of,
    title_of,
    wrapped,
)

EDGE_PT = 12.0
TICKS_PT = 40.0
NAMES_PT = 150.0
LINE_PT = 16.0
_HEIGHT_PT = 300.0
_LABEL_PT = 8.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueAxis(LogAxis):
    """A logarithmic axis with ticks at the values that were asked for."""

    values: tuple[float, ...]

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """The values, as far as their texts do not touch."""
        found: list[tuple[float, str]] = []
        end = float("-inf")
        for value in self.values:
            text = text_of(value)
            half = text_width_pt(text, 8.0) / 2
            if self.pt(value) - half > end:
                found.append((value, text))
                end = self.pt(value) + half + 3
        return tuple(found)

    @property
    def between(self) -> tuple[float, ...]:
        """No small ticks."""
        return ()


class SecondsAxis(LogAxis):
    """A logarithmic axis of times in s."""

    __slots__ = ()

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """As of any logarithmic axis, with their unit."""
        return tuple((value, format_s(value, 1)) for value, _ in super().ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignLine:
    """One design: its times, their intervals (low and high) and bounds, each by value of x.

    ``unfit`` are those of its times where it does not fit into memory.
    """

    name: str
    colour: str
    strokes: tuple[float, ...]
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float, float], ...] = ()
    bounds: tuple[tuple[float, float], ...] = ()
    unfit: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesChart:
    """A picture of ``width_pt`` x ``height_pt`` with one line a design; ``labels`` name them."""

    width_pt: float
    height_pt: float
    title: tuple[str, ...]
    subtitle: str
    x: LogAxis
    y: LogAxis
    lines: tuple[DesignLine, ...]
    labels: tuple[Label, ...]
    notes: tuple[str, ...]


def can_be_lines(result: SweepResult) -> bool:
    """Whether a sweep is over one axis of numbers above 0, with times to draw."""
    axis, *others = result.varied
    return (
        not others
        and axis.is_numeric
        and len(axis.values) > 1
        and all(isinstance(each, (int, float)) and each > 0 for each in axis.values)
        and any(_time(cell) for cells in result.cells for cell in cells)
    )


def lines_chart_of(result: SweepResult, *, width_pt: float = 720.0) -> LinesChart:
    """The lines of a sweep over one axis of numbers; see `can_be_lines`."""
    axis = result.varied[0]
    room = width_pt - 2 * EDGE_PT
    title = wrapped(title_of(result), room, TITLE_PT)
    notes = tuple(cut_to(each, room, SMALL_PT) for each in _notes(result))
    foot = EDGE_PT + 12 * len(notes)
    frame = Box(
        EDGE_PT + TICKS_PT + 12,
        foot + TICKS_PT,
        width_pt - EDGE_PT - NAMES_PT,
        foot + TICKS_PT + _HEIGHT_PT,
    )
    values = [float(each) for each in axis.values if not isinstance(each, str)]
    lines = tuple(_line(result, design, values) for design in range(len(result.designs)))
    seconds = [
        time
        for each in lines
        for _, *times in (*each.points, *each.band, *each.bounds)
        for time in times
        if time > 0
    ]
    x = value_axis(axis.name, values, frame)
    y = SecondsAxis(
        title="predicted time" if any(each.band for each in lines) else "bound",
        low=min(seconds) / 1.25,
        high=max(seconds) * 1.25,
        start_pt=frame.bottom,
        end_pt=frame.top,
    )
    return LinesChart(
        width_pt=width_pt,
        height_pt=frame.top + 18 + LINE_PT * (len(title) + 1),
        title=title,
        subtitle=cut_to(subtitle_of(result), room, SMALL_PT),
        x=x,
        y=y,
        lines=lines,
        labels=end_labels(lines, y, frame),
        notes=notes,
    )


def value_axis(title: str, values: Sequence[float], frame: Box) -> ValueAxis:
    """The axis across `frame` with a tick at each of the values."""
    low, high = min(values), max(values)
    margin = (high / low) ** 0.03
    return ValueAxis(
        title=title,
        low=low / margin,
        high=high * margin,
        start_pt=frame.left,
        end_pt=frame.right,
        values=tuple(values),
    )


def _time(cell: Cell) -> float | None:
    return cell.predicted_s or cell.bound_s


def _line(result: SweepResult, design: int, values: Sequence[float]) -> DesignLine:
    style = roof_styles(len(result.designs))[design]
    cells = [each[design] for each in result.cells]
    named = list(zip(values, cells, strict=True))
    return DesignLine(
        name=printable(result.names[design]),
        colour=style.colour,
        strokes=style.strokes,
        points=tuple((x, time) for x, each in named if (time := _time(each))),
        band=tuple(
            (x, each.predicted_low_s, each.predicted_high_s)
            for x, each in named
            if each.predicted_low_s and each.predicted_high_s
        ),
        bounds=tuple((x, each.bound_s) for x, each in named if each.bound_s and each.predicted_s),
        unfit=tuple((x, time) for x, each in named if each.fits is False and (time := _time(each))),
    )


def end_labels(lines: Sequence[DesignLine], y: LogAxis, frame: Box) -> tuple[Label, ...]:
    """The names of lines at their right ends, apart from each other."""
    ends = {index: y.pt(each.points[-1][1]) for index, each in enumerate(lines) if each.points}
    places = apart(ends, gap_pt=1.5 * _LABEL_PT, low=frame.bottom, high=frame.top)
    found: list[Label] = []
    for index, place in places.items():
        text = cut_to(lines[index].name, NAMES_PT - 8, _LABEL_PT)
        left = frame.right + 8
        width = text_width_pt(text, _LABEL_PT)
        box = Box(left, place - 0.6 * _LABEL_PT, left + width, place + 0.6 * _LABEL_PT)
        found.append(Label(text=text, box=box, size_pt=_LABEL_PT))
    return tuple(found)


def apart(wanted: dict[int, float], *, gap_pt: float, low: float, high: float) -> dict[int, float]:
    """Places near those wanted, in their order, `gap_pt` from each other, within the ends."""
    order = sorted(wanted, key=lambda each: wanted[each])
    if not order:
        return {}
    gap = min(gap_pt, (high - low) / max(1, len(order) - 1))
    places = [min(max(wanted[each], low), high) for each in order]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    places[-1] = min(places[-1], high)
    for i in range(len(places) - 2, -1, -1):
        places[i] = min(places[i], places[i + 1] - gap)
    return dict(zip(order, places, strict=True))


def _notes(result: SweepResult) -> tuple[str, ...]:
    cells = [cell for each in result.cells for cell in each]
    found = texts_of(result.designs, result.names)
    if any(each.predicted_s for each in cells):
        found.append("bands: 10-90 % intervals of the predictions; dotted: bounds")
    if any(each.fits is False for each in cells):
        found.append("crosses: does not fit into memory there")
    if any(each.problem for each in cells):
        found.append("where a line has a gap, the design cannot be built: see the tables")
    return tuple(found)
