"""The crew: results in order, errors passed on, no thread left behind."""

from __future__ import annotations

import os
import threading

import pytest

from roofline.errors import MeasurementError
from roofline.machine.measuring.crew import Crew

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="no affinity on this system"
)


def crew_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("roofline-")]


def test_results_come_in_order_from_different_threads() -> None:
    with Crew(3) as crew:
        found = crew.each(lambda i: (i, threading.current_thread().name))
        assert found == [(i, f"roofline-{i}") for i in range(3)]
        assert crew.each(lambda i: i * 10, workers=2) == [0, 10]
    assert crew_threads() == []


@needs_affinity
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
        assert unpinned.pinning.startswith("threads could not be pinned to cores")
    with Crew(1, (1 << 14,)) as refused:
        assert not refused.pinned
        assert refused.each(lambda i: i) == [0]
        assert refused.refused == (1 << 14,)


@needs_affinity
def test_affinity_that_is_not_permitted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, cpus: set[int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with Crew(2, (0, 1)) as crew:
        assert crew.each(lambda i: i) == [0, 1]
        assert not crew.pinned
        assert crew.refused == (0, 1)
        assert "pinned to CPU 0, 1: not permitted, or offline by now" in crew.pinning


@needs_affinity
def test_a_cpu_that_went_offline_since_it_was_read_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masks: dict[int, set[int]] = {}

    def pin(pid: int, cpus: set[int]) -> None:
        if 7 in cpus:
            raise OSError(22, "Invalid argument")
        masks[threading.get_ident()] = set(cpus)

    monkeypatch.setattr(os, "sched_setaffinity", pin)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: masks[threading.get_ident()])
    with Crew(2, (3, 7)) as crew:
        assert crew.refused == (7,)
        assert not crew.pinned


@needs_affinity
def test_a_sandbox_that_only_pretends_to_pin_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    with Crew(1, (2,)) as crew:
        assert crew.refused == (2,)


@pytest.mark.parametrize("started", [0, 2])
def test_threads_that_may_not_start_are_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    start, calls = threading.Thread.start, 0

    def limited(thread: threading.Thread) -> None:
        nonlocal calls
        calls += 1
        if calls > started:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(MeasurementError) as caught, Crew(3):
        pytest.fail("entered without its threads")
    assert str(caught.value).startswith(
        f"the system refused thread {started + 1} of 3 (can't start new thread); raise the limit"
    )
    assert "\n" not in str(caught.value)
    assert crew_threads() == []


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
