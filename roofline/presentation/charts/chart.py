"""The roofline picture as data: every line, mark and word with its place; nothing is drawn here.

Values are in FLOP/byte and FLOP/s; places on paper are in points (1/72 inch) from the lower left
corner of the picture, so that labels can be kept apart before anything is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.analysis import Analysis
from roofline.foundation.units import format_s, format_shape
from roofline.machine.hardware import describe_threads
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.ceilings import Ceiling, Diagonal, RoofLines, Roofs, roof_lines
from roofline.presentation.charts.labels import (
    Anchor,
    Box,
    Label,
    Segment,
    cut_to,
    place_labels,
    text_width_pt,
)
from roofline.presentation.charts.lettering import (
    CEILING_GAP_PT,
    SMALL_PT,
    TurnedText,
    ceiling_labels,
    diagonal_labels,
    ridge_labels,
)
from roofline.presentation.charts.margins import (
    LINE_PT,
    LegendEntry,
    StripMark,
    legend_of,
    strip_of_marks,
)
from roofline.presentation.charts.palette import Style, styles
from roofline.presentation.charts.points import Point, drawn, points_of, strip_of
from roofline.presentation.reports.report import origin, printable
from roofline.presentation.reports.spreads import interval_words, median_text
from roofline.presentation.reports.times import above_roof, time_s
from roofline.workload.operators import Phase, State

TITLE_SIZE_PT = 13.0
_EDGE_PT = 12.0
_TITLE_PT = 50.0
_FOOT_PT = 13.0
_TICKS_X_PT = 36.0
_TICKS_Y_PT = 52.0
_STRIP_PT = 112.0
_STRIP_SHARE = 0.45
_RIDGE_PT = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge:
    """Where a memory level's roof meets the top ceiling of the main data type."""

    level: str
    flop_per_byte: float
    flop_per_s: float
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point, its look, and its label where it has one."""

    point: Point
    style: Style
    label: Label | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A roofline picture of ``width_pt`` x ``height_pt``, ready to be drawn.

    ``ceiling_labels`` belong to ``ceilings`` and ``diagonal_labels`` to ``diagonals``, in their
    order; ``strip`` is the box beside the axes for operators without FLOP (None: there are none).
    ``warnings`` name the points above their roof and the operators that have no place.
    """

    width_pt: float
    height_pt: float
    title: str
    machine: str
    provenance: str
    x: LogAxis
    y: LogAxis
    ceilings: tuple[Ceiling, ...]
    ceiling_labels: tuple[Label, ...]
    diagonals: tuple[Diagonal, ...]
    diagonal_labels: tuple[TurnedText, ...]
    ridges: tuple[Ridge, ...]
    marks: tuple[Mark, ...]
    strip: Box | None
    strip_marks: tuple[StripMark, ...]
    strip_words: tuple[Label, ...]
    legend: tuple[LegendEntry, ...]
    warnings: tuple[str, ...]

    @property
    def frame(self) -> Box:
        """The box of the axes."""
        return Box(self.x.start_pt, self.y.start_pt, self.x.end_pt, self.y.end_pt)


