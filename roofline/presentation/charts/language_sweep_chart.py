"""A language model over batch and context, as data: tokens/s at the bound, and the crossovers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.analysis.words import machine_words, provenance_words
from roofline.foundation.text import printable
from roofline.foundation.units import format_si
from roofline.language.parts import Stage
from roofline.language.result import Language
from roofline.language.sweep import StageSweep, SweepCell
from roofline.placement import Bound
from roofline.plots.style import roof_styles
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, cut_to, text_box
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.sweep_lines import (
    EDGE_PT,
    LINE_PT,
    NAMES_PT,
    TICKS_PT,
    DesignLine,
    end_labels,
    value_axis,
)
from roofline.presentation.charts.sweep_words import TITLE_PT, wrapped

_HEIGHT_PT = 300.0
_MARK_PT = 11.0


class RateAxis(LogAxis):
    """A logarithmic axis of tokens per second."""

    __slots__ = ()

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """As of any logarithmic axis, thousands with a prefix."""
        return tuple((value, format_si(value, "", 1)) for value, _ in super().ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMark:
    """A cell of the sweep: filled where it is compute-bound, crossed where it does not fit."""

    x: float
    tokens_per_s: float
    colour: str
    is_compute: bool
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSweepChart:
    """A picture of ``width_pt`` x ``height_pt``: a line for each stage and value of one axis.

    ``crossings`` are the values of x from which on compute binds, with words.
    """

    width_pt: float
    height_pt: float
    title: tuple[str, ...]
    subtitle: str
    x: LogAxis
    y: LogAxis
    lines: tuple[DesignLine, ...]
    labels: tuple[Label, ...]
    marks: tuple[RateMark, ...]
    crossings: tuple[tuple[float, Label], ...]
    notes: tuple[str, ...]


def can_be_swept(language: Language) -> bool:
    """Whether there is a sweep with rates to draw."""
    sweep = language.sweep
    return (
        sweep is not None
        and max(len(sweep.batches), len(sweep.contexts)) > 1
        and all(each.tokens_per_s for each in sweep.cells)
    )


def language_sweep_chart_of(language: Language, *, width_pt: float = 720.0) -> LanguageSweepChart:
    """The picture of a sweep; see `can_be_swept`.

    Args:
        language: what to draw.
        width_pt: the picture's width in points.
    """
    sweep = language.sweep
    assert sweep is not None
    by_batch = len(sweep.batches) > 1
    stages: list[Stage] = list(dict.fromkeys(each.stage for each in sweep.cells))
    rows = _rows(sweep, stages, by_batch=by_batch)
    colours = roof_styles(len(rows))
    lines = [
        DesignLine(
            name=name,
            colour=style.colour,
            strokes=(4.0, 2.0) if cells[0].stage == "prefill" and len(stages) > 1 else (),
            points=tuple((_x(each, by_batch), each.tokens_per_s or 0.0) for each in cells),
        )
        for (name, cells), style in zip(rows, colours, strict=True)
    ]
    room = width_pt - 2 * EDGE_PT
    notes = _notes(language)
    foot = EDGE_PT + 12 * len(notes)
    frame = Box(
        EDGE_PT + TICKS_PT + 12,
        foot + TICKS_PT,
        width_pt - EDGE_PT - NAMES_PT,
        foot + TICKS_PT + _HEIGHT_PT,
    )
    values = [float(each) for each in (sweep.batches if by_batch else sweep.contexts)]
    rates = [rate for each in lines for _, rate in each.points]
    x = value_axis("batch (sequences)" if by_batch else "context (tokens)", values, frame)
    y = RateAxis(
        title="tokens/s of all sequences, at most",
        low=min(rates) / 1.4,
        high=max(max(rates) * 1.6, 4 * min(rates)),
        start_pt=frame.bottom,
        end_pt=frame.top,
    )
    title = wrapped(_title(language, by_batch), room, TITLE_PT)
    return LanguageSweepChart(
        width_pt=width_pt,
        height_pt=frame.top + 18 + LINE_PT * (len(title) + 1),
        title=title,
        subtitle=cut_to(machine_words(language.stages[0].analysis), room, SMALL_PT),
        x=x,
        y=y,
        lines=tuple(lines),
        labels=end_labels(lines, y, frame),
        marks=tuple(
            _mark(cell, _x(cell, by_batch), style.colour)
            for (_, cells), style in zip(rows, colours, strict=True)
            for cell in cells
        ),
        crossings=_crossings(sweep, x, frame) if by_batch else (),
        notes=tuple(cut_to(each, room, SMALL_PT) for each in notes),
    )


def _rows(
    sweep: StageSweep, stages: Sequence[Stage], *, by_batch: bool
) -> list[tuple[str, list[SweepCell]]]:
    """The cells of each line that have a rate, with its name."""
    others = sweep.contexts if by_batch else sweep.batches
    rows: list[tuple[str, list[SweepCell]]] = []
    for stage in stages:
        for other in others:
            cells = [
                each
                for each in sweep.cells
                if each.stage == stage
                and each.tokens_per_s is not None
                and other == (each.context if by_batch else each.batch)
            ]
            if not cells:
                continue
            what = f"{other:,} tokens" if by_batch else f"batch {other:,}"
            rows.append((f"{stage}, {what}", cells))
    return rows


def _x(cell: SweepCell, by_batch: bool) -> float:
    return float(cell.batch if by_batch else cell.context)


def _mark(cell: SweepCell, x: float, colour: str) -> RateMark:
    return RateMark(
        x=x,
        tokens_per_s=cell.tokens_per_s or 0.0,
        colour=colour,
        is_compute=cell.bound is Bound.COMPUTE,
        fits=cell.fit != "does not fit",
    )


def _crossings(sweep: StageSweep, x: LogAxis, frame: Box) -> tuple[tuple[float, Label], ...]:
    """The crossovers within the axes, their words below each other."""
    found: list[tuple[float, Label]] = []
    for each in sweep.crossovers:
        batch = each.batch
        if batch is None or not x.low < batch < x.high or batch == min(sweep.batches):
            continue
        text = f"{each.stage}, {each.context:,} tokens: compute from batch {batch:,}"
        y = frame.bottom + _MARK_PT * (len(found) + 1)
        box = text_box(text, x.pt(batch), y, SMALL_PT)
        shift = max(0.0, frame.left - box.left) - max(0.0, box.right - frame.right)
        box = Box(box.left + shift, box.bottom, box.right + shift, box.top)
        found.append((float(batch), Label(text=text, box=box, size_pt=SMALL_PT)))
    return tuple(found)


def _title(language: Language, by_batch: bool) -> str:
    over = "batch" if by_batch else "context"
    return f"{printable(language.model)} over {over}, as its architecture asks for it"


def _notes(language: Language) -> tuple[str, ...]:
    sweep = language.sweep
    assert sweep is not None
    notes = [
        "filled: compute takes most of the bound; hollow: memory does",
        provenance_words(language.hardware),
    ]
    if any(each.fit == "does not fit" for each in sweep.cells):
        notes.insert(1, "crossed: does not fit into the memory there is")
    return tuple(notes)
