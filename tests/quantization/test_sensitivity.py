"""Ranking by error for what is saved, and bits under a budget, held against trying all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.quantization.policy import Layer, LayerBits, Place, Policy
from roofline.quantization.result import LayerSensitivity
from roofline.quantization.sensitivity import (
    Option,
    candidates_of,
    cheapest_options,
    choose_options,
    proposed_policy,
    rank_layers,
)


def bits(width: int) -> LayerBits:
    return LayerBits(weights=width, activations=width)


def option(width: int, error: float, cost: float) -> Option:
    return Option(bits=bits(width), error=error, cost=cost)


def layer(name: str, place: Place = "inner", index: int = 0) -> Layer:
    return Layer(name=name, index=index, place=place, activation=0, weight=1)


def sensitivity(
    name: str, error: float, saved_s: float | None, saved_bytes: int = 0
) -> LayerSensitivity:
    return LayerSensitivity(
        name=name, bits=bits(2), error=error, saved_s=saved_s, saved_bytes=saved_bytes
    )


# -- ranking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # 0.2 for 4 s is a better bargain than 0.1 for 1 s.
        ({"small": (0.1, 1.0), "large": (0.2, 4.0)}, ["large", "small"]),
        # What saves nothing comes last, by its error.
        (
            {"worse": (0.3, -1.0), "nothing": (0.1, 0.0), "unknown": (0.2, None), "gains": (5, 1)},
            ["gains", "nothing", "unknown", "worse"],
        ),
        # Bytes count where no time is known.
        ({"few": (0.1, None, 10), "many": (0.1, None, 1000)}, ["many", "few"]),
        ({}, []),
    ],
    ids=["error for what it saves", "saves nothing", "bytes", "none"],
)
def test_layers_are_ranked_by_their_error_for_what_they_save(
    layers: Mapping[str, tuple[Any, ...]], expected: list[str]
):
    found = rank_layers(sensitivity(name, *each) for name, each in layers.items())
    assert [each.name for each in found] == expected


OWN = LayerBits(weights=5, activations=7)


@pytest.mark.parametrize(
    ("places", "policy", "words"),
    [
        (("inner",), Policy(), "w2a2 w3a3 w4a4 w8a8 w32a32"),
        (("first", "last"), Policy(), "w8a8 w32a32"),
        (("first", "last"), Policy(first_last=16), "w16a16 w32a32"),
        (("first", "last"), Policy(first_last=1), "w2a2 w3a3 w4a4 w8a8 w32a32"),
        # What is left in floats everywhere stays there.
        (("inner",), Policy(weights=4, activations=32), "w2a32 w3a32 w4a32 w8a32 w32a32"),
        (("inner",), Policy(weights=32, activations=4), "w32a2 w32a3 w32a4 w32a8 w32a32"),
        (("inner",), Policy(weights=32, activations=32), "w2a2 w3a3 w4a4 w8a8 w32a32"),
        (("shortcut",), Policy(shortcut="full"), "w32a32"),
        (("shortcut",), Policy(shortcut="low"), "w2a2 w3a3 w4a4 w8a8 w32a32"),
        # What a policy names is not up for choice.
        (("inner", "first"), Policy(layers={"a": OWN}), "w5a7"),
    ],
)
def test_widths_that_a_proposal_may_choose_from(
    places: Sequence[Place], policy: Policy, words: str
):
    for place in places:
        found = candidates_of(layer("a", place), policy)
        assert [each.words for each in found] == words.split()


# -- candidates ------------------------------------------------------------------------------------


# -- bits under a budget ---------------------------------------------------------------------------


def harm(found: Mapping[str, Option]) -> float:
    return sum(each.error**2 for each in found.values())


def by_brute_force(options: Mapping[str, Sequence[Option]], most: float) -> float | None:
    """The least harm of all combinations that fit; None: none does."""
    fitting = [
        sum(each.error**2 for each in combination)
        for combination in itertools.product(*options.values())
        if math.fsum(each.cost for each in combination) <= most
    ]
    return min(fitting, default=None)


HAND = {
    "robust": [option(2, 0.1, 2), option(4, 0.05, 4), option(32, 0.0, 32)],
    "fragile": [option(2, 0.9, 2), option(4, 0.2, 4), option(32, 0.0, 32)],
}


@pytest.mark.parametrize(
    ("most", "robust", "fragile"),
    [(64, 32, 32), (63, 4, 32), (36, 4, 32), (35, 2, 32), (34, 2, 32), (8, 4, 4), (6, 2, 4)],
)
def test_the_robust_layer_gives_way_first(most: float, robust: int, fragile: int):
    # Worked out by hand: squares are 0.01, 0.0025, 0 and 0.81, 0.04, 0.
    found = choose_options(HAND, most)
    assert found is not None
    assert (found["robust"].bits, found["fragile"].bits) == (bits(robust), bits(fragile))


def test_a_budget_below_the_cheapest_cannot_be_held():
    assert choose_options(HAND, 3.9) is None
    assert {name: each.bits for name, each in cheapest_options(HAND).items()} == {
        "robust": bits(2),
        "fragile": bits(2),
    }


def test_a_width_that_costs_more_and_errs_more_is_never_taken():
    slower = {"a": [option(8, 0.5, 10.0), option(32, 0.0, 5.0)]}
    found = choose_options(slower, 100.0)
    assert found is not None
    assert found["a"].bits == bits(32)


def test_no_layers_fit_any_budget():
    assert choose_options({}, 0.0) == {}


costs = st.integers(min_value=0, max_value=40).map(float)
errors = st.integers(min_value=0, max_value=30).map(lambda whole: whole / 10)
widths = st.sampled_from((2, 3, 4, 8, 32))
options_of_layers = st.dictionaries(
    st.sampled_from("abcde"),
    st.lists(st.builds(option, widths, errors, costs), min_size=1, max_size=4),
    min_size=1,
    max_size=5,
)
budgets = st.integers(min_value=0, max_value=150).map(float)


@given(options=options_of_layers, most=budgets)
def test_it_is_the_best_of_all_combinations(options: dict[str, list[Option]], most: float):
    best = by_brute_force(options, most)
    found = choose_options(options, most)
    if found is None or best is None:
        assert found is None
        assert best is None
        return
    assert all(found[name] in each for name, each in options.items())
    assert math.fsum(each.cost for each in found.values()) <= most
    assert harm(found) == pytest.approx(best)


@given(options=options_of_layers, most=budgets, more=budgets)
def test_a_larger_budget_does_no_more_harm(
    options: dict[str, list[Option]], most: float, more: float
):
    found = choose_options(options, most)
    if found is not None:
        roomier = choose_options(options, most + more)
        assert roomier is not None
        assert harm(roomier) <= harm(found) + 1e-9


def test_many_layers_come_near_a_bound_that_no_choice_can_beat():
    random = Random(0)
    options = {
        f"layer{number}": [
            option(width, random.uniform(0.5, 2.0) * 2.0**-width, random.uniform(1, 40) * width)
            for width in (2, 3, 4, 8)
        ]
        for number in range(60)
    }
    whole = sum(max(each.cost for each in layer) for layer in options.values())
    most = 0.4 * whole
    # Whatever a byte is taken to be worth, nobody does less harm than those that pay so for them.
    bound = max(
        sum(min(each.error**2 + worth * each.cost for each in layer) for layer in options.values())
        - worth * most
        for worth in (10**power for power in (-step / 20 for step in range(200)))
    )
    found = choose_options(options, most)
    assert found is not None
    assert math.fsum(each.cost for each in found.values()) <= most
    assert bound <= harm(found) <= 1.1 * bound


def test_where_all_fits_nothing_is_lost():
    found = choose_options(HAND, math.inf)
    assert found is not None
    assert harm(found) == 0.0


# -- as a policy -----------------------------------------------------------------------------------

LAYERS = (
    layer("stem", "first"),
    *(layer(f"block{number}", "inner", number) for number in range(1, 5)),
    layer("side", "shortcut", 5),
    layer("head", "last", 6),
)


def test_the_most_frequent_bits_are_the_rule():
    wanted = {
        "stem": bits(8),
        "block1": bits(2),
        "block2": bits(4),
        "block3": bits(2),
        "block4": bits(32),
        "side": bits(32),
        "head": bits(32),
    }
    policy = proposed_policy(Policy(weights=3, activations=3), LAYERS, wanted)
    assert (policy.weights, policy.activations) == (2, 2)
    assert set(policy.layers) == {"block2", "block4", "head"}


@given(
    wanted=st.fixed_dictionaries(
        {each.name: st.sampled_from((2, 3, 4, 8, 32)).map(bits) for each in LAYERS}
    )
)
def test_each_layer_gets_what_was_chosen_for_it(wanted: dict[str, LayerBits]):
    policy = proposed_policy(Policy(per_channel=True), LAYERS, wanted)
    assert {each.name: policy.bits_of(each.name, each.place) for each in LAYERS} == wanted
    assert policy.per_channel


def test_a_layer_that_runs_at_several_places_has_its_bits_at_all_of_them():
    layers = (*LAYERS, layer("block1", "last", 7))
    wanted = {each.name: bits(2) for each in layers}
    policy = proposed_policy(Policy(), layers, {**wanted, "stem": bits(8), "head": bits(8)})
    assert policy.bits_of("block1", "inner") == policy.bits_of("block1", "last") == bits(2)
    assert "block2" not in policy.layers


def test_layers_without_a_choice_keep_what_was_asked():
    asked = Policy(layers={"block1": bits(5)})
    policy = proposed_policy(
        asked, LAYERS, {"block2": bits(4), "block3": bits(4), "block4": bits(4)}
    )
    assert policy.bits_of("block1", "inner") == bits(5)
    assert policy.bits_of("block2", "inner") == bits(4)
    assert policy.bits_of("side", "shortcut") == bits(32)
