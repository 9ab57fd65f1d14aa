"""The pictures of a language model drawn with matplotlib: its stages under the roof, its sweep."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.language.result import Language
from roofline.presentation.charts.labels import Box
from roofline.presentation.charts.language_chart import LABELS, language_chart_of
from roofline.presentation.charts.language_sweep_chart import (
    LanguageSweepChart,
    RateMark,
    can_be_swept,
    language_sweep_chart_of,
)
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.sweep_words import TITLE_PT
from roofline.presentation.drawing import (
    GREY_TEXT,
    INK,
    blank,
    framed,
    paper_over,
    text_at,
    write,
)
from roofline.presentation.figure import draw


def plot_language(
    language: Language,
    *,
    labels: int = LABELS,
    width_inch: float = 10.0,
    height_inch: float = 6.5,
    sweep: bool | None = None,
) -> Figure:
    """The stages of a language model under the roof, or its sweep.

    Args:
        language: what to draw.
        labels: how many parts to name under the roof, the longest first, where there is room.
        width_inch: the picture's width in inches.
        height_inch: its height in inches; that of a sweep follows from its width.
        sweep: whether the sweep is drawn; None: where there is one.
    """
    is_swept = can_be_swept(language)
    if is_swept if sweep is None else sweep and is_swept:
        return draw_language_sweep(language_sweep_chart_of(language, width_pt=72 * width_inch))
    chart = language_chart_of(
        language, labels=labels, width_pt=72 * width_inch, height_pt=72 * height_inch
    )
    return draw(chart)


def draw_language_sweep(chart: LanguageSweepChart) -> Figure:
    """The figure of a sweep over batch or context."""
    figure = blank(chart.width_pt, chart.height_pt)
    frame = Box(chart.x.start_pt, chart.y.start_pt, chart.x.end_pt, chart.y.end_pt)
    axes = framed(figure, frame, chart.x, chart.y)
    for each in chart.lines:
        x, y = zip(*each.points, strict=True)
        strokes = (0, each.strokes) if each.strokes else "solid"
        axes.plot(x, y, color=each.colour, linewidth=1.6, linestyle=strokes, zorder=3)
    for mark in chart.marks:
        _draw_mark(axes, mark)
    for batch, _ in chart.crossings:
        axes.axvline(batch, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
    paper = paper_over(figure)
    for _, label in chart.crossings:
        write(paper, label, on_lines=True)
    ends = sorted(chart.lines, key=lambda each: each.points[-1][1])
    for label, of in zip(chart.labels, ends, strict=True):
        write(paper, label, colour=of.colour)
    top = chart.height_pt - 20
    for place, words in enumerate(chart.title):
        text_at(paper, 12, top - 16 * place, words, TITLE_PT, weight="bold")
    under = top - 16 * len(chart.title) + 1
    text_at(paper, 12, under, chart.subtitle, SMALL_PT, color=GREY_TEXT)
    for place, note in enumerate(reversed(chart.notes)):
        text_at(paper, 12, 10 + 12 * place, note, SMALL_PT, color=GREY_TEXT)
    return figure


def _draw_mark(axes: Axes, mark: RateMark) -> None:
    axes.scatter(
        mark.x,
        mark.tokens_per_s,
        s=30,
        facecolor=mark.colour if mark.is_compute else "white",
        edgecolor=mark.colour,
        linewidth=1.2,
        zorder=4,
    )
    if not mark.fits:
        axes.scatter(mark.x, mark.tokens_per_s, s=70, marker="x", color=INK, linewidth=1, zorder=5)
