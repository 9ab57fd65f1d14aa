"""Numbers of one kernel side by side, a group of columns for each number of threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from roofline.design.hardware_quantities import Quantity
from roofline.foundation.blocks import Column, Grid
from roofline.foundation.text import counted
from roofline.foundation.units import MISSING, format_percent
from roofline.presentation.reports.hardware_sources import Sources

Form = Callable[[float | None], str]
Line = Mapping[int, Quantity]
"""The numbers of one kernel, by how many threads they are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A column before the numbers: its heading, its words of a quantity, what it gives up."""

    heading: str
    words: Callable[[Quantity], str]
    sacrifice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """A figure of our own making beside each rate, as ``share``."""

    heading: str
    words: Callable[[Quantity], str]


def lines_of(quantities: Sequence[Quantity]) -> list[Line]:
    """The quantities that differ only in threads, together, in the order of the first of each."""
    lines: dict[tuple[str, ...], dict[int, Quantity]] = {}
    for each in quantities:
        lines.setdefault(each.identity, {})[each.threads or 1] = each
    return list(lines.values())


def first_of(line: Line) -> Quantity:
    """Any of a line: they share everything but numbers."""
    return next(iter(line.values()))


def top_of(line: Line) -> float:
    """The peak with the most threads, by which lines are sorted."""
    return line[max(line)].peak


def signed_percent(fraction: float | None) -> str:
    """A part in per cent, with its sign where it is negative."""
    if fraction is None or fraction >= 0:
        return format_percent(fraction)
    # What rounds to nothing has no sign worth showing.
    return f"{'-' * (fraction <= -0.0005)}{format_percent(-fraction)}"


def side_by_side(
    title: str,
    leads: Sequence[Lead],
    lines: Sequence[Line],
    form: Form,
    sources: Sources,
    *,
    threaded: bool,
    extra: Extra | None = None,
    best: str = "peak",
    usual: str = "sustained",
) -> Grid:
    """The table of `lines`; a column stands only where it says something.

    Narrow terminals lose, in this order: the source, spreads, medians, paper figures, and the loss
    for fewer than all threads; the peaks stay.
    """
    counts = sorted({threads for line in lines for threads in line})
    columns: list[Column] = [
        Column(heading=each.heading, sacrifice=each.sacrifice) for each in leads
    ]
    cells: list[list[str]] = [[lead.words(first_of(line)) for lead in leads] for line in lines]
    for rank, threads in enumerate(reversed(counts)):
        of = f" ({threads})" if len(counts) > 1 else ""
        found = [line.get(threads) for line in lines]
        peak = (
            counted(threads, "thread") if threaded else best,
            0,
            [_peak(each, form) for each in found],
        )
        known = [each for each in found if each is not None]
        group: list[tuple[str, int, list[str]]] = [peak]
        if any(each.typical != each.peak for each in known):
            group.append((f"{usual}{of}", 5 + rank, [_typical(each, form) for each in found]))
        group.append((f"IQR/median{of}", 7 + rank, [_spread(each) for each in found]))
        group.append((f"paper{of}", 3 + rank, [_paper(each, form) for each in found]))
        group.append((f"loss{of}", 1 + rank, [_loss(each) for each in found]))
        if extra is not None:
            words = [extra.words(each) if each else MISSING for each in found]
            group.append((f"{extra.heading}{of}", 1 + rank, words))
        kept = [
            (Column(heading=heading, align="right", sacrifice=sacrifice), values)
            for heading, sacrifice, values in group
            if any(value != MISSING for value in values)
        ]
        # Fewer threads stand further left, but give way first.
        at = len(leads)
        columns[at:at] = [column for column, _ in kept]
        for i, row in enumerate(cells):
            row[at:at] = [values[i] for _, values in kept]
    columns.append(Column(heading="source", sacrifice=9))
    for row, line in zip(cells, lines, strict=True):
        row.append(sources.cited([each.provenance for each in line.values() if each.provenance]))
    return Grid(title=title, columns=tuple(columns), rows=tuple(map(tuple, cells)))


def _peak(each: Quantity | None, form: Form) -> str:
    if each is None:
        return MISSING
    return f"{'? ' if each.doubt else ''}{form(each.peak)}"


def _typical(each: Quantity | None, form: Form) -> str:
    return MISSING if each is None else form(each.typical)


def _spread(each: Quantity | None) -> str:
    return MISSING if each is None else format_percent(each.spread)


def _paper(each: Quantity | None, form: Form) -> str:
    return form(each.theoretical.per_s) if each and each.theoretical else MISSING


def _loss(each: Quantity | None) -> str:
    return MISSING if each is None else signed_percent(each.loss)
