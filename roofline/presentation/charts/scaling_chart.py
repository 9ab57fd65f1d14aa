"""The picture of training on several ranks: the link as one more roof, efficiency over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from roofline.foundation.text import counted
from roofline.foundation.units import format_percent
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.ceilings import Diagonal, RoofLines, Spot, roof_lines
from roofline.presentation.charts.chart import Chart, Extras, composed, foot_pt
from roofline.presentation.charts.labels import Box
from roofline.presentation.charts.palette import BLUE, GREY, VERMILION, Style
from roofline.presentation.charts.points import Point
from roofline.presentation.charts.subjects import Subject, machine_words, provenance_words
from roofline.presentation.reports.report import printable
from roofline.scaling.result import Scaling
from roofline.scaling.verdict import computing

LINK = "link"
_STEP, _ASKED = "step on 2, 4, 8 … ranks", "as asked for"
_PANEL_PT = 190.0
_LABELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One kind of efficiency over ranks, as fractions."""

    name: str
    colour: str
    strokes: tuple[float, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingChart:
    """The roof with the link's diagonal, and below it a panel of efficiency over ranks.

    ``link`` are the ends of the link's line, None where it does not cross the axes; ``asked`` is
    where the panel marks what was asked for, ``top`` where it ends.
    """

    base: Chart
    link: tuple[Spot, Spot] | None
    panel: Box
    ranks: LogAxis
    curves: tuple[Curve, ...]
    asked: tuple[float, float] | None
    words: str
    top: float


def scaling_chart_of(
    scaling: Scaling, *, width_pt: float = 720.0, height_pt: float = 650.0
) -> ScalingChart:
    """The picture of a training step on several ranks.

    Args:
        scaling: what to draw.
        width_pt: the picture's width in points.
        height_pt: its height in points.
    """
    subject = _subject(scaling)
    base = composed(
        subject,
        Extras(below_pt=_PANEL_PT, names_lines=False),
        labels=_LABELS,
        width_pt=width_pt,
        height_pt=height_pt,
    )
    base = replace(
        base,
        x=replace(base.x, title="FLOP per byte (of memory, or over the link)"),
        # Sizes of marks say nothing here.
        legend=tuple(each for each in base.legend if each.style is not None),
    )
    foot = foot_pt(subject)
    panel = Box(base.x.start_pt, foot + 34, base.x.end_pt, foot + _PANEL_PT - 34)
    numbers = [each.ranks for each in scaling.points]
    ranks = LogAxis(
        title="ranks",
        low=max(1, min(numbers)) / 1.1,
        high=max(numbers) * 1.1,
        start_pt=panel.left,
        end_pt=panel.right,
    )
    point, curves = scaling.point, tuple(_curves(scaling))
    highest = max((y for curve in curves for _, y in curve.points), default=1.0)
    return ScalingChart(
        base=base,
        link=_link_ends(base),
        panel=panel,
        ranks=ranks,
        curves=curves,
        asked=(point.ranks, point.efficiency) if point.efficiency is not None else None,
        words=f"scaling efficiency: {_efficiency_words(scaling)}",
        # A line at 100 % is not cut.
        top=1.05 * max(1.0, highest),
    )


def _efficiency_words(scaling: Scaling) -> str:
    point = scaling.point
    if point.efficiency is None:
        return "not known, for operators have no times on this hardware"
    ranks = f"{counted(point.ranks, 'rank')}"
    return (
        f"{format_percent(point.efficiency)} on {ranks}, computing {computing(scaling.time_kind)}"
    )


def _subject(scaling: Scaling) -> Subject:
    is_bound = scaling.time_kind == "bound"
    times = "bounds: real steps stand lower" if is_bound else "measured operators, and the link"
    return Subject(
        names=f"A training step of {printable(scaling.model)} on several ranks",
        machine=machine_words(
            scaling.analysis,
            f"link {scaling.wire.words}" if scaling.wire else "no link",
            f"points: {times}",
        ),
        provenance=_link_provenance(scaling) + provenance_words(scaling.analysis.hardware),
        height="FLOP/s of a rank (FLOP / time of the step)",
        lines=_lines(scaling),
        points=tuple(_points(scaling)),
        look={_STEP: Style(BLUE, "o"), _ASKED: Style(VERMILION, "o")},
    )


def _link_provenance(scaling: Scaling) -> str:
    """Where the link is from, before what may be cut."""
    wire = scaling.wire
    if wire is None:
        return ""
    return f"Link: {printable(' '.join(filter(None, (wire.name, wire.note))))} · "


def _lines(scaling: Scaling) -> RoofLines:
    """The machine's lines, and the link as one more diagonal."""
    lines = roof_lines(scaling.analysis, "in use")
    if scaling.wire is None:
        return lines
    rate, top = scaling.wire.byte_per_s, lines.main_top_flop_per_s
    highest = max((each.flop_per_s for each in lines.ceilings), default=None)
    link = Diagonal(
        label=f"{LINK} {scaling.wire.words.partition(' each')[0]}",
        level=LINK,
        byte_per_s=rate,
        ridge_flop_per_byte=top / rate if top else None,
        cut_flop_per_byte=highest / rate if highest else None,
    )
    return replace(lines, diagonals=(*lines.diagonals, link))


def _points(scaling: Scaling) -> Iterable[Point]:
    """Steps by ranks, what was asked for first: it has a name for certain."""
    order = sorted(scaling.points, key=lambda each: each.ranks != scaling.settings.ranks)
    for each in order:
        if not each.flop or not each.step_s or not each.link_byte:
            continue
        is_asked = each.ranks == scaling.settings.ranks
        yield Point(
            name=f"{each.ranks} ranks",
            op="step",
            type=_ASKED if is_asked else _STEP,
            phase="forward",
            count=1,
            flop_per_byte=each.flop / each.link_byte,
            flop_per_s=each.flop / each.step_s,
            share=0.07 if is_asked else 0.03,
            above=False,
        )


def _link_ends(base: Chart) -> tuple[Spot, Spot] | None:
    for link in base.diagonals:
        (x0, y0), (x1, y1) = link.ends(base.x, base.y)
        if link.level == LINK and x1 > x0:
            return (x0, y0), (x1, y1)
    return None


def _curves(scaling: Scaling) -> Iterable[Curve]:
    def curve(
        name: str, colour: str, strokes: tuple[float, ...], of: Sequence[float | None]
    ) -> Curve:
        ranks = [float(each.ranks) for each in scaling.points]
        return Curve(
            name=name,
            colour=colour,
            strokes=strokes,
            points=tuple((x, y) for x, y in zip(ranks, of, strict=True) if y is not None),
        )

    points, alone_s = scaling.points, scaling.alone_s
    without = [
        alone_s / each.step_high_s if alone_s and each.step_high_s else None for each in points
    ]
    words = f"{scaling.settings.algorithm}, these buckets"
    most = [each.efficiency_most for each in points]
    yield curve("best buckets and algorithm", GREY, (5.0, 2.0), most)
    yield curve(words, VERMILION, (), [each.efficiency for each in points])
    yield curve("nothing computed while sending", BLUE, (1.2, 1.6), without)
