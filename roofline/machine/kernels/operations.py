"""What compute kernels repeat: one operation on one accumulator, in IR and in machine code."""

from __future__ import annotations

from roofline.foundation.dtypes import DType
from roofline.machine.kernels.register_loop import Operation
from roofline.machine.kernels.units import VectorUnit

FLOP_PER_FMA = 2

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
    """The IR type of a register of `unit` that holds `element`."""
    name = _IR_NAMES[element.name]
    if unit.scalable:
        return f"<vscale x {_SVE_STEP_BITS // element.bits} x {name}>"
    return f"<{unit.lanes(element.bits)} x {name}>" if unit.bits else name


def arm_instruction(unit: VectorUnit, names: str, element: DType) -> str:
    """A regular expression for Arm's instructions `names` (``"fmla|fmad"``) on `element`."""
    width = _ARM_WIDTH[element.bits]
    if unit.scalable:
        return rf"(?:{names})\s+z\d+\.{width}"
    if not unit.bits:
        return rf"(?:{names})\s+{width}\d"
    # GNU writes `fmla v0.4s, …`, Apple's assembler `fmla.4s v0, …`.
    arrangement = f"{unit.bits // element.bits}{width}"
    return rf"(?:{names})(?:\.{arrangement}\s|\s+v\d+\.{arrangement})"


def _suffix(unit: VectorUnit, element: DType) -> str:
    """What LLVM appends to the name of an overloaded intrinsic: ``"v16f32"``."""
    if unit.scalable:
        return f"nxv{_SVE_STEP_BITS // element.bits}f{element.bits}"
    return f"v{unit.lanes(element.bits)}f{element.bits}" if unit.bits else f"f{element.bits}"


def _x86_float(unit: VectorUnit, name: str, element: DType) -> str:
    kind = ("p" if unit.bits else "s") + {64: "d", 32: "s", 16: "h"}[element.bits]
    return rf"{name}{kind}\s+{_X86_REGISTER[unit.bits]}"


def fma(unit: VectorUnit, element: DType, *, square: bool = False) -> Operation:
    """x + m * a, or x + a * a (`square`), rounded once."""
    m = "{a}" if square else "{m}"
    kind, function = ir_type(unit, element), f"@llvm.fma.{_suffix(unit, element)}"
    if unit.architecture == "x86_64":
        machine = _x86_float(unit, r"vfmadd\d{3}", element)
    else:
        names = "fmla|fmad" if unit.scalable else "fmla" if unit.bits else "fmadd"
        machine = arm_instruction(unit, names, element)
    return Operation(
        # The accumulator is the addend: an x = fma(x, m, a) costs a move for every multiply-add on
        # Arm, and never settles at a finite value.
        code=(f"{{y}} = call {kind} {function}({kind} {m}, {kind} {{a}}, {kind} {{x}})",),
        declarations=(f"declare {kind} {function}({kind}, {kind}, {kind})",),
        machine=(machine,),
        flop=unit.lanes(element.bits) * FLOP_PER_FMA,
    )


def add(unit: VectorUnit, element: DType) -> Operation:
    """x + a."""
    if unit.architecture == "x86_64":
        machine = _x86_float(unit, "vadd", element)
    else:
        machine = arm_instruction(unit, "fadd", element)
    return Operation(
        code=(f"{{y}} = fadd {ir_type(unit, element)} {{x}}, {{a}}",),
        machine=(machine,),
        flop=unit.lanes(element.bits),
    )


def multiply_and_add(unit: VectorUnit, element: DType) -> Operation:
    """Integers, modulo 2**32: x + x * m, or, one element at a time, a + x * m.

    x + m * a would be no work: the product is the same in every step.
    """
    kind = ir_type(unit, element)
    if unit.architecture == "aarch64":
        machine = (arm_instruction(unit, "mla|mad", element) if unit.bits else r"madd\s+w\d",)
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
    128: "ssse3.pmadd.ub.sw.128",
    256: "avx2.pmadd.ub.sw",
    512: "avx512.pmaddubs.w.512",
}
_PAIR_SUMS = {128: "sse2.pmadd.wd", 256: "avx2.pmadd.wd", 512: "avx512.pmaddw.d.512"}


def byte_dot(unit: VectorUnit) -> Operation:
    """x + the products of x's bytes (unsigned) with m's (signed), four a lane; a is ones (int16).

    In three instructions, as it is done without VNNI; sums of two products saturate at 16 bits. The
    accumulator is a factor too, since a product of m and a would be the same in every step.
    """
    byte, half, word = (f"<{unit.bits // bits} x i{bits}>" for bits in (8, 16, 32))
    products, sums = f"@llvm.x86.{_BYTE_PRODUCTS[unit.bits]}", f"@llvm.x86.{_PAIR_SUMS[unit.bits]}"
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


def sum_of_products(
    unit: VectorUnit, function: str, mnemonic: str, types: tuple[str, str], products: int
) -> Operation:
    """One instruction that adds `products` products of elements of m and a to each 32-bit lane.

    `types` are the IR types of the sums and of the factors.
    """
    total, factor = types
    if unit.architecture == "x86_64":
        machine = rf"(?:{{vex}}\s+)?{mnemonic}\s+{_X86_REGISTER[unit.bits]}"
    else:
        machine = arm_instruction(unit, mnemonic, DType("int32", 32, "int"))
    return Operation(
        code=(
            f"{{y}} = call {total} @llvm.{function}({total} {{x}}, {factor} {{m}}, {factor} {{a}})",
        ),
        declarations=(f"declare {total} @llvm.{function}({total}, {factor}, {factor})",),
        machine=(machine,),
        flop=unit.lanes(32) * products * 2,
    )
