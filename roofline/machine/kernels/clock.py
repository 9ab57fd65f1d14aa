"""The clock kernel: a chain of dependent integer additions, each of which takes one cycle.

Two registers are added in one cycle on every mainstream CPU. They are subtracted, which is the same
adder: a chain of additions may be regrouped by LLVM, and is on Arm. The summand comes from memory,
because some CPUs (Intel since Golden Cove) add a constant while they rename registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofline.machine.kernels.assembly import LoopContract
from roofline.machine.kernels.units import Architecture, VectorUnit

CHAIN = 100
"""Additions in one iteration: the counter and the branch run beside them and cost nothing."""

STATE_BYTE = 16
"""The summand, then the sum that goes on; whole numbers of 8 byte."""

_MACHINE = {
    "x86_64": r"subq\s+%r\w+,\s*%r\w+$",
    "aarch64": r"sub\s+x(\d+),\s*x\1,\s*x\d+$",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockKernel:
    """A loop of `CHAIN` additions, each of which waits for the one before it."""

    architecture: Architecture

    @property
    def label(self) -> str:
        """How progress and errors name it."""
        return "clock"

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
        lines = [
            "define void @kernel(ptr %state, i64 %offset, i64 %length) {",
            "entry:",
            "  %a = load i64, ptr %state, align 8",
            "  %at = getelementptr i8, ptr %state, i64 8",
            "  %first = load i64, ptr %at, align 8",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
            f"  %x0 = phi i64 [ %first, %entry ], [ %x{CHAIN}, %loop ]",
        ]
        lines += [f"  %x{k + 1} = sub i64 %x{k}, %a" for k in range(CHAIN)]
        lines += [
            "  %i.next = add i64 %i, 1",
            "  %more = icmp ult i64 %i.next, %length",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
            f"  store i64 %x{CHAIN}, ptr %at, align 8",
            "  ret void",
            "}",
            "",
        ]
        return "\n".join(lines)
