"""Text shared by all reports on analyses: facts, times and their kinds, operators, sums."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from roofline.analysis import (
    LIMITS,
    MINIMUMS,
    Analysis,
    Basis,
    Finding,
    Group,
    OperatorRow,
    Run,
    Totals,
    working,
)
from roofline.core.blocks import Notes, View, notes
from roofline.core.sampling import interval_cell
from roofline.core.text import NOTE, counted, printable
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
from roofline.latency.calibrated import no_calibration
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.quantities import doubts_text, origin
from roofline.machine.roof import ceiling_text, ridge_flop_per_byte
from roofline.placement import ComputeRoof, Roof, ceiling_types
from roofline.workload.models.libraries import names
from roofline.workload.operators import State
from roofline.workload.tensors import Role

TOLERANCE = 1 / BOUND_MARGIN
"""Uncertainty of clocks and ceilings; smaller excesses over the roofline are not reported."""

Kind = Literal["measured", "predicted", "bound"]
"""The three kinds of operator times; a sum never mixes them."""

_NAMED = 5  # Operators below their minimum time that have a line of their own


def kind_of_time(analysis: Analysis) -> Kind:
    """Return the best kind of time known for every operator that is not free."""
    rows = working(analysis.operators)
    if rows and all(row.measured_s is not None for row in rows):
        return "measured"
    return "predicted" if rows and all(row.predicted_s is not None for row in rows) else "bound"


_FIELDS: dict[Kind, str] = {
    "measured": "measured_s",
    "predicted": "predicted_s",
    "bound": "eager_min_time_s",
}


def why_not_predicted(analysis: Analysis) -> str:
    """Return the reason for a missing predicted time of the pass."""
    run, profile = analysis.run, analysis.hardware
    at_work = working(analysis.operators)
    known = sum(row.predicted_s is not None for row in at_work)
    if not at_work:
        return "no operators"
    if known:
        return f"{len(at_work) - known} of {len(at_work)} operators outside the calibration data"
    if run.train or run.autocast:
        return f"{'training' if run.train else 'autocast'} is not predicted"
    if run.device != profile.device:
        return f"operators for {run.device} are not predicted on {profile.device}"
    if analysis.cache == "cold":
        return "cold caches are not predicted"
    if profile.host and analysis.threads not in (1, profile.threads):
        return (
            f"no calibration data for {analysis.threads} threads; `roofline calibrate` measures 1"
            f" and {profile.threads}"
        )
    return no_calibration(profile, run.dtype)


def time_of(operators: OperatorRow | Group, kind: Kind) -> float | None:
    """Return the time of that kind of an operator or a group, in seconds."""
    return getattr(operators, _FIELDS[kind])


def sum_s(rows: Iterable[OperatorRow], kind: Kind) -> float:
    """Return the sum of the known times of that kind, in seconds."""
    return sum(time_of(row, kind) or 0.0 for row in rows)


def time_s(row: OperatorRow) -> float | None:
    """Return the time plotted for an operator: measured, else its minimum, in seconds."""
    return row.eager_min_time_s if row.measured_s is None else row.measured_s


def total_s(analysis: Analysis) -> float:
    """Return the sum of all plotted times that are known, in seconds."""
    return sum(time_s(row) or 0.0 for row in working(analysis.operators))


def rounded_share(share: float) -> float:
    """Return a share of sums that were added in another order, at most 1."""
    return min(1.0, round(share, 12))


def rate_flop_per_s(row: OperatorRow) -> float | None:
    """Return the y value of a point: FLOP/s measured, else attainable."""
    if row.measured_s is None:
        return row.attainable_flop_per_s
    return row.flop / row.measured_s if row.flop is not None and row.measured_s else None


def is_below_minimum(row: OperatorRow) -> bool:
    """Return whether a measured time is below the minimum time by more than the tolerance."""
    return bool(
        row.measured_s
        and row.eager_min_time_s
        and row.measured_s * TOLERANCE < row.eager_min_time_s
    )


def above_roofline(analysis: Analysis) -> tuple[str, ...]:
    """Return lines about operators above the roofline.

    A time below the minimum is an error of ours: one line each. A rate above the ceiling is not:
    counted FLOP that a kernel can leave out. One line per ceiling.
    """
    faster = sorted(
        filter(is_below_minimum, analysis.operators),
        key=lambda row: (row.measured_s or 0.0) / (row.eager_min_time_s or 1.0),
    )
    lines = [
        f"{row.op} in '{row.module_path}' (operator {row.index}): measured"
        f" {format_s(row.measured_s)}, below its minimum time {format_s(row.eager_min_time_s)};"
        " FLOP, data type or ceiling is wrong: please report it"
        for row in faster[:_NAMED]
    ]
    more = len(faster) - _NAMED
    if more > 0:
        lines.append(f"{more} more operators were measured below their minimum time")
    by_convention: Counter[str] = Counter()
    for row in analysis.operators:
        rate, attainable = rate_flop_per_s(row), row.attainable_flop_per_s
        if rate is None or attainable is None or is_below_minimum(row):
            continue
        if rate > TOLERANCE * attainable:
            by_convention[row.ceiling] += 1
    for ceiling, count in by_convention.items():
        lines.append(
            f"{NOTE}{counted(count, 'operator')} above the ceiling {ceiling_text(ceiling)}:"
            " counted FLOP include work that kernels skip (padding, masked attention, Winograd)"
        )
    return tuple(lines)


BASIS_TEXTS: dict[Basis, str] = {
    **dict.fromkeys(("prediction", "estimate", "at most"), "predicted"),
    "measured at most": "measured",
    "bound": "minimum",
    "library": "library minimum",
}
"""Kinds of time of savings in reports."""

_SHOWN = 3


def pass_s(analysis: Analysis) -> float | None:
    """Return the time that savings are a share of: predicted, else the eager minimum."""
    return whole_s(analysis, "predicted" if analysis.prediction else "bound")


def whole_s(analysis: Analysis, kind: Kind) -> float | None:
    """Return the time of the pass of that kind, in seconds; None: unknown."""
    if kind == "measured":
        return analysis.measurement and analysis.measurement.measured_s
    if kind == "predicted":
        return analysis.prediction and analysis.prediction.predicted_s
    return analysis.totals.eager_min_time_s


def basis_text(finding: Finding) -> str:
    """Return the kind of time of a finding's saving."""
    if finding.saving_s is None:
        return "measured only" if finding.verdict else MISSING
    return BASIS_TEXTS[finding.basis]


