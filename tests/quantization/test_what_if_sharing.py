"""Weights that several products read, and modules that run several times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import roofline
from roofline.quantization import quantize_model, quantized_layers
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.what_ifs import evaluate_policy
from tests.quantization.small_networks import Of
from tests.quantization.what_if_machines import analysis_of, machine


def test_a_weight_that_an_embedding_reads_too_is_counted_twice() -> None:
    tied: Any = Of(
        lambda m, x: m.head(m.table(x)),
        table=nn.Embedding(50, 8),
        head=nn.Linear(8, 50, bias=False),
    )
    tied.head.weight = tied.table.weight
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    analysis = roofline.analyze(tied, tokens, hardware=machine())
    found = evaluate_policy(analysis, Policy(weights=4, activations=4, first_last=4))
    assert found.model_bytes_before == 4 * 50 * 8
    assert found.model_bytes_after == 4 * 50 * 8 + 50 * 8 // 2 + 4 + 4
    assert any("twice" in note for note in found.notes)
    (left,) = found.unquantized
    assert left.startswith("embedding (table): 1.60 kB")


def test_a_weight_that_is_used_twice_is_stored_once() -> None:
    layer = nn.Linear(8, 8, bias=False)
    twice = Of(lambda m, x: m.layer(torch.relu(m.layer(x))), layer=layer)
    found = evaluate_policy(
        analysis_of(twice, 1, 8), Policy(weights=4, activations=4, first_last=4)
    )
    assert [each.layer.name for each in found.layers] == ["layer", "layer#2"]
    assert found.layer_bytes_before == 4 * (64 + 2 * 8 + 2 * 8)
    assert found.layer_bytes_after == (64 + 2 * 8 + 2 * 8) // 2
    assert found.model_bytes_after == 64 // 2 + 4 + 4


def _in_turn(*names: str) -> Callable[..., torch.Tensor]:
    """Layers by name, one after the other, with ReLUs between."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        for place, name in enumerate(names):
            x = getattr(m, name)(torch.relu(x) if place else x)
        return x

    return function


def test_a_weight_has_the_same_bits_wherever_it_is_used() -> None:
    layers = {"layer": nn.Linear(8, 8), "inner": nn.Linear(8, 8)}
    ends = Of(_in_turn("layer", "inner", "layer", "inner"), **layers)
    found = evaluate_policy(analysis_of(ends, 1, 8), Policy(weights=2, activations=2))
    bits = {each.layer.name: each.bits.words for each in found.layers}
    # One of them is first, and the other one last.
    assert bits == dict.fromkeys(["layer", "inner", "layer#2", "inner#2"], "w8a8")
    made = quantized_layers(quantize_model(ends, Policy(weights=2, activations=2), (1, 8)))
    assert {name: each.bits.words for name, each in made.items()} == {
        name: words for name, words in bits.items() if "#" not in name
    }


def test_what_a_policy_names_counts_before_other_places_of_the_same_weight() -> None:
    layers = {name: nn.Linear(8, 8) for name in ("first", "again", "last")}
    analysis = analysis_of(Of(_in_turn("first", "again", "again", "last"), **layers), 1, 8)
    for name in ("again", "again#2"):
        policy = Policy(
            weights=8, activations=8, layers={name: LayerBits(weights=3, activations=4)}
        )
        bits = {
            each.layer.name: each.bits.words for each in evaluate_policy(analysis, policy).layers
        }
        assert bits == {"first": "w8a8", "again": "w3a4", "again#2": "w3a4", "last": "w8a8"}


def test_modules_that_share_a_weight_read_activations_of_their_own() -> None:
    names = ("first", "left", "right", "last")
    tied: Any = Of(_in_turn(*names), **{name: nn.Linear(8, 8) for name in names})
    tied.right.weight = tied.left.weight
    layers = {
        "left": LayerBits(weights=2, activations=3),
        "right": LayerBits(weights=4, activations=5),
    }
    found = evaluate_policy(analysis_of(tied, 1, 8), Policy(layers=layers))
    bits = {each.layer.name: each.bits.words for each in found.layers}
    assert (bits["left"], bits["right"]) == ("w4a3", "w4a5")
    # Codes of 64 weights with their scale, once; biases of 8 floats; and two clippings.
    ends = 2 * (64 + 4 + 4 + 32)
    assert found.model_bytes_after == ends + (64 // 2 + 4) + 2 * 32 + 2 * 4
