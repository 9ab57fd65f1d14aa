"""Loops that stay in registers: what every compute kernel is, and its code as LLVM IR.

Every kernel has the signature ``void kernel(ptr state, i64 offset, i64 length)``: `length` is the
number of loop iterations and `offset` is not used. The state is a row of equal slots: the two
factors, then the accumulators, which are read on entry and written back on exit so that the result
can be checked.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from dataclasses import dataclass
from typing import Literal

from roofline.foundation.dtypes import DType
from roofline.machine.kernels.assembly import LoopContract
from roofline.machine.kernels.units import VectorUnit

SLOT_BYTE = 64
SCALABLE_SLOT_BYTE = 256
"""The widest register that SVE allows."""

UNROLL = 4
SECOND_UNROLL = 6

_ALIGNMENT = 64

_RUN = 4
"""Steps of one operation before those of the next, where each has sums of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What an accumulator goes through in one step.

    ``code`` are lines of IR with the placeholders ``{m}``, ``{a}`` (factors), ``{x}`` (the
    accumulator), ``{y}`` (what it becomes) and ``{t}`` (begins the names of what lies between);
    ``declarations`` are the intrinsics that it calls; ``machine`` are regular expressions for the
    machine instructions that it must become, one each. ``flop`` counts a multiply and an add as one
    each, of integers too.
    """

    code: tuple[str, ...]
    declarations: tuple[str, ...] = ()
    machine: tuple[str, ...]
    flop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeKernel:
    """A loop of ``accumulators * unroll`` steps: one on each of the independent sums, then again.

    Each sum goes through the operations in turn, or, where there are ``shares``, each operation has
    so many sums of its own and all are repeated equally often. ``second_accumulators`` and
    ``second_unroll`` are those of the second form. ``dtype`` is what is multiplied; ``factors`` are
    the data types of m and a, ``sums`` that of the accumulators, and the ``…_type`` are their types
    in IR.
    """

    name: str
    dtype: DType
    unit: VectorUnit
    accumulators: int
    second_accumulators: int
    shares: tuple[int, ...] = ()
    unroll: int = UNROLL
    second_unroll: int = SECOND_UNROLL
    form: Literal[1, 2] = 1
    factors: tuple[DType, DType]
    sums: DType
    factor_types: tuple[str, str]
    accumulator_type: str
    operations: tuple[Operation, ...]

    @property
    def label(self) -> str:
        """How progress and errors name it: ``"fma float32 avx512"``."""
        second = ", second form" if self.form == 2 else ""
        return f"{self.name} {self.dtype} {self.unit.name}{second}"

    @property
    def slot_byte(self) -> int:
        """Bytes of the state for one register."""
        return SCALABLE_SLOT_BYTE if self.unit.scalable else SLOT_BYTE

    @property
    def state_bytes(self) -> int:
        """Bytes of the state: two factors and the accumulators."""
        return (2 + self.accumulators) * self.slot_byte

    def _steps(self) -> list[tuple[int, int, Operation]]:
        """One iteration: the accumulator of each step, how many it had before, the operation."""
        if self.shares:
            return self._shared_steps()
        order = range(self.accumulators)[:: 1 if self.form == 1 else -1]
        kinds = len(self.operations)
        return [(j, u, self.operations[(j + u) % kinds]) for u in range(self.unroll) for j in order]

    def _shared_steps(self) -> list[tuple[int, int, Operation]]:
        """The steps where each operation has sums of its own: runs of one, then of the other."""
        times = self.accumulators * self.unroll // len(self.operations)
        starts = itertools.accumulate(self.shares, initial=0)
        parts = list(zip(starts, self.shares, self.operations, strict=False))
        return [
            (start + n % share, n // share, operation)
            for begin in range(0, times, _RUN)
            for start, share, operation in parts[:: 1 if self.form == 1 else -1]
            for n in range(begin, min(begin + _RUN, times))
        ]

    def flop(self, length: int) -> int:
        """Operations of one call with `length` iterations: a multiply and an add are one each."""
        return length * sum(operation.flop for *_, operation in self._steps())

    @property
    def contract(self) -> LoopContract:
        """Nothing but its instructions and the loop's counter; nothing in memory."""
        wanted: collections.Counter[str] = collections.Counter()
        for *_, operation in self._steps():
            wanted.update(operation.machine)
        return LoopContract(instructions=tuple(wanted.items()))

    def _slots(self) -> list[str]:
        """IR that loads the factors and the accumulators."""
        lines: list[str] = []
        kinds = [*self.factor_types, *[self.accumulator_type] * self.accumulators]
        names = ["%m", "%a", *(f"%first{j}" for j in range(self.accumulators))]
        for slot, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            lines += [
                f"  {name}.at = getelementptr i8, ptr %state, i64 {slot * self.slot_byte}",
                f"  {name} = load {kind}, ptr {name}.at, align {_ALIGNMENT}",
            ]
        return lines

    def ir(self) -> str:
        """The kernel as LLVM IR text."""
        acc = self.accumulator_type
        steps = self._steps()
        repeats = collections.Counter(j for j, *_ in steps)
        after = [f"%acc{j}.{repeats[j]}" for j in range(self.accumulators)]
        body: list[str] = []
        for j, u, operation in steps:
            names = {"x": f"%acc{j}.{u}", "y": f"%acc{j}.{u + 1}", "t": f"%t{j}.{u}."}
            body += ["  " + line.format(m="%m", a="%a", **names) for line in operation.code]
        return "\n".join(
            [
                *dict.fromkeys(line for each in self.operations for line in each.declarations),
                "define void @kernel(ptr %state, i64 %offset, i64 %length) {",
                "entry:",
                *self._slots(),
                "  br label %loop",
                "loop:",
                "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
                *(
                    f"  %acc{j}.0 = phi {acc} [ %first{j}, %entry ], [ {last}, %loop ]"
                    for j, last in enumerate(after)
                ),
                *body,
                "  %i.next = add i64 %i, 1",
                "  %more = icmp ult i64 %i.next, %length",
                "  br i1 %more, label %loop, label %exit",
                "exit:",
                *(
                    f"  store {acc} {last}, ptr %first{j}.at, align {_ALIGNMENT}"
                    for j, last in enumerate(after)
                ),
                "  ret void",
                "}",
                "",
            ]
        )

    def second_form(self) -> ComputeKernel:
        """The same work with another number of sums, unrolled more, in the opposite order."""
        return dataclasses.replace(
            self, form=2, accumulators=self.second_accumulators, unroll=self.second_unroll
        )
