"""Words of all reports on analyses: times and their kinds, operators, sums, the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Literal

from roofline.analysis import Analysis, Finding, Group, OperatorRow, Run, Totals, working
from roofline.core.blocks import Notes, notes
from roofline.core.text import counted, printable
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_intensity,
    format_percent,
    format_s,
    format_shape,
    format_si,
)
from roofline.latency.accuracy import BOUND_MARGIN
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.quantities import origin
from roofline.workload.operators import State

TOLERANCE = 1 / BOUND_MARGIN
"""What clocks and ceilings are worth: what beats its roof by less is not reported."""

Kind = Literal["measured", "predicted", "bound"]
"""The three times of an operator; they are never mixed in a sum."""

_NAMED = 5  # How many of the operators that beat their bound have a line


def kind_of_time(analysis: Analysis) -> Kind:
    """The best kind of time that every operator that does something has; else the bound."""
    rows = working(analysis.operators)
    if rows and all(row.measured_s is not None for row in rows):
        return "measured"
    return "predicted" if rows and all(row.predicted_s is not None for row in rows) else "bound"


def minimum_words(totals: Totals) -> tuple[str, ...]:
    """The fused and the model minimum with their limiters: ``"fused 12.1 ms (DRAM read)"``."""
    if totals.fused_min_time_s is None or totals.model_min_time_s is None:
        return ()
    of = (
        ("fused", totals.fused_min_time_s, totals.fused_limiter),
        ("model", totals.model_min_time_s, totals.model_limiter),
    )
    return tuple(
        f"{name} {format_s(time_s)}{f' ({printable(limiter)})' if limiter else ''}"
        for name, time_s, limiter in of
    )


_FIELDS: dict[Kind, str] = {
    "measured": "measured_s",
    "predicted": "predicted_s",
    "bound": "eager_min_time_s",
}


def time_of(operators: OperatorRow | Group, kind: Kind) -> float | None:
    """The time in seconds of that kind of an operator or a group."""
    return getattr(operators, _FIELDS[kind])


def sum_s(rows: Iterable[OperatorRow], kind: Kind) -> float:
    """The sum in seconds of the times of that kind that are known."""
    return sum(time_of(row, kind) or 0.0 for row in rows)


def time_s(row: OperatorRow) -> float | None:
    """The seconds that a picture shows: the measured time if there is one, else the bound."""
    return row.eager_min_time_s if row.measured_s is None else row.measured_s


def total_s(analysis: Analysis) -> float:
    """The sum in seconds of all times that a picture shows and that are known."""
    return sum(time_s(row) or 0.0 for row in working(analysis.operators))


def rounded_share(share: float) -> float:
    """A share of sums that were added in another order: it must not show as more than all."""
    return min(1.0, round(share, 12))


def rate_flop_per_s(row: OperatorRow) -> float | None:
    """Height of a point: FLOP over its measured time, else what its bound lets it attain."""
    if row.measured_s is None:
        return row.attainable_flop_per_s
    return row.flop / row.measured_s if row.flop is not None and row.measured_s else None


def beats_bound(row: OperatorRow) -> bool:
    """Whether a row was measured faster than its bound by more than measurements are worth."""
    return bool(
        row.measured_s
        and row.eager_min_time_s
        and row.measured_s * TOLERANCE < row.eager_min_time_s
    )


def above_roof(analysis: Analysis) -> tuple[str, ...]:
    """Return lines about the operators that stand above their roof, with what that means.

    A time below the bound is an error of ours, so each has its line. A rate above the ceiling is
    none: the convention counts FLOP that a kernel need not do. Those share a line for each ceiling.
    """
    faster = sorted(
        filter(beats_bound, analysis.operators),
        key=lambda row: (row.measured_s or 0.0) / (row.eager_min_time_s or 1.0),
    )
    lines = [
        f"{row.op} in '{row.module_path}' (operator {row.index}) ran in {format_s(row.measured_s)},"
        f" faster than its bound of {format_s(row.eager_min_time_s)}: its count, its data type or"
        " its ceiling is wrong; please report it"
        for row in faster[:_NAMED]
    ]
    more = len(faster) - _NAMED
    if more > 0:
        lines.append(f"{more} more ran faster than their bounds, by less than these")
    by_convention: Counter[str] = Counter()
    for row in analysis.operators:
        rate, attainable = rate_flop_per_s(row), row.attainable_flop_per_s
        if rate is None or attainable is None or beats_bound(row):
            continue
        if rate > TOLERANCE * attainable:
            by_convention[row.ceiling] += 1
    for ceiling, count in by_convention.items():
        who = "1 operator stands" if count == 1 else f"{count} operators stand"
        lines.append(
            f"{who} above {ceiling} without beating the bound: the convention counts FLOP that a"
            " kernel need not do (padding, masked attention, Winograd), and the bound leaves them"
            " out"
        )
    return tuple(lines)


_BASIS = {
    "prediction": "predicted",
    "estimate": "estimated from the prediction",
    "at most": "the most there is, predicted",
    "bound": "of the bound",
}
_SHOWN = 3


def pass_s(analysis: Analysis) -> float | None:
    """The seconds that savings are part of: predicted, else the bound."""
    return (
        analysis.prediction.predicted_s if analysis.prediction else analysis.totals.eager_min_time_s
    )


def basis_words(finding: Finding) -> str:
    """What the seconds of a finding are, in words."""
    return _BASIS[finding.basis] if finding.saving_s is not None else "found by trying it"


def saving_text(finding: Finding) -> str:
    """What it saves, with its interval; ``"~ 1 ms"`` of an estimate, ``"≤ 1 ms"`` of the most."""
    if finding.saving_s is None:
        return MISSING
    hedge = {"at most": "≤ ", "estimate": "~ "}.get(finding.basis, "")
    text = f"{hedge}{format_s(finding.saving_s)}"
    if finding.saving_low_s is None or finding.saving_high_s is None:
        return text
    return f"{text} ({format_s(finding.saving_low_s)} … {format_s(finding.saving_high_s)})"


def names_of(analysis: Analysis, finding: Finding) -> str:
    """Where it is: the operator that costs most, with its module, and how many more there are."""
    rows = [analysis.operators[index] for index in finding.operators]
    if not rows:
        return "the whole model"
    first = max(rows, key=lambda row: row.predicted_s or row.eager_min_time_s or 0.0)
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{short_op(first)} in {module_of(first)}{more}"


def machines_advice_notes(names: Sequence[str], analyses: Sequence[Analysis]) -> Iterable[Notes]:
    """The section of reports on several machines: a line a rule, with what it saves where."""
    shares: dict[str, float] = {}
    first: dict[str, Finding] = {}
    saved: dict[str, dict[str, str]] = {}
    for name, analysis in zip(names, analyses, strict=True):
        whole_s = pass_s(analysis)
        for each in analysis.findings:
            share = (each.saving_s or 0.0) / whole_s if whole_s else 0.0
            if share > shares.get(each.rule, -1.0):
                shares[each.rule], first[each.rule] = share, each
            # Of a rule with several findings on a machine the first is the one that saves most.
            words = f"{name} {saving_text(each)}, {format_percent(share)} ({basis_words(each)})"
            saved.setdefault(each.rule, {}).setdefault(name, words)
    if not shares:
        return
    largest = sorted(shares, key=lambda rule: -shares[rule])
    lines = [
        f"{rule} · {'; '.join(saved[rule].values())} ⇒ {first[rule].change}"
        for rule in largest[:_SHOWN]
    ]
    more = len(largest) - _SHOWN
    others = f"{more} more, and evidence" if more > 0 else "the evidence"
    lines.append(f"{others}: roofline advise {analyses[0].model} --hardware NAME")
    yield from notes("What could be changed", lines)


def advice_notes(analysis: Analysis) -> Iterable[Notes]:
    """The section that reports on analyses have where something was found."""
    if not analysis.findings:
        return
    lines = [
        f"{each.rule}, {saving_text(each)} {basis_words(each)} · {names_of(analysis, each)} ·"
        f" {each.evidence} ⇒ {each.change}"
        for each in analysis.findings[:_SHOWN]
    ]
    more = len(analysis.findings) - _SHOWN
    others = f"{more} more, " if more > 0 else ""
    lines.append(
        f"{others}other layouts, types, batches and threads: roofline advise {analysis.model}"
    )
    yield from notes("What could be changed", lines)


_NEARLY_ALL = 0.995
"""From which share on the FLOP that must be done need no mention beside all of them."""


def headline_subject(analysis: Analysis) -> str:
    """The model, or that it is a training step of it: the subject of a headline."""
    model = printable(analysis.model)
    return f"A training step of {model}" if analysis.run.train else model


def run_words(run: Run) -> str:
    """How a model was run, in words: ``"training step (adamw) · autocast bfloat16"``."""
    kind = "inference"
    if run.train:
        kind = f"training step ({printable(run.optimizer) or 'without an update'})"
    parts = [
        kind,
        f"loss: {printable(run.loss)}" if run.loss else "",
        f"parameters, buffers and inputs in {run.dtype}" if run.dtype else "",
        f"autocast {run.autocast}" if run.autocast else "",
        "channels last" if run.channels_last else "",
        f"operators of {run.device}" if run.device != "cpu" else "",
    ]
    return " · ".join(filter(None, parts))


def model_fact(analysis: Analysis) -> tuple[str, str]:
    """The model, its inputs and its parameters."""
    totals = analysis.totals
    inputs = [
        f"{printable(each.name)} {format_shape(each.shape)} {each.dtype}".strip()
        for each in analysis.inputs
    ]
    size = format_bytes(totals.parameter_size_bytes)
    parameters = f"{format_si(totals.parameters, '')} parameters ({size})"
    return "Model", " · ".join([printable(analysis.model), *inputs, parameters])


def run_fact(analysis: Analysis) -> Iterable[tuple[str, str]]:
    """How the model was run, where that is not an inference pass of the model as it is."""
    if analysis.run != Run():
        yield "Run", run_words(analysis.run)


def work_facts(analysis: Analysis, *, fused: bool = False) -> Iterable[tuple[str, str]]:
    """FLOP, traffic (that of fused kernels too where `fused`), intensity and memory."""
    totals = analysis.totals
    flop = sum_of_flop(totals.flop, totals.unknown_operators)
    fma = sum_of_flop(totals.macs, totals.unknown_operators, lambda each: format_si(each, ""))
    # Bounds take what must be done; beside all of it, operators may seem to be above their roof.
    must = ""
    if totals.min_flop < _NEARLY_ALL * totals.flop:
        must = f" · {format_flop(totals.min_flop)} must be done, which bounds take"
    yield "Work", f"{flop} · {fma} multiply-adds{must}"
    yield "Traffic", _traffic(analysis)
    if fused:
        yield "Fused", _fused(analysis)
    intensity = sum_of_intensity(totals.flop, totals.traffic_bytes, totals.unknown_operators)
    yield "Intensity", intensity if intensity == MISSING else f"{intensity} FLOP/byte of traffic"
    yield "Memory", _memory(analysis)


def _traffic(analysis: Analysis) -> str:
    totals = analysis.totals
    parts = [
        ("parameters", totals.parameter_bytes),
        ("inputs", totals.input_bytes),
        ("outputs", totals.output_bytes),
    ]
    training = [("gradients", totals.gradient_bytes), ("optimizer", totals.optimizer_bytes)]
    parts += [part for part in training if part[1]]
    words = " + ".join(f"{name} {format_bytes(byte)}" for name, byte in parts)
    # How much more it may be, where operators are made of parts.
    of_unknown = sum(
        row.internal_bytes is None and row.state is State.COUNTED for row in analysis.operators
    )
    inside = ""
    if of_unknown:
        calls = counted(of_unknown, "fused operator")
        inside = f" (more if {calls} pass data between their parts: how much is not known)"
    elif between := totals.internal_bytes:
        most = format_bytes(totals.traffic_bytes + between)
        inside = f" (up to {most}: fused operators may pass {format_bytes(between)} between"
        inside += " their parts)"
    return f"{format_bytes(totals.traffic_bytes)}{inside} = {words}"


def _fused(analysis: Analysis) -> str:
    totals, rows = analysis.totals, working(analysis.operators)
    if totals.fused_bytes is None:
        return "not known: analyse the model anew"
    kernels = len({row.chain for row in rows if row.fused_bytes})
    return (
        f"{format_bytes(totals.fused_bytes)} in {counted(kernels, 'kernel')} (eager:"
        f" {format_bytes(totals.traffic_bytes)} in {len(rows):,}), if chains stay on chip as"
        " Inductor or TensorRT would keep them; bounds are those of the eager run"
    )


def _memory(analysis: Analysis) -> str:
    totals, peak = analysis.totals, analysis.peak
    freed = f"{format_bytes(totals.all_tensors_bytes)} if nothing were freed"
    if peak is None:
        return f"{format_bytes(totals.peak_memory_bytes)} at the peak · {freed}"
    when = ""
    if peak.operator is not None:
        row = analysis.operators[peak.operator]
        phase = f", {row.phase}" if analysis.run.train else ""
        when = f", in {module_of(row)} ({printable(row.type)}{phase})"
    parts = [
        ("parameters", peak.parameter_bytes),
        ("buffers", peak.buffer_bytes),
        ("inputs", peak.input_bytes),
        ("activations", peak.activation_bytes),
        ("gradients", peak.gradient_bytes),
        ("optimizer", peak.optimizer_bytes),
    ]
    held = " + ".join(f"{name} {format_bytes(byte)}" for name, byte in parts if byte)
    return f"{format_bytes(peak.byte)} at the peak{when}: {held or 'nothing'} · {freed}"


MODEL_ITSELF = "(model)"  # How an operator that runs in no submodule is named


def fit_cell(fits: bool | None) -> str:
    """Return the cell of a table that says whether something fits into memory."""
    return MISSING if fits is None else "yes" if fits else "does not fit"


def hardware_fact(analysis: Analysis, today: date | None, *, caches: str = "") -> tuple[str, str]:
    """The machine, its threads, in which state its caches were, and whence its numbers are."""
    profile = analysis.hardware
    threads = describe_threads(profile, analysis.threads)
    clock_hz = profile.ceilings_clock_hz
    clock = f"ceilings at {format_si(clock_hz, 'Hz')}" if clock_hz else ""
    parts = (printable(profile.name), threads, caches, clock, origin(profile, today))
    return "Hardware", " · ".join(filter(None, parts))


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


def sum_of_flop(count: int, unknown: int, form: Callable[[float], str] = format_flop) -> str:
    """A sum of FLOP that says when it is not complete; never 0 for what is unknown."""
    if not unknown:
        return form(count)
    return f"≥ {form(count)}" if count else MISSING


def sum_of_intensity(flop: int, byte: int, unknown: int) -> str:
    """FLOP per byte of sums, in the words of `sum_of_flop`."""
    return (
        sum_of_flop(flop, unknown, lambda each: format_intensity(each / byte)) if byte else MISSING
    )


def saved_words(saved: float | None, form: Callable[[float], str]) -> str:
    """What is saved; what is added is said to be."""
    if saved is None:
        return MISSING
    return form(saved) if saved >= 0 else f"adds {form(-saved)}"


def provenance_words(profile: HardwareProfile) -> str:
    """Where the ceilings come from, in a line."""
    how = "; `roofline hardware show` says how each was" if profile.host else ""
    return f"Ceilings: {origin(profile, None)}{how}"


def machine_words(analysis: Analysis, *more: str) -> str:
    """The machine and its threads in a line, and what else stands in it."""
    profile = analysis.hardware
    cpu = printable(profile.host.cpu_model) if profile.host else ""
    threads = describe_threads(profile, analysis.threads)
    return " · ".join(filter(None, (cpu, printable(profile.name), threads, *more)))
