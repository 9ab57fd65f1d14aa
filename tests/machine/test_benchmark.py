"""The whole measurement on a fake machine, whose kernels take the time that is written there."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roofline.core.schema import from_data, to_data
from roofline.errors import MeasurementError
from roofline.machine.hardware import (
    Duration,
    Effort,
    HardwareProfile,
    Overhead,
    profile_to_toml,
    read_profile,
)
from roofline.machine.measuring import benchmark
from roofline.machine.measuring.estimation import TIME_BUDGETS, Burst, Finding, Series
from tests import builders
from tests.machine.fake_machine import (
    BYTE_PER_S,
    HOST,
    QUIET,
    FakeMachine,
    few_kernels,
    measure,
    measured,
)


def no_worker() -> bool:
    return not [each for each in threading.enumerate() if each.name.startswith("roofline-")]


def test_a_fake_machine_is_measured_as_it_is() -> None:
    profile, _ = measured()
    found = {
        (c.dtype.name, c.unit, c.kernel, c.threads): (c.peak_flop_per_s, c.sustained_flop_per_s)
        for c in profile.compute
    }
    # Multiply-adds of 2 types on 3 units, int32 on 3, int8 on 2 that know bytes; two teams each.
    assert len(found) == 2 * (2 * 3 + 3 + 2)
    for key, expected in {
        ("float32", "avx2", "fma", 1): 96e9,  # 3 GHz x 2 instructions x 8 lanes x 2
        ("float32", "avx2", "fma", 2): 192e9,
        ("float64", "avx2", "fma", 1): 48e9,
        ("float32", "sse", "fma", 1): 48e9,
        ("float64", "scalar", "fma", 1): 12e9,
        ("int32", "avx2", "mul-add", 2): 96e9,  # two instructions for what an FMA does in one
        ("int8", "avx2", "dot", 1): 128e9,  # three instructions for 32 products and sums
    }.items():
        assert found[key] == pytest.approx((expected, expected), rel=1e-3)

    assert [(level.name, level.scope, level.capacity_bytes) for level in profile.memory] == [
        ("L1", "private", 32 << 10),
        ("L2", "shared", 2 << 20),
        ("DRAM", "shared", None),
    ]
    for level in profile.memory:
        kernels = {"read", "write", "copy", "triad", "update", "write-nt", "copy-nt", "triad-nt"}
        assert {(b.kernel, b.threads) for b in level.bandwidth} == {
            (kernel, threads) for kernel in kernels for threads in (1, 2)
        }
        for bandwidth in level.bandwidth:
            expected = BYTE_PER_S[level.name] * bandwidth.threads
            assert bandwidth.sustained_bytes_per_s == pytest.approx(expected, rel=1e-3)
            assert bandwidth.spread == pytest.approx(0, abs=1e-3)
    latencies = [level.latency.median_s for level in profile.memory if level.latency]
    assert latencies[:2] == pytest.approx([1e-9, 4e-9], rel=0.1)
    # The curve ends at four times the last cache, which then serves a quarter of the loads.
    assert 4e-9 < latencies[2] < 80e-9

    assert profile.clock is not None
    assert (profile.clock.peak_hz, profile.clock.median_hz) == pytest.approx((3e9, 3e9), rel=1e-3)
    assert profile.links == ()
    (hop,) = profile.overheads
    assert (hop.name, hop.threads) == ("core-to-core latency", 2)
    assert hop.time.median_s == pytest.approx(50e-9, rel=1e-3)
    assert profile.latency_curve is not None
    assert profile.latency_curve.latency_s[0] == pytest.approx(1e-9, rel=1e-3)
    assert [(curve.kernel, curve.threads) for curve in profile.bandwidth_curves] == [
        ("read", 1),
        ("read", 2),
    ]
    assert profile.bandwidth_curves[1].bytes_per_s[0] == pytest.approx(800e9, rel=1e-3)


def test_the_profile_keeps_to_its_budget_and_says_what_it_is(machine: FakeMachine) -> None:
    begin = machine.clock()
    profile, _ = measure(machine, budget_s=3.0)
    assert machine.clock() - begin < 3.3
    assert profile.name == "fake-9000-2cpu"
    assert profile.threads == 2
    assert profile.host == HOST
    assert profile.effort == "default"
    assert profile.conditions == ()
    assert {each.source for each in profile.provenances()} == {"measured"}
    for each in profile.compute:
        assert "95th percentile" in each.provenance.reference
        assert "bursts" in each.provenance.note
        assert each.provenance.tool_version
    said = profile.memory[0].bandwidth[0].provenance.reference
    assert "16 KiB per thread in L1 of 32 KiB (reported by the operating system, conf" in said


def test_the_profile_survives_its_file(tmp_path: Path) -> None:
    profile, _ = measured()
    assert from_data(HardwareProfile, to_data(profile), file="x") == profile
    file = tmp_path / "host.toml"
    file.write_text(profile_to_toml(profile), encoding="utf-8")
    assert read_profile(file) == profile


def test_progress_and_rates_are_told(machine: FakeMachine) -> None:
    seen: list[tuple[float, str]] = []
    found: list[Finding] = []
    profile, _ = measure(
        machine,
        budget_s=2.0,
        progress=lambda done, what: seen.append((done, what)),
        found=found.append,
    )
    done = [each for each, _ in seen]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0.0, 1.0)
    assert {what for _, what in seen} >= {
        "compiling fma float32 avx2",
        "testing compiled kernels",
        "latency of random loads over the working set",
        "read bandwidth over the working set, 2 threads",
        "calibrating fma float32 avx2, 1 thread",
        "L2 triad avx, 2 threads",
    }
    last = {(each.what, each.threads, each.quantity): each.per_s for each in found}
    assert last["float32 avx2 fma", 2, "flop"] == pytest.approx(192e9, rel=1e-3)
    assert last["L2 triad", 1, "byte"] == pytest.approx(80e9, rel=1e-3)
    assert {each.quantity for each in found} == {"flop", "byte"}
    # Each is told more than once, the first time long before the end.
    assert len(found) > 2 * len(last)
    assert {(c.label, c.threads, "flop") for c in profile.compute} <= set(last)


@pytest.mark.parametrize("when", ["compiling", "latency", "calibrating", "DRAM triad", "done"])
def test_an_interrupt_at_any_time_leaves_no_thread(machine: FakeMachine, when: str) -> None:
    def interrupt(done: float, what: str) -> None:
        if what.startswith(when):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(machine, progress=interrupt)
    assert no_worker()


# --- what was noticed ----------------------------------------------------------------------------


def test_contention_is_told_and_every_figure_is_in_doubt(machine: FakeMachine) -> None:
    machine.busy = 0.5
    profile, _ = measure(machine)
    contention, useless = profile.conditions
    assert "less than 95 % of the time" in contention
    assert useless.startswith(
        "too low, all bursts disturbed by other processes: clock, 1 thread, fma"
    )
    for each in (*profile.compute, *(b for level in profile.memory for b in level.bandwidth)):
        assert each.doubt == "all bursts disturbed by other processes"


def test_what_happened_on_the_host_meanwhile_is_told(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dataclasses.replace(QUIET, load=3.0, busy_s=0.0, watched=2)
    after = dataclasses.replace(
        before, steal_s=1.0, throttled=7, throttled_s=0.5, busy_s=2.0, own_s=0.4
    )
    readings = iter((before, after))
    monkeypatch.setattr(benchmark, "read_activity", lambda **_: next(readings))
    profile, _ = measure(machine)
    steal, quota, competitors, load = profile.conditions
    assert steal.startswith("steal: other guests used 1.00 s of CPU time in ")
    assert quota.startswith("quota: the container's CPU quota throttled 7 scheduler periods (0.50")
    assert competitors.startswith("contention: other processes used ")
    assert load.startswith("load: 3.0 tasks were running on 2 CPUs")


# --- how long it takes ---------------------------------------------------------------------------


@pytest.mark.parametrize("effort", ["quick", "default", "thorough"])
def test_an_effort_is_what_its_program_says(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, effort: Effort
) -> None:
    asked: list[float] = []

    def imported() -> Any:
        asked.append(0.0)
        return SimpleNamespace(measure_library=library)

    def library(budget_s: float, **_: object) -> Any:
        asked.append(budget_s)
        return benchmark.MeasuredFigures()

    monkeypatch.setattr(benchmark, "_import_library", imported)
    monkeypatch.setitem(
        TIME_BUDGETS, effort, dataclasses.replace(TIME_BUDGETS[effort], continuous_s=0.0)
    )
    begin = machine.clock()
    profile, _ = measure(machine, effort=effort, budget_s=4.0, include_library=True)
    taken_s = machine.clock() - begin
    assert profile.effort == effort
    if effort == "quick":
        assert asked == [], "torch must not even be imported"
        assert not any("second variant" in kernel.label for kernel in machine.compiled)
        assert 3.0 < taken_s < 4.3
    else:
        assert asked[0] == 0.0, "torch is imported while kernels are compiled"
        # A quarter of a budget that is small, and what the kernels left of theirs.
        assert 1.0 <= asked[1] < 2.0
        assert any("second variant" in kernel.label for kernel in machine.compiled)
        assert 2.0 < taken_s < 3.3


def test_a_quick_measurement_takes_three_seconds_without_torch(machine: FakeMachine) -> None:
    begin = machine.clock()
    profile, _ = benchmark.measure_hardware(effort="quick", clock=machine.clock)
    assert machine.clock() - begin < 3.0
    assert {c.kind for c in profile.compute} == {"hardware"}
    # One form of each kernel, so none can disagree with another.
    assert not any(c.doubt for c in profile.compute)
    assert {each.name for each in profile.memory} == {"L1", "L2", "DRAM"}


def test_a_thorough_measurement_runs_every_kernel_a_second_on_end(machine: FakeMachine) -> None:
    """A kernel slows down by a fifth once it ran a quarter of a second without a pause."""
    few_kernels(machine)
    seen: list[tuple[float, str, float]] = []
    hot_from_s = 0.0

    def slowness(kernel: Any, now_s: float) -> float:
        return 1.25 if kernel.label == "fma float32 sse" and now_s > hot_from_s > 0 else 1.0

    def progress(done: float, what: str) -> None:
        nonlocal hot_from_s
        seen.append((done, what, machine.clock()))
        if what.startswith("fma float32 sse") and what.endswith("continuous"):
            hot_from_s = machine.clock() + 0.25

    machine.slowness = slowness
    profile, series = measure(
        machine, effort="thorough", budget_s=3.0, threads=1, progress=progress
    )
    assert profile.threads == 1
    assert {c.threads for c in profile.compute} == {1}
    assert [curve.threads for curve in profile.bandwidth_curves] == [1]
    done = [each for each, _, _ in seen]
    assert done == sorted(done)
    assert done[-1] == 1.0
    begins = [(what, begin) for _, what, begin in seen if what.endswith(", continuous")]
    # Every figure, those of mixes that are not higher too, and the clock.
    assert len(begins) == 11 + 8 * 3 + 1
    times = [*(begin for _, begin in begins), seen[-1][2]]
    assert all(end - begin >= 1.0 for begin, end in itertools.pairwise(times))
    on_end = [each.label for each in series if each.label.endswith(", continuous")]
    assert on_end == [what for what, _ in begins]
    # Heat is told and enters what is sustained.
    (heat,) = (each for each in profile.conditions if each.startswith("heat"))
    assert heat.startswith("heat: slower in continuous runs of 1 s: fma float32 sse, 1 thread")
    assert heat.endswith("by 20.0 %")
    ceiling = next(c for c in profile.compute if c.label == "float32 sse fma")
    assert ceiling.sustained_flop_per_s == pytest.approx(48e9 / 1.25, rel=1e-3)
    assert ceiling.peak_flop_per_s == pytest.approx(48e9, rel=1e-3)


def test_drift_is_told_of_what_drifted(machine: FakeMachine) -> None:
    """Everything slows down by a tenth, little by little."""
    begin = machine.clock()
    machine.slowness = lambda kernel, now_s: 1 + 0.2 * (now_s - begin) / 5
    profile, _ = measure(machine, budget_s=5.0)
    (slower,) = (each for each in profile.conditions if "slowed down" in each)
    assert slower.startswith("kernels that slowed down")
    # The clock, and two forms of 17 kernels.
    assert "35 of 35 in compute on 1 thread" in slower
    assert "10 of 10 in L2 on 2 threads" in slower


# --- torch ---------------------------------------------------------------------------------------


@pytest.fixture
def fake_library(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands for `roofline.machine.library`; holds what it was asked for."""
    asked: dict[str, Any] = {}

    def found(*, threads: int, **options: Any) -> benchmark.MeasuredFigures:
        asked.update(options, threads=threads)
        options["progress"](0.5, "torch: float32 gemm")
        (copy,) = builders.level("L2", None, {"copy": {threads: 2e10}}).bandwidth
        product = builders.ceiling(2e9, kernel="gemm", unit="torch", threads=threads)
        time = Duration(fast_s=1e-6, median_s=2e-6, provenance=builders.SOURCE)
        burst = Burst(wall_s=1e-3, cpu_s=1e-3, busy=1.0)
        return benchmark.MeasuredFigures(
            compute=(dataclasses.replace(product, kind="library"),),
            bandwidth={"L2": (dataclasses.replace(copy, kind="library"),)},
            overheads=(Overhead(name="dispatch of add", threads=1, time=time),),
            conditions=("float16 products were left out",),
            series=(
                Series(label="float32 gemm, 2 threads", quantity="flop", work=1e6, bursts=(burst,)),
            ),
        )

    fake = SimpleNamespace(measure_library=found)
    monkeypatch.setitem(sys.modules, "roofline.machine.library", cast(Any, fake))
    monkeypatch.setattr("roofline.machine.library", fake, raising=False)
    return asked


