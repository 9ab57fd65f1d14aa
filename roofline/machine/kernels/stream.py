"""Stream kernels (read, write, copy, triad, update) and their state."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

from roofline.core.dtypes import DType
from roofline.machine.hardware import MemoryKernel
from roofline.machine.kernels.assembly import LoopContract, VectorUnit
from roofline.machine.kernels.register_loop import ComputeKernel
from roofline.machine.measuring.pinned_threads import Array, aligned

# Every kernel has the signature ``void kernel(ptr state, i64 offset, i64 length)`` and processes
# `length` bytes of each stream from `offset`; both are multiples of ``block_bytes``. The state
# holds three stream addresses, the factor s (float32), and at byte 64 the combined loads of
# `read`, so that no load is dead.

FACTOR_BYTE = 24
RESULT_BYTE = 64
STATE_BYTE = 128

_LINE_BYTE = 64

_READ_SUMS = 8
"""Maximum number of vectors that combine the loads of `read`, to hide the latency."""

# A short loop across two code lines is slower on CPUs with two loads per cycle.
_METADATA = (
    "!0 = !{i32 1}",
    "!1 = distinct !{!1, !2}",
    f'!2 = !{{!"llvm.loop.align", i32 {_LINE_BYTE}}}',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One of several equivalent variants of a loop.

    ``lines``: cache lines per stream and iteration; ``batch``: vectors loaded before the first
    store; ``crosswise``: even vectors first, then odd ones; ``combine``: operation on loads of
    `read`.
    """

    number: Literal[1, 2] = 1
    lines: int = 8
    batch: int = 1
    crosswise: bool = False
    combine: Literal["xor", "or"] = "xor"


