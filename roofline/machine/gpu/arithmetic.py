"""Compute programs for CUDA cores, and for tensor cores with two kinds of instruction.

Each loops over one instruction on independent sums. The sums start at different values, or are
indistinguishable to the compiler. They are reduced to 32 bits, stored only for one unlikely value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.core.dtypes import DType, dtype
from roofline.machine.gpu.ptx import (
    WARP,
    Capability,
    Program,
    assemble,
    repeated,
    stored_if_unlikely,
)

CUDA_CORE = "cuda-core"
TENSOR_CORE = "tensor-core"
TENSOR_CORE_TF32 = "tensor-core-tf32"

MMA = "mma"
MMA_FLOAT16 = "mma-float16-accumulate"

_FLOAT64_TENSOR_CORES = (8, 0), (9, 0), (10, 0)
"""Compute capabilities with float64 tensor cores; on others the instruction is emulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticKernel:
    """A compute program: ``flop`` per block and iteration, by ``count`` `instruction`.

    ``count`` is the number of instructions in the PTX loop; ``sass`` their name in machine code;
    ``flop`` counts a MAC as two operations; ``note`` describes the program.
    """

    program: Program
    name: str
    dtype: DType
    unit: str
    instruction: str
    sass: str
    count: int
    flop: int
    note: str

    @property
    def label(self) -> str:
        """Name in progress and conditions: ``"float32 cuda-core fma"``."""
        return f"{self.dtype} {self.unit} {self.name}"


def arithmetic_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """Return all compute kernels of a device; newer tensor-core instructions replace older ones."""
    newer = warpgroup_kernels(capability)
    replaced = {kernel.label for kernel in newer}
    older = [each for each in matrix_kernels(capability) if each.label not in replaced]
    return [*cuda_core_kernels(capability), *older, *newer]


def has_float64_tensor_cores(capability: Capability) -> bool:
    """Return True if float64 GEMM runs on tensor cores."""
    return capability in _FLOAT64_TENSOR_CORES


def _tensor_core(element: str) -> str:
    """Return the name of the unit; float32 is rounded to TF32."""
    return TENSOR_CORE_TF32 if element == "float32" else TENSOR_CORE


def _program(
    program: Program,
    *,
    registers: Iterable[str],
    setup: Iterable[str],
    sums: tuple[str, int],
    starts: Iterable[str],
    loop: Iterable[str],
    folded_on: str = "%thread",
    shared_bytes: int = 0,
) -> Program:
    """Return a program that sets up, starts the sums, loops, and reduces the sums.

    ``sums`` is the type of a sum, and the number of registers.
    """
    common = ("pred more unlikely", "u64 out", "u32 left thread", "b32 bits<3>")
    kind, count = sums
    folds: list[str] = []
    for i in range(count):
        if kind == "f64":
            folds += [f"mov.b64 {{%bits1, %bits2}}, %sum{i};", "xor.b32 %bits1, %bits1, %bits2;"]
        else:
            folds.append(f"mov.b32 %bits1, %sum{i};")
        folds.append("xor.b32 %bits0, %bits0, %bits1;")
    return assemble(
        program,
        parameters=("u64 out", "u32 iterations"),
        registers=(*common, *registers, f"{kind} sum<{count}>"),
        body=(
            "ld.param.u64 %out, [out];",
            "ld.param.u32 %left, [iterations];",
            "mov.u32 %thread, %tid.x;",
            *setup,
            *starts,
            *repeated(loop, counter="left"),
            f"mov.b32 %bits0, {folded_on};",
            *folds,
            *stored_if_unlikely("bits0", "out"),
        ),
        shared_bytes=shared_bytes,
    )


# --- CUDA cores -----------------------------------------------------------------------------------
# Eight independent sums per thread, repeatedly ``sum * factor + addend`` with a factor below one in
# floating types, so that sums converge. The compiler knows neither.

_CUDA_BLOCK, _CUDA_BLOCKS, _CUDA_SUMS, _CUDA_UNROLL = 256, 4, 8, 32


@dataclass(frozen=True, slots=True)
class _Multiply:
    """An instruction ``op sum, sum, factor, addend`` and the type of its registers.

    ``lanes`` are MACs per instruction and thread; ``narrow`` is the type of two values packed from
    float32 in one register.
    """

    name: str
    element: str
    op: str
    sass: str
    register: str
    lanes: int = 1
    narrow: str = ""
    least: Capability = (7, 0)