_HEDGE = {**dict.fromkeys(LIMITS, "≤ "), "estimate": "~ "}


def is_of_pass(analysis: Analysis, finding: Finding) -> bool:
    """Return whether a saving is part of the time of the pass in reports, not of another time."""
    before_s, whole = finding.predicted_before_s, pass_s(analysis)
    is_minimum = finding.basis in MINIMUMS and not finding.operators
    return not is_minimum or before_s is None or math.isclose(before_s, whole or 0.0)


def saving_text(analysis: Analysis, finding: Finding) -> str:
    """Return a saving with its interval; ``"~ 1 ms"``: estimated, ``"≤ 1 ms"``: upper limit.

    Savings of other times than that of the pass are shares only.
    """
    if finding.saving_s is None or not is_of_pass(analysis, finding):
        return MISSING
    if finding.saving_low_s is None or finding.saving_high_s is None:
        return f"{_HEDGE.get(finding.basis, '')}{format_s(finding.saving_s)}"
    return interval_cell(finding.saving_s, finding.saving_low_s, finding.saving_high_s)


def base_s(analysis: Analysis, finding: Finding) -> float | None:
    """Return the time of the pass of the kind of a finding's saving, in seconds."""
    if finding.basis == "measured at most":
        return whole_s(analysis, "measured")
    return pass_s(analysis) if finding.operators else finding.predicted_before_s


def saved_share(analysis: Analysis, finding: Finding) -> float | None:
    """Return the saving as a share of the pass, both of one kind; None: unknown."""
    of_s = base_s(analysis, finding)
    return finding.saving_s / of_s if finding.saving_s is not None and of_s else None


def saved_share_text(analysis: Analysis, finding: Finding) -> str:
    """Return the share of the pass that a finding saves; ``"≤ 10 %"``: upper limit.

    A saving of the whole model in minimum times assumes kernels that reach as much as before.
    """
    is_limit = finding.basis in LIMITS or (finding.basis in MINIMUMS and not finding.operators)
    share = format_percent(saved_share(analysis, finding))
    return f"≤ {share}" if is_limit and share != MISSING else share


