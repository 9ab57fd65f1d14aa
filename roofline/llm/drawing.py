"""Plots of `llm`: stages under the roofline, and sweeps."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from roofline.analysis.points import roof_lines
from roofline.analysis.words import machine_text, provenance_text
from roofline.llm.result import Language
from roofline.llm.stages import StageResult, rate_text
from roofline.llm.sweep import StageSweep, SweepCell
from roofline.machine.roof import line_name
from roofline.placement import Bound
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.roof import Point
from roofline.plots.roofline import draw_roofline, log_axes, name_ends
from roofline.plots.style import BLUE, GREY, INK, SMALL_PT, VERMILION, Style, roof_styles

_DOT = {"marker": "o", "linestyle": "none", "zorder": 4}
_MARKS: dict[Bound, dict[str, Any]] = {
    Bound.COMPUTE: {"label": "compute-bound", **_DOT},
    Bound.MEMORY: {"label": "memory-bound", "markerfacecolor": "white", **_DOT},
    Bound.UNKNOWN: {"label": "limiter unknown", "markerfacecolor": "white", **_DOT, "marker": "d"},
}
_BEYOND: dict[str, Any] = {
    "label": "does not fit into memory",
    "color": INK,
    "markersize": 8,
    **_DOT,
    "marker": "x",
    "zorder": 5,
}
_LOOK = {"prefill": Style(VERMILION, "s"), "decode": Style(BLUE, "o")}


def draw_stages(figure: Figure, language: Language, labels: int) -> None:
    """Draw the architecture's parts of all stages under one roofline."""
    analysis = language.stages[0].analysis
    points = [point for each in language.stages for point in points_of(each)]
    handles = draw_roofline(
        figure.subplots(),
        roof_lines(analysis, "in use"),
        sorted(points, key=lambda point: -point.share),
        look=_LOOK,
        labels=labels,
        rate="FLOP/s (FLOP / time at ceiling)",
    )
    rates = ", ".join(
        f"{each.stage} ≤ {each.asked_rate.words}" for each in language.stages if each.asked_rate
    )
    title_figure(
        figure,
        line_name(language.model) + (f": {rates} tokens/s" if rates else ""),
        machine_text(
            analysis,
            f"batch {language.batch}, {language.context:,} tokens",
            "parts of the architecture",
        ),
    )
    foot_figure(figure, handles, [provenance_text(language.hardware)])


def points_of(stage: StageResult) -> list[Point]:
    """Return the parts of a stage with FLOP, bytes and time, sized by their time share."""
    whole_s = stage.asked.parts_s
    return [
        Point(
            name=f"{stage.stage}: {part.name}",
            op=part.name,
            type=stage.stage,
            phase="forward",
            count=part.count,
            flop_per_byte=part.intensity_flop_per_byte,
            flop_per_s=part.attainable_flop_per_s,
            share=(part.min_time_s or 0.0) / whole_s if whole_s else 0.0,
            above=False,
        )
        for part in stage.asked.parts
        if part.flop
        and part.intensity_flop_per_byte
        and part.attainable_flop_per_s
        and part.bound is not Bound.UNKNOWN
    ]


def draw_sweep(figure: Figure, language: Language, sweep: StageSweep) -> None:
    """Draw tokens/s over batch, or over context if only that is swept."""
    by_batch = len(sweep.batches) > 1
    axis, other = ("batch", "context") if by_batch else ("context", "batch")
    values = sweep.batches if by_batch else sweep.contexts
    others = sweep.contexts if by_batch else sweep.batches
    rates = [each.tokens_per_s for each in sweep.cells if each.tokens_per_s]
    axes = figure.subplots()
    log_axes(
        axes,
        # Wide enough for a power of two.
        (values[0] / 1.42, values[-1] * 1.42),
        (min(rates) / 1.4, max(max(rates) * 1.6, 4 * min(rates))),
    )
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rate_text(value, 1)))
    ends: list[tuple[float, str, str]] = []
    for stage in sweep.stages:
        for value, style in zip(others, roof_styles(len(others)), strict=True):
            cells = [
                each
                for each in sweep.cells
                if each.stage == stage and getattr(each, other) == value
            ]
            dashed = stage == "prefill" and len(sweep.stages) > 1
            _draw_line(axes, cells, axis, style.colour, dashed=dashed)
            what = f"{value:,} tokens" if by_batch else f"batch {value:,}"
            ends.append((cells[-1].tokens_per_s or 0.0, f"{stage}, {what}", style.colour))
    name_ends(axes, ends)
    if by_batch:
        _draw_crossovers(axes, sweep)
    prepare_axes(
        axes,
        x="batch (sequences)" if by_batch else "context (tokens)",
        y="max tokens/s of all sequences",
    )
    title_figure(
        figure,
        f"{line_name(language.model)}: max tokens/s over {axis}",
        machine_text(language.stages[0].analysis, "model minimum times of the architecture"),
    )
    limiters = {each.bound for each in sweep.cells}
    marks = [{"color": GREY, **style} for bound, style in _MARKS.items() if bound in limiters]
    if any(each.fit == "does not fit" for each in sweep.cells):
        marks.append(_BEYOND)
    handles = [Line2D([], [], **each) for each in marks]
    foot_figure(figure, handles, [provenance_text(language.hardware)])


def _draw_line(
    axes: Axes, cells: Sequence[SweepCell], axis: str, color: str, *, dashed: bool
) -> None:
    def draw(of: Sequence[SweepCell], **style: Any) -> None:
        x, y = [getattr(each, axis) for each in of], [each.tokens_per_s or 0.0 for each in of]
        axes.plot(x, y, **style)

    draw(cells, color=color, linewidth=1.6, linestyle=(0, (4, 2)) if dashed else "-")
    for bound, style in _MARKS.items():
        draw([each for each in cells if each.bound is bound], color=color, **style)
    draw([each for each in cells if each.fit == "does not fit"], **_BEYOND)


def _draw_crossovers(axes: Axes, sweep: StageSweep) -> None:
    """Mark the smallest compute-bound batches within the axes."""
    low, high = sweep.batches[0], sweep.batches[-1]
    found: dict[tuple[str, int], list[str]] = {}
    for each in sweep.crossovers:
        if each.batch and low < each.batch <= high:
            found.setdefault((each.stage, each.batch), []).append(f"{each.context:,}")
    for number, ((stage, batch), contexts) in enumerate(found.items()):
        axes.axvline(batch, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
        is_right = batch**2 > low * high
        axes.annotate(
            f"{stage}, {', '.join(contexts)} tokens: compute-bound from batch {batch:,}",
            (batch, 0.0),
            (-4 if is_right else 4, 6 + 11 * number),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="right" if is_right else "left",
            fontsize=SMALL_PT,
            color=INK,
            zorder=6,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
            **words(),
        )
