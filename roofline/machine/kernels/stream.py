"""Stream kernels: loops that move whole vectors between memory and registers.

Every kernel has the signature ``void kernel(ptr state, i64 offset, i64 length)`` and goes once over
`length` bytes of each of its streams, from `offset` on; both are multiples of ``block_byte``. The
state holds the stream addresses (three pointers), then the factor s (float32), then, 64 bytes in, a
vector that `read` leaves the exclusive or of all it loaded in, so that no load is dead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from roofline.machine.hardware import MemoryKernel
from roofline.machine.kernels.units import VectorUnit

VECTORS = 8
"""Vectors per loop iteration and stream."""

FACTOR_BYTE = 24
RESULT_BYTE = 64
STATE_BYTE = 128

ELEMENT_BYTE = 4
"""All streams hold float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKernel:
    """One pass over `streams` arrays, with `loads` and `stores` of each element's place.

    ``flop_per_element`` counts an add and a multiply as one each. ``non_temporal`` stores go past
    the caches and need no read for ownership.
    """

    name: MemoryKernel
    unit: VectorUnit
    streams: int
    loads: int
    stores: int
    flop_per_element: int
    non_temporal: bool
    body: Callable[[StreamKernel], list[str]]

    @property
    def label(self) -> str:
        """How progress and errors name it: ``"triad avx512"``."""
        return f"{self.name} {self.unit.name}"

    @property
    def vector_byte(self) -> int:
        """Bytes of one load or store."""
        return self.unit.bits // 8

    @property
    def block_byte(self) -> int:
        """Bytes of each stream in one loop iteration."""
        return self.vector_byte * VECTORS

    def byte(self, length: int) -> int:
        """Bytes that one call over `length` bytes of each stream loads and stores."""
        return length * (self.loads + self.stores)

    def flop(self, length: int) -> int:
        """Floating-point operations of one call over `length` bytes of each stream."""
        return length // ELEMENT_BYTE * self.flop_per_element

    @property
    def vector(self) -> str:
        """The IR type of one vector."""
        return f"<{self.unit.lanes(32)} x float>"

    @property
    def bits(self) -> str:
        """The IR type of one vector's bits."""
        return f"<{self.unit.lanes(32)} x i32>"

    def load(self, result: str, stream: int, u: int, kind: str) -> list[str]:
        """IR that loads vector `u` of `stream` into `result`."""
        at = f"%from{stream}.{u}"
        return [
            f"  {at} = getelementptr i8, ptr %here{stream}, i64 {u * self.vector_byte}",
            f"  {result} = load {kind}, ptr {at}, align {self.vector_byte}",
        ]

    def store(self, value: str, stream: int, u: int) -> list[str]:
        """IR that stores `value` to vector `u` of `stream`."""
        at = f"%to{stream}.{u}"
        hint = ", !nontemporal !0" if self.non_temporal else ""
        return [
            f"  {at} = getelementptr i8, ptr %here{stream}, i64 {u * self.vector_byte}",
            f"  store {self.vector} {value}, ptr {at}, align {self.vector_byte}{hint}",
        ]

    def ir(self) -> str:
        """The kernel as LLVM IR text."""
        lanes, vector, bits = self.unit.lanes(32), self.vector, self.bits
        reads = self.name == "read"
        lines = ["define void @kernel(ptr %state, i64 %offset, i64 %length) {", "entry:"]
        for s in range(self.streams):
            lines += [
                f"  %slot{s} = getelementptr ptr, ptr %state, i64 {s}",
                f"  %base{s} = load ptr, ptr %slot{s}",
            ]
        lines += [
            # The factor comes from memory, once: a constant would be folded into every use.
            f"  %factor.at = getelementptr i8, ptr %state, i64 {FACTOR_BYTE}",
            "  %factor = load float, ptr %factor.at",
            f"  %lane0 = insertelement {vector} poison, float %factor, i64 0",
            f"  %s = shufflevector {vector} %lane0, {vector} poison,"
            f" <{lanes} x i32> zeroinitializer",
            "  %end = add i64 %offset, %length",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ %offset, %entry ], [ %i.next, %loop ]",
        ]
        if reads:
            lines += [
                f"  %seen{u} = phi {bits} [ zeroinitializer, %entry ], [ %seen{u}.next, %loop ]"
                for u in range(VECTORS)
            ]
        lines += [
            f"  %here{s} = getelementptr i8, ptr %base{s}, i64 %i" for s in range(self.streams)
        ]
        lines += self.body(self)
        lines += [
            f"  %i.next = add i64 %i, {self.block_byte}",
            "  %more = icmp ult i64 %i.next, %end",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
        ]
        if reads:
            seen = "%seen0.next"
            for u in range(1, VECTORS):
                lines.append(f"  %sum{u} = xor {bits} {seen}, %seen{u}.next")
                seen = f"%sum{u}"
            lines += [
                f"  %result = getelementptr i8, ptr %state, i64 {RESULT_BYTE}",
                f"  store {bits} {seen}, ptr %result, align {self.vector_byte}",
            ]
        return "\n".join([*lines, "  ret void", "}", "!0 = !{i32 1}", ""])


