"""The timing harness on this host: what it runs, in which order, and when it stops."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from roofline.machine.hierarchy.working_sets import WorkingSet
from roofline.machine.kernels import assembly, compiler, stream
from roofline.machine.kernels.compiler import TIMES, Plan, clocks
from roofline.machine.measuring import trials
from roofline.machine.measuring.pinned_threads import PinnedThreads, allocate, fill
from roofline.machine.measuring.trials import (
    Cursor,
    Trial,
    stream_state,
    stream_trial,
)
from roofline.machine.system.host import describe_host

pytest.importorskip("llvmlite.binding")

HOST = describe_host()
UNIT = assembly.stream_unit(HOST.architecture, HOST.instruction_sets)
LENGTH = 4096

if UNIT is None:
    pytest.skip("no vector unit that is known", allow_module_level=True)


def kernel_named(name: str) -> stream.StreamKernel:
    assert UNIT is not None
    (kernel,) = [k for k in stream.stream_kernels(UNIT) if k.name == name]
    return kernel


def writing_plan(
    workers: PinnedThreads, state: np.ndarray, times: np.ndarray, **options: int
) -> Plan:
    address, wall_clock, cpu_clock = clocks()
    fields = {
        "threads": 1,
        "bursts": len(times),
        "passes": 1,
        "length": LENGTH,
        "first": 0,
        "period": 4 * LENGTH,
        "limit_ns": 10**12,
        **options,
    }
    return Plan(
        state=state.ctypes.data,
        team=workers.team_address,
        clock_gettime=address,
        wall_clock=wall_clock,
        cpu_clock=cpu_clock,
        times=times.ctypes.data,
        **fields,
    )


@pytest.mark.parametrize(
    ("first", "bursts", "written"),
    [(0, 1, {0}), (1, 2, {1, 2}), (2, 3, {2, 3, 0}), (0, 9, {0, 1, 2, 3})],
)
def test_each_burst_takes_the_next_slice_and_then_the_first(
    first: int, bursts: int, written: set[int]
) -> None:
    compiled = compiler.compile_kernel(kernel_named("write"))
    target = allocate(5 * LENGTH)
    fill(target, lambda: False)
    state = stream_state((target.ctypes.data,), 0.5)
    times = np.zeros((bursts, TIMES), dtype=np.int64)
    with PinnedThreads(1) as workers:
        plan = writing_plan(workers, state, times, first=first * LENGTH)
        assert workers.each(lambda i: compiled.bench(plan)) == [bursts]
    slices = target.view(np.float32).reshape(5, -1)
    assert {i for i in range(5) if (slices[i] == 0.5).all()} == written
    wall_start, wall_end, cpu_start, cpu_end = times.T
    assert (wall_end >= wall_start).all()
    assert (cpu_end >= cpu_start).all()
    assert (wall_start[1:] >= wall_end[:-1]).all()


def test_a_harness_stops_when_told_and_when_its_time_is_over() -> None:
    compiled = compiler.compile_kernel(kernel_named("write"))
    target = allocate(4 * LENGTH)
    state = stream_state((target.ctypes.data,), 0.5)
    times = np.zeros((1000, TIMES), dtype=np.int64)
    with PinnedThreads(1) as workers:
        assert compiled.bench(writing_plan(workers, state, times, limit_ns=-1)) == 1
        assert workers.stopped
        assert compiled.bench(writing_plan(workers, state, times)) == 0


def test_a_thread_whose_team_never_comes_gives_up() -> None:
    compiled = compiler.compile_kernel(kernel_named("write"))
    target = allocate(4 * LENGTH)
    state = stream_state((target.ctypes.data,), 0.5)
    times = np.zeros((10, TIMES), dtype=np.int64)
    with PinnedThreads(1) as workers:
        plan = writing_plan(workers, state, times, threads=2, limit_ns=1_000_000)
        assert compiled.bench(plan) == 0
        assert workers.stopped


def test_no_thread_begins_a_burst_before_all_have_ended_the_last() -> None:
    compiled = compiler.compile_kernel(kernel_named("write"))
    targets = [allocate(4 * LENGTH) for _ in range(2)]
    states = [stream_state((target.ctypes.data,), 0.5) for target in targets]
    times = np.zeros((2, 50, TIMES), dtype=np.int64)
    with PinnedThreads(2) as workers:
        plans = [
            writing_plan(workers, states[i], times[i], threads=2, passes=10 * (i + 1))
            for i in (0, 1)
        ]
        done = workers.each(lambda i: compiled.bench(plans[i]))
    assert done == [50, 50]
    starts, ends = times[:, :, 0], times[:, :, 1]
    assert (starts.min(axis=0)[1:] >= ends.max(axis=0)[:-1]).all()


def trial_at(level: str, kernel_name: str, byte: int) -> Trial:
    kernel = kernel_named(kernel_name)
    buffers = [allocate(byte + (1 << 16)) for _ in range(2)]
    for buffer in buffers:
        fill(buffer, lambda: False)
    working_set = WorkingSet(
        level=level, threads=2, bytes_per_thread=byte, capacity_bytes=None, scope="shared"
    )
    return stream_trial(compiler.compile_kernel(kernel), working_set, buffers)


def test_a_trial_in_a_cache_passes_over_the_same_data(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where others have the cores, bursts of a team take longer than a call may.
    monkeypatch.setattr(trials, "CALL_LIMIT_S", 60.0)
    trial = trial_at("L1", "triad", 24 << 10)
    with PinnedThreads(2) as workers:
        trial.repeats = 7
        assert len(trial.run(workers, 5)) == 5
    # Three streams of 8 KiB, each byte of them loaded or stored once a pass, on two threads.
    assert trial.work_per_burst == 7 * (24 << 10) * 2
    assert trial.most_bursts is None
    assert trial.label.startswith("L1 triad ")
    assert trial.label.endswith(", 2 threads")


def test_a_trial_in_memory_moves_on() -> None:
    trial = trial_at("DRAM", "read", 8 << 20)
    with PinnedThreads(2) as workers:
        trial.repeats = 16
        # Eight slices of 1 MiB: a call that comes upon none twice has seven bursts and a first one.
        assert trial.most_bursts == 7
        assert trial.work_per_burst == 2 << 20
        trial.run(workers, 2)
        assert trial.cursor.fraction == pytest.approx(3 / 8)
        trial.run(workers, 6)
        assert trial.cursor.fraction == pytest.approx(2 / 8)


def test_trials_that_share_their_memory_go_on_where_the_last_one_stopped() -> None:
    """`write` begins where `read` left off; which slices it wrote shows in the memory."""
    byte = 8 << 20
    buffer = allocate(byte + (1 << 16))
    buffer[:] = 1
    working_set = WorkingSet(
        level="DRAM", threads=1, bytes_per_thread=byte, capacity_bytes=None, scope="shared"
    )
    cursor = Cursor()
    reads, writes = (
        stream_trial(compiler.compile_kernel(kernel), working_set, [buffer], cursor)
        for kernel in map(kernel_named, ("read", "write"))
    )
    with PinnedThreads(1) as workers:
        for trial in (reads, writes):
            trial.repeats = 16
            # The first burst is not counted, so that three slices are gone over.
            trial.run(workers, 2)
    slices = buffer[:byte].reshape(8, -1)
    assert [i for i in range(8) if (slices[i] != 1).all()] == [3, 4, 5]
    assert cursor.fraction == pytest.approx(6 / 8)


def test_calibration_ends_with_usable_bursts() -> None:
    trial = trial_at("DRAM", "update", 8 << 20)
    with PinnedThreads(2) as workers:
        trial.calibrate(workers)
        bursts = trial.run(workers, 3)
    assert 1 <= trial.repeats <= 8 << 4
    assert trial.burst_s > 0
    assert all(burst.wall_s > 0 for burst in bursts)


def test_streams_stay_finite_however_they_feed_each_other() -> None:
    buffer = allocate(1 << 16)
    fill(buffer, lambda: False)
    working_set = WorkingSet(
        level="L1", threads=1, bytes_per_thread=1 << 14, capacity_bytes=None, scope="private"
    )
    trials = [
        stream_trial(compiler.compile_kernel(kernel), working_set, [buffer])
        for kernel in map(kernel_named, ("triad", "update", "copy"))
    ]
    with PinnedThreads(1) as workers:
        for _ in range(200):
            for trial in trials:
                trial.run(workers, 2)
    assert np.isfinite(buffer.view(np.float32)).all()
    assert float(np.abs(buffer.view(np.float32)).max()) < 100


def test_clocks_are_those_of_this_system() -> None:
    address, wall_clock, cpu_clock = clocks()
    assert address
    assert wall_clock != cpu_clock
    assert ctypes.sizeof(Plan) == 13 * 8
