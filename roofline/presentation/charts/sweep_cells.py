"""A sweep as a heat map: who wins where, and by how much; as data, in points from the lower left.

Each cell has the colour of its winner, the stronger the more it wins by, on a logarithmic scale
that all cells share; white is a draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.design.sweeps.axes import Axis, Grid, point_text, text_of
from roofline.design.sweeps.regions import places_of
from roofline.design.sweeps.result import SweepResult
from roofline.design.sweeps.verdicts import Verdict, factor_text
from roofline.foundation.text import printable
from roofline.plots.style import roof_styles
from roofline.presentation.charts.labels import Box, Label, cut_to, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.sweep_words import (
    TITLE_PT,
    subtitle_of,
    texts_of,
    title_of,
    wrapped,
)

_EDGE_PT = 12.0
_LINE_PT = 16.0
_CELL_PT = 7.6
_LEFT_PT = 46.0
_BELOW_PT = 30.0
_ABOVE_PT = 18.0
_GAP_PT = 14.0
_KEY_LINE_PT = 16.0
_SWATCH_PT = 26.0
_WIDEST_CELL_PT, _NARROWEST_CELL_PT = 84.0, 26.0
_HIGHEST_CELL_PT, _LOWEST_CELL_PT = 34.0, 15.0
_HIGHEST_MAP_PT = 300.0

MOST_FACETS = 12
MOST_CELLS = 100
"""On one side of a map; more would be thinner than its lines."""

_UNKNOWN = "#e4e4e4"
_WEAKEST = 0.10
"""How much of its colour a winner by nothing has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMark:
    """One point: its box, colour, words and their colour.

    A close call ``is_hatched``; one where a design does not fit into memory ``is_crossed``.
    """

    box: Box
    colour: str
    text: str
    ink: str
    is_hatched: bool
    is_crossed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One map: its frame, what stands above it, the names of its axes, and values beside cells."""

    frame: Box
    labels: tuple[Label, ...]
    cells: tuple[CellMark, ...]
    up: Label | None
    """The name of the axis that runs upwards, to be turned; its box is where it stands then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepMap:
    """A picture of ``width_pt`` x ``height_pt``: title, maps, the key below them, notes."""

    width_pt: float
    height_pt: float
    title: tuple[str, ...]
    subtitle: str
    facets: tuple[Facet, ...]
    key: tuple[CellMark, ...]
    key_labels: tuple[Label, ...]
    notes: tuple[str, ...]


