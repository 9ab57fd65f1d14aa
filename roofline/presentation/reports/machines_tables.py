"""The tables of one model on several machines, each laid out for wide and narrow terminals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from roofline.analysis import OperatorRow
from roofline.analysis.points import likeness, name_of
from roofline.analysis.words import MODEL_ITSELF, module_of, shape_of, short_op
from roofline.design.machine_comparison import Across, GroupAcross, MachineComparison
from roofline.foundation.blocks import By, Choice, Column, Grid, View
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_flop,
    format_intensity,
    format_s,
)
from roofline.presentation.reports.machines_cells import (
    in_words,
    letter,
    predicted_cell,
    range_of,
    share_cell,
)


def key_of(number: int) -> str:
    """The letter that stands for a machine where its name finds no room: A to Z, AA, AB …"""
    more, last = divmod(number, len(ascii_uppercase))
    return (key_of(more - 1) if more else "") + ascii_uppercase[last]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What the rows of a table are: how they are named at length and in short, and described."""

    full: tuple[Column, ...]
    full_cells: Callable[[GroupAcross], tuple[str, ...]]
    short: tuple[Column, ...]
    short_cells: Callable[[GroupAcross], tuple[str, ...]]


def operator_choices(comparison: MachineComparison, view: View) -> list[Choice]:
    """The groups that change sides, if any, then the others; each by its largest share of a bound.

    Each table shows the first rows and the rest as one; the last ends with the total of all.
    """
    found = comparison.groups(_key_of(view))
    if not found:
        return []
    changing = [each for each in found if each.changes_sides]
    same = [each for each in found if not each.changes_sides]
    rows = _operator_rows(comparison) if view.by == "operator" else _group_rows(view)
    what = _WHAT[view.by]
    total = comparison.whole
    choices: list[Choice] = []
    if changing:
        title = f"{what} that change sides"
        choices.append(
            _choice(comparison, title, rows, changing, view.rows(), None if same else total)
        )
    if same:
        title = f"{what} on the same side everywhere"
        choices.append(_choice(comparison, title, rows, same, view.rows(), total))
    return choices


_WHAT: dict[By, str] = {
    "operator": "Operators",
    "module": "Modules",
    "type": "Types of operators",
    "phase": "Phases",
}


def _key_of(view: View) -> Callable[[Across], Hashable]:
    if view.by == "operator":
        return _likeness
    return lambda across: _name_by(view, across[0])


def _likeness(across: Across) -> Hashable:
    return tuple(map(likeness, across))


def _name_by(view: View, row: OperatorRow) -> str:
    """What an operator's group is called."""
    if view.by == "module":
        path = row.module_path.split(".")
        return printable(".".join(path[: view.depth])) or MODEL_ITSELF
    return printable(row.phase if view.by == "phase" else row.type)


def groups_by_likeness(comparison: MachineComparison) -> tuple[GroupAcross, ...]:
    """The calls that no machine tells apart, together; the largest share of a bound first."""
    return comparison.groups(_likeness)


def names_across(comparison: MachineComparison, groups: Sequence[GroupAcross]) -> list[str]:
    """What pictures and narrow tables call groups of like calls: ``"layer1.0.conv2 ×3"``."""
    in_module = _in_module(comparison)
    return [_name(group, in_module) for group in groups]


def _in_module(comparison: MachineComparison) -> Counter[str]:
    return Counter(across[0].module_path for across in comparison.operators)


def _name(group: GroupAcross, in_module: Counter[str]) -> str:
    row = group.operators[0][0]
    return name_of(row, alone=in_module[row.module_path] == 1, count=len(group.operators))


def _operator_rows(comparison: MachineComparison) -> _Rows:
    in_module = _in_module(comparison)

    def intensity(group: GroupAcross) -> str:
        row = group.operators[0][0]
        known = row.flop is not None and row.traffic_bytes
        return format_intensity((row.flop or 0) / row.traffic_bytes if known else None)

    def full(group: GroupAcross) -> tuple[str, ...]:
        row, count = group.operators[0][0], len(group.operators)
        return (
            short_op(row),
            f"{module_of(row)} ×{count}" if count > 1 else module_of(row),
            shape_of(row),
            MISSING if row.flop is None else format_flop(count * row.flop),
            intensity(group),
        )

    def short(group: GroupAcross) -> tuple[str, ...]:
        return (_name(group, in_module), intensity(group))

    return _Rows(
        full=(
            Column(heading="operator"),
            Column(heading="module"),
            Column(heading="output", sacrifice=4),
            Column(heading="FLOP", align="right", sacrifice=3),
            Column(heading="FLOP/byte", align="right", sacrifice=1),
        ),
        full_cells=full,
        short=(
            Column(heading="operator"),
            Column(heading="FLOP/byte", align="right", sacrifice=1),
        ),
        short_cells=short,
    )


