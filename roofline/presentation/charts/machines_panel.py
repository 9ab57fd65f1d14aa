"""What stands below the roofs of several machines: bounds, what binds, the numbered operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.design.machine_comparison import GroupAcross, MachineSummary
from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_bytes_per_s,
    format_intensity,
    format_percent,
    format_s,
)
from roofline.placement import Bound
from roofline.plots.style import RoofStyle
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, Segment, cut_to, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT

ROW_PT = 15.0
SWATCH_PT = 16.0
_HEADING_PT = 16.0
_KEY_PT = 14.0
_GAP_PT = 14.0
_NAME_PT = 100.0
_BAR_PT = 64.0
_CELL_PT = 14.0
_LEAST_TIME_PT = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelRow:
    """A machine's line: its swatch and words, its bound as a dot, its shares, and the operators.

    ``bars`` are the parts of the bound by what binds; ``sides`` what binds each numbered operator,
    with the middle of its cell; ``time_x_pt`` is None where there is no bound.
    """

    style: RoofStyle
    y_pt: float
    words: tuple[Label, ...]
    time_x_pt: float | None
    bars: tuple[tuple[Bound, Box], ...]
    sides: tuple[tuple[Bound, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The machines one below the other.

    ``ticks`` are those of the logarithmic axis of bounds: a line down the rows, and its time.
    ``key`` says what filled and hollow mean: words, with room for the mark before them.
    """

    area: Box
    headings: tuple[Label, ...]
    ticks: tuple[tuple[Segment, Label], ...]
    rows: tuple[PanelRow, ...]
    key: tuple[tuple[Bound, Label], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedName:
    """A number and the operator that it stands for; ``badge`` is the box of the number."""

    number: int
    badge: Box
    label: Label


def panel_height_pt(machines: int) -> float:
    """How high a panel of so many machines is."""
    return _HEADING_PT + ROW_PT * machines + _KEY_PT


def panel_of(
    machines: Sequence[MachineSummary],
    styles: Sequence[RoofStyle],
    operators: Sequence[GroupAcross],
    area: Box,
) -> Panel:
    """The panel in `area`; its columns are as wide as what they say, the time takes the rest."""
    names = [cut_to(printable(each.name), _NAME_PT, SMALL_PT) for each in machines]
    rates = [
        format_bytes_per_s(each.memory.bytes_per_s if each.memory else None) for each in machines
    ]
    ridges = [format_intensity(each.ridge_flop_per_byte) for each in machines]
    shares = [format_percent(each.compute_share) for each in machines]
    left = area.left + SWATCH_PT + 4
    right_of_names = left + _widest([*names, "machine"])
    right_of_rates = right_of_names + _GAP_PT + _widest([*rates, "bandwidth"])
    right_of_ridges = right_of_rates + _GAP_PT + _widest([*ridges, "ridge"])
    sides = area.right - _CELL_PT * len(operators)
    right_of_shares = sides - _GAP_PT * bool(operators)
    bars = right_of_shares - _widest([*shares, "compute"]) - 6 - _BAR_PT
    time = _time_axis(machines, right_of_ridges + _GAP_PT + 6, bars - _GAP_PT)
    heading_y = area.top - _HEADING_PT / 2
    headings = [
        _from_left("machine", left, heading_y),
        _to_right("bandwidth", right_of_rates, heading_y),
        _to_right("ridge", right_of_ridges, heading_y),
        _to_right("bound by compute", right_of_shares, heading_y),
    ]
    if time:
        headings.append(_from_left("bound", time.start_pt - 4, heading_y))
    rows: list[PanelRow] = []
    for i, machine in enumerate(machines):
        y = area.top - _HEADING_PT - ROW_PT * (i + 0.5)
        words = [
            _from_left(names[i], left, y),
            _to_right(rates[i], right_of_rates, y),
            _to_right(ridges[i], right_of_ridges, y),
            _to_right(shares[i], right_of_shares, y),
        ]
        at = time.pt(machine.eager_min_time_s) if time and machine.eager_min_time_s else None
        words.append(
            _from_left(_time_text(machine), at + 7 if at else right_of_ridges + _GAP_PT, y)
        )
        rows.append(
            PanelRow(
                style=styles[i],
                y_pt=y,
                words=tuple(words),
                time_x_pt=at,
                bars=_bars(machine, Box(bars, y - 4, bars + _BAR_PT, y + 4)),
                sides=tuple(
                    (group.sides[i].bound, sides + _CELL_PT * (j + 0.5))
                    for j, group in enumerate(operators)
                ),
            )
        )
    return Panel(
        area=area,
        headings=tuple(headings),
        ticks=_ticks(time, headings, area, heading_y) if time else (),
        rows=tuple(rows),
        key=_key(area, unknown=any(b is Bound.UNKNOWN for row in rows for b, _ in row.bars)),
    )


def _widest(texts: Sequence[str]) -> float:
    return max(text_width_pt(text, SMALL_PT) for text in texts)


def _time_axis(machines: Sequence[MachineSummary], start: float, end: float) -> LogAxis | None:
    """From below the least bound to above the largest, with room for its words at the right."""
    bounds = [each.eager_min_time_s for each in machines if each.eager_min_time_s]
    if not bounds:
        return None
    room = 12 + _widest([_time_text(each) for each in machines])
    if end - room - start < _LEAST_TIME_PT:
        raise InputError("the picture is too narrow for so many numbered operators: widen it")
    low, high = min(bounds) / 1.3, max(bounds)
    return LogAxis(
        title="bound", low=low, high=max(high, 2 * low), start_pt=start, end_pt=end - room
    )


def _time_text(machine: MachineSummary) -> str:
    """The bound, and that the model does not fit there."""
    said = format_s(machine.eager_min_time_s) if machine.eager_min_time_s else MISSING
    return f"{said}, does not fit" if machine.fits is False else said


def _ticks(
    time: LogAxis, headings: Sequence[Label], area: Box, y: float
) -> tuple[tuple[Segment, Label], ...]:
    """Lines down the rows, with their times between the headings where there is room."""
    found: list[tuple[Segment, Label]] = []
    taken = [heading.box.grown(4) for heading in headings]
    for value, _ in time.ticks:
        x, text = time.pt(value), format_s(value, 1)
        box = text_box(text, x, y, SMALL_PT)
        if not any(box.overlaps(other) for other in taken):
            taken.append(box.grown(4))
            line = Segment(x, area.bottom + _KEY_PT, x, area.top - _HEADING_PT)
            found.append((line, Label(text=text, box=box, size_pt=SMALL_PT)))
    return tuple(found)


def _bars(machine: MachineSummary, box: Box) -> tuple[tuple[Bound, Box], ...]:
    compute, memory = machine.compute_share, machine.memory_share
    if compute is None or memory is None or not machine.eager_min_time_s:
        return ()
    bars: list[tuple[Bound, Box]] = []
    edge = box.left
    parts = (
        (Bound.COMPUTE, compute),
        (Bound.MEMORY, memory),
        (Bound.UNKNOWN, max(0.0, round(1 - compute - memory, 9))),
    )
    for bound, share in parts:
        if share:
            end = edge + share * (box.right - box.left)
            bars.append((bound, Box(edge, box.bottom, end, box.top)))
            edge = end
    return tuple(bars)


def _key(area: Box, *, unknown: bool) -> tuple[tuple[Bound, Label], ...]:
    entries: list[tuple[Bound, Label]] = []
    left, y = area.left + 4, area.bottom + _KEY_PT / 2 - 3
    for bound, text in (
        (Bound.COMPUTE, "compute-bound"),
        (Bound.MEMORY, "memory-bound"),
        *([(Bound.UNKNOWN, "FLOP unknown: grey in the bars")] if unknown else []),
    ):
        label = _from_left(text, left + 8, y)
        entries.append((bound, label))
        left = label.box.right + 12
    return tuple(entries)


def _from_left(text: str, left: float, y: float) -> Label:
    width = text_width_pt(text, SMALL_PT)
    return Label(text=text, box=text_box(text, left + width / 2, y, SMALL_PT), size_pt=SMALL_PT)


def _to_right(text: str, right: float, y: float) -> Label:
    return _from_left(text, right - text_width_pt(text, SMALL_PT), y)


def names_of(
    operators: Sequence[GroupAcross], names: Sequence[str], area: Box
) -> tuple[NumberedName, ...]:
    """The numbered operators in as many columns as there is room for, upwards from `area`."""
    texts = [
        f"{name} · {format_intensity(_intensity(group))} FLOP/byte"
        for name, group in zip(names, operators, strict=True)
    ]
    if not texts:
        return ()
    badge = 11.0
    wide = badge + 5 + _widest(texts) + _GAP_PT
    columns = max(1, min(len(texts), int((area.right - area.left + _GAP_PT) // wide)))
    lines = -(-len(texts) // columns)
    found: list[NumberedName] = []
    for i, text in enumerate(texts):
        column, line = divmod(i, lines)
        left = area.left + column * wide
        y = area.bottom + ROW_PT * (lines - line - 0.5)
        text = cut_to(text, area.right - left - badge - 5, SMALL_PT)
        found.append(
            NumberedName(
                number=i + 1,
                badge=Box.around(left + badge / 2, y, badge, badge),
                label=_from_left(text, left + badge + 5, y),
            )
        )
    return tuple(found)


def _intensity(group: GroupAcross) -> float | None:
    row = group.operators[0][0]
    return row.flop / row.traffic_bytes if row.flop is not None and row.traffic_bytes else None