def sweep_map_of(result: SweepResult, *, width_pt: float = 720.0) -> SweepMap:
    """The heat map of a sweep: the two longest axes across and up, the others side by side.

    Args:
        result: what to draw.
        width_pt: the picture's width in points; its height follows.
    """
    across, up, others = map_axes(result)
    facets = Grid(axes=others)
    shown = min(facets.count, MOST_FACETS)
    nx, ny = (min(len(axis.values) if axis else 1, MOST_CELLS) for axis in (across, up))
    room = width_pt - 2 * _EDGE_PT
    columns = _columns(shown, nx, room)
    cell_w = min(_WIDEST_CELL_PT, ((room - _GAP_PT * (columns - 1)) / columns - _LEFT_PT) / nx)
    cell_h = max(_LOWEST_CELL_PT, min(_HIGHEST_CELL_PT, _HIGHEST_MAP_PT / ny, 0.62 * cell_w))
    rows = -(-shown // columns)
    notes = tuple(cut_to(each, room, SMALL_PT) for each in _notes(result, facets.count, across, up))
    title = wrapped(title_of(result), room, TITLE_PT)
    key_h = _KEY_LINE_PT * len(result.designs)
    foot = _EDGE_PT + 12 * len(notes) + 4
    block = ny * cell_h + _BELOW_PT + (_ABOVE_PT if others else 0.0)
    top = foot + key_h + 10 + rows * block
    scale = _scale(result.verdicts)
    colours = _colours(len(result.designs))
    found: list[Facet] = []
    for number in range(shown):
        row, column = divmod(number, columns)
        left = _EDGE_PT + column * (nx * cell_w + _LEFT_PT + _GAP_PT) + _LEFT_PT
        bottom = top - (row + 1) * block + _BELOW_PT
        frame = Box(left, bottom, left + nx * cell_w, bottom + ny * cell_h)
        found.append(
            _facet(result, (across, up), facets, number, frame, (cell_w, cell_h), colours, scale)
        )
    marks, labels = _key(result, colours, scale, foot + key_h, room)
    return SweepMap(
        width_pt=width_pt,
        height_pt=top + 12 + _LINE_PT * (len(title) + 1),
        title=title,
        subtitle=cut_to(subtitle_of(result), room, SMALL_PT),
        facets=tuple(found),
        key=marks,
        key_labels=labels,
        notes=notes,
    )


def map_axes(result: SweepResult) -> tuple[Axis, Axis | None, tuple[Axis, ...]]:
    """The axis across, the one up, and those of which each value has a map of its own."""
    across, *rest = result.varied
    up = rest[0] if rest else None
    names = {across.name, up.name if up else ""}
    return across, up, tuple(each for each in result.varied if each.name not in names)


def _columns(count: int, nx: int, room_pt: float) -> int:
    """How many maps stand side by side, their cells as wide as their numbers where that fits."""
    least = nx * _NARROWEST_CELL_PT + _LEFT_PT
    return max(1, min(count, 4, int((room_pt + _GAP_PT) / (least + _GAP_PT))))


def _facet(
    result: SweepResult,
    axes: tuple[Axis, Axis | None],
    facets: Grid,
    number: int,
    frame: Box,
    cell: tuple[float, float],
    colours: Sequence[str],
    scale: float,
) -> Facet:
    across, up = axes
    nx, ny = (min(len(axis.values) if axis else 1, MOST_CELLS) for axis in axes)
    fixed = dict(zip((each.name for each in facets.axes), places_of(facets, number), strict=True))
    marks: list[CellMark] = []
    for i in range(nx):
        for j in range(ny):
            chosen = {**fixed, across.name: i, **({up.name: j} if up else {})}
            places = [chosen.get(axis.name, 0) for axis in result.grid.axes]
            box = Box(
                frame.left + i * cell[0],
                frame.bottom + j * cell[1],
                frame.left + (i + 1) * cell[0],
                frame.bottom + (j + 1) * cell[1],
            )
            index = result.grid.index(places)
            marks.append(_mark(result, index, box, colours, scale))
    labels = [
        *_across_labels(across, frame, cell[0], nx),
        *(_up_labels(up, frame, cell[1], ny) if up else ()),
    ]
    if facets.axes:
        width = frame.right - frame.left
        text = cut_to(printable(point_text(facets.point(number))), width, 9.0)
        labels.append(_from_left(text, frame.left, frame.top + 8, 9.0))
    name = None
    if up:
        text = cut_to(up.name, frame.top - frame.bottom + 12, 8.5)
        middle = (frame.bottom + frame.top) / 2
        name = Label(
            text=text,
            box=Box.around(frame.left - _LEFT_PT + 8, middle, 11, text_width_pt(text, 8.5)),
            size_pt=8.5,
        )
    return Facet(frame=frame, labels=tuple(labels), cells=tuple(marks), up=name)


def _across_labels(axis: Axis, frame: Box, cell_pt: float, count: int) -> list[Label]:
    texts = [printable(text_of(axis.values[i])) for i in range(count)]
    widest = max(text_width_pt(each, 8.0) for each in texts)
    stride = max(1, math.ceil((widest + 2) / cell_pt))
    labels = [
        _centred(texts[i], frame.left + (i + 0.5) * cell_pt, frame.bottom - 8, 8.0)
        for i in range(0, count, stride)
    ]
    middle = (frame.left + frame.right) / 2
    labels.append(_centred(axis.name, middle, frame.bottom - 20, 8.5))
    return labels


def _up_labels(axis: Axis, frame: Box, cell_pt: float, count: int) -> list[Label]:
    stride = max(1, math.ceil(10 / cell_pt))
    found: list[Label] = []
    for j in range(0, count, stride):
        text = cut_to(printable(text_of(axis.values[j])), _LEFT_PT - 16, 8.0)
        y = frame.bottom + (j + 0.5) * cell_pt
        x = frame.left - 4 - text_width_pt(text, 8.0) / 2
        found.append(_centred(text, x, y, 8.0))
    return found


def _centred(text: str, x: float, y: float, size_pt: float) -> Label:
    return Label(text=text, box=text_box(text, x, y, size_pt), size_pt=size_pt)


def _from_left(text: str, left: float, y: float, size_pt: float) -> Label:
    return _centred(text, left + text_width_pt(text, size_pt) / 2, y, size_pt)


def _colours(count: int) -> tuple[str, ...]:
    return tuple(each.colour for each in roof_styles(count))


def _scale(verdicts: Sequence[Verdict]) -> float:
    """The largest factor, which has the full colour; at least 2, so that small ones stay pale."""
    return max([2.0, *(each.factor for each in verdicts if each.factor)])


def _mark(
    result: SweepResult, index: int, box: Box, colours: Sequence[str], scale: float
) -> CellMark:
    """The point of that number: who wins by how much, or which design alone can run there."""
    verdict, cells = result.verdicts[index], result.cells[index]
    able = [name for name, each in zip(result.names, cells, strict=True) if each.can_run]
    if verdict.winner is None or verdict.factor is None:
        colour, ink = _UNKNOWN, "#6e6e6e"
        text = f"only {printable(able[0])}" if len(able) == 1 else ""
    else:
        colour = shade(colours[verdict.winner], verdict.factor, scale)
        ink = _ink_on(colour)
        text = factor_text(verdict.factor)
    if text_width_pt(text, _CELL_PT) > box.right - box.left:
        text = ""
    return CellMark(
        box=box,
        colour=colour,
        text=text,
        ink=ink,
        is_hatched=verdict.is_close,
        is_crossed=any(each.fits is False for each in cells),
    )


def shade(colour: str, factor: float, scale: float) -> str:
    """A winner's colour, mixed with white by how little it wins by; ``"#rrggbb"``."""
    part = _WEAKEST + (1 - _WEAKEST) * min(1.0, math.log(factor) / math.log(scale))
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 + part * (each - 255)):02x}" for each in channels)


