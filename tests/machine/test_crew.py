"""The crew: results in order, errors passed on, no thread left behind."""

from __future__ import annotations

import os
import threading

import pytest

from roofline.machine.crew import Crew


def crew_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("roofline-")]


def test_results_come_in_order_from_different_threads() -> None:
    with Crew(3) as crew:
        found = crew.each(lambda i: (i, threading.current_thread().name))
        assert found == [(i, f"roofline-{i}") for i in range(3)]
        assert crew.each(lambda i: i * 10, workers=2) == [0, 10]
    assert crew_threads() == []


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_workers_are_pinned_and_the_caller_is_not() -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)
    with Crew(1, (cpu,)) as crew:
        assert crew.each(lambda i: os.sched_getaffinity(0)) == [{cpu}]
        assert crew.pinned
        assert os.sched_getaffinity(0) == before
    assert os.sched_getaffinity(0) == before


def test_a_crew_that_cannot_be_pinned_works_and_says_so() -> None:
    with Crew(1) as unpinned:
        assert not unpinned.pinned
    with Crew(1, (1 << 14,)) as refused:
        assert not refused.pinned
        assert refused.each(lambda i: i) == [0]


def test_one_that_fails_releases_the_others() -> None:
    def task(i: int) -> None:
        if i == 0:
            raise ValueError("broken")
        while not crew.stopped:
            pass

    with Crew(2) as crew:
        with pytest.raises(ValueError, match="broken"):
            crew.each(task)
        assert crew.each(lambda i: i) == [0, 1]
    assert crew_threads() == []


def test_an_interrupt_stops_and_joins_everyone() -> None:
    started = threading.Event()

    def task(i: int) -> None:
        started.set()
        while not crew.stopped:
            pass

    with pytest.raises(KeyboardInterrupt), Crew(2) as crew:
        # The caller is interrupted while its workers are at work.
        crew._inboxes[1].put(lambda: task(1))
        started.wait()
        raise KeyboardInterrupt
    assert crew_threads() == []
