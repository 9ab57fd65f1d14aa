"""Makes a device's trials: loads programs, allocates arrays, chooses sizes; tells what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from roofline.foundation.dtypes import dtype
from roofline.foundation.units import format_capacity
from roofline.machine.gpu.arithmetic import ArithmeticKernel, cuda_core_kernels
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
from roofline.machine.gpu.matrices import MMA, MMA_FLOAT16, PATTERNS, matrix_kernels, unit_for
from roofline.machine.gpu.ptx import (
    BLOCKS,
    CHUNK_BYTE,
    Capability,
    Program,
    StreamKernel,
    assemble,
    repeated,
    stored_if_unlikely,
    stream_kernels,
)
from roofline.machine.gpu.trials import SizedProduct, Stream, Transfer, Trial, lost_during
from roofline.machine.measuring.estimation import Finding

# The only instructions with which Hopper's tensor cores run at their full rate; they exist on
# compute capability 9.0 alone. The tiles lie in core matrices of 8 rows of 16 bytes, unswizzled,
# the two of a step along the summed dimension beside each other.

_BLOCK = 128
_BLOCKS = 2
_UNROLL = 16
_ROWS, _COLUMNS = 64, 256
_STEP_BYTE = 32
"""Bytes of one row that an instruction multiplies, whatever the type."""

_A_BYTE, _B_BYTE = _ROWS * _STEP_BYTE, _COLUMNS * _STEP_BYTE
_CORE_BYTE = 128
"""A core matrix; the next along the summed dimension follows it, then the next row of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A ``wgmma``: element types, depth of a step, and what stands behind the descriptors."""

    element: str
    types: str
    sass: str
    depth: int
    tail: str
    sum_type: str = "f32"
    sums: int = _ROWS * _COLUMNS // _BLOCK
    name: str = MMA


_FORMS = (
    _Form(element="float32", types="f32.tf32.tf32", sass="HGMMA", depth=8, tail="%add, 1, 1"),
    _Form(
        element="bfloat16", types="f32.bf16.bf16", sass="HGMMA", depth=16, tail="%add, 1, 1, 0, 0"
    ),
    _Form(element="float16", types="f32.f16.f16", sass="HGMMA", depth=16, tail="%add, 1, 1, 0, 0"),
    _Form(
        element="float16",
        types="f16.f16.f16",
        sass="HGMMA",
        depth=16,
        tail="%add, 1, 1, 0, 0",
        sum_type="b32",
        sums=_ROWS * _COLUMNS // _BLOCK // 2,
        name=MMA_FLOAT16,
    ),
    _Form(
        element="float8_e4m3fn", types="f32.e4m3.e4m3", sass="QGMMA", depth=32, tail="%add, 1, 1"
    ),
    _Form(element="float8_e5m2", types="f32.e5m2.e5m2", sass="QGMMA", depth=32, tail="%add, 1, 1"),
    _Form(element="int8", types="s32.s8.s8", sass="IGMMA", depth=32, tail="%add", sum_type="s32"),
)


def warpgroup_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """The kernels that a device of that compute capability can run: all on Hopper, else none."""
    kernels = (_kernel(form) for form in _FORMS)
    return [kernel for kernel in kernels if kernel.program.runs_on(capability)]


def _kernel(form: _Form) -> ArithmeticKernel:
    instruction = f"wgmma.mma_async.sync.aligned.m{_ROWS}n{_COLUMNS}k{form.depth}.{form.types}"
    return ArithmeticKernel(
        program=_program(form, instruction),
        name=form.name,
        dtype=dtype(form.element),
        unit=unit_for(form.element),
        instruction=instruction,
        sass=form.sass,
        count=_UNROLL,
        flop=2 * _ROWS * _COLUMNS * form.depth * _UNROLL,
        note=f"{instruction}, {_BLOCKS} warpgroups a multiprocessor, operands in shared memory",
    )


def _program(form: _Form, instruction: str) -> Program:
    sums = ", ".join(f"%sum{i}" for i in range(form.sums))
    zero = "0f00000000" if form.sum_type == "f32" else "0"
    body = [
        "wgmma.fence.sync.aligned;",
        *(f"{instruction} {{{sums}}}, %tile_a, %tile_b, {form.tail};" for _ in range(_UNROLL)),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
    ]
    return assemble(
        f"wg{form.name.replace('-', '_')}_{form.element}",
        parameters=(("u64", "out"), ("u32", "iterations")),
        registers=(
            *(("pred", each) for each in ("more", "unlikely", "add")),
            *(("u64", each) for each in ("out", "tile_a", "tile_b")),
            *(("u32", each) for each in ("left", "thread", "base", "at", "end")),
            *(("b32", "bits<2>"), (form.sum_type, f"sum<{form.sums}>")),
        ),
        body=(
            "ld.param.u64 %out, [out];",
            "ld.param.u32 %left, [iterations];",
            "mov.u32 %thread, %tid.x;",
            "mov.u32 %base, tile;",
            *_filled(form),
            *_descriptor("tile_a", 0),
            *_descriptor("tile_b", _A_BYTE),
            "setp.eq.u32 %add, %thread, %thread;",
            *(f"mov.{form.sum_type} %sum{i}, {zero};" for i in range(form.sums)),
            *repeated(body, counter="left"),
            "mov.b32 %bits0, %thread;",
            *(
                line
                for i in range(form.sums)
                for line in (f"mov.b32 %bits1, %sum{i};", "xor.b32 %bits0, %bits0, %bits1;")
            ),
            *stored_if_unlikely("bits0", "out"),
        ),
        block=_BLOCK,
        blocks=_BLOCKS,
        least=(9, 0),
        only_major=9,
        shared_bytes=_A_BYTE + _B_BYTE,
    )


def _filled(form: _Form) -> list[str]:
    """Both tiles, written by all threads; one element a word takes its sign from its place."""
    pattern = PATTERNS[form.element]
    sign = ["and.b32 %bits1, %thread, 1;", "shl.b32 %bits1, %bits1, 31;"]
    return [
        *([] if pattern.alternates else sign),
        f"mov.b32 %bits0, 0x{pattern.a:08x};",
        *([] if pattern.alternates else ["xor.b32 %bits0, %bits0, %bits1;"]),
        *_stores("fill_a", 0, _A_BYTE),
        f"mov.b32 %bits0, 0x{pattern.b:08x};",
        *_stores("fill_b", _A_BYTE, _B_BYTE),
        # What the threads wrote must be seen by the tensor cores, which read by another path.
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
    ]


def _stores(label: str, first: int, byte: int) -> list[str]:
    return [
        "shl.b32 %at, %thread, 2;",
        "add.u32 %at, %at, %base;",
        f"add.u32 %at, %at, {first};",
        f"add.u32 %end, %base, {first + byte};",
        f"{label}:",
        "st.shared.b32 [%at], %bits0;",
        f"add.u32 %at, %at, {4 * _BLOCK};",
        "setp.lt.u32 %more, %at, %end;",
        f"@%more bra {label};",
    ]


def _descriptor(register: str, offset: int) -> list[str]:
    """A matrix descriptor: start, and the steps between core matrices, in units of 16 bytes."""
    steps = (_CORE_BYTE >> 4) << 16 | (2 * _CORE_BYTE >> 4) << 32
    return [
        f"add.u32 %at, %base, {offset};",
        "and.b32 %at, %at, 0x3ffff;",
        "shr.u32 %at, %at, 4;",
        f"cvt.u64.u32 %{register}, %at;",
        f"or.b64 %{register}, %{register}, 0x{steps:x};",
    ]


def arithmetic_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """All compute kernels for a device; a tensor core's fastest instruction in place of others."""
    newer = warpgroup_kernels(capability)
    replaced = {kernel.label for kernel in newer}
    older = [each for each in matrix_kernels(capability) if each.label not in replaced]
    return [*cuda_core_kernels(capability), *older, *newer]


def products(capability: Capability) -> Sequence[Product]:
    """torch's products that a device can have in its own units."""
    found = [Product(dtype=dtype("float64")), Product(dtype=dtype("float32"))]
    if capability >= (8, 0):
        found += [Product(dtype=dtype("float32"), tf32=True), Product(dtype=dtype("bfloat16"))]
    found.append(Product(dtype=dtype("float16")))
    if capability >= (8, 9):
        found += [Product(dtype=dtype(name)) for name in ("float8_e4m3fn", "float8_e5m2")]
    if capability >= (7, 5):
        found.append(Product(dtype=dtype("int8")))
    return found


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
