"""Compute kernels: a loop of MACs for every unit and data type.

FLOP of integer kernels are integer operations; multiply and add count one each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from roofline.core.dtypes import DType, dtype
from roofline.machine.kernels import assembly
from roofline.machine.kernels.assembly import VectorUnit, can_run
from roofline.machine.kernels.register_loop import ComputeKernel, Operation, tile_kernel

FLOP_PER_FMA = 2

_INT32, _INT16, _UINT8 = dtype("int32"), dtype("int16"), dtype("uint8")
_SVE_STEP_BITS = 128
_IR_NAMES = {
    "float64": "double",
    "float32": "float",
    "float16": "half",
    "bfloat16": "bfloat",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "i8",
}
_X86_REGISTER = {0: "%xmm", 128: "%xmm", 256: "%ymm", 512: "%zmm"}
_ARM_WIDTH = {64: "d", 32: "s", 16: "h", 8: "b"}


def ir_type(unit: VectorUnit, element: DType) -> str:
    """Return the IR type of a register of `unit` with elements of `element`."""
    name = _IR_NAMES[element.name]
    if unit.scalable:
        return f"<vscale x {_SVE_STEP_BITS // element.bits} x {name}>"
    return f"<{unit.lanes(element.bits)} x {name}>" if unit.bits else name


def _arm_instruction(unit: VectorUnit, names: str, element: DType) -> str:
    """Return a regular expression for the Arm instructions `names` (``"fmla|fmad"``)."""
    width = _ARM_WIDTH[element.bits]
    if unit.scalable:
        return rf"(?:{names})\s+z\d+\.{width}"
    if not unit.bits:
        return rf"(?:{names})\s+{width}\d"
    # GNU writes `fmla v0.4s, …`, Apple's assembler `fmla.4s v0, …`.
    arrangement = f"{unit.bits // element.bits}{width}"
    return rf"(?:{names})(?:\.{arrangement}\s|\s+v\d+\.{arrangement})"


def _x86_float(unit: VectorUnit, name: str, element: DType) -> str:
    kind = ("p" if unit.bits else "s") + {64: "d", 32: "s", 16: "h"}[element.bits]
    return rf"{name}{kind}\s+{_X86_REGISTER[unit.bits]}"


# Operations on one accumulator.


def _fma(unit: VectorUnit, element: DType, *, square: bool = False) -> Operation:
    """Return x + m * a, or x + a * a (`square`), rounded once."""
    m = "{a}" if square else "{m}"
    bits = element.bits
    if unit.scalable:
        suffix = f"nxv{_SVE_STEP_BITS // bits}f{bits}"
    else:
        suffix = f"v{unit.lanes(bits)}f{bits}" if unit.bits else f"f{bits}"
    kind, function = ir_type(unit, element), f"@llvm.fma.{suffix}"
    if unit.architecture == "x86_64":
        machine = _x86_float(unit, r"vfmadd\d{3}", element)
    else:
        names = "fmla|fmad" if unit.scalable else "fmla" if unit.bits else "fmadd"
        machine = _arm_instruction(unit, names, element)
    return Operation(
        # The accumulator is the addend: x = fma(x, m, a) needs a move on Arm and diverges.
        code=(f"{{y}} = call {kind} {function}({kind} {m}, {kind} {{a}}, {kind} {{x}})",),
        declarations=(f"declare {kind} {function}({kind}, {kind}, {kind})",),
        machine=(machine,),
        flop=unit.lanes(bits) * FLOP_PER_FMA,
    )


def _add(unit: VectorUnit, element: DType) -> Operation:
    if unit.architecture == "x86_64":
        machine = _x86_float(unit, "vadd", element)
    else:
        machine = _arm_instruction(unit, "fadd", element)
    return Operation(
        code=(f"{{y}} = fadd {ir_type(unit, element)} {{x}}, {{a}}",),
        machine=(machine,),
        flop=unit.lanes(element.bits),
    )


def _multiply_and_add(unit: VectorUnit, element: DType) -> Operation:
    """Return integer x + x * m modulo 2**32, or a + x * m for scalars.

    x + m * a would be loop-invariant.
    """
    kind = ir_type(unit, element)
    if unit.architecture == "aarch64":
        machine = (_arm_instruction(unit, "mla|mad", element) if unit.bits else r"madd\s+w\d",)
    elif unit.bits:
        register = _X86_REGISTER[unit.bits]
        machine = (rf"vpmulld\s+{register}", rf"vpaddd\s+{register}")
    else:
        machine = (r"imull\s", r"(?:addl|leal)\s")
    addend = "{x}" if unit.bits else "{a}"
    return Operation(
        code=(f"{{t}}p = mul {kind} {{x}}, {{m}}", f"{{y}} = add {kind} {{t}}p, {addend}"),
        machine=machine,
        flop=unit.lanes(element.bits) * 2,
    )


_BYTE_PRODUCTS = {
    128: ("ssse3.pmadd.ub.sw.128", "sse2.pmadd.wd"),
    256: ("avx2.pmadd.ub.sw", "avx2.pmadd.wd"),
    512: ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512"),
}


def _byte_products(unit: VectorUnit) -> Operation:
    """Return x + products of x's unsigned and m's signed bytes, four per lane; a is ones (int16).

    Three instructions, as without VNNI; sums of two products saturate at 16 bits. The accumulator
    is a factor too, because m * a would be loop-invariant.
    """
    byte, half, word = (f"<{unit.bits // bits} x i{bits}>" for bits in (8, 16, 32))
    products, sums = (f"@llvm.x86.{name}" for name in _BYTE_PRODUCTS[unit.bits])
    register = _X86_REGISTER[unit.bits]
    return Operation(
        code=(
            f"{{t}}b = bitcast {word} {{x}} to {byte}",
            f"{{t}}p = call {half} {products}({byte} {{t}}b, {byte} {{m}})",
            f"{{t}}s = call {word} {sums}({half} {{t}}p, {half} {{a}})",
            f"{{y}} = add {word} {{x}}, {{t}}s",
        ),
        declarations=(
            f"declare {half} {products}({byte}, {byte})",
            f"declare {word} {sums}({half}, {half})",
        ),
        machine=tuple(rf"{name}\s+{register}" for name in ("vpmaddubsw", "vpmaddwd", "vpaddd")),
        flop=unit.lanes(8) * 2,
    )


# Kernels, from data type and unit.


def _kernel(
    name: str,
    element: DType,
    unit: VectorUnit,
    *operations: Operation,
    accumulators: tuple[int, int] | None = None,
    factors: tuple[DType, DType] | None = None,
    sums: DType | None = None,
    packed: DType | None = None,
) -> ComputeKernel:
    """Return a kernel with `accumulators` of both variants; `packed` is the type of passed
    factors."""
    first, second = accumulators or unit.accumulators
    m, a = factors or (element, element)
    return ComputeKernel(
        name=name,
        dtype=element,
        unit=unit,
        accumulators=first,
        second_accumulators=second,
        factors=(m, a),
        sums=sums or element,
        factor_types=(ir_type(unit, packed or m), ir_type(unit, packed or a)),
        accumulator_type=ir_type(unit, sums or element),
        operations=operations,
    )


def fma_kernel(element: DType, unit: VectorUnit) -> ComputeKernel:
    """Return the FMA kernel of a floating-point type."""
    return _kernel("fma", element, unit, _fma(unit, element))


def _fma_add(element: DType, unit: VectorUnit) -> ComputeKernel:
    """Return alternating FMA and additions; exceeds the FMA peak on CPUs with separate adders."""
    operations = (_fma(unit, element, square=True), _add(unit, element))
    if unit.registers == 32:
        return _kernel("fma-add", element, unit, *operations, accumulators=(28, 24))
    # Four instructions per cycle need more sums than 16 registers hold. Omitting m gives one more;
    # additions have a shorter latency and need fewer sums.
    kernel = _kernel("fma-add", element, unit, *operations, accumulators=(15, 15))
    return dataclasses.replace(kernel, shares=(11, 4), unroll=12, second_unroll=8)


def _mul_add(element: DType, unit: VectorUnit) -> ComputeKernel:
    """Return integer multiply and add, with a register for the product."""
    vectors = {16: (12, 12), 32: (28, 24)}[unit.registers]
    # Scalars use general registers, two of them for the counter.
    scalars = {"x86_64": (11, 11), "aarch64": (20, 16)}[unit.architecture]
    sums = vectors if unit.bits else scalars
    return _kernel("mul-add", element, unit, _multiply_and_add(unit, element), accumulators=sums)


def _byte_dot(element: DType, unit: VectorUnit) -> ComputeKernel:
    return _kernel(
        *("dot", element, unit, _byte_products(unit)),
        accumulators={16: (12, 10), 32: (20, 16)}[unit.registers],
        factors=(element, _INT16),
        sums=_INT32,
    )


_Maker = Callable[[DType, VectorUnit], ComputeKernel]


def _products(name: str, function: str, mnemonic: str, products: int) -> _Maker:
    """Return a kernel maker: one instruction adds `products` products of m and a per 32-bit
    lane."""

    def kernel(element: DType, unit: VectorUnit) -> ComputeKernel:
        sums = dtype("float32") if element.kind == "float" else _INT32
        # On x86, elements are packed into 32 bits, which every LLVM accepts.
        packed = _INT32 if unit.architecture == "x86_64" else element
        total, factor = ir_type(unit, sums), ir_type(unit, packed)
        if unit.architecture == "x86_64":
            machine = rf"(?:{{vex}}\s+)?{mnemonic}\s+{_X86_REGISTER[unit.bits]}"
        else:
            machine = _arm_instruction(unit, mnemonic, _INT32)
        call = f"call {total} @llvm.{function}({total} {{x}}, {factor} {{m}}, {factor} {{a}})"
        operation = Operation(
            code=(f"{{y}} = {call}",),
            declarations=(f"declare {total} @llvm.{function}({total}, {factor}, {factor})",),
            machine=(machine,),
            flop=unit.lanes(32) * products * 2,
        )
        # One factor of vpdpbusd is unsigned.
        m = _UINT8 if mnemonic == "vpdpbusd" else element
        return _kernel(
            *(name, element, unit, operation), factors=(m, element), sums=sums, packed=packed
        )

    return kernel


_X86 = (assembly.SCALAR, assembly.SSE, assembly.AVX2, assembly.AVX512)
_PLAIN = (*_X86, assembly.ARM_SCALAR, assembly.NEON)
_ARM_HALF = (assembly.ARM_SCALAR_FP16, assembly.NEON_FP16)

_ROWS: tuple[tuple[_Maker, str, tuple[VectorUnit, ...]], ...] = (
    (fma_kernel, "float64 float32", (*_PLAIN, assembly.SVE)),
    (fma_kernel, "float16", (assembly.AVX512_FP16, *_ARM_HALF, assembly.SVE)),
    (_fma_add, "float64 float32", _PLAIN),
    (_fma_add, "float16", _ARM_HALF),
    (_mul_add, "int32", (*_PLAIN, assembly.SVE)),
    (_byte_dot, "int8", (assembly.SSE, assembly.AVX2, assembly.AVX512_BYTES)),
    (_products("dot", "x86.avx512.vpdpbusd.256", "vpdpbusd", 4), "int8", (assembly.AVX_VNNI,)),
    (_products("dot", "x86.avx512.vpdpbusd.512", "vpdpbusd", 4), "int8", (assembly.AVX512_VNNI,)),
    (_products("dot", "x86.avx2.vpdpbssd.256", "vpdpbssd", 4), "int8", (assembly.AVX_VNNI_INT8,)),
    (
        _products("dot", "x86.avx512bf16.dpbf16ps.512", "vdpbf16ps", 2),
        "bfloat16",
        (assembly.AVX512_BF16,),
    ),
    (tile_kernel, "bfloat16", (assembly.AMX_BF16,)),
    (tile_kernel, "int8", (assembly.AMX_INT8,)),
    (tile_kernel, "float16", (assembly.AMX_FP16,)),
    (_products("dot", "aarch64.neon.sdot.v4i32.v16i8", "sdot", 4), "int8", (assembly.NEON_DOT,)),
    (
        _products("dot", "aarch64.neon.bfdot.v4f32.v8bf16", "bfdot", 2),
        "bfloat16",
        (assembly.NEON_BF16,),
    ),
    (_products("mmla", "aarch64.neon.bfmmla", "bfmmla", 4), "bfloat16", (assembly.NEON_BF16,)),
    (
        _products("mmla", "aarch64.neon.smmla.v4i32.v16i8", "smmla", 8),
        "int8",
        (assembly.NEON_I8MM,),
    ),
    (_products("dot", "aarch64.sve.sdot.nxv4i32", "sdot", 4), "int8", (assembly.SVE,)),
    (_products("dot", "aarch64.sve.bfdot", "bfdot", 2), "bfloat16", (assembly.SVE_BF16,)),
    (_products("mmla", "aarch64.sve.bfmmla", "bfmmla", 4), "bfloat16", (assembly.SVE_BF16,)),
    (_products("mmla", "aarch64.sve.smmla.nxv4i32", "smmla", 8), "int8", (assembly.SVE_I8MM,)),
)
"""Maker, data types and units of each kernel; a new instruction needs one more row."""


def _all_kernels(sve_bits: int | None) -> tuple[ComputeKernel, ...]:
    """Return all kernels; scalable units have `sve_bits` (None: omitted)."""
    return tuple(
        make(dtype(element), dataclasses.replace(unit, bits=sve_bits) if unit.scalable else unit)
        for make, elements, row_units in _ROWS
        for unit in row_units
        for element in elements.split()
        if sve_bits or not unit.scalable
    )


COMPUTE_KERNELS = _all_kernels(assembly.SVE.bits)
"""All compute kernels; scalable units have the minimum width."""


def compute_kernels(
    architecture: str, instruction_sets: Iterable[str], *, sve_bits: int | None = None
) -> tuple[ComputeKernel, ...]:
    """Return the compute kernels of a host; SVE only if its register width is known."""
    available = frozenset(instruction_sets)
    return tuple(
        kernel for kernel in _all_kernels(sve_bits) if can_run(kernel.unit, architecture, available)
    )
