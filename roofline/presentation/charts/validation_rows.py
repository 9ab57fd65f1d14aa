"""The errors of a validation, family by family: a row each, the worst first.

Everything is in points from the lower left corner of the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.foundation.units import format_percent
from roofline.plots.style import Style
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, Segment, cut_to, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.validation_points import JudgedPoint, mean_error

BANDS = (0.2, 0.1)
"""What is marked as near the truth, the wider first."""

ROW_DOT_PT = 4.0
NAME_PT = 84.0
"""The room for the names of families, left of the rows."""

MEAN_PT = 44.0
"""The room for the mean errors, right of the rows."""

_ROW_PT = 22.0
_MOST_ROWS = 24
_LANE_PT = 3.2
_GAP_PT = 6.0
_MOST_FACTOR = 30.0
_TICKS = (1.0, 1.2, 0.8, 1.5, 0.5, 2.0, 5.0, 10.0, 0.2, 0.1, 1.1, 0.9)
"""Values of said / measured that may stand below the rows, those that matter most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """A family: its name, a dot for each of its points, and its mean error in words."""

    name: Label
    mean: Label
    dots: tuple[tuple[float, float, Style], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRows:
    """The rows in ``area``, on an axis of said / measured; ``bands`` the wider first.

    Names and means end at the right of their boxes.
    """

    area: Box
    axis: LogAxis
    bands: tuple[Box, ...]
    exact: Segment
    ticks: tuple[tuple[Segment, Label], ...]
    headings: tuple[Label, ...]
    title: Label
    rows: tuple[ErrorRow, ...]


def error_rows(
    points: Sequence[JudgedPoint], area: Box, *, headings: tuple[str, str], errors: bool
) -> ErrorRows:
    """A row for each group of points, from the top of `area`, as low as they need.

    Args:
        points: what is shown, at least one.
        area: where the rows may stand; names stand left of it, means right of it.
        headings: what the groups are, and what the axis is.
        errors: said / measured is said as an error, among bands; else as a share.
    """
    groups = _groups(points)
    height = min(_ROW_PT, (area.top - area.bottom) / len(groups))
    area = Box(area.left, area.top - height * len(groups), area.right, area.top)
    axis = _axis(points, area, title=headings[1], errors=errors)
    rows: list[ErrorRow] = []
    for i, (name, members) in enumerate(groups):
        y = area.top - height * (i + 0.5)
        off = mean_error(members)
        mean = format_percent(off if errors else 1 - off)
        rows.append(
            ErrorRow(
                name=_to_right(cut_to(name, NAME_PT - _GAP_PT, SMALL_PT), area.left - _GAP_PT, y),
                mean=_to_right(mean, area.right + MEAN_PT, y),
                dots=_dots(members, axis, y, height),
            )
        )
    top, below = area.top + 0.8 * SMALL_PT, area.bottom - 8 - 1.9 * SMALL_PT
    return ErrorRows(
        area=area,
        axis=axis,
        bands=_bands(axis, area) if errors else (),
        exact=Segment(axis.pt(1.0), area.bottom, axis.pt(1.0), area.top),
        ticks=_ticks(axis, area, errors=errors),
        headings=(
            _to_right(headings[0], area.left - _GAP_PT, top),
            _to_right("mean", area.right + MEAN_PT, top),
        ),
        title=Label(
            text=axis.title,
            box=text_box(axis.title, (area.left + area.right) / 2, below, SMALL_PT),
            size_pt=SMALL_PT,
        ),
        rows=tuple(rows),
    )


def _groups(points: Sequence[JudgedPoint]) -> list[tuple[str, list[JudgedPoint]]]:
    """The points by group, the worst first; those that are too many are taken together."""
    by_name: dict[str, list[JudgedPoint]] = {}
    for each in points:
        by_name.setdefault(each.group, []).append(each)
    found = sorted(by_name.items(), key=lambda each: -mean_error(each[1]))
    if len(found) <= _MOST_ROWS:
        return found
    kept, rest = found[: _MOST_ROWS - 1], found[_MOST_ROWS - 1 :]
    return [*kept, (f"{len(rest)} others", [each for _, members in rest for each in members])]


def _axis(points: Sequence[JudgedPoint], area: Box, *, title: str, errors: bool) -> LogAxis:
    """Wide enough for all points, and for the bands; dots too far off stand at its end."""
    factors = [
        min(_MOST_FACTOR, max(1 / _MOST_FACTOR, each.said / each.measured)) for each in points
    ]
    return LogAxis(
        title=title,
        low=min(0.75, *factors) / 1.03,
        high=max(1.3 if errors else 1.0, *factors) * 1.03,
        start_pt=area.left,
        end_pt=area.right,
    )


def _bands(axis: LogAxis, area: Box) -> tuple[Box, ...]:
    return tuple(Box(axis.pt(1 - each), area.bottom, axis.pt(1 + each), area.top) for each in BANDS)


def _dots(
    members: Sequence[JudgedPoint], axis: LogAxis, y: float, height: float
) -> tuple[tuple[float, float, Style], ...]:
    """A dot for each point, beside its neighbours where there is room in the row."""
    lanes = max(0, int((height / 2 - ROW_DOT_PT / 2) / _LANE_PT))
    offsets = [0.0, *(sign * _LANE_PT * i for i in range(1, lanes + 1) for sign in (1, -1))]
    last = dict.fromkeys(offsets, -1e9)
    dots: list[tuple[float, float, Style]] = []
    for each in sorted(members, key=lambda each: each.said / each.measured):
        x = axis.pt(min(axis.high, max(axis.low, each.said / each.measured)))
        free = (lane for lane in offsets if x - last[lane] >= 0.9 * ROW_DOT_PT)
        lane = next(free, None)
        if lane is None:
            lane = min(offsets, key=lambda other: last[other])
        last[lane] = x
        dots.append((x, y + lane, each.style))
    return tuple(dots)


def _ticks(axis: LogAxis, area: Box, *, errors: bool) -> tuple[tuple[Segment, Label], ...]:
    """The values that find room below the rows, in percent, and their lines."""
    found: list[tuple[Segment, Label]] = []
    taken: list[Box] = []
    y = area.bottom - 4 - 0.625 * SMALL_PT
    for value in _TICKS:
        if not axis.low <= value <= axis.high:
            continue
        x, text = axis.pt(value), f"{100 * value:.0f}"
        if errors:
            text = "0" if value == 1 else f"{100 * (value - 1):+.0f}"
        box = text_box(text, x, y, SMALL_PT)
        if not any(box.overlaps(other) for other in taken):
            taken.append(box.grown(2.0))
            line = Segment(x, area.bottom, x, area.top)
            found.append((line, Label(text=text, box=box, size_pt=SMALL_PT)))
    return tuple(found)


def _to_right(text: str, right: float, y: float) -> Label:
    width = text_width_pt(text, SMALL_PT)
    return Label(text=text, box=text_box(text, right - width / 2, y, SMALL_PT), size_pt=SMALL_PT)
