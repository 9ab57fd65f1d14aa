"""Transcendental functions: each counts `TRANSCENDENTAL_FLOP`, of which a kernel cannot avoid 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roofline.workload.formulas import complex_numbers
from roofline.workload.formulas.complex_numbers import Cost, series
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, elementwise, floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula(
    *("aten.atan2", "aten.erf", "aten.erfc", "aten.erfinv", "aten.lgamma", "aten.digamma"),
    *("aten.i0", "aten.special_i0e", "aten.special_i1", "aten.special_i1e", "aten.special_erfcx"),
    *("aten.igamma", "aten.igammac", "aten.polygamma", "aten.special_zeta", "aten.special_ndtri"),
    *("aten.special_airy_ai", "aten.special_log_ndtr", "aten.special_spherical_bessel_j0"),
    *(f"aten.special_bessel_{kind}{order}" for kind in "jy" for order in "01"),
    *(f"aten.special_modified_bessel_{kind}{order}" for kind in "ik" for order in "01"),
    *(f"aten.special_scaled_modified_bessel_k{order}" for order in "01"),
    type="pointwise",
)
def transcendental(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element."""
    return elementwise(arguments, output, 0, 1)


@formula("aten.exp", type="pointwise", is_for_complex=True)
def exponential(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: exp(a) * (cos(b) + i sin(b))."""
    return elementwise(arguments, output, 0, 1, complex_numbers.EXPONENTIAL)


@formula("aten.exp2", type="pointwise", is_for_complex=True)
def exponential_of_base_2(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: exp(z * log(2))."""
    cost = series(complex_numbers.SCALED, complex_numbers.EXPONENTIAL)
    return elementwise(arguments, output, 0, 1, cost)


@formula("aten.expm1", type="pointwise", is_for_complex=True)
def exponential_less_1(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: exp(z), and 1 less in the real part."""
    return elementwise(arguments, output, 0, 1, series(complex_numbers.EXPONENTIAL, Cost(1)))


@formula("aten.log", type="pointwise", is_for_complex=True)
def logarithm(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: log(|z|) + i atan2(b, a)."""
    return elementwise(arguments, output, 0, 1, complex_numbers.LOGARITHM)


@formula("aten.log2", "aten.log10", type="pointwise", is_for_complex=True)
def logarithm_of_another_base(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: log(z) times a real number."""
    cost = series(complex_numbers.LOGARITHM, complex_numbers.SCALED)
    return elementwise(arguments, output, 0, 1, cost)


@formula("aten.log1p", type="pointwise", is_for_complex=True)
def logarithm_from_1(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: log(1 + z)."""
    return elementwise(arguments, output, 0, 1, series(Cost(1), complex_numbers.LOGARITHM))


@formula("aten.sin", "aten.cos", "aten.sinh", "aten.cosh", type="pointwise", is_for_complex=True)
def sine(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: four, and two products."""
    return elementwise(arguments, output, 0, 1, complex_numbers.SINE)


@formula("aten.tan", "aten.tanh", type="pointwise", is_for_complex=True)
def tangent(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: four, and five operations."""
    return elementwise(arguments, output, 0, 1, complex_numbers.TANGENT)


@formula(
    "aten.asin", "aten.acos", "aten.asinh", "aten.acosh", type="pointwise", is_for_complex=True
)
def inverse_sine(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: log(z + sqrt(z * z + 1)) and its like."""
    return elementwise(arguments, output, 0, 1, complex_numbers.INVERSE_SINE)


@formula("aten.atan", "aten.atanh", type="pointwise", is_for_complex=True)
def inverse_tangent(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element; complex: log((1 + z) / (1 - z)) / 2 and its like."""
    return elementwise(arguments, output, 0, 1, complex_numbers.INVERSE_TANGENT)


_POWERS = {0: 0, 1: 0, 2: 1, 3: 2, 0.5: 1, -1: 1, -0.5: 2, -2: 2}
"""Operations of the powers that torch computes without a logarithm: products, root, reciprocal."""

_COMPLEX_POWERS = {
    0: Cost(0),
    1: Cost(0),
    2: complex_numbers.SQUARE,
    3: series(complex_numbers.SQUARE, complex_numbers.PRODUCT),
    0.5: complex_numbers.ROOT,
    -1: complex_numbers.RECIPROCAL,
    -0.5: series(complex_numbers.ROOT, complex_numbers.RECIPROCAL),
    -2: series(complex_numbers.SQUARE, complex_numbers.RECIPROCAL),
}


@formula("aten.pow", type="pointwise", is_for_complex=True)
def power(output: TensorSpec, exponent: object = None, **arguments: Any) -> Flop:
    """A square, a cube, a root or a reciprocal are one or two operations.

    Any other power is a transcendental function; complex: exp(exponent * log(z)).
    """
    arguments = {**arguments, "exponent": exponent}
    if isinstance(exponent, (int, float)) and exponent in _POWERS:
        cost = _COMPLEX_POWERS[exponent]
        return elementwise(arguments, output, _POWERS[exponent], of_complex=cost)
    return elementwise(arguments, output, 0, 1, complex_numbers.POWER)


@formula(
    *("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Scalar_out", "aten.pow_.Scalar"),
    type="pointwise",
    byte="each operand once, but nothing is read for the power of 0",
    is_for_complex=True,
)
def power_of_tensor(output: TensorSpec, exponent: object = None, **arguments: Any) -> Flop:
    """As `aten.pow`; the power of 0 is 1, whatever it is of."""
    unread = {"self": 0, "output": output.elements} if exponent == 0 else {}
    return replace(power(output, exponent, **arguments), elements=unread)


@formula("aten.xlogy", "aten.special_xlog1py", "aten.special_entr", type="pointwise")
def product_with_logarithm(output: TensorSpec, **arguments: Any) -> Flop:
    """x * log(y): is x zero, a multiplication, a logarithm."""
    return elementwise(arguments, output, 2, 1)


@formula("aten.logit", type="pointwise")
def logit(output: TensorSpec, eps: float | None = None, **arguments: Any) -> Flop:
    """log(x / (1 - x)): a subtraction, a division, a logarithm; two comparisons with limits."""
    return elementwise(arguments, output, 2 if eps is None else 4, 1)


@formula("aten.sinc", type="pointwise")
def sinc(output: TensorSpec, **arguments: Any) -> Flop:
    """sin(pi * x) / (pi * x): is x zero, a multiplication, a sine, a division."""
    return elementwise(arguments, output, 3, 1)


@formula("aten.logaddexp", "aten.logaddexp2", type="pointwise")
def logaddexp(output: TensorSpec, **arguments: Any) -> Flop:
    """max + log1p(exp(-|x - y|)): comparison, subtraction, magnitude, sign, addition, functions."""
    return elementwise(arguments, output, 5, 2)


@formula(
    *(f"aten.special_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *(f"aten.special_shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *("aten.special_hermite_polynomial_h", "aten.special_hermite_polynomial_he"),
    *("aten.special_laguerre_polynomial_l", "aten.special_legendre_polynomial_p"),
    type="pointwise",
)
def orthogonal_polynomial(output: TensorSpec, **_: Any) -> Flop:
    """As one transcendental function an element: the degrees are values, and may be 0."""
    elements = output.elements if floats(output) else 0
    return Flop(other=elements * TRANSCENDENTAL_FLOP, least=0)


@formula("aten.mvlgamma", type="pointwise")
def multivariate_lgamma(p: int, output: TensorSpec, **arguments: Any) -> Flop:
    """`p` terms: a subtraction and a function each, their sum, and a constant added to it."""
    return elementwise(arguments, output, 2 * p, p)
