"""What the report on an analysis says, the verdict first."""

from __future__ import annotations

from collections.abc import Iterable

from roofline.analysis import Analysis, fit_of, fit_warnings, groups, unknown_capacity
from roofline.analysis.facts import model_fact, run_fact, what_runs, work_facts
from roofline.analysis.finding_words import advice_notes
from roofline.analysis.latency_facts import latency_facts, measurement_warnings, real_time
from roofline.analysis.tables import (
    group_grid,
    groups_of_unknown,
    operator_grid,
    phase_grid,
    unknown_grid,
)
from roofline.analysis.times import above_roof, minimum_words, rounded_share
from roofline.analysis.words import hardware_fact, sum_of_flop
from roofline.foundation.blocks import Block, Facts, View, notes
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_bytes, format_percent, format_s
from roofline.placement import Bound, Roof, ceiling_types
from roofline.workload.formulas.convolution_algorithms import is_convolution
from roofline.workload.operators import State


def analysis_blocks(analysis: Analysis, view: View) -> Iterable[Block]:
    """Return what a report says below the summary.

    Rows that are left out appear as one, so that the rows add up to the total.
    """
    yield Facts(lines=tuple(_facts(analysis, view)))
    if analysis.run.train and view.by != "phase" and analysis.operators:
        yield phase_grid(analysis, view)
    if analysis.operators:
        yield (
            operator_grid(analysis, view)
            if view.by == "operator"
            else group_grid(analysis, view.by, view)
        )
    unknown = groups_of_unknown(analysis)
    if unknown:
        yield unknown_grid(unknown)
    yield from advice_notes(analysis)
    yield Facts(lines=(("Coverage", coverage_text(analysis)),))
    warnings = (
        *fit_warnings(analysis),
        *analysis.warnings,
        *measurement_warnings(analysis),
        *above_roof(analysis),
    )
    yield from notes("Warnings", warnings, urgent=True)


def _at_least(analysis: Analysis, text: str) -> str:
    return f"≥ {text}" if analysis.totals.unknown_operators else text


def headline(analysis: Analysis) -> str:
    """Return the verdict in one sentence."""
    model, totals = what_runs(analysis), analysis.totals
    if not analysis.operators:
        return f"{model}: no operators"
    if totals.eager_min_time_s is None:
        limit = "no bound on time, the hardware's ceilings are unknown"
        flop = sum_of_flop(totals.flop, totals.unknown_operators)
        work = f"{flop} and {format_bytes(totals.traffic_bytes)}"
        return real_time(analysis, limit) or f"{model}: {work}; {limit}"
    shares: list[str] = []
    for bound, words in (
        (Bound.COMPUTE, "bound by compute"),
        (Bound.MEMORY, "bound by memory"),
        (Bound.UNKNOWN, "of unknown FLOP"),
    ):
        part = sum(row.eager_min_time_s or 0.0 for row in analysis.operators if row.bound is bound)
        if part:
            shares.append(f"{format_percent(part / totals.eager_min_time_s)} {words}")
    limits = f": {', '.join(shares)}" if shares else ""
    if lacking := _without_ceiling(analysis):
        limits += f" (no compute ceiling for {lacking}: by its memory traffic alone)"
    limit, classic = f"at least {format_s(totals.eager_min_time_s)} eager", ""
    if analysis.hardware.knows_only_dram:
        # Caches, of which the profile says nothing, may well let a run be faster.
        memory = printable(analysis.hardware.memory[0].name)
        limit = f"{format_s(totals.eager_min_time_s)} with every operand from {memory}"
        classic = " (classic roofline)"
    return (real_time(analysis, limit) or f"{model} takes {limit}{classic}") + limits


def _without_ceiling(analysis: Analysis) -> str:
    """The data types that operators compute in and the machine has no ceiling for."""
    roof = Roof(analysis.hardware, analysis.threads)
    used = {
        each
        for row in analysis.operators
        if row.min_flop
        for each in ceiling_types(row.inputs, row.outputs, row.macs)
    }
    return ", ".join(sorted(str(each) for each in used if roof.compute(each) is None))


def model_facts(analysis: Analysis, view: View) -> tuple[tuple[str, str], ...]:
    """What holds of the model on any machine: its input, run, work, traffic and memory."""
    return (
        model_fact(analysis),
        *run_fact(analysis),
        *work_facts(analysis, fused=view.fused),
    )


def _facts(analysis: Analysis, view: View) -> Iterable[tuple[str, str]]:
    totals = analysis.totals
    yield model_fact(analysis)
    yield from run_fact(analysis)
    caches = "steady state" if analysis.cache == "steady" else "cold caches"
    yield hardware_fact(analysis, view.today, caches=caches)
    *work, (memory, peak) = work_facts(analysis, fused=view.fused)
    yield from work
    yield memory, f"{peak} · {_fit(analysis)}"
    yield "Minimum", minimum_text(analysis)
    if totals.eager_min_time_s is not None:
        if ceilings := _ceilings(analysis):
            yield "Limiters", " · ".join(ceilings)
        if any(is_convolution(row.record) for row in analysis.operators):
            roof = Roof(analysis.hardware, analysis.threads)
            yield "Convolutions", roof.convolution_algorithms
    yield from latency_facts(analysis, view.today)


def minimum_text(analysis: Analysis) -> str:
    """The minimum times of a pass by name: ``"eager 3.1 ms · fused 2.0 ms (DRAM read) · …"``."""
    totals = analysis.totals
    if totals.eager_min_time_s is None:
        return "none: the hardware's ceilings are unknown"
    eager = f"eager {_at_least(analysis, format_s(totals.eager_min_time_s))}"
    return " · ".join([eager, *minimum_words(totals)])


def _fit(analysis: Analysis) -> str:
    """Whether the peak fits into the machine's memory, or that its capacity is not known."""
    return fit_of(analysis) or printable("".join(unknown_capacity([analysis.hardware])))


def _ceilings(analysis: Analysis) -> list[str]:
    by_ceiling = groups(analysis, lambda row: printable(row.ceiling))
    return [
        f"{each.name} {format_percent(rounded_share(each.share))}"
        for each in by_ceiling
        if each.share
    ]


def coverage_text(analysis: Analysis) -> str:
    """How much of the calls, bytes and time has known FLOP, in words."""
    coverage = analysis.coverage
    parts = [
        f"FLOP known for {format_percent(coverage.calls)} of the calls",
        f"{format_percent(coverage.byte)} of the bytes",
    ]
    if coverage.time is not None:
        parts.append(f"{format_percent(coverage.time)} of the measured time")
    free = sum(row.state is State.FREE for row in analysis.operators)
    working = len(analysis.operators) - free
    calls = f"{counted(working, 'operator call')}"
    are = "is" if free == 1 else "are"
    return " · ".join([*parts, calls, f"{free} more {are} free (views, allocations)"])