def chart_of(
    analysis: Analysis,
    *,
    labels: int = 12,
    roofs: Roofs = "all",
    width_pt: float = 720.0,
    height_pt: float = 468.0,
) -> Chart:
    """The picture of an analysis.

    Args:
        analysis: what to draw; its measured times where there are any, else its bounds.
        labels: how many of the longest operators to name, where there is room.
        roofs: every ceiling that is known, or only those of the data types in use.
        width_pt: the picture's width in points.
        height_pt: its height in points.
    """
    lines = roof_lines(analysis, roofs)
    points, aside = points_of(analysis), strip_of(analysis)
    look = styles(_types_by_time(analysis))
    warnings = (*above_roof(analysis), *_without_place(analysis))
    foot = _EDGE_PT + _FOOT_PT * (1 + bool(warnings))
    shown = {each.type for each in (*points, *aside)}
    below = Box(_EDGE_PT, 0.0, width_pt - _EDGE_PT, 0.0)
    phases: set[Phase] = {each.phase for each in points}
    legend = legend_of(look, shown, phases, lines.ceilings, below)
    lowest = min((entry.y_pt for entry in legend), default=0.0) - LINE_PT / 2
    legend = legend_of(look, shown, phases, lines.ceilings, _raised(below, foot - lowest))

    room = text_width_pt("M", SMALL_PT)
    for each in lines.ceilings:
        room = max(room, CEILING_GAP_PT + text_width_pt(each.label, SMALL_PT))
    if aside:
        room = max(room, CEILING_GAP_PT + _STRIP_PT)
    frame = Box(
        _EDGE_PT + _TICKS_Y_PT,
        foot - lowest + _TICKS_X_PT,
        width_pt - _EDGE_PT - room,
        height_pt - _TITLE_PT,
    )
    measured = any(row.measured_s is not None for row in analysis.operators)
    x, y = _axes(lines, points, frame, measured=measured)
    beside = Box(
        frame.right + CEILING_GAP_PT,
        frame.bottom,
        width_pt - _EDGE_PT,
        frame.bottom + _STRIP_SHARE * (frame.top - frame.bottom),
    )
    strip, in_strip, strip_words = strip_of_marks(aside, beside, look)
    ridges = _ridges(lines, x, y)
    discs = [_anchor(each, x, y) for each in points]
    taken = [ridge.label.box for ridge in ridges]
    for ridge in ridges:
        at = (x.pt(ridge.flop_per_byte), y.pt(ridge.flop_per_s))
        taken.append(Box.around(*at, _RIDGE_PT, _RIDGE_PT))
    turned = diagonal_labels(lines.diagonals, x, y, avoid=[*taken, *(disc.box for disc in discs)])
    named = discs[: max(0, labels)]
    placed = place_labels(
        named,
        frame=frame.grown(-2.0),
        size_pt=SMALL_PT,
        marks=[disc.box for disc in discs],
        taken=[*taken, *(box for text in turned for box in text.boxes)],
        lines=_on_paper(lines, x, y),
    )
    return Chart(
        width_pt=width_pt,
        height_pt=height_pt,
        title=_title(analysis, 0.9 * (width_pt - 2 * _EDGE_PT)),
        machine=_machine(analysis, measured=measured),
        provenance=cut_to(_provenance(analysis), width_pt - 2 * _EDGE_PT, SMALL_PT - 0.5),
        x=x,
        y=y,
        ceilings=lines.ceilings,
        ceiling_labels=ceiling_labels(
            lines.ceilings, x, y, low_pt=strip.top + 4 if aside else frame.bottom
        ),
        diagonals=lines.diagonals,
        diagonal_labels=turned,
        ridges=ridges,
        marks=tuple(
            Mark(point=point, style=look[point.type], label=label)
            for point, label in zip(
                points, [*placed, *[None] * (len(points) - len(placed))], strict=True
            )
        ),
        strip=strip if aside else None,
        strip_marks=in_strip,
        strip_words=strip_words,
        legend=legend,
        warnings=warnings,
    )


def _raised(box: Box, by: float) -> Box:
    return Box(box.left, box.bottom + by, box.right, box.top + by)


def _types_by_time(analysis: Analysis) -> list[str]:
    """The types of the operators that are not free, longest first."""
    times: dict[str, float] = {}
    for row in analysis.operators:
        if row.state is not State.FREE:
            times[row.type] = times.get(row.type, 0.0) + (time_s(row) or 0.0)
    return sorted(times, key=lambda kind: -times[kind])


def _axes(
    lines: RoofLines, points: Sequence[Point], frame: Box, *, measured: bool
) -> tuple[LogAxis, LogAxis]:
    """Axes that hold every point and ceiling, and each ridge with some room around."""
    cuts = [each.cut_flop_per_byte for each in lines.diagonals if each.cut_flop_per_byte]
    ridges = [each.ridge_flop_per_byte for each in lines.diagonals if each.ridge_flop_per_byte]
    intensities = [point.flop_per_byte for point in points]
    low = min([*intensities, *(ridge / 8 for ridge in ridges)], default=0.01) / 1.6
    high = max([*(2 * each for each in intensities), *(3 * cut for cut in cuts)], default=1000.0)
    rates = [point.flop_per_s for point in points]
    heights = [each.flop_per_s for each in lines.ceilings]
    # Points say how far down to go; without them, the start of the slowest memory's roof does.
    slowest = [] if points else [low * each.byte_per_s for each in lines.diagonals[-1:]]
    bottom = min([*rates, *heights, *slowest], default=1e9) / 1.8
    top = 2.0 * max([*rates, *heights], default=0.0)
    if not top:
        top = 2.0 * max((high * each.byte_per_s for each in lines.diagonals), default=1e12)
    time = "measured" if measured else "bound"
    x = LogAxis(
        title="arithmetic intensity (FLOP per byte crossing the operator's memory level)",
        low=low,
        high=max(high, 10 * low),
        start_pt=frame.left,
        end_pt=frame.right,
    )
    y = LogAxis(
        title=f"FLOP/s (FLOP / {time} time)",
        low=bottom,
        high=max(top, 10 * bottom),
        start_pt=frame.bottom,
        end_pt=frame.top,
    )
    return x, y


