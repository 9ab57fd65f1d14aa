"""The whole measurement on a fake machine, whose kernels take the time that is written here."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from roofline.errors import HardwareError, InputError, MeasurementError
from roofline.foundation.schema import from_data, to_data
from roofline.machine import benchmark, ceilings, trials
from roofline.machine.activity import Activity
from roofline.machine.estimation import Estimate
from roofline.machine.hardware import HardwareProfile, Host, profile_to_toml, read_profile
from roofline.machine.kernels.compute import ComputeKernel
from roofline.machine.kernels.harness import Plan
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.library import LibraryFindings
from roofline.machine.topology import Cache, Topology

HOST = Host(
    cpu_model="Fake(R) CPU 9000 @ 3.00GHz",
    architecture="x86_64",
    operating_system="none",
    instruction_sets=("sse2", "avx", "fma", "avx2"),
    available_cpus=2,
)
TOPOLOGY = Topology(
    available_cpus=2,
    cores=(0, 1),
    hidden_siblings=0,
    quota_cpus=None,
    caches=(
        *(Cache(level=1, size_byte=32 << 10, cpus=(cpu,)) for cpu in (0, 1)),
        Cache(level=2, size_byte=2 << 20, cpus=(0, 1)),
    ),
)
QUIET = Activity(steal_s=0.0, throttled=0, load=0.0)

AVX2_FLOP_PER_S = 96e9
BYTE_PER_S = {"L1": 400e9, "L2": 80e9, "DRAM": 10e9}


class FakeMachine:
    """A clock, and kernels that move it."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.busy = 1.0
        self.calls = 0
        self.lock = threading.Lock()

    def clock(self) -> float:
        return self.now_ns * 1e-9

    def compile(self, kernel: ComputeKernel | StreamKernel) -> FakeKernel:
        return FakeKernel(self, kernel)


