"""A GPU that computes nothing and takes as long as a real one would; it reads what it is given.

Work follows from the instructions in a program's text and from its launch, not from what a kernel
declares of itself.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from roofline.machine.gpu.device import (
    Argument,
    Call,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceProperties,
    Direction,
    Gemm,
    HostMemory,
    Reading,
)
from roofline.machine.gpu.ptx import Program

H200 = DeviceProperties(
    name="NVIDIA H200",
    capability=(9, 0),
    multiprocessors=132,
    memory_bytes=150_000_000_000,
    l2_bytes=60 << 20,
    clock_hz=1.98e9,
    memory_clock_hz=3.201e9,
    bus_bit=6144,
    driver="580.1",
    library="torch 9, CUDA 13",
)

LAUNCH_S = 3e-6
SMALL_S = 5e-6

_FLOP_PER_THREAD = {
    "fma.rn.f64": 2,
    "fma.rn.f32": 2,
    "fma.rn.f16x2": 4,
    "fma.rn.bf16x2": 4,
    "mad.lo.s32": 2,
    "dp4a.s32.s32": 8,
}


def flop_of_loop(text: str) -> tuple[str, float]:
    """The instruction of a program's inner loop, and flop per thread of one iteration."""
    body = text[text.index("again:") : text.index("bra again;")]
    flop: dict[str, float] = {}
    for line in body.splitlines():
        name = line.split()[0]
        shape = re.search(r"\.m(\d+)n(\d+)k(\d+)\.", name)
        if shape:
            m, n, k = (int(each) for each in shape.groups())
            threads = 128 if name.startswith("wgmma") else 32
            flop[name] = flop.get(name, 0) + 2 * m * n * k / threads
        elif name in _FLOP_PER_THREAD:
            flop[name] = flop.get(name, 0) + _FLOP_PER_THREAD[name]
    ((name, per_thread),) = flop.items()
    return name, per_thread


@dataclass
class FakeDevice:
    """`rates` are flop per second by a part of the instruction's name or of the product's label."""

    facts: DeviceProperties = H200
    rates: dict[str, float] = field(default_factory=dict[str, float])
    flop_per_s: float = 50e12
    l2_bytes_per_s: float = 9e12
    memory_bytes_per_s: float = 4.5e12
    link_bytes_per_s: dict[HostMemory, float] = field(
        default_factory=lambda: {"pinned": 50e9, "pageable": 8e9}
    )
    noise: float = 0.01
    free: int | None = None
    fails: Sequence[str] = ()
    page_faults: Sequence[str] = ()
    idle: Reading | None = field(default_factory=Reading)
    running: Callable[[str], Reading] = lambda what: Reading(clock_hz=1.9e9, power_w=600.0)
    obstacle: str = ""
    on_run: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.now = 0.0
        self.closed = 0
        self.allocated = 0
        self.arrays: list[int] = []
        self.loaded: set[str] = set()
        self.ran: dict[str, float] = {}
        self._random = random.Random(1)
        self._queue: list[tuple[str, float]] = []
        self._last = ""

    def clock(self) -> float:
        return self.now

    def free_bytes(self) -> int:
        total = self.facts.memory_bytes if self.free is None else self.free
        return total - self.allocated

    def _take(self, byte: int) -> None:
        if byte > self.free_bytes():
            raise DeviceMemoryError("out of memory")
        self.allocated += byte

    def allocate(self, byte: int) -> int:
        self._take(byte)
        self.arrays.append(byte)
        return 4096 + self.allocated

    def _least_array(self) -> int:
        return min(each for each in self.arrays if each > 1 << 14)

    def load(self, program: Program) -> None:
        if program.entry in self.loaded:
            return
        self.now += 1e-3
        if program.entry in self.fails:
            raise DeviceError(f"compiling {program.entry} failed: invalid device function")
        capability = self.facts.capability
        assert capability >= program.least
        assert program.only_major in (None, capability[0])
        self.loaded.add(program.entry)

    def rate(self, what: str) -> float:
        return next((rate for part, rate in self.rates.items() if part in what), self.flop_per_s)

    def launch(self, program: Program, grid: int, arguments: Sequence[Argument]) -> Call:
        assert program.entry in self.loaded
        threads = grid * program.block
        values = [value for value, _ in arguments]
        if "again:" not in program.text:
            seconds = 0.0
        elif "pass:" in program.text:
            body = program.text[program.text.index("again:") : program.text.index("bra again;")]
            accesses = len(re.findall(r"(?:ld|st)\.global\S*\.v4\.", body))
            arrays = len(set(re.findall(r"%at_(\w)", body)))
            steps, passes, period = values[3:]
            assert period * steps * program.block * 64 <= self._least_array()
            byte = threads * accesses * 16 * steps * passes
            # A working set that fits stays in the L2; one that is much larger does not.
            held = arrays * period * steps * program.block * 64 <= self.facts.l2_bytes / 2
            seconds = byte / (self.l2_bytes_per_s if held else self.memory_bytes_per_s)
        else:
            instruction, flop = flop_of_loop(program.text)
            work = flop * threads * values[-1]
            # The rate is that of the moment: a device may slow down.
            return lambda: self._queue.append(
                (program.entry, LAUNCH_S + work / self.rate(instruction))
            )
        return lambda: self._queue.append((program.entry, LAUNCH_S + seconds))

    def product(self, product: Gemm, size: int) -> Call:
        if product.label in self.fails:
            raise DeviceError("not implemented for this type")
        self._take(3 * size * size * product.dtype.bits // 8)
        # Small products do not fill the device.
        efficiency = min(1.0, size / 4096)
        seconds = 2 * size**3 / (self.rate(product.label) * efficiency)
        return lambda: self._queue.append((product.label, LAUNCH_S + seconds))

    def transfer(self, direction: Direction, memory: HostMemory, byte: int) -> Call:
        if memory not in self.link_bytes_per_s:
            raise DeviceMemoryError("out of memory")
        seconds = byte / self.link_bytes_per_s[memory]
        return lambda: self._queue.append((f"{memory} {direction}", 1e-6 + seconds))

    def small_calls(self) -> dict[str, Call]:
        return {"dispatch of add": lambda: self._queue.append(("add", SMALL_S))}

    def _finish(self, call: Call, calls: int) -> float:
        self.on_run()
        for _ in range(calls):
            call()
        seconds = sum(each for _, each in self._queue) * (1 + self.noise * self._random.random())
        self._last = self._queue[-1][0]
        self._queue.clear()
        if self._last in self.page_faults:
            raise DeviceLostError("an illegal memory access was encountered")
        self.now += seconds
        self.ran[self._last] = self.ran.get(self._last, 0.0) + seconds
        return seconds

    def times(self, call: Call, calls: int, bursts: int) -> list[float]:
        return [self._finish(call, calls) for _ in range(bursts)]

    def queue_time(self, call: Call, calls: int) -> float:
        return self._finish(call, calls)

    def reading(self) -> Reading | None:
        return None if self.obstacle else self.idle

    def reading_obstacle(self) -> str:
        return self.obstacle

    def watch(self, call: Call, calls: int) -> Reading | None:
        self._finish(call, calls)
        return None if self.obstacle else self.running(self._last)

    def close(self) -> None:
        self.closed += 1
