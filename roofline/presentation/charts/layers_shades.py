"""What is shaded in the two-layer picture: the losses of the hardware, and those of software."""

from __future__ import annotations

from collections.abc import Iterator

from roofline.foundation.text import printable
from roofline.presentation.charts.layers_areas import (
    Area,
    Ends,
    Frame,
    beside_diagonal,
    between_intensities,
    under_ceiling,
    widened,
)
from roofline.presentation.charts.layers_lines import LayerLines
from roofline.presentation.charts.layers_software import Reached, Software

_LEAST_SHARE = 0.02
"""Operators under one ceiling that take less of the time have no area: they are in the words."""


def losses(frame: Frame, lines: LayerLines) -> Iterator[Area]:
    """What the hardware loses: between paper and measurement, wherever both are known."""
    top = max((each.per_s for each in lines.compute), default=None)
    for each in lines.all:
        if each.paper_per_s is None or each.measured_per_s is None:
            continue
        low, high = each.measured_per_s, each.paper_per_s
        if each.what == "compute":
            corners = under_ceiling(frame, low, high, lines.fastest_on_paper)
        else:
            corners = beside_diagonal(frame, low, high, top)
        if corners:
            yield Area(kind="loss", label=each.label, corners=corners)


def shown_of(software: Software | None, lines: LayerLines) -> tuple[Reached, ...]:
    """The ceilings whose operators have an area: they have a place, and take some of the time."""
    if software is None:
        return ()
    return tuple(
        each
        for each in software.reached
        if each.time_s >= _LEAST_SHARE * software.whole_s
        and each.low_flop_per_byte is not None
        and each.efficiency < 1
        and each.ceiling in lines.rates
    )


def unreached(frame: Frame, lines: LayerLines, software: Software | None) -> Iterator[Area]:
    """What software loses: under each line, as far as its operators stand.

    Where no times are known, between the measured ceilings and what the library reaches.
    """
    for each in shown_of(software, lines):
        roof, part = lines.rates[each.ceiling], each.efficiency
        corners = between_intensities(
            frame,
            lambda x, roof=roof, part=part: part * roof.flop_per_s(x),
            roof.flop_per_s,
            _range(frame, lines, each),
        )
        if corners:
            yield Area(kind="software", label=printable(each.ceiling), corners=corners)
    if software is None:
        fastest = lines.fastest_byte_per_s
        for layer, library in lines.library_gaps:
            corners = under_ceiling(frame, library.flop_per_s, layer.per_s, fastest)
            if corners:
                yield Area(kind="software", label=layer.label, corners=corners)


def _range(frame: Frame, lines: LayerLines, each: Reached) -> tuple[float, float]:
    """From which intensity to which the operators under a line stand, no further than its ridge."""
    low, high = each.low_flop_per_byte or 1.0, each.high_flop_per_byte or 1.0
    end = lines.rates[each.ceiling].end_flop_per_byte
    if end is not None and low < end:
        high = min(high, end)
    return widened(frame, (low, high))


def reached_line(frame: Frame, lines: LayerLines, each: Reached) -> Ends:
    roof = lines.rates[each.ceiling]
    low, high = _range(frame, lines, each)
    part = each.efficiency
    return (low, part * roof.flop_per_s(low)), (high, part * roof.flop_per_s(high))
