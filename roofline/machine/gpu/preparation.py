"""Makes a device's trials: loads programs, allocates arrays, chooses sizes; tells what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from roofline.foundation.units import format_capacity
from roofline.machine.gpu.arithmetic import ArithmeticKernel
from roofline.machine.gpu.device import (
    Argument,
    Call,
    Device,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    Direction,
    Function,
    HostMemory,
    Product,
)
from roofline.machine.gpu.kernels import arithmetic_kernels, products
from roofline.machine.gpu.ptx import Program
from roofline.machine.gpu.streams import BLOCKS, CHUNK_BYTE, StreamKernel, stream_kernels
from roofline.machine.gpu.trials import SizedProduct, Stream, Transfer, Trial, lost_during
from roofline.machine.measuring.schedule import Finding

L2 = "L2"

_L2_SHARE = 4
"""The arrays of a kernel take a quarter of the L2, so that they stay there whatever else runs."""

_BEYOND_L2, _LEAST_BEYOND_L2 = 32, 4
"""Arrays are so many times the L2, so that what it still holds hardly counts; at least so many."""

_MEMORY_SHARE = 8
"""All arrays together take no more than this part of the free memory."""

_PRODUCT_SIZES = (1024, 2048, 4096, 8192, 16384)
_PRODUCT_MEMORY_SHARE = 16

_TRANSFER_BYTE = 64 << 20

_MOST_CALLS = 64
"""Calls of a burst: what is called again and again waits in a queue of limited length."""


@dataclass(slots=True, kw_only=True)
class Preparation:
    """The trials of a device, and what could not be made a trial, in words."""

    device: Device
    report: Callable[[str], None]
    trials: list[Trial] = field(default_factory=list[Trial])
    conditions: list[str] = field(default_factory=list[str])
    leave_out: Sequence[str] = ()
    found: Callable[[Finding], None] = lambda _: None
    _loaded: dict[str, Function] = field(default_factory=dict[str, Function])

    def prepare(self, *, memory_name: str, burst_s: float, product_limit_s: float) -> None:
        """Makes all trials and sizes their bursts.

        Args:
            memory_name: the name of the device's own memory, such as ``"HBM"``.
            burst_s: seconds of a burst.
            product_limit_s: the longest that one product of torch's may take.
        """
        for kernel in arithmetic_kernels(self.device.facts.capability):
            self._try(kernel.label, lambda kernel=kernel: self._arithmetic(kernel))
        for trial in self._streams(memory_name):
            self.trials.append(trial)
        for product in products(self.device.facts.capability):
            self._try(product.label, lambda each=product: self._product(each, product_limit_s))
        for direction in ("to device", "to host"):
            for memory in ("pinned", "pageable"):
                self._transfer(direction, memory)
        for trial in list(self.trials):
            self._size(trial, burst_s)

    def _try(self, label: str, make: Callable[[], Trial]) -> None:
        if self._unwanted(label):
            return
        self.report(f"preparing {label}")
        try:
            self.trials.append(make())
        except DeviceError as error:
            self.conditions.append(f"left out: {label}: {error}")

    def _unwanted(self, label: str) -> bool:
        unwanted = label in self.leave_out
        if unwanted:
            self.conditions.append(f"left out: {label}: as asked")
        return unwanted

    def _size(self, trial: Trial, burst_s: float) -> None:
        self.report(f"sizing {trial.label}")
        try:
            trial.calibrate(self.device, burst_s)
            rate = trial.work_per_burst / trial.burst_s
            self.found(Finding(what=trial.label, threads=1, quantity=trial.quantity, per_s=rate))
        except DeviceLostError as error:
            raise lost_during(trial, error) from None
        except DeviceError as error:
            self.trials.remove(trial)
            self.conditions.append(f"left out: {trial.label}: {error}")

    def _program(
        self, program: Program, grid: int, arguments: Callable[[int], list[Argument]]
    ) -> Callable[[int], tuple[Call, int]]:
        """What launches a program once with as many repeats as are asked for."""
        function = self._loaded.get(program.entry) or self.device.load(program)
        self._loaded[program.entry] = function
        made: dict[int, Call] = {}

        def repeated(repeats: int) -> tuple[Call, int]:
            if repeats not in made:
                made.clear()
                made[repeats] = self.device.launch(function, grid, arguments(repeats))
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

    def _streams(self, memory_name: str) -> Iterator[Trial]:
        grid = self.device.facts.multiprocessors * BLOCKS
        arrays: list[int] = []
        kernels = stream_kernels()
        most = max(kernel.arrays for kernel in kernels)
        self.report(f"allocating {memory_name}")
        free_bytes = self.device.free_bytes()
        byte = self._array_bytes(most)
        while byte >= CHUNK_BYTE and not arrays:
            try:
                arrays = [self.device.allocate(byte) for _ in range(most)]
            except DeviceMemoryError:
                byte //= 2
        # Without its own memory the L2 would be held to be all there is.
        if not arrays or byte < grid * CHUNK_BYTE:
            self.conditions.append(f"left out: {memory_name} and {L2}: too little memory is free")
            return
        doubt = self._judge(byte, free_bytes)
        for kernel in kernels:
            for level in (L2, memory_name):
                period, steps = (
                    _cached_shape(self.device.facts.l2_bytes, byte, kernel.arrays, grid)
                    if level == L2
                    else (grid, byte // (grid * CHUNK_BYTE))
                )
                if period < 1 or self._unwanted(f"{level} {kernel.name}"):
                    continue
                try:
                    trial = self._stream(kernel, level, arrays, grid, period, steps)
                    trial.doubt = doubt if level != L2 else ""
                    yield trial
                except DeviceError as error:
                    self.conditions.append(f"left out: {level} {kernel.name}: {error}")

    def _array_bytes(self, arrays: int) -> int:
        facts = self.device.facts
        room = self.device.free_bytes() // _MEMORY_SHARE // arrays
        return min(_BEYOND_L2 * facts.l2_bytes, room)

    def _judge(self, byte: int, free_bytes: int) -> str:
        """Why arrays of that size give doubtful figures of the memory; ``""``: they do not."""
        l2_bytes = self.device.facts.l2_bytes
        if byte < _LEAST_BEYOND_L2 * l2_bytes:
            self.conditions.append(
                f"little memory: {format_capacity(free_bytes)} are free;"
                " free the device's memory and measure again"
            )
            return (
                f"too high: arrays of {format_capacity(byte)} are less than"
                f" {_LEAST_BEYOND_L2} times the L2"
            )
        if byte < _BEYOND_L2 * l2_bytes:
            self.conditions.append(
                f"arrays were scaled down to {format_capacity(byte)}"
                f" ({byte / l2_bytes:.0f} times the L2), since"
                f" {format_capacity(free_bytes)} of the device's memory are free"
            )
        return ""

    def _stream(
        self,
        kernel: StreamKernel,
        level: str,
        arrays: list[int],
        grid: int,
        period: int,
        steps: int,
    ) -> Trial:
        byte = period * steps * CHUNK_BYTE

        def arguments(passes: int) -> list[Argument]:
            return [*((each, 8) for each in arrays), (steps, 4), (passes, 4), (period, 4)]

        return Trial(
            subject=Stream(
                kernel=kernel,
                level=level,
                note=f"{kernel.arrays} × {format_capacity(byte)}, 16-byte accesses",
            ),
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
        sized, call = SizedProduct(product=product, size=best[1]), best[2]
        return Trial(
            subject=sized, work=float(sized.flop), repeated=lambda n: (call, n), most=_MOST_CALLS
        )

    def _transfer(self, direction: Direction, memory: HostMemory) -> None:
        transfer = Transfer(direction=direction, memory=memory, byte=_TRANSFER_BYTE)

        def make() -> Trial:
            call = self.device.transfer(direction, memory, transfer.byte)
            return Trial(
                subject=transfer,
                work=float(transfer.byte),
                repeated=lambda n: (call, n),
                most=_MOST_CALLS,
            )

        self._try(transfer.label, make)


def _cached_shape(l2_bytes: int, array_bytes: int, arrays: int, grid: int) -> tuple[int, int]:
    """Period and steps of a kernel whose arrays together take their share of the L2.

    Where all blocks together are too many for it, several go over the same chunk.
    """
    chunks = min(l2_bytes // _L2_SHARE // arrays, array_bytes) // CHUNK_BYTE
    return (grid, chunks // grid) if chunks >= grid else (chunks, 1)
