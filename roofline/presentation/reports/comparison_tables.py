"""The tables of `roofline compare`: modules side by side, and models machine by machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.analysis.words import MODEL_ITSELF
from roofline.design.model_comparison.module_alignment import (
    DEPTH,
    AlignedRow,
    Alignment,
    Counterpart,
)
from roofline.design.model_comparison.result import Comparison
from roofline.design.model_comparison.time_parts import whole_percent
from roofline.errors import InputError
from roofline.foundation.blocks import Column, Grid
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_s,
)

AlignedBy = Literal["module", "type"]

_ROWS = 8
_MOST_WITH_WORK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareView:
    """How models are looked at side by side.

    ``by`` is what rows are: modules, or types of operators; None: modules where the models have
    enough of them in common, else types. ``top`` is how many, the largest differences first; None:
    8 where ``by`` is None too, else all in their order. ``depth`` is how far down modules go.

    Raises:
        InputError: a depth of what has none.
    """

    by: AlignedBy | None = None
    top: int | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        if self.depth is not None and self.by == "type":
            raise InputError(f"--depth {self.depth} has no effect on rows by type; add --by module")


def aligned_grid(comparison: Comparison, view: CompareView, *, where: str = "") -> Grid | None:
    """Modules or types side by side, with times, shares, FLOP and bytes; None: nothing to align.

    Args:
        comparison: the models.
        view: which rows, and how many.
        where: what the title ends with: the machine, where there are several.
    """
    # Who asks for a depth means modules.
    by = view.by or ("module" if view.depth is not None else None)
    alignment = comparison.modules(DEPTH if view.depth is None else view.depth)
    is_by_type = by == "type" or (by is None and not alignment.is_of_kin(comparison.reference))
    if is_by_type:
        alignment = comparison.types
    rows, left = _chosen(comparison, alignment, view, is_default=by is None)
    # One row is the whole model, whose numbers stand above.
    if not alignment.rows or (by is None and len(alignment.rows) < 2):
        return None
    what = "Types of operators" if is_by_type else "Modules"
    order = ", the largest differences first" if left or by is None or view.top else ""
    time = f" ({alignment.kind})" if alignment.kind else ""
    return Grid(
        title=f"{what} side by side{printable(where)}{time}{order}",
        columns=_columns(comparison, alignment, is_by_type=is_by_type),
        rows=tuple(_cells(comparison, alignment, row) for row in rows),
        sums=(_rest(comparison, alignment, left),) if left else (),
    )


def _chosen(
    comparison: Comparison, alignment: Alignment, view: CompareView, *, is_default: bool
) -> tuple[list[AlignedRow], list[AlignedRow]]:
    """The rows that are shown, and those that are left out."""
    rows = list(alignment.rows)
    if view.top is None and not is_default:
        return rows, []
    rows.sort(key=lambda row: -row.difference(comparison.reference))
    shown = _ROWS if view.top is None else view.top
    # A row for the rest takes as much room as the one that it would stand for.
    shown += shown + 1 == len(rows)
    return rows[:shown], rows[shown:]


def _columns(
    comparison: Comparison, alignment: Alignment, *, is_by_type: bool
) -> tuple[Column, ...]:
    names = [printable(name) for name in comparison.names]
    timed = [Column(heading=name, align="right") for name in names] if alignment.kind else []
    difference = len(names) == 2 and alignment.kind
    per = "/sample" if comparison.per_sample else ""
    return (
        Column(heading="type" if is_by_type else "module", least=12, cut="start"),
        *timed,
        *([Column(heading="difference", align="right", sacrifice=2)] if difference else []),
        *(
            Column(heading=f"{what}{per} {name}", align="right", sacrifice=rank + place)
            for what, rank in (("FLOP", 4), ("bytes", 20))
            for place, name in enumerate(names)
            if _shows_work(alignment, names)
        ),
    )


def _cells(comparison: Comparison, alignment: Alignment, row: AlignedRow) -> tuple[str, ...]:
    found: list[str] = []
    if alignment.kind:
        found += [_time_cell(each) for each in row.parts]
        if len(row.parts) == 2:
            found.append(_difference(comparison, row))
    if _shows_work(alignment, row.parts):
        found += [format_flop(each.flop) if each else MISSING for each in row.parts]
        found += [format_bytes(each.traffic_bytes) if each else MISSING for each in row.parts]
    return (_name(row), *found)


def _shows_work(alignment: Alignment, models: Sequence[object]) -> bool:
    """Whether there is room for FLOP and bytes beside times, which tell more."""
    return len(models) <= _MOST_WITH_WORK or alignment.kind is None


def _name(row: AlignedRow) -> str:
    """The path of the first that has it, and where they differ, how the others call it."""
    names = [printable(each.name) or MODEL_ITSELF for each in row.parts if each]
    return " | ".join(dict.fromkeys(names))


def _time_cell(part: Counterpart | None) -> str:
    if part is None or part.time_s is None:
        return MISSING
    share = f" {whole_percent(part.share)}" if part.share is not None else ""
    return f"{format_s(part.time_s, 2)}{share}"


def _difference(comparison: Comparison, row: AlignedRow) -> str:
    """By how many seconds the other is above the reference; what one lacks takes no time."""
    base = row.parts[comparison.reference]
    other = row.parts[1 - comparison.reference]
    change_s = ((other.time_s or 0.0) if other else 0.0) - ((base.time_s or 0.0) if base else 0.0)
    if not change_s:
        return "0 s"
    return f"{'+' if change_s > 0 else '-'}{format_s(abs(change_s), 2)}"


def _rest(comparison: Comparison, alignment: Alignment, rows: list[AlignedRow]) -> tuple[str, ...]:
    """The rows that are left out as one."""
    parts: list[Counterpart | None] = []
    for number in range(len(comparison.names)):
        found = [part for row in rows if (part := row.parts[number])]
        parts.append(_sum(found) if found else None)
    row = AlignedRow(parts=tuple(parts))
    return (f"{len(rows)} more", *_cells(comparison, alignment, row)[1:])


def _sum(parts: list[Counterpart]) -> Counterpart:
    flop = [each.flop for each in parts if each.flop is not None]
    times = [each.time_s for each in parts if each.time_s is not None]
    shares = [each.share for each in parts if each.share is not None]
    return Counterpart(
        name="",
        kind="",
        flop=sum(flop) if len(flop) == len(parts) else None,
        traffic_bytes=sum(each.traffic_bytes for each in parts),
        time_s=sum(times) if len(times) == len(parts) else None,
        share=sum(shares) if len(shares) == len(parts) else None,
    )