_MULTIPLIES = (
    _Multiply("fma", "float64", "fma.rn.f64", "DFMA", "f64"),
    _Multiply("fma", "float32", "fma.rn.f32", "FFMA", "f32"),
    _Multiply("fma", "float16", "fma.rn.f16x2", "HFMA2", "b32", lanes=2, narrow="f16"),
    _Multiply("fma", "bfloat16", "fma.rn.bf16x2", "HFMA2.BF16", "b32", 2, "bf16", least=(8, 0)),
    _Multiply("mul-add", "int32", "mad.lo.s32", "IMAD", "s32"),
    _Multiply("dot", "int8", "dp4a.s32.s32", "IDP.4A", "s32", lanes=4),
)


def cuda_core_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """Return the CUDA-core kernels of a compute capability."""
    return [_cuda_core_kernel(each) for each in _MULTIPLIES if capability >= each.least]


def _cuda_core_kernel(multiply: _Multiply) -> ArithmeticKernel:
    op, register, narrow = multiply.op, multiply.register, multiply.narrow
    count = _CUDA_SUMS * _CUDA_UNROLL
    entry = f"{multiply.name.replace('-', '_')}_{multiply.element}"
    program = _program(
        Program(entry=entry, block=_CUDA_BLOCK, blocks=_CUDA_BLOCKS, least=multiply.least),
        registers=("u32 threads", "f32 real<2>", "b16 half", f"{register} factor addend"),
        setup=("mov.u32 %threads, %ntid.x;", *_factor_and_addend(register, narrow)),
        sums=(register, _CUDA_SUMS),
        starts=(_first_sum(register, narrow, i) for i in range(_CUDA_SUMS)),
        loop=_CUDA_UNROLL
        * [f"{op} %sum{i}, %sum{i}, %factor, %addend;" for i in range(_CUDA_SUMS)],
        folded_on="0",
    )
    return ArithmeticKernel(
        program=program,
        name=multiply.name,
        dtype=dtype(multiply.element),
        unit=CUDA_CORE,
        instruction=op,
        sass=multiply.sass,
        count=count,
        flop=2 * multiply.lanes * count * _CUDA_BLOCK,
        note=f"{op}, {_CUDA_SUMS} independent sums a thread,"
        f" {_CUDA_BLOCK * _CUDA_BLOCKS} threads a multiprocessor",
    )


def _factor_and_addend(register: str, narrow: str) -> list[str]:
    """Return code that derives both from thread and block indices."""
    if register == "s32":
        return [
            "mad.lo.s32 %factor, %threads, 0x01010101, 1;",
            "mad.lo.s32 %addend, %thread, 0x01010101, 1;",
        ]
    lines = [
        "cvt.rn.f32.u32 %real0, %threads;",
        "mul.f32 %real0, %real0, 0f3B700000;",  # 15/16 of 1/256: the factor
        "cvt.rn.f32.u32 %real1, %thread;",
        "mul.f32 %real1, %real1, 0f39800000;",  # 1 / 4096
        "add.f32 %real1, %real1, 0f39800000;",
    ]
    for i, name in enumerate(("factor", "addend")):
        if narrow:
            lines += [
                f"cvt.rn.{narrow}.f32 %half, %real{i};",
                f"mov.b32 %{name}, {{%half, %half}};",
            ]
        elif register == "f64":
            lines.append(f"cvt.f64.f32 %{name}, %real{i};")
        else:
            lines.append(f"mov.f32 %{name}, %real{i};")
    return lines


def _first_sum(register: str, narrow: str, index: int) -> str:
    """Return code for a start value; all differ."""
    if register == "s32":
        return f"add.s32 %sum{index}, %addend, {index};"
    if narrow:
        return f"add.u32 %sum{index}, %addend, {index};"
    real = {"f32": "0f40800000", "f64": "0d4010000000000000"}[register]
    previous = f"%sum{index - 1}" if index else "%addend"
    return f"add.{register} %sum{index}, {previous}, {real};"


# --- tensor cores, by mma.sync: a warp multiplies registers ---------------------------------------
# Signs alternate along the summed dimension, so that sums stay near zero. On Hopper these
# instructions do not reach the peak of the tensor cores.

