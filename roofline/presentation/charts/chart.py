"""The roofline picture as data: every line, mark and word with its place; nothing is drawn here.

Values are in FLOP/byte and FLOP/s; places on paper are in points (1/72 inch) from the lower left
corner of the picture, so that labels can be kept apart before anything is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.analysis import Analysis
from roofline.analysis.roof import Roofs, roof_lines
from roofline.plots.roof import Ceiling, Diagonal, Point, RoofLines, Spot
from roofline.plots.style import Style
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
from roofline.presentation.charts.subjects import Subject, subject_of
from roofline.workload.operators import Phase

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
    ``warnings`` name the points above their roof and the operators that have no place. ``named``
    are the words at the places that were asked for, as far as there was room. ``on_paper`` are
    the labels of the lines that nobody measured, where those are told apart.
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
    named: tuple[Label, ...] = ()
    on_paper: frozenset[str] = frozenset()

    @property
    def frame(self) -> Box:
        """The box of the axes."""
        return Box(self.x.start_pt, self.y.start_pt, self.x.end_pt, self.y.end_pt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a picture has to hold besides its subject.

    ``below_pt`` is kept free between legend and foot, ``beside`` are words right of the axes.
    ``spots`` are places that the axes must hold, ``anchors`` words with the places that they name.
    ``lines`` are those that words keep off where there is room; ``names_lines`` says whether the
    legend tells the kinds of ceilings.
    """

    below_pt: float = 0.0
    beside: tuple[str, ...] = ()
    spots: tuple[Spot, ...] = ()
    anchors: tuple[tuple[str, Spot], ...] = ()
    lines: tuple[tuple[Spot, Spot], ...] = ()
    names_lines: bool = True


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
    subject = subject_of(analysis, roof_lines(analysis, roofs))
    return composed(subject, Extras(), labels=labels, width_pt=width_pt, height_pt=height_pt)


def composed(
    subject: Subject, extras: Extras, *, labels: int, width_pt: float, height_pt: float
) -> Chart:
    """Everything in its place.

    Args:
        subject: what to draw.
        extras: what else there must be room for.
        labels: how many of the first points to name, where there is room.
        width_pt: the picture's width in points.
        height_pt: its height in points.
    """
    lines, points, aside = subject.lines, subject.points, subject.aside
    foot = foot_pt(subject) + extras.below_pt
    legend = _legend(subject, subject.lines.ceilings if extras.names_lines else (), width_pt, foot)
    lowest = max((entry.y_pt + LINE_PT / 2 for entry in legend), default=foot)
    room = text_width_pt("M", SMALL_PT)
    for text in (*(each.label for each in lines.ceilings), *extras.beside):
        room = max(room, CEILING_GAP_PT + text_width_pt(text, SMALL_PT))
    if aside:
        room = max(room, CEILING_GAP_PT + _STRIP_PT)
    frame = Box(
        _EDGE_PT + _TICKS_Y_PT,
        lowest + _TICKS_X_PT,
        width_pt - _EDGE_PT - room,
        height_pt - _TITLE_PT,
    )
    x, y = _axes(subject, extras.spots, frame)
    beside = Box(
        frame.right + CEILING_GAP_PT,
        frame.bottom,
        width_pt - _EDGE_PT,
        frame.bottom + _STRIP_SHARE * (frame.top - frame.bottom),
    )
    strip, in_strip, strip_words = strip_of_marks(aside, beside, subject.look)
    ridges = _ridges(lines, x, y)
    discs = [_anchor(each, x, y) for each in points]
    taken = [ridge.label.box for ridge in ridges]
    for ridge in ridges:
        at = (x.pt(ridge.flop_per_byte), y.pt(ridge.flop_per_s))
        taken.append(Box.around(*at, _RIDGE_PT, _RIDGE_PT))
    turned = diagonal_labels(lines.diagonals, x, y, avoid=[*taken, *(disc.box for disc in discs)])
    asked = [_anchor_at(text, spot, x, y) for text, spot in extras.anchors]
    named = discs[: max(0, labels)]
    placed = place_labels(
        [*asked, *named],
        frame=frame.grown(-2.0),
        size_pt=SMALL_PT,
        marks=[disc.box for disc in discs],
        taken=[*taken, *(box for text in turned for box in text.boxes)],
        lines=_on_paper(lines, extras.lines, x, y),
    )
    of_points = [*placed[len(asked) :], *[None] * (len(points) - len(named))]
    names = cut_to(
        subject.names,
        0.9 * (width_pt - 2 * _EDGE_PT) - text_width_pt(subject.tail, TITLE_SIZE_PT),
        TITLE_SIZE_PT,
    )
    return Chart(
        width_pt=width_pt,
        height_pt=height_pt,
        title=names + subject.tail,
        machine=subject.machine,
        provenance=cut_to(subject.provenance, width_pt - 2 * _EDGE_PT, SMALL_PT - 0.5),
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
            Mark(point=point, style=subject.look[point.type], label=label)
            for point, label in zip(points, of_points, strict=True)
        ),
        strip=strip if aside else None,
        strip_marks=in_strip,
        strip_words=strip_words,
        legend=legend,
        warnings=subject.warnings,
        named=tuple(label for label in placed[: len(asked)] if label is not None),
    )