@dataclass(frozen=True, slots=True)
class StreamKernel:
    """One pass over `streams` arrays, with `loads` and `stores` per element.

    ``arithmetic`` is the maximum number of instructions per vector.
    """

    name: MemoryKernel
    unit: VectorUnit
    streams: int
    loads: int
    stores: int
    arithmetic: int
    form: Form
    second: Form
    quantity: Literal["byte"] = "byte"

    def second_variant(self) -> StreamKernel:
        """Return the same work in another loop, as fast if the machine is the limit."""
        return dataclasses.replace(self, form=self.second)

    @property
    def non_temporal(self) -> bool:
        return self.name.endswith("-nt")

    @property
    def label(self) -> str:
        return f"{self.name} {self.unit.name}{', second variant' if self.form.number == 2 else ''}"

    @property
    def vector_bytes(self) -> int:
        return self.unit.bits // 8

    @property
    def block_bytes(self) -> int:
        return self.form.lines * _LINE_BYTE

    @property
    def vectors(self) -> int:
        return self.block_bytes // self.vector_bytes

    def work(self, length: int) -> int:
        """Return the bytes loaded and stored by one call over `length` bytes per stream."""
        return length * (self.loads + self.stores)

    @property
    def contract(self) -> LoopContract:
        return LoopContract(
            loads=self.vectors * self.loads,
            stores=self.vectors * self.stores,
            non_temporal=self.non_temporal,
            vector_bits=self.unit.bits,
            others=self.vectors * self.arithmetic + 4 * self.streams + 4,
        )

    @property
    def _vector(self) -> str:
        return f"<{self.unit.lanes(32)} x float>"

    @property
    def _bits(self) -> str:
        return self._vector.replace("float", "i32")

    @property
    def _sums(self) -> int:
        return min(self.vectors, _READ_SUMS) if self.name == "read" else 0

    def _load(self, result: str, stream: int, u: int) -> list[str]:
        at = f"%from{stream}.{u}"
        kind = self._bits if self._sums else self._vector
        return [
            f"  {at} = getelementptr i8, ptr %here{stream}, i64 {u * self.vector_bytes}",
            f"  {result} = load {kind}, ptr {at}, align {self.vector_bytes}",
        ]

    def _work(self, u: int) -> list[str]:
        """Return IR that loads vectors `u` of the streams and computes the result."""
        match self.name.removesuffix("-nt"):
            case "read":
                before, into = f"%seen{u - self._sums}", self.form.combine
                combined = f"  %seen{u} = {into} {self._bits} {before}, %b{u}"
                return [*self._load(f"%b{u}", 0, u), combined]
            case "copy":
                return self._load(f"%a{u}", 1, u)
            case "triad":
                return [
                    *self._load(f"%b{u}", 1, u),
                    *self._load(f"%c{u}", 2, u),
                    f"  %p{u} = fmul contract {self._vector} %s, %c{u}",
                    f"  %a{u} = fadd contract {self._vector} %b{u}, %p{u}",
                ]
            case "update":
                # s - a instead of s * a: bounded under repetition.
                return [*self._load(f"%b{u}", 0, u), f"  %a{u} = fsub {self._vector} %s, %b{u}"]
            case _:
                return []

    def _store(self, us: range) -> list[str]:
        """Return IR that stores adjacent vectors `us` to stream 0."""
        values = ["%s" if self.name.startswith("write") else f"%a{u}" for u in us]
        kind, starts = self._vector, us
        pairs: list[list[str]] = [[]] * len(us)
        # Arm's non-temporal store takes two registers; LLVM would split one.
        if self.non_temporal and self.unit.architecture == "aarch64":
            lanes, starts = 2 * self.unit.lanes(32), us[::2]
            kind, mask = f"<{lanes} x float>", ", ".join(f"i32 {lane}" for lane in range(lanes))
            pairs = [
                [
                    f"  %both{u} = shufflevector {self._vector} {one}, {self._vector} {other},"
                    f" <{lanes} x i32> <{mask}>"
                ]
                for u, one, other in zip(starts, values[::2], values[1::2], strict=True)
            ]
            values = [f"%both{u}" for u in starts]
        hint = ", !nontemporal !0" if self.non_temporal else ""
        lines: list[str] = []
        for u, value, pair in zip(starts, values, pairs, strict=True):
            lines += [
                *pair,
                f"  %to{u} = getelementptr i8, ptr %here0, i64 {u * self.vector_bytes}",
                f"  store {kind} {value}, ptr %to{u}, align {self.vector_bytes}{hint}",
            ]
        return lines

    def _pass(self) -> list[str]:
        order = range(self.vectors)
        if self.form.crosswise:
            return [line for u in (*order[::2], *order[1::2]) for line in self._work(u)]
        # Arm moves two registers in one instruction.
        batch = max(self.form.batch, 2 if self.unit.architecture == "aarch64" else 1)
        lines: list[str] = []
        for start in order[::batch]:
            us = order[start : start + batch]
            lines += [line for u in us for line in self._work(u)]
            lines += self._store(us) if self.stores else []
        return lines

    def ir(self) -> str:
        lanes, vector, bits = self.unit.lanes(32), self._vector, self._bits
        streams, sums = range(self.streams), self._sums
        lines = ["define void @kernel(ptr %state, i64 %offset, i64 %length) {", "entry:"]
        for s in streams:
            lines += [
                f"  %slot{s} = getelementptr ptr, ptr %state, i64 {s}",
                f"  %base{s} = load ptr, ptr %slot{s}",
                f"  %first{s} = getelementptr i8, ptr %base{s}, i64 %offset",
            ]
        # The last value of sum j in an iteration is that of its last vector.
        last = [f"%seen{self.vectors - sums + j}" for j in range(sums)]
        lines += [
            # The factor comes from memory: a constant would be folded into every use.
            f"  %factor.at = getelementptr i8, ptr %state, i64 {FACTOR_BYTE}",
            "  %factor = load float, ptr %factor.at",
            f"  %lane0 = insertelement {vector} poison, float %factor, i64 0",
            f"  %s = shufflevector {vector} %lane0, {vector} poison,"
            f" <{lanes} x i32> zeroinitializer",
            "  %end = getelementptr i8, ptr %first0, i64 %length",
            "  br label %loop",
            "loop:",
            *(f"  %here{s} = phi ptr [ %first{s}, %entry ], [ %next{s}, %loop ]" for s in streams),
            *(
                f"  %seen{j - sums} = phi {bits} [ zeroinitializer, %entry ], [ {end}, %loop ]"
                for j, end in enumerate(last)
            ),
            *self._pass(),
            *(
                f"  %next{s} = getelementptr i8, ptr %here{s}, i64 {self.block_bytes}"
                for s in streams
            ),
            "  %more = icmp ult ptr %next0, %end",
            "  br i1 %more, label %loop, label %exit, !llvm.loop !1",
            "exit:",
        ]
        if last:
            seen = last[0]
            for j in range(1, len(last)):
                lines.append(f"  %sum{j} = {self.form.combine} {bits} {seen}, {last[j]}")
                seen = f"%sum{j}"
            lines += [
                f"  %result = getelementptr i8, ptr %state, i64 {RESULT_BYTE}",
                f"  store {bits} {seen}, ptr %result, align {self.vector_bytes}",
            ]
        return "\n".join([*lines, "  ret void", "}", *_METADATA, ""])


