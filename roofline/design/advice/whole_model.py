"""Run options of the whole model: layout, type, batch, threads, allocator, by prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofline.analysis import Analysis, Finding, fit_of, groups, working
from roofline.core.text import counted
from roofline.core.units import format_bytes, format_flop_per_s, format_percent, format_s
from roofline.design.advice.subject import LEAST_SHARE, Saving, Time, saving_of
from roofline.placement import Roof
from roofline.workload.tensors import Role

_BATCHES = (8, 32)  # Multiples of the batch
_HEAVY = 0.5  # Minimum share of weights in the bytes from memory
_LONG = 0.05  # Minimum share of reading weights in the pass
_QUANTIZED = ("quantized.", "aten.quantize_")
"""Prefixes of operators with integer weights."""

_SHOWN = 2  # Operator types named per change


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Model with changed run options.

    ``options`` are the changed options of `roofline.predict`, ``samples`` the factor of samples per
    pass, ``why`` the evidence.
    """

    rule: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    samples: float = 1.0
    change: str
    why: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def variants_of(analysis: Analysis) -> list[Variant]:
    """Return the variants worth a prediction."""
    return [each for kind in _KINDS for each in kind(analysis)]


def _layouts(analysis: Analysis) -> Iterable[Variant]:
    """Yield the other memory format for models with images."""
    images = [
        row
        for row in working(analysis.operators)
        if row.type in ("convolution", "depthwise convolution", "pooling")
        and row.inputs
        and len(row.inputs[0].shape) == 4
    ]
    is_last = analysis.run.channels_last
    change = "model.to(memory_format=torch.channels_last), inputs too"
    if is_last:
        change = "keep model and inputs in contiguous layout"
    if images:
        yield Variant(
            rule="channels-last layout",
            name="contiguous" if is_last else "channels-last",
            options={"channels_last": not is_last},
            change=change,
        )


def _types(analysis: Analysis) -> Iterable[Variant]:
    """Yield 16-bit types for float32 models, and float32 for others."""
    asked = analysis.run.dtype or analysis.run.autocast
    if analysis.run.autocast and not analysis.run.train:
        yield Variant(
            rule="lower precision",
            name=f"{asked} throughout",
            options={"dtype": analysis.run.autocast, "autocast": None},
            change=f"model.to(torch.{asked}) instead of autocast, which casts weights per pass;"
            " check the accuracy",
        )
    if asked in ("bfloat16", "float16"):
        yield Variant(
            rule="lower precision",
            name="float32",
            options={"dtype": "float32" if analysis.run.dtype else None, "autocast": None},
            change=f"use float32: {asked} is slower here",
        )
    is_quantized = any(row.op.startswith(_QUANTIZED) for row in analysis.operators)
    if asked or analysis.run.train or is_quantized:
        return
    for row in working(analysis.operators):
        kept = [e for e in row.inputs if e.role is Role.PARAMETER and e.dtype.kind == "float"]
        if kept and max(kept, key=lambda each: each.byte).dtype.name != "float32":
            return
    for name in ("bfloat16", "float16"):
        yield Variant(
            rule="lower precision",
            name=name,
            options={"dtype": name},
            change=f"model.to(torch.{name}); check the accuracy",
        )


def _batches(analysis: Analysis) -> Iterable[Variant]:
    """Yield larger batches if weights dominate the bytes from memory."""
    share, byte = weight_traffic(analysis)
    shapes = [each.shape for each in analysis.inputs if each.shape]
    levels = Roof(analysis.hardware, analysis.threads).levels
    prediction = analysis.prediction
    pass_s = prediction.predicted_s if prediction else analysis.totals.eager_min_time_s
    if analysis.run.train or not (shapes and levels and pass_s) or share < _HEAVY:
        return
    read_s = share * byte / levels[-1].bytes_per_s
    if read_s < _LONG * pass_s:
        return
    batch = shapes[0][0]
    for factor in _BATCHES:
        yield Variant(
            rule="small batch",
            name=f"batch {batch * factor}",
            options={"batch": batch * factor},
            samples=factor,
            change=f"use batch {batch * factor}, if latency allows",
            why=f"weights are {format_percent(share)} of the {format_bytes(byte)} from memory per"
            f" pass of {counted(batch, 'sample')}; minimum time to read them"
            f" {format_s(read_s)} of {format_s(pass_s)}",
        )


def weight_traffic(analysis: Analysis) -> tuple[float, int]:
    """Return the share of weights in the bytes from the farthest memory, and those bytes."""
    byte = kept = 0
    for row in working(analysis.operators):
        crossing = list(row.level_bytes.values())
        far = crossing[-1] if crossing else row.traffic_bytes
        byte += far
        kept += min(far, sum(each.byte for each in row.inputs if each.role is Role.PARAMETER))
    return (kept / byte if byte else 0.0), byte


def _threads(analysis: Analysis) -> Iterable[Variant]:
    """Yield one thread, and all threads."""
    if analysis.hardware.device != "cpu":
        return
    for threads in {1, analysis.hardware.threads} - {analysis.threads}:
        yield Variant(
            rule="number of threads",
            name=f"{counted(threads, 'thread')}",
            options={"threads": threads},
            change=f"torch.set_num_threads({threads})",
        )


