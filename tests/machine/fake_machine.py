"""A machine on paper: a clock, and kernels that take the time which is written here."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from roofline.errors import MeasurementError
from roofline.machine.hardware import Effort, HardwareProfile, Host
from roofline.machine.hierarchy import exploration
from roofline.machine.kernels import compiler
from roofline.machine.kernels.assembly import stream_unit
from roofline.machine.kernels.compiler import Plan
from roofline.machine.kernels.compute import ComputeKernel
from roofline.machine.kernels.pointer_chase import Order, PlainKernel
from roofline.machine.kernels.stream import StreamKernel, stream_kernels
from roofline.machine.measuring import benchmark, kernel_measurement, trials
from roofline.machine.measuring.estimation import TIME_BUDGETS, Estimate, Series
from roofline.machine.system.activity import Activity
from roofline.machine.system.host_state import Frequency, HostState
from roofline.machine.system.topology import Cache, Topology
from roofline.machine.theory.microarchitectures import Core
from tests.machine.simulated_caches import KIB, MIB, Simulated

Kernel = ComputeKernel | StreamKernel | PlainKernel

HOST = Host(
    cpu_model="Fake(R) CPU 9000 @ 3.00GHz",
    architecture="x86_64",
    operating_system="none",
    instruction_sets=("avx", "avx2", "fma", "sse2"),
    available_cpus=2,
)
TOPOLOGY = Topology(
    available_cpus=2,
    cores=(0, 1),
    hidden_siblings=0,
    quota_cpus=None,
    caches=(
        *(Cache(level=1, size_bytes=32 * KIB, cpus=(cpu,)) for cpu in (0, 1)),
        Cache(level=2, size_bytes=2 * MIB, cpus=(0, 1)),
    ),
    allowed_cpus=(0, 1),
    online_cpus=2,
)
FREQUENCY = Frequency(
    governors=(), driver="", limit_hz=None, most_hz=None, boost=None, hypervisor=False
)
SITUATION = HostState(
    host=HOST,
    topology=TOPOLOGY,
    frequency=FREQUENCY,
    nodes=(),
    memory_bytes=None,
    available_bytes=1 << 30,
    memory_limit_bytes=None,
    huge_pages="",
)
QUIET = Activity(steal_s=0.0, throttled=0, load=0.0)

UNIT = stream_unit("x86_64", ("avx", "fma"))
assert UNIT is not None
(READ,) = (k for k in stream_kernels(UNIT) if k.name == "read")

CLOCK_HZ = 3e9
INSTRUCTIONS_PER_CYCLE = 2
BYTE_PER_S = {"L1": 400e9, "L2": 80e9, "DRAM": 10e9}


def unchanged(kernel: Kernel, now_s: float) -> float:
    """The factor of a machine that neither slows down nor has favourites."""
    return 1.0


@dataclass(slots=True)
class FakeMachine:
    """A clock, and kernels that move it.

    Two vector instructions a cycle at 3 GHz; caches as in ``caches``, L1 private and the farther
    ones shared; ``BYTE_PER_S`` on each thread. ``mix`` is what an addition beside a multiply-add
    gains, over the rate of multiply-adds alone (0.75: nothing). A cache line takes
    ``core_to_core_latency_s`` from core to core. ``slowness`` is a factor on the time of a kernel
    at a time; ``busy`` the fraction of the time that threads have their CPUs. Kernels in ``broken``
    do not compile, those in ``deadly`` end the process that runs them, and two threads never come
    together to run those in ``never_together``. ``ran_ns`` is how long each kernel ran,
    ``compiled`` what was compiled.
    """

    host_state: HostState = SITUATION
    core: Core | None = None
    caches: Simulated = field(
        default_factory=lambda: Simulated(
            caches=((32 * KIB, 1e-9), (2 * MIB, 4e-9)), memory_s=80e-9, policy="partial"
        )
    )
    mix: float = 0.75
    core_to_core_latency_s: float = 50e-9
    busy: float = 1.0
    slowness: Callable[[Kernel, float], float] = unchanged
    broken: dict[str, str] = field(default_factory=dict[str, str])
    deadly: dict[str, signal.Signals] = field(default_factory=dict[str, signal.Signals])
    never_together: set[str] = field(default_factory=set[str])
    now_ns: int = 1_000_000_000
    ran_ns: dict[str, int] = field(default_factory=dict[str, int])
    compiled: list[Kernel] = field(default_factory=list[Kernel])
    _cycles: dict[int, int] = field(default_factory=dict[int, int])
    _teams: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def clock(self) -> float:
        """Seconds of its own."""
        return self.now_ns * 1e-9

    def compile(self, kernel: Kernel) -> FakeKernel:
        """Stands for `compile_kernel`."""
        if kernel.label in self.broken:
            raise MeasurementError(f"kernel '{kernel.label}' {self.broken[kernel.label]}")
        self.compiled.append(kernel)
        return FakeKernel(self, kernel)

    def write_cycle(self, memory: Any, slot: int, order: Order) -> None:
        """Stands for `pointer_chase.write_cycle`: keeps the size of its working set."""
        self._cycles[memory.ctypes.data + int(order[0]) * 64 + slot * 8] = memory.size

    def seconds(self, kernel: Kernel, plan: Plan) -> float:
        """The time of one burst of a thread."""
        match kernel:
            case PlainKernel(label="clock"):
                ideal_s = kernel.work(plan.length) / CLOCK_HZ
            case PlainKernel(label="core-to-core"):
                ideal_s = kernel.work(plan.length) * self.core_to_core_latency_s
            case PlainKernel():
                start = ctypes.c_uint64.from_address(plan.state).value
                ideal_s = plan.length * self.caches.latency_s(self._cycles[start])
            case ComputeKernel():
                ideal_s = kernel.work(plan.length) / flop_per_s(kernel, self.mix)
            case StreamKernel():
                extent = plan.period * kernel.streams
                ideal_s = kernel.work(plan.length) * plan.passes / self._bytes_per_s(extent, plan)
        return ideal_s * self.slowness(kernel, self.clock()) / self.busy

    def _bytes_per_s(self, extent: int, plan: Plan) -> float:
        for number, (capacity, _) in enumerate(self.caches.caches, start=1):
            if extent * (1 if number == 1 else plan.threads) <= capacity:
                return BYTE_PER_S.get(f"L{number}", BYTE_PER_S["L2"])
        return BYTE_PER_S["DRAM"]

    def run(self, kernel: Kernel, plan: Plan) -> int:
        """Writes the readings of a thread; all of a team start together, the last moves on."""
        rows = np.ctypeslib.as_array(
            ctypes.cast(plan.times, ctypes.POINTER(ctypes.c_int64)), (plan.bursts, 4)
        )
        with self._lock:
            if plan.threads == 2 and kernel.label in self.never_together:
                # Each of them waits until its time is over.
                self.now_ns += plan.limit_ns // 2
                return 0
            took_ns = max(1, round(self.seconds(kernel, plan) * 1e9))
            # The first burst that ends past the limit is the last one.
            bursts = min(plan.bursts, plan.limit_ns // took_ns + 1)
            begin, arrived = self._teams.pop(plan.team, (self.now_ns, 0))
            starts = begin + np.arange(bursts) * took_ns
            rows[:bursts, 0] = starts
            rows[:bursts, 1] = starts + took_ns
            rows[:bursts, 2] = 0
            rows[:bursts, 3] = round(took_ns * self.busy)
            if arrived + 1 < plan.threads:
                self._teams[plan.team] = begin, arrived + 1
            else:
                self.now_ns = begin + bursts * took_ns
                spent = self.ran_ns.get(kernel.label, 0)
                self.ran_ns[kernel.label] = spent + bursts * took_ns
        return bursts


def flop_per_s(kernel: ComputeKernel, mix: float = 0.75) -> float:
    """The rate of one thread: operations of an instruction, two instructions a cycle, 3 GHz."""
    instructions = sum(len(operation.machine) for operation in kernel.operations)
    flop = sum(operation.flop for operation in kernel.operations)
    if kernel.name == "fma-add":
        # The first operation is the multiply-add, and does two of three flop.
        flop, instructions = kernel.operations[0].flop, 1
        return mix * flop * INSTRUCTIONS_PER_CYCLE * CLOCK_HZ
    return flop / instructions * INSTRUCTIONS_PER_CYCLE * CLOCK_HZ


@dataclass(frozen=True, slots=True)
class FakeKernel:
    """Stands for a `CompiledKernel`."""

    machine: FakeMachine
    kernel: Kernel

    def call(self, state: int, offset: int, length: int) -> None:
        """What is tried in a child process."""
        if self.kernel.label in self.machine.deadly:
            os.kill(os.getpid(), self.machine.deadly[self.kernel.label])

    def bench(self, plan: Plan) -> int:
        """The bursts of a plan."""
        return self.machine.run(self.kernel, plan)


class FakeAffinity:
    """CPUs that every thread may be pinned to, whatever this host has."""

    def __init__(self) -> None:
        self._mine = threading.local()

    def set(self, who: int, cpus: set[int]) -> None:
        """Stands for `os.sched_setaffinity`."""
        self._mine.cpus = set(cpus)

    def get(self, who: int) -> set[int]:
        """Stands for `os.sched_getaffinity`."""
        return getattr(self._mine, "cpus", {0, 1})


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeMachine | None = None) -> FakeMachine:
    """Puts `fake` in the place of this host; its fields may be changed until it is measured."""
    machine = fake or FakeMachine()
    affinity = FakeAffinity()
    monkeypatch.setattr(os, "sched_setaffinity", affinity.set, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", affinity.get, raising=False)
    monkeypatch.setattr(benchmark, "read_host_state", lambda **_: machine.host_state)
    monkeypatch.setattr(benchmark, "read_activity", lambda **_: QUIET)
    monkeypatch.setattr(compiler, "compile_kernel", machine.compile)
    monkeypatch.setattr(compiler, "unlisted_instruction_sets", tuple)
    monkeypatch.setattr(kernel_measurement, "sve_vector_bits", lambda: None)
    monkeypatch.setattr(kernel_measurement, "identify_core", lambda **_: machine.core)
    monkeypatch.setattr(kernel_measurement, "theoretical_memory", lambda: None)
    monkeypatch.setattr(kernel_measurement, "huge_page_bytes", lambda _: None)
    for module in (kernel_measurement, exploration):
        monkeypatch.setattr(module, "fill", lambda array, stopped: None)
    monkeypatch.setattr(exploration.pointer_chase, "write_cycle", machine.write_cycle)
    # Python's own, which are part of what fake kernels do.
    monkeypatch.setattr(trials, "minor_faults", lambda: 0)
    return machine


def measure(
    machine: FakeMachine,
    *,
    effort: Effort = "default",
    budget_s: float = 1.0,
    include_library: bool = False,
    **options: Any,
) -> tuple[HardwareProfile, tuple[Series, ...]]:
    """The whole measurement on the fake machine, in `budget_s` seconds of its clock."""
    whole = TIME_BUDGETS[effort]
    program = replace(
        whole,
        budget_s=budget_s,
        curve_s=whole.curve_s * min(1.0, budget_s / whole.budget_s),
        library_s=min(whole.library_s, 0.25 * budget_s) if include_library else 0.0,
    )
    return benchmark.measure_hardware(
        effort=effort, program=program, clock=machine.clock, **options
    )


@functools.cache
def measured() -> tuple[HardwareProfile, tuple[Series, ...]]:
    """What `measure` finds of a fake machine as it is: for those who only read it."""
    with pytest.MonkeyPatch.context() as patch:
        return measure(install(patch))


def rate(
    sustained: float = 100.0, *, peak: float | None = None, spread: float = 0.01, **more: Any
) -> Estimate:
    """An estimate of 80 bursts, none of them disturbed."""
    fields = {"bursts": 80, "disturbed": 0, "only_disturbed": False, **more}
    peak = sustained if peak is None else peak
    return Estimate(peak=peak, sustained=sustained, spread=spread, **fields)


def few_kernels(machine: FakeMachine) -> None:
    """Eleven compute kernels, on one thread."""
    host = replace(HOST, instruction_sets=("avx", "fma"))
    machine.host_state = replace(machine.host_state, host=host)


def with_topology(machine: FakeMachine, **changes: Any) -> None:
    """Changes what the operating system reports of the fake machine's CPUs."""
    topology = replace(machine.host_state.topology, **changes)
    machine.host_state = replace(machine.host_state, topology=topology)


def labels(kernels: Sequence[Kernel]) -> set[str]:
    """The labels of kernels."""
    return {kernel.label for kernel in kernels}
