"""Trials on a device: programs loaded, arrays allocated, sizes chosen; what failed, in words."""

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
    HostMemory,
    Product,
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
"""The arrays of a kernel take a quarter of the L2, so that they stay there whatever else runs."""

_BEYOND_L2, _LEAST_BEYOND_L2 = 32, 4
"""Arrays are so many times the L2, so that what it still holds hardly counts; at least so many."""

_MEMORY_SHARE = 8
"""All arrays together take no more than this part of the free memory."""

_PRODUCT_SIZES = (1024, 2048, 4096, 8192, 16384)
_PRODUCT_MEMORY_SHARE = 16

TRANSFER_BYTE = 64 << 20

_MOST_CALLS = 64
"""Calls of a burst: what is called again and again waits in a queue of limited length."""

_BEST_OF = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream kernel on one memory level; ``note`` says which arrays it goes over."""

    kernel: StreamKernel
    level: str
    note: str

    @property
    def label(self) -> str:
        """How it is named in progress and conditions: ``"L2 read"``."""
        return f"{self.level} {self.kernel.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedProduct:
    """A product of torch's at the size at which it is fastest."""

    product: Product
    size: int

    @property
    def label(self) -> str:
        return self.product.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy between the host's memory and the device's."""

    direction: Direction
    memory: HostMemory

    @property
    def label(self) -> str:
        """How it is named in progress and conditions: ``"pinned copy to device"``."""
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
    """What is timed: ``repeated(n)`` gives the call that does it n times, in ``calls`` calls.

    ``work`` is flop or byte of one repeat. A program repeats itself inside one launch; what is
    torch's is called again.
    """

    subject: ArithmeticKernel | Stream | SizedProduct | Transfer
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
        """How progress and conditions name it."""
        return self.subject.label

    name = label

    @property
    def quantity(self) -> Literal["flop", "byte"]:
        """What ``work`` is."""
        return "byte" if isinstance(self.subject, Stream | Transfer) else "flop"

    @property
    def work_per_burst(self) -> float:
        """Flop or byte of one burst."""
        return self.work * self.repeats

    def calibrate(self, device: Device, target_s: float) -> None:
        """Chooses the repeats of a burst, so that it takes about `target_s`."""

        def run(repeats: int) -> float:
            return device.times(*self.repeated(repeats), 1)[0]

        with self._blamed():
            # The first run also compiles, plans and wakes the device up.
            run(1)
            self.repeats = repeats_for(run, target_s, most=self.most)
            self.burst_s = min(run(self.repeats) for _ in range(_BEST_OF))

    def run(self, device: Device, bursts: int) -> list[Burst]:
        """So many bursts, then one more during which the sensors are read."""
        with self._blamed():
            call, calls = self.repeated(self.repeats)
            times_s = device.times(call, calls, bursts)
            reading = device.watch(call, calls)
        if reading is not None:
            self.readings.append(reading)
        # The device's clock does not count what the host's CPUs do to others.
        return [Burst(wall_s=time_s, cpu_s=time_s, busy=1.0) for time_s in times_s]

    @contextmanager
    def _blamed(self) -> Generator[None]:
        try:
            yield
        except DeviceLostError as error:
            raise DeviceLostError(
                f"the device was lost while measuring {self.label}: {error}; measure again"
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
"""torch's products: their type, whether by TF32, and the least capability with units for them."""


def products(capability: Capability) -> Sequence[Product]:
    """torch's products that a device can have in its own units."""
    return [
        Product(dtype=dtype(name), tf32=tf32)
        for name, tf32, least in _PRODUCTS
        if capability >= least
    ]


@dataclass(slots=True, kw_only=True)
class Preparation:
    """Makes the trials of a device; what could not be made one is said in ``conditions``."""

    device: Device
    report: Say
    found: Callable[[Finding], None]
    burst_s: float
    candidates: list[Candidate[Trial]] = field(default_factory=list[Candidate[Trial]])
    conditions: list[str] = field(default_factory=list[str])

    def prepare(self, *, memory_name: str, product_limit_s: float) -> None:
        """Makes all trials and sizes their bursts."""
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
            self.conditions.append(f"left out: {label}: {error}")
            return
        rate = trial.work_per_burst / trial.burst_s
        self.found(Finding(what=label, threads=1, quantity=trial.quantity, per_s=rate))
        self.candidates.append(Candidate(trials=(trial,), kind=label, reservation=doubt))

    def _program(
        self, program: Program, grid: int, arguments: Callable[[int], list[Argument]]
    ) -> Callable[[int], tuple[Call, int]]:
        """What launches a program once with as many repeats as are asked for."""
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
        # Without its own memory the L2 would be held to be all there is.
        if not arrays or byte < grid * CHUNK_BYTE:
            self.conditions.append(f"left out: {memory_name} and {L2}: too little memory is free")
            return
        doubt, size, free = "", format_capacity(byte), format_capacity(free_bytes)
        if byte < _LEAST_BEYOND_L2 * facts.l2_bytes:
            doubt = f"too high: arrays of {size} are less than {_LEAST_BEYOND_L2} times the L2"
            self.conditions.append(
                f"little memory: {free} are free; free the device's memory and measure again"
            )
        elif byte < _BEYOND_L2 * facts.l2_bytes:
            self.conditions.append(
                f"arrays were scaled down to {size} ({byte / facts.l2_bytes:.0f} times the L2),"
                f" since {free} of the device's memory are free"
            )
        for kernel in kernels:
            # Where all blocks together are too many for the L2, several go over the same chunk.
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

    def _product(self, product: Product, limit_s: float) -> Trial:
        """The size at which torch multiplies fastest, of those that are not too long."""
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
                    f"scaled down: {product.label} to {best[1]} rows, for want of memory"
                )
                break
            rate = size**3 / last_s
            if best is None or rate > best[0]:
                best = rate, size, call
        assert best is not None
        _, size, call = best
        subject = SizedProduct(product=product, size=size)
        return _called(subject, 2.0 * size**3, call)

    def _transfer(self, transfer: Transfer) -> Trial:
        call = self.device.transfer(transfer.direction, transfer.memory, TRANSFER_BYTE)
        return _called(transfer, float(TRANSFER_BYTE), call)


def _called(subject: SizedProduct | Transfer, work: float, call: Call) -> Trial:
    return Trial(subject=subject, work=work, repeated=lambda n: (call, n), most=_MOST_CALLS)
