"""Check of compiled kernels: the hot loop in the assembly must match the kernel's contract.

A loop that spills its sums would measure a wrong but plausible ceiling, so such kernels are
rejected.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from roofline.errors import MeasurementError

Architecture = Literal["x86_64", "aarch64"]

_PR_SVE_GET_VL = 51
_SVE_LENGTH_MASK = 0xFFFF


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """A vector unit: width in bits (0: scalar) and number of registers.

    ``instruction_sets`` are named as by the operating system. ``llvm_features`` enable exactly
    these in the compiler, so that code for a narrow unit never uses encodings or registers of a
    wider one. Code for a ``scalable`` unit is the same at every width.
    """

    name: str
    architecture: Architecture
    bits: int
    registers: int
    instruction_sets: frozenset[str]
    llvm_features: str

    @property
    def scalable(self) -> bool:
        return self.llvm_features.startswith("+sve")

    @property
    def by_permission(self) -> bool:
        return "+amx" in self.llvm_features

    def lanes(self, element_bits: int) -> int:
        """Return the elements of `element_bits` per vector; 1 for a scalar unit."""
        return max(1, self.bits // element_bits)

    @property
    def accumulators(self) -> tuple[int, int]:
        """Two numbers of sums that hide the FMA latency and leave registers for the factors."""
        return (28, 24) if self.registers == 32 else (12, 14)


def _x86(name: str, bits: int, registers: int, needs: str, features: str) -> VectorUnit:
    return VectorUnit(name, "x86_64", bits, registers, frozenset(needs.split()), features)


def _arm(name: str, bits: int, needs: str, features: str) -> VectorUnit:
    return VectorUnit(name, "aarch64", bits, 32, frozenset(needs.split()), features)


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
# The minimum width, replaced by that of the host.
SVE = _arm("sve", 128, "sve", "+sve")
SVE_BF16 = _arm("sve-bf16", 128, "sve svebf16", "+sve,+bf16")
SVE_I8MM = _arm("sve-i8mm", 128, "sve svei8mm", "+sve,+i8mm")

# Streams need no FMA, so they have their own units, widest first.
_STREAM_UNITS = (
    _x86("avx512", 512, 32, "avx512f", "+avx512f,+fma"),
    _x86("avx", 256, 16, "avx fma", "+avx,+fma"),
    _x86("sse2", 128, 16, "sse2", "+sse2"),
    _arm("neon", 128, "asimd", "+neon"),
)


def can_run(unit: VectorUnit, architecture: str, instruction_sets: Iterable[str]) -> bool:
    """Return True if a host with these instruction sets has the unit."""
    return unit.architecture == architecture and unit.instruction_sets <= set(instruction_sets)


def stream_unit(architecture: str, instruction_sets: Iterable[str]) -> VectorUnit | None:
    """Return the unit with the widest loads and stores; None if unknown."""
    available = set(instruction_sets)
    return next((unit for unit in _STREAM_UNITS if can_run(unit, architecture, available)), None)


def sve_vector_bits() -> int | None:
    """Return the SVE register width in bits; None without SVE."""
    if not sys.platform.startswith("linux"):
        return None
    length = ctypes.CDLL(None, use_errno=True).prctl(_PR_SVE_GET_VL, 0, 0, 0, 0)
    return 8 * (length & _SVE_LENGTH_MASK) if length > 0 else None


_LABEL = re.compile(r"\s*([.\w$]+):")
_KERNEL = re.compile(r"\s*_?kernel:")
_JUMP = re.compile(r"\s*(?:j[a-z]+|b|b\.[a-z]+|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#?\d+,)\s+([.\w$]+)\s*$")
_END = re.compile(r"\.?L?func_end|\s*\.cfi_endproc")
_STACK = re.compile(r"\(%[re](?:sp|bp)\b|\[(?:sp|x29|fp)\b")
_NON_TEMPORAL = re.compile(r"vmovnt|movnt|stnp")
_COMMENT = re.compile(r"(##|//|#(?![-\d])|;).*")
_MEMORY = re.compile(r"(?!lea|nop|prefetch|prfm).*(?:\(|\[(?:x|sp))")
_X86_STORE = re.compile(r".*\)$")
_ARM_STORE = re.compile(r"st")
_ARM_PAIR = re.compile(r"(?:ld|st)n?p\s")
_REGISTER = {128: r".*(?:%xmm|\sq\d)", 256: r".*%ymm", 512: r".*%zmm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopContract:
    """Expected machine instructions of one loop iteration.

    ``instructions``: regular expressions for line starts, with counts. ``loads`` and ``stores`` use
    registers of ``vector_bits`` (None: any); a memory operand is a load, a pair is two. ``others``
    limits all other instructions.
    """

    instructions: tuple[tuple[str, int], ...] = ()
    loads: int = 0
    stores: int = 0
    non_temporal: bool = False
    vector_bits: int | None = None
    others: int = 8


class Kernel(Protocol):
    """A kernel that can be compiled, checked and timed."""

    @property
    def label(self) -> str: ...

    @property
    def unit(self) -> VectorUnit: ...

    @property
    def contract(self) -> LoopContract: ...

    @property
    def quantity(self) -> Literal["flop", "byte", "cycle"]: ...

    def work(self, length: int) -> int:
        """Return the FLOP, bytes or cycles of one call on one thread."""
        ...

    def ir(self) -> str:
        """Return ``void kernel(ptr state, i64 offset, i64 length)`` as LLVM IR."""
        ...


def counted_loop(
    entry: Iterable[str],
    body: Iterable[str],
    leave: Iterable[str],
    *,
    declarations: Iterable[str] = (),
    step: int = 1,
) -> str:
    """Return LLVM IR of a kernel with a loop to `length` in steps of `step`."""
    lines = [
        *declarations,
        "define void @kernel(ptr %state, i64 %offset, i64 %length) {",
        "entry:",
        *entry,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
        *body,
        f"  %i.next = add i64 %i, {step}",
        "  %more = icmp ult i64 %i.next, %length",
        "  br i1 %more, label %loop, label %exit",
        "exit:",
        *leave,
        *("  ret void", "}", ""),
    ]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class HotLoop:
    """Instructions of a kernel's loop, without labels, directives and comments."""

    instructions: tuple[str, ...]

    @property
    def stack_accesses(self) -> int:
        """Instructions that access the stack (register spills)."""
        return sum(bool(_STACK.search(line)) for line in self.instructions)

    @property
    def non_temporal_stores(self) -> int:
        return sum(_values(line) for line in self.instructions if _NON_TEMPORAL.match(line))

    def accesses(self) -> tuple[int, int]:
        memory = [line for line in self.instructions if _MEMORY.match(line)]
        # AT&T syntax has the destination last; Arm stores start with st.
        stores = sum(
            _values(line)
            for line in memory
            if (_ARM_STORE if "[" in line else _X86_STORE).match(line)
        )
        return sum(map(_values, memory)) - stores, stores


