"""Rounds with clocks that are made up: what counts, in which order, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.latency.measuring.rounds import Effort, Gauges, Rounds, run_rounds
from roofline.machine.core_state import CoreState


class Bench:
    """Subjects that take as long as is said, and get the cores or do not."""

    def __init__(self, shares: Callable[[int, str], float] = lambda _number, _name: 1.0) -> None:
        self.order: list[str] = []
        self._wall_s = self._cpu_s = 0.0
        self._shares = shares

    def subject(self, name: str, seconds: Sequence[float] = (1.0,)) -> Callable[[], None]:
        def run() -> None:
            number = self.order.count(name)
            took_s = seconds[number % len(seconds)]
            self._wall_s += took_s
            self._cpu_s += took_s * self._shares(number, name)
            self.order.append(name)

        return run

    def gauges(self) -> Gauges:
        return Gauges(
            run_queue_wait=lambda: 0.0,
            wall=lambda: self._wall_s,
            thread_cpu=lambda: self._cpu_s,
            page_faults=lambda: len(self.order),
        )

    def rounds(self, effort: Effort, *names: str) -> Rounds:
        return run_rounds([self.subject(each) for each in names], self.gauges(), effort)


def effort(
    warm_ups: int = 0,
    least: int = 1,
    most: int = 100,
    budget_s: float = 0.0,
    patience: float = 1.0,
) -> Effort:
    return Effort(
        warm_ups=warm_ups,
        min_rounds=least,
        max_rounds=most,
        budget_s=budget_s,
        extra_share=patience,
    )


def test_subjects_run_in_turn_and_warm_ups_do_not_count() -> None:
    bench = Bench()
    found = bench.rounds(effort(warm_ups=2, least=3, most=3), "a", "b")
    assert "".join(bench.order) == "ab" * 5
    assert len(found.passes) == 3
    assert found.kept == (0, 1, 2)
    assert (found.discarded, found.are_disturbed) == (0, False)
    assert (found.times_s(0), found.page_faults(1)) == ((1.0,) * 3, (1,) * 3)


def test_each_has_its_own_times() -> None:
    bench = Bench()
    subjects = [bench.subject("a", (1.0, 2.0, 3.0)), bench.subject("b", (10.0, 20.0, 30.0))]
    found = run_rounds(subjects, bench.gauges(), effort(warm_ups=1, least=2, most=2))
    assert found.times_s(0) == (2.0, 3.0)
    assert found.times_s(1) == (20.0, 30.0)


def test_a_round_in_which_one_waited_for_a_core_does_not_count() -> None:
    # "b" did not get one in its second and fourth pass, of which the first warms up.
    bench = Bench(lambda number, name: 0.5 if name == "b" and number in (1, 3) else 1.0)
    found = bench.rounds(effort(warm_ups=1, least=3, most=3), "a", "b")
    assert found.kept == (1, 3, 4)
    assert (len(found.passes), found.discarded, found.are_disturbed) == (3, 2, False)
    assert len(bench.order) == 2 * 6


def test_patience_ends_and_the_least_disturbed_are_taken() -> None:
    shares = (0.1, 0.9, 0.3, 0.8, 0.2, 0.7)
    bench = Bench(lambda number, _name: shares[number % 6])
    found = bench.rounds(effort(least=3, patience=1.0), "a")
    # Three that should have counted, and three more.
    assert len(bench.order) == 6
    assert found.kept == (1, 3, 5)
    assert [each[0].cpu_share for each in found.passes] == pytest.approx([0.9, 0.8, 0.7])
    assert (found.discarded, found.are_disturbed) == (3, True)


def test_too_few_that_are_clean_are_filled_up_and_that_is_said() -> None:
    bench = Bench(lambda number, _name: 1.0 if number == 4 else 0.5 + number / 100)
    found = bench.rounds(effort(least=2, patience=2.0), "a")
    assert found.kept[0] == 4
    assert len(found.passes) == len(found.kept) == 2
    assert found.are_disturbed
    assert found.discarded == len(bench.order) - 2


def test_no_patience_takes_as_many_as_should_count() -> None:
    bench = Bench(lambda _number, _name: 0.0)
    found = bench.rounds(effort(least=3, patience=0.0), "a")
    assert len(bench.order) == 3
    assert (len(found.passes), found.discarded, found.are_disturbed) == (3, 0, True)


def test_the_budget_goes_on_from_the_least_to_the_most() -> None:
    for budget_s, rounds in ((0.0, 2), (1.5, 2), (5.0, 5), (5.5, 6), (1e9, 7)):
        bench = Bench()
        found = bench.rounds(effort(least=2, most=7, budget_s=budget_s), "a")
        assert len(found.passes) == rounds, budget_s


def test_warm_ups_are_not_paid_from_the_budget() -> None:
    bench = Bench()
    assert len(bench.rounds(effort(warm_ups=9, budget_s=3.0), "a").passes) == 3


@pytest.mark.parametrize("budget_s", [0.0, 4.0])
def test_progress_never_goes_back_and_ends_at_1(budget_s: float) -> None:
    said: list[tuple[float, str]] = []
    bench = Bench()
    run_rounds(
        [bench.subject("a")],
        bench.gauges(),
        effort(least=3, most=10, budget_s=budget_s),
        progress=lambda fraction, what: said.append((fraction, what)),
        what="timing x",
    )
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions)
    assert all(0 < each <= 1 for each in fractions)
    assert fractions[-1] == 1.0
    assert {what for _, what in said} == {"timing x"}


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_rounds([interrupted], Bench().gauges(), effort())


@given(
    disturbed=st.lists(st.booleans(), min_size=1, max_size=30),
    least=st.integers(1, 6),
    more=st.integers(0, 6),
    budget_s=st.floats(0, 20),
    patience=st.floats(0, 3),
)
def test_every_round_is_kept_or_discarded_and_it_ends(
    disturbed: list[bool], least: int, more: int, budget_s: float, patience: float
) -> None:
    bench = Bench(lambda number, _name: 0.1 if disturbed[number % len(disturbed)] else 1.0)
    found = bench.rounds(
        effort(least=least, most=least + more, budget_s=budget_s, patience=patience), "a"
    )
    ran = len(bench.order)
    assert len(found.passes) == len(found.kept) == len(set(found.kept))
    assert len(found.passes) + found.discarded == ran
    assert len(found.passes) <= least + more
    assert all(0 <= each < ran for each in found.kept)
    clean = sum(not disturbed[number % len(disturbed)] for number in range(ran))
    if found.are_disturbed:
        assert clean < least
    else:
        assert len(found.passes) == clean
    # Numbers and passages belong together.
    for number, (passage,) in zip(found.kept, found.passes, strict=True):
        assert passage.is_disturbed is disturbed[number % len(disturbed)]
    assert ran <= max(least + more, budget_s + 1) + least * (2 + patience) + 2


@pytest.mark.parametrize(
    "wrong", [{"least": 0}, {"least": 5, "most": 4}, {"warm_ups": -1}, {"budget_s": -1.0}]
)
def test_efforts_that_are_none(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="effort"):
        effort(**wrong)


# How fast the cores ran


def paced(bench: Bench, core_states: Sequence[CoreState]) -> tuple[Gauges, list[CoreState]]:
    """Gauges that read `core_states` one after another, and those that were read."""
    read: list[CoreState] = []

    def core_state() -> CoreState:
        read.append(core_states[len(read)])
        return read[-1]

    return replace(bench.gauges(), core_state=core_state), read


def test_a_round_has_the_pace_between_its_begin_and_its_end() -> None:
    bench = Bench()
    gauges, read = paced(bench, [CoreState(clock_hz=each) for each in (4e9, 2e9, 3e9)])
    found = run_rounds([bench.subject("a")], gauges, effort(least=2, most=2))
    assert [each.clock_hz for each in found.core_states] == [3e9, 2.5e9]
    assert found.core_state == CoreState(clock_hz=2.75e9)
    assert len(read) == 3


def test_short_passes_share_a_reading() -> None:
    """Reading takes longer than they do: 9 of 10 rounds of 4 ms take over what was read."""
    bench = Bench()
    gauges, read = paced(bench, [CoreState(clock_hz=each) for each in (4e9, 2e9, 9e9)])
    found = run_rounds([bench.subject("a", [0.004])], gauges, effort(least=10, most=10))
    assert [each.clock_hz for each in found.core_states] == [4e9] * 5 + [3e9] + [2e9] * 4
    assert len(read) == 2


def test_disturbed_rounds_have_no_part_in_the_pace() -> None:
    bench = Bench(lambda number, _name: 0.5 if number == 0 else 1.0)
    gauges, _ = paced(bench, [CoreState(clock_hz=each) for each in (1e9, 1e9, 3e9)])
    found = run_rounds([bench.subject("a")], gauges, effort(least=1, most=1))
    assert found.discarded == 1
    assert found.core_state == CoreState(clock_hz=2e9)
