"""The pointer chase: loads each of which gives the next one's address, in random order.

The kernel has the signature ``void kernel(ptr state, i64 offset, i64 length)`` and makes `length`
loads, a multiple of ``UNROLL``; `offset` means nothing to it. The state holds the pointer to begin
with, and afterwards the one to go on with, so that calls follow one another round the cycle and no
load is dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

# Two registers are added in one cycle on every mainstream CPU. They are subtracted, which is the
# same adder: a chain of additions may be regrouped by LLVM, and is on Arm. The summand comes from
# memory, because some CPUs (Intel since Golden Cove) add a constant while they rename registers.

CHAIN = 100
"""Additions in one iteration: the counter and the branch run beside them and cost nothing."""

CLOCK_STATE_BYTE = 16
"""The summand, then the sum that goes on; whole numbers of 8 byte."""

_MACHINE = {
    "x86_64": r"subq\s+%r\w+,\s*%r\w+$",
    "aarch64": r"sub\s+x(\d+),\s*x\1,\s*x\d+$",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockKernel:
    """A loop of `CHAIN` additions, each of which waits for the one before it."""

    architecture: Architecture
    label: str = "clock"

    @property
    def unit(self) -> VectorUnit:
        """Plain integer instructions, which every CPU of the architecture has."""
        return VectorUnit(
            name="integer",
            architecture=self.architecture,
            bits=0,
            registers={"x86_64": 16, "aarch64": 32}[self.architecture],
            instruction_sets=frozenset(),
            llvm_features="",
        )

    @property
    def contract(self) -> LoopContract:
        """The additions and loop control, nothing else."""
        return LoopContract(instructions=((_MACHINE[self.architecture], CHAIN),), others=4)

    def cycles(self, length: int) -> int:
        """Cycles that one call with `length` iterations takes, but for its begin and end."""
        return length * CHAIN

    def ir(self) -> str:
        """The kernel as LLVM IR text."""
        entry = (
            "  %a = load i64, ptr %state, align 8",
            "  %at = getelementptr i8, ptr %state, i64 8",
            "  %first = load i64, ptr %at, align 8",
        )
        chain = (f"  %x{k + 1} = sub i64 %x{k}, %a" for k in range(CHAIN))
        body = (f"  %x0 = phi i64 [ %first, %entry ], [ %x{CHAIN}, %loop ]", *chain)
        return counted_loop(entry, body, [f"  store i64 %x{CHAIN}, ptr %at, align 8"])


# The kernel has the signature ``void kernel(ptr state, i64 offset, i64 length)``; `length` is how
# often a thread gives the line away, and `offset` means nothing to it. The state of each thread
# holds the address of the shared line, the thread's next turn, and whether it gave up waiting for
# the other: a thread that lost its CPU must not keep the other one waiting for ever.

TURN_BYTE, FAILED_BYTE = 8, 16
HOP_STATE_BYTE = 64

_PATIENCE = 1 << 17
"""Looks at the line before a thread gives up: some hundred microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HopKernel:
    """Two threads in turn: each waits for its number on the line, and writes the next."""

    unit: VectorUnit
    label: str = "hop"

    @property
    def contract(self) -> LoopContract:
        """One load and one store, and what decides about them."""
        return LoopContract(loads=1, stores=1, others=12)

    def hops(self, length: int) -> int:
        """Journeys of the line, to and fro, in one call on both threads."""
        return 2 * length

    def ir(self) -> str:
        """The kernel as LLVM IR text."""
        return f"""
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


def hop_kernel(architecture: Architecture) -> HopKernel:
    """The hop of an architecture."""
    return HopKernel(unit=SCALAR if architecture == "x86_64" else ARM_SCALAR)


Order = npt.NDArray[np.uint32]

UNROLL = 16
"""Loads per loop iteration: counter and branch run beside them and cost nothing."""

STATE_BYTE = 64
LINE_BYTE = 64
"""What one load brings; where lines have 128 bytes, two places share one, and half of the loads of
a working set beyond a cache find what another brought, as they would in a program."""

SLOTS = LINE_BYTE // 8
"""Pointers that a line has room for: as many cycles can lie in the same memory."""

_LOAD = {"x86_64": r"movq?\s+\(%(\w+)\), %\1$", "aarch64": r"ldr\s+(x\d+), \[\1\]$"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaseKernel:
    """Dependent loads, with the plain instructions that every CPU of `unit`'s architecture has."""

    unit: VectorUnit
    label: str = "pointer chase"

    @property
    def contract(self) -> LoopContract:
        """Every load through the register that the load before it wrote, and the loop's control."""
        return LoopContract(
            instructions=((_LOAD[self.unit.architecture], UNROLL),), loads=UNROLL, others=4
        )

    def ir(self) -> str:
        """The kernel as LLVM IR text."""
        loads = (f"  %p{u + 1} = load ptr, ptr %p{u}" for u in range(UNROLL))
        return counted_loop(
            ["  %start = load ptr, ptr %state"],
            [f"  %p0 = phi ptr [ %start, %entry ], [ %p{UNROLL}, %loop ]", *loads],
            [f"  store ptr %p{UNROLL}, ptr %state"],
            step=UNROLL,
        )


def chase_kernel(architecture: Architecture) -> ChaseKernel:
    """The pointer chase for an architecture."""
    return ChaseKernel(unit=SCALAR if architecture == "x86_64" else ARM_SCALAR)


def random_order(lines: int, *, most: int) -> Order:
    """Lines of a working set of `lines`, each at most once, in random order, always the same.

    All of them if they are no more than `most`; else `most`, one from each part of the working set.
    """
    random = np.random.default_rng(0)
    if lines <= most:
        return random.permutation(np.arange(lines, dtype=np.uint32))
    starts = np.arange(most + 1, dtype=np.int64) * lines // most
    return random.permutation(random.integers(starts[:-1], starts[1:]).astype(np.uint32))


def write_cycle(memory: npt.NDArray[Any], slot: int, order: Order) -> None:
    """Writes the cycle that visits the lines of `memory` in `order`, in pointer `slot` of each.

    Args:
        memory: bytes that start on a line, and reach to the last line of `order`.
        slot: which of a line's ``SLOTS`` pointers to write; the others stay as they are.
        order: numbers of lines, each at most once.
    """
    pointers = memory.view(np.uint64).reshape(-1, SLOTS)
    # Every pointer leads to the same slot of another line.
    after = np.roll(order, -1).astype(np.uint64) * np.uint64(LINE_BYTE)
    pointers[order, slot] = after + np.uint64(memory.ctypes.data + slot * 8)