def _values(line: str) -> int:
    return 2 if _ARM_PAIR.match(line) else 1


def hot_loop(assembly: str) -> HotLoop:
    """Return the longest loop of the function ``kernel`` in an assembly text."""
    text = [_COMMENT.sub("", line) for line in assembly.splitlines()]
    starts = (i for i, line in enumerate(text) if _KERNEL.match(line))
    if (first := next(starts, None)) is None:
        raise MeasurementError("the compiled code has no function 'kernel'")
    lines = list(itertools.takewhile(lambda each: not _END.match(each), text[first:]))
    labels = {match[1]: i for i, line in enumerate(lines) if (match := _LABEL.match(line))}
    loops = [
        lines[labels[match[1]] : i + 1]
        for i, line in enumerate(lines)
        if (match := _JUMP.match(line)) and labels.get(match[1], i) < i
    ]
    if not loops:
        raise MeasurementError("the compiled kernel has no loop (defect of roofline)")
    return HotLoop(
        tuple(
            text
            for line in max(loops, key=len)
            if (text := line.strip()) and not text.startswith(".") and not _LABEL.match(line)
        )
    )


def check(kernel: Kernel, assembly: str) -> HotLoop:
    """Return a compiled kernel's hot loop; raise MeasurementError if it breaks the contract."""
    loop = hot_loop(assembly)
    if loop.stack_accesses:
        raise MeasurementError(
            f"kernel '{kernel.label}' spills: {loop.stack_accesses} stack accesses in its loop;"
            " use fewer accumulators"
        )
    for fault in _faults(kernel.contract, loop):
        raise MeasurementError(f"kernel '{kernel.label}' was compiled {fault}")
    return loop


def _faults(contract: LoopContract, loop: HotLoop) -> Iterator[str]:
    """Yield violations of the contract, as text after "was compiled"."""
    for pattern, wanted in contract.instructions:
        found = sum(bool(re.match(pattern, line)) for line in loop.instructions)
        if found != wanted:
            yield f"to {found} of {wanted} wanted instructions '{pattern}'"
    loads, stores = loop.accesses()
    if (loads, stores) != (contract.loads, contract.stores):
        yield f"to {loads} of {contract.loads} loads and {stores} of {contract.stores} stores"
    if loop.non_temporal_stores != contract.stores * contract.non_temporal:
        yield f"to {loop.non_temporal_stores} non-temporal stores"
    if contract.vector_bits is not None:
        wide = re.compile(_REGISTER[contract.vector_bits])
        for line in loop.instructions:
            if _MEMORY.match(line) and not wide.match(line):
                yield f"with '{line}', not {contract.vector_bits} bits"
    expected = [_MEMORY, *(re.compile(pattern) for pattern, _ in contract.instructions)]
    others = sum(not any(each.match(line) for each in expected) for line in loop.instructions)
    if others > contract.others:
        yield f"with {others} other instructions, more than {contract.others}"
