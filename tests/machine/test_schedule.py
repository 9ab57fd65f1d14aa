"""Scheduling against a clock that only the fake kernels move."""

from __future__ import annotations

import pytest

from roofline.machine.measuring.estimation import bursts_per_call, interleave, repeats_for


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


def test_repeats_with_a_clock_too_coarse_to_see_one() -> None:
    repeats = repeats_for(lambda n: n * 1e-9 if n > 1000 else 0.0, 4e-4, most=1 << 40)
    assert 2e5 <= repeats <= 4e5


def test_bursts_share_the_budget() -> None:
    bursts = bursts_per_call(6.4, trials=64, burst_s=0.5e-3)
    assert bursts * 0.5e-3 * 64 * 8 == pytest.approx(6.4, rel=0.05)
    # One call never keeps an interrupt waiting for more than 50 ms, nor is it too short to judge.
    assert bursts_per_call(1000.0, trials=1, burst_s=0.5e-3) == 100
    assert bursts_per_call(0.001, trials=64, burst_s=0.5e-3) == 4


def test_rounds_go_over_all_trials_until_the_deadline() -> None:
    clock = Clock()
    order: list[str] = []

    def run(trial: str) -> list[float]:
        order.append(trial)
        clock.now += 0.5
        return [clock.now]

    seen: list[float] = []
    results = interleave(
        ["a", "b"],
        run,
        deadline=clock.now + 5.2,
        clock=clock,
        progress=lambda done, _: seen.append(done),
    )
    assert order == ["a", "b"] * 5
    assert [len(each) for each in results] == [5, 5]
    assert clock.now == 105.0
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert max(seen) <= 1


def test_three_rounds_are_made_even_past_the_deadline() -> None:
    clock = Clock()

    def run(trial: str) -> list[str]:
        clock.now += 10
        return [trial]

    seen: list[float] = []
    results = interleave(
        ["a"], run, deadline=clock.now, clock=clock, progress=lambda done, _: seen.append(done)
    )
    assert results == [["a", "a", "a"]]
    assert all(0 <= done <= 1 for done in seen)


def test_an_interrupt_passes_through() -> None:
    def run(trial: str) -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interleave(["a"], run, deadline=1.0, clock=Clock(), progress=lambda done, _: None)


def test_without_trials_there_are_no_rounds() -> None:
    nothing: list[int] = []
    assert (
        interleave(
            nothing,
            lambda each: [each],
            deadline=1.0,
            clock=lambda: 0.0,
            progress=lambda done, each: None,
        )
        == []
    )
