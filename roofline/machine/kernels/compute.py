"""Compute kernels: loops of independent multiply-adds that stay in registers.

Every kernel has the signature ``void kernel(ptr state, i64 offset, i64 length)``: `length` is the
number of loop iterations and `offset` is not used. The state is a row of 64-byte slots: the two
factors, then the accumulators, which are read on entry and written back on exit so that the result
can be checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.foundation.dtypes import DType, dtype
from roofline.machine.kernels.units import (
    ARM_SCALAR,
    AVX2,
    AVX512,
    AVX512_BF16,
    NEON,
    NEON_BF16,
    SCALAR,
    SSE,
    VectorUnit,
    can_run,
)

FLOP_PER_FMA = 2
SLOT_BYTE = 64
UNROLL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeKernel:
    """A loop of ``accumulators * UNROLL`` independent instructions of one kind.

    ``instruction`` is the IR call with the placeholders ``{m}``, ``{a}`` (factors) and ``{acc}``;
    ``mnemonic`` is a regular expression for the one machine instruction it must become;
    ``flop_per_instruction`` counts a multiply and an add as two.
    """

    name: str
    dtype: DType
    unit: VectorUnit
    accumulators: int
    factor_type: str
    accumulator_type: str
    declaration: str
    instruction: str
    mnemonic: str
    flop_per_instruction: int

    @property
    def label(self) -> str:
        """How progress and errors name it: ``"fma float32 avx512"``."""
        return f"{self.name} {self.dtype} {self.unit.name}"

    @property
    def instructions(self) -> int:
        """Instructions of the wanted kind in one loop iteration."""
        return self.accumulators * UNROLL

    @property
    def state_byte(self) -> int:
        """Bytes of the state: two factors and the accumulators."""
        return (2 + self.accumulators) * SLOT_BYTE

    def flop(self, length: int) -> int:
        """Floating-point operations of one call with `length` iterations."""
        return length * self.instructions * self.flop_per_instruction

    def ir(self) -> str:
        """The kernel as LLVM IR text."""
        acc, factor = self.accumulator_type, self.factor_type
        lines = [
            self.declaration,
            "define void @kernel(ptr %state, i64 %offset, i64 %length) {",
            "entry:",
            f"  %m = load {factor}, ptr %state, align {SLOT_BYTE}",
            f"  %a.at = getelementptr i8, ptr %state, i64 {SLOT_BYTE}",
            f"  %a = load {factor}, ptr %a.at, align {SLOT_BYTE}",
        ]
        for j in range(self.accumulators):
            lines += [
                f"  %at{j} = getelementptr i8, ptr %state, i64 {(2 + j) * SLOT_BYTE}",
                f"  %first{j} = load {acc}, ptr %at{j}, align {SLOT_BYTE}",
            ]
        lines += ["  br label %loop", "loop:", "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]"]
        lines += [
            f"  %acc{j}.0 = phi {acc} [ %first{j}, %entry ], [ %acc{j}.{UNROLL}, %loop ]"
            for j in range(self.accumulators)
        ]
        for u in range(UNROLL):
            for j in range(self.accumulators):
                # acc = fma(m, a, acc): the accumulator is the addend, because an x = fma(x, m, a)
                # costs a move for every multiply-add on Arm, and never settles at a finite value.
                call = self.instruction.format(m="%m", a="%a", acc=f"%acc{j}.{u}")
                lines.append(f"  %acc{j}.{u + 1} = {call}")
        lines += [
            "  %i.next = add i64 %i, 1",
            "  %more = icmp ult i64 %i.next, %length",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
        ]
        lines += [
            f"  store {acc} %acc{j}.{UNROLL}, ptr %at{j}, align {SLOT_BYTE}"
            for j in range(self.accumulators)
        ]
        return "\n".join([*lines, "  ret void", "}", ""])


def fma_kernel(element: DType, unit: VectorUnit, accumulators: int | None = None) -> ComputeKernel:
    """The fused multiply-add kernel of a float32 or float64 vector unit."""
    lanes = unit.lanes(element.bits)
    scalar = {32: "float", 64: "double"}[element.bits]
    kind = f"<{lanes} x {scalar}>" if lanes > 1 else scalar
    suffix = f"v{lanes}f{element.bits}" if lanes > 1 else f"f{element.bits}"
    call = f"call {kind} @llvm.fma.{suffix}({kind} {{m}}, {kind} {{a}}, {kind} {{acc}})"
    return ComputeKernel(
        name="fma",
        dtype=element,
        unit=unit,
        accumulators=accumulators or unit.accumulators,
        factor_type=kind,
        accumulator_type=kind,
        declaration=f"declare {kind} @llvm.fma.{suffix}({kind}, {kind}, {kind})",
        instruction=call,
        mnemonic=_fma_mnemonic(element, unit),
        flop_per_instruction=lanes * FLOP_PER_FMA,
    )


def _fma_mnemonic(element: DType, unit: VectorUnit) -> str:
    if unit.architecture == "aarch64":
        if not unit.bits:
            return rf"fmadd\s+{'s' if element.bits == 32 else 'd'}\d"
        # GNU writes `fmla v0.4s, …`, Apple's assembler `fmla.4s v0, …`.
        arrangement = "4s" if element.bits == 32 else "2d"
        return rf"fmla(\.{arrangement}\s|\s+v\d+\.{arrangement})"
    kind = ("s" if not unit.bits else "p") + ("s" if element.bits == 32 else "d")
    register = {0: "xmm", 128: "xmm", 256: "ymm", 512: "zmm"}[unit.bits]
    return rf"vfmadd\d{{3}}{kind}\s+%{register}"


_FLOAT32, _FLOAT64, _BFLOAT16 = dtype("float32"), dtype("float64"), dtype("bfloat16")

# One instruction multiplies pairs of bfloat16 and adds both products to a float32 lane.
_DOT_BF16_X86 = ComputeKernel(
    name="dot",
    dtype=_BFLOAT16,
    unit=AVX512_BF16,
    accumulators=AVX512_BF16.accumulators,
    factor_type="<16 x i32>",
    accumulator_type="<16 x float>",
    declaration=(
        "declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512"
        "(<16 x float>, <16 x i32>, <16 x i32>)"
    ),
    instruction=(
        "call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512"
        "(<16 x float> {acc}, <16 x i32> {m}, <16 x i32> {a})"
    ),
    mnemonic=r"vdpbf16ps\s+%zmm",
    flop_per_instruction=32 * FLOP_PER_FMA,
)
_DOT_BF16_ARM = ComputeKernel(
    name="dot",
    dtype=_BFLOAT16,
    unit=NEON_BF16,
    accumulators=NEON_BF16.accumulators,
    factor_type="<8 x bfloat>",
    accumulator_type="<4 x float>",
    declaration=(
        "declare <4 x float> @llvm.aarch64.neon.bfdot.v4f32.v8bf16"
        "(<4 x float>, <8 x bfloat>, <8 x bfloat>)"
    ),
    instruction=(
        "call <4 x float> @llvm.aarch64.neon.bfdot.v4f32.v8bf16"
        "(<4 x float> {acc}, <8 x bfloat> {m}, <8 x bfloat> {a})"
    ),
    mnemonic=r"bfdot(\.4s\s|\s+v\d+\.4s)",
    flop_per_instruction=8 * FLOP_PER_FMA,
)

COMPUTE_KERNELS: tuple[ComputeKernel, ...] = (
    *(
        fma_kernel(element, unit)
        for unit in (SCALAR, SSE, AVX2, AVX512, ARM_SCALAR, NEON)
        for element in (_FLOAT32, _FLOAT64)
    ),
    _DOT_BF16_X86,
    _DOT_BF16_ARM,
)
"""Every compute kernel there is; a row more is all that a new instruction takes."""


def compute_kernels(
    architecture: str, instruction_sets: Iterable[str]
) -> tuple[ComputeKernel, ...]:
    """The compute kernels that a host with these instruction sets can run."""
    available = frozenset(instruction_sets)
    return tuple(
        kernel for kernel in COMPUTE_KERNELS if can_run(kernel.unit, architecture, available)
    )
