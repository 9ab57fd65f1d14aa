"""What the report on one model on several machines says, the verdict first."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from roofline.analysis import Analysis, unknown_capacity
from roofline.analysis.report import coverage_text, model_facts
from roofline.analysis.tables import groups_of_unknown, prediction_cell, unknown_grid
from roofline.analysis.words import fit_cell, machines_advice_notes, what_runs
from roofline.design.machine_comparison import MachineComparison, MachineSummary
from roofline.design.pass_times import DIGITS
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report, View, ViewOptions
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_bytes_per_s,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
)
from roofline.placement import classic_model_note, other_device_note, where_operators_are
from roofline.presentation.reports.machines_tables import key_of, operator_choices
from roofline.workload.runs import DEVICES


def machines_report(comparison: MachineComparison, **options: Unpack[ViewOptions]) -> Report:
    """The report on one model on several machines.

    Args:
        comparison: what to report.
        options: how to look at it, the fields of `View`. Modules are cut off at its depth, and
            stand in one list; the rows that a table leaves out appear as one.

    Raises:
        InputError: as `View`.
    """
    view = View(**options)
    first = comparison.analyses[0]
    verdict, *rest = map(printable, comparison.sentences)
    pass_of = "in steady state" if first.cache == "steady" else "with cold caches"
    run_on = {each.run.device for each in comparison.analyses}
    # Where there are several, machines say which.
    shown = first if len(run_on) == 1 else replace(first, run=replace(first.run, device="cpu"))
    *facts, (memory, peak) = model_facts(shown, view)
    unknown = unknown_capacity(each.hardware for each in comparison.analyses)
    facts.append((memory, " · ".join([peak, *map(printable, unknown)])))
    if rest:
        facts.append(("In short", " · ".join(rest)))
    blocks: list[Block] = [Facts(lines=tuple(facts)), machines_grid(comparison)]
    blocks += operator_choices(comparison, view)
    unknown = groups_of_unknown(first)
    if unknown:
        blocks.append(unknown_grid(unknown, bounds=False))
    blocks += machines_advice_notes(comparison.names, comparison.analyses)
    blocks.append(Facts(lines=(("Coverage", coverage_text(first)),)))
    warnings = warnings_of(comparison)
    if warnings:
        blocks.append(Notes(title="Warnings", lines=warnings))
    return Report(
        headline=f"{what_runs(first)} {pass_of}: {verdict}",
        blocks=tuple(blocks),
    )


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
