"""Element by element: so many operations for each element of the output.

Additions, multiplications, divisions, square roots, comparisons and sign changes count 1 each;
exponentials, logarithms and the other transcendental functions count `TRANSCENDENTAL_FLOP`, of
which a kernel cannot avoid 1. Arithmetic on integers is no floating-point operation. What complex
numbers take is in `complex_numbers`.
"""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas import complex_numbers
from roofline.workload.formulas.complex_numbers import Cost, is_complex, series
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

TRANSCENDENTAL_FLOP = 8
"""Of exp, log, sin, tanh, erf …: the weight of F. H. McMahon, "The Livermore Fortran Kernels: A
Computer Test of the Numerical Performance Range", UCRL-53745, 1986."""


def floats(*operands: Any) -> bool:
    """Whether one of the operands is a tensor of floating-point numbers."""
    return any(
        isinstance(each, TensorSpec) and each.dtype.kind in ("float", "complex")
        for each in operands
    )


def elementwise(
    arguments: dict[str, Any],
    output: TensorSpec,
    simple: int,
    transcendental: int = 0,
    of_complex: Cost | None = None,
) -> Flop:
    """`simple` operations and `transcendental` functions for each element of the output.

    ``of_complex`` is what an element takes where one of the tensors is complex.
    """
    if not floats(output, *arguments.values()):
        return Flop()
    cost = Cost(simple, transcendental)
    if of_complex is not None and any(is_complex(each) for each in (output, *arguments.values())):
        cost = of_complex
    return Flop(
        other=output.elements * (cost.simple + cost.functions * TRANSCENDENTAL_FLOP),
        least=output.elements * cost.least_operations,
    )


@formula(
    *("aten.relu", "aten.maximum", "aten.minimum", "aten.lt", "aten.le", "aten.gt", "aten.ge"),
    *("aten.sign", "aten.floor", "aten.ceil", "aten.round", "aten.trunc", "aten.threshold"),
    *("aten.max.other", "aten.min.other", "aten.clamp_min", "aten.clamp_max", "aten.remainder"),
    *("aten.fmod", "aten.frac", "aten.fmax", "aten.fmin", "aten.signbit", "aten.isposinf"),
    *("aten.isneginf", "aten.deg2rad", "aten.rad2deg", "aten.ldexp"),
)
def one_operation(output: TensorSpec, **arguments: Any) -> Flop:
    """One operation an element."""
    return elementwise(arguments, output, 1)


@formula(
    *("aten.neg", "aten._neg_view_copy", "aten.eq", "aten.ne", "aten.isnan", "aten.isinf"),
    is_for_complex=True,
)
def one_operation_a_part(output: TensorSpec, **arguments: Any) -> Flop:
    """One operation an element; of complex numbers, one for either part."""
    return elementwise(arguments, output, 1, of_complex=Cost(2))


@formula(
    "aten.equal",
    byte="each operand once; minimum: nothing (shapes or first elements may differ)",
    is_for_complex=True,
)
def equal(self: TensorSpec, other: TensorSpec, **_: Any) -> Flop:
    """A comparison an element, of complex numbers two; it stops at the first that differs."""
    whole = one_operation_a_part(self, other=other)
    return Flop(other=whole.other, least=0, min_elements={"self": 0, "other": 0})


@formula("aten.round.decimals")
def round_to_decimals(output: TensorSpec, decimals: int, **arguments: Any) -> Flop:
    """A scaling, a rounding, and the scaling back; to no decimals, the rounding alone."""
    return elementwise(arguments, output, 3 if decimals else 1)


@formula("aten.mul", is_for_complex=True)
def multiplication(self: Any, other: Any, output: TensorSpec, **_: Any) -> Flop:
    """One an element; complex: four products and two sums, or two products with a real number."""
    cost = complex_numbers.times(self, other)
    return elementwise({"self": self, "other": other}, output, 1, of_complex=cost)


@formula("aten.div", is_for_complex=True)
def division(self: Any, other: Any, output: TensorSpec, **_: Any) -> Flop:
    """One an element; complex: 11 (8 for a real dividend, 2 for a real divisor)."""
    cost = complex_numbers.divided(self, other)
    return elementwise({"self": self, "other": other}, output, 1, of_complex=cost)


@formula("aten.reciprocal", is_for_complex=True)
def reciprocal(output: TensorSpec, **arguments: Any) -> Flop:
    """One division an element; complex: 6, conj(z) / (a * a + b * b)."""
    return elementwise(arguments, output, 1, of_complex=complex_numbers.RECIPROCAL)


@formula("aten.square", is_for_complex=True)
def square(output: TensorSpec, **arguments: Any) -> Flop:
    """One product an element; complex: 6."""
    return elementwise(arguments, output, 1, of_complex=complex_numbers.SQUARE)


@formula("aten.abs", is_for_complex=True)
def magnitude(output: TensorSpec, **arguments: Any) -> Flop:
    """One an element; complex: sqrt(a * a + b * b), four."""
    return elementwise(arguments, output, 1, of_complex=complex_numbers.MAGNITUDE)


@formula("aten.sgn", is_for_complex=True)
def unit(output: TensorSpec, **arguments: Any) -> Flop:
    """One an element; complex: the magnitude, and a division of both parts."""
    cost = series(complex_numbers.MAGNITUDE, complex_numbers.SCALED)
    return elementwise(arguments, output, 1, of_complex=cost)


@formula("aten.angle", is_for_complex=True)
def angle(output: TensorSpec, **arguments: Any) -> Flop:
    """Complex: one transcendental function, atan2(b, a); real: is it NaN, is it below 0?"""
    return elementwise(arguments, output, 2, of_complex=Cost(0, 1))


