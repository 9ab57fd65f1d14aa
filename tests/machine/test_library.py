"""Library ceilings: torch's operators against a clock that moves by a step whenever it is read."""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from roofline.core.progress import silent  # noqa: E402
from roofline.machine.hierarchy.working_sets import WorkingSet  # noqa: E402
from roofline.machine.library import measure_library  # noqa: E402
from roofline.machine.library.jobs import Arithmetic  # noqa: E402
from roofline.machine.library.measurement import (  # noqa: E402
    Arena,
    arithmetic_subjects,
    dispatch_subjects,
    stream_subjects,
)
from roofline.machine.measuring.estimation import MeasuredFigures, Series  # noqa: E402

STEP_S = 1e-3


class Clock:
    def __init__(self, step_s: float = STEP_S) -> None:
        self.now = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


def a_set(level: str, byte: int, threads: int = 1) -> WorkingSet:
    return WorkingSet(
        level=level, threads=threads, bytes_per_thread=byte, capacity_bytes=None, scope="shared"
    )


def measured(threads: int, *sets: WorkingSet, progress: Any = silent) -> MeasuredFigures:
    return measure_library(
        threads=threads,
        budget_s=1.0,
        clock=Clock(),
        progress=lambda done, what: progress(done),
        working_sets=sets,
        thread_clock=Clock(),
        cpu_clock=Clock(2 * STEP_S),
    )


@pytest.fixture(scope="module")
def found() -> MeasuredFigures:
    """On one thread and on two, over working sets of both and of seven."""
    sets = (a_set("L1", 1 << 12), a_set("L3", 3 << 18), a_set("DRAM", 3 << 18, 2))
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    seen: list[float] = []
    found = measured(2, *sets, a_set("L3", 3 << 18, threads=7), progress=seen.append)
    assert torch.get_num_threads() == threads
    assert torch.equal(random, torch.get_rng_state()), "no random number is used"
    assert all(0 <= done <= 1 for done in seen)
    return found


def test_ceilings_follow_from_flop_and_clock(found: MeasuredFigures) -> None:
    rates = {(c.kernel, c.dtype.name, c.threads): c.sustained_flop_per_s for c in found.compute}
    kinds = [
        *(("gemm", name) for name in ("float32", "bfloat16", "float64", "float16", "int8")),
        *(
            (kernel, name)
            for kernel in ("conv", "conv-channels-last")
            for name in ("float32", "bfloat16", "float64", "float16")
        ),
    ]
    assert set(rates) == {(*kind, threads) for kind in kinds for threads in (1, 2)}
    # Every call takes one step. After 128 x 128 x 128, eight times the work is expected to take too
    # long; after 6 x 6 places of 64 channels, each of 64 x 3 x 3 taps, 14 x 14 places.
    assert rates["gemm", "int8", 1] == pytest.approx(2 * 64**3 / STEP_S)
    assert rates["conv", "float16", 2] == pytest.approx(2 * 36 * 64 * 64 * 9 / STEP_S)
    for ceiling in found.compute:
        assert (ceiling.kind, ceiling.unit, ceiling.doubt) == ("library", "torch", "")
        assert ceiling.peak_flop_per_s >= ceiling.sustained_flop_per_s
        assert ceiling.spread == pytest.approx(0, abs=1e-6)
        assert torch.__version__ in ceiling.provenance.reference
        assert "64x" in ceiling.provenance.note


def test_overheads_have_a_name_a_team_and_times(found: MeasuredFigures) -> None:
    assert [(each.name, each.threads) for each in found.overheads] == [
        ("dispatch of view", 1),
        ("dispatch of add", 1),
        ("dispatch of linear", 1),
        ("dispatch of convolution", 1),
        ("parallel region", 2),
    ]
    for each in found.overheads:
        assert each.time.fast_s == pytest.approx(each.time.median_s) == pytest.approx(STEP_S)
        assert torch.__version__ in each.time.provenance.reference


def test_figures_follow_from_work_and_wall_times_of_the_samples(found: MeasuredFigures) -> None:
    series = {each.label: each for each in found.series}
    streams = sum(map(len, found.bandwidth.values()))
    assert len(series) == len(found.compute) + len(found.overheads) + streams

    def per_s(each: Series) -> float:
        return each.work / statistics.median(burst.wall_s for burst in each.bursts)

    def team(threads: int) -> str:
        return "1 thread" if threads == 1 else f"{threads} threads"

    for ceiling in found.compute:
        each = series[f"torch {ceiling.dtype} {ceiling.kernel}, {team(ceiling.threads)}"]
        assert (each.quantity, len(each.bursts) >= 3) == ("flop", True)
        assert per_s(each) == pytest.approx(ceiling.sustained_flop_per_s, rel=1e-6)
    for bandwidth in found.bandwidth["L3"]:
        each = series[f"torch L3 {bandwidth.kernel}, 1 thread"]
        assert each.quantity == "byte"
        assert per_s(each) == pytest.approx(bandwidth.sustained_bytes_per_s, rel=1e-6)
    for overhead in found.overheads:
        each = series[f"torch {overhead.name}, {team(overhead.threads)}"]
        assert each.quantity == "call"
        assert 1 / per_s(each) == pytest.approx(overhead.time.median_s, rel=1e-6)


