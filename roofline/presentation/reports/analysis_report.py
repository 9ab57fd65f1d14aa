"""What the report on an analysis says, the verdict first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from roofline.analysis import Analysis, groups
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_flop,
    format_percent,
    format_s,
    format_shape,
    format_si,
)
from roofline.machine.hardware import describe_threads
from roofline.placement import Bound, Roof, arithmetic_dtype
from roofline.presentation.reports.analysis_tables import (
    group_grid,
    groups_of_unknown,
    operator_grid,
    unknown_grid,
)
from roofline.presentation.reports.report import (
    Block,
    By,
    Facts,
    Notes,
    Report,
    origin,
    printable,
    sum_of_flop,
    sum_of_intensity,
)
from roofline.presentation.reports.times import above_roof
from roofline.workload.operators import State

_NEARLY_ALL = 0.995
"""From which share on the FLOP that must be done need no mention beside all of them."""


def report_of(
    analysis: Analysis, *, by: By = "operator", top: int = 10, today: date | None = None
) -> Report:
    """The report on an analysis.

    Args:
        analysis: what to report.
        by: whether rows are operators, or operators summed by module or by type.
        top: how many rows; the others appear as one, so that the rows add up to the total.
        today: for the hardware's age; None gives dates alone, as a file that lasts needs them.
    """
    blocks: list[Block] = [Facts(lines=tuple(_facts(analysis, today)))]
    if analysis.operators:
        blocks.append(
            operator_grid(analysis, top) if by == "operator" else group_grid(analysis, by, top)
        )
    unknown = groups_of_unknown(analysis)
    if unknown:
        blocks.append(unknown_grid(unknown))
    blocks.append(Facts(lines=(("Coverage", coverage_text(analysis)),)))
    warnings = (*analysis.warnings, *above_roof(analysis))
    if warnings:
        blocks.append(Notes(title="Warnings", lines=tuple(map(printable, warnings))))
    return Report(headline=_headline(analysis), blocks=tuple(blocks))


def _at_least(analysis: Analysis, text: str) -> str:
    return f"≥ {text}" if analysis.totals.unknown_operators else text


def _headline(analysis: Analysis) -> str:
    model, totals = printable(analysis.model), analysis.totals
    if not analysis.operators:
        return f"{model}: no operators"
    if totals.bound_s is None:
        flop = sum_of_flop(totals.flop, totals.unknown_operators)
        work = f"{flop} and {format_byte(totals.traffic_byte)}"
        return f"{model}: {work}; no bound on time, the hardware's ceilings are unknown"
    shares: list[str] = []
    for bound, words in (
        (Bound.COMPUTE, "bound by compute"),
        (Bound.MEMORY, "bound by memory"),
        (Bound.UNKNOWN, "of unknown FLOP"),
    ):
        part = sum(row.bound_s or 0.0 for row in analysis.operators if row.bound is bound)
        if part:
            shares.append(f"{format_percent(part / totals.bound_s)} {words}")
    limits = f": {', '.join(shares)}" if shares else ""
    if lacking := _without_ceiling(analysis):
        limits += f" (no compute ceiling for {lacking}: by its memory traffic alone)"
    if analysis.hardware.knows_only_dram:
        # Caches, of which the profile says nothing, may well let a run be faster.
        memory = printable(analysis.hardware.memory[0].name)
        time = f"{format_s(totals.bound_s)} with every operand from {memory}"
        return f"{model} takes {time} (classic roofline){limits}"
    return f"{model} takes at least {format_s(totals.bound_s)}{limits}"


def _without_ceiling(analysis: Analysis) -> str:
    """The data types that operators compute in and the machine has no ceiling for."""
    roof = Roof(analysis.hardware, analysis.threads)
    used = {
        arithmetic_dtype((*row.inputs, *row.outputs))
        for row in analysis.operators
        if row.least_flop
    }
    return ", ".join(sorted(str(each) for each in used if each and roof.compute(each) is None))


def _model(analysis: Analysis) -> tuple[str, str]:
    totals = analysis.totals
    inputs = [
        f"{printable(each.name)} {format_shape(each.shape)} {each.dtype}".strip()
        for each in analysis.inputs
    ]
    parameters = (
        f"{format_si(totals.parameters, '')} parameters ({format_byte(totals.parameter_bytes)})"
    )
    return "Model", " · ".join([printable(analysis.model), *inputs, parameters])


def _work(analysis: Analysis) -> Iterable[tuple[str, str]]:
    totals = analysis.totals
    flop = sum_of_flop(totals.flop, totals.unknown_operators)
    fma = sum_of_flop(
        totals.multiply_add, totals.unknown_operators, lambda each: format_si(each, "")
    )
    # Bounds take what must be done; beside all of it, operators may seem to be above their roof.
    must = ""
    if totals.least_flop < _NEARLY_ALL * totals.flop:
        must = f" · {format_flop(totals.least_flop)} must be done, which bounds take"
    yield "Work", f"{flop} · {fma} multiply-adds{must}"
    yield "Traffic", f"{format_byte(totals.traffic_byte)} = {_traffic(analysis)}"
    intensity = sum_of_intensity(totals.flop, totals.traffic_byte, totals.unknown_operators)
    yield "Intensity", intensity if intensity == MISSING else f"{intensity} FLOP/byte of traffic"
    yield (
        "Memory",
        f"{format_byte(totals.peak_memory_byte)} at the peak"
        f" · {format_byte(totals.all_tensors_byte)} if nothing were freed",
    )


def model_facts(analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """What holds of the model on any machine: its input, work, traffic and memory."""
    return (_model(analysis), *_work(analysis))


def _facts(analysis: Analysis, today: date | None) -> Iterable[tuple[str, str]]:
    totals, profile = analysis.totals, analysis.hardware
    yield _model(analysis)
    pass_of = "steady state" if analysis.cache == "steady" else "cold caches"
    machine = [
        printable(profile.name),
        describe_threads(profile, analysis.threads),
        pass_of,
        origin(profile, today),
    ]
    yield "Hardware", " · ".join(machine)
    yield from _work(analysis)
    if totals.bound_s is None:
        yield "Bound", "none: the hardware's ceilings are unknown"
    else:
        yield (
            "Bound",
            " · ".join([_at_least(analysis, format_s(totals.bound_s)), *_ceilings(analysis)]),
        )
    if totals.predicted_s is not None:
        low, high = totals.predicted_low_s, totals.predicted_high_s
        between = f" ({format_s(low)} to {format_s(high)})" if low and high else ""
        yield "Predicted", f"{format_s(totals.predicted_s)}{between}"
    if totals.measured_s:
        share = totals.bound_s / totals.measured_s if totals.bound_s else None
        rest = f" · the bound is {format_percent(share)} of it" if share else ""
        yield "Measured", f"{format_s(totals.measured_s)}{rest}"


def _traffic(analysis: Analysis) -> str:
    totals = analysis.totals
    parts = [
        ("parameters", totals.parameter_byte),
        ("inputs", totals.input_byte),
        ("outputs", totals.output_byte),
    ]
    training = [("gradients", totals.gradient_byte), ("optimizer", totals.optimizer_byte)]
    parts += [part for part in training if part[1]]
    return " + ".join(f"{name} {format_byte(byte)}" for name, byte in parts)


def _ceilings(analysis: Analysis) -> list[str]:
    by_ceiling = groups(analysis, lambda row: printable(row.ceiling))
    return [
        f"{each.name} {format_percent(min(1.0, round(each.share, 12)))}"
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
    calls = f"{working} operator call{'s' * (working != 1)}"
    are = "is" if free == 1 else "are"
    return " · ".join([*parts, calls, f"{free} more {are} free (views, allocations)"])
