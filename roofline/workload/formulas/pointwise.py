"""Element by element: a cost per element of the output.

Additions, multiplications, divisions, square roots, comparisons and sign changes count 1 each.
Exponentials, logarithms and the other transcendental functions, `F`, count `TRANSCENDENTAL_FLOP`,
with a minimum of 1. Arithmetic on integers is not FLOP.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from roofline.workload.formulas import costs
from roofline.workload.formulas.costs import Cost, F, cost, has_floats, is_complex
from roofline.workload.formulas.registry import Flop, Tensors, formula, table
from roofline.workload.tensors import TensorSpec as Tensor


def elementwise(
    arguments: dict[str, Any], output: Tensor, of_real: Cost | int, of_complex: Cost | None = None
) -> Flop:
    """Return the cost per output element, complex if one of the tensors is."""
    if not has_floats(output, *arguments.values()):
        return Flop()
    each = cost(of_real)
    if of_complex is not None and any(is_complex(each) for each in (output, *arguments.values())):
        each = of_complex
    return each.flop(output.elements)


def first_output(output: Tensor | Tensors) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def broadcast_elements(first: Tensor, second: Tensor) -> int:
    sizes = zip_longest(first.shape[::-1], second.shape[::-1], fillvalue=1)
    return math.prod(a if b == 1 else b for a, b in sizes)


def each_element(
    of: Cost | int | tuple[Cost | int, Cost | int], output: Tensor | Tensors, **arguments: Any
) -> Flop:
    """Count `elementwise`, by the cost of a row, or by its real and complex costs."""
    of_real, of_complex = of if isinstance(of, tuple) else (of, None)
    given = None if of_complex is None else cost(of_complex)
    return elementwise(arguments, first_output(output), of_real, given)


table(
    """
aten.relu aten.maximum aten.minimum aten.lt aten.le aten.gt aten.ge aten.sign aten.floor aten.ceil
aten.round aten.trunc aten.threshold aten.max.other aten.min.other aten.clamp_min aten.clamp_max
aten.remainder aten.fmod aten.frac aten.fmax aten.fmin aten.signbit aten.isposinf aten.isneginf
aten.deg2rad aten.rad2deg aten.ldexp = 1
    1 per element.
aten.neg aten._neg_view_copy aten.eq aten.ne aten.isnan aten.isinf = 1; complex 2
    1 per element; complex: 1 per part.
aten.round.decimals = 3 if decimals else 1
    A scaling, a rounding, and the scaling back; without decimals only the rounding.
aten.mul = 1; complex product_cost(self, other)
    1 per element; complex: four products and two sums, or two products with a real number.
aten.div = 1; complex quotient_cost(self, other)
    1 per element; complex: 11 (8 for a real dividend, 2 for a real divisor).
aten.reciprocal = 1; complex RECIPROCAL
    1 division per element; complex: 6, conj(z) / (a * a + b * b).
aten.square = 1; complex SQUARE
    1 product per element; complex: 6.
aten.abs = 1; complex MAGNITUDE
    1 per element; complex: sqrt(a * a + b * b), 4.
aten.sgn = 1; complex MAGNITUDE + SCALED
    1 per element; complex: the magnitude, and a division of both parts.
aten.angle = 2; complex F
    Complex: one transcendental function, atan2(b, a); real: tests for NaN and for below 0.
aten.polar = 0; complex 2 + 2 * F
    abs * (cos(angle) + i sin(angle)): two functions, two products.
aten.conj_physical aten._conj_physical aten._conj_copy = 0; complex 1
    A sign change of the imaginary part; real numbers are copied.
aten.sqrt = 1; complex ROOT
    1 per element; complex: 9, from the magnitude.
aten.rsqrt = 2; complex ROOT + RECIPROCAL
    Root and reciprocal: 2 per element; complex: 9 and 6.
aten.hardtanh aten.leaky_relu aten.prelu aten._prelu_kernel aten.hardshrink aten.div.Tensor_mode
aten.div.Scalar_mode aten.floor_divide aten.heaviside aten._add_relu aten._masked_scale = 2
    2 per element: two comparisons; comparison and multiplication; division and rounding; addition
    and comparison; or mask and scale.
aten.add = 1 if alpha == 1 else 2; complex sum_cost(self, other, alpha)
    self + alpha * other: 1 per element, 2 if alpha is not 1; complex: each part.
