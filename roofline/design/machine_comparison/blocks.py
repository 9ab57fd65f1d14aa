"""The report on one model on several machines: machines, operators, and who changes sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase

from roofline.analysis import Analysis, OperatorRow, unknown_capacity
from roofline.analysis.points import likeness, name_of
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
from roofline.design.machine_comparison.grouping import Across, GroupAcross, Side
from roofline.design.machine_comparison.result import MachineComparison
from roofline.design.machine_comparison.summary import MachineSummary
from roofline.design.pass_times import DIGITS
from roofline.foundation.blocks import Block, By, Choice, Column, Facts, Grid, Notes, View
from roofline.foundation.spreads import interval_cell
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


def machines_blocks(comparison: MachineComparison, view: View) -> Iterator[Block]:
    """Return machines, operators, advice, coverage and warnings."""
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
    yield from operator_choices(comparison, view)
    unknown = groups_of_unknown(first)
    if unknown:
        yield unknown_grid(unknown, bounds=False)
    yield from machines_advice_notes(comparison.names, comparison.analyses)
    yield Facts(lines=(("Coverage", coverage_text(first)),))
    warnings = warnings_of(comparison)
    if warnings:
        yield Notes(title="Warnings", lines=warnings)


def machines_grid(comparison: MachineComparison) -> Grid:
    """The machines, one a line: what they offer, what binds the model there, and its times."""
    machines = comparison.machines
    is_predicted = any(each.predicted_s is not None for each in machines)
    is_measured = any(each.measured_s is not None for each in machines)
    # Older files do not have those of kernels and of the model.
    is_fit_known = any(each.fits is not None for each in machines)
    # Beside times, what the bound is made of gives way.
    crowded = is_predicted or is_measured

    def times(machine: MachineSummary) -> tuple[str, ...]:
        predicted = prediction_cell(
            machine.predicted_s, machine.interval_s, machine.eager_min_time_s
        )
        measured = format_s(machine.measured_s, DIGITS)
        return (
            *([predicted] * is_predicted),
            *([measured] * is_measured),
            *([fit_cell(machine.fits)] * is_fit_known),
        )

    return Grid(
        title="Machines: ridge in FLOP/byte, minimum times, compute and memory share of eager",
        columns=(
            Column(heading=""),
            Column(heading="machine"),
            Column(heading="description", sacrifice=8 if crowded else 3),
            Column(heading="threads", align="right", sacrifice=7 if crowded else 2),
            Column(heading="peak", align="right", sacrifice=2 * crowded),
            Column(heading="bandwidth", align="right", sacrifice=3 * crowded),
            Column(heading="ridge", align="right", sacrifice=4 * crowded),
            Column(heading="eager", align="right"),
            Column(heading="fused", align="right", sacrifice=int(crowded)),
            Column(heading="model", align="right", sacrifice=int(crowded)),
            Column(heading="compute", align="right", sacrifice=5 * crowded),
            Column(heading="memory", align="right", sacrifice=6 if crowded else 1),
            *([Column(heading="predicted", align="right")] * is_predicted),
            *([Column(heading="measured", align="right")] * is_measured),
            *([Column(heading="fits in memory")] * is_fit_known),
        ),
        rows=tuple(
            (
                *_machine_cells(key_of(number), machine, is_cpu=analysis.hardware.device == "cpu"),
                *times(machine),
            )
            for number, (machine, analysis) in enumerate(
                zip(machines, comparison.analyses, strict=True)
            )
        ),
    )


def _machine_cells(key: str, machine: MachineSummary, *, is_cpu: bool) -> tuple[str, ...]:
    compute, memory = machine.compute, machine.memory
    return (
        key,
        printable(machine.name),
        printable(machine.description) or MISSING,
        str(machine.threads) if is_cpu else MISSING,
        format_flop_per_s(compute.flop_per_s if compute else None),
        format_bytes_per_s(memory.bytes_per_s if memory else None),
        format_intensity(machine.ridge_flop_per_byte),
        format_s(machine.eager_min_time_s),
        format_s(machine.fused_min_time_s),
        format_s(machine.model_min_time_s),
        format_percent(machine.compute_share),
        format_percent(machine.memory_share),
    )


def warnings_of(comparison: MachineComparison) -> tuple[str, ...]:
    """The warnings of all analyses, each said once; what holds of many machines comes first."""
    machines = list(zip(comparison.names, comparison.analyses, strict=True))
    classic = [name for name, each in machines if each.hardware.knows_only_dram]
    others = [(name, each) for name, each in machines if each.hardware.device != each.run.device]
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
    lines = [_levels(comparison, classic)] if classic else []
    for run_on in DEVICES:
        names = [name for name, each in others if each.run.device == run_on]
        if names:
            lines.append(
                f"{', '.join(names)}: the operators are those that torch calls on"
                f" {where_operators_are(run_on)}; there it may call others, whose minimum times may"
                " be shorter"
            )
    if comparison.apart is not None:
        lines.append(
            "CPUs and GPUs call operators of their own: those are in times and totals, and only"
            " what all machines call is compared one by one; work, traffic and memory are those"
            f" on {comparison.names[0]}"
        )
    return tuple(map(printable, [*lines, *rest]))


def _levels(comparison: MachineComparison, classic: list[str]) -> str:
    """Who is charged every operand to one memory level, and who is not."""
    know = "knows" if len(classic) == 1 else "know"
    line = (
        f"{', '.join(classic)} {know} a single memory level: every operand is charged to it"
        " (the classic roofline model)"
    )
    cached = [
        f"{name} {_level_names(each)}"
        for name, each in zip(comparison.names, comparison.analyses, strict=True)
        if len(each.hardware.memory) > 1
    ]
    if cached:
        line += f"; {', '.join(cached)}: what is cached there crosses only the nearer levels"
    return line


def _level_names(analysis: Analysis) -> str:
    levels = analysis.hardware.memory
    return f"knows {levels[0].name} to {levels[-1].name}"


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


_LETTERS = {Bound.COMPUTE: "C", Bound.MEMORY: "M"}


def range_of(group: GroupAcross) -> tuple[str, str]:
    """The shortest and the longest bound on any machine."""
    known = [time for time in group.eager_min_time_s if time is not None]
    return (format_s(min(known, default=None)), format_s(max(known, default=None)))


def in_words(side: Side) -> str:
    """What binds, in words: ``"compute"``, ``"mostly memory"``."""
    return str(side.bound) if side.whole else f"mostly {side.bound}"


def letter(side: Side) -> str:
    """What binds, as a letter: C, M or ?, small where it is most of the time, not all."""
    found = _LETTERS.get(side.bound, "?")
    return found if side.whole else found.lower()


def predicted_cell(group: GroupAcross, place: int) -> str:
    """What the operators are predicted to take on the machine at `place`, without an interval."""
    is_known = group.predicted_s[place] is not None
    if not is_known and all(across[place].predicted_s is None for across in group.operators):
        return prediction_cell(None, None, group.eager_min_time_s[place])
    # Of sums of which an operator is not predicted, nothing is known.
    return interval_cell(group.predicted_s[place], None, None)


def share_cell(group: GroupAcross) -> str:
    """The largest share of any machine's bound."""
    known = any(share is not None for share in group.shares)
    # Rounding in a sum must not show as "> 99.9 %".
    return format_percent(min(1.0, round(group.largest_share, 12))) if known else MISSING