@dataclass
class FakeKernel:
    """Stands for a compiled kernel: writes the clock readings that the fake machine would give."""

    machine: FakeMachine
    kernel: ComputeKernel | StreamKernel

    def seconds(self, plan: Plan) -> float:
        if isinstance(self.kernel, ComputeKernel):
            lanes = max(1, self.kernel.unit.bits // self.kernel.dtype.bits)
            # Two multiply-adds of 256 bit a cycle, at 3 GHz.
            return plan.length * 48 * 2 * lanes / (AVX2_FLOP_PER_S * lanes / 8)
        touched = plan.length * plan.passes * (self.kernel.loads + self.kernel.stores)
        extent = plan.period * self.kernel.streams
        level = "L1" if extent <= 32 << 10 else "L2" if extent <= 2 << 20 else "DRAM"
        return touched / BYTE_PER_S[level]

    def bench(self, plan: Plan) -> int:
        rows = np.ctypeslib.as_array(
            ctypes.cast(plan.times, ctypes.POINTER(ctypes.c_int64)), (plan.bursts, 4)
        )
        took_ns = round(self.seconds(plan) * 1e9)
        with self.machine.lock:
            self.machine.calls += 1
            begin = self.machine.now_ns
            for b in range(plan.bursts):
                start = begin + b * took_ns
                rows[b] = (start, start + took_ns, 0, round(took_ns * self.machine.busy))
            # The threads of a team run at the same time.
            self.machine.now_ns += plan.bursts * took_ns // plan.threads
        return plan.bursts


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    fake = FakeMachine()
    monkeypatch.setattr(benchmark, "describe_host", lambda: HOST)
    monkeypatch.setattr(benchmark, "describe_topology", lambda: TOPOLOGY)
    monkeypatch.setattr(benchmark, "read_activity", lambda: QUIET)
    monkeypatch.setattr(benchmark, "available_memory_byte", lambda: 1 << 30)
    monkeypatch.setattr(benchmark.compiler, "compile_kernel", fake.compile)
    monkeypatch.setattr(benchmark.memory, "huge_page_byte", lambda: None)
    monkeypatch.setattr(trials, "team_bursts", one_after_the_other)
    return fake


def one_after_the_other(readings: list[list[list[int]]]) -> list[Any]:
    # The fake threads take their turns, so each one's burst is its own; the first stands for all.
    from roofline.machine.estimation import team_bursts

    return team_bursts(readings[:1])


def measure(machine: FakeMachine, **options: Any) -> HardwareProfile:
    options = {"include_library": False, "budget_s": 2.0, **options}
    return benchmark.measure_hardware(clock=machine.clock, **options)


def test_a_fake_machine_is_measured_as_it_is(machine: FakeMachine) -> None:
    profile = measure(machine)
    found = {
        (c.dtype.name, c.unit, c.threads): (c.peak_flop_per_s, c.sustained_flop_per_s)
        for c in profile.compute
    }
    assert len(found) == 12
    assert found["float32", "avx2", 1] == pytest.approx((96e9, 96e9), rel=1e-3)
    assert found["float32", "avx2", 2] == pytest.approx((192e9, 192e9), rel=1e-3)
    assert found["float64", "avx2", 1] == pytest.approx((48e9, 48e9), rel=1e-3)
    assert found["float32", "sse", 1] == pytest.approx((48e9, 48e9), rel=1e-3)
    assert found["float64", "scalar", 1] == pytest.approx((12e9, 12e9), rel=1e-3)

    assert [(level.name, level.scope) for level in profile.memory] == [
        ("L1", "private"),
        ("L2", "shared"),
        ("DRAM", "shared"),
    ]
    for level in profile.memory:
        names = {"read", "write", "copy", "triad", "update"}
        if level.name == "DRAM":
            names |= {"write-nt", "copy-nt", "triad-nt"}
        assert {b.kernel for b in level.bandwidth} == names
        for bandwidth in level.bandwidth:
            expected = BYTE_PER_S[level.name] * bandwidth.threads
            assert bandwidth.sustained_byte_per_s == pytest.approx(expected, rel=1e-3)
            assert bandwidth.spread == pytest.approx(0, abs=1e-3)


def test_the_profile_keeps_to_its_budget_and_says_what_it_is(machine: FakeMachine) -> None:
    begin = machine.clock()
    profile = measure(machine, budget_s=3.0)
    assert machine.clock() - begin < 3.3
    assert profile.name == "fake-9000-2cpu"
    assert profile.threads == 2
    assert profile.host == HOST
    assert profile.conditions == ()
    assert {each.source for each in profile.provenances()} == {"measured"}
    for each in profile.provenances():
        assert "95th percentile" in each.reference
        assert "bursts" in each.note
        assert each.tool_version
    said = profile.memory[0].bandwidth[0].provenance.reference
    assert said.endswith("16 KiB per thread in L1 of 32 KiB (reported by the operating system)")


def test_the_profile_survives_its_file(machine: FakeMachine, tmp_path: Path) -> None:
    profile = measure(machine)
    assert from_data(HardwareProfile, to_data(profile), file="x") == profile
    file = tmp_path / "host.toml"
    file.write_text(profile_to_toml(profile), encoding="utf-8")
    assert read_profile(file) == profile


def test_one_thread_only(machine: FakeMachine) -> None:
    profile = measure(machine, threads=1)
    assert {c.threads for c in profile.compute} == {1}
    assert {b.threads for level in profile.memory for b in level.bandwidth} == {1}


def test_progress_rises_from_nothing_to_all(machine: FakeMachine) -> None:
    seen: list[tuple[float, str]] = []
    measure(machine, progress=lambda done, what: seen.append((done, what)))
    done = [each for each, _ in seen]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0.0, 1.0)
    assert any(what == "L2 triad avx, 2 threads" for _, what in seen)


