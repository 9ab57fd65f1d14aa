"""Run options of the whole model: layout, type, batch, threads, allocator, by prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofline.analysis import MINIMUMS, Analysis, Basis, Finding, fit_of, working
from roofline.analysis.library_times import times_by_type, unreliable_rates
from roofline.analysis.words import BASIS_TEXTS
from roofline.core.text import counted
from roofline.core.units import format_bytes, format_percent, format_s
from roofline.design.advice.subject import LEAST_SHARE, Saving, Time, saving_of
from roofline.placement import Roof
from roofline.workload.tensors import Role

_BATCHES = (8, 32)  # Multiples of the batch
_HEAVY = 0.5  # Minimum share of weights in the bytes from memory
_LONG = 0.05  # Minimum share of reading weights in the pass
_QUANTIZED = ("quantized.", "aten.quantize_")
"""Prefixes of operators with integer weights."""

_TYPES = "lower precision"  # Rule of data types

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
            rule=_TYPES,
            name=f"{asked} throughout",
            options={"dtype": analysis.run.autocast, "autocast": None},
            change=f"model.to(torch.{asked}) instead of autocast, which casts weights per pass;"
            " check the accuracy",
        )
    if asked in ("bfloat16", "float16"):
        yield Variant(
            rule=_TYPES,
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
            rule=_TYPES,
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
    is_predicted = before.prediction and after.prediction
    if not is_predicted and (rates := unreliable_rates(before) or unreliable_rates(after)):
        return said(
            f"not judged: the rate of {' and '.join(rates)} is unreliable; measure again",
            is_open=True,
        )
    times_of_both = _times_of_both(before, after)
    if times_of_both is None:
        return said("no minimum time", is_open=True)
    basis, one, other = times_of_both
    other = other.times(1 / variant.samples)
    saving = saving_of([(one, other)], basis)
    per_pass = " for as many samples" if variant.samples != 1 else ""
    times = f"{format_s(other.s)} instead of {format_s(one.s)}{per_pass}"
    with_kind = f"{times} ({BASIS_TEXTS[basis]})"
    if not saving.is_worthwhile(saving.before_s):
        if basis != "prediction":
            # Equal minimum times can have different measured times, unless the library is slower.
            is_slower = basis == "library" and variant.rule == _TYPES and saving.s < 0
            return said(with_kind, is_open=not is_slower)
        low_s, high_s = saving.low_s, saving.high_s or 0.0
        is_open = low_s is not None and high_s > 0 > low_s
        is_open &= high_s >= LEAST_SHARE * saving.before_s
        return said(with_kind + ", not significant" * is_open, is_open=is_open)
    why = [variant.why] if variant.why else []
    why += [f"{variant.name}: {_KIND[basis]} {times}", *_moved(variant, before, after, basis)]
    return _found(variant, saving, "; ".join(why), basis)


_KIND: dict[Basis, str] = {
    "prediction": "predicted",
    "bound": "minimum",
    "library": "library minimum (GEMM and convolution at the measured rates of torch)",
}


def without_faults(variant: Variant, analysis: Analysis) -> Outcome:
    """Return the effect of an allocator that keeps all memory."""
    run = analysis.prediction
    if run is None:
        return Outcome(variant=variant)
    saving = Saving(before_s=run.predicted_s, after_s=run.settled_s)
    return _found(variant, saving, variant.why, "prediction")


def _found(variant: Variant, saving: Saving, evidence: str, basis: Basis) -> Outcome:
    finding = Finding(
        rule=variant.rule,
        evidence=evidence,
        change=variant.change,
        basis=basis,
        predicted_before_s=saving.before_s,
        predicted_after_s=saving.after_s,
        saving_low_s=saving.low_s,
        saving_high_s=saving.high_s,
    )
    return Outcome(variant=variant, finding=finding)


def _times_of_both(before: Analysis, after: Analysis) -> tuple[Basis, Time, Time] | None:
    """Return the best kind of time that both passes have, and their times; None if unknown."""
    one, other = (
        Time(s=each.predicted_s, low_s=each.low_s, high_s=each.high_s) if each else None
        for each in (before.prediction, after.prediction)
    )
    if one and other:
        return "prediction", one, other
    for basis in reversed(MINIMUMS):
        parts = [found for each in (before, after) if (found := times_by_type(each, basis))]
        if len(parts) == 2:
            one, other = (Time(s=sum(each.values())) for each in parts)
            return basis, one, other
    return None


def _moved(variant: Variant, before: Analysis, after: Analysis, basis: Basis) -> list[str]:
    others = times_by_type(after, basis) or {}
    moved: list[tuple[float, str]] = []
    for name, one in (times_by_type(before, basis) or {}).items():
        if name in others:
            now = others[name] / variant.samples
            moved.append((one - now, f"{name} {format_s(one)} → {format_s(now)}"))
    most = sorted(moved, reverse=True)[:_SHOWN]
    return [", ".join(words for saved, words in most if saved > 0)] if most else []
