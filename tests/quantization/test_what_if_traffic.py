"""Bytes of a what-if: those of ResNet-20 counted by hand, those of others one by one."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from roofline.analysis import Analysis
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.what_ifs import evaluate_policy
from tests.quantization.small_networks import Of
from tests.quantization.what_if_machines import (
    Joined,
    analysis_of,
    cached_machine,
    resnet20,
)

IMAGE = (1, 3, 32, 32)


@pytest.fixture(scope="module")
def twenty() -> Analysis:
    return analysis_of(resnet20(), *IMAGE)


# Weights of each stage, its inner results, then the weight and result of its projection: written
# down from the paper's table, not from the code.
FIRST = (3 * 16 * 9, 16 * 32 * 32)
INNER = [
    *[(16 * 16 * 9, 16 * 32 * 32)] * 6,
    (16 * 32 * 9, 32 * 16 * 16),
    *[(32 * 32 * 9, 32 * 16 * 16)] * 5,
    (32 * 64 * 9, 64 * 8 * 8),
    *[(64 * 64 * 9, 64 * 8 * 8)] * 5,
]
PROJECTIONS = [(16 * 32, 32 * 16 * 16), (32 * 64, 64 * 8 * 8)]
LAST = (64 * 10, 10)


def test_resnet20_has_as_many_weights_as_counted(twenty: Analysis) -> None:
    found = evaluate_policy(twenty, Policy())
    assert sum(each.parameters for each in found.layers) == 270_896
    assert sum(w for w, _ in (FIRST, *INNER, *PROJECTIONS, LAST)) == 270_896
    places = [each.layer.place for each in found.layers]
    assert places.count("first") == places.count("last") == 1
    assert places.count("shortcut") == 2
    assert places.count("inner") == 18


@pytest.mark.parametrize(
    ("shortcut", "byte", "times"), [("low", 193_476, 13.9), ("full", 295_236, 9.1)]
)
def test_resnet20_moves_so_many_times_less_in_2_bits(
    twenty: Analysis, shortcut: Literal["full", "low"], byte: int, times: float
) -> None:
    """First and last in 8 bits: a byte each; all others four to a byte, or projections floats."""
    found = evaluate_policy(
        twenty, Policy(weights=2, activations=2, first_last=8, shortcut=shortcut)
    )
    assert found.layer_bytes_before == 4 * (270_896 + 2 * (200_704 + 10)) == 2_689_296
    ends, inner, projections = (
        sum(w + 2 * out for w, out in each) for each in ((FIRST, LAST), INNER, PROJECTIONS)
    )
    of_projections = projections // 4 if shortcut == "low" else 4 * projections
    assert found.layer_bytes_after == ends + inner // 4 + of_projections == byte
    assert round(found.layer_bytes_before / found.layer_bytes_after, 1) == times


def test_resnet20_in_a_file(twenty: Analysis) -> None:
    """Codes packed, 4 bytes of scale for weights and 4 for activations a layer, all else floats."""
    found = evaluate_policy(twenty, Policy(weights=2, activations=2, first_last=8, shortcut="low"))
    norms = 4 * (16 * 7 + 32 * 7 + 64 * 7)
    assert found.model_bytes_before == 4 * (270_896 + 10 + norms) + 8 * (21)
    inner = (270_896 - 432 - 640) // 4
    assert found.model_bytes_before - found.model_bytes_after == (
        4 * 270_896 - (432 + 640 + inner) - 22 * (4 + 4)
    )


def test_a_scale_for_each_channel_takes_four_bytes_of_each(twenty: Analysis) -> None:
    one = evaluate_policy(twenty, Policy(shortcut="low"))
    each = evaluate_policy(twenty, Policy(shortcut="low", per_channel=True))
    channels = 16 * 7 + 32 * 7 + 64 * 7 + 10
    assert each.model_bytes_after - one.model_bytes_after == 4 * (channels - 22)


def test_the_classifier_of_resnet20_by_hand(twenty: Analysis) -> None:
    """640 codes of a byte, a scale, 10 biases; 64 codes in, 10 floats out."""
    last = evaluate_policy(twenty, Policy()).layers[-1]
    assert (last.before.weight_bytes, last.before.input_bytes, last.before.output_bytes) == (
        4 * 640 + 40,
        4 * 64,
        40,
    )
    assert (last.after.weight_bytes, last.after.input_bytes, last.after.output_bytes) == (
        640 + 4 + 40,
        64,
        40,
    )
    assert (last.bits, last.output_bits) == (LayerBits(weights=8, activations=8), FLOAT_BITS)


def test_a_convolution_with_its_batch_norm_by_hand(twenty: Analysis) -> None:
    """The norm leaves a factor and a bias for each of 16 channels, and no walk of its own."""
    first = evaluate_policy(twenty, Policy()).layers[0]
    result = 16 * 32 * 32
    assert len(first.operators) == 3
    # Convolution, batch norm and ReLU each read and write; four vectors belong to the norm.
    assert first.before.weight_bytes == 4 * (432 + 4 * 16)
    assert first.before.input_bytes == 4 * (3 * 32 * 32 + 2 * result)
    assert first.before.output_bytes == 4 * 3 * result
    assert first.after.weight_bytes == 432 + 4 * 16 + 4 * 16
    assert first.after.input_bytes == 3 * 32 * 32
    # The shortcut reads floats.
    assert first.after.output_bytes == 4 * result
    low = evaluate_policy(twenty, Policy(shortcut="low")).layers[0]
    assert low.after.output_bytes == result // 4


def test_additions_at_shortcuts_by_hand(twenty: Analysis) -> None:
    """Two read, one written, and a ReLU over it; in 2 bits four to a byte, and one walk.

    The last of them writes 8 bits, which the classifier asks for.
    """
    results = 3 * 16 * 1024 + 3 * 32 * 256 + 3 * 64 * 64
    full = evaluate_policy(twenty, Policy(shortcut="full")).part("shortcuts")
    assert full.count == 9
    assert full.before_bytes == full.after_bytes == (3 + 2) * 4 * results
    low = evaluate_policy(twenty, Policy(shortcut="low")).part("shortcuts")
    assert low.before_bytes == full.before_bytes
    assert low.after_bytes == 3 * (results - 4096) // 4 + 2 * 4096 // 4 + 4096


@functools.cache
def joined() -> Analysis:
    return analysis_of(Joined(), 2, 3, 8, 8)


@functools.cache
def two_levels() -> Analysis:
    return analysis_of(Joined(), 2, 3, 8, 8, profile=cached_machine())


POLICIES = st.builds(
    Policy,
    weights=st.sampled_from([1, 2, 3, 4, 7, 8, 12, 16, 32]),
    activations=st.sampled_from([1, 2, 3, 4, 7, 8, 12, 16, 32]),
    first_last=st.sampled_from([2, 8, 16, 32]),
    shortcut=st.sampled_from(["full", "low"]),
    per_channel=st.booleans(),
)


@given(policy=POLICIES)
def test_layer_bytes_are_the_sum_over_layers(policy: Policy) -> None:
    """Added up from the modules and the shapes of what they give, which this test knows."""
    found = evaluate_policy(joined(), policy)
    shapes = {"stem": (4, 8), "left": (4, 8), "right": (4, 8), "after": (4, 4), "last": (2, 4)}
    model = Joined()
    expected = 0
    for name, (channels, side) in shapes.items():
        place = {"stem": "first", "last": "last"}.get(name, "inner")
        bits = policy.bits_of(name, place)  # pyright: ignore[reportArgumentType]  one of them
        weights = model.get_parameter(f"{name}.weight").numel()
        expected += math.ceil(weights * bits.weights / 8)
        expected += 2 * math.ceil(2 * channels * side * side * bits.activations / 8)
    assert found.layer_bytes_after == expected


@given(policy=POLICIES)
def test_parts_add_up_to_the_pass(policy: Policy) -> None:
    for analysis in (joined(), two_levels()):
        found = evaluate_policy(analysis, policy)
        before = [each.before_eager_min_time_s for each in found.parts]
        after = {each.name: each.after_eager_min_time_s for each in found.parts}
        assert sum(each.before_bytes for each in found.parts) == analysis.totals.traffic_bytes
        assert sum(each or 0.0 for each in before) == pytest.approx(
            analysis.totals.eager_min_time_s
        )
        assert None not in after.values()
        requantization = after.pop("requantization")
        assert sum(each or 0.0 for each in after.values()) == pytest.approx(
            found.eager_min_time_after_s
        )
        assert found.separate_eager_min_time_s == pytest.approx(
            (found.eager_min_time_after_s or 0.0) + (requantization or 0.0)
        )
        layers = found.part("layers")
        assert layers.before_bytes == sum(each.before.traffic_bytes for each in found.layers)
        assert layers.after_bytes == sum(each.after.traffic_bytes for each in found.layers)
        passes = [each for each in found.passes if each.is_separate]
        assert found.part("conversions").after_bytes == sum(each.traffic_bytes for each in passes)


def hoarding() -> nn.Module:
    """Keeps all that it makes, so that its memory is never used again."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        kept = [x]
        for layer in m.layers:
            kept.append(layer(kept[-1]))
            kept.append(torch.softmax(kept[-1], -1))
        return kept[-1]

    return Of(function, layers=nn.ModuleList(nn.Linear(64, 64) for _ in range(6)))


