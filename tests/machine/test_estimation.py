"""Rates from bursts whose times are written down by hand."""

from __future__ import annotations

import pytest

from roofline.errors import MeasurementError
from roofline.machine.measuring.estimation import Burst, estimate, team_bursts


def burst(milliseconds: float, busy: float = 1.0) -> Burst:
    return Burst(wall_s=milliseconds * 1e-3, cpu_s=milliseconds * 1e-3 * busy, busy=busy)


def test_median_and_high_quantile_of_the_rates() -> None:
    # 21 bursts of 1e6 byte: one of 0.5 ms, one of 0.8 ms, 17 of 1 ms, two of 2 ms.
    bursts = [burst(0.5), burst(0.8), *[burst(1.0)] * 17, *[burst(2.0)] * 2]
    rate = estimate(1e6, bursts)
    assert rate.sustained == pytest.approx(1e9)
    # The 95th percentile of 21 is the second fastest: not the one lucky burst.
    assert rate.peak == pytest.approx(1.25e9)
    assert rate.spread == 0
    assert (rate.bursts, rate.disturbed, rate.only_disturbed) == (21, 0, False)


def test_disturbed_bursts_are_left_out() -> None:
    bursts = [burst(1.0)] * 2 + [burst(4.0, busy=0.25)] * 20
    rate = estimate(1e6, bursts)
    assert rate.sustained == pytest.approx(1e9)
    assert (rate.bursts, rate.disturbed, rate.only_disturbed) == (22, 20, False)


def test_with_nothing_but_disturbed_bursts_the_rate_is_marked() -> None:
    rate = estimate(1e6, [burst(2.0, busy=0.5)] * 9)
    assert rate.only_disturbed
    assert rate.sustained == pytest.approx(0.5e9)


def test_peak_is_never_below_sustained() -> None:
    for n in range(1, 12):
        rate = estimate(3.0, [burst(1 / 3)] * n)
        assert rate.peak >= rate.sustained


@pytest.mark.parametrize("bursts", [[], [burst(0.0)]])
def test_no_timing_is_an_error(bursts: list[Burst]) -> None:
    with pytest.raises(MeasurementError, match="no usable timing"):
        estimate(1.0, bursts)


def test_a_team_runs_from_its_first_start_to_its_last_end() -> None:
    one = [[1000, 2000, 500, 1500], [5000, 6000, 1500, 2500]]
    two = [[1000, 2500, 100, 850], [5000, 6050, 800, 1850], [9000, 9900, 1750, 2650]]
    first, second = team_bursts([one, two])
    assert first.wall_s == pytest.approx(1500e-9)
    assert first.cpu_s == pytest.approx(1000e-9)
    assert first.busy == pytest.approx(0.5)  # the second had its CPU for 750 of 1500 ns
    assert second.wall_s == pytest.approx(1050e-9)
    assert second.busy == pytest.approx(1.0)  # the first was done early, and lost nothing


def test_a_thread_that_comes_late_makes_the_burst_a_disturbed_one() -> None:
    (burst,) = team_bursts([[[1000, 2000, 0, 1000]], [[4000, 5000, 0, 1000]]])
    assert burst.wall_s == pytest.approx(4000e-9)
    assert burst.cpu_s == pytest.approx(1000e-9)
    assert burst.busy == pytest.approx(0.25)


def test_a_team_of_which_one_finished_nothing_has_no_bursts() -> None:
    assert team_bursts([[[0, 1, 0, 1]], []]) == []
