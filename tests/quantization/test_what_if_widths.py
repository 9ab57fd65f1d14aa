"""What a width is computed in on a machine, with or without a kernel, and under which ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from torch import nn

from roofline.core.dtypes import dtype
from roofline.placement import Bound, Roof
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import BANDWIDTH_ONLY
from roofline.quantization.what_ifs import evaluate_policy
from roofline.quantization.widths import Widths, is_code_type
from tests import builders
from tests.quantization.what_if_machines import HARDWARE, LIBRARY, analysis_of, machine, resnet20

FLOAT = dtype("float32")


def widths(
    library: Mapping[str, float] = LIBRARY, hardware: Mapping[str, float] = HARDWARE
) -> Widths:
    return Widths(machine(library, hardware), 1)


@pytest.mark.parametrize(
    ("weights", "activations", "name", "has_kernel"),
    [
        (32, 32, "float32", True),
        (16, 16, "bfloat16", True),
        (9, 16, "bfloat16", False),
        (12, 12, "bfloat16", False),
        (8, 8, "int8", True),
        (4, 8, "int8", False),
        (8, 4, "int8", False),
        (2, 2, "int8", False),
        (1, 1, "int8", False),
        (8, 16, "bfloat16", False),
        (8, 32, "float32", False),
        (32, 8, "float32", False),
    ],
)
def test_the_narrowest_type_that_holds_both(
    weights: int, activations: int, name: str, has_kernel: bool
) -> None:
    found = widths().executable(LayerBits(weights=weights, activations=activations), FLOAT)
    assert (found.dtype.name, found.has_kernel) == (name, has_kernel)


ONE, INT4 = {"float32": 1.0}, {"float32": 1.0, "int8": 4.0, "int4": 8.0}


@pytest.mark.parametrize(
    ("library", "hardware", "bits", "name", "has_kernel"),
    [
        # The library's choice of half types comes before the hardware's.
        ({"float16": 2.0, "bfloat16": 1.0}, {**ONE, "bfloat16": 9.0}, 16, "float16", True),
        (ONE, {"float16": 1.0, "bfloat16": 2.0}, 16, "bfloat16", False),
        ({}, {"float16": 3.0, "bfloat16": 2.0}, 16, "float16", True),
        # A data sheet's hardware counts, beside a library it does not.
        ({}, {**ONE, "int8": 4.0}, 8, "int8", True),
        (ONE, {**ONE, "int8": 4.0}, 8, "int8", False),
        # No int8: the next wider.
        ({}, {**ONE, "float16": 2.0}, 8, "float16", False),
        ({}, ONE, 8, "float32", False),
        ({}, ONE, 16, "float32", False),
        # int4 only where both are no wider.
        ({}, INT4, 4, "int4", True),
        ({}, INT4, 3, "int4", False),
        ({}, INT4, 5, "int8", False),
    ],
)
def test_machines_with_fewer_types(
    library: Mapping[str, float],
    hardware: Mapping[str, float],
    bits: int,
    name: str,
    has_kernel: bool,
) -> None:
    asked = LayerBits(weights=bits, activations=bits)
    found = widths(library, hardware).executable(asked, FLOAT)
    assert (found.dtype.name, found.has_kernel) == (name, has_kernel)


def test_a_layer_of_bfloat16_is_no_wider_than_that() -> None:
    half = dtype("bfloat16")
    for bits in (16, 32):
        found = widths().executable(LayerBits(weights=bits, activations=bits), half)
        assert (found.dtype, found.has_kernel) == (half, True)
    assert not widths().executable(LayerBits(weights=16, activations=8), half).has_kernel


def test_values_are_kept_in_torch_s_types_where_these_are_computed_with() -> None:
    assert widths().storage_type(8).name == "quint8"
    assert widths().storage_type(8, is_weight=True).name == "qint8"
    assert widths().storage_type(16).name == "bfloat16"
    for bits in (1, 2, 3, 4, 7, 9, 12):
        codes = widths().storage_type(bits)
        assert is_code_type(codes)
        assert codes.byte(8) == bits
    assert is_code_type(widths({}, {"float32": 1.0}).storage_type(8))


def test_what_has_no_kernel_says_so_and_has_no_time() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    found = evaluate_policy(
        analysis_of(model, 4, 64), Policy(weights=2, activations=2, first_last=8)
    )
    assert [each.has_kernel for each in found.layers] == [True, True]
    found = evaluate_policy(
        analysis_of(model, 4, 64), Policy(weights=2, activations=2, first_last=2)
    )
    assert not found.has_kernels
    assert found.after is None
    assert found.eager_min_time_after_s is not None
    assert any(BANDWIDTH_ONLY in note and "w2a2" in note for note in found.notes)
    assert all(each.after.time is None for each in found.layers)


def test_the_ceiling_is_that_of_the_executable_type() -> None:
    """8192 rows of 256: 2 x 8192 x 256 x 256 FLOP, at 400 G/s of int8 or 100 G/s of float32."""
    model = nn.Sequential(nn.Linear(256, 256, bias=False))
    policy = Policy(weights=2, activations=2, first_last=2)
    flop = 2 * 8192 * 256 * 256
    (layer,) = evaluate_policy(analysis_of(model, 8192, 256), policy).layers
    assert layer.before.eager_min_time_s == flop / 100e9
    assert (layer.after.bound, layer.after.eager_min_time_s) == (Bound.COMPUTE, flop / 400e9)
    floats = machine({}, {"float32": 100e9})
    (layer,) = evaluate_policy(analysis_of(model, 8192, 256, profile=floats), policy).layers
    assert layer.executable == "float32"
    assert layer.after.bound is Bound.COMPUTE
    assert layer.after.eager_min_time_s == flop / 100e9
    assert layer.after.ceiling == "float32 avx2 fma"
    fours = machine({}, {"float32": 100e9, "int8": 400e9, "int4": 800e9})
    (layer,) = evaluate_policy(analysis_of(model, 8192, 256, profile=fours), policy).layers
    assert (layer.executable, layer.after.ceiling) == ("int4", "int4 avx2 fma")
    assert layer.after.eager_min_time_s == flop / 800e9


TYPES = ("float32", "bfloat16", "float16", "int8")


@pytest.mark.parametrize("bits", [2, 8, 16])
def test_no_layer_stands_above_the_highest_ceiling(bits: int) -> None:
    """Of convolutions with padding, whose FLOP hold taps that no kernel must compute."""
    memory = builders.level("DRAM", None, {"read": {1: 1e13}})
    # One ceiling for all types: none hides behind that of another.
    profile = replace(machine(hardware=dict.fromkeys(TYPES, 1e11)), memory=(memory,))
    analysis = analysis_of(resnet20(), 1, 3, 32, 32, profile=profile)
    highest = max(each.flop_per_s for each in Roof(analysis.hardware, analysis.threads).units)
    found = evaluate_policy(analysis, Policy(weights=bits, activations=bits, shortcut="low"))
    for layer in found.layers:
        for side in (layer.before, layer.after):
            assert side.attainable_flop_per_s is not None
            assert side.eager_min_time_s is not None
            assert 0 < side.attainable_flop_per_s <= highest * (1 + 1e-9)
            # Nor is it slower than what the same FLOP need by the ceiling's own word.
            assert side.flop is not None
            assert side.flop / side.attainable_flop_per_s >= side.eager_min_time_s * (1 - 1e-9)