_MMA_BLOCK, _MMA_BLOCKS, _MMA_COUNT = 256, 2, 64


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Operand bits of 32-bit registers: ``a`` with alternating signs, ``b`` constant.

    With one element per register (``alternates`` False), signs alternate by thread.
    """

    a: int
    b: int
    alternates: bool = True


_PATTERNS = {
    "float16": _Pattern(a=0xB8003800, b=0x38003800),
    "bfloat16": _Pattern(a=0xBF003F00, b=0x3F003F00),
    "float32": _Pattern(a=0x3F000000, b=0x3F000000, alternates=False),
    "float8_e4m3fn": _Pattern(a=0xB030B030, b=0x30303030),
    "float8_e5m2": _Pattern(a=0xB838B838, b=0x38383838),
    "int8": _Pattern(a=0xFB05FB05, b=0x03030303),
}
"""±0.5 and 0.5 in floating types; ±5 and 3 in int8."""


def _sum_type(types: str) -> str:
    """Return the register type of a sum; two float16 share a register."""
    first = types.partition(".")[0]
    return "b32" if first == "f16" else first


def _name(types: str) -> str:
    return MMA_FLOAT16 if types.startswith("f16") else MMA


@dataclass(frozen=True, slots=True)
class _Shape:
    """An ``mma.sync``: a warp's product of m×k by k×n."""

    element: str
    shape: tuple[int, int, int]
    types: str
    sass: str
    operands: tuple[int, int, int]
    """Registers of a, b and the sum, per thread."""
    least: Capability
    sums: int = 8
    """Independent sums of a warp, to hide the latency within the registers."""
    emulated_on: tuple[int, ...] = ()
    """Major versions whose compilers emulate it."""


_SHAPES = (
    _Shape("float64", (8, 8, 4), "f64.f64.f64.f64", "DMMA", (1, 1, 2), (8, 0)),
    _Shape("float64", (16, 8, 16), "f64.f64.f64.f64", "DMMA", (8, 4, 4), (9, 0), sums=4),
    _Shape("float32", (16, 8, 8), "f32.tf32.tf32.f32", "HMMA", (4, 2, 4), (8, 0)),
    _Shape("bfloat16", (16, 8, 16), "f32.bf16.bf16.f32", "HMMA", (4, 2, 4), (8, 0)),
    _Shape("float16", (16, 8, 8), "f32.f16.f16.f32", "HMMA", (2, 1, 4), (7, 5)),
    _Shape("float16", (16, 8, 16), "f32.f16.f16.f32", "HMMA", (4, 2, 4), (8, 0)),
    _Shape("float16", (16, 8, 8), "f16.f16.f16.f16", "HMMA", (2, 1, 2), (7, 5)),
    _Shape("float16", (16, 8, 16), "f16.f16.f16.f16", "HMMA", (4, 2, 2), (8, 0)),
    *(
        _Shape(
            *(element, (16, 8, 32), f"f32.{short}.{short}.f32", "QMMA", (4, 2, 4), (8, 9)),
            emulated_on=(9, 10),
        )
        for element, short in (("float8_e4m3fn", "e4m3"), ("float8_e5m2", "e5m2"))
    ),
    _Shape("int8", (8, 8, 16), "s32.s8.s8.s32", "IMMA", (1, 1, 2), (7, 5)),
    _Shape("int8", (16, 8, 32), "s32.s8.s8.s32", "IMMA", (4, 2, 4), (8, 0)),
)


def matrix_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """Return the ``mma.sync`` kernels of a device, the newest variant of each."""
    newest: dict[tuple[str, str], _Shape] = {}
    for shape in _SHAPES:
        native = shape.element != "float64" or has_float64_tensor_cores(capability)
        native = native and capability[0] not in shape.emulated_on
        if native and capability >= shape.least:
            newest[shape.element, _name(shape.types)] = shape
    return [_matrix_kernel(each) for each in newest.values()]


