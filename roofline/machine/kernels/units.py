"""Vector units: which widths a host can compute with, and what code for them must look like."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Architecture = Literal["x86_64", "aarch64"]

_PR_SVE_GET_VL = 51
_SVE_LENGTH_MASK = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorUnit:
    """One way a CPU computes: vector width in bits (0: one element at a time), vector registers.

    ``instruction_sets`` are the names by which the operating system reports what the unit needs;
    ``llvm_features`` turn on exactly that in the compiler, so that code for a narrow unit never
    borrows the encodings or registers of a wider one. The code for a ``scalable`` unit is the same
    at every width; its width is the host's. For a unit ``by_permission`` a process has to ask.
    """

    name: str
    architecture: Architecture
    bits: int
    registers: int
    instruction_sets: frozenset[str]
    llvm_features: str
    scalable: bool = False
    by_permission: bool = False

    def lanes(self, element_bits: int) -> int:
        """Elements of `element_bits` that one vector holds; 1 for a scalar unit."""
        return max(1, self.bits // element_bits)

    @property
    def accumulators(self) -> int:
        """Independent sums that hide the FMA latency and leave registers for the two factors."""
        return 28 if self.registers == 32 else 12

    @property
    def second_accumulators(self) -> int:
        """Another such number, with which a second kernel must be as fast."""
        return 24 if self.registers == 32 else 14


def _x86(name: str, bits: int, registers: int, needs: str, features: str) -> VectorUnit:
    return VectorUnit(
        name=name,
        architecture="x86_64",
        bits=bits,
        registers=registers,
        instruction_sets=frozenset(needs.split()),
        llvm_features=features,
        by_permission="+amx" in features,
    )


def _arm(name: str, bits: int, needs: str, features: str) -> VectorUnit:
    return VectorUnit(
        name=name,
        architecture="aarch64",
        bits=bits,
        registers=32,
        instruction_sets=frozenset(needs.split()),
        llvm_features=features,
        scalable=features.startswith("+sve"),
    )


SCALAR = _x86("scalar", 0, 16, "fma", "+avx,+fma")
SSE = _x86("sse", 128, 16, "fma", "+avx,+fma")
AVX2 = _x86("avx2", 256, 16, "fma avx2", "+avx2,+fma")
AVX_VNNI = _x86("avx-vnni", 256, 16, "avx2 avx_vnni", "+avx2,+avxvnni")
AVX_VNNI_INT8 = _x86("avx-vnni-int8", 256, 16, "avx2 avx_vnni_int8", "+avx2,+avxvnniint8")
AVX512 = _x86("avx512", 512, 32, "fma avx512f", "+avx512f,+fma")
AVX512_BYTES = _x86("avx512", 512, 32, "avx512f avx512bw", "+avx512f,+avx512bw")
AVX512_BF16 = _x86("avx512-bf16", 512, 32, "avx512_bf16", "+avx512f,+avx512bw,+avx512bf16")
AVX512_FP16 = _x86("avx512-fp16", 512, 32, "avx512_fp16", "+avx512f,+avx512bw,+avx512fp16")
AVX512_VNNI = _x86("avx512-vnni", 512, 32, "avx512_vnni", "+avx512f,+avx512bw,+avx512vnni")
AMX_BF16 = _x86("amx", 0, 8, "amx_tile amx_bf16", "+amx-tile,+amx-bf16")
AMX_INT8 = _x86("amx", 0, 8, "amx_tile amx_int8", "+amx-tile,+amx-int8")
AMX_FP16 = _x86("amx", 0, 8, "amx_tile amx_fp16", "+amx-tile,+amx-fp16")

ARM_SCALAR = _arm("scalar", 0, "asimd", "+neon")
ARM_SCALAR_FP16 = _arm("scalar", 0, "asimd fphp", "+neon,+fullfp16")
NEON = _arm("neon", 128, "asimd", "+neon")
NEON_FP16 = _arm("neon", 128, "asimd asimdhp", "+neon,+fullfp16")
NEON_DOT = _arm("neon-dot", 128, "asimd asimddp", "+neon,+dotprod")
NEON_BF16 = _arm("neon-bf16", 128, "asimd bf16", "+neon,+bf16")
NEON_I8MM = _arm("neon-i8mm", 128, "asimd i8mm", "+neon,+i8mm")
# The least width that there is stands for all until the host's is known.
SVE = _arm("sve", 128, "sve", "+sve")
SVE_BF16 = _arm("sve-bf16", 128, "sve svebf16", "+sve,+bf16")
SVE_I8MM = _arm("sve-i8mm", 128, "sve svei8mm", "+sve,+i8mm")

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


def sve_vector_bits() -> int | None:
    """Bits of an SVE register in this process; None without SVE or where it cannot be asked."""
    if not sys.platform.startswith("linux"):
        return None
    length = ctypes.CDLL(None, use_errno=True).prctl(_PR_SVE_GET_VL, 0, 0, 0, 0)
    return 8 * (length & _SVE_LENGTH_MASK) if length > 0 else None