def test_bandwidths_are_by_level_and_name_what_they_count(found: MeasuredFigures) -> None:
    # On one thread a call takes the step, and its dispatch a fiftieth of that. On two it takes no
    # longer than 50 calls that do nothing, each of which is a fiftieth as well.
    assert set(found.bandwidth) == {"L1", "L3", "DRAM"}
    rates = {
        (level, each.kernel, each.threads): each
        for level, bandwidths in found.bandwidth.items()
        for each in bandwidths
    }
    assert set(rates) == {
        *((level, kernel, 1) for level in ("L1", "L3") for kernel in ("copy", "add")),
        *(("DRAM", kernel, 2) for kernel in ("copy", "add")),
    }
    copy = rates["L3", "copy", 1]
    assert copy.sustained_bytes_per_s == pytest.approx((3 << 18) / STEP_S)
    assert (copy.kind, copy.write_allocate) == ("library", "not counted")
    assert rates["L1", "add", 1].write_allocate == "none"
    assert "dispatch 2.0 %" in copy.provenance.note


def test_one_thread_is_measured_once() -> None:
    found = measured(1)
    assert len(found.compute) == 13
    assert {each.threads for each in found.overheads} == {1}


def test_an_interrupt_restores_torch_and_frees_memory() -> None:
    before = torch.get_num_threads()

    def interrupt(done: float, what: str) -> None:
        if "DRAM" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_library(
            threads=2,
            budget_s=1.0,
            clock=Clock(),
            progress=interrupt,
            working_sets=[a_set("DRAM", 1 << 22)],
        )
    assert torch.get_num_threads() == before
    assert not torch.is_inference_mode_enabled()
    gc.collect()
    alive = [x.numel() for x in gc.get_objects() if type(x) is torch.Tensor]
    assert 1 << 20 not in alive


def test_products_and_convolutions_compute_what_they_claim() -> None:
    for subject in arithmetic_subjects():
        try:
            result: Any = subject.candidates[0].make()()
        except RuntimeError:
            continue
        values = result.double()
        assert bool(values.isfinite().all())
        smallest = torch.finfo(torch.float16).tiny
        assert bool(((values == 0) | (values.abs() > smallest)).all())
        if subject.kernel == "gemm":
            # A product of n x n matrices: n terms of each of n x n results.
            assert subject.candidates[0].work == 2 * 64 * result.numel()
        else:
            assert subject.candidates[0].work == 2 * 64 * 9 * result.numel()
        is_int8 = subject.dtype.name == "int8"
        assert str(result.dtype) == f"torch.{'int32' if is_int8 else subject.dtype}"


@pytest.mark.parametrize("subject", list(arithmetic_subjects()), ids=lambda each: each.label)
def test_the_work_of_candidates_rises(subject: Arithmetic) -> None:
    works = [each.work for each in subject.candidates]
    assert works == sorted(set(works))


def test_a_view_reaches_the_dispatcher() -> None:
    called: list[str] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append(str(func))
            return func(*args, **(kwargs or {}))

    for subject in dispatch_subjects():
        run = subject.candidates[0].make()
        with torch.inference_mode(), Recorder():
            run()
    assert called == [
        "aten.detach.default",
        "aten.add.Tensor",
        "aten.linear.default",
        "aten.conv2d.default",
    ]


def test_streams_in_memory_go_all_the_way_round() -> None:
    # Two pieces of 16 MiB: the first calls of copy and of add touch different ones.
    working_set = a_set("DRAM", 32 << 20)
    arena = Arena([working_set])
    assert arena.byte == 32 << 20
    copy, add = stream_subjects([working_set], arena, lambda kernel: 0.0)
    assert copy.candidates[0].work == 16 << 20
    memory = arena._memory
    places: list[int] = []
    for subject in (copy, add, copy):
        memory.fill_(1.0)
        memory[: memory.numel() // 4] = 2.0  # The first stream of a copy in the first piece.
        result: Any = subject.candidates[0].make()()
        places.append(result.storage_offset() * 4 // (16 << 20))
    assert places == [0, 1, 0]
    sums: Any = add.candidates[0].make()()
    assert bool((sums == 2.0).all())


@pytest.mark.hardware
def test_this_host_has_every_part() -> None:
    found = measure_library(
        threads=2,
        budget_s=0.6,
        clock=time.perf_counter,
        progress=silent,
        working_sets=[a_set("DRAM", 64 << 20), a_set("L1", 24 << 10)],
    )
    assert {each.threads for each in found.compute} == {1, 2}
    assert {"float32", "float64"} <= {each.dtype.name for each in found.compute}
    assert set(found.bandwidth) == {"DRAM"}
    assert any("L1 on 1 thread" in each for each in found.conditions)
    assert len(found.overheads) == 5
