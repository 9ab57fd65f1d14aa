"""Drift and phases in series of rates whose history is written here."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.machine.measuring.proximity import drift


def noise(count: int, spread: float, seed: int = 0) -> list[float]:
    """Rates around 100 whose interquartile range is about `spread` of them."""
    sigma = 100 * spread / 1.349
    return list(100 + sigma * np.random.default_rng(seed).standard_normal(count))


def test_a_steady_series_has_nothing_to_say() -> None:
    assert drift([100.0] * 50) == ""
    assert drift(noise(300, 0.01)) == ""


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.2])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [12, 40, 400])
def test_noise_is_no_drift(spread: float, seed: int, count: int) -> None:
    assert drift(noise(count, spread, seed)) == ""


def test_heat_slows_down() -> None:
    # From 100 down to 88 in a straight line: the thirds' medians are 98 and 90.
    rates = [100 - 12 * i / 299 for i in range(300)]
    assert drift(rates) == "slowed down"


def test_a_rising_clock_speeds_up() -> None:
    # The first third rises from 80 to 99.8, with the median 89.9; the last stays at 100.
    rates = [80 + 20 * min(1.0, i / 100) for i in range(300)]
    assert drift(rates) == "sped up"


def test_a_small_drift_is_not_notable() -> None:
    assert drift([100 - 2 * i / 299 for i in range(300)]) == ""


def test_phases_that_last_are_told() -> None:
    # Neighbours come and go: four stretches, 40 % of the bursts a quarter slower.
    rates = noise(300, 0.02)
    slow = [*range(50, 120), *range(200, 250)]
    for i in slow:
        rates[i] *= 0.75
    assert drift(rates) == "two phases"


def test_one_step_is_two_phases() -> None:
    assert drift([100.0] * 30 + [80.0] * 30) == "two phases"


def test_slow_bursts_here_and_there_are_no_phase() -> None:
    rates = noise(300, 0.02)
    for i in np.random.default_rng(1).choice(300, 90, replace=False):
        rates[i] *= 0.75
    assert drift(rates) == ""


def test_a_few_outliers_are_no_phase() -> None:
    rates = noise(300, 0.02)
    for i in range(100, 120):
        rates[i] *= 0.5
    assert drift(rates) == ""


def test_too_few_rates_say_nothing() -> None:
    assert drift([]) == ""
    assert drift([100.0] * 6 + [50.0] * 5) == ""


def test_rates_that_are_none_are_left_out() -> None:
    rates = [100.0] * 30 + [80.0] * 30
    broken = [math.nan, math.inf, 0.0, -1.0, *rates]
    assert drift(broken) == drift(rates)


@given(st.lists(st.floats(min_value=1e3, max_value=1e15), max_size=60))
def test_the_unit_of_the_rates_does_not_matter(rates: list[float]) -> None:
    said = drift(rates)
    assert said in ("", "slowed down", "sped up", "two phases")
    # A power of two scales exactly.
    assert drift([rate * 1024 for rate in rates]) == said