@pytest.mark.parametrize("shortcut", ["full", "low"])
def test_all_in_floats_changes_nothing(shortcut: Literal["full", "low"]) -> None:
    """Wherever its bytes come from: a model may keep what it makes, or drop it."""
    floats = Policy(weights=32, activations=32, shortcut=shortcut)
    apart = analysis_of(hoarding(), 64, 64, profile=cached_machine())
    for analysis in (joined(), two_levels(), apart):
        found = evaluate_policy(analysis, floats)
        assert found.eager_min_time_after_s == pytest.approx(found.eager_min_time_before_s)
        assert found.model_bytes_after == found.model_bytes_before
        assert found.layer_bytes_after == found.layer_bytes_before
        assert not found.passes
        assert found.has_kernels
        for each in found.layers:
            assert each.after == each.before


def test_fewer_bits_never_move_more_in_layers() -> None:
    moved = [
        evaluate_policy(two_levels(), Policy(weights=width, activations=width, first_last=width))
        for width in (1, 2, 4, 8, 16, 32)
    ]
    for few, many in itertools.pairwise(moved):
        assert few.layer_bytes_after <= many.layer_bytes_after
        assert few.model_bytes_after <= many.model_bytes_after
        for one, other in zip(few.layers, many.layers, strict=True):
            assert one.after.traffic_bytes <= other.after.traffic_bytes


def test_codes_stay_in_a_cache_that_floats_do_not_fit_into() -> None:
    """200 x 200 weights take 160 kB as floats and 10 kB as codes; the cache holds 64 KiB."""
    model = nn.Sequential(*(nn.Linear(200, 200) for _ in range(3)))
    analysis = analysis_of(model, 1, 200, profile=cached_machine())
    found = evaluate_policy(analysis, Policy(weights=2, activations=2, first_last=2))
    for each in found.layers:
        assert each.before.level == "DRAM"
        assert each.after.level == "L1"
