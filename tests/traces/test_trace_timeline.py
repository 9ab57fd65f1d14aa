"""The timeline of a step, against hand-made traces and a count of every microsecond."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.traces.linking import Nesting, link
from roofline.traces.reading import read_events
from roofline.traces.timeline import StepTimes, Timeline, steps_of, timeline, union

from .events import Events, product_step

_US = 1e-6


def of(events: Events, tmp_path: Path) -> list[Timeline]:
    nesting = Nesting(read_events(events.save(tmp_path / "t.json")))
    links = link(nesting)
    return [timeline(nesting, links, step) for step in steps_of(nesting, links)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_union_covers_each_microsecond_once(pairs: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in pairs], float)
    ends = np.array([start + length for start, length in pairs], float)
    covered = {time for start, length in pairs for time in range(start, start + length)}
    one, other = union(starts, ends)
    assert (other - one).sum() == len(covered)
    assert all(one[1:] > other[:-1])


def test_busy_idle_and_waiting_for_the_host(tmp_path: Path) -> None:
    events = Events()
    events.add("user_annotation", "ProfilerStep#3", 0, 100)
    product_step(events, 0)  # launched at 2, runs from 10 to 15
    product_step(events, 30)  # launched at 32, runs from 40 to 45
    (found,) = of(events, tmp_path)
    times = found.times
    assert times.name == "step 3"
    assert times.time_s == pytest.approx(100 * _US)
    assert times.busy_s == pytest.approx(10 * _US)
    assert times.idle_s == pytest.approx(90 * _US)
    # Until the launch at 2; from 15, when the device had nothing left, until that at 32; from 45.
    assert times.host_bound_s == pytest.approx((2 + 17 + 55) * _US)
    assert [(each.time_s, each.before, each.after) for each in found.gaps] == [
        (pytest.approx(55 * _US), "aten::mm", "end of the step"),
        (pytest.approx(25 * _US), "aten::mm", "aten::mm"),
        (pytest.approx(10 * _US), "start of the step", "aten::mm"),
    ]


def test_streams_and_communication_overlap(tmp_path: Path) -> None:
    events = Events()
    events.kernel("gemm", 0, 10, correlation=events.launch(0))
    events.kernel(
        "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        4,
        16,
        stream=20,
        correlation=events.launch(1),
        **{
            "Collective name": "allreduce",
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "Group size": 8,
            "dtype": "Half",
        },
    )
    (found,) = of(events, tmp_path)
    times: StepTimes = found.times
    assert times.busy_s == pytest.approx(20 * _US)
    assert times.overlap_s == pytest.approx(6 * _US)
    assert times.communication_s == pytest.approx(16 * _US)
    assert times.exposed_communication_s == pytest.approx(10 * _US)
    (collective,) = found.collectives
    assert collective.bytes == 2000
    # Every rank sends and receives 2 · 7/8 of the message over its link.
    assert collective.bus_bytes_per_s == pytest.approx(2000 * 1.75 / 16e-6)


def test_copies_have_bytes_and_unknown_ones_stay_unknown(tmp_path: Path) -> None:
    events = Events()
    for start, byte in ((0, 100), (10, 200)):
        events.add("gpu_memcpy", "Memcpy HtoD", start, 4, device=0, stream=7, bytes=byte)
    events.add("gpu_memset", "Memset (Device)", 20, 1, device=0, stream=7)
    (found,) = of(events, tmp_path)
    assert [(each.kind, each.calls, each.bytes) for each in found.copies] == [
        ("Memcpy HtoD", 2, 300),
        ("Memset (Device)", 1, None),
    ]
    assert found.times.copy_s == pytest.approx(9 * _US)


def test_kernels_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    events = Events()
    events.add("user_annotation", "ProfilerStep#1", 0, 50)
    events.add("user_annotation", "ProfilerStep#2", 50, 50)
    # Launched before the trace began, and while it ran.
    events.kernel("before", 5, 3, correlation=7)
    product_step(events, 10, wait=45)  # runs from 55, in the time of the second step
    product_step(events, 60)
    first, second = of(events, tmp_path)
    assert (first.times.launches, second.times.launches) == (1, 1)
    assert first.times.time_s == pytest.approx(60 * _US)
    # Its own kernel, and that of the first step, which runs from 55 to 60.
    assert second.times.busy_s == pytest.approx(10 * _US)
    # What was launched before the trace began keeps the device busy, too.
    assert first.times.busy_s == pytest.approx(8 * _US)


def test_of_several_devices_the_busiest_counts(tmp_path: Path) -> None:
    events = Events()
    product_step(events, 0)
    product_step(events, 20)
    events.add("kernel", "other", 0, 90, tid=9, device=1, stream=9)
    (found,) = of(events, tmp_path)
    assert found.times.launches == 2
    assert found.times.busy_s == pytest.approx(10 * _US)
