"""What holds of a model on any machine, in words: how it was run, its work, traffic and memory."""

from __future__ import annotations

from collections.abc import Iterable

from roofline.analysis import Analysis, MemoryPeak, Run, working
from roofline.analysis.words import module_of, sum_of_flop, sum_of_intensity
from roofline.foundation.text import counted, printable
from roofline.foundation.units import (
    MISSING,
    format_bytes,
    format_flop,
    format_shape,
    format_si,
)
from roofline.workload.operators import State

_NEARLY_ALL = 0.995
"""From which share on the FLOP that must be done need no mention beside all of them."""


def what_runs(analysis: Analysis) -> str:
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
    return f"{format_bytes(totals.traffic_bytes)}{_inside(analysis)} = {words}"


def _inside(analysis: Analysis) -> str:
    """How much more the traffic may be, where operators are made of parts."""
    totals = analysis.totals
    of_unknown = [
        row
        for row in analysis.operators
        if row.internal_bytes is None and row.state is State.COUNTED
    ]
    if of_unknown:
        calls = f"{counted(len(of_unknown), 'fused operator')}"
        return f" (more if {calls} pass data between their parts: how much is not known)"
    if not totals.internal_bytes:
        return ""
    most, between = (
        totals.traffic_bytes + totals.internal_bytes,
        format_bytes(totals.internal_bytes),
    )
    return f" (up to {format_bytes(most)}: fused operators may pass {between} between their parts)"


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
    when = _moment(analysis, peak)
    return f"{format_bytes(peak.byte)} at the peak{when}: {_held(peak)} · {freed}"


def _moment(analysis: Analysis, peak: MemoryPeak) -> str:
    if peak.operator is None:
        return ""
    row = analysis.operators[peak.operator]
    phase = f", {row.phase}" if analysis.run.train else ""
    return f", in {module_of(row)} ({printable(row.type)}{phase})"


def _held(peak: MemoryPeak) -> str:
    parts = [
        ("parameters", peak.parameter_bytes),
        ("buffers", peak.buffer_bytes),
        ("inputs", peak.input_bytes),
        ("activations", peak.activation_bytes),
        ("gradients", peak.gradient_bytes),
        ("optimizer", peak.optimizer_bytes),
    ]
    held = [f"{name} {format_bytes(byte)}" for name, byte in parts if byte]
    return " + ".join(held) or "nothing"
