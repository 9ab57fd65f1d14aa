"""The report on one model on several machines: machines, operators, and who changes sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofline.analysis import Analysis, OperatorRow, unknown_capacity
from roofline.analysis.grouping import likeness
from roofline.analysis.points import name_of
from roofline.analysis.report import coverage_text, model_facts
from roofline.analysis.tables import groups_of_unknown, prediction_cell, unknown_grid
from roofline.analysis.words import (
    MODEL_ITSELF,
    fit_cell,
    machines_advice_notes,
    module_of,
    shape_of,
    short_op,
)
from roofline.design.comparison import cells
from roofline.design.comparison.machines import (
    Across,
    GroupAcross,
    MachineSummary,
    Side,
    apart,
    together,
    whole,
)
from roofline.foundation.blocks import Block, By, Choice, Column, Facts, Grid, View, notes, table
from roofline.foundation.sampling import interval_cell
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_bytes_per_s,
    format_flop,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
)
from roofline.placement import Bound, classic_model_note, other_device_note, where_operators_are
from roofline.run import DEVICES

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison


def machine_blocks(comparison: Comparison, view: View) -> Iterator[Block]:
    """Yield machines, operators, advice, coverage and warnings."""
    first = comparison.analyses[0]
    run_on = {each.run.device for each in comparison.analyses}
    # Where there are several, machines say which.
    shown = first if len(run_on) == 1 else replace(first, run=replace(first.run, device="cpu"))
    *facts, (memory, peak) = model_facts(shown, view)
    capacities = unknown_capacity(each.hardware for each in comparison.analyses)
    facts.append((memory, " · ".join([peak, *capacities])))
    _, *rest = comparison.sentences
    if rest:
        facts.append(("In short", " · ".join(rest)))
    yield Facts(lines=tuple(facts))
    yield machines_grid(comparison)
    yield from _operator_choices(comparison, view)
    unknown = groups_of_unknown(first)
    if unknown:
        yield unknown_grid(unknown, bounds=False)
    yield from machines_advice_notes(comparison.machine_names, comparison.analyses)
    yield Facts(lines=(("Coverage", coverage_text(first)),))
    yield from notes("Warnings", _warnings(comparison), urgent=True)


def machines_grid(comparison: Comparison) -> Grid:
    """Return a row for each machine: what it offers, what binds the model there, and its times."""
    machines = comparison.machines
    is_predicted = any(each.predicted_s is not None for each in machines)
    is_measured = any(each.measured_s is not None for each in machines)
    columns: dict[str, str | Callable[[MachineSummary], str]] = {
        "": lambda each: cells.letter(machines.index(each)),
        "machine": "name",
        "description": lambda each: each.description or MISSING,
        "threads": lambda each: str(each.threads) if each.device == "cpu" else MISSING,
        "peak": lambda each: format_flop_per_s(each.compute.flop_per_s if each.compute else None),
        "bandwidth": lambda each: format_bytes_per_s(
            each.memory.bytes_per_s if each.memory else None
        ),
        "ridge": lambda each: format_intensity(each.ridge_flop_per_byte),
        "eager": "eager_min_time_s",
        "fused": "fused_min_time_s",
        "model": "model_min_time_s",
        "compute": "compute_share",
        "memory": "memory_share",
    }
    if is_predicted:
        columns["predicted"] = lambda each: prediction_cell(
            each.predicted_s, each.interval_s, each.eager_min_time_s
        )
    if is_measured:
        columns["measured"] = lambda each: format_s(each.measured_s, cells.DIGITS)
    if any(each.fits is not None for each in machines):
        columns["fits in memory"] = lambda each: fit_cell(each.fits)
    narrow = ("description", "threads", "memory")
    if is_predicted or is_measured:
        # Beside times, what the bound is made of gives way.
        narrow = (*narrow, "compute", "ridge", "bandwidth", "peak", "model", "fused")
    return table(
        "Machines: ridge in FLOP/byte, minimum times, compute and memory share of eager",
        machines,
        columns,
        left=("", "machine", "description", "fits in memory"),
        narrow=narrow,
    )


def _warnings(comparison: Comparison) -> tuple[str, ...]:
    """Return the warnings of all analyses, each once; what holds of many machines comes first."""
    machines = list(zip(comparison.machine_names, comparison.analyses, strict=True))
    together = {
        note
        for _, each in machines
        if each.hardware.memory
        for note in (
            classic_model_note(each.hardware),
            other_device_note(each.hardware, each.run.device),
        )
    }
    rest = dict.fromkeys(
        line for _, each in machines for line in each.warnings if line not in together
    )
    lines = list(_levels(machines))
    for run_on in DEVICES:
        names = [
            name for name, each in machines if each.hardware.device != each.run.device == run_on
        ]
        if names:
            lines.append(
                f"{', '.join(names)}: the operators are those that torch calls on"
                f" {where_operators_are(run_on)}; there it may call others, whose minimum times may"
                " be shorter"
            )
    if apart(comparison) is not None:
        lines.append(
            "CPUs and GPUs call operators of their own: those are in times and totals, and only"
            " what all machines call is compared one by one; work, traffic and memory are those"
            f" on {machines[0][0]}"
        )
    return tuple(map(printable, [*lines, *rest]))


def _levels(machines: Sequence[tuple[str, Analysis]]) -> Iterator[str]:
    classic = [name for name, each in machines if each.hardware.knows_only_dram]
    if not classic:
        return
    know = "knows" if len(classic) == 1 else "know"
    line = (
        f"{', '.join(classic)} {know} a single memory level: every operand is charged to it"
        " (the classic roofline model)"
    )
    cached = [
        f"{name} knows {levels[0].name} to {levels[-1].name}"
        for name, each in machines
        if len(levels := each.hardware.memory) > 1
    ]
    if cached:
        line += f"; {', '.join(cached)}: what is cached there crosses only the nearer levels"
    yield line


# -- operators -------------------------------------------------------------------------------------

_WHAT: dict[By, str] = {
    "operator": "Operators",
    "module": "Modules",
    "type": "Types of operators",
    "phase": "Phases",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What the rows of a table are: how they are named at length and in short."""

    full: tuple[Column, ...]
    full_cells: Callable[[GroupAcross], tuple[str, ...]]
    short: tuple[Column, ...]
    short_cells: Callable[[GroupAcross], tuple[str, ...]]