aten.sub = 1 if alpha == 1 else 2; complex difference_cost(other, alpha)
    self - alpha * other: 1 per element, 2 if alpha is not 1; complex: each part.
aten.rsub = 1 if alpha == 1 else 2; complex difference_cost(self, alpha)
    other - alpha * self: as aten.sub.
aten.addcmul = 2 if value == 1 else 3; complex PRODUCT + 2 + scale_cost(1j, value)
    self + value * tensor1 * tensor2: 2 per element, or 3; complex: 8, or 10.
aten.addcdiv = 2 if value == 1 else 3; complex QUOTIENT + 2 + scale_cost(1j, value)
    self + value * tensor1 / tensor2: 2 per element, or 3; complex: 13, or 15.
aten.lerp = 3; complex 2 + 2 + product_cost(1j, weight)
    self + weight * (end - self): 3 per element; complex: 6, or 10 for a complex weight.
aten.nan_to_num = 3
    Tests for NaN, the largest and the smallest number.
aten.hypot = 4
    sqrt(x * x + y * y): 4 per element.
aten.clamp = (min is not None) + (max is not None)
    1 comparison per element and limit.
aten.logical_and aten.logical_or aten.logical_not aten.logical_xor aten.bitwise_and aten.bitwise_or
aten.bitwise_not aten.bitwise_xor aten.bitwise_left_shift aten.bitwise_right_shift aten.gcd aten.lcm
aten.copysign aten.nextafter aten.frexp aten.hash_tensor aten.__lshift__ aten.__rshift__
aten.__ilshift__ aten.__irshift__ = 0
    Logic, also on the bits of numbers, is not FLOP.
""",
    each_element,
    names=vars(costs),
)


@formula(
    "aten.equal",
    byte="each operand once; minimum: nothing (shapes may differ)",
    is_for_complex=True,
)
def equal(self: Tensor, other: Tensor, **_: Any) -> Flop:
    """1 comparison per element, complex 2; it stops at the first difference."""
    whole = elementwise({"other": other}, self, 1, Cost(2))
    return Flop(other=whole.other, least=0, min_elements={"self": 0, "other": 0})


GELU = 4 + F
"""x/2 * (1 + erf(x/sqrt 2))."""

# Activation functions.
table(
    """
aten.softshrink = 3
    Two comparisons, and an addition or subtraction.
aten.rrelu_with_noise aten.rrelu_with_noise_functional = 4 if training else 2
    A comparison and a multiplication; in training, 2 more for the random slope.
aten.hardsigmoid = 4
    clamp(x + 3, 0, 6) / 6: 4 per element.
aten.hardswish = 5
    x * clamp(x + 3, 0, 6) / 6: 5 per element.
aten.sigmoid = 3 + F; complex SIGMOID
    1 / (1 + exp(-x)): a sign change, an exponential, an addition, a division.
aten.silu = 3 + F; complex 2 + EXPONENTIAL + 1 + QUOTIENT
    x / (1 + exp(-x)): a sign change, an exponential, an addition, a division.
aten.glu = 3 + F
    x / (1 + exp(-y)), with the other half of the channels y: as aten.silu.
aten.softplus = 2 + 2 * F if beta == 1 else 4 + 2 * F
    log(1 + exp(beta * x)) / beta: an addition, a comparison (threshold), two functions.
aten.log_sigmoid_forward = 3 + 2 * F
    -log(1 + exp(-x)): two sign changes, an addition, two transcendental functions.
aten.mish = 2 + 3 * F
    x * tanh(log(1 + exp(x))): an addition, a multiplication, three transcendental functions.
aten.elu aten.celu aten.selu = 3 + F
    x or scale * (exp(x) - 1): a comparison, an exponential, a subtraction, a multiplication.
aten.gelu = 8 + F if approximate == "tanh" else GELU
    x/2 * (1 + erf(x/sqrt 2)), or x/2 * (1 + tanh(a * (x + b * x**3))) if approximated.
""",
    each_element,
    names=vars(costs),
)

# Transcendental functions: each counts `TRANSCENDENTAL_FLOP`, with a minimum of 1.
table(
    """
