"""Where a pass in few bits is converted: what each layer writes, and what is walked over again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import OverheadKind, QuantizationOverhead, WhatIf
from roofline.quantization.what_ifs import evaluate_policy
from tests.quantization.small_networks import Of
from tests.quantization.what_if_machines import Fork, Joined, PingPong, analysis_of, resnet20

ALL_2 = Policy(weights=2, activations=2, first_last=2, shortcut="low")


def of_kind(
    passes: Iterable[QuantizationOverhead], kind: OverheadKind
) -> list[QuantizationOverhead]:
    return [each for each in passes if each.kind == kind]


def output_bits(found: WhatIf) -> dict[str, int]:
    return {each.layer.name: each.output_bits for each in found.layers}


def asked(model: nn.Module, *shape: int, policy: Policy = ALL_2) -> WhatIf:
    return evaluate_policy(analysis_of(model, *shape), policy)


def test_a_chain_is_converted_at_its_beginning_alone() -> None:
    """The input is quantized; each layer rounds its sums but the last, whose result is floats."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 2))
    found = asked(model, 5, 6)
    assert output_bits(found) == {"0": 2, "2": 2, "4": FLOAT_BITS}
    (first, *others) = found.passes
    assert (first.kind, first.where, first.elements) == ("quantize", "0", 30)
    assert (first.from_bits, first.to_bits) == (32, 2)
    assert (first.read_bytes, first.written_bytes, first.flop) == (120, 8, 150)
    assert first.is_separate
    assert [(each.kind, each.where, each.elements) for each in others] == [
        ("requantize", "0", 40),
        ("requantize", "2", 50),
    ]
    assert [(each.read_bytes, each.written_bytes, each.flop) for each in others] == [
        (160, 10, 200),
        (200, 13, 250),
    ]
    assert not any(each.is_separate for each in others)
    # 10 GB/s: 40 sums of 4 bytes, and 10 bytes of codes.
    assert (others[0].eager_min_time_s, others[0].time) == ((160 + 10) / 10e9, None)
    # Weights alone convert nothing.
    found = asked(model, 5, 6, policy=Policy(weights=2, activations=32, first_last=2))
    assert not found.passes
    after = found.layers[0].after
    assert after.weight_bytes == 12 + 4 + 32
    assert (after.input_bytes, after.output_bytes) == (4 * 30, 4 * 40)


def test_what_several_layers_read_in_the_same_bits_is_converted_once() -> None:
    """The shortcut's float input is read by two layers of 2 bits."""
    found = asked(
        Fork(), 3, 8, policy=Policy(weights=2, activations=2, first_last=32, shortcut="low")
    )
    assert found.layers[0].bits.is_float
    # left and right are last, and keep floats as the stem does.
    assert not found.passes
    exceptions = {each: LayerBits(weights=2, activations=2) for each in ("left", "right")}
    policy = Policy(weights=32, activations=32, first_last=32, layers=exceptions)
    found = asked(Fork(), 3, 8, policy=policy)
    (walk,) = found.passes
    assert (walk.kind, walk.where, walk.elements, walk.to_bits) == ("quantize", "left", 24, 2)


def test_what_two_layers_read_in_different_bits_is_kept_in_the_more() -> None:
    """Written in 8 bits, read as it is by one layer, and made 2 bits for the other."""
    exceptions = {
        "stem": LayerBits(weights=4, activations=4),
        "left": LayerBits(weights=8, activations=8),
        "right": LayerBits(weights=2, activations=2),
    }
    found = asked(Fork(), 3, 8, policy=Policy(layers=exceptions))
    assert output_bits(found) == {"stem": 8, "left": FLOAT_BITS, "right": FLOAT_BITS}
    walks = [(each.kind, each.where, each.from_bits, each.to_bits) for each in found.passes]
    assert walks == [
        ("quantize", "stem", 32, 4),
        ("requantize", "stem", 32, 8),
        ("quantize", "right", 8, 2),
    ]


def test_floats_between_layers_are_quantized_again_and_again() -> None:
    """A softmax takes floats and gives them: every layer's input is converted, none's result."""
    found = asked(PingPong(16, 3), 4, 16)
    assert set(output_bits(found).values()) == {FLOAT_BITS}
    assert [each.kind for each in found.passes] == ["quantize"] * 3
    assert [each.where for each in found.passes] == ["layers.0", "layers.1", "layers.2"]
    assert found.part("conversions").count == 3
    assert found.part("requantization").count == 0


def test_codes_go_through_concatenation_and_pooling() -> None:
    """Both branches write what the layer behind the pooling reads."""
    policy = Policy(
        weights=4,
        activations=4,
        first_last=4,
        layers={"after": LayerBits(weights=3, activations=3)},
    )
    analysis = analysis_of(Joined(), 1, 3, 8, 8)
    found = evaluate_policy(analysis, policy)
    assert output_bits(found) == {"stem": 4, "left": 3, "right": 3, "after": 4, "last": 32}
    assert [each.kind for each in found.passes if each.is_separate] == ["quantize"]
    others = found.part("others")
    # The concatenation reads and writes 2 x 256 codes; pooling reads them, and writes a quarter
    # and where it was (64 bits each).
    rows = [row for row in analysis.operators if row.op.startswith("aten.max_pool")]
    indices = sum(each.byte for row in rows for each in row.outputs if each.dtype.kind == "int")
    assert others.after_bytes == (2 * 512 + 512 + 128) * 3 // 8 + indices
    assert others.before_bytes == 4 * (2 * 512 + 512 + 128) + indices