@formula("aten.polar", is_for_complex=True)
def polar(output: TensorSpec, **_: Any) -> Flop:
    """abs * (cos(angle) + i sin(angle)): two functions, two products."""
    return elementwise({}, output, 0, of_complex=Cost(2, 2))


@formula("aten.conj_physical", "aten._conj_physical", "aten._conj_copy", is_for_complex=True)
def conjugate(output: TensorSpec, **_: Any) -> Flop:
    """A sign change of the imaginary part; real numbers are copied."""
    return elementwise({}, output, 0, of_complex=Cost(1))


@formula("aten.sqrt", is_for_complex=True)
def root(output: TensorSpec, **arguments: Any) -> Flop:
    """One an element; complex: 9, from the magnitude."""
    return elementwise(arguments, output, 1, of_complex=complex_numbers.ROOT)


@formula("aten.rsqrt", is_for_complex=True)
def reciprocal_root(output: TensorSpec, **arguments: Any) -> Flop:
    """Root and reciprocal: two an element; complex: 9 and 6."""
    cost = series(complex_numbers.ROOT, complex_numbers.RECIPROCAL)
    return elementwise(arguments, output, 2, of_complex=cost)


@formula("aten.hardtanh", "aten.leaky_relu", "aten.prelu", "aten._prelu_kernel")
@formula("aten.hardshrink", "aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide")
@formula("aten.heaviside", "aten._add_relu", "aten._masked_scale")
def two_operations(output: TensorSpec, **arguments: Any) -> Flop:
    """Two an element: two comparisons; comparison and multiplication; division and rounding;
    addition and comparison; mask and scale."""
    return elementwise(arguments, output, 2)


@formula("aten.add", is_for_complex=True)
def scaled_sum(self: Any, other: Any, output: TensorSpec, alpha: Any = 1, **_: Any) -> Flop:
    """self + alpha * other: one an element, two where alpha is not 1; complex: each part."""
    cost = complex_numbers.plus(self, other, alpha)
    operands = {"self": self, "other": other}
    return elementwise(operands, output, 1 if alpha == 1 else 2, of_complex=cost)


@formula("aten.sub", is_for_complex=True)
def scaled_difference(self: Any, other: Any, output: TensorSpec, alpha: Any = 1, **_: Any) -> Flop:
    """self - alpha * other: one an element, two where alpha is not 1; complex: each part."""
    cost = complex_numbers.minus(self, other, alpha)
    operands = {"self": self, "other": other}
    return elementwise(operands, output, 1 if alpha == 1 else 2, of_complex=cost)


@formula("aten.rsub", is_for_complex=True)
def reversed_difference(
    self: Any, other: Any, output: TensorSpec, alpha: Any = 1, **_: Any
) -> Flop:
    """other - alpha * self: as the difference."""
    return scaled_difference(other, self, output, alpha)


@formula("aten.addcmul", is_for_complex=True)
def sum_of_products(output: TensorSpec, value: float = 1, **arguments: Any) -> Flop:
    """self + value * tensor1 * tensor2: two an element, or three; complex: 8, or 10."""
    cost = series(complex_numbers.PRODUCT, complex_numbers.SUM)
    return _with_value(cost, output, value, arguments)


@formula("aten.addcdiv", is_for_complex=True)
def sum_of_quotients(output: TensorSpec, value: float = 1, **arguments: Any) -> Flop:
    """self + value * tensor1 / tensor2: two, or three; complex: 13, or 15."""
    cost = series(complex_numbers.QUOTIENT, complex_numbers.SUM)
    return _with_value(cost, output, value, arguments)


def _with_value(cost: Cost, output: TensorSpec, value: Any, arguments: dict[str, Any]) -> Flop:
    if value == 1:
        return elementwise(arguments, output, 2, of_complex=cost)
    return elementwise(arguments, output, 3, of_complex=series(cost, _by(value)))


def _by(value: Any) -> Cost:
    return complex_numbers.PRODUCT if is_complex(value) else complex_numbers.SCALED


@formula("aten.lerp", is_for_complex=True)
def interpolation(output: TensorSpec, weight: Any, **arguments: Any) -> Flop:
    """self + weight * (end - self): three an element; complex: 6, or 10 if the weight is too."""
    cost = series(complex_numbers.SUM, complex_numbers.SUM, _by(weight))
    return elementwise({**arguments, "weight": weight}, output, 3, of_complex=cost)


@formula("aten.nan_to_num")
def three_operations(output: TensorSpec, **arguments: Any) -> Flop:
    """Is it NaN, the largest, the smallest?"""
    return elementwise(arguments, output, 3)


@formula("aten.hypot")
def hypotenuse(output: TensorSpec, **arguments: Any) -> Flop:
    """sqrt(x * x + y * y): four an element."""
    return elementwise(arguments, output, 4)


@formula("aten.clamp")
def clamp(output: TensorSpec, min: object = None, max: object = None, **arguments: Any) -> Flop:
    """One comparison an element and limit."""
    limits = (min is not None) + (max is not None)
    return elementwise({**arguments, "min": min, "max": max}, output, limits)


@formula("aten.logical_and", "aten.logical_or", "aten.logical_not", "aten.logical_xor")
@formula("aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_not", "aten.bitwise_xor")
@formula("aten.bitwise_left_shift", "aten.bitwise_right_shift", "aten.gcd", "aten.lcm")
@formula("aten.copysign", "aten.nextafter", "aten.frexp", "aten.hash_tensor")
@formula("aten.__lshift__", "aten.__rshift__", "aten.__ilshift__", "aten.__irshift__")
def logic(**_: Any) -> Flop:
    """Logic, on the bits of numbers too, is no floating-point arithmetic."""
    return Flop()