aten.atan2 aten.erf aten.erfc aten.erfinv aten.lgamma aten.digamma aten.i0 aten.special_i0e
aten.special_i1 aten.special_i1e aten.special_erfcx aten.igamma aten.igammac aten.polygamma
aten.special_zeta aten.special_ndtri aten.special_airy_ai aten.special_log_ndtr
aten.special_spherical_bessel_j0 aten.special_bessel_j0 aten.special_bessel_j1
aten.special_bessel_y0 aten.special_bessel_y1 aten.special_modified_bessel_i0
aten.special_modified_bessel_i1 aten.special_modified_bessel_k0 aten.special_modified_bessel_k1
aten.special_scaled_modified_bessel_k0 aten.special_scaled_modified_bessel_k1 = F
    1 transcendental function per element.
aten.exp = F; complex EXPONENTIAL
    1 transcendental function per element; complex: exp(a) * (cos(b) + i sin(b)).
aten.exp2 = F; complex SCALED + EXPONENTIAL
    1 transcendental function per element; complex: exp(z * log(2)).
aten.expm1 = F; complex EXPONENTIAL + 1
    1 transcendental function per element; complex: exp(z), and 1 less in the real part.
aten.log = F; complex LOGARITHM
    1 transcendental function per element; complex: log(|z|) + i atan2(b, a).
aten.log2 aten.log10 = F; complex LOGARITHM + SCALED
    1 transcendental function per element; complex: log(z) times a real number.
aten.log1p = F; complex 1 + LOGARITHM
    1 transcendental function per element; complex: log(1 + z).
aten.sin aten.cos aten.sinh aten.cosh = F; complex SINE
    1 transcendental function per element; complex: 4, and two products.
aten.tan aten.tanh = F; complex TANGENT
    1 transcendental function per element; complex: 4, and five operations.
aten.asin aten.acos aten.asinh aten.acosh = F; complex INVERSE_SINE
    1 transcendental function per element; complex: log(z + sqrt(z * z + 1)) and related.
aten.atan aten.atanh = F; complex INVERSE_TANGENT
    1 transcendental function per element; complex: log((1 + z) / (1 - z)) / 2 and related.
aten.xlogy aten.special_xlog1py aten.special_entr = 2 + F
    x * log(y): a test for 0, a multiplication, a logarithm.
aten.logit = (2 if eps is None else 4) + F
    log(x / (1 - x)): a subtraction, a division, a logarithm; two comparisons with limits.
aten.sinc = 3 + F
    sin(pi * x) / (pi * x): a test for 0, a multiplication, a sine, a division.
aten.logaddexp aten.logaddexp2 = 5 + 2 * F
    max + log1p(exp(-|x - y|)): comparison, subtraction, magnitude, sign, addition, functions.
aten.mvlgamma = 2 * p + p * F
    `p` terms: a subtraction and a function each, their sum, and an added constant.
aten.special_chebyshev_polynomial_t aten.special_chebyshev_polynomial_u
aten.special_chebyshev_polynomial_v aten.special_chebyshev_polynomial_w
aten.special_shifted_chebyshev_polynomial_t aten.special_shifted_chebyshev_polynomial_u
aten.special_shifted_chebyshev_polynomial_v aten.special_shifted_chebyshev_polynomial_w
aten.special_hermite_polynomial_h aten.special_hermite_polynomial_he
aten.special_laguerre_polynomial_l aten.special_legendre_polynomial_p = Cost(0, 1, least=0)
    1 transcendental function per element; minimum 0 (degrees are values).
