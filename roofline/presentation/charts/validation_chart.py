"""A validation as a picture: predicted against measured times, and errors by family, as data.

Values are in s (of speed-ups: ratios); places on paper are in points from the lower left corner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_s
from roofline.latency.validation import Validation
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import (
    Anchor,
    Box,
    Label,
    Segment,
    cut_to,
    place_labels,
    text_width_pt,
)
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.validation_key import KEY_LINE_PT, KeyEntry, key_of
from roofline.presentation.charts.validation_points import (
    Drawn,
    JudgedPoint,
    JudgedPoints,
    judged_points,
)
from roofline.presentation.charts.validation_rows import (
    BANDS,
    MEAN_PT,
    NAME_PT,
    ErrorRows,
    error_rows,
)
from roofline.presentation.reports.validation_report import verdict
from roofline.presentation.reports.validation_tables import setting_words

TITLE_SIZE_PT = 13.0
_EDGE_PT = 12.0
_TITLE_LINE_PT = 17.0
_TICKS_X_PT = 38.0
_TICKS_Y_PT = 52.0
_SQUARE_SHARE = 0.52
_FOOT_PT = 13.0
_LEAST_ROWS_PT = 90.0
_NAME_CHARACTERS = 42
_FEW = 20
_FAR_OFF = 1.2
"""Where points are many, those are named that are off by more than this factor."""


class TimeAxis(LogAxis):
    """A logarithmic axis of times in s."""

    __slots__ = ()

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """As of any logarithmic axis, with their unit."""
        return tuple((value, format_s(value, 1)) for value, _ in super().ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationMark:
    """A point, and where it has them: its interval, clipped to the axes, and its label."""

    point: JudgedPoint
    interval: tuple[float, float] | None
    label: Label | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationChart:
    """A picture of ``width_pt`` x ``height_pt``; ``x`` measured and ``y`` said have one scale.

    ``bands`` are the shares of the measured time that are marked as near, the wider first.
    ``title`` is the verdict, in lines. Where there is nothing to draw, ``x``, ``y`` and
    ``rows`` are None.
    """

    width_pt: float
    height_pt: float
    drawn: Drawn
    title: tuple[str, ...]
    subtitle: str
    x: LogAxis | None
    y: LogAxis | None
    bands: tuple[float, ...]
    marks: tuple[ValidationMark, ...]
    dot_pt: float
    rows: ErrorRows | None
    key: tuple[KeyEntry, ...]
    notes: tuple[str, ...]


def validation_chart_of(
    validation: Validation, *, labels: int = 10, width_pt: float = 720.0
) -> ValidationChart:
    """The picture of a validation; as high as it is wide, or less.

    Args:
        validation: what to draw: its predictions; bounds, where nothing was predicted; speed-ups,
            where no model was run.
        labels: how many of the worst points to name, where there is room.
        width_pt: the picture's width in points.
    """
    found = judged_points(validation)
    room = width_pt - 2 * _EDGE_PT
    notes = tuple(cut_to(each, room, SMALL_PT) for each in _notes(validation, found))
    title = _wrapped(verdict(validation), 0.9 * room)
    above = 14 + _TITLE_LINE_PT * len(title) + 22
    foot = _EDGE_PT + _FOOT_PT * len(notes)
    subtitle = cut_to(_subtitle(validation), room, 8.5)
    if not found.points:
        return ValidationChart(
            width_pt=width_pt,
            height_pt=foot + above,
            drawn=found.drawn,
            title=title,
            subtitle=subtitle,
            x=None,
            y=None,
            bands=(),
            marks=(),
            dot_pt=0.0,
            rows=None,
            key=(),
            notes=notes,
        )
    near = found.drawn != "bounds"
    key = key_of(found, Box(_EDGE_PT, 0.0, width_pt - _EDGE_PT, 0.0), near=near)
    raised = foot + KEY_LINE_PT / 2 - min(each.y_pt for each in key)
    key = key_of(found, Box(_EDGE_PT, raised, width_pt - _EDGE_PT, raised), near=near)
    left, bottom = _EDGE_PT + _TICKS_Y_PT, raised + _TICKS_X_PT
    beside_pt = 10 + NAME_PT + _LEAST_ROWS_PT + MEAN_PT + _EDGE_PT
    side = min(_SQUARE_SHARE * width_pt, width_pt - left - beside_pt)
    frame = Box(left, bottom, left + side, bottom + side)
    x, y = _axes(found, frame)
    dot_pt = 7.0 if len(found.points) <= _FEW else 5.5 if len(found.points) <= 150 else 4.2
    beside = Box(
        frame.right + NAME_PT + 10, frame.bottom, width_pt - _EDGE_PT - MEAN_PT, frame.top - 12
    )
    groups = "designs" if found.drawn == "speed-ups" else "family"
    across = "error of the prediction, %" if near else "bound, % of the measured time"
    return ValidationChart(
        width_pt=width_pt,
        height_pt=frame.top + above,
        drawn=found.drawn,
        title=title,
        subtitle=subtitle,
        x=x,
        y=y,
        bands=BANDS if near else (),
        marks=_marks(found.points, x, y, frame, dot_pt, labels, near=near),
        dot_pt=dot_pt,
        rows=error_rows(found.points, beside, headings=(groups, across), errors=near),
        key=key,
        notes=notes,
    )


def _axes(found: JudgedPoints, frame: Box) -> tuple[LogAxis, LogAxis]:
    """Two axes of one scale, so that the diagonal is where nothing is off."""
    values = [value for each in found.points for value in (each.measured, each.said)]
    low, high = min(values) / 1.3, max(values) * 1.3
    # Of few runs alike, the bands must not fill the picture.
    grown = max(1.0, math.sqrt(6.0 / (high / low)))
    kind = LogAxis if found.drawn == "speed-ups" else TimeAxis
    names = {
        "predictions": ("measured time", "predicted time"),
        "bounds": ("measured time", "bound: no time can be below it"),
        "speed-ups": ("measured speed-up (times as fast)", "predicted speed-up (times as fast)"),
    }
    across, up = names[found.drawn]
    return (
        kind(
            title=across,
            low=low / grown,
            high=high * grown,
            start_pt=frame.left,
            end_pt=frame.right,
        ),
        kind(title=up, low=low / grown, high=high * grown, start_pt=frame.bottom, end_pt=frame.top),
    )


def _marks(
    points: Sequence[JudgedPoint],
    x: LogAxis,
    y: LogAxis,
    frame: Box,
    dot_pt: float,
    labels: int,
    *,
    near: bool,
) -> tuple[ValidationMark, ...]:
    """The points with their intervals, and names where they are few, or off by much."""
    worst = sorted(points, key=lambda each: -each.factor_off)
    few = len(points) <= _FEW
    named = [each for each in worst if few or each.factor_off > _FAR_OFF]
    named = named[: max(0, max(labels, _FEW) if few and labels else labels)]
    boxes = {id(each): _anchor(each, x, y, dot_pt, near=near) for each in points}
    intervals = {id(each): _interval(each, y) for each in points}
    placed = place_labels(
        [boxes[id(each)] for each in named],
        frame=frame.grown(-2.0),
        size_pt=SMALL_PT,
        marks=[each.box for each in boxes.values()],
        lines=[
            Segment(frame.left, frame.bottom, frame.right, frame.top),
            *_upright(points, intervals, x, y),
        ],
    )
    label_of = {id(each): label for each, label in zip(named, placed, strict=True)}
    return tuple(
        ValidationMark(point=each, interval=intervals[id(each)], label=label_of.get(id(each)))
        for each in points
    )


def _upright(
    points: Sequence[JudgedPoint],
    intervals: Mapping[int, tuple[float, float] | None],
    x: LogAxis,
    y: LogAxis,
) -> list[Segment]:
    """The lines of the intervals on paper, which words should not stand on."""
    found = [(x.pt(each.measured), intervals[id(each)]) for each in points]
    return [Segment(at, y.pt(ends[0]), at, y.pt(ends[1])) for at, ends in found if ends]


def _anchor(point: JudgedPoint, x: LogAxis, y: LogAxis, dot_pt: float, *, near: bool) -> Anchor:
    name = point.name
    if len(name) > _NAME_CHARACTERS:
        name = "…" + name[1 - _NAME_CHARACTERS :]
    return Anchor(
        text=f"{name} {100 * point.error:+.0f} %" if near else name,
        x_pt=x.pt(point.measured),
        y_pt=y.pt(point.said),
        radius_pt=dot_pt / 2,
    )


def _interval(point: JudgedPoint, y: LogAxis) -> tuple[float, float] | None:
    """The interval as far as the axis goes: its lower end may be 0."""
    if point.low is None or point.high is None or point.high <= y.low or point.low >= y.high:
        return None
    return max(point.low, y.low), min(point.high, y.high)


def _wrapped(text: str, width_pt: float) -> tuple[str, ...]:
    """The text in lines that fit the width, broken where a clause ends if one does."""

    def fits(line: str) -> bool:
        return text_width_pt(line, TITLE_SIZE_PT) <= width_pt

    if fits(text):
        return (text,)
    spaces = [i for i, character in enumerate(text) if character == " " and fits(text[:i])]
    clauses = [i for i in spaces if text[i - 1] in ";:" or text[i + 1] == "("]
    if not spaces:
        return (cut_to(text, width_pt, TITLE_SIZE_PT),)
    at = max(clauses or spaces)
    return (text[:at], *_wrapped(text[at + 1 :], width_pt))


def _subtitle(validation: Validation) -> str:
    parts = [validation.hardware, f"torch {validation.torch_version}"]
    settings = list({each.setting: None for each in validation.models})
    if len(settings) == 1:
        (only,) = settings
        parts.append(setting_words(only.batch, only.dtype, only.threads, only.channels_last))
    parts.append(f"measured on {validation.date[:10]}")
    return printable(" · ".join(parts))


def _notes(validation: Validation, found: JudgedPoints) -> list[str]:
    """What is not in the picture."""
    notes: list[str] = []
    left_out = len(validation.models) - len(found.points)
    if found.drawn == "predictions" and left_out:
        runs = counted(validation.totals.runs, "run")
        notes.append(f"{left_out} of {runs} could not be predicted: not drawn")
    if found.drawn == "bounds":
        notes.append(
            "Bounds stand where predictions would: too little was learned; `roofline calibrate`"
            " learns"
        )
    if found.drawn == "nothing":
        notes.append("There is neither a prediction nor a bound to draw: see the tables")
    if validation.ratios and found.drawn != "speed-ups":
        pairs = counted(len(validation.ratios), "pair")
        notes.append(f"Speed-ups of {pairs} of designs were judged as well: see the tables")
    return notes