def _ridges(lines: RoofLines, x: LogAxis, y: LogAxis) -> tuple[Ridge, ...]:
    top = lines.main_top_flop_per_s
    found = [
        (each.level, each.ridge_flop_per_byte)
        for each in lines.diagonals
        if each.ridge_flop_per_byte is not None
    ]
    if top is None:
        return ()
    words = ridge_labels([ridge for _, ridge in found], top, x, y)
    return tuple(
        Ridge(level=level, flop_per_byte=ridge, flop_per_s=top, label=label)
        for (level, ridge), label in zip(found, words, strict=True)
    )


def _anchor(point: Point, x: LogAxis, y: LogAxis) -> Anchor:
    return Anchor(
        text=point.name,
        x_pt=x.pt(point.flop_per_byte),
        y_pt=y.pt(point.flop_per_s),
        radius_pt=point.diameter_pt / 2 + 0.5,
    )


def _on_paper(lines: RoofLines, x: LogAxis, y: LogAxis) -> list[Segment]:
    ends = [
        *(each.ends(x, y) for each in lines.diagonals),
        *(each.ends(x) for each in lines.ceilings),
    ]
    return [Segment(x.pt(x0), y.pt(y0), x.pt(x1), y.pt(y1)) for (x0, y0), (x1, y1) in ends]


def _machine(analysis: Analysis, *, measured: bool) -> str:
    profile = analysis.hardware
    cpu = printable(profile.host.cpu_model) if profile.host else ""
    state = "steady state" if analysis.cache == "steady" else "cold caches"
    points = "points: bounds, which no run can beat"
    if profile.knows_only_dram:
        points = f"points: bounds with every operand from {printable(profile.memory[0].name)}"
    if measured:
        points = "points: measured times"
    threads = describe_threads(profile, analysis.threads)
    parts = [cpu, printable(profile.name), threads, state, points]
    return " · ".join(filter(None, parts))


def _title(analysis: Analysis, width_pt: float) -> str:
    """The model, what it was given, and how long it takes.

    What does not fit is cut from the names, never from the time: a number cut short is another one.
    """
    inputs = [f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs]
    time = _time(analysis)
    step = "a training step of " if analysis.run.train else ""
    names = [f"Roofline of {step}{printable(analysis.model)}", ", ".join(inputs)]
    tail = f" · {time}" if time else ""
    room = width_pt - text_width_pt(tail, TITLE_SIZE_PT)
    return cut_to(" · ".join(filter(None, names)), room, TITLE_SIZE_PT) + tail


def _time(analysis: Analysis) -> str:
    """How long the pass took, or else what it takes at least and is expected to take."""
    totals, prediction = analysis.totals, analysis.prediction
    if analysis.measurement is not None:
        return f"{median_text(analysis.measurement.end_to_end)} measured"
    if totals.measured_s is not None:
        return f"{format_s(totals.measured_s)} measured"
    parts = [f"bound {format_s(totals.bound_s)}"] if totals.bound_s is not None else []
    if prediction is not None:
        words = interval_words(prediction.predicted_s, prediction.low_s, prediction.high_s)
        parts.append(f"predicted {words[0]}")
    return ", ".join(parts)


def _provenance(analysis: Analysis) -> str:
    profile = analysis.hardware
    how = "; `roofline hardware show` says how each was" if profile.host else ""
    return f"Ceilings: {origin(profile, None)}{how}"


def _without_place(analysis: Analysis) -> tuple[str, ...]:
    missing = sum(bool(row.flop) and not drawn(row) for row in analysis.operators)
    if not missing:
        return ()
    return (
        f"{missing} operator{'s' * (missing != 1)} cannot be drawn: hardware"
        f" '{printable(analysis.hardware.name)}' has no ceilings that give a time",
    )
