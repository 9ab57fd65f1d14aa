"""Products of small matrices on the tensor cores, by ``mma.sync``: a warp multiplies registers.

Signs alternate along the summed dimension, so that sums stay near zero however long it runs. On
Hopper these instructions do not reach what the tensor cores can do; `warpgroups` has those that do.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from roofline.foundation.dtypes import dtype
from roofline.machine.gpu.arithmetic import ArithmeticKernel
from roofline.machine.gpu.ptx import (
    WARP,
    Capability,
    Program,
    assemble,
    repeated,
    stored_if_unlikely,
)

MMA = "mma"
MMA_FLOAT16 = "mma-float16-accumulate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """An ``mma.sync``: a warp's product of m×k by k×n, and the registers of each operand."""

    element: str
    shape: tuple[int, int, int]
    types: str
    sass: str
    operands: tuple[int, int, int]
    """Registers of a, b and the sum, per thread."""
    least: Capability
    sum_type: str = "f32"
    name: str = MMA
    sums: int = 8
    """Independent sums of a warp: what hides the latency, and fits into the registers."""
    emulated_on: tuple[int, ...] = ()
    """Major versions whose compilers make other instructions of it."""


SHAPES = (
    Shape(
        element="float64",
        shape=(8, 8, 4),
        types="f64.f64.f64.f64",
        sass="DMMA",
        operands=(1, 1, 2),
        least=(8, 0),
        sum_type="f64",
    ),
    Shape(
        element="float64",
        shape=(16, 8, 16),
        types="f64.f64.f64.f64",
        sass="DMMA",
        operands=(8, 4, 4),
        least=(9, 0),
        sum_type="f64",
        sums=4,
    ),
    Shape(
        element="float32",
        shape=(16, 8, 8),
        types="f32.tf32.tf32.f32",
        sass="HMMA",
        operands=(4, 2, 4),
        least=(8, 0),
    ),
    Shape(
        element="bfloat16",
        shape=(16, 8, 16),
        types="f32.bf16.bf16.f32",
        sass="HMMA",
        operands=(4, 2, 4),
        least=(8, 0),
    ),
    Shape(
        element="float16",
        shape=(16, 8, 8),
        types="f32.f16.f16.f32",
        sass="HMMA",
        operands=(2, 1, 4),
        least=(7, 5),
    ),
    Shape(
        element="float16",
        shape=(16, 8, 16),
        types="f32.f16.f16.f32",
        sass="HMMA",
        operands=(4, 2, 4),
        least=(8, 0),
    ),
    Shape(
        element="float16",
        shape=(16, 8, 8),
        types="f16.f16.f16.f16",
        sass="HMMA",
        operands=(2, 1, 2),
        least=(7, 5),
        sum_type="b32",
        name=MMA_FLOAT16,
    ),
    Shape(
        element="float16",
        shape=(16, 8, 16),
        types="f16.f16.f16.f16",
        sass="HMMA",
        operands=(4, 2, 2),
        least=(8, 0),
        sum_type="b32",
        name=MMA_FLOAT16,
    ),
    *(
        Shape(
            element=element,
            shape=(16, 8, 32),
            types=f"f32.{short}.{short}.f32",
            sass="QMMA",
            operands=(4, 2, 4),
            least=(8, 9),
            emulated_on=(9, 10),
        )
        for element, short in (("float8_e4m3fn", "e4m3"), ("float8_e5m2", "e5m2"))
    ),
    Shape(
        element="int8",
        shape=(8, 8, 16),
        types="s32.s8.s8.s32",
        sass="IMMA",
        operands=(1, 1, 2),
        least=(7, 5),
        sum_type="s32",
    ),
    Shape(
        element="int8",
        shape=(16, 8, 32),
        types="s32.s8.s8.s32",
        sass="IMMA",
        operands=(4, 2, 4),
        least=(8, 0),
        sum_type="s32",
    ),
)


TENSOR_CORE = "tensor-core"
TENSOR_CORE_TF32 = "tensor-core-tf32"

_BLOCK = 256
_BLOCKS = 2
_COUNT = 64

_FLOAT64_TENSOR_CORES = (8, 0), (9, 0), (10, 0)
"""Capabilities whose tensor cores take float64; on others the instruction runs beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The 32 bits of operands: ``a`` and ``a`` with other signs follow each other, ``b`` is even.

    Where one element fills the register (``alternates`` False), signs alternate from thread to
    thread, which the programs see to.
    """

    a: int
    b: int
    alternates: bool = True


PATTERNS = {
    "float16": Pattern(a=0xB8003800, b=0x38003800),
    "bfloat16": Pattern(a=0xBF003F00, b=0x3F003F00),
    "float32": Pattern(a=0x3F000000, b=0x3F000000, alternates=False),
    "float8_e4m3fn": Pattern(a=0xB030B030, b=0x30303030),
    "float8_e5m2": Pattern(a=0xB838B838, b=0x38383838),
    "int8": Pattern(a=0xFB05FB05, b=0x03030303),
}
"""±0.5 and 0.5 in the floating types; ±5 and 3 in int8."""


