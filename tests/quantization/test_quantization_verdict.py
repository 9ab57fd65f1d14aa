"""The verdict: bytes, minimum times, then times; a speedup only where there are kernels."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from roofline.analysis import Analysis
from roofline.core.units import format_s
from roofline.quantization.blocks import slower_parts, unimproved_layers
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import NativeVariant, Quantization
from roofline.quantization.what_ifs import evaluate_policy
from tests.design.advice_models import Clock
from tests.quantization.what_if_machines import (
    PingPong,
    analysis_of,
    machine,
    resnet20,
    timed_analysis_of,
)

INT8 = Policy(weights=8, activations=8, first_last=8, shortcut="low")


def quantization(analysis: Analysis, policy: Policy, clock: Clock | None = None) -> Quantization:
    found = evaluate_policy(analysis, policy, clock)
    return Quantization(model="net", analysis=analysis, what_ifs=(found,))


def test_two_bits_have_bytes_and_a_minimum_time_and_no_speedup() -> None:
    analysis = timed_analysis_of(resnet20(), 1, 3, 32, 32, clock=Clock())
    said = quantization(analysis, Policy(shortcut="low"), Clock()).summary
    assert said.startswith(
        "net in 2-bit weights, 2-bit activations, first and last 8-bit, shortcuts low: model size "
    )
    assert "layer traffic 2.69 MB → 193 kB (13.9× smaller)" in said
    assert "minimum time (eager, bandwidth-only what-if) " in said
    assert "test has no kernel for w2a2: no speedup estimated" in said
    for word in ("faster", "slower", "predicted"):
        assert word not in said


def test_slower_says_so_and_why() -> None:
    """Small layers between softmaxes: each is converted, and a call takes 10 microseconds."""
    analysis = timed_analysis_of(PingPong(16, 3), 4, 16, clock=Clock())
    found = quantization(analysis, INT8, Clock())
    before, after = found.what_if.before, found.what_if.after
    assert before is not None and after is not None and after.s > before.s
    assert "× slower); " in found.summary
    assert " more for conversions" in found.summary
    assert "predicted time" in found.summary and "bandwidth-only" not in found.summary
    # A large layer is faster or not by its prediction.
    analysis = timed_analysis_of(nn.Sequential(nn.Linear(512, 512)), 64, 512, clock=Clock())
    found = quantization(analysis, INT8, Clock())
    before, after = found.what_if.before, found.what_if.after
    assert before is not None and after is not None
    assert f"× {'faster' if after.s < before.s else 'slower'}" in found.summary


def test_a_minimum_time_that_grows_says_what_grows() -> None:
    """One tiny layer in 16 bits: reading the image to convert it takes longer than is saved."""
    model = nn.Sequential(nn.Linear(512, 1, bias=False))
    analysis = analysis_of(model, 64, 512)
    policy = Policy(weights=12, activations=12, first_last=12)
    found = evaluate_policy(analysis, policy)
    assert found.eager_min_time_before_s is not None
    assert found.eager_min_time_after_s is not None
    assert found.eager_min_time_after_s > found.eager_min_time_before_s
    assert "× longer)" in quantization(analysis, policy).summary
    conversions = found.part("conversions").after_eager_min_time_s
    assert slower_parts(found).startswith(f"{format_s(conversions)} more for conversions")


def test_arithmetic_that_stays_gains_nothing() -> None:
    """No type is faster than float32 there, and 256 x 256 products bind it."""
    floats = machine({}, {"float32": 1e9})
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    analysis = analysis_of(model, 256, 256, profile=floats)
    said = "2 of 2 layers stay compute-bound (float32 AVX2 FMA) without gain"
    assert unimproved_layers(evaluate_policy(analysis, Policy(first_last=2))) == said
    assert said in quantization(analysis, Policy(first_last=2)).summary
    assert unimproved_layers(evaluate_policy(analysis_of(model, 256, 256), Policy())) == ""


def test_separate_requantization_may_be_more_than_is_saved() -> None:
    """12 bits: 1.5 bytes are written and read in place of 4, and 5.5 are walked over."""
    model = nn.Sequential(nn.Linear(2, 512, bias=False), nn.Linear(512, 1, bias=False))
    analysis = analysis_of(model, 64, 2)
    policy = Policy(weights=12, activations=12, first_last=12)
    found = evaluate_policy(analysis, policy)
    assert found.separate_eager_min_time_s is not None
    assert found.eager_min_time_before_s is not None
    assert found.eager_min_time_after_s is not None
    assert (
        found.eager_min_time_after_s
        < found.eager_min_time_before_s
        < found.separate_eager_min_time_s
    )
    said = quantization(analysis, policy).summary
    assert (
        f"with requantization in separate kernels {format_s(found.separate_eager_min_time_s)}"
        in said
    )


def test_the_measured_speedup_of_a_native_variant_is_said() -> None:
    analysis = timed_analysis_of(PingPong(16, 3), 4, 16, clock=Clock())
    found = quantization(analysis, INT8, Clock())
    timed = NativeVariant(
        way="int8 (torch.ao, static)",
        bits=LayerBits(weights=8, activations=8),
        speedup=0.5,
        speedup_low=0.45,
        speedup_high=0.55,
    )
    other = replace(timed, way="bfloat16", bits=LayerBits(weights=16, activations=16))
    said = replace(found, native_variants=(other, timed)).summary
    assert said.endswith("int8 (torch.ao, static): measured speedup 0.50 (0.45–0.55)")
    assert "bfloat16:" not in said
