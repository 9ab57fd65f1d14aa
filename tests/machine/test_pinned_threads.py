"""The workers: results in order, errors passed on, no thread left behind; and its memory."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.errors import MeasurementError
from roofline.machine.measuring.pinned_threads import (
    PinnedThreads,
    allocate,
    extent_bytes,
    fill,
    huge_page_bytes,
    lay_out,
)

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="no affinity on this system"
)


def crew_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("roofline-")]


def test_results_come_in_order_from_different_threads() -> None:
    with PinnedThreads(3) as workers:
        found = workers.each(lambda i: (i, threading.current_thread().name))
        assert found == [(i, f"roofline-{i}") for i in range(3)]
        assert workers.each(lambda i: i * 10, workers=2) == [0, 10]
    assert crew_threads() == []


@needs_affinity
def test_workers_are_pinned_and_the_caller_is_not() -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)
    with PinnedThreads(1, (cpu,)) as workers:
        assert workers.each(lambda i: os.sched_getaffinity(0)) == [{cpu}]
        assert workers.pinned
        assert os.sched_getaffinity(0) == before
    assert os.sched_getaffinity(0) == before


def test_a_crew_that_cannot_be_pinned_works_and_says_so() -> None:
    with PinnedThreads(1) as unpinned:
        assert not unpinned.pinned
        assert unpinned.pinning.startswith("threads not pinned to cores")
    with PinnedThreads(1, (1 << 14,)) as refused:
        assert not refused.pinned
        assert refused.each(lambda i: i) == [0]
        assert refused.refused == (1 << 14,)


@needs_affinity
@pytest.mark.parametrize(
    ("refuses", "refused"),
    [
        ({3: PermissionError(1, "Operation not permitted"), 7: OSError(1, "No")}, (3, 7)),
        # It went offline since it was read.
        ({7: OSError(22, "Invalid argument")}, (7,)),
        # A sandbox only pretends to pin.
        ({3: None}, (3,)),
    ],
)
def test_cpus_that_are_refused_are_named(
    monkeypatch: pytest.MonkeyPatch, refuses: dict[int, OSError | None], refused: tuple[int, ...]
) -> None:
    masks: dict[int, set[int]] = {}

    def pin(pid: int, cpus: set[int]) -> None:
        (cpu,) = cpus
        if error := refuses.get(cpu):
            raise error
        masks[threading.get_ident()] = {0, 1, 2, 3} if cpu in refuses else cpus

    monkeypatch.setattr(os, "sched_setaffinity", pin)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: masks[threading.get_ident()])
    with PinnedThreads(2, (3, 7)) as workers:
        assert workers.each(lambda i: i) == [0, 1]
        assert workers.refused == refused
        assert not workers.pinned
        cpus = ", ".join(map(str, refused))
        assert f"pinned to CPU {cpus}: not permitted, or offline" in workers.pinning


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
    with pytest.raises(MeasurementError) as caught, PinnedThreads(3):
        pytest.fail("entered without its threads")
    assert str(caught.value).startswith(
        f"cannot start thread {started + 1} of 3 (can't start new thread); raise the limit"
    )
    assert "\n" not in str(caught.value)
    assert crew_threads() == []


def test_one_that_fails_releases_the_others() -> None:
    def task(i: int) -> None:
        if i == 0:
            raise ValueError("broken")
        while not workers.stopped:
            pass

    with PinnedThreads(2) as workers:
        with pytest.raises(ValueError, match="broken"):
            workers.each(task)
        assert workers.each(lambda i: i) == [0, 1]
    assert crew_threads() == []


def test_an_interrupt_stops_and_joins_everyone() -> None:
    started = threading.Event()

    def task(i: int) -> None:
        started.set()
        while not workers.stopped:
            pass

    with pytest.raises(KeyboardInterrupt), PinnedThreads(2) as workers:
        # The caller is interrupted while its workers are at work.
        workers._inboxes[1].put(lambda: task(1))
        started.wait()
        raise KeyboardInterrupt
    assert crew_threads() == []


# --- memory --------------------------------------------------------------------------------------


def test_buffers_are_aligned_and_filled_with_finite_noise() -> None:
    buffer = allocate(3_000_000)
    assert buffer.size == 3_000_000
    assert buffer.ctypes.data % (2 << 20) == 0
    fill(buffer, lambda: False)
    values = buffer.view(np.float32)
    assert np.isfinite(values).all()
    assert abs(float(values.mean())) < 0.01
    assert 0.9 < float(values.std()) < 1.1


def test_memory_that_the_system_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MeasurementError, match=r"cannot allocate 64 MiB of memory .*; raise"):
        allocate(64 << 20)


def test_filling_ends_when_told() -> None:
    buffer = allocate(4 << 20)
    answers = iter([False, True])
    fill(buffer, lambda: next(answers))
    assert buffer[:100].any()
    assert not buffer[2 << 20 :].any()


@given(
    total=st.integers(3 * 512, 1 << 24),
    streams=st.integers(1, 3),
    block=st.sampled_from([128, 512]),
)
def test_streams_do_not_overlap_and_do_not_alias(total: int, streams: int, block: int) -> None:
    layout = lay_out(total, streams, block)
    assert layout.length % block == 0
    assert total - streams * block < layout.length * streams <= total
    assert layout.starts[0] == 0
    for before, after in zip(layout.starts, layout.starts[1:], strict=False):
        assert after >= before + layout.length
        assert after % 64 == 0
    assert layout.starts[-1] + layout.length <= extent_bytes(total, 3)
    # No two streams at the same place of a 4 KiB page.
    assert len({start % 4096 for start in layout.starts}) == streams


def test_huge_pages_are_read_where_the_system_reports_them(tmp_path: Path) -> None:
    memory = allocate(8 << 20)
    start = memory.ctypes.data
    assert huge_page_bytes([memory], tmp_path) is None
    file = tmp_path / "proc/self/smaps"
    file.parent.mkdir(parents=True)
    neighbour = "7f0000-7f1000 rw-p 00000000 00:00 0\nAnonHugePages:    4096 kB\n"

    def said(huge: str) -> int | None:
        mapping = f"{start:x}-{start + (9 << 20):x} rw-p 00000000 00:00 0\n"
        file.write_text(f"{neighbour}{mapping}AnonHugePages: {huge}\n{neighbour}", encoding="utf-8")
        return huge_page_bytes([memory], tmp_path)

    assert said("6144 kB") == 6 << 20
    assert said("0 kB") == 0
    assert said("9216 kB") == 8 << 20  # what is beside the buffer in its mapping is not its own
    assert said("lots") is None