def _allocators(analysis: Analysis) -> Iterable[Variant]:
    """Yield glibc settings that keep memory between passes."""
    prediction = analysis.prediction
    if prediction is None or not prediction.tunables or not prediction.page_faults:
        return
    faults_s = prediction.predicted_s - prediction.settled_s
    share = format_percent(faults_s / prediction.predicted_s)
    yield Variant(
        rule="allocator",
        name="without page faults",
        change=f"set GLIBC_TUNABLES={prediction.tunables} (or preload jemalloc)",
        why=f"{prediction.page_faults:,} page faults per pass cost {format_s(faults_s)} of"
        f" {format_s(prediction.predicted_s)} ({share})",
        environment={"GLIBC_TUNABLES": prediction.tunables},
    )


_KINDS: Sequence[Callable[[Analysis], Iterable[Variant]]] = (
    *(_layouts, _types, _batches, _threads),
    _allocators,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Expected effect of a variant; ``is_open``: only a measurement can decide."""

    variant: Variant
    finding: Finding | None = None
    words: str = ""
    is_open: bool = False


def outcome_of(variant: Variant, before: Analysis, after: Analysis) -> Outcome:
    """Return the expected effect from the analyses before and after."""

    def said(words: str, *, is_open: bool = False) -> Outcome:
        return Outcome(variant=variant, words=f"{variant.name}: {words}", is_open=is_open)

    if after.fits is False:
        return said(str(fit_of(after)))
    saving = _saving(variant, before, after)
    if saving is None:
        # The reachable GEMM of the type may be known.
        then, now = _library_rate(before), _library_rate(after)
        if then and now and now < then:
            rates = f"{format_flop_per_s(now)}, instead of {format_flop_per_s(then)}"
            return said(f"reachable GEMM {rates}")
        return said("outside the calibration data", is_open=True)
    is_predicted = before.prediction is not None
    per_pass = " for as many samples" if variant.samples != 1 else ""
    times = f"{format_s(saving.after_s)} instead of {format_s(saving.before_s)}{per_pass}"
    if not saving.is_worthwhile(saving.before_s):
        if not is_predicted:
            # Equal minimum times can have different measured times.
            return said(f"{times} (minimum time)", is_open=True)
        low_s, high_s = saving.low_s, saving.high_s or 0.0
        is_open = low_s is not None and high_s > 0 > low_s
        is_open &= high_s >= LEAST_SHARE * saving.before_s
        return said(times + ", not significant" * is_open, is_open=is_open)
    why = [variant.why] if variant.why else []
    why += [f"{variant.name}: {times}", *_moved(variant, before, after)]
    return _found(variant, saving, "; ".join(why), is_predicted=is_predicted)


def without_faults(variant: Variant, analysis: Analysis) -> Outcome:
    """Return the effect of an allocator that keeps all memory."""
    run = analysis.prediction
    if run is None:
        return Outcome(variant=variant)
    saving = Saving(before_s=run.predicted_s, after_s=run.settled_s)
    return _found(variant, saving, variant.why)


def _found(
    variant: Variant, saving: Saving, evidence: str, *, is_predicted: bool = True
) -> Outcome:
    finding = Finding(
        rule=variant.rule,
        evidence=evidence,
        change=variant.change,
        basis="prediction" if is_predicted else "bound",
        predicted_before_s=saving.before_s,
        predicted_after_s=saving.after_s,
        saving_low_s=saving.low_s,
        saving_high_s=saving.high_s,
    )
    return Outcome(variant=variant, finding=finding)


def _library_rate(analysis: Analysis) -> float | None:
    """Return the reachable GEMM FLOP/s in the model's type; None if unknown."""
    products: dict[str, int] = {}
    for row in working(analysis.operators):
        if row.macs and row.outputs:
            name = row.outputs[0].dtype.name
            products[name] = products.get(name, 0) + row.macs
    if not products:
        return None
    name = max(products, key=lambda each: products[each])
    rates = [
        each.peak_flop_per_s
        for each in analysis.hardware.compute
        if (each.kind, each.dtype.name, each.threads) == ("library", name, analysis.threads)
        and each.kernel == "gemm"
    ]
    return max(rates, default=None)


def _saving(variant: Variant, before: Analysis, after: Analysis) -> Saving | None:
    if before.prediction is None:
        known = before.totals.eager_min_time_s, after.totals.eager_min_time_s
        if known[0] is None or known[1] is None:
            return None
        return Saving(before_s=known[0], after_s=known[1] / variant.samples)
    if after.prediction is None:
        return None
    one, other = (
        Time(s=each.predicted_s, low_s=each.low_s, high_s=each.high_s)
        for each in (before.prediction, after.prediction)
    )
    return saving_of([(one, other.times(1 / variant.samples))], "prediction")


def _moved(variant: Variant, before: Analysis, after: Analysis) -> list[str]:
    def times_of(analysis: Analysis) -> dict[str, float | None]:
        return {
            each.name: each.predicted_s if analysis.prediction else each.eager_min_time_s
            for each in groups(analysis, lambda row: row.type)
        }

    others = times_of(after)
    moved: list[tuple[float, str]] = []
    for name, one in times_of(before).items():
        other = others.get(name)
        if one is not None and other is not None:
            now = other / variant.samples
            moved.append((one - now, f"{name} {format_s(one)} → {format_s(now)}"))
    most = sorted(moved, reverse=True)[:_SHOWN]
    return [", ".join(words for saved, words in most if saved > 0)] if most else []
