"""The forms of ``mma.sync``: which types and sizes a warp can multiply, since which device."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.machine.gpu.ptx import Capability

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