def location_text(analysis: Analysis, finding: Finding) -> str:
    """Return the slowest operator of a finding, its module, and the number of others."""
    rows = [analysis.operators[index] for index in finding.operators]
    if not rows:
        return "the whole model"
    kind = kind_of_time(analysis)
    first = max(rows, key=lambda row: time_of(row, kind) or 0.0)
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{module_of(first)} ({short_op(first)}){more}"


def machines_advice_notes(names: Sequence[str], analyses: Sequence[Analysis]) -> Iterable[Notes]:
    """Yield the findings on several machines: one line per rule, with its saving on each."""
    shares: dict[str, float] = {}
    first: dict[str, Finding] = {}
    saved: dict[str, dict[str, str]] = {}
    for name, analysis in zip(names, analyses, strict=True):
        for each in analysis.findings:
            share = saved_share(analysis, each) or 0.0
            if share > shares.get(each.rule, -1.0):
                shares[each.rule], first[each.rule] = share, each
            # The first finding of a rule on a machine saves most.
            of_pass = saved_share_text(analysis, each)
            parts = [saving_text(analysis, each), f"{of_pass} ({basis_text(each)})"]
            words = f"{name} {', '.join(part for part in parts if part != MISSING)}"
            saved.setdefault(each.rule, {}).setdefault(name, words)
    if not shares:
        return
    largest = sorted(shares, key=lambda rule: -shares[rule])
    lines = [
        f"{rule} · {'; '.join(saved[rule].values())} ⇒ {first[rule].change}"
        for rule in largest[:_SHOWN]
    ]
    more = len(largest) - _SHOWN
    others = f"{more} more, and evidence" if more > 0 else "evidence"
    model = shlex.quote(analyses[0].model)
    lines.append(f"{others}: roofline advise {model} --hardware NAME")
    yield from notes("Possible savings", lines)


def _saving_in_line(analysis: Analysis, finding: Finding) -> str:
    """Return a saving and its share: ``"1 ms (10.0 % of the predicted time)"``."""
    if finding.saving_s is None:
        return basis_text(finding)
    share = f"{saved_share_text(analysis, finding)} of the {basis_text(finding)} time"
    saved = saving_text(analysis, finding)
    return share if saved == MISSING else f"{saved} ({share})"


def savings_fact(analysis: Analysis) -> Iterable[tuple[str, str]]:
    """Yield the rules of the findings with their savings, the largest first."""
    best: dict[str, Finding] = {}
    for each in analysis.findings:
        best.setdefault(each.rule, each)
    parts = [
        f"{each.rule} {_saving_in_line(analysis, each)}" for each in list(best.values())[:_SHOWN]
    ]
    if len(best) > _SHOWN:
        parts.append(f"{len(best) - _SHOWN} more")
    if parts:
        yield "Savings", " · ".join(parts)


def advice_notes(analysis: Analysis, arguments: str = "") -> Iterable[Notes]:
    """Yield the findings with evidence and change, the largest savings first.

    ``arguments`` are the model and run options as typed.
    """
    lines = [
        f"{each.rule}, {_saving_in_line(analysis, each)} · {location_text(analysis, each)} ·"
        f" {each.evidence} ⇒ {each.change}"
        for each in analysis.findings[:_SHOWN]
    ]
    if lines:
        more = len(analysis.findings) - _SHOWN
        others = f"{more} more, " if more > 0 else ""
        command = f"roofline advise {arguments or shlex.quote(analysis.model)}"
        lines.append(f"{others}other layouts, types, batches and threads: {command}")
    yield from notes("Possible savings", lines)


_NEARLY_ALL = 0.995
"""Share of the counted FLOP from which the minimum FLOP are not mentioned."""


def headline_subject(analysis: Analysis) -> str:
    """Return the subject of a headline: the model, and ``training step`` if it is one."""
    return f"{printable(analysis.model)}{', training step' * analysis.run.train}"


def pass_noun(run: Run) -> str:
    """Return ``"forward pass"`` or ``"training step"``."""
    return "training step" if run.train else "forward pass"


