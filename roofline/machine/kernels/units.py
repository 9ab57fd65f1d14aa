"""Vector units: which widths a host can compute with, and what code for them must look like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Architecture = Literal["x86_64", "aarch64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorUnit:
    """One way a CPU computes: vector width in bits (0: one element at a time), vector registers.

    ``instruction_sets`` are the names by which the operating system reports what the unit needs;
    ``llvm_features`` turn on exactly that in the compiler, so that code for a narrow unit never
    borrows the encodings or registers of a wider one.
    """

    name: str
    architecture: Architecture
    bits: int
    registers: int
    instruction_sets: frozenset[str]
    llvm_features: str

    def lanes(self, element_bits: int) -> int:
        """Elements of `element_bits` that one vector holds; 1 for a scalar unit."""
        return max(1, self.bits // element_bits)

    @property
    def accumulators(self) -> int:
        """Independent sums that hide the FMA latency and leave registers for the two factors."""
        return 28 if self.registers == 32 else 12


def _x86(name: str, bits: int, registers: int, needs: str, features: str) -> VectorUnit:
    return VectorUnit(
        name=name,
        architecture="x86_64",
        bits=bits,
        registers=registers,
        instruction_sets=frozenset(needs.split()),
        llvm_features=features,
    )


def _arm(name: str, bits: int, needs: str, features: str) -> VectorUnit:
    return VectorUnit(
        name=name,
        architecture="aarch64",
        bits=bits,
        registers=32,
        instruction_sets=frozenset(needs.split()),
        llvm_features=features,
    )


SCALAR = _x86("scalar", 0, 16, "fma", "+avx,+fma")
SSE = _x86("sse", 128, 16, "fma", "+avx,+fma")
AVX2 = _x86("avx2", 256, 16, "fma avx2", "+avx2,+fma")
AVX512 = _x86("avx512", 512, 32, "fma avx512f", "+avx512f,+fma")
AVX512_BF16 = _x86("avx512-bf16", 512, 32, "avx512_bf16", "+avx512f,+avx512bw,+avx512bf16")
ARM_SCALAR = _arm("scalar", 0, "asimd", "+neon")
NEON = _arm("neon", 128, "asimd", "+neon")
NEON_BF16 = _arm("neon-bf16", 128, "asimd bf16", "+neon,+bf16")

# Loads and stores need no FMA, so streams have units of their own: the widest the CPU can move.
_STREAM_UNITS = (
    _x86("avx512", 512, 32, "avx512f", "+avx512f,+fma"),
    _x86("avx", 256, 16, "avx fma", "+avx,+fma"),
    _x86("sse2", 128, 16, "sse2", "+sse2"),
    _arm("neon", 128, "asimd", "+neon"),
)


def can_run(unit: VectorUnit, architecture: str, instruction_sets: Iterable[str]) -> bool:
    """Whether a host with these instruction sets has the unit."""
    return unit.architecture == architecture and unit.instruction_sets <= set(instruction_sets)


def stream_unit(architecture: str, instruction_sets: Iterable[str]) -> VectorUnit | None:
    """The unit with the widest loads and stores of such a host; None if no known unit fits."""
    available = set(instruction_sets)
    fitting = (unit for unit in _STREAM_UNITS if can_run(unit, architecture, available))
    return next(fitting, None)
