"""Quantizations made by hand, for tests of what reports and pictures say; all numbers made up."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from roofline.analysis import Analysis, OperatorRow
from roofline.design.advice.subject import Time
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Bound
from roofline.quantization.policy import FLOAT_BITS, Layer, LayerBits, Place, Policy
from roofline.quantization.result import (
    LayerSensitivity,
    LayerWhatIf,
    NativeVariant,
    OverheadKind,
    Part,
    PartName,
    Proposal,
    Quantization,
    QuantizationOverhead,
    Sensitivity,
    Side,
    WhatIf,
)
from roofline.workload.tensors import Role, TensorSpec
from tests.analysis.examples import Network, analysis_of, ceiling, full_profile

FLOAT = LayerBits(weights=FLOAT_BITS, activations=FLOAT_BITS)
INT8_FLOP_PER_S = 2092e9
DRAM_BYTE_PER_S = 41.3e9


def machine() -> HardwareProfile:
    """The measured example, which multiplies int8 four times as fast as float32."""
    profile = full_profile()
    int8 = (
        ceiling(INT8_FLOP_PER_S, of="int8", unit="avx512-vnni", kernel="dot"),
        ceiling(1100e9, of="int8", unit="torch", kernel="conv", kind="library"),
    )
    return replace(profile, compute=(*profile.compute, *int8))


def residual(blocks: int = 3) -> Network:
    """Residual blocks like those of a ResNet for CIFAR; a projection where channels double."""
    net = Network()
    x = net.tensor(1, 3, 32, 32, role=Role.INPUT)
    x = net.relu(net.norm(net.convolution(x, 16, 3, "conv1"), "bn1"), "relu")
    for stage in range(3):
        for block in range(blocks):
            x = _block(net, x, 16 * 2**stage, f"layer{stage + 1}.{block}")
    mean = net.tensor(1, x.shape[1])
    mean = net.call("aten.mean", "reduction", "avgpool", (x,), mean, flop=x.elements)
    net.linear(mean, 10, "fc")
    return net


def _block(net: Network, x: TensorSpec, channels: int, name: str) -> TensorSpec:
    stride = 1 if x.shape[1] == channels else 2
    y = net.convolution(x, channels, 3, f"{name}.conv1", stride=stride)
    y = net.relu(net.norm(y, f"{name}.bn1"), f"{name}.relu")
    y = net.norm(net.convolution(y, channels, 3, f"{name}.conv2"), f"{name}.bn2")
    if stride == 2:
        x = net.convolution(x, channels, 1, f"{name}.shortcut", stride=2)
    y = net.call("aten.add_", "pointwise", name, (y, x), y, flop=y.elements)
    return net.relu(y, f"{name}.relu")


@functools.cache
def analysis() -> Analysis:
    """Residual blocks on a machine with int8."""
    return analysis_of(residual(), machine(), model="resnet-cifar")


def place_of(row: OperatorRow) -> Place:
    """Where a layer of `residual` stands, by its name."""
    if row.module_path in ("conv1", "fc"):
        return "first" if row.module_path == "conv1" else "last"
    return "shortcut" if row.module_path.endswith("shortcut") else "inner"


def side(**changes: Any) -> Side:
    """1 kB of weights, 2 kB read and 3 kB written, 60 kFLOP in 10 µs."""
    values: dict[str, Any] = {
        "weight_bytes": 1000,
        "input_bytes": 2000,
        "output_bytes": 3000,
        "flop": 60_000,
        "level": "DRAM",
        "ceiling": "DRAM read",
        "bound": Bound.MEMORY,
        "eager_min_time_s": 10e-6,
        "intensity_flop_per_byte": 10.0,
        "attainable_flop_per_s": 6e9,
        "time": None,
    }
    return Side(**{**values, **changes})


def layer(
    name: str, bits: LayerBits = FLOAT, place: Place = "inner", **changes: Any
) -> LayerWhatIf:
    """A layer whose result is read in its own bits; without kernels below 8 bits."""
    values: dict[str, Any] = {
        "layer": Layer(name=name, index=0, place=place, activation=0, weight=1),
        "bits": bits,
        "operators": (0,),
        "output_bits": bits.activations,
        "executable": "float32" if bits.is_float else "int8",
        "has_kernel": bits.is_float or bits.weights == bits.activations == 8,
        "parameters": 250,
        "macs": 30_000,
        "before": side(),
        "after": side(),
    }
    return LayerWhatIf(**{**values, **changes})


_OF_ROW = (
    *("input_bytes", "output_bytes", "flop", "level", "ceiling", "bound", "eager_min_time_s"),
    *("intensity_flop_per_byte", "attainable_flop_per_s"),
)


def _before(row: OperatorRow, time: Time | None) -> Side:
    same = {name: getattr(row, name) for name in _OF_ROW}
    return side(weight_bytes=row.parameter_bytes, time=time, **same)


def _after(row: OperatorRow, bits: LayerBits, time: Time | None) -> Side:
    """As many of its bytes as its bits are of 32, under DRAM and int8."""
    if bits.is_float:
        return _before(row, time)
    weights = row.parameter_bytes * bits.weights // 32
    read, written = (each * bits.activations // 32 for each in (row.input_bytes, row.output_bytes))
    byte, flop = weights + read + written, row.flop or 0
    memory_s, compute_s = byte / DRAM_BYTE_PER_S, flop / INT8_FLOP_PER_S
    eager_min_time_s = max(memory_s, compute_s)
    by_memory = memory_s >= compute_s
    return side(
        weight_bytes=weights,
        input_bytes=read,
        output_bytes=written,
        flop=flop,
        level="DRAM",
        ceiling="DRAM read" if by_memory else "int8 avx512-vnni dot",
        bound=Bound.MEMORY if by_memory else Bound.COMPUTE,
        eager_min_time_s=eager_min_time_s,
        intensity_flop_per_byte=flop / byte,
        attainable_flop_per_s=flop / eager_min_time_s,
        time=time,
    )


def _time(seconds: float | None, factor: float) -> Time | None:
    if seconds is None:
        return None
    s = factor * seconds
    return Time(s=s, low_s=0.9 * s, high_s=1.2 * s)


def what_if(of: Analysis, policy: Policy, *, timed: bool = False) -> WhatIf:
    """Every product of `of` in the bits of a policy; predicted where int8 runs, if `timed`."""
    layers: list[LayerWhatIf] = []
    for row in of.operators:
        if not row.macs:
            continue
        place = place_of(row)
        bits = policy.bits_of(row.module_path, place)
        known = timed and (bits.is_float or bits.weights == 8)
        layers.append(
            layer(
                row.module_path,
                bits,
                place,
                operators=(row.index,),
                macs=row.macs,
                before=_before(row, _time(row.eager_min_time_s, 3.0) if timed else None),
                after=_after(row, bits, _time(row.eager_min_time_s, 1.5) if known else None),
            )
        )
    before_s = sum(each.before.eager_min_time_s or 0.0 for each in layers)
    after_s = sum(each.after.eager_min_time_s or 0.0 for each in layers)
    before_bytes = sum(each.before.traffic_bytes for each in layers)
    after_bytes = sum(each.after.traffic_bytes for each in layers)
    has_kernels = all(each.has_kernel for each in layers)
    times = (_time(before_s, 3.0), _time(before_s, 1.5) if has_kernels else None)
    return WhatIf(
        policy=policy,
        layers=tuple(layers),
        passes=passes(),
        parts=(
            part("layers", len(layers), before_bytes, after_bytes, before_s, after_s),
            part("requantization", 9, 0, 40_000, 0.0, 4e-6),
            part("conversions", 4, 0, 20_000, 0.0, 2e-6),
            part("shortcuts", 9, 600_000, 600_000, 15e-6, 15e-6),
            part("others", 3, 10_000, 10_000, 1e-6, 1e-6),
        ),
        layer_bytes_before=before_bytes,
        layer_bytes_after=after_bytes,
        model_bytes_before=of.totals.parameter_size_bytes,
        model_bytes_after=of.totals.parameter_size_bytes * policy.weights // 32,
        eager_min_time_before_s=before_s + 16e-6,
        eager_min_time_after_s=after_s + 18e-6,
        separate_eager_min_time_s=after_s + 22e-6,
        before=times[0] if timed else None,
        after=times[1] if timed else None,
    )


def part(
    name: PartName,
    count: int,
    before_bytes: int,
    after_bytes: int,
    before_s: float | None,
    after_s: float | None,
    **times: Time | None,
) -> Part:
    """A part without predictions, unless they are given."""
    return Part(
        name=name,
        count=count,
        before_bytes=before_bytes,
        after_bytes=after_bytes,
        before_eager_min_time_s=before_s,
        after_eager_min_time_s=after_s,
        before_time=times.get("before_time"),
        after_time=times.get("after_time"),
    )


def one_pass(kind: OverheadKind, where: str, **changes: Any) -> QuantizationOverhead:
    """1000 elements, from 32 bits to 2."""
    values: dict[str, Any] = {
        "operator": 0,
        "elements": 1000,
        "from_bits": FLOAT_BITS,
        "to_bits": 2,
        "read_bytes": 4000,
        "written_bytes": 250,
        "flop": 5000,
        "is_separate": kind != "requantize",
        "eager_min_time_s": 1e-7,
        "time": None,
    }
    return QuantizationOverhead(kind=kind, where=where, **{**values, **changes})


def passes() -> tuple[QuantizationOverhead, ...]:
    """Three requantizations, two of them alike, one quantization and one back to floats."""
    back = {"from_bits": 2, "to_bits": 32, "read_bytes": 250, "written_bytes": 4000}
    return (
        one_pass("requantize", "layer1.0.conv1"),
        one_pass("requantize", "layer1.1.conv1"),
        one_pass("requantize", "conv1", to_bits=8, written_bytes=1000),
        one_pass("quantize", "layer1.0.conv1"),
        one_pass("dequantize", "avgpool", **back),
    )


@functools.cache
def bandwidth_only() -> Quantization:
    """2 bits, for which there is no kernel."""
    of = analysis()
    return Quantization(model=of.model, analysis=of, what_ifs=(what_if(of, Policy()),))


@functools.cache
def with_kernels() -> Quantization:
    """8 bits, which int8 computes, predicted and timed here."""
    of = analysis()
    policy = Policy(weights=8, activations=8)
    return Quantization(
        model=of.model,
        analysis=of,
        what_ifs=(what_if(of, policy, timed=True),),
        native_variants=variants(),
    )


def variants() -> tuple[NativeVariant, ...]:
    """bfloat16 loses, int8 wins, and one could not be run."""
    half, int8 = (LayerBits(weights=each, activations=each) for each in (16, 8))
    interval: dict[str, Any] = {"speedup_low": 0.78, "speedup_high": 0.83, "rounds": 7}
    predicted: dict[str, Any] = {"predicted_before_s": 4.2e-3, "predicted_s": 5.5e-3}
    slower: dict[str, Any] = {"before_s": 4e-3, "after_s": 5e-3, "speedup": 0.8, "error": 0.0042}
    faster: dict[str, Any] = {"before_s": 4e-3, "after_s": 2e-3, "speedup": 2.0, "error": 0.031}
    return (
        NativeVariant(way="bfloat16", bits=half, **slower, **interval, **predicted),
        NativeVariant(way="int8 (torch.ao, static)", bits=int8, rounds=1, **faster),
        NativeVariant(way="int8 (torchao)", bits=int8, why_not="torchao is not installed"),
    )


@functools.cache
def swept() -> Quantization:
    """2 bits first, then a sweep that has them again."""
    of = analysis()
    widths = (2, 2, 3, 4, 8, 16)
    policies = [Policy(weights=each, activations=each) for each in widths]
    return Quantization(
        model=of.model,
        analysis=of,
        what_ifs=tuple(what_if(of, each, timed=True) for each in policies),
    )


def sensitive() -> Quantization:
    """Layers by what they suffer, and bits for each within 100 kB."""
    bits = LayerBits(weights=2, activations=2)
    layers = tuple(
        LayerSensitivity(name=name, bits=bits, error=error, saved_s=saved_s, saved_bytes=byte)
        for name, error, saved_s, byte in (
            ("layer1.0.conv1", 0.05, 20e-6, 8000),
            ("layer3.0.conv1", 0.2, 2e-6, 9000),
            ("conv1", 0.4, -1e-6, -500),
        )
    )
    exceptions = {"layer3.0.conv1": LayerBits(weights=4, activations=4)}
    proposal = Proposal(
        policy=Policy(layers=exceptions),
        budget="a model of 100 kB",
        is_within=True,
        model_bytes=98_700,
        time_s=None,
        error=0.27,
    )
    said: dict[str, Any] = {"inputs": "random numbers", "weights": "the model's"}
    ranking = Sensitivity(layers=layers, basis="bound", proposal=proposal, **said)
    return replace(bandwidth_only(), sensitivity=ranking)


def unknown() -> Quantization:
    """A layer of unknown FLOP and bound: it has no place, and no zero."""
    found = bandwidth_only()
    rates = ("intensity_flop_per_byte", "attainable_flop_per_s")
    blank: dict[str, Any] = dict.fromkeys(("flop", "eager_min_time_s", *rates))
    blank["bound"] = Bound.UNKNOWN
    odd = layer(
        "odd",
        LayerBits(weights=2, activations=2),
        before=side(**blank),
        after=side(weight_bytes=63, input_bytes=125, output_bytes=188, **blank),
    )
    times = ("eager_min_time_before_s", "eager_min_time_after_s", "separate_eager_min_time_s")
    first = replace(found.what_if, layers=(odd,), **dict.fromkeys(times))
    return replace(found, what_ifs=(first,))


def slower() -> Quantization:
    """Conversions cost more than 8 bits save."""
    first = with_kernels().what_if
    longer = replace(
        first,
        eager_min_time_after_s=1.5 * (first.eager_min_time_before_s or 0.0),
        before=Time(s=1e-3, low_s=0.9e-3, high_s=1.1e-3),
        after=Time(s=1.2e-3, low_s=1.1e-3, high_s=1.4e-3),
    )
    return replace(with_kernels(), what_ifs=(longer,))


@functools.cache
def many() -> Quantization:
    """More layers than anybody reads."""
    of = analysis_of(residual(blocks=9), machine(), model="deep")
    return Quantization(model=of.model, analysis=of, what_ifs=(what_if(of, Policy()),))


def hostile() -> Quantization:
    """Names that break out of HTML, Markdown, rich markup and terminals if let."""
    bad = "<script>alert(1)</script>|[bold]`$a_b$`\x1b[31m\nnext"
    found = sensitive()
    first, ranking = found.what_if, found.sensitivity
    assert ranking is not None and ranking.proposal is not None
    layers = tuple(
        replace(each, layer=replace(each.layer, name=f"{bad}{number}"))
        for number, each in enumerate(first.layers)
    )
    passes = tuple(replace(each, where=bad) for each in first.passes)
    ranked = tuple(replace(each, name=bad) for each in ranking.layers)
    proposal = replace(ranking.proposal, budget=bad)
    return replace(
        found,
        model=bad,
        what_ifs=(replace(first, layers=layers, passes=passes, unquantized=(bad,), notes=(bad,)),),
        native_variants=tuple(replace(each, way=bad) for each in variants()),
        sensitivity=replace(ranking, layers=ranked, inputs=bad, weights=bad, proposal=proposal),
        warnings=(bad,),
    )


@functools.cache
def quantizations() -> dict[str, Quantization]:
    """Those that every renderer must manage, by name."""
    return {
        "bandwidth only": bandwidth_only(),
        "kernels": with_kernels(),
        "swept": swept(),
        "sensitive": sensitive(),
        "unknown": unknown(),
        "slower": slower(),
        "many": many(),
        "hostile": hostile(),
    }
