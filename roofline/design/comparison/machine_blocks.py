"""Report of one model on several machines: minimum times, and limiters by operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from roofline.analysis import Analysis, OperatorRow, unknown_capacity
from roofline.analysis.grouping import grouping_key
from roofline.analysis.points import name_of
from roofline.analysis.report import coverage_fact, model_facts
from roofline.analysis.tables import groups_of_unknown, prediction_cell, unknown_grid
from roofline.analysis.words import (
    MODEL_ITSELF,
    fit_cell,
    machines_advice_notes,
    module_of,
    shape_of,
    short_op,
)
from roofline.core.blocks import (
    Block,
    By,
    Choice,
    Column,
    Grid,
    KeyValueBlock,
    View,
    number_column,
    table,
    warning_notes,
)
from roofline.core.sampling import interval_cell
from roofline.core.text import printable
from roofline.core.units import (
    MISSING,
    format_bytes_per_s,
    format_flop,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
)
from roofline.design.comparison import cells
from roofline.design.comparison.machines import (
    Across,
    GroupAcross,
    MachineSummary,
    Side,
    all_operators,
    combine_operators,
    unshared_operators,
)
from roofline.placement import Bound, classic_model_note, other_device_note, where_operators_are
from roofline.run import DEVICES

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison


def machine_blocks(comparison: Comparison, view: View) -> Iterator[Block]:
    """Yield facts, machines, operators, advice and warnings."""
    first = comparison.analyses[0]
    run_on = {each.run.device for each in comparison.analyses}
    # The table of machines names several devices.
    shown = first if len(run_on) == 1 else replace(first, run=replace(first.run, device="cpu"))
    *facts, (memory, peak) = model_facts(shown, view)
    capacities = unknown_capacity(each.hardware for each in comparison.analyses)
    facts.append((memory, " · ".join([peak, *capacities])))
    _, *rest = comparison.sentences
    if rest:
        facts.append(("Result", " · ".join(rest)))
    yield KeyValueBlock(lines=(*facts, *coverage_fact(first, view)))
    yield machines_grid(comparison)
    yield from _operator_choices(comparison, view)
    if unknown := groups_of_unknown(first):
        yield unknown_grid(unknown, bounds=False)
    yield from machines_advice_notes(comparison.machine_names, comparison.analyses)
    yield from warning_notes(_warnings(comparison), view)


def machines_grid(comparison: Comparison) -> Grid:
    """Return a row per machine: ceilings, minimum times and limiters."""
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
        "ridge (FLOP/B)": lambda each: format_intensity(each.ridge_flop_per_byte),
        "eager": "eager_min_time_s",
        "fused": "fused_min_time_s",
        "model": "model_min_time_s",
        "compute-bound": "compute_share",
        "memory-bound": "memory_share",
    }
    if is_predicted:
        columns["predicted"] = lambda each: prediction_cell(
            each.predicted_s, each.interval_s, each.eager_min_time_s
        )
    if is_measured:
        columns["measured"] = lambda each: format_s(each.measured_s, cells.DIGITS)
    if any(each.fits is not None for each in machines):
        columns["fits in memory"] = lambda each: fit_cell(each.fits)
    narrow = ("description", "threads", "memory-bound")
    if is_predicted or is_measured:
        # Times matter more than ceilings in narrow terminals.
        narrow = (*narrow, "compute-bound", "ridge (FLOP/B)", "bandwidth", "peak", "model", "fused")
    return table(
        "Machines: ceilings, minimum times (eager, fused, model), limiter by share of eager",
        machines,
        columns,
        left=("", "machine", "description", "fits in memory"),
        narrow=narrow,
    )


def _warnings(comparison: Comparison) -> tuple[str, ...]:
    """Return the distinct warnings of all analyses, those on several machines first."""
    machines = list(zip(comparison.machine_names, comparison.analyses, strict=True))
    common = {
        note
        for _, each in machines
        if each.hardware.memory
        for note in (
            classic_model_note(each.hardware),
            other_device_note(each.hardware, each.run.device),
        )
    }
    rest = dict.fromkeys(
        line for _, each in machines for line in each.warnings if line not in common
    )
    lines = list(_levels(machines))
    for run_on in DEVICES:
        names = [
            name for name, each in machines if each.hardware.device != each.run.device == run_on
        ]
        if names:
            lines.append(
                f"{', '.join(names)}: operators are those that torch calls on"
                f" {where_operators_are(run_on)}; native operators may have shorter minimum times"
            )
    if unshared_operators(comparison) is not None:
        lines.append(
            "CPU and GPU call different operators: times and totals have all of them, the operator"
            f" tables only shared ones; work, traffic and memory are those of {machines[0][0]}"
        )
    return tuple(map(printable, [*lines, *rest]))


def _levels(machines: Sequence[tuple[str, Analysis]]) -> Iterator[str]:
    classic = [name for name, each in machines if each.hardware.has_single_memory_level]
    if not classic:
        return
    line = (
        f"{', '.join(classic)}: one memory level, crossed by all operands (classic roofline model)"
    )
    cached = [
        f"{name} has {levels[0].name} to {levels[-1].name}"
        for name, each in machines
        if len(levels := each.hardware.memory) > 1
    ]
    if cached:
        line += f"; {', '.join(cached)}"
    yield line


# -- operators -------------------------------------------------------------------------------------

_TITLES: dict[By, str] = {
    "operator": "Operators",
    "module": "Modules",
    "type": "Operator types",
    "phase": "Phases",
}


_Cell = Callable[[GroupAcross], str]


def _operator_choices(comparison: Comparison, view: View) -> Iterator[Choice]:
    """Yield groups whose limiter changes, then the others; the last table ends with the total."""

    def key(across: Across) -> Hashable:
        is_alone = view.by == "operator"
        return tuple(map(grouping_key, across)) if is_alone else _name_by(view, across[0])

    found = comparison.groups(key)
    kinds = {
        "with different limiters": [each for each in found if each.changes_sides],
        "with one limiter": [each for each in found if not each.changes_sides],
    }
    last = [title for title, groups in kinds.items() if groups][-1:]
    for title, groups in kinds.items():
        if groups:
            what = f"{_TITLES[view.by]} {title} by share"
            yield _choice(comparison, what, groups, view, has_total=title in last)


def _name_by(view: View, row: OperatorRow) -> str:
    if view.by == "module":
        path = row.module_path.split(".")
        return printable(".".join(path[: view.depth])) or MODEL_ITSELF
    return printable(row.phase if view.by == "phase" else row.type)


def groups_of_identical_calls(comparison: Comparison) -> tuple[GroupAcross, ...]:
    """Return groups of identical calls, by largest share of minimum time."""
    return comparison.groups(lambda across: tuple(map(grouping_key, across)))


def names_across(comparison: Comparison, groups: Sequence[GroupAcross]) -> list[str]:
    """Return short names of groups of identical calls: ``"layer1.conv2 ×3"``."""
    in_module = Counter(across[0].module_path for across in comparison.operators)
    rows = [(each.operators[0][0], len(each.operators)) for each in groups]
    return [name_of(row, alone=in_module[row.module_path] == 1, count=n) for row, n in rows]


def intensity_of(group: GroupAcross) -> float | None:
    """Return the AI in FLOP per byte of operands; None without FLOP or bytes."""
    row = group.operators[0][0]
    return row.flop / row.traffic_bytes if row.flop is not None and row.traffic_bytes else None


def _naming(
    comparison: Comparison, groups: Sequence[GroupAcross], view: View
) -> tuple[dict[Column, _Cell], dict[Column, _Cell]]:
    """Return the naming columns of a row, long and short."""
    if view.by != "operator":
        both: dict[Column, _Cell] = {
            Column(heading=view.by): lambda each: _name_by(view, each.operators[0][0]),
            number_column("calls", 1): lambda each: str(len(each.operators)),
        }
        return both, both

    def module(group: GroupAcross) -> str:
        count, name = len(group.operators), module_of(group.operators[0][0])
        return f"{name} ×{count}" if count > 1 else name

    def flop(group: GroupAcross) -> str:
        known = group.operators[0][0].flop
        return MISSING if known is None else format_flop(len(group.operators) * known)

    names = dict(zip(map(id, groups), names_across(comparison, groups), strict=True))
    intensity: dict[Column, _Cell] = {
        number_column("Operand AI (FLOP/B)", 1): lambda each: format_intensity(intensity_of(each))
    }
    full: dict[Column, _Cell] = {
        Column(heading="operator"): lambda each: short_op(each.operators[0][0]),
        Column(heading="module"): module,
        Column(heading="output", drop_priority=4): lambda each: shape_of(each.operators[0][0]),
        number_column("FLOP", 3): flop,
        **intensity,
    }
    return full, {Column(heading="operator"): lambda each: names[id(each)], **intensity}


def _choice(
    comparison: Comparison,
    title: str,
    groups: Sequence[GroupAcross],
    view: View,
    *,
    has_total: bool,
) -> Choice:
    shown, others = groups[: view.rows()], groups[view.rows() :]
    sums: list[tuple[str, GroupAcross]] = []
    if others:
        rest = [across for each in others for across in each.operators]
        sums.append((f"{len(rest)} more", combine_operators(comparison, rest)))
    if has_total:
        unshared = unshared_operators(comparison)
        sums += [("not on all machines", unshared)] if unshared is not None else []
        sums.append(("total", all_operators(comparison)))
    names = list(map(printable, comparison.machine_names))
    keys = list(map(cells.letter, range(len(names))))
    letters = "C compute-, M memory-bound"
    if any(not side.is_sole for each in shown for side in each.sides):
        letters += "; c, m: mostly"
    at_length, in_short = _naming(comparison, shown, view)

    def grid(
        title: str,
        naming: Mapping[Column, _Cell],
        columns: Mapping[Column, _Cell],
        sum_cells: Callable[[GroupAcross], Iterable[str]],
    ) -> Grid:
        blank = ("",) * (len(naming) - 1)
        rows = [(name, *blank, *sum_cells(each)) for name, each in sums]
        return table(title, shown, {**naming, **columns}, sums=rows)

    def bounds(group: GroupAcross) -> Iterable[str]:
        return map(format_s, group.eager_min_time_s)

    # Only in the widest layout.
    more: dict[Column, _Cell] = {
        number_column(f"predicted on {names[place]}", 1): partial(_predicted_cell, place=place)
        for place, each in enumerate(comparison.analyses)
        if any(row.predicted_s is not None for row in each.operators)
    }
    more[number_column("largest share", 2)] = _share_cell
    by_machine: dict[Column, _Cell] = {
        number_column(name): partial(_side_cell, name=_in_words, place=place)
        for place, name in enumerate(names)
    }
    full = grid(
        title,
        at_length,
        {**by_machine, **more},
        lambda group: (*bounds(group), *(cell(group) for cell in more.values())),
    )
    title = f"{title} ({letters})"
    by_name, by_key = (
        grid(
            title,
            in_short,
            {
                number_column(heading): partial(_side_cell, name=_letter, place=place)
                for place, heading in enumerate(headings)
            },
            bounds,
        )
        for headings in (names, keys)
    )

    def sides(group: GroupAcross) -> str:
        pairs = zip(keys, group.sides, strict=True)
        return " ".join(f"{_letter(side):<{len(key)}}" for key, side in pairs)

    ends: dict[Column, _Cell] = {
        number_column("lowest"): lambda each: format_s(min(_known(each), default=None)),
        number_column("highest"): lambda each: format_s(max(_known(each), default=None)),
    }
    narrowest = grid(
        title,
        in_short,
        {Column(heading=" ".join(keys)): sides, **ends},
        lambda group: ("", *(cell(group) for cell in ends.values())),
    )
    return Choice(grids=(full, by_name, by_key, narrowest))


def _known(group: GroupAcross) -> list[float]:
    return [time for time in group.eager_min_time_s if time is not None]


def _side_cell(group: GroupAcross, *, name: Callable[[Side], str], place: int) -> str:
    return f"{name(group.sides[place])} {format_s(group.eager_min_time_s[place])}"


def _in_words(side: Side) -> str:
    return str(side.bound) if side.is_sole else f"mostly {side.bound}"


def _letter(side: Side) -> str:
    """Return the limiter as a letter: C, M or ?; lower case for mixed limiters."""
    found = {Bound.COMPUTE: "C", Bound.MEMORY: "M"}.get(side.bound, "?")
    return found if side.is_sole else found.lower()


def _predicted_cell(group: GroupAcross, *, place: int) -> str:
    is_known = group.predicted_s[place] is not None
    if not is_known and all(across[place].predicted_s is None for across in group.operators):
        return prediction_cell(None, None, group.eager_min_time_s[place])
    # Incomplete sums of predictions are unknown.
    return interval_cell(group.predicted_s[place], None, None)


def _share_cell(group: GroupAcross) -> str:
    known = any(share is not None for share in group.shares)
    # Rounding of sums must not show as "> 99.9 %".
    return format_percent(min(1.0, round(group.largest_share, 12))) if known else MISSING