def _matrix_kernel(shape: _Shape) -> ArithmeticKernel:
    m, n, k = shape.shape
    a, b, c = shape.operands
    name, kind = _name(shape.types), _sum_type(shape.types)
    instruction = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{shape.types}"
    operand = "f64" if shape.element == "float64" else "b32"
    count = shape.sums * c

    def registers(prefix: str, first: int, count: int) -> str:
        return "{" + ", ".join(f"%{prefix}{first + i}" for i in range(count)) + "}"

    products = [
        f"{instruction} {registers('sum', c * i, c)}, {registers('a', 0, a)},"
        f" {registers('b', 0, b)}, {registers('sum', c * i, c)};"
        for i in range(shape.sums)
    ]
    entry = f"{name.replace('-', '_')}_{shape.element}_{m}_{n}_{k}"
    program = _program(
        Program(entry=entry, block=_MMA_BLOCK, blocks=_MMA_BLOCKS, least=shape.least),
        registers=("u32 zero", "b32 sign", f"{operand} a<{a}> b<{b}>"),
        setup=_factors(shape.element, a, b),
        sums=(kind, count),
        starts=(f"mov.{kind} %sum{i}, {_literal(kind, i)};" for i in range(count)),
        loop=_MMA_COUNT // shape.sums * products,
    )
    return ArithmeticKernel(
        program=program,
        name=name,
        dtype=dtype(shape.element),
        unit=_tensor_core(shape.element),
        instruction=instruction,
        sass=shape.sass,
        count=_MMA_COUNT,
        flop=2 * m * n * k * _MMA_COUNT * _MMA_BLOCK // WARP,
        note=f"{instruction}, {shape.sums} independent sums a warp,"
        f" {_MMA_BLOCK * _MMA_BLOCKS // WARP} warps a multiprocessor, operands in registers",
    )


def _literal(kind: str, value: int) -> str:
    if kind == "f32":
        return f"0f{struct.pack('>f', value).hex()}"
    return f"0d{struct.pack('>d', value).hex()}" if kind == "f64" else str(value)


def _factors(element: str, a: int, b: int) -> list[str]:
    """Return code for the registers of both factors; adjacent threads hold adjacent elements.

    All registers of a factor are equal, but the assembler must not know, or it copies one
    repeatedly: each adds a multiple of the upper bits of the iteration count, which is 0.
    """
    # The upper half of a float64 0.5; its lower half is 0.
    pattern = _PATTERNS.get(element, _Pattern(a=0x3FE00000, b=0x3FE00000, alternates=False))
    lines = [
        "shr.u32 %zero, %left, 29;",
        f"and.b32 %sign, %thread, {0 if pattern.alternates else 1};",
        "shl.b32 %sign, %sign, 31;",
    ]
    for i, name in enumerate((*(f"a{i}" for i in range(a)), *(f"b{i}" for i in range(b)))):
        bits = pattern.a if name.startswith("a") else pattern.b
        lines.append(f"mad.lo.u32 %bits1, %zero, {i + 1}, 0x{bits:08x};")
        if name.startswith("a"):
            lines.append("xor.b32 %bits1, %bits1, %sign;")
        lines.append(
            f"mov.b64 %{name}, {{%zero, %bits1}};"
            if element == "float64"
            else f"mov.b32 %{name}, %bits1;"
        )
    return lines


# --- tensor cores, by wgmma: a warpgroup multiplies shared memory ---------------------------------
# Only these reach the peak of Hopper's tensor cores, and only compute capability 9.0 has them.
# Tiles are unswizzled core matrices of 8 rows of 16 bytes, adjacent along the summed dimension.

_GROUP_BLOCK, _GROUP_BLOCKS, _GROUP_UNROLL = 128, 2, 16
_ROWS, _COLUMNS = 64, 256
_STEP_BYTE = 32
"""Bytes of a row per instruction, for every type."""

_A_BYTE, _B_BYTE = _ROWS * _STEP_BYTE, _COLUMNS * _STEP_BYTE
_CORE_BYTE = 128
"""Bytes of a core matrix, followed by the next along the summed dimension."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A ``wgmma``: element types, depth of a step, and its trailing operands."""

    element: str
    types: str
    sass: str
    depth: int
    tail: str


_FORMS = (
    _Form("float32", "f32.tf32.tf32", "HGMMA", 8, "%add, 1, 1"),
    _Form("bfloat16", "f32.bf16.bf16", "HGMMA", 16, "%add, 1, 1, 0, 0"),
    _Form("float16", "f32.f16.f16", "HGMMA", 16, "%add, 1, 1, 0, 0"),
    _Form("float16", "f16.f16.f16", "HGMMA", 16, "%add, 1, 1, 0, 0"),
    _Form("float8_e4m3fn", "f32.e4m3.e4m3", "QGMMA", 32, "%add, 1, 1"),
    _Form("float8_e5m2", "f32.e5m2.e5m2", "QGMMA", 32, "%add, 1, 1"),
    _Form("int8", "s32.s8.s8", "IGMMA", 32, "%add"),
)


