"""Ratios with their intervals, worked out by hand or drawn by lot; rounds measured in turn."""

from __future__ import annotations

import math
import random
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.design.comparison.ratios import (
    MeasuredRounds,
    Ratio,
    RoundTime,
    ratio_of_predictions,
    ratio_of_rounds,
)


def test_halves_of_intervals_add_as_squares() -> None:
    """2 s from 2 / e^0.3 to 2 e^0.4 against 1 s from e^-0.3 to e^0.4: sqrt(0.3² + 0.4²) = 0.5."""
    value = (2 * math.exp(-0.3), 2 * math.exp(0.4))
    base = (math.exp(-0.3), math.exp(0.4))
    found = ratio_of_predictions(2.0, value, 1.0, base)
    assert found.value == 2.0
    assert found.interval == pytest.approx((2 * math.exp(-0.5), 2 * math.exp(0.5)))


def test_the_interval_holds_8_of_10_ratios_of_independent_draws() -> None:
    """Log-normal errors of 10 and 20 %: 1.2816 standard deviations are 90 %."""
    draw = random.Random(7)
    wide = [math.exp(draw.gauss(0.0, 0.2) - draw.gauss(0.0, 0.1)) for _ in range(40_000)]
    low, *_, high = quantiles(wide, n=10)
    a, b = (math.exp(1.2816 * sd) for sd in (0.2, 0.1))
    found = ratio_of_predictions(3.0, (3 / a, 3 * a), 3.0, (1 / b * 3, 3 * b))
    assert found.interval == pytest.approx((low, high), rel=0.02)


def test_without_both_intervals_there_is_none() -> None:
    assert ratio_of_predictions(2.0, None, 1.0, (0.9, 1.1)).interval is None
    assert ratio_of_predictions(2.0, (1.0, 3.0), 1.0, None).interval is None
    assert ratio_of_predictions(2.0, (0.0, 3.0), 1.0, (0.9, 1.1)).interval is None


@given(st.floats(0.01, 1e4), st.floats(1.01, 3.0), st.floats(1.01, 3.0))
def test_the_other_way_round_is_the_inverse(value: float, up: float, down: float) -> None:
    ratio = ratio_of_predictions(value, (value / down, value * up), 1.0, (1 / up, down))
    back = ratio_of_predictions(1.0, (1 / up, down), value, (value / down, value * up))
    assert (back.inverse.value, *(back.inverse.interval or ())) == pytest.approx(
        (ratio.value, *(ratio.interval or ()))
    )


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Ratio(value=3.42, low=2.93, high=4.14), "3.4 (2.9–4.1)"),
        (Ratio(value=0.412, low=0.398, high=0.421), "0.41 (0.40–0.42)"),
        (Ratio(value=1.2345, low=1.2340, high=1.2349), "1.234 (1.234–1.235)"),
        (Ratio(value=9.97, low=8.0, high=12.2), "10 (8–12)"),
        (Ratio(value=1234.0, low=900.0, high=1500.0), "1200 (900–1500)"),
        (Ratio(value=0.31), "0.31"),
        (Ratio(value=1.0), "1.0"),
        (Ratio(value=0.0), "0"),
    ],
)
def test_no_more_digits_than_the_interval_leaves(ratio: Ratio, text: str) -> None:
    assert ratio.text == text


def test_intervals_that_are_none() -> None:
    with pytest.raises(ValueError, match="two ends"):
        Ratio(value=1.0, low=0.5)
    with pytest.raises(ValueError, match="not in"):
        Ratio(value=1.0, low=1.5, high=2.0)


def test_rounds_give_the_median_ratio_and_its_spread() -> None:
    """1, 2, 3, 4, 5: the tenth is 1.4, the ninetieth 4.6."""
    found = ratio_of_rounds([3.0, 1.0, 5.0, 2.0, 4.0])
    assert (found.value, found.interval) == (3.0, pytest.approx((1.4, 4.6)))
    assert ratio_of_rounds([2.0]) == Ratio(value=2.0)


def rounds(
    *pairs: tuple[float, float], clocks: tuple[float, float] | None = None
) -> MeasuredRounds:
    """Rounds of two models; each time is the median of three passes."""
    clock = clocks or (None, None)
    return MeasuredRounds(
        rounds=tuple(
            tuple(
                RoundTime(times_s=(0.9 * time_s, time_s, 2 * time_s), clock_hz=clock[place])
                for place, time_s in enumerate(pair)
            )
            for pair in pairs
        )
    )


def test_what_drifts_for_both_leaves_the_ratio() -> None:
    """Twice as slow in the second round, thrice in the third: always half of the other."""
    found = rounds((2.0, 1.0), (4.0, 2.0), (6.0, 3.0))
    assert found.ratio(1, 0) == Ratio(value=0.5, low=0.5, high=0.5)
    assert found.sample(0).times_s == (2.0, 4.0, 6.0)
    assert found.ratio(0, 0) == Ratio(value=1.0)


def test_ratios_are_of_one_clock() -> None:
    """3 s at 2 GHz are 6 billion cycles, 2 s at 3 GHz as many: they are equally fast."""
    found = rounds((3.0, 2.0), (3.0, 2.0), clocks=(2e9, 3e9))
    assert found.ratio(1, 0).value == pytest.approx(1.0)
    assert rounds((3.0, 2.0)).ratio(1, 0).value == pytest.approx(2 / 3)


def test_ratios_for_each_sample() -> None:
    """8 samples in 4 s against 1 in 1 s: half as long for each."""
    assert rounds((1.0, 4.0)).ratio(1, 0, per=8).value == pytest.approx(0.5)


def test_rounds_are_of_the_same_models() -> None:
    one = RoundTime(times_s=(1.0,))
    with pytest.raises(ValueError, match="same models"):
        MeasuredRounds(rounds=((one, one), (one,)))
    with pytest.raises(ValueError, match="same models"):
        MeasuredRounds(rounds=())
    with pytest.raises(ValueError, match="positive"):
        RoundTime(times_s=(0.0,))
