"""What a report says, as plain data: the terminal, Markdown and HTML lay out the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from roofline.analysis import Analysis, Group, OperatorRow, groups, known_work, sum_bound_s
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_flop,
    format_intensity,
    format_percent,
    format_s,
    format_shape,
    format_si,
)
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Bound
from roofline.presentation.times import above_roof, time_s, total_s
from roofline.workload.operators import State

By = Literal["operator", "module", "type"]

MODEL_ITSELF = "(model)"
"""How an operator that runs in no submodule is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Lines of a name and what is known about it."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column's heading and alignment; where room is short, the highest `sacrifice` goes first."""

    heading: str
    align: Literal["left", "right"] = "left"
    sacrifice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table: `rows`, then `sums` (the rows left out, the total), all as long as `columns`."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    sums: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Sentences that a reader must not miss, or references."""

    title: str
    lines: tuple[str, ...]
    urgent: bool = True


Block = Facts | Grid | Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A headline, then blocks in the order they are read."""

    headline: str
    blocks: tuple[Block, ...]


def printable(text: str) -> str:
    """`text` on one line, with control characters (escape sequences, line ends) shown as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def age(day: str, today: date | None) -> str:
    """The date, and where `today` is given how long ago that was: ``"3 days ago (2026-03-04)"``."""
    try:
        then = date.fromisoformat(day[:10])
    except ValueError:
        return printable(day)
    days = (today - then).days if today else -1
    if days < 0:
        return f"on {then.isoformat()}"
    if days >= 60:
        return f"{days // 30} months ago ({then.isoformat()})"
    words = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
    return f"{words} ({then.isoformat()})"


def origin(profile: HardwareProfile, today: date | None) -> str:
    """Where a profile's numbers come from: ``"measured 3 days ago (2026-03-04)"``."""
    sources = {each.source for each in profile.provenances()}
    when = f" {age(profile.date, today)}" if profile.date else ""
    if sources == {"measured"}:
        return f"measured{when}"
    if sources == {"datasheet"}:
        references = sorted({printable(each.reference) for each in profile.provenances()})
        more = f" and {len(references) - 1} more" if len(references) > 1 else ""
        return f"data sheet, not measured: {references[0]}{more}"
    return f"partly measured, partly from data sheets{when}" if sources else "no ceilings"


def threads_of(count: int) -> str:
    """A number of threads in words."""
    return f"{count} thread{'s' * (count != 1)}"


def short_op(row: OperatorRow) -> str:
    """The operator without aten's name space: ``"convolution"``."""
    return printable(row.op.removeprefix("aten."))


def module_of(row: OperatorRow) -> str:
    """The module an operator runs in, or that it is the model's own."""
    return printable(row.module_path) or MODEL_ITSELF


def shape_of(row: OperatorRow) -> str:
    """The shape that tells calls of one operator apart: that of its first output, else input."""
    specs = row.outputs or row.inputs
    return format_shape(specs[0].shape) if specs else MISSING


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
        blocks.append(_operators(analysis, top) if by == "operator" else _groups(analysis, by, top))
    unknown = groups_of_unknown(analysis)
    if unknown:
        blocks.append(_unknown(unknown))
    blocks.append(Facts(lines=(("Coverage", _coverage(analysis)),)))
    warnings = (*analysis.warnings, *above_roof(analysis))
    if warnings:
        blocks.append(Notes(title="Warnings", lines=tuple(map(printable, warnings))))
    return Report(headline=_headline(analysis), blocks=tuple(blocks))


def groups_of_unknown(analysis: Analysis) -> tuple[Group, ...]:
    """The operators whose FLOP is unknown, by name."""
    return tuple(
        group
        for group in groups(analysis, lambda row: f"{row.state}:{row.op}")
        if group.unknown_operators
    )


def _at_least(analysis: Analysis, text: str) -> str:
    return f"≥ {text}" if analysis.totals.unknown_operators else text


