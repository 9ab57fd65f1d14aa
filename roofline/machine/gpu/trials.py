"""Trials on a device: loaded programs, allocated arrays, chosen sizes, and notes on failures."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from roofline.core.dtypes import dtype
from roofline.core.progress import Say
from roofline.core.units import format_capacity
from roofline.machine.gpu.arithmetic import ArithmeticKernel, arithmetic_kernels
from roofline.machine.gpu.device import (
    Argument,
    Call,
    Device,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    Direction,
    Gemm,
    HostMemory,
    Reading,
)
from roofline.machine.gpu.ptx import (
    BLOCKS,
    CHUNK_BYTE,
    Capability,
    Program,
    StreamKernel,
    stream_kernels,
)
from roofline.machine.measuring.estimation import Burst, Finding, repeats_for
from roofline.machine.measuring.rounds import Candidate

L2 = "L2"

_L2_SHARE = 4
"""Arrays take a quarter of L2, so that they stay cached."""

_BEYOND_L2, _LEAST_BEYOND_L2 = 32, 4
"""Array size as a multiple of L2, so that hits are negligible, and its minimum."""

_MEMORY_SHARE = 8
"""All arrays take at most 1/8 of the free memory."""

_PRODUCT_SIZES = (1024, 2048, 4096, 8192, 16384)
_PRODUCT_MEMORY_SHARE = 16

TRANSFER_BYTE = 64 << 20

_MOST_CALLS = 64
"""Maximum calls per burst: the launch queue is limited."""

_BEST_OF = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream kernel on one memory level; ``note`` describes its arrays."""

    kernel: StreamKernel
    level: str
    note: str

    @property
    def label(self) -> str:
        """Name in progress and conditions: ``"L2 read"``."""
        return f"{self.level} {self.kernel.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedGemm:
    """A torch GEMM at its fastest size."""

    product: Gemm
    size: int

    @property
    def label(self) -> str:
        return self.product.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy between host and device."""

    direction: Direction
    memory: HostMemory

    @property
    def label(self) -> str:
        """Name in progress and conditions: ``"pinned copy to device"``."""
        return f"{self.memory} copy {self.direction}"


_DIRECTIONS: tuple[Direction, ...] = ("to device", "to host")
_MEMORIES: tuple[HostMemory, ...] = ("pinned", "pageable")
TRANSFERS = tuple(
    Transfer(direction=direction, memory=memory)
    for direction in _DIRECTIONS
    for memory in _MEMORIES
)


@dataclass(slots=True, kw_only=True)
class Trial:
    """A timed subject: ``repeated(n)`` returns a call for n repeats, and its number of calls.

    ``work`` is FLOP or bytes per repeat. Programs repeat within one launch; torch calls are
    repeated.
    """

    subject: ArithmeticKernel | Stream | SizedGemm | Transfer
    work: float
    repeated: Callable[[int], tuple[Call, int]]
    most: int = 1 << 28
    repeats: int = 1
    burst_s: float = 0.0
    threads: int = 1
    most_bursts: int | None = None
    readings: list[Reading] = field(default_factory=list[Reading])

    @property
    def label(self) -> str:
        return self.subject.label

    name = label

    @property
    def quantity(self) -> Literal["flop", "byte"]:
        return "byte" if isinstance(self.subject, Stream | Transfer) else "flop"

    @property
    def work_per_burst(self) -> float:
        return self.work * self.repeats

    def calibrate(self, device: Device, target_s: float) -> None:
        """Set the repeats for a burst of about `target_s`."""

        def run(repeats: int) -> float:
            return device.times(*self.repeated(repeats), 1)[0]

        with self._blamed():
            # The first run includes setup.
            run(1)
            self.repeats = repeats_for(run, target_s, most=self.most)
            self.burst_s = min(run(self.repeats) for _ in range(_BEST_OF))

    def run(self, device: Device, bursts: int) -> list[Burst]:
        """Return the times of `bursts` bursts; one more runs during a sensor reading."""
        with self._blamed():
            call, calls = self.repeated(self.repeats)
            times_s = device.times(call, calls, bursts)
            reading = device.watch(call, calls)
        if reading is not None:
            self.readings.append(reading)
        # Device time is unaffected by processes on the host.
        return [Burst(wall_s=time_s, cpu_s=time_s, busy=1.0) for time_s in times_s]

    @contextmanager
    def _blamed(self) -> Generator[None]:
        try:
            yield
        except DeviceLostError as error:
            raise DeviceLostError(
                f"device lost while measuring {self.label}: {error}; measure again"
            ) from None


_PRODUCTS: tuple[tuple[str, bool, Capability], ...] = (
    ("float64", False, (7, 0)),
    ("float32", False, (7, 0)),
    ("float32", True, (8, 0)),
    ("bfloat16", False, (8, 0)),
    ("float16", False, (7, 0)),
    ("float8_e4m3fn", False, (8, 9)),
    ("float8_e5m2", False, (8, 9)),
    ("int8", False, (7, 5)),
)
"""torch's GEMM: type, TF32, and minimum compute capability."""