def test_library_ceilings_stand_beside_the_hardware(
    machine: FakeMachine, fake_library: dict[str, Any]
) -> None:
    seen: list[tuple[float, str]] = []
    profile, series = measure(
        machine,
        include_library=True,
        budget_s=2.0,
        progress=lambda done, what: seen.append((done, what)),
    )
    assert {c.kind for c in profile.compute} == {"hardware", "library"}
    assert "dispatch of add" in {each.name for each in profile.overheads}
    assert "float16 products were left out" in profile.conditions
    by_level = {
        level.name: [b.kernel for b in level.bandwidth if b.kind == "library"]
        for level in profile.memory
    }
    assert by_level == {"L1": [], "L2": ["copy"], "DRAM": []}
    assert (series[-1].label, series[-1].work) == ("float32 gemm, 2 threads", 1e6)
    # It goes over the same working sets, in the time that is left for it.
    assert {(each.level, each.threads) for each in fake_library["working_sets"]} == {
        (level, threads) for level in ("L1", "L2", "DRAM") for threads in (1, 2)
    }
    assert 0.5 <= fake_library["budget_s"] < 1.0
    assert fake_library["threads"] == 2
    done = [each for each, _ in seen]
    assert done == sorted(done)
    (at,) = [done for done, what in seen if what == "torch: float32 gemm"]
    assert 0.5 < at < 1.0


