"""Policies: which layer has how many bits, and what none can have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import schema
from roofline.errors import InputError
from roofline.quantization.policy import LayerBits, Place, Policy, check_bits

WIDTHS = st.sampled_from([*range(1, 17), 32])


@pytest.mark.parametrize("bits", [0, -1, 17, 31, 33, 64, 2.0, "2", True, None])
def test_widths_that_nothing_has(bits: object) -> None:
    with pytest.raises(InputError, match=r"weights: .* integer from 1 to 16, or 32"):
        check_bits("weights", bits)


def test_every_place_in_a_policy_is_checked() -> None:
    for name in ("weights", "activations", "first_last"):
        with pytest.raises(InputError, match=f"{name}: 17 bits"):
            Policy(**{name: 17})  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="activations: 0 bits"):
        LayerBits(weights=2, activations=0)
    with pytest.raises(InputError, match="shortcut='both': must be full or low"):
        Policy(shortcut="both")  # pyright: ignore[reportArgumentType]


OWN = LayerBits(weights=3, activations=5)


@pytest.mark.parametrize(
    ("policy", "places", "words"),
    [
        (Policy(weights=2, activations=4, first_last=8), ("first", "last"), "w8a8"),
        (Policy(weights=2, activations=4, first_last=8), ("inner",), "w2a4"),
        # At least so many.
        (Policy(weights=12, activations=4, first_last=8), ("first",), "w12a8"),
        (Policy(shortcut="full"), ("shortcut",), "w32a32"),
        (Policy(shortcut="low"), ("shortcut",), "w2a2"),
        # Exceptions come before everything else.
        (Policy(layers={"conv": OWN}), ("first", "last", "shortcut", "inner"), "w3a5"),
    ],
)
def test_bits_follow_from_places(policy: Policy, places: tuple[Place, ...], words: str) -> None:
    for place in places:
        bits = policy.bits_of("conv", place)
        assert bits.words == words
        assert bits.is_float is (words == "w32a32")


@given(
    policy=st.builds(
        Policy,
        weights=WIDTHS,
        activations=WIDTHS,
        first_last=WIDTHS,
        shortcut=st.sampled_from(["full", "low"]),
        per_channel=st.booleans(),
        layers=st.dictionaries(
            st.text(min_size=1, max_size=8),
            st.builds(LayerBits, weights=WIDTHS, activations=WIDTHS),
            max_size=3,
        ),
    )
)
def test_plain_data_and_back(policy: Policy) -> None:
    data = json.loads(json.dumps(schema.to_data(policy)))
    assert schema.from_data(Policy, data, file="it") == policy


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"weight": 2}, "unknown key 'weight'; did you mean 'weights'"),
        ({"layers": ["conv"]}, "layers: expected a table with keys"),
        ({"layers": {"conv": {"weights": 2}}}, "layers.conv: missing key 'activations'"),
        ({"layers": {"conv": 2}}, "layers.conv: expected a table with keys, got 2"),
        ({"layers": {"c": {"weights": 2, "activations": 2, "scale": 1}}}, "unknown key 'scale'"),
        ({"weights": "2"}, "weights: expected a whole number, got '2'"),
        ({"layers": {"conv": {"weights": 0, "activations": 2}}}, "layers.conv: weights: 0 bits"),
        ({"shortcut": 1}, "shortcut: expected one of 'full', 'low', got 1"),
        ({"per_channel": "yes"}, "per_channel: expected true or false"),
        ([1], "expected a table with keys"),
    ],
)
def test_data_that_is_no_policy(data: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        schema.from_data(Policy, data, file="it")


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (None, "expected a mapping, got None"),
        (["conv"], "expected a mapping, got"),
        ({"conv": 4}, "'conv' has 4; give"),
        ({"conv": {"weights": 4, "activations": 4}}, "'conv' has {'weights': 4"),
        ({3: LayerBits(weights=4, activations=4)}, "3 has LayerBits"),
    ],
)
def test_layers_that_are_not_names_with_bits(layers: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        Policy(layers=layers)
    assert said in str(caught.value)


def test_words() -> None:
    assert Policy().words == (
        "2-bit weights, 2-bit activations, first and last 8-bit, shortcuts in full precision"
    )
    assert "first and last at least 8-bit" in Policy(weights=2, activations=16).words
    assert Policy(weights=8, activations=32, shortcut="low").words == (
        "8-bit weights, float activations, shortcuts low"
    )
    layers = {"conv": LayerBits(weights=8, activations=8)}
    assert Policy(layers=layers).words.endswith("1 exception")
    two = {**layers, "fc": LayerBits(weights=8, activations=8)}
    assert Policy(layers=two).words.endswith("2 exceptions")
