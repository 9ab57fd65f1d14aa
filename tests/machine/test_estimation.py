"""Programs, schedules against a clock that only fake kernels move, and rates of known bursts."""

from __future__ import annotations

from typing import get_args

import pytest

from roofline.core.progress import silent
from roofline.errors import MeasurementError
from roofline.machine.hardware import Effort
from roofline.machine.measuring.estimation import (
    TIME_BUDGETS,
    Burst,
    bursts_per_call,
    estimate,
    interleave,
    repeats_for,
    team_bursts,
)

EFFORTS: tuple[Effort, ...] = ("quick", "default", "thorough")


def test_every_effort_that_can_be_asked_for_has_a_program() -> None:
    assert {*EFFORTS, "unspecified"} == set(get_args(Effort))
    assert set(TIME_BUDGETS) == set(EFFORTS)
    plans = [TIME_BUDGETS[effort] for effort in EFFORTS]
    for name in ("budget_s", "curve_s", "library_s", "second_variants", "continuous_s"):
        values = [getattr(plan, name) for plan in plans]
        assert values == sorted(values)
    quick, _, thorough = plans
    assert (quick.library_s, quick.second_variants) == (0, False)
    assert thorough.second_variants
    assert thorough.continuous_s >= 1


@pytest.mark.parametrize(("effort", "promised_s"), [("quick", 3), ("default", 10)])
def test_a_program_keeps_what_the_command_promises(effort: Effort, promised_s: float) -> None:
    plan = TIME_BUDGETS[effort]
    # The command starts and ends outside the budget.
    assert 0.7 * promised_s < plan.budget_s < promised_s
    assert plan.continuous_s == 0
    assert plan.curve_s + plan.library_s < 0.5 * plan.budget_s


# --- schedules -----------------------------------------------------------------------------------


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("repeat_s", [1e-9, 3e-7, 1e-5, 2e-4])
def test_repeats_make_a_burst_of_the_wanted_length(repeat_s: float) -> None:
    asked: list[int] = []

    def run(repeats: int) -> float:
        asked.append(repeats)
        return 2e-7 + repeats * repeat_s  # with a constant cost per call

    repeats = repeats_for(run, 4e-4, most=1 << 40)
    assert 2e-4 <= repeats * repeat_s <= 4e-4
    assert len(asked) < 12


def test_repeats_stay_within_their_limit() -> None:
    assert repeats_for(lambda repeats: 1e-9 * repeats, 4e-4, most=50) == 50
    assert repeats_for(lambda repeats: 1.0, 4e-4, most=50) == 1
    # A clock too coarse to see one.
    repeats = repeats_for(lambda n: n * 1e-9 if n > 1000 else 0.0, 4e-4, most=1 << 40)
    assert 2e5 <= repeats <= 4e5


def test_bursts_share_the_budget() -> None:
    bursts = bursts_per_call(6.4, trials=64, burst_s=0.5e-3)
    assert bursts * 0.5e-3 * 64 * 8 == pytest.approx(6.4, rel=0.05)
    # One call never keeps an interrupt waiting for more than 50 ms, nor is it too short to judge.
    assert bursts_per_call(1000.0, trials=1, burst_s=0.5e-3) == 100
    assert bursts_per_call(0.001, trials=64, burst_s=0.5e-3) == 4


@pytest.mark.parametrize(
    ("trials", "step_s", "budget_s", "rounds"),
    # Three rounds are made even past the deadline; without trials there are none.
    [("ab", 0.5, 5.2, 5), ("a", 10.0, 0.0, 3), ("", 1.0, 1.0, 0)],
)
def test_rounds_go_over_all_trials_until_the_deadline(
    trials: str, step_s: float, budget_s: float, rounds: int
) -> None:
    clock = Clock()
    order: list[str] = []
    seen: list[float] = []

    def run(trial: str) -> list[float]:
        order.append(trial)
        clock.now += step_s
        return [clock.now]

    results = interleave(
        trials,
        run,
        deadline=clock.now + budget_s,
        clock=clock,
        progress=lambda done, _: seen.append(done),
    )
    assert order == list(trials) * rounds
    assert [len(each) for each in results] == [rounds] * len(trials)
    assert clock.now == 100.0 + len(order) * step_s
    assert all(0 <= done <= 1 for done in seen)
    if budget_s > 0:
        assert seen == sorted(seen)
        assert seen[:1] == [0][: len(trials)]


def test_an_interrupt_passes_through() -> None:
    def run(trial: str) -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interleave(["a"], run, deadline=1.0, clock=Clock(), progress=silent)


# --- rates ---------------------------------------------------------------------------------------


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


def test_disturbed_bursts_are_left_out_unless_there_are_no_others() -> None:
    rate = estimate(1e6, [burst(1.0)] * 2 + [burst(4.0, busy=0.25)] * 20)
    assert rate.sustained == pytest.approx(1e9)
    assert (rate.bursts, rate.disturbed, rate.only_disturbed) == (22, 20, False)
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
    assert team_bursts([[[0, 1, 0, 1]], []]) == []


def test_a_thread_that_comes_late_makes_the_burst_a_disturbed_one() -> None:
    (burst,) = team_bursts([[[1000, 2000, 0, 1000]], [[4000, 5000, 0, 1000]]])
    assert burst.wall_s == pytest.approx(4000e-9)
    assert burst.cpu_s == pytest.approx(1000e-9)
    assert burst.busy == pytest.approx(0.25)