def test_shortcuts_in_floats_convert_at_the_entrance_of_every_block() -> None:
    found = evaluate_policy(analysis_of(resnet20(), 1, 3, 32, 32), Policy(shortcut="full"))
    walks = of_kind(found.passes, "quantize")
    # The image, the entrance of each of nine blocks, and what the classifier reads.
    assert len(walks) == 11
    assert [each.to_bits for each in walks] == [8, *[2] * 9, 8]
    assert not of_kind(found.passes, "dequantize")
    # Nothing but the first convolution of a block writes codes: the second is added to floats.
    assert [each.where for each in of_kind(found.passes, "requantize")] == [
        f"blocks.{place}.conv1" for place in range(9)
    ]
    for each in found.layers:
        if each.layer.place == "shortcut":
            assert each.after == each.before
            assert (each.executable, each.has_kernel) == ("float32", True)


def test_shortcuts_in_codes_convert_nothing() -> None:
    found = evaluate_policy(analysis_of(resnet20(), 1, 3, 32, 32), Policy(shortcut="low"))
    assert [each.to_bits for each in found.passes if each.is_separate] == [8]
    # All but the classifier, whose result is the model's.
    assert len(of_kind(found.passes, "requantize")) == 21
    assert set(output_bits(found).values()) == {2, FLOAT_BITS}


def test_a_value_that_is_read_in_parts_stays_in_floats() -> None:
    """What two layers wrote into one tensor, and a third reads whole, is no value of either."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        both = x.new_empty(x.shape[0], 8)
        both[:, :4] = m.left(x)
        both[:, 4:] = m.right(x)
        return m.last(both)

    halves = Of(function, left=nn.Linear(4, 4), right=nn.Linear(4, 4), last=nn.Linear(8, 2))
    found = asked(halves, 3, 4)
    assert set(output_bits(found).values()) == {FLOAT_BITS}
    read = {each.layer.name: each.after.input_bytes for each in found.layers}
    assert read["last"] == 3 * 8 * 4


def test_sixteen_bits_all_over_are_floats_for_all_operators() -> None:
    """A softmax in bfloat16 needs no conversion; the image is converted once."""
    policy = Policy(weights=16, activations=16, first_last=16, shortcut="low")
    found = asked(PingPong(16, 3), 4, 16, policy=policy)
    (walk,) = found.passes
    assert (walk.kind, walk.from_bits, walk.to_bits, walk.flop) == ("quantize", 32, 16, 0)
    assert set(output_bits(found).values()) == {16}
    assert {each.executable for each in found.layers} == {"bfloat16"}
    assert found.has_kernels
    # Two read and written in two bytes each.
    assert found.part("others").after_bytes == 3 * 2 * 2 * 64
    # A bfloat16 weight has no scale, and its bias has the type of the model.
    assert found.layers[0].after.weight_bytes == 2 * 256 + 2 * 16
    assert found.model_bytes_after == 3 * (2 * 256 + 2 * 16)


def test_a_model_in_bfloat16_asked_for_16_bits_stays_as_it_is() -> None:
    analysis = analysis_of(PingPong(16, 2), 4, 16, dtype="bfloat16")
    found = evaluate_policy(analysis, Policy(weights=16, activations=16, shortcut="low"))
    assert not found.passes
    assert found.eager_min_time_after_s == found.eager_min_time_before_s
    assert found.has_kernels
    halves = evaluate_policy(analysis, Policy(weights=8, activations=8))
    assert halves.layer_bytes_before == 2 * halves.layer_bytes_after


LAYER = st.sampled_from([LayerBits(weights=2, activations=a) for a in (2, 4, 8, 32)])
BETWEEN = st.lists(st.sampled_from([nn.ReLU, nn.Sigmoid, nn.Softmax, nn.Dropout]), max_size=2)


@settings(max_examples=40)
@given(layers=st.lists(st.tuples(LAYER, BETWEEN), min_size=1, max_size=4))
def test_chains_are_converted_where_a_walk_along_them_finds_it(
    layers: list[tuple[LayerBits, list[type[nn.Module]]]],
) -> None:
    """A value is in the bits of the layer behind it, unless a softmax is in between.

    A sigmoid right behind a layer, or behind its ReLU, is part of it; behind a softmax all are
    floats in any case.
    """
    modules: list[nn.Module] = []
    exceptions: dict[str, LayerBits] = {}
    for bits, between in layers:
        exceptions[str(len(modules))] = bits
        modules.append(nn.Linear(4, 4))
        modules += [kind(-1) if kind is nn.Softmax else kind() for kind in between]
    found = asked(nn.Sequential(*modules), 3, 4, policy=Policy(layers=exceptions))
    expected: list[tuple[OverheadKind, int, int]] = []
    now = 32
    for place, (bits, between) in enumerate(layers):
        if bits.activations < now:
            expected.append(("quantize", now, bits.activations))
        assert bits.activations <= now
        behind = layers[place + 1][0].activations if place + 1 < len(layers) else 32
        now = 32 if nn.Softmax in between else behind
        if now < 32:
            expected.append(("requantize", 32, now))
    assert [(each.kind, each.from_bits, each.to_bits) for each in found.passes] == expected
