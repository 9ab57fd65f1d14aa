"""The roof of a machine by itself: the ceilings worth a line, its memory levels, its ridges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.foundation.dtypes import dtype
from roofline.foundation.text import printable
from roofline.machine.hardware import HardwareProfile
from roofline.placement import ComputeRoof, LevelRoof, Roof, ridge_flop_per_byte
from roofline.plots.roof import Ceiling, Diagonal
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.hardware_lines import RoofLine, lines_of_roof
from roofline.presentation.charts.labels import Box, Label, text_width_pt
from roofline.presentation.charts.lettering import (
    CEILING_GAP_PT,
    SMALL_PT,
    TurnedText,
    ceiling_labels,
    diagonal_labels,
    ridge_labels,
)
from roofline.presentation.reports.hardware_summary import memory_rate

_LINE_PT = 1.6 * SMALL_PT


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofPanel:
    """The roof in its frame; labels belong to lines and diagonals in their order.

    ``alone`` are the diagonals of one thread, which have no words: their level's stand next to
    them.
    """

    x: LogAxis
    y: LogAxis
    lines: tuple[RoofLine, ...]
    line_labels: tuple[Label, ...]
    diagonals: tuple[Diagonal, ...]
    diagonal_labels: tuple[TurnedText, ...]
    alone: tuple[Diagonal, ...]
    ridges: tuple[tuple[float, float, Label], ...]

    @property
    def frame(self) -> Box:
        """The box of the axes."""
        return Box(self.x.start_pt, self.y.start_pt, self.x.end_pt, self.y.end_pt)

    @property
    def kinds(self) -> tuple[Literal["hardware", "library", "alone"], ...]:
        """Which sorts of lines there are, for the legend."""
        found = {"alone" if each.alone else each.ceiling.kind for each in self.lines}
        found |= {"hardware"} if self.diagonals else set()
        found |= {"alone"} if self.alone else set()
        return tuple(each for each in ("hardware", "library", "alone") if each in found)


def roof_panel(profile: HardwareProfile, area: Box) -> RoofPanel:
    """The roof of `profile` in `area`, which holds its axes' words as well."""
    roof = Roof(profile, profile.threads)
    single = Roof(profile, 1) if profile.threads > 1 and _knows_one_thread(profile) else None
    lines = lines_of_roof(profile, roof, single)
    top = roof.units[0] if roof.units else None
    diagonals = tuple(_diagonal(level, top) for level in roof.levels)
    top_alone = single.units[0] if single and single.units else None
    alone = tuple(_diagonal(level, top_alone) for level in single.levels) if single else ()
    room = text_width_pt("M", SMALL_PT)
    for each in lines:
        room = max(room, CEILING_GAP_PT + text_width_pt(each.ceiling.label, SMALL_PT))
    frame = Box(area.left + 52, area.bottom + 36, area.right - room, area.top)
    x, y = _axes([each.ceiling for each in lines], (*diagonals, *alone), frame)
    main = roof.compute(dtype("float32")) or top
    ridges = _ridges(main, roof.levels, x, y)
    return RoofPanel(
        x=x,
        y=y,
        lines=lines,
        line_labels=ceiling_labels([each.ceiling for each in lines], x, y, low_pt=frame.bottom),
        diagonals=diagonals,
        diagonal_labels=_words_along(diagonals, alone, ridges, x, y),
        alone=alone,
        ridges=ridges,
    )


def _knows_one_thread(profile: HardwareProfile) -> bool:
    return any(each.threads == 1 for each in profile.compute) and all(
        any(each.threads == 1 for each in level.bandwidth) for level in profile.memory
    )


def _diagonal(level: LevelRoof, top: ComputeRoof | None) -> Diagonal:
    cut = ridge_flop_per_byte(top, level) if top else None
    return Diagonal(
        label=memory_rate(level),
        level=printable(level.level.name),
        byte_per_s=level.byte_per_s,
        ridge_flop_per_byte=cut,
        cut_flop_per_byte=cut,
    )