def foot_pt(subject: Subject) -> float:
    """How high the lines at the foot of a picture are, with the edge below them."""
    return _EDGE_PT + _FOOT_PT * (1 + bool(subject.warnings))


def _legend(
    subject: Subject, ceilings: Sequence[Ceiling], width_pt: float, foot: float
) -> tuple[LegendEntry, ...]:
    """The legend, with its last row on `foot`."""
    shown = {each.type for each in (*subject.points, *subject.aside)}
    below = Box(_EDGE_PT, 0.0, width_pt - _EDGE_PT, 0.0)
    phases: set[Phase] = {each.phase for each in subject.points}
    legend = legend_of(subject.look, shown, phases, ceilings, below)
    lowest = min((entry.y_pt for entry in legend), default=0.0) - LINE_PT / 2
    return legend_of(subject.look, shown, phases, ceilings, _raised(below, foot - lowest))


def _raised(box: Box, by: float) -> Box:
    return Box(box.left, box.bottom + by, box.right, box.top + by)


def _axes(subject: Subject, spots: Sequence[Spot], frame: Box) -> tuple[LogAxis, LogAxis]:
    """Axes that hold every point, ceiling and spot, and each ridge with some room around."""
    lines, points = subject.lines, subject.points
    cuts = [each.cut_flop_per_byte for each in lines.diagonals if each.cut_flop_per_byte]
    ridges = [each.ridge_flop_per_byte for each in lines.diagonals if each.ridge_flop_per_byte]
    intensities = [point.flop_per_byte for point in points]
    low = min([*intensities, *(ridge / 8 for ridge in ridges)], default=0.01) / 1.6
    high = max(
        [
            *(2 * each for each in intensities),
            *(3 * cut for cut in cuts),
            *(3 * each for each, _ in spots),
        ],
        default=1000.0,
    )
    rates = [*(point.flop_per_s for point in points), *(rate for _, rate in spots)]
    heights = [each.flop_per_s for each in lines.ceilings]
    # Points say how far down to go; without them, the start of the slowest memory's roof does.
    slowest = [] if points else [low * each.byte_per_s for each in lines.diagonals[-1:]]
    bottom = min([*rates, *heights, *slowest], default=1e9) / 1.8
    top = 2.0 * max([*rates, *heights], default=0.0)
    if not top:
        top = 2.0 * max((high * each.byte_per_s for each in lines.diagonals), default=1e12)
    title = "arithmetic intensity (FLOP per byte crossing the operator's memory level)"
    if text_width_pt(title, 8.5) > frame.right - frame.left + 2 * _TICKS_Y_PT:
        title = "FLOP per byte"
    x = LogAxis(
        title=title,
        low=low,
        high=max(high, 10 * low),
        start_pt=frame.left,
        end_pt=frame.right,
    )
    y = LogAxis(
        title=subject.height,
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


def _anchor_at(text: str, spot: Spot, x: LogAxis, y: LogAxis) -> Anchor:
    return Anchor(text=text, x_pt=x.pt(spot[0]), y_pt=y.pt(spot[1]), radius_pt=0.5)


def _on_paper(
    lines: RoofLines, others: Sequence[tuple[Spot, Spot]], x: LogAxis, y: LogAxis
) -> list[Segment]:
    ends = [
        *others,
        *(each.ends(x, y) for each in lines.diagonals),
        *(each.ends(x) for each in lines.ceilings),
    ]
    return [Segment(x.pt(x0), y.pt(y0), x.pt(x1), y.pt(y1)) for (x0, y0), (x1, y1) in ends]
