"""Element by element: so many operations for each element of the output.

Additions, multiplications, divisions, square roots, comparisons and sign changes count 1 each;
exponentials, logarithms and the other transcendental functions count `TRANSCENDENTAL_FLOP`, of
which a kernel cannot avoid 1. Arithmetic on integers is no floating-point operation.
"""

from __future__ import annotations

from typing import Any

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
    arguments: dict[str, Any], output: TensorSpec, simple: int, transcendental: int = 0
) -> Flop:
    """`simple` operations and `transcendental` functions for each element of the output."""
    if not floats(output, *arguments.values()):
        return Flop()
    elements = output.elements
    return Flop(
        other=elements * (simple + transcendental * TRANSCENDENTAL_FLOP),
        least=elements * (simple + transcendental),
    )


@formula(
    *("aten.mul", "aten.div", "aten.neg", "aten.abs", "aten.sqrt", "aten.relu", "aten.maximum"),
    *("aten.minimum", "aten.eq", "aten.ne", "aten.lt", "aten.le", "aten.gt", "aten.ge"),
    *("aten.reciprocal", "aten.sign", "aten.floor", "aten.ceil", "aten.round", "aten.trunc"),
    *("aten.square", "aten.threshold", "aten.max.other", "aten.min.other", "aten.clamp_min"),
    *("aten.clamp_max", "aten.remainder", "aten.fmod", "aten.isnan", "aten.isinf", "aten.frac"),
    *("aten.fmax", "aten.fmin", "aten.sgn", "aten.signbit", "aten.isposinf", "aten.isneginf"),
    *("aten.deg2rad", "aten.rad2deg", "aten.ldexp"),
)
def one_operation(output: TensorSpec, **arguments: Any) -> Flop:
    """One operation an element."""
    return elementwise(arguments, output, 1)


@formula("aten.rsqrt", "aten.hardtanh", "aten.leaky_relu", "aten.prelu", "aten._prelu_kernel")
@formula("aten.hardshrink", "aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide")
@formula("aten.heaviside", "aten._add_relu")
def two_operations(output: TensorSpec, **arguments: Any) -> Flop:
    """Two an element: root and reciprocal; two comparisons; comparison and multiplication;
    division and rounding; addition and comparison."""
    return elementwise(arguments, output, 2)


@formula("aten.add", "aten.sub", "aten.rsub")
def scaled_sum(output: TensorSpec, alpha: float = 1, **arguments: Any) -> Flop:
    """self + alpha * other: one an element, two where alpha is not 1."""
    return elementwise(arguments, output, 1 if alpha == 1 else 2)


@formula("aten.addcmul", "aten.addcdiv")
def sum_of_products(output: TensorSpec, value: float = 1, **arguments: Any) -> Flop:
    """self + value * tensor1 * tensor2 (or divided): two an element, three where value is not 1."""
    return elementwise(arguments, output, 2 if value == 1 else 3)


@formula("aten.lerp", "aten.nan_to_num")
def three_operations(output: TensorSpec, **arguments: Any) -> Flop:
    """self + weight * (end - self); is it NaN, the largest, the smallest?"""
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


@formula(
    *("aten.exp", "aten.exp2", "aten.expm1", "aten.log", "aten.log2", "aten.log10", "aten.log1p"),
    *("aten.sin", "aten.cos", "aten.tan", "aten.asin", "aten.acos", "aten.atan", "aten.atan2"),
    *("aten.sinh", "aten.cosh", "aten.tanh", "aten.erf", "aten.erfc", "aten.erfinv"),
    *("aten.asinh", "aten.acosh", "aten.atanh", "aten.lgamma", "aten.digamma", "aten.i0"),
    *("aten.special_i0e", "aten.special_i1", "aten.special_i1e", "aten.special_erfcx"),
)
def transcendental(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element."""
    return elementwise(arguments, output, 0, 1)


_POWERS = {0: 0, 1: 0, 2: 1, 3: 2, 0.5: 1, -1: 1, -0.5: 2, -2: 2}
"""Operations of the powers that torch computes without a logarithm: products, root, reciprocal."""


@formula("aten.pow")
def power(output: TensorSpec, exponent: object = None, **arguments: Any) -> Flop:
    """A square, a cube, a root or a reciprocal are one or two operations.

    Any other power is a transcendental function.
    """
    arguments = {**arguments, "exponent": exponent}
    if isinstance(exponent, (int, float)) and exponent in _POWERS:
        return elementwise(arguments, output, _POWERS[exponent])
    return elementwise(arguments, output, 0, 1)


@formula("aten.xlogy", "aten.special_xlog1py", "aten.special_entr")
def product_with_logarithm(output: TensorSpec, **arguments: Any) -> Flop:
    """x * log(y): is x zero, a multiplication, a logarithm."""
    return elementwise(arguments, output, 2, 1)


@formula("aten.logit")
def logit(output: TensorSpec, eps: float | None = None, **arguments: Any) -> Flop:
    """log(x / (1 - x)): a subtraction, a division, a logarithm; two comparisons with limits."""
    return elementwise(arguments, output, 2 if eps is None else 4, 1)


@formula("aten.sinc")
def sinc(output: TensorSpec, **arguments: Any) -> Flop:
    """sin(pi * x) / (pi * x): is x zero, a multiplication, a sine, a division."""
    return elementwise(arguments, output, 3, 1)


@formula("aten.logaddexp", "aten.logaddexp2")
def logaddexp(output: TensorSpec, **arguments: Any) -> Flop:
    """max + log1p(exp(-|x - y|)): comparison, subtraction, magnitude, sign, addition, functions."""
    return elementwise(arguments, output, 5, 2)


@formula("aten.logical_and", "aten.logical_or", "aten.logical_not", "aten.logical_xor")
@formula("aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_not", "aten.bitwise_xor")
@formula("aten.bitwise_left_shift", "aten.bitwise_right_shift", "aten.gcd", "aten.lcm")
@formula("aten.copysign", "aten.nextafter", "aten.frexp")
def logic(**_: Any) -> Flop:
    """Logic, on the bits of numbers too, is no floating-point arithmetic."""
    return Flop()