def products(capability: Capability) -> Sequence[Gemm]:
    """Return torch's GEMM types that the device supports in hardware."""
    return [
        Gemm(dtype=dtype(name), tf32=tf32) for name, tf32, least in _PRODUCTS if capability >= least
    ]


@dataclass(slots=True, kw_only=True)
class Preparation:
    """Prepares the trials of a device; ``conditions`` has notes on failures."""

    device: Device
    report: Say
    found: Callable[[Finding], None]
    burst_s: float
    candidates: list[Candidate[Trial]] = field(default_factory=list[Candidate[Trial]])
    conditions: list[str] = field(default_factory=list[str])

    def prepare(self, *, memory_name: str, product_limit_s: float) -> None:
        """Prepare and calibrate all trials."""
        capability = self.device.facts.capability
        for kernel in arithmetic_kernels(capability):
            self._try(kernel.label, lambda each=kernel: self._arithmetic(each))
        self._streams(memory_name)
        for product in products(capability):
            self._try(product.label, lambda each=product: self._product(each, product_limit_s))
        for transfer in TRANSFERS:
            self._try(transfer.label, lambda each=transfer: self._transfer(each))

    def _try(self, label: str, make: Callable[[], Trial], doubt: str = "") -> None:
        self.report(f"preparing {label}")
        try:
            trial = make()
            trial.calibrate(self.device, self.burst_s)
        except DeviceError as error:
            self.conditions.append(f"not measured: {label}: {error}")
            return
        rate = trial.work_per_burst / trial.burst_s
        self.found(Finding(what=label, threads=1, quantity=trial.quantity, per_s=rate))
        self.candidates.append(Candidate(trials=(trial,), kind=label, initial_doubt=doubt))

    def _program(
        self, program: Program, grid: int, arguments: Callable[[int], list[Argument]]
    ) -> Callable[[int], tuple[Call, int]]:
        """Return a function that launches a program with a number of repeats."""
        self.device.load(program)
        made: dict[int, Call] = {}

        def repeated(repeats: int) -> tuple[Call, int]:
            if repeats not in made:
                made.clear()
                made[repeats] = self.device.launch(program, grid, arguments(repeats))
            return made[repeats], 1

        return repeated

    def _arithmetic(self, kernel: ArithmeticKernel) -> Trial:
        grid = self.device.facts.multiprocessors * kernel.program.blocks
        out = self.device.allocate(CHUNK_BYTE)
        return Trial(
            subject=kernel,
            work=float(kernel.flop * grid),
            repeated=self._program(kernel.program, grid, lambda n: [(out, 8), (n, 4)]),
        )

    def _streams(self, memory_name: str) -> None:
        facts = self.device.facts
        grid = facts.multiprocessors * BLOCKS
        kernels = stream_kernels()
        most = max(kernel.arrays for kernel in kernels)
        self.report(f"allocating {memory_name}")
        free_bytes = self.device.free_bytes()
        byte = min(_BEYOND_L2 * facts.l2_bytes, free_bytes // _MEMORY_SHARE // most)
        arrays: list[int] = []
        while byte >= CHUNK_BYTE and not arrays:
            try:
                arrays = [self.device.allocate(byte) for _ in range(most)]
            except DeviceMemoryError:
                byte //= 2
        # L2 alone would count as main memory.
        if not arrays or byte < grid * CHUNK_BYTE:
            self.conditions.append(f"not measured: {memory_name} and {L2}: too little free memory")
            return
        doubt, size, free = "", format_capacity(byte), format_capacity(free_bytes)
        if byte < _LEAST_BEYOND_L2 * facts.l2_bytes:
            doubt = f"too high: arrays of {size} are less than {_LEAST_BEYOND_L2} times L2"
            self.conditions.append(
                f"little memory: {free} free; free device memory and measure again"
            )
        elif byte < _BEYOND_L2 * facts.l2_bytes:
            self.conditions.append(
                f"arrays reduced to {size} ({byte / facts.l2_bytes:.0f} times L2): {free} of device"
                " memory free"
            )
        for kernel in kernels:
            # If chunks of all blocks exceed L2, several blocks share a chunk.
            chunks = min(facts.l2_bytes // _L2_SHARE // kernel.arrays, byte) // CHUNK_BYTE
            cached = (grid, chunks // grid) if chunks >= grid else (chunks, 1)
            shapes = {L2: cached, memory_name: (grid, byte // (grid * CHUNK_BYTE))}
            for level, (period, steps) in shapes.items():
                if period < 1:
                    continue
                self._try(
                    f"{level} {kernel.name}",
                    lambda kernel=kernel, level=level, period=period, steps=steps: self._stream(
                        kernel, level, arrays, period, steps
                    ),
                    "" if level == L2 else doubt,
                )

    def _stream(
        self, kernel: StreamKernel, level: str, arrays: list[int], period: int, steps: int
    ) -> Trial:
        grid = self.device.facts.multiprocessors * BLOCKS
        note = f"{kernel.arrays} × {format_capacity(period * steps * CHUNK_BYTE)}, 16-byte accesses"

        def arguments(passes: int) -> list[Argument]:
            return [*((each, 8) for each in arrays), (steps, 4), (passes, 4), (period, 4)]

        return Trial(
            subject=Stream(kernel=kernel, level=level, note=note),
            work=float(kernel.accesses * grid * steps * CHUNK_BYTE),
            repeated=self._program(kernel.program, grid, arguments),
        )

    def _product(self, product: Gemm, limit_s: float) -> Trial:
        """Return torch's fastest GEMM within the time limit."""
        room = self.device.free_bytes() // _PRODUCT_MEMORY_SHARE
        best: tuple[float, int, Call] | None = None
        last_s, last_size = 0.0, 0
        for size in _PRODUCT_SIZES:
            too_long = last_size > 0 and last_s * (size / last_size) ** 3 > limit_s
            if best and (too_long or 3 * size * size * product.dtype.bits // 8 > room):
                break
            try:
                call = self.device.product(product, size)
                self.device.times(call, 1, 1)
                last_s, last_size = min(self.device.times(call, 1, 3)), size
            except DeviceMemoryError:
                if best is None:
                    raise
                self.conditions.append(
                    f"reduced: {product.label} to {best[1]} rows, too little memory"
                )
                break
            rate = size**3 / last_s
            if best is None or rate > best[0]:
                best = rate, size, call
        assert best is not None
        _, size, call = best
        subject = SizedGemm(product=product, size=size)
        return _called(subject, 2.0 * size**3, call)

    def _transfer(self, transfer: Transfer) -> Trial:
        call = self.device.transfer(transfer.direction, transfer.memory, TRANSFER_BYTE)
        return _called(transfer, float(TRANSFER_BYTE), call)


def _called(subject: SizedGemm | Transfer, work: float, call: Call) -> Trial:
    return Trial(subject=subject, work=work, repeated=lambda n: (call, n), most=_MOST_CALLS)
