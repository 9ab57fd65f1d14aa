"""The verdict: bytes, then bounds, then times; a speed only where there are kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn

from roofline.analysis import Analysis
from roofline.quantization.findings import Companion
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import Quantization
from roofline.quantization.verdict import compared, verdict, why_longer, without_gain
from roofline.quantization.what_if import what_if
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
    found = what_if(analysis, policy, clock)
    return Quantization(model="net", analysis=analysis, what_ifs=(found,))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (100.0, 100.0, "the same"),
        (100.0, 100.4, "the same"),
        (100.0, 50.0, "2.00 × less"),
        (50.0, 100.0, "2.00 × more"),
        (139.0, 10.0, "13.9 × less"),
        (99.96, 10.0, "10.0 × less"),
        (5.0, 0.0, "less"),
        (0.0, 5.0, "more"),
        (0.0, 0.0, "the same"),
    ],
)
def test_comparisons_in_words(before: float, after: float, said: str) -> None:
    assert compared(before, after, less="less", more="more") == said


def test_two_bits_have_bytes_and_a_bound_and_no_speed() -> None:
    analysis = timed_analysis_of(resnet20(), 1, 3, 32, 32, clock=Clock())
    said = verdict(quantization(analysis, Policy(shortcut="low"), Clock()))
    assert said.startswith(
        "net: 2-bit weights, 2-bit activations, first and last 8-bit, shortcuts low:"
        " the model takes"
    )
    assert "its layers move 193 kB instead of 2.69 MB (13.9 × less)" in said
    assert "the bound of a bandwidth-only what-if is" in said
    assert "test has no kernel for w2a2, so no speed is told" in said
    for word in ("faster", "slower", "predicted"):
        assert word not in said


def test_int8_has_a_prediction() -> None:
    analysis = timed_analysis_of(nn.Sequential(nn.Linear(512, 512)), 64, 512, clock=Clock())
    found = quantization(analysis, INT8, Clock())
    asked = found.what_if
    assert asked.before is not None
    assert asked.after is not None
    said = verdict(found)
    word = "faster" if asked.after.s < asked.before.s else "slower"
    assert "predicted" in said
    assert word in said
    assert "bandwidth-only" not in said


def test_slower_says_so_and_why() -> None:
    """Small layers between softmaxes: each is converted, and a call takes 10 microseconds."""
    analysis = timed_analysis_of(PingPong(16, 3), 4, 16, clock=Clock())
    found = quantization(analysis, INT8, Clock())
    asked = found.what_if
    assert asked.before is not None
    assert asked.after is not None
    assert asked.after.s > asked.before.s
    said = verdict(found)
    assert "slower" in said
    assert "slower because" in said
    assert "conversions between floats and codes take" in said


def test_a_bound_that_grows_says_what_grows() -> None:
    """One tiny layer in 16 bits: reading the image to convert it takes longer than is saved."""
    model = nn.Sequential(nn.Linear(512, 1, bias=False))
    analysis = analysis_of(model, 64, 512)
    policy = Policy(weights=12, activations=12, first_last=12)
    found = what_if(analysis, policy)
    assert found.bound_before_s is not None
    assert found.bound_after_s is not None
    assert found.bound_after_s > found.bound_before_s
    said = verdict(quantization(analysis, policy))
    assert " × more)" in said
    conversions = found.part("conversions").after_bound_s
    assert conversions is not None
    assert why_longer(found).startswith("conversions between floats and codes take")


def test_arithmetic_that_stays_gains_nothing() -> None:
    """No type is faster than float32 there, and 256 x 256 products bind it."""
    floats = machine({}, {"float32": 1e9})
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    found = what_if(analysis_of(model, 256, 256, profile=floats), Policy(first_last=2))
    assert without_gain(found) == (
        "2 of 2 layers gain nothing: their arithmetic binds them (float32 avx2 fma)"
    )
    said = verdict(quantization(analysis_of(model, 256, 256, profile=floats), Policy(first_last=2)))
    assert "2 of 2 layers gain nothing" in said
    assert without_gain(what_if(analysis_of(model, 256, 256), Policy())) == ""


def test_requantisation_on_its_own_may_be_more_than_is_saved() -> None:
    """12 bits: 1.5 bytes are written and read in place of 4, and 5.5 are walked over."""
    model = nn.Sequential(nn.Linear(2, 512, bias=False), nn.Linear(512, 1, bias=False))
    analysis = analysis_of(model, 64, 2)
    policy = Policy(weights=12, activations=12, first_last=12)
    found = what_if(analysis, policy)
    assert found.separate_bound_s is not None
    assert found.bound_before_s is not None
    assert found.bound_after_s is not None
    assert found.bound_after_s < found.bound_before_s < found.separate_bound_s
    said = verdict(quantization(analysis, policy))
    assert "with requantisation as kernels of its own it would be" in said


def test_a_companion_s_measured_speed_is_told() -> None:
    analysis = timed_analysis_of(PingPong(16, 3), 4, 16, clock=Clock())
    found = quantization(analysis, INT8, Clock())
    timed = Companion(
        way="int8 (torch.ao, static)",
        bits=LayerBits(weights=8, activations=8),
        speedup=0.5,
        speedup_low=0.45,
        speedup_high=0.55,
    )
    other = replace(timed, way="bfloat16", bits=LayerBits(weights=16, activations=16))
    said = verdict(replace(found, companions=(other, timed)))
    assert said.endswith("int8 (torch.ao, static) measured 2.00 × slower (0.45 to 0.55 × as fast)")
    assert "bfloat16 measured" not in said


def test_names_are_printable() -> None:
    analysis = analysis_of(PingPong(16, 3), 4, 16)
    found = replace(quantization(analysis, INT8), model="a\x1b[31mb")
    assert "\x1b" not in verdict(found)
