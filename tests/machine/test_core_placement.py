"""Changes while it is measured: drift of rates, and CPUs that the host moves about."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.machine.measuring.core_placement import (
    core_to_core_overhead,
    drift,
    find_core_placement,
    placement_condition,
)

NEAR, FAR = 45e-9, 205e-9
HERE_AND_THERE = np.random.default_rng(1).choice(300, 90, replace=False)


def noise(count: int, spread: float, seed: int = 0) -> list[float]:
    """Rates around 100 whose interquartile range is about `spread` of them."""
    sigma = 100 * spread / 1.349
    return list(100 + sigma * np.random.default_rng(seed).standard_normal(count))


def scaled(rates: list[float], places: Any, factor: float) -> list[float]:
    found = np.array(rates)
    found[places] *= factor
    return list(found)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.2])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [12, 40, 400])
def test_noise_is_no_drift(spread: float, seed: int, count: int) -> None:
    assert drift(noise(count, spread, seed)) == ""


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([100.0] * 50, ""),
        (noise(300, 0.01), ""),
        # From 100 down to 88 in a straight line: the thirds' medians are 98 and 90.
        ([100 - 12 * i / 299 for i in range(300)], "slowed down"),
        # The first third rises from 80 to 99.8, with the median 89.9; the last stays at 100.
        ([80 + 20 * min(1.0, i / 100) for i in range(300)], "sped up"),
        ([100 - 2 * i / 299 for i in range(300)], ""),
        # Neighbours come and go: four stretches, 40 % of the bursts a quarter slower.
        (scaled(noise(300, 0.02), [*range(50, 120), *range(200, 250)], 0.75), "two phases"),
        ([100.0] * 30 + [80.0] * 30, "two phases"),
        # As many slow ones here and there; and a few outliers together.
        (
            scaled(noise(300, 0.02), np.random.default_rng(1).choice(300, 90, replace=False), 0.75),
            "",
        ),
        (scaled(noise(300, 0.02), slice(100, 120), 0.5), ""),
        ([], ""),
        ([100.0] * 6 + [50.0] * 5, ""),
        ([math.nan, math.inf, 0.0, -1.0, *[100.0] * 30, *[80.0] * 30], "two phases"),
    ],
)
def test_drift_of_known_histories(rates: list[float], said: str) -> None:
    assert drift(rates) == said


@given(st.lists(st.floats(min_value=1e3, max_value=1e15), max_size=60))
def test_the_unit_of_the_rates_does_not_matter(rates: list[float]) -> None:
    said = drift(rates)
    assert said in ("", "slowed down", "sped up", "two phases")
    # A power of two scales exactly.
    assert drift([rate * 1024 for rate in rates]) == said


def test_one_placement_is_all_that_there_is() -> None:
    found = find_core_placement([NEAR, 1.1 * NEAR, 0.9 * NEAR, NEAR])
    assert not found.moved
    assert found.is_usual(FAR)
    assert placement_condition(found) == ""
    overhead = core_to_core_overhead(found)
    assert overhead is not None
    assert (overhead.threads, overhead.time.median_s) == (2, NEAR)


def test_two_placements_are_told_apart() -> None:
    found = find_core_placement([NEAR, FAR, 1.1 * FAR, FAR, NEAR])
    assert [found.is_usual(each) for each in found.core_to_core_s] == [
        False,
        True,
        True,
        True,
        False,
    ]
    said = placement_condition(found)
    assert "60.0 % of the time they were distant (core-to-core latency 205 ns" in said
    assert "else close (45.0 ns)" in said
    overhead = core_to_core_overhead(found)
    assert overhead is not None
    assert overhead.time.median_s == FAR
    found = find_core_placement([NEAR, FAR, NEAR, FAR, 1.2 * NEAR])
    assert [found.is_usual(each) for each in found.core_to_core_s] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert "of the time they were close (core-to-core" in placement_condition(found)


def test_what_is_not_known_belongs_to_no_placement() -> None:
    found = find_core_placement([NEAR, math.nan, NEAR, FAR, FAR, NEAR])
    assert not found.is_usual(math.nan)
    assert found.usual_s == [NEAR] * 3
    assert core_to_core_overhead(find_core_placement([math.nan])) is None


@pytest.mark.parametrize(
    "core_to_core_s", [[NEAR, NEAR, FAR, NEAR], [*[NEAR] * 200, FAR, FAR], [math.nan, math.nan], []]
)
def test_a_few_long_hops_are_no_placement(core_to_core_s: list[float]) -> None:
    assert not find_core_placement(core_to_core_s).moved
