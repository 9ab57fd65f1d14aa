"""The roofs of several machines as lines on common axes, and their words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.analysis import Analysis, OperatorRow
from roofline.design.machine_comparison import MachineSummary
from roofline.foundation.text import printable
from roofline.foundation.units import format_flop_per_s
from roofline.placement import Roof, ridge_flop_per_byte
from roofline.plots.roof import Ceiling, Diagonal, Spot
from roofline.plots.style import RoofStyle
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label
from roofline.presentation.charts.lettering import (
    SMALL_PT,
    TurnedText,
    ceiling_labels,
    diagonal_labels,
)

_FRAME_PT = 300.0
_CELL = 0.01
"""Decades within which operators share a spot."""
_TOGETHER_PT = 1.0
"""Lines nearer than this hide each other, and are drawn in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """A line that shares its place: of every ``of`` strokes there, the ``turn``-th is its own."""

    turn: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRoof:
    """A machine's roof for this model: the ceiling it computes under, and its memory levels.

    ``label`` names the ceiling. ``diagonals`` run from the nearest level to the farthest, of which
    the last belongs to every machine; ``dots`` are all the operators, in FLOP/byte and FLOP/s.
    """

    name: str
    style: RoofStyle
    ceiling: Ceiling | None
    label: Label | None
    diagonals: tuple[Diagonal, ...]
    dots: tuple[Spot, ...]
    ceiling_turns: Turns
    diagonal_turns: Turns


def roof_of(analysis: Analysis, machine: MachineSummary, style: RoofStyle) -> MachineRoof:
    """The roof of a machine for the model, its words and turns not yet known."""
    name, compute = printable(machine.name), machine.compute
    levels = Roof(analysis.hardware, analysis.threads).levels
    fastest = max((level.bytes_per_s for level in levels), default=None)
    ceiling = None
    if compute is not None:
        rate = compute.flop_per_s
        ceiling = Ceiling(
            label=f"{name} {format_flop_per_s(rate)}",
            kind="hardware",
            flop_per_s=rate,
            start_flop_per_byte=rate / fastest if fastest else None,
            main=True,
        )

    def diagonal(level: int) -> Diagonal:
        ridge = ridge_flop_per_byte(compute, levels[level]) if compute else None
        return Diagonal(
            label=f"{name} {printable(levels[level].level.name)}",
            level=printable(levels[level].level.name),
            bytes_per_s=levels[level].bytes_per_s,
            ridge_flop_per_byte=ridge,
            cut_flop_per_byte=ridge,
        )

    return MachineRoof(
        name=name,
        style=style,
        ceiling=ceiling,
        label=None,
        diagonals=tuple(map(diagonal, range(len(levels)))),
        dots=_spots(analysis),
        ceiling_turns=Turns(),
        diagonal_turns=Turns(),
    )


def spot_of(row: OperatorRow) -> Spot | None:
    """Where an operator stands: what its bound lets it attain; None: it has no place."""
    intensity, rate = row.intensity_flop_per_byte, row.attainable_flop_per_s
    return (intensity, rate) if row.flop and intensity and rate else None


def _spots(analysis: Analysis) -> tuple[Spot, ...]:
    """Where the operators stand, each spot once, as nearly as can be seen."""
    found: dict[tuple[int, int], Spot] = {}
    for spot in map(spot_of, analysis.operators):
        if spot is not None:
            cell = (round(math.log10(spot[0]) / _CELL), round(math.log10(spot[1]) / _CELL))
            found.setdefault(cell, spot)
    return tuple(found.values())


def intensity_axis(roofs: Sequence[MachineRoof], left: float, right: float) -> LogAxis:
    """Holds every operator, and every ridge with some room around."""
    ridges = [
        each.ridge_flop_per_byte
        for roof in roofs
        for each in roof.diagonals
        if each.ridge_flop_per_byte
    ]
    places = [place for roof in roofs for place, _ in roof.dots]
    low = min([*places, *(ridge / 8 for ridge in ridges)], default=0.01) / 1.6
    high = max([*(2 * place for place in places), *(3 * each for each in ridges)], default=1000.0)
    return LogAxis(
        title="arithmetic intensity (FLOP per byte crossing the operator's memory level)",
        low=low,
        high=max(high, 10 * low),
        start_pt=left,
        end_pt=right,
    )