def _read(kernel: StreamKernel) -> list[str]:
    lines: list[str] = []
    for u in range(VECTORS):
        lines += kernel.load(f"%b{u}", 0, u, kernel.bits)
        lines.append(f"  %seen{u}.next = xor {kernel.bits} %seen{u}, %b{u}")
    return lines


def _write(kernel: StreamKernel) -> list[str]:
    return [line for u in range(VECTORS) for line in kernel.store("%s", 0, u)]


def _copy(kernel: StreamKernel) -> list[str]:
    lines: list[str] = []
    for u in range(VECTORS):
        lines += [*kernel.load(f"%b{u}", 1, u, kernel.vector), *kernel.store(f"%b{u}", 0, u)]
    return lines


def _triad(kernel: StreamKernel) -> list[str]:
    lines: list[str] = []
    for u in range(VECTORS):
        lines += [
            *kernel.load(f"%b{u}", 1, u, kernel.vector),
            *kernel.load(f"%c{u}", 2, u, kernel.vector),
            f"  %p{u} = fmul contract {kernel.vector} %s, %c{u}",
            f"  %a{u} = fadd contract {kernel.vector} %b{u}, %p{u}",
            *kernel.store(f"%a{u}", 0, u),
        ]
    return lines


def _update(kernel: StreamKernel) -> list[str]:
    lines: list[str] = []
    for u in range(VECTORS):
        lines += [
            *kernel.load(f"%b{u}", 0, u, kernel.vector),
            # s - a and not s * a: repeated a million times it neither grows nor fades away.
            f"  %a{u} = fsub {kernel.vector} %s, %b{u}",
            *kernel.store(f"%a{u}", 0, u),
        ]
    return lines


_Row = tuple[MemoryKernel, int, int, int, int, bool, Callable[[StreamKernel], list[str]]]
_ROWS: tuple[_Row, ...] = (
    ("read", 1, 1, 0, 0, False, _read),
    ("write", 1, 0, 1, 0, False, _write),
    ("copy", 2, 1, 1, 0, False, _copy),
    ("triad", 3, 2, 1, 2, False, _triad),
    ("update", 1, 1, 1, 1, False, _update),
    ("write-nt", 1, 0, 1, 0, True, _write),
    ("copy-nt", 2, 1, 1, 0, True, _copy),
    ("triad-nt", 3, 2, 1, 2, True, _triad),
)


def stream_kernels(unit: VectorUnit, *, non_temporal: bool) -> tuple[StreamKernel, ...]:
    """The stream kernels of a vector unit; those past the caches only if `non_temporal`."""
    return tuple(
        StreamKernel(
            name=name,
            unit=unit,
            streams=streams,
            loads=loads,
            stores=stores,
            flop_per_element=flop,
            non_temporal=past_caches,
            body=body,
        )
        for name, streams, loads, stores, flop, past_caches, body in _ROWS
        if non_temporal or not past_caches
    )
