"""The compute kernels: for every unit and data type, a loop of its multiply-adds.

The "flop" of integer kernels are integer operations; a multiply and an add count one each, as
everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from roofline.foundation.dtypes import DType, dtype
from roofline.machine.kernels import units
from roofline.machine.kernels.amx import TileKernel, tile_kernel
from roofline.machine.kernels.operations import (
    FLOP_PER_FMA,
    add,
    byte_dot,
    fma,
    ir_type,
    multiply_and_add,
    sum_of_products,
)
from roofline.machine.kernels.register_loop import (
    SLOT_BYTE,
    UNROLL,
    ComputeKernel,
    Operation,
)
from roofline.machine.kernels.units import VectorUnit, can_run, sve_vector_bits

__all__ = [
    "COMPUTE_KERNELS",
    "FLOP_PER_FMA",
    "SLOT_BYTE",
    "UNROLL",
    "ComputeKernel",
    "TileKernel",
    "compute_kernels",
    "fma_kernel",
    "sve_vector_bits",
]

_INT32, _UINT8 = dtype("int32"), dtype("uint8")


def _kernel(
    name: str,
    element: DType,
    unit: VectorUnit,
    *operations: Operation,
    accumulators: tuple[int, int] | None = None,
) -> ComputeKernel:
    """A kernel whose factors and sums are of one type; `accumulators` of its first, second form."""
    kind = ir_type(unit, element)
    first, second = accumulators or (unit.accumulators, unit.second_accumulators)
    return ComputeKernel(
        name=name,
        dtype=element,
        unit=unit,
        accumulators=first,
        second_accumulators=second,
        factors=(element, element),
        sums=element,
        factor_types=(kind, kind),
        accumulator_type=kind,
        operations=operations,
    )


def fma_kernel(element: DType, unit: VectorUnit, accumulators: int | None = None) -> ComputeKernel:
    """Fused multiply-adds of floating-point numbers, with as many sums as fit by default."""
    sums = (accumulators, accumulators) if accumulators else None
    return _kernel("fma", element, unit, fma(unit, element), accumulators=sums)


def _fma_add(element: DType, unit: VectorUnit) -> ComputeKernel:
    """Multiply-adds and additions in turn: more than the FMA peak where adders are extra."""
    operations = (fma(unit, element, square=True), add(unit, element))
    if unit.registers == 32:
        return _kernel("fma-add", element, unit, *operations, accumulators=(28, 24))
    # Four instructions at a time want more sums than 16 registers hold: m is left out for one more,
    # and additions, which are done sooner, have few sums of their own.
    kernel = _kernel("fma-add", element, unit, *operations, accumulators=(15, 15))
    return dataclasses.replace(kernel, shares=(11, 4), unroll=12, second_unroll=8)


def _mul_add(element: DType, unit: VectorUnit) -> ComputeKernel:
    """Integer multiply and add; what lies between takes a register, too."""
    vectors = {16: (12, 12), 32: (28, 24)}[unit.registers]
    # Scalars live in the general registers; two of them hold the counter and its end.
    scalars = {"x86_64": (11, 11), "aarch64": (20, 16)}[unit.architecture]
    return _kernel(
        "mul-add",
        element,
        unit,
        multiply_and_add(unit, element),
        accumulators=vectors if unit.bits else scalars,
    )


def _byte_dot(element: DType, unit: VectorUnit) -> ComputeKernel:
    """int8 without VNNI, in three instructions."""
    sums = {16: (12, 10), 32: (20, 16)}[unit.registers]
    kernel = _kernel("dot", element, unit, byte_dot(unit), accumulators=sums)
    half = dtype("int16")
    return dataclasses.replace(
        kernel,
        factors=(element, half),
        sums=_INT32,
        factor_types=(ir_type(unit, element), ir_type(unit, half)),
        accumulator_type=ir_type(unit, _INT32),
    )


def _products(
    name: str, function: str, mnemonic: str, products: int, *, unsigned: bool = False
) -> Callable[[DType, VectorUnit], ComputeKernel]:
    """What makes the kernel of an instruction that adds `products` products to a 32-bit lane."""

    def kernel(element: DType, unit: VectorUnit) -> ComputeKernel:
        sums = dtype("float32") if element.kind == "float" else _INT32
        # On x86 the elements are handed over four bytes at a time, which every LLVM accepts.
        packed = ir_type(unit, _INT32 if unit.architecture == "x86_64" else element)
        total = ir_type(unit, sums)
        return ComputeKernel(
            name=name,
            dtype=element,
            unit=unit,
            accumulators=unit.accumulators,
            second_accumulators=unit.second_accumulators,
            factors=(_UINT8 if unsigned else element, element),
            sums=sums,
            factor_types=(packed, packed),
            accumulator_type=total,
            operations=(sum_of_products(unit, function, mnemonic, (total, packed), products),),
        )

    return kernel


_Row = tuple[Callable[[DType, VectorUnit], ComputeKernel], str, tuple[VectorUnit, ...]]
_PLAIN = (units.SCALAR, units.SSE, units.AVX2, units.AVX512, units.ARM_SCALAR, units.NEON)
_ROWS: tuple[_Row, ...] = (
    (fma_kernel, "float64 float32", (*_PLAIN, units.SVE)),
    (
        fma_kernel,
        "float16",
        (units.AVX512_FP16, units.ARM_SCALAR_FP16, units.NEON_FP16, units.SVE),
    ),
    (_fma_add, "float64 float32", _PLAIN),
    (_fma_add, "float16", (units.ARM_SCALAR_FP16, units.NEON_FP16)),
    (_mul_add, "int32", (*_PLAIN, units.SVE)),
    (_byte_dot, "int8", (units.SSE, units.AVX2, units.AVX512_BYTES)),
    (
        _products("dot", "x86.avx512.vpdpbusd.256", "vpdpbusd", 4, unsigned=True),
        "int8",
        (units.AVX_VNNI,),
    ),
    (
        _products("dot", "x86.avx512.vpdpbusd.512", "vpdpbusd", 4, unsigned=True),
        "int8",
        (units.AVX512_VNNI,),
    ),
    (_products("dot", "x86.avx2.vpdpbssd.256", "vpdpbssd", 4), "int8", (units.AVX_VNNI_INT8,)),
    (
        _products("dot", "x86.avx512bf16.dpbf16ps.512", "vdpbf16ps", 2),
        "bfloat16",
        (units.AVX512_BF16,),
    ),
    (tile_kernel, "bfloat16", (units.AMX_BF16,)),
    (tile_kernel, "int8", (units.AMX_INT8,)),
    (tile_kernel, "float16", (units.AMX_FP16,)),
    (_products("dot", "aarch64.neon.sdot.v4i32.v16i8", "sdot", 4), "int8", (units.NEON_DOT,)),
    (
        _products("dot", "aarch64.neon.bfdot.v4f32.v8bf16", "bfdot", 2),
        "bfloat16",
        (units.NEON_BF16,),
    ),
    (_products("mmla", "aarch64.neon.bfmmla", "bfmmla", 4), "bfloat16", (units.NEON_BF16,)),
    (_products("mmla", "aarch64.neon.smmla.v4i32.v16i8", "smmla", 8), "int8", (units.NEON_I8MM,)),
    (_products("dot", "aarch64.sve.sdot.nxv4i32", "sdot", 4), "int8", (units.SVE,)),
    (_products("dot", "aarch64.sve.bfdot", "bfdot", 2), "bfloat16", (units.SVE_BF16,)),
    (_products("mmla", "aarch64.sve.bfmmla", "bfmmla", 4), "bfloat16", (units.SVE_BF16,)),
    (_products("mmla", "aarch64.sve.smmla.nxv4i32", "smmla", 8), "int8", (units.SVE_I8MM,)),
)
"""What makes a kernel, for which data types, on which units: a row more is all that a new
instruction takes."""


def _all_kernels(sve_bits: int | None) -> tuple[ComputeKernel, ...]:
    """Every kernel there is, those of scalable units at a width of `sve_bits` (None: none)."""
    return tuple(
        make(dtype(element), dataclasses.replace(unit, bits=sve_bits) if unit.scalable else unit)
        for make, elements, row_units in _ROWS
        for unit in row_units
        for element in elements.split()
        if sve_bits or not unit.scalable
    )


COMPUTE_KERNELS = _all_kernels(units.SVE.bits)
"""Every compute kernel there is; those of scalable units at the least width."""


def compute_kernels(
    architecture: str, instruction_sets: Iterable[str], *, sve_bits: int | None = None
) -> tuple[ComputeKernel, ...]:
    """The compute kernels that a host with these instruction sets can run.

    `sve_bits` is the width of its SVE registers (`sve_vector_bits` asks for it): without it the
    work of SVE kernels is unknown, and they are left out.
    """
    available = frozenset(instruction_sets)
    return tuple(
        kernel for kernel in _all_kernels(sve_bits) if can_run(kernel.unit, architecture, available)
    )
