"""The hop: two threads hand a cache line to and fro, which tells how near their cores are.

The kernel has the signature ``void kernel(ptr state, i64 offset, i64 length)``; `length` is how
often a thread gives the line away, and `offset` means nothing to it. The state of each thread holds
the address of the shared line, the thread's next turn, and whether it gave up waiting for the
other: a thread that lost its CPU must not keep the other one waiting for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofline.machine.kernels.assembly import LoopContract
from roofline.machine.kernels.units import ARM_SCALAR, SCALAR, Architecture, VectorUnit

TURN_BYTE, FAILED_BYTE = 8, 16
STATE_BYTE = 64

_PATIENCE = 1 << 17
"""Looks at the line before a thread gives up: some hundred microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HopKernel:
    """Two threads in turn: each waits for its number on the line, and writes the next."""

    unit: VectorUnit

    @property
    def label(self) -> str:
        """How progress and errors name it."""
        return "hop"

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