def warpgroup_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """Return the ``wgmma`` kernels of a device (Hopper only)."""
    return [_warpgroup_kernel(each) for each in _FORMS if capability[0] == 9]


def _warpgroup_kernel(form: _Form) -> ArithmeticKernel:
    name, kind = _name(form.types), _sum_type(form.types)
    instruction = f"wgmma.mma_async.sync.aligned.m{_ROWS}n{_COLUMNS}k{form.depth}.{form.types}"
    count = _ROWS * _COLUMNS // _GROUP_BLOCK // (2 if kind == "b32" else 1)
    sums = ", ".join(f"%sum{i}" for i in range(count))
    product = f"{instruction} {{{sums}}}, %tile_a, %tile_b, {form.tail};"
    zero = "0f00000000" if kind == "f32" else "0"
    program = _program(
        Program(
            entry=f"wg{name.replace('-', '_')}_{form.element}",
            block=_GROUP_BLOCK,
            blocks=_GROUP_BLOCKS,
            least=(9, 0),
            only_major=9,
        ),
        registers=("pred add", "u64 tile_a tile_b", "u32 base at end"),
        setup=(
            "mov.u32 %base, tile;",
            *_filled_tiles(_PATTERNS[form.element]),
            *_descriptor("tile_a", 0),
            *_descriptor("tile_b", _A_BYTE),
            "setp.eq.u32 %add, %thread, %thread;",
        ),
        sums=(kind, count),
        starts=(f"mov.{kind} %sum{i}, {zero};" for i in range(count)),
        loop=(
            "wgmma.fence.sync.aligned;",
            *(_GROUP_UNROLL * [product]),
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
        ),
        shared_bytes=_A_BYTE + _B_BYTE,
    )
    return ArithmeticKernel(
        program=program,
        name=name,
        dtype=dtype(form.element),
        unit=_tensor_core(form.element),
        instruction=instruction,
        sass=form.sass,
        count=_GROUP_UNROLL,
        flop=2 * _ROWS * _COLUMNS * form.depth * _GROUP_UNROLL,
        note=f"{instruction}, {_GROUP_BLOCKS} warpgroups a multiprocessor,"
        " operands in shared memory",
    )


def _filled_tiles(pattern: _Pattern) -> Sequence[str]:
    """Return code that writes both tiles; signs alternate by position."""
    sign = (
        () if pattern.alternates else ("and.b32 %bits1, %thread, 1;", "shl.b32 %bits1, %bits1, 31;")
    )
    signed = () if pattern.alternates else ("xor.b32 %bits0, %bits0, %bits1;",)
    return (
        *sign,
        f"mov.b32 %bits0, 0x{pattern.a:08x};",
        *signed,
        *_stores("fill_a", 0, _A_BYTE),
        f"mov.b32 %bits0, 0x{pattern.b:08x};",
        *_stores("fill_b", _A_BYTE, _B_BYTE),
        # Makes the writes visible to the tensor cores.
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
    )


def _stores(label: str, first: int, byte: int) -> Sequence[str]:
    return (
        "shl.b32 %at, %thread, 2;",
        "add.u32 %at, %at, %base;",
        f"add.u32 %at, %at, {first};",
        f"add.u32 %end, %base, {first + byte};",
        f"{label}:",
        "st.shared.b32 [%at], %bits0;",
        f"add.u32 %at, %at, {4 * _GROUP_BLOCK};",
        "setp.lt.u32 %more, %at, %end;",
        f"@%more bra {label};",
    )


def _descriptor(register: str, offset: int) -> Sequence[str]:
    """Return code for a matrix descriptor: start and strides in units of 16 bytes."""
    steps = (_CORE_BYTE >> 4) << 16 | (2 * _CORE_BYTE >> 4) << 32
    return (
        f"add.u32 %at, %base, {offset};",
        "and.b32 %at, %at, 0x3ffff;",
        "shr.u32 %at, %at, 4;",
        f"cvt.u64.u32 %{register}, %at;",
        f"or.b64 %{register}, %{register}, 0x{steps:x};",
    )