def run_text(run: Run) -> str:
    """Return the settings of a run: ``"training step (adamw) · autocast bfloat16"``."""
    kind = "inference"
    if run.train:
        kind = f"training step ({printable(run.optimizer) or 'no optimizer step'})"
    parts = [
        kind,
        f"loss: {printable(run.loss)}" if run.loss else "",
        f"parameters, buffers and inputs in {run.dtype}" if run.dtype else "",
        f"autocast {run.autocast}" if run.autocast else "",
        "channels last" if run.channels_last else "",
        f"device {run.device}" if run.device != "cpu" else "",
    ]
    return " · ".join(filter(None, parts))


def model_fact(analysis: Analysis) -> tuple[str, str]:
    """Return the fact ``Model``: library and name, inputs, parameters."""
    totals = analysis.totals
    inputs = [
        f"{printable(each.name)} {each.dtype} {format_shape(each.shape)}".strip()
        for each in analysis.inputs
    ]
    size = format_bytes(totals.parameter_size_bytes)
    if not any(each.dtype and each.dtype.kind == "float" for each in analysis.inputs):
        size = ", ".join([size, *_weight_types(analysis)])
    parameters = f"{format_si(totals.parameters, '')} parameters ({size})"
    library = "torchvision " * (analysis.model in names.names_of("torchvision"))
    return "Model", " · ".join([f"{library}{printable(analysis.model)}", *inputs, parameters])


def _weight_types(analysis: Analysis) -> list[str]:
    """Return the data type of most bytes of parameters, if there are any."""
    byte: Counter[str] = Counter()
    for row in analysis.operators:
        for each in row.inputs:
            if each.role is Role.PARAMETER:
                byte[each.dtype.name] += each.byte
    return [name for name, _ in byte.most_common(1)]


def run_fact(analysis: Analysis) -> Iterable[tuple[str, str]]:
    """Yield the fact ``Run`` unless the model ran as it is, in inference."""
    if analysis.run != Run():
        yield "Run", run_text(analysis.run)


def machine_fact(analysis: Analysis, view: View) -> tuple[str, str]:
    """Return the fact ``Machine``: name, threads, caches, origin of the ceilings."""
    caches = "warm caches" if analysis.cache == "steady" else "cold caches"
    return "Machine", machine_words(analysis.hardware, analysis.threads, view, caches)


def machine_words(profile: HardwareProfile, threads: int, view: View, caches: str = "") -> str:
    """Return name, threads, caches and origin of the ceilings of a machine."""
    clock_hz = profile.ceilings_clock_hz if view.verbose else None
    source = origin(profile, view.today if view.verbose else None).replace(
        "measured on", "measured"
    )
    parts = (
        printable(profile.name),
        describe_threads(profile, threads),
        caches,
        f"ceilings at {format_si(clock_hz, 'Hz')}" if clock_hz else "",
        source if view.verbose else source.partition(":")[0],
    )
    return " · ".join(filter(None, parts))


def minimum_text(totals: Totals, *, verbose: bool = False) -> str:
    """Return the minimum times: ``"eager 3.1 ms · fused 2.0 ms · model 1.8 ms"``.

    Verbose: each with its limiter.
    """
    if totals.eager_min_time_s is None:
        return "unknown: the machine has no ceilings"
    incomplete = "≥ " * bool(totals.unknown_operators)
    parts = [f"eager {incomplete}{format_s(totals.eager_min_time_s)}"]
    if totals.fused_min_time_s is not None and totals.model_min_time_s is not None:
        for name, time, limiter in (
            ("fused", totals.fused_min_time_s, totals.fused_limiter),
            ("model", totals.model_min_time_s, totals.model_limiter),
        ):
            of = f" ({ceiling_text(limiter)})" if limiter and verbose else ""
            parts.append(f"{name} {format_s(time)}{of}")
    return " · ".join(parts)