def _group_rows(view: View) -> _Rows:
    def cells(group: GroupAcross) -> tuple[str, ...]:
        return (_name_by(view, group.operators[0][0]), str(len(group.operators)))

    columns = (Column(heading=view.by), Column(heading="calls", align="right", sacrifice=1))
    return _Rows(full=columns, full_cells=cells, short=columns, short_cells=cells)


def _choice(
    comparison: MachineComparison,
    title: str,
    rows: _Rows,
    groups: Sequence[GroupAcross],
    top: int,
    total: GroupAcross | None,
) -> Choice:
    shown, others = groups[:top], groups[top:]
    sums: list[tuple[str, GroupAcross]] = []
    if others:
        rest = [across for group in others for across in group.operators]
        sums.append((f"{len(rest)} more", comparison.group(rest)))
    if total is not None:
        apart = comparison.apart
        if apart is not None:
            sums.append(("not on every machine", apart))
        sums.append(("total", total))
    names = [printable(name) for name in comparison.names]
    keys = [key_of(number) for number in range(len(names))]
    changing = any(group.changes_sides for group in shown)
    predicted = [
        place
        for place, each in enumerate(comparison.analyses)
        if any(row.predicted_s is not None for row in each.operators)
    ]
    letters = "C compute-bound, M memory-bound"
    if any(not side.whole for group in shown for side in group.sides):
        letters += "; c, m: most of the time"

    def times(headings: Sequence[str], words: bool, note: str) -> Grid:
        columns = rows.full if words else rows.short
        cells = rows.full_cells if words else rows.short_cells
        blank = ("",) * (len(columns) - 1)

        def more(group: GroupAcross) -> tuple[str, ...]:
            """What only the fullest layout has room for."""
            times = (predicted_cell(group, place) for place in predicted)
            return (*times, share_cell(group)) if words else ()

        return Grid(
            title=f"{title}{note}",
            columns=(
                *columns,
                *(Column(heading=heading, align="right") for heading in headings),
                *(
                    Column(heading=f"predicted on {names[place]}", align="right", sacrifice=1)
                    for place in predicted * words
                ),
                *([Column(heading="largest share", align="right", sacrifice=2)] * words),
            ),
            rows=tuple(
                (
                    *cells(group),
                    *(
                        f"{in_words(side) if words else letter(side)} {format_s(time)}"
                        for side, time in zip(group.sides, group.eager_min_time_s, strict=True)
                    ),
                    *more(group),
                )
                for group in shown
            ),
            sums=tuple(
                (name, *blank, *map(format_s, group.eager_min_time_s), *more(group))
                for name, group in sums
            ),
        )

    return Choice(
        grids=(
            times(
                names,
                words=True,
                note=": compute-bound here, memory-bound there" if changing else "",
            ),
            times(names, words=False, note=f" ({letters})"),
            times(keys, words=False, note=f" ({letters})"),
            _sides(f"{title} ({letters})", rows, shown, sums, keys),
        )
    )


def _sides(
    title: str,
    rows: _Rows,
    shown: Sequence[GroupAcross],
    sums: Sequence[tuple[str, GroupAcross]],
    keys: Sequence[str],
) -> Grid:
    """The narrowest layout: a letter for each machine, and the shortest and the longest bound."""
    blank = ("",) * (len(rows.short) - 1)
    return Grid(
        title=title,
        columns=(
            *rows.short,
            Column(heading=" ".join(keys)),
            Column(heading="lowest", align="right"),
            Column(heading="highest", align="right"),
        ),
        rows=tuple(
            (
                *rows.short_cells(group),
                " ".join(
                    f"{letter(side):<{len(key)}}"
                    for key, side in zip(keys, group.sides, strict=True)
                ),
                *range_of(group),
            )
            for group in shown
        ),
        sums=tuple((name, *blank, "", *range_of(group)) for name, group in sums),
    )
