"""Kernels of plain instructions: core clock, core-to-core latency, and pointer chase.

All have the signature ``void kernel(ptr state, i64 offset, i64 length)``; `offset` is unused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from roofline.machine.kernels.assembly import (
    ARM_SCALAR,
    SCALAR,
    Architecture,
    LoopContract,
    VectorUnit,
    counted_loop,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainKernel:
    """A kernel with explicit code and ``per_length`` units of work per length."""

    label: str
    unit: VectorUnit
    contract: LoopContract
    text: str
    per_length: int = 1
    quantity: Literal["cycle"] = "cycle"

    def work(self, length: int) -> int:
        """Return the cycles, transfers or loads of one call."""
        return length * self.per_length

    def ir(self) -> str:
        return self.text


CHAIN = 100
"""Additions per iteration; counter and branch run in parallel at no cost."""

_SUBTRACTION = {
    "x86_64": r"subq\s+%r\w+,\s*%r\w+$",
    "aarch64": r"sub\s+x(\d+),\s*x\1,\s*x\d+$",
}


def clock_kernel(architecture: Architecture) -> PlainKernel:
    """Return a loop of `CHAIN` dependent additions, one cycle each on every mainstream CPU.

    They are subtractions, which LLVM does not regroup. The operand comes from memory, because some
    CPUs (Intel since Golden Cove) add constants during register renaming. The state is the operand,
    then the running sum.
    """
    unit = VectorUnit(
        name="integer",
        architecture=architecture,
        bits=0,
        registers={"x86_64": 16, "aarch64": 32}[architecture],
        instruction_sets=frozenset(),
        llvm_features="",
    )
    entry = (
        "  %a = load i64, ptr %state, align 8",
        "  %at = getelementptr i8, ptr %state, i64 8",
        "  %first = load i64, ptr %at, align 8",
    )
    chain = (f"  %x{k + 1} = sub i64 %x{k}, %a" for k in range(CHAIN))
    body = (f"  %x0 = phi i64 [ %first, %entry ], [ %x{CHAIN}, %loop ]", *chain)
    return PlainKernel(
        label="clock",
        unit=unit,
        contract=LoopContract(instructions=((_SUBTRACTION[architecture], CHAIN),), others=4),
        text=counted_loop(entry, body, [f"  store i64 %x{CHAIN}, ptr %at, align 8"]),
        per_length=CHAIN,
    )


TURN_BYTE, FAILED_BYTE = 8, 16
CORE_TO_CORE_STATE_BYTE = 64

_PATIENCE = 1 << 17  # polls before a thread gives up: some 100 µs

_CORE_TO_CORE = f"""
define void @kernel(ptr %state, i64 %offset, i64 %length) {{
entry:
  %line = load ptr, ptr %state
  %turn.at = getelementptr i8, ptr %state, i64 {TURN_BYTE}
  %failed.at = getelementptr i8, ptr %state, i64 {FAILED_BYTE}
  %first = load i64, ptr %turn.at
  %given = mul i64 %length, 2
  %end = add i64 %first, %given
  %failed = load i64, ptr %failed.at
  %lost = icmp ne i64 %failed, 0
  br i1 %lost, label %exit, label %wait
wait:
  %turn = phi i64 [ %first, %entry ], [ %turn.next, %give ], [ %turn, %again ]
  %looks = phi i64 [ 0, %entry ], [ 0, %give ], [ %looks.next, %again ]
  %now = load atomic i64, ptr %line acquire, align 8
  %mine = icmp eq i64 %now, %turn
  br i1 %mine, label %give, label %again
again:
  %looks.next = add i64 %looks, 1
  %patient = icmp ult i64 %looks.next, {_PATIENCE}
  br i1 %patient, label %wait, label %fail
give:
  %written = add i64 %turn, 1
  store atomic i64 %written, ptr %line release, align 8
  %turn.next = add i64 %turn, 2
  %more = icmp ult i64 %turn.next, %end
  br i1 %more, label %wait, label %done
fail:
  store i64 1, ptr %failed.at
  br label %exit
done:
  store i64 %turn.next, ptr %turn.at
  br label %exit
exit:
  ret void
}}
"""


def _scalar(architecture: Architecture) -> VectorUnit:
    return SCALAR if architecture == "x86_64" else ARM_SCALAR


def core_to_core_kernel(architecture: Architecture) -> PlainKernel:
    """Return a kernel for two threads that alternate: each waits for its number, and writes the
    next.

    The length is the number of transfers per thread; work counts the transfers of both. Each
    thread's state holds the address of the shared line, its next number, and a failure flag: a
    thread without its CPU must not block the other one.
    """
    return PlainKernel(
        label="core-to-core",
        unit=_scalar(architecture),
        contract=LoopContract(loads=1, stores=1, others=12),
        text=_CORE_TO_CORE,
        per_length=2,
    )


Order = npt.NDArray[np.uint32]

UNROLL = 16
"""Loads per iteration; counter and branch run in parallel at no cost."""

STATE_BYTE = 64
LINE_BYTE = 64
"""Bytes per load. With 128-byte lines, two elements share a line and half of the loads beyond a
cache hit."""

SLOTS = LINE_BYTE // 8
"""Pointers per line, so that as many cycles share the same memory."""

_LOAD = {"x86_64": r"movq?\s+\(%(\w+)\), %\1$", "aarch64": r"ldr\s+(x\d+), \[\1\]$"}


def chase_kernel(architecture: Architecture) -> PlainKernel:
    """Return a kernel of dependent loads; the length is a multiple of ``UNROLL``.

    The state holds the start pointer, updated by each call, so that calls continue the cycle.
    """
    loads = (f"  %p{u + 1} = load ptr, ptr %p{u}" for u in range(UNROLL))
    return PlainKernel(
        label="pointer chase",
        unit=_scalar(architecture),
        contract=LoopContract(
            instructions=((_LOAD[architecture], UNROLL),), loads=UNROLL, others=4
        ),
        text=counted_loop(
            ["  %start = load ptr, ptr %state"],
            [f"  %p0 = phi ptr [ %start, %entry ], [ %p{UNROLL}, %loop ]", *loads],
            [f"  store ptr %p{UNROLL}, ptr %state"],
            step=UNROLL,
        ),
    )


def random_order(lines: int, *, most: int) -> Order:
    """Return a fixed random order of all lines, or of one line in each of `most` parts."""
    random = np.random.default_rng(0)
    if lines <= most:
        return random.permutation(np.arange(lines, dtype=np.uint32))
    starts = np.arange(most + 1, dtype=np.int64) * lines // most
    return random.permutation(random.integers(starts[:-1], starts[1:]).astype(np.uint32))


def write_cycle(memory: npt.NDArray[Any], slot: int, order: Order) -> None:
    """Write the cycle through the lines of `memory` in `order`, in pointer `slot` of each."""
    pointers = memory.view(np.uint64).reshape(-1, SLOTS)
    # Every pointer refers to the same slot of another line.
    after = np.roll(order, -1).astype(np.uint64) * np.uint64(LINE_BYTE)
    pointers[order, slot] = after + np.uint64(memory.ctypes.data + slot * 8)