def _operator_choices(comparison: Comparison, view: View) -> Iterator[Choice]:
    """Yield the groups that change sides, then the others; the last table ends with the total."""

    def key(across: Across) -> Hashable:
        if view.by == "operator":
            return tuple(map(likeness, across))
        return _name_by(view, across[0])

    found = comparison.groups(key)
    rows = _operator_rows(comparison) if view.by == "operator" else _group_rows(view)
    kinds = {
        "that change sides": [each for each in found if each.changes_sides],
        "on the same side everywhere": [each for each in found if not each.changes_sides],
    }
    last = [title for title, groups in kinds.items() if groups][-1:]
    for title, groups in kinds.items():
        if groups:
            what = f"{_WHAT[view.by]} {title}"
            yield _choice(comparison, what, rows, groups, view.rows(), has_total=title in last)


def _name_by(view: View, row: OperatorRow) -> str:
    if view.by == "module":
        path = row.module_path.split(".")
        return printable(".".join(path[: view.depth])) or MODEL_ITSELF
    return printable(row.phase if view.by == "phase" else row.type)


def groups_by_likeness(comparison: Comparison) -> tuple[GroupAcross, ...]:
    """Return calls that no machine tells apart together, the largest share of a bound first."""
    return comparison.groups(lambda across: tuple(map(likeness, across)))


def names_across(comparison: Comparison, groups: Sequence[GroupAcross]) -> list[str]:
    """Return what pictures and narrow tables call groups of like calls: ``"layer1.conv2 ×3"``."""
    in_module = _in_module(comparison)
    return [_name(each, in_module) for each in groups]


def _in_module(comparison: Comparison) -> Counter[str]:
    return Counter(across[0].module_path for across in comparison.operators)


def _name(group: GroupAcross, in_module: Counter[str]) -> str:
    row = group.operators[0][0]
    return name_of(row, alone=in_module[row.module_path] == 1, count=len(group.operators))


def intensity_of(group: GroupAcross) -> float | None:
    """Return FLOP per byte of every operand; None where FLOP are unknown or nothing moves."""
    row = group.operators[0][0]
    return row.flop / row.traffic_bytes if row.flop is not None and row.traffic_bytes else None


def _operator_rows(comparison: Comparison) -> _Rows:
    in_module = _in_module(comparison)

    def full(group: GroupAcross) -> tuple[str, ...]:
        row, count = group.operators[0][0], len(group.operators)
        return (
            short_op(row),
            f"{module_of(row)} ×{count}" if count > 1 else module_of(row),
            shape_of(row),
            MISSING if row.flop is None else format_flop(count * row.flop),
            format_intensity(intensity_of(group)),
        )

    def short(group: GroupAcross) -> tuple[str, ...]:
        return (_name(group, in_module), format_intensity(intensity_of(group)))

    operator = Column(heading="operator")
    intensity = Column(heading="FLOP/byte", align="right", sacrifice=1)
    output = Column(heading="output", sacrifice=4)
    flop = Column(heading="FLOP", align="right", sacrifice=3)
    return _Rows(
        full=(operator, Column(heading="module"), output, flop, intensity),
        full_cells=full,
        short=(operator, intensity),
        short_cells=short,
    )


