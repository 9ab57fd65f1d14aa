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

from roofline.machine.kernels.assembly import LoopContract
from roofline.machine.kernels.units import ARM_SCALAR, SCALAR, Architecture, VectorUnit

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

    @property
    def label(self) -> str:
        """How progress and errors name it."""
        return "pointer chase"

    @property
    def contract(self) -> LoopContract:
        """Every load through the register that the load before it wrote, and the loop's control."""
        return LoopContract(
            instructions=((_LOAD[self.unit.architecture], UNROLL),), loads=UNROLL, others=4
        )

    def ir(self) -> str:
        """The kernel as LLVM IR text."""
        loads = [f"  %p{u + 1} = load ptr, ptr %p{u}" for u in range(UNROLL)]
        return "\n".join(
            [
                "define void @kernel(ptr %state, i64 %offset, i64 %length) {",
                "entry:",
                "  %start = load ptr, ptr %state",
                "  br label %loop",
                "loop:",
                "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
                f"  %p0 = phi ptr [ %start, %entry ], [ %p{UNROLL}, %loop ]",
                *loads,
                f"  %i.next = add i64 %i, {UNROLL}",
                "  %more = icmp ult i64 %i.next, %length",
                "  br i1 %more, label %loop, label %exit",
                "exit:",
                f"  store ptr %p{UNROLL}, ptr %state",
                "  ret void",
                "}",
                "",
            ]
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