def _axes(
    ceilings: Sequence[Ceiling], diagonals: Sequence[Diagonal], frame: Box
) -> tuple[LogAxis, LogAxis]:
    """Axes that hold every ceiling, and each ridge with some room around."""
    cuts = [each.cut_flop_per_byte for each in diagonals if each.cut_flop_per_byte]
    # The lowest ceiling meets the nearest memory first.
    lowest = min((each.flop_per_s for each in ceilings if each.kind == "hardware"), default=None)
    nearest = max((each.byte_per_s for each in diagonals), default=None)
    first = [lowest / nearest] if lowest and nearest else []
    low = min((each / 3 for each in (*(cut / 4 for cut in cuts), *first)), default=0.01)
    high = max((4 * cut for cut in cuts), default=1000.0)
    rates = [each.flop_per_s for each in ceilings]
    starts = [low * each.byte_per_s for each in diagonals]
    bottom = min([*rates, *starts])
    top = 2.2 * max(rates, default=high * max((each.byte_per_s for each in diagonals), default=1.0))
    x = LogAxis(
        title="arithmetic intensity (FLOP per byte crossing a memory level)",
        low=low,
        high=max(high, 10 * low),
        start_pt=frame.left,
        end_pt=frame.right,
    )
    y = LogAxis(
        title="FLOP/s",
        low=bottom / 1.6,
        high=max(top, 10 * bottom),
        start_pt=frame.bottom,
        end_pt=frame.top,
    )
    return x, y


def _words_along(
    diagonals: Sequence[Diagonal],
    alone: Sequence[Diagonal],
    ridges: Sequence[tuple[float, float, Label]],
    x: LogAxis,
    y: LogAxis,
) -> tuple[TurnedText, ...]:
    """The words of each diagonal above it, or below it where another line runs close above."""
    angle = math.atan2(y.pt_per_decade, x.pt_per_decade)

    def above(one: Diagonal, other: Diagonal) -> float:
        """How far `other` runs above `one`, in points across both."""
        return math.cos(angle) * y.pt_per_decade * math.log10(other.byte_per_s / one.byte_per_s)

    down = (1.6 * SMALL_PT * math.sin(angle), -1.6 * SMALL_PT * math.cos(angle))
    hidden = [label.box for _, _, label in ridges]
    placed: list[TurnedText] = []
    for each in diagonals:
        far = [above(each, other) for other in (*diagonals, *alone) if other is not each]
        crowded = min((by for by in far if by >= 0), default=math.inf) < _LINE_PT
        free = min((-by for by in far if by < 0), default=math.inf) > _LINE_PT
        right, up = down if crowded and free else (0.0, 0.0)
        # A place above the line that is free of what lies lower is free below the line.
        (text,) = diagonal_labels([each], x, y, avoid=[_moved(box, -right, -up) for box in hidden])
        boxes = tuple(_moved(box, right, up) for box in text.boxes)
        placed.append(replace(text, x_pt=text.x_pt + right, y_pt=text.y_pt + up, boxes=boxes))
        hidden += boxes
    return tuple(placed)


def _moved(box: Box, right: float, up: float) -> Box:
    return Box(box.left + right, box.bottom + up, box.right + right, box.top + up)


def _ridges(
    main: ComputeRoof | None, levels: Sequence[LevelRoof], x: LogAxis, y: LogAxis
) -> tuple[tuple[float, float, Label], ...]:
    """Where each level meets the ceiling that most models stand under, with its intensity."""
    if main is None:
        return ()
    ridges = [ridge_flop_per_byte(main, level) for level in levels]
    labels = ridge_labels(ridges, main.flop_per_s, x, y)
    return tuple(
        (ridge, main.flop_per_s, label) for ridge, label in zip(ridges, labels, strict=True)
    )