# Fastest variants over all levels, and alternatives of equal speed, on Zen 5. Four lines of `read`
# lose 5 % in L1, sixteen lose half in L2; batches slow triad and update in L1; eight lines of
# `update` are up to 10 % slower in L2.
_ONE, _OTHER = Form(), Form(number=2, lines=4)
_BATCHED = Form(number=2, lines=4, batch=4)
_SIXTEEN = Form(number=2, lines=16)
_ROWS: dict[MemoryKernel, tuple[int, int, int, int, Form, Form]] = {
    "read": (1, 1, 0, 1, Form(crosswise=True), Form(number=2, combine="or")),
    "write": (1, 0, 1, 0, _ONE, _SIXTEEN),
    "copy": (2, 1, 1, 0, _ONE, _BATCHED),
    "triad": (3, 2, 1, 2, _ONE, _OTHER),
    "update": (1, 1, 1, 2, Form(lines=4), _SIXTEEN),
    "write-nt": (1, 0, 1, 0, _ONE, _OTHER),
    "copy-nt": (2, 1, 1, 0, _ONE, _BATCHED),
    "triad-nt": (3, 2, 1, 2, Form(lines=4, batch=4), Form(number=2)),
}
"""Streams, loads, stores, arithmetic; both variants."""


def stream_kernels(unit: VectorUnit) -> tuple[StreamKernel, ...]:
    return tuple(StreamKernel(name, unit, *row) for name, row in _ROWS.items())


def element_bits(values: Array, element: DType) -> Array:
    """Return numbers as bytes of an element type (bfloat16: truncated)."""
    if element.name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(element.name).view(np.uint8)


def compute_state(kernel: ComputeKernel, m: Array, a: Array, accumulators: Array) -> Array:
    """Return a kernel's state: factors `m` and `a`, and a row per accumulator."""
    state = aligned((2 + kernel.accumulators) * kernel.slot_byte, _LINE_BYTE)
    slots = state.reshape(-1, kernel.slot_byte)
    for slot, values, element in [
        (slots[0], m, kernel.factors[0]),
        (slots[1], a, kernel.factors[1]),
        *((slot, row, kernel.sums) for slot, row in zip(slots[2:], accumulators, strict=True)),
    ]:
        data = element_bits(values, element)
        slot[: data.size] = data
    return state


def random_state(kernel: ComputeKernel) -> Array:
    """Return a kernel's state with non-zero random operands.

    Factors are between 1/64 and 1/32, sums between 1/2 and 1, of either sign: no denormals and no
    overflow.
    """
    random = np.random.default_rng(0)

    def values(element: DType, scale: float, *shape: int) -> Array:
        lanes = kernel.slot_byte * 8 // element.bits
        if element.kind == "float":
            signs = random.choice([-scale, scale], (*shape, lanes))
            return signs * random.uniform(0.5, 1, (*shape, lanes))
        if element.name == "int16":
            return np.ones((*shape, lanes))
        # Even, as a factor of x + x * m: odd ones reach zero within 32 steps.
        return 2 * random.integers(1, 60, (*shape, lanes))

    return compute_state(
        kernel,
        values(kernel.factors[0], 2.0**-5),
        values(kernel.factors[1], 2.0**-5),
        values(kernel.sums, 1.0, kernel.accumulators),
    )


def stream_state(addresses: tuple[int, ...], factor: float) -> Array:
    """Return a stream kernel's state: stream addresses and factor."""
    state = aligned(STATE_BYTE, _LINE_BYTE)
    state.view(np.uint64)[: len(addresses)] = addresses
    state[FACTOR_BYTE:].view(np.float32)[0] = factor
    return state