def test_contention_is_told(machine: FakeMachine) -> None:
    machine.busy = 0.5
    contention, useless = measure(machine).conditions
    assert "less than 95 % of the time" in contention
    assert useless.startswith("too low, because every burst was disturbed: fma float32 scalar")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"threads": 3}, HardwareError, "--threads 3 does not fit this host: choose 1 to 2"),
        ({"threads": 0}, HardwareError, "choose 1 to 2"),
        ({"budget_s": 0.0}, InputError, "greater than 0 s, got 0 s"),
    ],
)
def test_wrong_options(
    machine: FakeMachine, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        measure(machine, **options)
    assert machine.calls == 0


def test_too_little_memory(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "available_memory_byte", lambda: 100 << 20)
    with pytest.raises(MeasurementError, match=r"64 MiB .* of the 100 MiB available"):
        measure(machine)


def test_an_interrupt_leaves_no_thread(machine: FakeMachine) -> None:
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None

    def interrupt(done: float, what: str) -> None:
        if done > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(machine, progress=interrupt)
    assert not [t for t in threading.enumerate() if t.name.startswith("roofline-")]
    if before is not None:
        assert os.sched_getaffinity(0) == before


# --- where our own kernels cannot run ------------------------------------------------------------


@pytest.fixture
def fake_library(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.foundation.dtypes import dtype
    from roofline.machine import library
    from roofline.machine.hardware import ComputeCeiling

    def found(*, threads: int, **_: object) -> LibraryFindings:
        ceiling = ComputeCeiling(
            kind="library",
            kernel="gemm",
            dtype=dtype("float32"),
            unit="torch",
            threads=threads,
            peak_flop_per_s=2e9,
            sustained_flop_per_s=1e9,
            provenance=ceilings.provenance("fake"),
        )
        return LibraryFindings(compute=(ceiling,), overheads={"dispatch_add_s": 1e-6})

    monkeypatch.setattr(library, "measure_library", found)


@pytest.mark.usefixtures("fake_library")
def test_library_ceilings_stand_beside_the_hardware(machine: FakeMachine) -> None:
    profile = measure(machine, include_library=True)
    assert {c.kind for c in profile.compute} == {"hardware", "library"}
    assert profile.overheads == {"dispatch_add_s": 1e-6}


@pytest.mark.usefixtures("fake_library")
@pytest.mark.parametrize("reason", ["llvmlite", "win32"])
def test_without_kernels_only_the_library_is_measured(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "llvmlite":
        monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    else:
        monkeypatch.setattr(benchmark.sys, "platform", reason)
    profile = measure(machine, include_library=True)
    assert {c.kind for c in profile.compute} == {"library"}
    assert profile.memory == ()
    (condition,) = profile.conditions
    assert condition.startswith("no hardware ceilings, only those of the library")
    assert reason in condition


def test_without_kernels_and_library_nothing_can_be_measured(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(MeasurementError, match="nothing could be measured; no hardware ceilings"):
        measure(machine)


def test_without_torch_the_hardware_is_measured(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("roofline.machine.library")
    monkeypatch.setitem(sys.modules, "roofline.machine.library", None)
    profile = measure(machine, include_library=True)
    assert {c.kind for c in profile.compute} == {"hardware"}
    (condition,) = profile.conditions
    assert condition.startswith("no library ceilings: torch cannot be imported")


def rate(*, disturbed: int = 0, spread: float = 0.01) -> Estimate:
    return Estimate(
        peak=1, sustained=1, spread=spread, bursts=1000, disturbed=disturbed, only_disturbed=False
    )


def test_what_the_bursts_say_about_themselves() -> None:
    trial: Any = SimpleNamespace(faults=0, label="x", threads=2, working_set=None)
    assert ceilings.kernel_conditions([(trial, rate(disturbed=9))]) == []
    assert "in 20 of 1000 bursts" in ceilings.kernel_conditions([(trial, rate(disturbed=20))])[0]
    trial.faults = 50
    assert ceilings.kernel_conditions([(trial, rate())]) == [
        "page faults: 50 happened inside timed calls"
    ]


def test_levels_with_fast_and_slow_phases_are_named_once() -> None:
    dram: Any = SimpleNamespace(faults=0, threads=2, working_set=SimpleNamespace(level="DRAM"))
    l1: Any = SimpleNamespace(faults=0, threads=1, working_set=SimpleNamespace(level="L1"))
    found = [(dram, rate(spread=0.7)), (dram, rate(spread=0.3)), (l1, rate(spread=0.2))]
    (condition,) = ceilings.kernel_conditions(found)
    assert condition.startswith("unsteady: bursts of DRAM on 2 threads differ by more than 25 %")


def test_small_pages_are_told() -> None:
    assert ceilings.page_conditions(100 << 20, None) == []
    assert ceilings.page_conditions(100 << 20, 60 << 20) == []
    (condition,) = ceilings.page_conditions(100 << 20, 4 << 20)
    assert condition.startswith("small pages: 4 MiB of 100 MiB are in huge pages")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763-2cpu"),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "intel-xeon-e5-2680-v4-2cpu"),
        ("Apple M2 Pro", "apple-m2-pro-2cpu"),
        ("***", "x86_64-2cpu"),
    ],
)
def test_profile_names(model: str, name: str) -> None:
    host = Host(
        cpu_model=model,
        architecture="x86_64",
        operating_system="",
        instruction_sets=(),
        available_cpus=2,
    )
    assert benchmark.profile_name(host) == name


# --- this machine --------------------------------------------------------------------------------


@pytest.mark.hardware
def test_this_machine_is_measured() -> None:
    profile = benchmark.measure_hardware(budget_s=3.0, include_library=False)
    assert profile.compute
    assert profile.memory[-1].name == "DRAM"
    assert from_data(HardwareProfile, to_data(profile), file="x") == profile
    for ceiling in profile.compute:
        assert ceiling.peak_flop_per_s >= ceiling.sustained_flop_per_s > 0


@pytest.mark.hardware
def test_a_real_interrupt_ends_the_measurement() -> None:
    def interrupt() -> None:
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        benchmark.measure_hardware(include_library=False)
    assert not [t for t in threading.enumerate() if t.name.startswith("roofline-")]
