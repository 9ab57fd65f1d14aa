"""A ridge sweep: bounds over the reference's, by balance, and where the known machines stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roofline.design.sweeps.ridge import RidgeSweep
from roofline.foundation.text import printable
from roofline.foundation.units import format_intensity
from roofline.plots.style import roof_styles
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, Segment, cut_to, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.sweep_lines import (
    EDGE_PT,
    LINE_PT,
    NAMES_PT,
    TICKS_PT,
    DesignLine,
    ValueAxis,
    apart,
    end_labels,
    value_axis,
)
from roofline.presentation.charts.sweep_words import TITLE_PT, texts_of, wrapped

_HEIGHT_PT = 260.0
_NAME_LENGTH_PT = 102.0
_NAME_PT = 7.5
_NAME_GAP_PT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineMark:
    """A known machine: its name along the top, upright, and what leads from it to its balance."""

    balance: float
    label: Label
    lead: Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineDot:
    """A design on a known machine, by the machine's own profile; hollow where it has no caches.

    It ``is_crossed`` where the design or the reference does not fit into that machine's memory.
    """

    balance: float
    ratio: float
    colour: str
    is_hollow: bool
    is_crossed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgeChart:
    """A picture of ``width_pt`` x ``height_pt``; ``crossings`` are balances with their words."""

    width_pt: float
    height_pt: float
    title: tuple[str, ...]
    subtitle: str
    x: LogAxis
    y: LogAxis
    lines: tuple[DesignLine, ...]
    labels: tuple[Label, ...]
    machines: tuple[MachineMark, ...]
    dots: tuple[MachineDot, ...]
    crossings: tuple[tuple[float, Label], ...]
    notes: tuple[str, ...]


def ridge_chart_of(ridge: RidgeSweep, *, width_pt: float = 720.0) -> RidgeChart:
    """The picture of a ridge sweep; its height follows from its width."""
    room = width_pt - 2 * EDGE_PT
    notes = tuple(cut_to(each, room, SMALL_PT) for each in _notes(ridge))
    foot = EDGE_PT + 12 * len(notes)
    frame = Box(
        EDGE_PT + TICKS_PT + 6,
        foot + TICKS_PT,
        width_pt - EDGE_PT - NAMES_PT,
        foot + TICKS_PT + _HEIGHT_PT,
    )
    lines = tuple(_lines(ridge))
    dots = tuple(_dots(ridge))
    x, y = _axes(ridge, frame)
    names = " or ".join(map(printable, ridge.names))
    title = wrapped(f"Which has the lower bound on which machine: {names}", room, TITLE_PT)
    machines = tuple(_marks(ridge, x, frame))
    top = max([frame.top, *(each.label.box.top for each in machines)]) + 6
    return RidgeChart(
        width_pt=width_pt,
        height_pt=top + 12 + LINE_PT * (len(title) + 1),
        title=title,
        subtitle=cut_to(_subtitle(ridge), room, SMALL_PT),
        x=x,
        y=y,
        lines=lines,
        labels=end_labels(lines, y, frame),
        machines=machines,
        dots=dots,
        crossings=tuple(_crossings(ridge, x, frame)),
        notes=notes,
    )


def _subtitle(ridge: RidgeSweep) -> str:
    parts = (ridge.run, f"balance for {ridge.dtype}", "bounds: there are no predictions")
    return printable(" · ".join(filter(None, parts)))


def _lines(ridge: RidgeSweep) -> Iterator[DesignLine]:
    for index, style in enumerate(roof_styles(len(ridge.designs))):
        yield DesignLine(
            name=printable(ridge.names[index]) + " (reference)" * (index == ridge.reference),
            colour=style.colour,
            strokes=style.strokes,
            points=tuple(
                (balance, ratios[index])
                for balance, ratios in zip(ridge.balances, ridge.ratios, strict=True)
            ),
        )


def _dots(ridge: RidgeSweep) -> Iterator[MachineDot]:
    styles = roof_styles(len(ridge.designs))
    for machine in ridge.machines:
        fits = ridge.fits_on(machine)
        for index, ratio in enumerate(ridge.over_reference(machine.bound_s)):
            if index != ridge.reference:
                yield MachineDot(
                    balance=machine.balance,
                    ratio=ratio,
                    colour=styles[index].colour,
                    is_hollow=not machine.has_caches,
                    is_crossed=False in (fits[index], fits[ridge.reference]),
                )


def _axes(ridge: RidgeSweep, frame: Box) -> tuple[ValueAxis, LogAxis]:
    inside = [each for each in ridge.machines if _is_inside(ridge, each.balance)]
    ratios = [
        *(ratio for each in ridge.ratios for ratio in each),
        *(ratio for each in inside for ratio in ridge.over_reference(each.bound_s)),
    ]
    x = value_axis(
        "balance: FLOP that the units do for each byte that memory gives", ridge.balances, frame
    )
    y = LogAxis(
        title="bound, relative to the reference",
        low=min(ratios) / 1.3,
        high=max(ratios) * 1.3,
        start_pt=frame.bottom,
        end_pt=frame.top,
    )
    return x, y


def _is_inside(ridge: RidgeSweep, balance: float) -> bool:
    return min(ridge.balances) <= balance <= max(ridge.balances)


def _marks(ridge: RidgeSweep, x: LogAxis, frame: Box) -> Iterator[MachineMark]:
    inside = [each for each in ridge.machines if _is_inside(ridge, each.balance)]
    wanted = {index: x.pt(each.balance) for index, each in enumerate(inside)}
    places = apart(wanted, gap_pt=_NAME_GAP_PT, low=frame.left + 5, high=frame.right + 60)
    for index, place in places.items():
        at = wanted[index]
        text = cut_to(printable(inside[index].name), _NAME_LENGTH_PT, _NAME_PT)
        length = text_width_pt(text, _NAME_PT)
        bottom = frame.top + 18
        yield MachineMark(
            balance=inside[index].balance,
            label=Label(
                text=text,
                box=Box(place - _NAME_PT / 2, bottom, place + _NAME_PT / 2, bottom + length),
                size_pt=_NAME_PT,
            ),
            lead=Segment(at, frame.top, place, bottom - 2),
        )


def _crossings(ridge: RidgeSweep, x: LogAxis, frame: Box) -> Iterator[tuple[float, Label]]:
    for place, each in enumerate(ridge.crossings):
        text = f"{format_intensity(each.balance)} FLOP/byte"
        width = text_width_pt(text, 8.0)
        left = x.pt(each.balance) + 4
        if left + width > frame.right:
            left -= width + 8
        bottom = frame.bottom + 5 + 11 * place
        box = Box(left, bottom, left + width, bottom + 10)
        yield each.balance, Label(text=text, box=box, size_pt=8.0)


def _notes(ridge: RidgeSweep) -> tuple[str, ...]:
    found = [
        *texts_of(ridge.designs, ridge.names),
        f"lines: hypothetical machines, the units of {printable(ridge.base.name)} and one memory"
        " to which every operand is charged (the classic roofline model)",
    ]
    if ridge.machines:
        found.append(
            "dots: machines that there are, by their own ceilings; filled: with their caches"
        )
    if any(each.is_crossed for each in _dots(ridge)):
        found.append("crosses: that design, or the reference, does not fit into memory there")
    outside = [each.name for each in ridge.machines if not _is_inside(ridge, each.balance)]
    if outside:
        found.append(f"beyond the axis: {', '.join(map(printable, outside))}")
    return tuple(found)