def work_facts(
    analysis: Analysis, view: View, *, machine: bool = True
) -> Iterable[tuple[str, str]]:
    """Yield the facts ``Compute``, ``Traffic`` and ``Memory``.

    Args:
        analysis: the analysis.
        view: verbose adds the breakdown of operand bytes; fused, the traffic of fused kernels.
        machine: include the traffic of the farthest memory level of the machine.
    """
    totals = analysis.totals
    flop = sum_of_flop(totals.flop, totals.unknown_operators)
    mac = sum_of_flop(totals.macs, totals.unknown_operators, lambda each: format_si(each, "MAC"))
    least = ""
    if view.verbose and totals.min_flop < _NEARLY_ALL * totals.flop:
        least = f" · minimum {format_flop(totals.min_flop)} (no padding taps or masked attention)"
    yield "Compute", f"{flop} ({mac}){least}"
    intensity = sum_of_intensity(totals.flop, totals.traffic_bytes, totals.unknown_operators)
    far = _farthest_traffic(analysis) if machine else ""
    alone = "" if far else f" (AI {intensity} FLOP/B)"
    yield "Traffic", f"{_operand_bytes(analysis)}{alone}{far}"
    if view.verbose:
        yield "Operands", f"{_operand_parts(totals)} · AI {intensity} FLOP/B"
        yield from _ridges(analysis) if machine else ()
    if view.fused:
        yield "Fused", _fused(analysis)
    yield "Memory", _memory(analysis, verbose=view.verbose)


_MATTERS = 0.02


def _operand_bytes(analysis: Analysis) -> str:
    totals = analysis.totals
    of_unknown = sum(
        row.internal_bytes is None and row.state is State.COUNTED for row in analysis.operators
    )
    inside = ""
    if of_unknown:
        inside = f" (more inside {counted(of_unknown, 'fused operator')}: bytes unknown)"
    elif totals.internal_bytes > _MATTERS * totals.traffic_bytes:
        most = format_bytes(totals.traffic_bytes + totals.internal_bytes)
        inside = f" (up to {most} with data inside fused operators)"
    return f"{format_bytes(totals.traffic_bytes)} operands{inside}"


def _operand_parts(totals: Totals) -> str:
    parts = [
        ("parameters", totals.parameter_bytes),
        ("inputs", totals.input_bytes),
        ("outputs", totals.output_bytes),
    ]
    training = [("gradients", totals.gradient_bytes), ("optimizer", totals.optimizer_bytes)]
    parts += [part for part in training if part[1]]
    return " + ".join(f"{name} {format_bytes(byte)}" for name, byte in parts)


def _farthest_traffic(analysis: Analysis) -> str:
    """Return bytes, AI and ridge point of the farthest memory level; ``""`` without ceilings."""
    if not analysis.hardware.memory:
        return ""
    roof = Roof(analysis.hardware, analysis.threads)
    assert roof.memory is not None
    level, totals = roof.memory.level.name, analysis.totals
    byte = sum(row.level_bytes.get(level, 0) for row in analysis.operators)
    parts: list[str] = []
    if byte:
        intensity = sum_of_intensity(totals.flop, byte, totals.unknown_operators)
        parts.append(f"AI {intensity} FLOP/B")
    if unit := _busiest_unit(analysis, roof):
        ridge = ridge_flop_per_byte(unit, roof.memory)
        parts.append(f"{printable(level)} ridge {format_intensity(ridge)}")
    within = f" ({'; '.join(parts)})" if parts else ""
    return f" · {printable(level)} {format_bytes(byte)}{within}"


def _busiest_unit(analysis: Analysis, roof: Roof) -> ComputeRoof | None:
    """Return the ceiling of the operator with the most FLOP; None: no FLOP, or no ceiling."""
    busiest = max(working(analysis.operators), key=lambda row: row.min_flop or 0, default=None)
    if busiest is None or not busiest.min_flop:
        return None
    types = ceiling_types(busiest.inputs, busiest.outputs, busiest.macs)
    known = [unit for unit in map(roof.compute, types) if unit is not None]
    return max(known, key=lambda unit: unit.flop_per_s, default=None)


def _ridges(analysis: Analysis) -> Iterable[tuple[str, str]]:
    """Yield the ridge points of all memory levels, for the operator with the most FLOP."""
    roof = Roof(analysis.hardware, analysis.threads)
    unit = _busiest_unit(analysis, roof)
    if unit and len(roof.levels) > 1:
        ridges = (
            f"{printable(each.level.name)} {format_intensity(ridge_flop_per_byte(unit, each))}"
            for each in roof.levels
        )
        yield "Ridges", f"{' · '.join(ridges)} FLOP/B ({ceiling_text(unit.label)})"