""",
    each_element,
    names=vars(costs),
)


_POWERS = {
    0: (0, Cost(0)),
    1: (0, Cost(0)),
    2: (1, costs.SQUARE),
    3: (2, costs.SQUARE + costs.PRODUCT),
    0.5: (1, costs.ROOT),
    -1: (1, costs.RECIPROCAL),
    -0.5: (2, costs.ROOT + costs.RECIPROCAL),
    -2: (2, costs.SQUARE + costs.RECIPROCAL),
}
"""Powers without a logarithm in torch, of real and of complex numbers."""


@formula("aten.pow", is_for_complex=True)
def power(output: Tensor, exponent: object = None, **arguments: Any) -> Flop:
    """A square, a cube, a root or a reciprocal: 1 or 2 per element.

    Any other power is a transcendental function; complex: exp(exponent * log(z)).
    """
    each = (F, costs.POWER)
    if isinstance(exponent, (int, float)):
        each = _POWERS.get(exponent, each)
    return elementwise({**arguments, "exponent": exponent}, output, *each)


@formula(
    *("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Scalar_out", "aten.pow_.Scalar"),
    byte="each operand once; for an exponent of 0 the result alone",
    is_for_complex=True,
)
def power_of_tensor(output: Tensor, exponent: object = None, **arguments: Any) -> Flop:
    """As aten.pow; a power of 0 is 1 and reads nothing."""
    unread = {"self": 0, "output": output.elements} if exponent == 0 else {}
    return replace(power(output, exponent, **arguments), elements=unread)


# Derivatives of functions of single elements, times the gradient of the result. Both branches of a
# choice are computed for every element, as in vector units; loop invariants are not counted.


@formula("aten.elu_backward")
def elu_backward(
    output: Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    **arguments: Any,
) -> Flop:
    """g * scale above 0; below, g * input_scale * (y + alpha * scale).

    From the input instead of the result: g * (alpha * scale * input_scale) * exp(x * input_scale).
    A comparison, and the products with a factor other than 1.
    """
    each = (scale != 1) + (input_scale != 1)
    below = 3 if is_result else 2 + (alpha * scale * input_scale != 1) + F
    return elementwise(arguments, output, each + below)


table(
    """
aten.threshold_backward = 1
    The gradient where the input is above the threshold: 1 comparison per element.
aten.hardtanh_backward aten.hardshrink_backward aten.softshrink_backward aten.leaky_relu_backward
aten.native_dropout_backward = 2
    Two comparisons; a comparison and a product with the slope; products with mask and scale.
aten.rrelu_with_noise_backward = 1 if training and upper - lower > 1e-6 else 2
    The gradient times the random slope, kept by the forward pass.

    Outside training, or without a random slope, as aten.leaky_relu_backward.
aten._prelu_kernel_backward = 3
    A comparison, and products of the gradient with the slope and with the input.
aten.sigmoid_backward aten.tanh_backward = 3
    g * (1 - y) * y, and g * (1 - y * y): a subtraction and two products.
aten.silu_backward = 8 + F
    g * s * (1 + x * (1 - s)), with s = 1 / (1 + exp(-x)): five operations and a sigmoid.
aten.mish_backward = 8 + 3 * F
    g * (t + x * s * (1 - t * t)), with t = tanh(log(1 + e)), s = e / (1 + e), e = exp(x).
aten.hardsigmoid_backward = 3
    g / 6 from -3 to 3: two comparisons and a division.
aten.hardswish_backward = 5
    g * (x / 3 + 0.5) from -3 to 3, g above: two comparisons and three operations.
aten.softplus_backward = (4 if beta == 1 else 5) + F
    g * e / (e + 1), with e = exp(beta * x): three operations, a comparison (threshold).
aten.log_sigmoid_backward = 6 if buffer.elements else 8 + F
    g * (d - s * e / (1 + e)), with e = exp(-|x|), d = 1 or 0 and s = 1 or -1 by the sign of x.

    A comparison and five operations; 3 more for e if it is not in the buffer.
aten.logit_backward = 5
    g / (x * (1 - x)) between two limits: two comparisons and three operations.
aten.gelu_backward = 17 + F if approximate == "tanh" else 9 + 2 * F
    g * (P(x) + x * p(x)), P = (1 + erf(x / sqrt 2)) / 2, p = exp(-x * x / 2) / sqrt(2 pi).

    Approximated: g * (r / 2 + x / 2 * (1 - t * t) * a * (1 + 3 b x * x)), with r = 1 + t and
    t = tanh(a * (x + b * x**3)).
aten.glu_jvp = 8 + F
    Change of x * s along dx, dy: dx * s + x * s * (dy - s * dy); x * s is given.
""",
    each_element,
)
table(
    """
aten.glu_backward = (7 + F).flop(grad_output.elements)
    For x * s with s = 1 / (1 + exp(-y)): h = g * s for x, and h * (1 - s) * x for y.
aten.glu_backward_jvp = (16 + F).flop(grad_glu.elements)
    Change of the h and h * (1 - s) * x of aten.glu_backward along dg, dx, dy; h is given.

    u = 1 - s, d = s * u * dy: h' = dg * s + g * d, and h' * u * x + h * (u * dx - d * x).
"""
)
