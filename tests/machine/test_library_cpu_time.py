"""The CPU time of all threads, also where the system has no clock for each."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from roofline.machine.library import jobs


def test_threads_that_work_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for task in ("7", "8"):
        (tmp_path / task).mkdir()
    monkeypatch.setattr(jobs, "_TASKS", tmp_path)
    # Linux: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED below the complement of the thread's id.
    seconds = {-(7 + 1) * 8 + 6: 1.5, -(8 + 1) * 8 + 6: 2.25}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: seconds[clock])
    assert jobs.running_clock()() == 3.75


def test_without_proc_the_process_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jobs, "_TASKS", tmp_path / "none")
    assert jobs.running_clock() is time.process_time


def test_a_thread_that_ends_breaks_nothing() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    clock = jobs.running_clock()
    before = clock()
    done.set()
    thread.join()
    assert clock() > 0
    assert before > 0