def rate_axis(roofs: Sequence[MachineRoof], start: float) -> LogAxis:
    """Holds every operator and ceiling."""
    rates = [rate for roof in roofs for _, rate in roof.dots]
    peaks = [roof.ceiling.flop_per_s for roof in roofs if roof.ceiling]
    bottom = min([*rates, *(peak / 10 for peak in peaks)], default=1e9) / 1.8
    top = 1.6 * max([*peaks, *rates], default=1e12)
    return LogAxis(
        title="FLOP/s (FLOP / bound time)",
        low=bottom,
        high=max(top, 10 * bottom),
        start_pt=start,
        end_pt=start + _FRAME_PT,
    )


def labelled(roofs: Sequence[MachineRoof], x: LogAxis, y: LogAxis) -> list[MachineRoof]:
    """The roofs with the words of their ceilings, right of the axes."""
    ceilings = [roof.ceiling for roof in roofs if roof.ceiling]
    labels = iter(ceiling_labels(ceilings, x, y, low_pt=y.start_pt))
    return [replace(roof, label=next(labels) if roof.ceiling else None) for roof in roofs]


def in_turns(roofs: Sequence[MachineRoof], x: LogAxis, y: LogAxis) -> tuple[MachineRoof, ...]:
    """The roofs, with lines in the same place drawn in turns, so that each can be seen."""
    heights = [y.pt(roof.ceiling.flop_per_s) if roof.ceiling else None for roof in roofs]
    # Where diagonals of one slope stand is told by where they cross any one intensity.
    slopes = [
        y.pt(x.low * roof.diagonals[-1].bytes_per_s) if roof.diagonals else None for roof in roofs
    ]
    return tuple(
        replace(roof, ceiling_turns=ceiling, diagonal_turns=diagonal)
        for roof, ceiling, diagonal in zip(roofs, _turns(heights), _turns(slopes), strict=True)
    )


def _turns(places: Sequence[float | None]) -> list[Turns]:
    known = sorted((place, i) for i, place in enumerate(places) if place is not None)
    groups: list[list[tuple[float, int]]] = []
    for place, i in known:
        if not groups or place - groups[-1][0][0] >= _TOGETHER_PT:
            groups.append([])
        groups[-1].append((place, i))
    turns = [Turns()] * len(places)
    for group in groups:
        for turn, (_, i) in enumerate(group):
            turns[i] = Turns(turn=turn, of=len(group))
    return turns


_MOST_NAMED = 6
"""Lines of caches that have room for their names."""


def level_labels_of(
    roofs: Sequence[MachineRoof], x: LogAxis, y: LogAxis, *, avoid: Sequence[Box]
) -> tuple[TurnedText, ...]:
    """The names of memory levels nearer than the farthest, along their lines, off `avoid`.

    None where there are too many for each to stand beside its own line.
    """
    nearer = [line for roof in roofs for line in roof.diagonals[:-1]]
    if len(nearer) > _MOST_NAMED:
        return ()
    if sum(len(roof.diagonals) > 1 for roof in roofs) == 1:
        # Only one machine has such levels, so they need not say whose they are.
        nearer = [replace(line, label=line.level) for line in nearer]
    lines = [box for roof in roofs for line in roof.diagonals for box in _along(line, x, y)]
    return diagonal_labels(nearer, x, y, avoid=[*avoid, *lines])


def _along(diagonal: Diagonal, x: LogAxis, y: LogAxis) -> list[Box]:
    """Small boxes on a line, which words keep off."""
    (x0, y0), (x1, y1) = diagonal.ends(x, y)
    start, end = (x.pt(x0), y.pt(y0)), (x.pt(x1), y.pt(y1))
    count = max(1, round(math.dist(start, end) / SMALL_PT))
    steps = [(i + 0.5) / count for i in range(count)]
    return [
        Box.around(
            start[0] + step * (end[0] - start[0]), start[1] + step * (end[1] - start[1]), 2, 2
        )
        for step in steps
    ]