def matrix_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """The kernels that a device of that compute capability can run, the newest form of each."""
    newest: dict[tuple[str, str], ArithmeticKernel] = {}
    for shape in SHAPES:
        kernel = _kernel(shape)
        native = shape.element != "float64" or has_float64_tensor_cores(capability)
        native = native and capability[0] not in shape.emulated_on
        if native and kernel.program.runs_on(capability):
            newest[shape.element, shape.name] = kernel
    return list(newest.values())


def has_float64_tensor_cores(capability: Capability) -> bool:
    """Whether float64 products run on tensor cores at more than the rate of the CUDA cores."""
    return capability in _FLOAT64_TENSOR_CORES


def unit_for(element: str) -> str:
    """The unit's name; float32 is rounded to TF32 there."""
    return TENSOR_CORE_TF32 if element == "float32" else TENSOR_CORE


def _kernel(shape: Shape) -> ArithmeticKernel:
    m, n, k = shape.shape
    instruction = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{shape.types}"
    product = 2 * m * n * k
    return ArithmeticKernel(
        program=_program(shape, instruction),
        name=shape.name,
        dtype=dtype(shape.element),
        unit=unit_for(shape.element),
        instruction=instruction,
        sass=shape.sass,
        count=_COUNT,
        flop=product * _COUNT * _BLOCK // WARP,
        note=f"{instruction}, {shape.sums} independent sums a warp,"
        f" {_BLOCK * _BLOCKS // WARP} warps a multiprocessor, operands in registers",
    )


def _program(shape: Shape, instruction: str) -> Program:
    m, n, k = shape.shape
    a, b, c = shape.operands
    operand = "f64" if shape.element == "float64" else "b32"

    def names(prefix: str, first: int, count: int) -> str:
        return "{" + ", ".join(f"%{prefix}{first + i}" for i in range(count)) + "}"

    body = [
        f"{instruction} {names('sum', c * i, c)}, {names('a', 0, a)}, {names('b', 0, b)},"
        f" {names('sum', c * i, c)};"
        for _ in range(_COUNT // shape.sums)
        for i in range(shape.sums)
    ]
    return assemble(
        f"{shape.name.replace('-', '_')}_{shape.element}_{m}_{n}_{k}",
        parameters=(("u64", "out"), ("u32", "iterations")),
        registers=(
            *(("pred", "more"), ("pred", "unlikely"), ("u64", "out"), ("u32", "left")),
            *(("u32", "thread"), ("u32", "zero"), ("b32", "sign"), ("b32", "bits<3>")),
            *(
                (operand, f"a<{a}>"),
                (operand, f"b<{b}>"),
                (shape.sum_type, f"sum<{shape.sums * c}>"),
            ),
        ),
        body=(
            "ld.param.u64 %out, [out];",
            "ld.param.u32 %left, [iterations];",
            "mov.u32 %thread, %tid.x;",
            *_operands(shape.element, a, b),
            *(_start(shape.sum_type, i) for i in range(shape.sums * c)),
            *repeated(body, counter="left"),
            "mov.b32 %bits0, %thread;",
            *(line for i in range(shape.sums * c) for line in _folded(shape.sum_type, i)),
            *stored_if_unlikely("bits0", "out"),
        ),
        block=_BLOCK,
        blocks=_BLOCKS,
        least=shape.least,
    )


def _start(kind: str, index: int) -> str:
    """Sums begin at different values, so that none is another's."""
    if kind == "f32":
        return f"mov.f32 %sum{index}, 0f{struct.pack('>f', index).hex()};"
    if kind == "f64":
        return f"mov.f64 %sum{index}, 0d{struct.pack('>d', index).hex()};"
    return f"mov.{kind} %sum{index}, {index};"


def _folded(kind: str, index: int) -> list[str]:
    if kind == "f64":
        lines = [
            f"mov.b64 {{%bits1, %bits2}}, %sum{index};",
            "xor.b32 %bits1, %bits1, %bits2;",
        ]
    else:
        lines = [f"mov.b32 %bits1, %sum{index};"]
    return [*lines, "xor.b32 %bits0, %bits0, %bits1;"]


def _operands(element: str, a: int, b: int) -> list[str]:
    """The registers of both factors. Neighbouring threads hold neighbours of the summed row.

    All registers of a factor hold the same, which the assembler must not know: it would copy one
    register to the others again and again. So to each is added a multiple of what only the launch
    knows to be 0, the upper bits of the number of iterations.
    """
    pattern = PATTERNS.get(element)
    alternates = pattern is not None and pattern.alternates
    lines = [
        "shr.u32 %zero, %left, 29;",
        f"and.b32 %sign, %thread, {0 if alternates else 1};",
        "shl.b32 %sign, %sign, 31;",
    ]
    for i, name in enumerate((*(f"a{i}" for i in range(a)), *(f"b{i}" for i in range(b)))):
        first = name.startswith("a")
        # The upper half of a float64 0.5; its lower half is 0.
        bits = 0x3FE00000 if pattern is None else pattern.a if first else pattern.b
        lines.append(f"mad.lo.u32 %bits1, %zero, {i + 1}, 0x{bits:08x};")
        if first:
            lines.append("xor.b32 %bits1, %bits1, %sign;")
        lines.append(
            f"mov.b64 %{name}, {{%zero, %bits1}};"
            if pattern is None
            else f"mov.b32 %{name}, %bits1;"
        )
    return lines