def _group_rows(view: View) -> _Rows:
    def cells(group: GroupAcross) -> tuple[str, ...]:
        return (_name_by(view, group.operators[0][0]), str(len(group.operators)))

    columns = (Column(heading=view.by), Column(heading="calls", align="right", sacrifice=1))
    return _Rows(full=columns, full_cells=cells, short=columns, short_cells=cells)


def _choice(
    comparison: Comparison,
    title: str,
    rows: _Rows,
    groups: Sequence[GroupAcross],
    top: int,
    *,
    has_total: bool,
) -> Choice:
    shown, others = groups[:top], groups[top:]
    sums: list[tuple[str, GroupAcross]] = []
    if others:
        rest = [across for each in others for across in each.operators]
        sums.append((f"{len(rest)} more", together(comparison, rest)))
    if has_total:
        beside = apart(comparison)
        sums += [("not on every machine", beside)] if beside is not None else []
        sums.append(("total", whole(comparison)))
    names = list(map(printable, comparison.machine_names))
    keys = list(map(cells.letter, range(len(names))))
    predicted = [
        place
        for place, each in enumerate(comparison.analyses)
        if any(row.predicted_s is not None for row in each.operators)
    ]
    letters = "C compute-bound, M memory-bound"
    if any(not side.whole for each in shown for side in each.sides):
        letters += "; c, m: most of the time"

    def more(each: GroupAcross) -> tuple[str, ...]:
        """What only the fullest layout has room for."""
        return (*(_predicted_cell(each, place) for place in predicted), _share_cell(each))

    blank = ("",) * (len(rows.full) - 1)
    sides = any(each.changes_sides for each in shown)
    note = ": compute-bound here, memory-bound there" if sides else ""
    full = Grid(
        title=f"{title}{note}",
        columns=(
            *rows.full,
            *(Column(heading=name, align="right") for name in names),
            *(
                Column(heading=f"predicted on {names[place]}", align="right", sacrifice=1)
                for place in predicted
            ),
            Column(heading="largest share", align="right", sacrifice=2),
        ),
        rows=tuple(
            (*rows.full_cells(each), *_side_cells(each, _in_words), *more(each)) for each in shown
        ),
        sums=tuple(
            (name, *blank, *map(format_s, each.eager_min_time_s), *more(each))
            for name, each in sums
        ),
    )
    blank = ("",) * (len(rows.short) - 1)
    by_name, by_key = (
        Grid(
            title=f"{title} ({letters})",
            columns=(*rows.short, *(Column(heading=each, align="right") for each in headings)),
            rows=tuple((*rows.short_cells(each), *_side_cells(each, _letter)) for each in shown),
            sums=tuple(
                (name, *blank, *map(format_s, each.eager_min_time_s)) for name, each in sums
            ),
        )
        for headings in (names, keys)
    )
    narrowest = Grid(
        title=f"{title} ({letters})",
        columns=(
            *rows.short,
            Column(heading=" ".join(keys)),
            Column(heading="lowest", align="right"),
            Column(heading="highest", align="right"),
        ),
        rows=tuple(
            (
                *rows.short_cells(each),
                " ".join(
                    f"{_letter(side):<{len(key)}}"
                    for key, side in zip(keys, each.sides, strict=True)
                ),
                *_range(each),
            )
            for each in shown
        ),
        sums=tuple((name, *blank, "", *_range(each)) for name, each in sums),
    )
    return Choice(grids=(full, by_name, by_key, narrowest))


def _side_cells(group: GroupAcross, name: Callable[[Side], str]) -> Iterator[str]:
    for side, time_s in zip(group.sides, group.eager_min_time_s, strict=True):
        yield f"{name(side)} {format_s(time_s)}"


def _in_words(side: Side) -> str:
    return str(side.bound) if side.whole else f"mostly {side.bound}"


def _letter(side: Side) -> str:
    """What binds, as a letter: C, M or ?, small where it is most of the time, not all."""
    found = {Bound.COMPUTE: "C", Bound.MEMORY: "M"}.get(side.bound, "?")
    return found if side.whole else found.lower()


def _range(group: GroupAcross) -> tuple[str, str]:
    known = [time for time in group.eager_min_time_s if time is not None]
    return (format_s(min(known, default=None)), format_s(max(known, default=None)))


def _predicted_cell(group: GroupAcross, place: int) -> str:
    is_known = group.predicted_s[place] is not None
    if not is_known and all(across[place].predicted_s is None for across in group.operators):
        return prediction_cell(None, None, group.eager_min_time_s[place])
    # Of sums of which an operator is not predicted, nothing is known.
    return interval_cell(group.predicted_s[place], None, None)


def _share_cell(group: GroupAcross) -> str:
    known = any(share is not None for share in group.shares)
    # Rounding in a sum must not show as "> 99.9 %".
    return format_percent(min(1.0, round(group.largest_share, 12))) if known else MISSING
