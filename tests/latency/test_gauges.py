"""What is read around a pass, with clocks that are made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roofline.latency.measuring.rounds import Gauges, TimedPass, process_faults


class Hands:
    """Clocks that are moved by hand; `asked` is the order in which they were read."""

    def __init__(self) -> None:
        self.wall_s = 100.0
        self.cpu_s = 7.0
        self.page_faults = 40
        self.asked: list[str] = []

    def gauges(self, *, waits: bool = False) -> Gauges:
        def wall() -> float:
            self.asked.append("wall")
            return self.wall_s

        def cpu() -> float:
            self.asked.append("cpu")
            return self.cpu_s

        def page_faults() -> int:
            self.asked.append("page_faults")
            return self.page_faults

        return Gauges(
            run_queue_wait=lambda: 0.0,
            wall=wall,
            thread_cpu=cpu,
            page_faults=page_faults,
            synchronize=lambda: self.asked.append("wait"),
            is_asynchronous=waits,
        )

    def moved(self, **to: float) -> Callable[[], None]:
        """A pass in which the hands move."""
        return lambda: vars(self).update(to)


def test_a_pass_by_hand() -> None:
    hands = Hands()
    found = hands.gauges().time_pass(hands.moved(wall_s=102.0, cpu_s=8.5, page_faults=52))
    assert found == TimedPass(wall_s=2.0, page_faults=12, cpu_share=0.75)
    assert found.is_disturbed


def test_the_wall_clock_is_next_to_the_pass_and_behind_the_wait() -> None:
    hands = Hands()
    hands.gauges().time_pass(lambda: hands.asked.append("pass"))
    place = hands.asked.index("pass")
    assert hands.asked[0] == "wait"
    assert hands.asked[place - 1 : place + 3] == ["wall", "pass", "wait", "wall"]


@pytest.mark.parametrize(("share", "is_disturbed"), [(0.949, True), (0.951, False), (1.0, False)])
def test_what_disturbed_is(share: float, is_disturbed: bool) -> None:
    assert TimedPass(wall_s=1.0, page_faults=0, cpu_share=share).is_disturbed is is_disturbed


def test_clocks_that_do_not_agree_give_no_nonsense() -> None:
    hands = Hands()
    # No tick of the wall clock, more of the CPU's, and a counter that went back.
    found = hands.gauges().time_pass(hands.moved(cpu_s=7.1, page_faults=30))
    assert found.wall_s > 0
    assert (found.page_faults, found.cpu_share) == (0, 1.0)
    assert hands.gauges().time_pass(hands.moved(wall_s=101.0, cpu_s=6.0)).cpu_share == 0.0


def test_a_thread_that_waits_for_a_device_is_not_disturbed() -> None:
    hands = Hands()
    assert not hands.gauges(waits=True).time_pass(hands.moved(wall_s=103.0)).is_disturbed


def test_faults_of_this_process_only_grow() -> None:
    first = process_faults()
    assert process_faults() >= first >= 0