def _ink_on(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#1a1a1a" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"


def _key(
    result: SweepResult, colours: Sequence[str], scale: float, top: float, room: float
) -> tuple[tuple[CellMark, ...], tuple[Label, ...]]:
    """For each design: its name, behind its colour for some factors."""
    factors = (1.0, scale ** (1 / 3), scale ** (2 / 3), scale)
    marks: list[CellMark] = []
    labels: list[Label] = []
    for index, name in enumerate(result.names):
        y = top - (index + 0.5) * _KEY_LINE_PT
        for place, factor in enumerate(factors):
            left = _EDGE_PT + place * _SWATCH_PT
            colour = shade(colours[index], factor, scale)
            marks.append(
                CellMark(
                    box=Box(left, y - 6, left + _SWATCH_PT, y + 6),
                    colour=colour,
                    text=factor_text(factor),
                    ink=_ink_on(colour),
                    is_hatched=False,
                )
            )
        left = _EDGE_PT + len(factors) * _SWATCH_PT + 8
        words = f"{printable(name)} is faster{_than(result, index)}, by this factor"
        labels.append(_from_left(cut_to(words, room - left, 8.5), left, y, 8.5))
    return tuple(marks), tuple(labels)


def _than(result: SweepResult, index: int) -> str:
    """Than which other, where there are several."""
    if len(result.designs) == 2:
        return ""
    if index == result.reference:
        return " than the next"
    return f" than {printable(result.names[result.reference])}"


def _notes(result: SweepResult, facets: int, across: Axis, up: Axis | None) -> list[str]:
    """What else one must know to read it."""
    verdicts = result.verdicts
    found = texts_of(result.designs, result.names)
    if any(each.is_close for each in verdicts):
        found.append("hatched: too close to call, because the interval of the ratio holds 1")
    if any(each.winner is None for each in verdicts):
        found.append("grey: no two designs can be compared there")
    if any(each.fits is False for cells in result.cells for each in cells):
        found.append("crossed: a design does not fit into memory there, and is left out")
    if facets > MOST_FACETS:
        found.append(f"{facets - MOST_FACETS} of {facets} maps are not drawn: see the tables")
    found += [
        f"{axis.name}: the first {MOST_CELLS} of {len(axis.values)} values"
        for axis in (across, up)
        if axis and len(axis.values) > MOST_CELLS
    ]
    return found
