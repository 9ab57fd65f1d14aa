"""The stages of a language model under the roof, as data: each part of each stage a point.

Points are what the architecture asks for, so that prefill and decode of one model stand on the same
roof whatever operators a library calls. Nothing is drawn here.
"""

from __future__ import annotations

from roofline.analysis.roof import roof_lines
from roofline.analysis.words import machine_words, provenance_words
from roofline.foundation.text import printable
from roofline.language.placing import PlacedPart
from roofline.language.result import Language
from roofline.language.stages import StageResult
from roofline.language.verdict import rate_number
from roofline.placement import Bound
from roofline.plots.roof import Point
from roofline.plots.style import BLUE, VERMILION, Style
from roofline.presentation.charts.chart import Chart, Extras, composed
from roofline.presentation.charts.subjects import Subject

LOOK = {"prefill": Style(VERMILION, "s"), "decode": Style(BLUE, "o")}

LABELS = 16


def language_chart_of(
    language: Language,
    *,
    labels: int = LABELS,
    width_pt: float = 720.0,
    height_pt: float = 468.0,
) -> Chart:
    """The picture of the stages that were asked for.

    Args:
        language: what to draw.
        labels: how many parts to name, the longest first, where there is room.
        width_pt: the picture's width in points.
        height_pt: its height in points.
    """
    points = [point for each in language.stages for point in points_of_stage(each)]
    analysis = language.stages[0].analysis
    tail = ", ".join(
        f"{each.stage} {rate_number(rate.tokens_per_s)}"
        for each in language.stages
        if (rate := each.asked_rate) is not None
    )
    subject = Subject(
        names=f"{printable(language.model)} · batch {language.batch}, {language.context:,} tokens",
        tail=f" · {tail} tokens/s at most" if tail else "",
        machine=machine_words(analysis, "points: parts of each stage, by bounds"),
        provenance=provenance_words(language.hardware),
        height="FLOP/s (FLOP / bound time)",
        lines=roof_lines(analysis, "in use"),
        points=tuple(sorted(points, key=lambda point: -point.share)),
        look=LOOK,
    )
    return composed(subject, Extras(), labels=labels, width_pt=width_pt, height_pt=height_pt)


def points_of_stage(stage: StageResult) -> list[Point]:
    """The parts of a stage that have a place on the axes; sizes are their share of the stage."""
    whole = stage.asked.parts_s or 0.0
    return [
        _point(stage.stage, part, (part.bound_s or 0.0) / whole if whole else 0.0)
        for part in stage.asked.parts
        if _has_place(part)
    ]


def _has_place(part: PlacedPart) -> bool:
    is_known = bool(part.intensity_flop_per_byte and part.attainable_flop_per_s)
    return bool(part.flop) and is_known and part.bound is not Bound.UNKNOWN


def _point(stage: str, part: PlacedPart, share: float) -> Point:
    return Point(
        name=f"{stage}: {part.name}",
        op=part.name,
        type=stage,
        phase="forward",
        count=part.count,
        flop_per_byte=part.intensity_flop_per_byte or 0.0,
        flop_per_s=part.attainable_flop_per_s or 0.0,
        share=share,
        above=False,
    )