@pytest.mark.parametrize("reason", ["llvmlite", "win32"])
def test_without_kernels_only_the_library_is_measured(
    machine: FakeMachine,
    fake_library: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    if reason == "llvmlite":
        monkeypatch.setattr(benchmark.compiler, "is_available", lambda: False)
    else:
        monkeypatch.setattr(benchmark.sys, "platform", reason)
    profile, _ = measure(machine, include_library=True)
    assert {c.kind for c in profile.compute} == {"library"}
    assert profile.memory == ()
    assert fake_library["working_sets"] == ()
    said = [each for each in profile.conditions if each.startswith("no hardware ceilings")]
    assert len(said) == 1
    assert said[0].startswith("no hardware ceilings: ")
    assert reason in said[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "nothing could be measured; no hardware ceilings"),
        ({"include_library": True}, r"llvmlite.*; no library ceilings: cannot import torch"),
        (
            {"include_library": True, "effort": "quick"},
            r"; use the default effort for library ceilings$",
        ),
    ],
)
def test_why_nothing_could_be_measured_is_said(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(benchmark.compiler, "is_available", lambda: False)
    monkeypatch.delattr("roofline.machine.library", raising=False)
    monkeypatch.setitem(sys.modules, "roofline.machine.library", cast(Any, None))
    with pytest.raises(MeasurementError, match=why):
        measure(machine, **options)


class Leaving:
    """Ends the process where a module is looked for; stands for a torch that does."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "roofline.machine.library":
            raise SystemExit("no licence")


@pytest.mark.parametrize("how", ["absent", "ends the process"])
def test_without_torch_the_hardware_is_measured(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.delattr("roofline.machine.library", raising=False)
    if how == "absent":
        monkeypatch.setitem(sys.modules, "roofline.machine.library", cast(Any, None))
    else:
        monkeypatch.delitem(sys.modules, "roofline.machine.library", raising=False)
        monkeypatch.setattr(sys, "meta_path", [Leaving(), *sys.meta_path])
    profile, _ = measure(machine, include_library=True)
    assert {c.kind for c in profile.compute} == {"hardware"}
    (condition,) = profile.conditions
    assert condition.startswith("no library ceilings: cannot import torch")
    assert how == "absent" or condition.endswith("(no licence)")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763-2cpu"),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "intel-xeon-e5-2680-v4-2cpu"),
        ("Apple M2 Pro", "apple-m2-pro-2cpu"),
        ("***", "x86_64-2cpu"),
        ("unknown CPU", "unknown-2cpu"),
    ],
)
def test_profile_names(model: str, name: str) -> None:
    assert benchmark.profile_name(dataclasses.replace(HOST, cpu_model=model)) == name


# --- this machine --------------------------------------------------------------------------------


@pytest.mark.hardware
def test_this_machine_is_measured() -> None:
    profile, series = benchmark.measure_hardware(effort="quick")
    assert profile.effort == "quick"
    assert profile.compute
    assert profile.memory[-1].name == "DRAM"
    assert profile.clock is not None
    assert from_data(HardwareProfile, to_data(profile), file="x") == profile
    for ceiling in profile.compute:
        assert ceiling.kind == "hardware"
        assert ceiling.peak_flop_per_s >= ceiling.sustained_flop_per_s > 0
    capacities = [level.capacity_bytes for level in profile.memory if level.capacity_bytes]
    assert capacities == sorted(capacities)
    assert {each.quantity for each in series} == {"cycle", "flop", "byte", "load"}
    assert all(each.work > 0 and each.bursts for each in series)


@pytest.mark.hardware
def test_a_real_interrupt_ends_the_measurement() -> None:
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(done: float, what: str) -> None:
        # From another thread, while kernels run.
        if done > 0.3 and not sent:
            sent.append(
                threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)),
            )
            sent[0].start()

    sent: list[threading.Timer] = []
    begin_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        benchmark.measure_hardware(effort="quick", progress=interrupt)
    assert time.monotonic() > begin_s
    sent[0].join()
    assert no_worker()
    assert signal.getsignal(signal.SIGINT) is handler
    if before is not None:
        assert os.sched_getaffinity(0) == before