def _fused(analysis: Analysis) -> str:
    totals, rows = analysis.totals, working(analysis.operators)
    if totals.fused_bytes is None:
        return "unknown: analyze the model again"
    kernels = len({row.chain for row in rows if row.fused_bytes})
    return (
        f"{format_bytes(totals.fused_bytes)} in {counted(kernels, 'kernel')}"
        f" (eager: {format_bytes(totals.traffic_bytes)} in {len(rows):,}),"
        " with operator fusion as in Inductor or TensorRT"
    )


def _memory(analysis: Analysis, *, verbose: bool) -> str:
    totals, peak = analysis.totals, analysis.peak
    if peak is None:
        return f"{format_bytes(totals.peak_memory_bytes)} peak"
    when = ""
    if peak.operator is not None:
        row = analysis.operators[peak.operator]
        phase = f" ({row.phase})" if analysis.run.train else ""
        when = f", in {module_of(row)}{phase}"
    text = f"{format_bytes(peak.byte)} peak{when}"
    if not verbose:
        return text
    parts = [
        ("parameters", peak.parameter_bytes),
        ("buffers", peak.buffer_bytes),
        ("inputs", peak.input_bytes),
        ("activations", peak.activation_bytes),
        ("gradients", peak.gradient_bytes),
        ("optimizer", peak.optimizer_bytes),
    ]
    held = " + ".join(f"{name} {format_bytes(byte)}" for name, byte in parts if byte)
    every = format_bytes(totals.all_tensors_bytes)
    return f"{text}: {held or 'nothing'} · sum of all tensors {every}"


MODEL_ITSELF = "(model)"  # Operators that run in no submodule


def fit_cell(fits: bool | None) -> str:
    """Return the table cell of a fit into memory: ``"yes"``, ``"does not fit"`` or missing."""
    return MISSING if fits is None else "yes" if fits else "does not fit"


def short_op(row: OperatorRow) -> str:
    """Return the operator without its namespace aten: ``"convolution"``."""
    return printable(row.op.removeprefix("aten."))


def module_of(row: OperatorRow) -> str:
    """Return the module of an operator, or `MODEL_ITSELF`."""
    return printable(row.module_path) or MODEL_ITSELF


_NUMBER = re.compile(r"\d+")


def modules_of(rows: Sequence[OperatorRow]) -> str:
    """Return the module of equal calls: ``"layer.0.query and 2 more"``.

    Modules that differ in numbers only, as in layers, count once.
    """
    others = len({_NUMBER.sub("", row.module_path) for row in rows}) - 1
    return f"{module_of(rows[0])}{f' and {others} more' if others else ''}"


def shape_of(row: OperatorRow) -> str:
    """Return the shape of the first output, else of the first input."""
    specs = row.outputs or row.inputs
    return format_shape(specs[0].shape) if specs else MISSING


def sum_of_flop(count: int, unknown: int, form: Callable[[float], str] = format_flop) -> str:
    """Return a sum of FLOP; ``"≥ …"`` if some are unknown, missing if all are."""
    if not unknown:
        return form(count)
    return f"≥ {form(count)}" if count else MISSING


def sum_of_intensity(flop: int, byte: int, unknown: int) -> str:
    """Return the FLOP per byte of sums, as `sum_of_flop` does."""
    return (
        sum_of_flop(flop, unknown, lambda each: format_intensity(each / byte)) if byte else MISSING
    )


def saving_or_loss(saved: float | None, form: Callable[[float], str]) -> str:
    """Return a saving, or ``"adds …"`` for a loss."""
    if saved is None:
        return MISSING
    return form(saved) if saved >= 0 else f"adds {form(-saved)}"


def provenance_text(profile: HardwareProfile) -> str:
    """Return the origin of the ceilings."""
    how = "; details: `roofline hardware show`" if profile.host else ""
    return f"Ceilings: {origin(profile, None)}{doubts_text(profile)}{how}"


def machine_text(analysis: Analysis, *more: str) -> str:
    """Return CPU, machine, threads and `more`, separated by dots."""
    return place_text(analysis.hardware, analysis.threads, *more)


def place_text(profile: HardwareProfile, threads: int, *more: str) -> str:
    """Return CPU, machine, threads and `more`, separated by dots."""
    cpu = printable(profile.host.cpu_model) if profile.host else ""
    threads_text = describe_threads(profile, threads)
    return " · ".join(filter(None, (cpu, printable(profile.name), threads_text, *more)))