def _flop(count: int, unknown: int, form: Callable[[float], str] = format_flop) -> str:
    """A sum of FLOP that says when it is not complete; never 0 for what is unknown."""
    if not unknown:
        return form(count)
    return f"≥ {form(count)}" if count else MISSING


def _sum_intensity(flop: int, byte: int, unknown: int) -> str:
    return _flop(flop, unknown, lambda each: format_intensity(each / byte)) if byte else MISSING


def _headline(analysis: Analysis) -> str:
    model, totals = printable(analysis.model), analysis.totals
    if not analysis.operators:
        return f"{model}: no operators"
    if totals.bound_s is None:
        work = f"{_flop(totals.flop, totals.unknown_operators)} and {format_byte(totals.traffic_byte)}"
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
    return f"{model} takes at least {format_s(totals.bound_s)}{limits}"


def _facts(analysis: Analysis, today: date | None) -> Iterable[tuple[str, str]]:
    totals, profile = analysis.totals, analysis.hardware
    inputs = [
        f"{printable(each.name)} {format_shape(each.shape)} {each.dtype}".strip()
        for each in analysis.inputs
    ]
    parameters = f"{format_si(totals.parameters, '')} parameters ({format_byte(totals.parameter_bytes)})"
    yield "Model", " · ".join([printable(analysis.model), *inputs, parameters])
    pass_of = "steady state" if analysis.cache == "steady" else "cold caches"
    machine = [printable(profile.name), threads_of(analysis.threads), pass_of, origin(profile, today)]
    yield "Hardware", " · ".join(machine)
    flop = _flop(totals.flop, totals.unknown_operators)
    fma = _flop(totals.multiply_add, totals.unknown_operators, lambda each: format_si(each, ""))
    yield "Work", f"{flop} · {fma} multiply-adds"
    yield "Traffic", f"{format_byte(totals.traffic_byte)} = {_traffic(analysis)}"
    intensity = _sum_intensity(totals.flop, totals.traffic_byte, totals.unknown_operators)
    yield "Intensity", intensity if intensity == MISSING else f"{intensity} FLOP/byte of traffic"
    yield (
        "Memory",
        f"{format_byte(totals.peak_memory_byte)} at the peak"
        f" · {format_byte(totals.all_tensors_byte)} if nothing were freed",
    )
    if totals.bound_s is None:
        yield "Bound", "none: the hardware's ceilings are unknown"
    else:
        yield "Bound", " · ".join([_at_least(analysis, format_s(totals.bound_s)), *_ceilings(analysis)])
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
    return [f"{each.name} {format_percent(each.share)}" for each in by_ceiling if each.share]


def _coverage(analysis: Analysis) -> str:
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
    return " · ".join([*parts, calls, f"{free} more are free (views, allocations)"])


