"""The words in the two-layer picture, where they stand, and what its key explains."""

from __future__ import annotations

import math
from collections.abc import Iterator

from roofline.foundation.text import printable
from roofline.foundation.units import format_intensity, format_percent
from roofline.plots.roof import Spot
from roofline.presentation.charts.layers_areas import Frame
from roofline.presentation.charts.layers_key import Kind
from roofline.presentation.charts.layers_lines import LayerLines
from roofline.presentation.charts.layers_losses import loss_words
from roofline.presentation.charts.layers_shades import shown_of
from roofline.presentation.charts.layers_software import Reached, Software

_THICK_PT = 9.0
"""An area less high than this has no words in it."""

_MOST_WORDS = 4


def kinds_of(lines: LayerLines, software: Software | None) -> tuple[tuple[Kind, str], ...]:
    """What the key explains: only what there is."""
    found: list[tuple[Kind, str]] = []
    if lines.is_measured:
        found.append(("measured", "measured roof"))
    if any(each.paper_per_s is not None for each in lines.all):
        found.append(("paper", "roof on paper"))
    if lines.library:
        found.append(("library", "what the library reaches"))
    if any((each.loss or 0.0) > 0 for each in lines.all):
        found.append(("loss", "lost by the hardware: on paper, but not measured"))
    if shown_of(software, lines) and software is not None:
        whose = "predicted to be reached" if software.kind == "predicted" else "reached"
        found.append(("software", f"lost by software: under the roof, but not {whose}"))
        found.append(("reached", f"{whose} by the operators there, on average"))
    elif software is None and lines.library_gaps:
        found.append(("software", "lost by software: measured, but not reached by the library"))
    return tuple(found)


def library_note(lines: LayerLines) -> str:
    """How much of the measured ceilings the library's products reach; ``""``: nothing is known."""
    parts = [
        f"{format_percent(best.flop_per_s / each.per_s)} of {each.label} ({best.label})"
        for each, best in lines.library_gaps
    ]
    return f"Software: the library's products reach {', '.join(parts)}" if parts else ""


def words_of_losses(frame: Frame, lines: LayerLines) -> Iterator[tuple[str, Spot]]:
    """The losses at their areas, where those are high enough, and the ridges on paper."""
    top = max((each.per_s for each in lines.compute), default=frame.y.high)
    for each in lines.all:
        if each.loss is None or each.paper_per_s is None or each.measured_per_s is None:
            continue
        middle = math.sqrt(each.paper_per_s * each.measured_per_s)
        thick = frame.y.pt(each.paper_per_s) - frame.y.pt(each.measured_per_s)
        if thick < _THICK_PT:
            continue
        if each.what == "compute":
            yield loss_words(each.loss), (frame.x.value(frame.x.end_pt - 24), middle)
        else:
            start = max(frame.x.low, frame.y.low / middle)
            x = math.sqrt(start * min(top / middle, frame.x.high))
            yield loss_words(each.loss), (x, x * middle)
    for ridge in lines.paper_ridges:
        if any(
            frame.x.pt(ridge[0]) - frame.x.pt(each.ridge_flop_per_byte) > _THICK_PT
            or abs(frame.y.pt(ridge[1]) - frame.y.pt(each.ridge_flop_per_byte * each.byte_per_s))
            > _THICK_PT
            for each in lines.lines.diagonals
            if each.ridge_flop_per_byte
        ):
            yield f"{format_intensity(ridge[0])} on paper", ridge


def words_of_software(
    software: Software | None, shown: tuple[Reached, ...], lines: LayerLines
) -> Iterator[tuple[str, Spot]]:
    """How much of their line the operators reach, at the outer end of the line that they reach."""
    if software is None:
        return
    what = "reached" if software.kind == "measured" else "predicted"
    for each in shown[:_MOST_WORDS]:
        roof = lines.rates[each.ceiling]
        x = each.low_flop_per_byte if roof.what == "memory" else each.high_flop_per_byte
        spot = (x or 1.0, each.efficiency * roof.flop_per_s(x or 1.0))
        yield f"{format_percent(each.efficiency)} of {printable(roof.subject)} {what}", spot