def _operators(analysis: Analysis, top: int) -> Grid:
    measured = any(row.measured_s is not None for row in analysis.operators)
    predicted = any(row.predicted_s is not None for row in analysis.operators)
    working = [row for row in analysis.operators if row.state is not State.FREE]
    # Without any ceiling there is no time to sort by; bytes are always known.
    ordered = sorted(working, key=lambda row: (-(time_s(row) or 0.0), -row.traffic_byte, row.index))
    whole = total_s(analysis)
    optional = [
        *([Column(heading="predicted", align="right", sacrifice=2)] if predicted else []),
        *([Column(heading="measured", align="right")] if measured else []),
    ]
    columns = (
        Column(heading="operator"),
        Column(heading="module", sacrifice=1),
        Column(heading="output", sacrifice=4),
        Column(heading="FLOP", align="right"),
        Column(heading="bytes", align="right"),
        Column(heading="FLOP/byte", align="right", sacrifice=3),
        Column(heading="level", sacrifice=6),
        Column(heading="ceiling", sacrifice=5),
        Column(heading="bound", align="right"),
        *optional,
        Column(heading="share", align="right"),
    )

    def times(rows: Sequence[OperatorRow]) -> list[str]:
        cells = [format_s(sum_bound_s(rows))]
        if predicted:
            cells.append(format_s(_sum_known([row.predicted_s for row in rows])))
        if measured:
            cells.append(format_s(_sum_known([row.measured_s for row in rows])))
        known = [time for row in rows if (time := time_s(row)) is not None]
        cells.append(format_percent(sum(known) / whole) if whole and known else MISSING)
        return cells

    def cells(row: OperatorRow) -> tuple[str, ...]:
        return (
            short_op(row),
            module_of(row),
            shape_of(row),
            format_flop(row.flop),
            format_byte(row.traffic_byte),
            format_intensity(row.intensity_flop_per_byte),
            printable(row.level) or MISSING,
            printable(row.ceiling) or MISSING,
            *times([row]),
        )

    def summed(name: str, rows: Sequence[OperatorRow]) -> tuple[str, ...]:
        work = known_work(rows)
        unknown = sum(row.state is State.UNKNOWN for row in rows)
        flop = _flop(work.flop or 0, unknown)
        return (name, "", "", flop, format_byte(work.traffic_byte), "", "", "", *times(rows))

    shown, others = ordered[:top], ordered[top:]
    sums = [summed(f"{len(others)} more", others)] if others else []
    sums.append(summed("total", working))
    time = "measured time" if measured else "bound"
    return Grid(
        title=f"Operators by {time}" if whole else "Operators by bytes",
        columns=columns,
        rows=tuple(map(cells, shown)),
        sums=tuple(sums),
    )


def _sum_known(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return sum(known) if known and len(known) == len(times) else None


_GROUP_COLUMNS = (
    Column(heading="calls", align="right"),
    Column(heading="FLOP", align="right"),
    Column(heading="bytes", align="right"),
    Column(heading="FLOP/byte", align="right", sacrifice=1),
    Column(heading="bound", align="right"),
    Column(heading="share", align="right"),
)


def _groups(analysis: Analysis, by: Literal["module", "type"], top: int) -> Grid:
    name_of = module_of if by == "module" else lambda row: printable(row.type)
    found = groups(analysis, name_of)
    shown, others = found[:top], found[top:]
    sums = [_group_cells(_together(f"{len(others)} more", others))] if others else []
    sums.append(_group_cells(_together("total", found)))
    return Grid(
        title="Modules" if by == "module" else "Types of operators",
        columns=(Column(heading=by), *_GROUP_COLUMNS),
        rows=tuple(map(_group_cells, shown)),
        sums=tuple(sums),
    )


def _together(name: str, parts: Sequence[Group]) -> Group:
    shares = _sum_known([part.share for part in parts])
    return Group(
        name=name,
        calls=sum(part.calls for part in parts),
        work=sum((part.work for part in parts[1:]), start=parts[0].work) if parts else known_work([]),
        unknown_operators=sum(part.unknown_operators for part in parts),
        bound_s=_sum_known([part.bound_s for part in parts]),
        # Rounding in the sum must not show as 100.0 % of which a little is missing.
        share=min(1.0, round(shares, 12)) if shares is not None else None,
    )


def _group_cells(group: Group) -> tuple[str, ...]:
    flop, byte = group.work.flop or 0, group.work.traffic_byte
    return (
        group.name,
        str(group.calls),
        _flop(flop, group.unknown_operators),
        format_byte(byte),
        _sum_intensity(flop, byte, group.unknown_operators),
        format_s(group.bound_s),
        format_percent(group.share),
    )


def _unknown(found: Sequence[Group]) -> Grid:
    return Grid(
        title="Operators of unknown FLOP (their bytes are counted)",
        columns=(
            Column(heading="operator"),
            Column(heading="calls", align="right"),
            Column(heading="bytes", align="right"),
            Column(heading="bound by bytes", align="right"),
        ),
        rows=tuple(
            (
                printable(group.name.removeprefix(f"{State.UNKNOWN}:").removeprefix("aten.")),
                str(group.calls),
                format_byte(group.work.traffic_byte),
                format_s(group.bound_s),
            )
            for group in found
        ),
    )
