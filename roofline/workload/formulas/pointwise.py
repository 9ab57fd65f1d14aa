"""Element by element: so many operations for each element of the output.

Additions, multiplications, divisions, square roots, comparisons and sign changes count 1 each;
exponentials, logarithms and the other transcendental functions, `F`, count `TRANSCENDENTAL_FLOP`,
of which a kernel cannot avoid 1. Arithmetic on integers is no floating-point operation.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from roofline.workload.formulas import costs
from roofline.workload.formulas.costs import Cost, F, cost, floats, is_complex
from roofline.workload.formulas.registry import Flop, Tensors, formula, table
from roofline.workload.tensors import TensorSpec as Tensor


def elementwise(
    arguments: dict[str, Any], output: Tensor, of_real: Cost | int, of_complex: Cost | None = None
) -> Flop:
    """The cost of each element of the output, real or where one of the tensors is complex."""
    if not floats(output, *arguments.values()):
        return Flop()
    each = cost(of_real)
    if of_complex is not None and any(is_complex(each) for each in (output, *arguments.values())):
        each = of_complex
    return each.flop(output.elements)


def first(output: Tensor | Tensors) -> Tensor:
    """What an operator returns, or the first of it."""
    return output if isinstance(output, Tensor) else output[0]


def together(first: Tensor, second: Tensor) -> int:
    """Elements of two tensors that are broadcast against each other."""
    sizes = zip_longest(first.shape[::-1], second.shape[::-1], fillvalue=1)
    return math.prod(a if b == 1 else b for a, b in sizes)


def each_element(
    of: Cost | int | tuple[Cost | int, Cost | int], output: Tensor | Tensors, **arguments: Any
) -> Flop:
    """`elementwise`, by the cost of a row or both of them."""
    of_real, of_complex = of if isinstance(of, tuple) else (of, None)
    given = None if of_complex is None else cost(of_complex)
    return elementwise(arguments, first(output), of_real, given)


table(
    """
aten.relu aten.maximum aten.minimum aten.lt aten.le aten.gt aten.ge aten.sign aten.floor aten.ceil
aten.round aten.trunc aten.threshold aten.max.other aten.min.other aten.clamp_min aten.clamp_max
aten.remainder aten.fmod aten.frac aten.fmax aten.fmin aten.signbit aten.isposinf aten.isneginf
aten.deg2rad aten.rad2deg aten.ldexp = 1
    One operation an element.
aten.neg aten._neg_view_copy aten.eq aten.ne aten.isnan aten.isinf = 1; complex 2
    One operation an element; of complex numbers, one for either part.
aten.round.decimals = 3 if decimals else 1
    A scaling, a rounding, and the scaling back; to no decimals, the rounding alone.
aten.mul = 1; complex times(self, other)
    One an element; complex: four products and two sums, or two products with a real number.
aten.div = 1; complex divided(self, other)
    One an element; complex: 11 (8 for a real dividend, 2 for a real divisor).
aten.reciprocal = 1; complex RECIPROCAL
    One division an element; complex: 6, conj(z) / (a * a + b * b).
aten.square = 1; complex SQUARE
    One product an element; complex: 6.
aten.abs = 1; complex MAGNITUDE
    One an element; complex: sqrt(a * a + b * b), four.
aten.sgn = 1; complex MAGNITUDE + SCALED
    One an element; complex: the magnitude, and a division of both parts.
aten.angle = 2; complex F
    Complex: one transcendental function, atan2(b, a); real: is it NaN, is it below 0?
aten.polar = 0; complex 2 + 2 * F
    abs * (cos(angle) + i sin(angle)): two functions, two products.
aten.conj_physical aten._conj_physical aten._conj_copy = 0; complex 1
    A sign change of the imaginary part; real numbers are copied.
aten.sqrt = 1; complex ROOT
    One an element; complex: 9, from the magnitude.
aten.rsqrt = 2; complex ROOT + RECIPROCAL
    Root and reciprocal: two an element; complex: 9 and 6.
aten.hardtanh aten.leaky_relu aten.prelu aten._prelu_kernel aten.hardshrink aten.div.Tensor_mode
aten.div.Scalar_mode aten.floor_divide aten.heaviside aten._add_relu aten._masked_scale = 2
    Two an element: two comparisons; comparison and multiplication; division and rounding; addition
    and comparison; mask and scale.
aten.add = 1 if alpha == 1 else 2; complex plus(self, other, alpha)
    self + alpha * other: one an element, two where alpha is not 1; complex: each part.
aten.sub = 1 if alpha == 1 else 2; complex minus(other, alpha)
    self - alpha * other: one an element, two where alpha is not 1; complex: each part.
aten.rsub = 1 if alpha == 1 else 2; complex minus(self, alpha)
    other - alpha * self: as the difference.
aten.addcmul = 2 if value == 1 else 3; complex PRODUCT + 2 + scaled(1j, value)
    self + value * tensor1 * tensor2: two an element, or three; complex: 8, or 10.
aten.addcdiv = 2 if value == 1 else 3; complex QUOTIENT + 2 + scaled(1j, value)
    self + value * tensor1 / tensor2: two, or three; complex: 13, or 15.
aten.lerp = 3; complex 2 + 2 + times(1j, weight)
    self + weight * (end - self): three an element; complex: 6, or 10 if the weight is too.
aten.nan_to_num = 3
    Is it NaN, the largest, the smallest?
aten.hypot = 4
    sqrt(x * x + y * y): four an element.
aten.clamp = (min is not None) + (max is not None)
    One comparison an element and limit.
aten.logical_and aten.logical_or aten.logical_not aten.logical_xor aten.bitwise_and aten.bitwise_or
aten.bitwise_not aten.bitwise_xor aten.bitwise_left_shift aten.bitwise_right_shift aten.gcd aten.lcm
aten.copysign aten.nextafter aten.frexp aten.hash_tensor aten.__lshift__ aten.__rshift__
aten.__ilshift__ aten.__irshift__ = 0
    Logic, on the bits of numbers too, is no floating-point arithmetic.
""",
    each_element,
    names=vars(costs),
)


@formula(
    "aten.equal",
    byte="each operand once; minimum: nothing (shapes or first elements may differ)",
    is_for_complex=True,
)
def equal(self: Tensor, other: Tensor, **_: Any) -> Flop:
    """A comparison an element, of complex numbers two; it stops at the first that differs."""
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
    A comparison and a multiplication; in training the slope is drawn: two more.
aten.hardsigmoid = 4
    clamp(x + 3, 0, 6) / 6: four an element.
aten.hardswish = 5
    x * clamp(x + 3, 0, 6) / 6: five an element.
aten.sigmoid = 3 + F; complex SIGMOID
    1 / (1 + exp(-x)): a sign change, an exponential, an addition, a division.
aten.silu = 3 + F; complex 2 + EXPONENTIAL + 1 + QUOTIENT
    x / (1 + exp(-x)): a sign change, an exponential, an addition, a division.
aten.glu = 3 + F
    x / (1 + exp(-y)), y being the other half of the channels: as silu.
aten.softplus = 2 + 2 * F if beta == 1 else 4 + 2 * F
    log(1 + exp(beta * x)) / beta: an addition, a comparison (threshold), two functions.
aten.log_sigmoid_forward = 3 + 2 * F
    -log(1 + exp(-x)): two sign changes, an addition, two transcendental functions.
aten.mish = 2 + 3 * F
    x * tanh(log(1 + exp(x))): an addition, a multiplication, three transcendental functions.
aten.elu aten.celu aten.selu = 3 + F
    x or scale * (exp(x) - 1): a comparison, an exponential, a subtraction, a multiplication.
aten.gelu = 8 + F if approximate == "tanh" else GELU
    x/2 * (1 + erf(x/sqrt 2)), or x/2 * (1 + tanh(a * (x + b * x**3))) when approximated.
""",
    each_element,
    names=vars(costs),
)

# Transcendental functions: each counts `TRANSCENDENTAL_FLOP`, of which a kernel cannot avoid 1.
table(
    """
aten.atan2 aten.erf aten.erfc aten.erfinv aten.lgamma aten.digamma aten.i0 aten.special_i0e
aten.special_i1 aten.special_i1e aten.special_erfcx aten.igamma aten.igammac aten.polygamma
aten.special_zeta aten.special_ndtri aten.special_airy_ai aten.special_log_ndtr
aten.special_spherical_bessel_j0 aten.special_bessel_j0 aten.special_bessel_j1
aten.special_bessel_y0 aten.special_bessel_y1 aten.special_modified_bessel_i0
aten.special_modified_bessel_i1 aten.special_modified_bessel_k0 aten.special_modified_bessel_k1
aten.special_scaled_modified_bessel_k0 aten.special_scaled_modified_bessel_k1 = F
    One transcendental function an element.
aten.exp = F; complex EXPONENTIAL
    One transcendental function an element; complex: exp(a) * (cos(b) + i sin(b)).
aten.exp2 = F; complex SCALED + EXPONENTIAL
    One transcendental function an element; complex: exp(z * log(2)).
aten.expm1 = F; complex EXPONENTIAL + 1
    One transcendental function an element; complex: exp(z), and 1 less in the real part.
aten.log = F; complex LOGARITHM
    One transcendental function an element; complex: log(|z|) + i atan2(b, a).
aten.log2 aten.log10 = F; complex LOGARITHM + SCALED
    One transcendental function an element; complex: log(z) times a real number.
aten.log1p = F; complex 1 + LOGARITHM
    One transcendental function an element; complex: log(1 + z).
aten.sin aten.cos aten.sinh aten.cosh = F; complex SINE
    One transcendental function an element; complex: four, and two products.
aten.tan aten.tanh = F; complex TANGENT
    One transcendental function an element; complex: four, and five operations.
aten.asin aten.acos aten.asinh aten.acosh = F; complex INVERSE_SINE
    One transcendental function an element; complex: log(z + sqrt(z * z + 1)) and its like.
aten.atan aten.atanh = F; complex INVERSE_TANGENT
    One transcendental function an element; complex: log((1 + z) / (1 - z)) / 2 and its like.
aten.xlogy aten.special_xlog1py aten.special_entr = 2 + F
    x * log(y): is x zero, a multiplication, a logarithm.
aten.logit = (2 if eps is None else 4) + F
    log(x / (1 - x)): a subtraction, a division, a logarithm; two comparisons with limits.
aten.sinc = 3 + F
    sin(pi * x) / (pi * x): is x zero, a multiplication, a sine, a division.
aten.logaddexp aten.logaddexp2 = 5 + 2 * F
    max + log1p(exp(-|x - y|)): comparison, subtraction, magnitude, sign, addition, functions.
aten.mvlgamma = 2 * p + p * F
    `p` terms: a subtraction and a function each, their sum, and a constant added to it.
aten.special_chebyshev_polynomial_t aten.special_chebyshev_polynomial_u
aten.special_chebyshev_polynomial_v aten.special_chebyshev_polynomial_w
aten.special_shifted_chebyshev_polynomial_t aten.special_shifted_chebyshev_polynomial_u
aten.special_shifted_chebyshev_polynomial_v aten.special_shifted_chebyshev_polynomial_w
aten.special_hermite_polynomial_h aten.special_hermite_polynomial_he
aten.special_laguerre_polynomial_l aten.special_legendre_polynomial_p = Cost(0, 1, least=0)
    As one transcendental function an element: the degrees are values, and may be 0.
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
"""Powers that torch computes without a logarithm, of real numbers and of complex ones."""


@formula("aten.pow", is_for_complex=True)
def power(output: Tensor, exponent: object = None, **arguments: Any) -> Flop:
    """A square, a cube, a root or a reciprocal are one or two operations.

    Any other power is a transcendental function; complex: exp(exponent * log(z)).
    """
    each = (F, costs.POWER)
    if isinstance(exponent, (int, float)):
        each = _POWERS.get(exponent, each)
    return elementwise({**arguments, "exponent": exponent}, output, *each)


@formula(
    *("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Scalar_out", "aten.pow_.Scalar"),
    byte="each operand once, but nothing is read for the power of 0",
    is_for_complex=True,
)
def power_of_tensor(output: Tensor, exponent: object = None, **arguments: Any) -> Flop:
    """As `aten.pow`; the power of 0 is 1, whatever it is of."""
    unread = {"self": 0, "output": output.elements} if exponent == 0 else {}
    return replace(power(output, exponent, **arguments), elements=unread)


# Derivatives of functions of single elements, times the gradient of the result. What both branches
# of a choice need is computed for every element, as vector units do it; what does not depend on the
# element is not counted.


@formula("aten.elu_backward")
def elu_backward(
    output: Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    **arguments: Any,
) -> Flop:
    """g * scale for what is above 0; below it g * input_scale * (y + alpha * scale).

    From the input instead of the result: g * (alpha * scale * input_scale) * exp(x * input_scale).
    A comparison, and the products whose factor is not 1.
    """
    each = (scale != 1) + (input_scale != 1)
    below = 3 if is_result else 2 + (alpha * scale * input_scale != 1) + F
    return elementwise(arguments, output, each + below)


table(
    """
aten.threshold_backward = 1
    The gradient where the input is above the threshold: one comparison an element.
aten.hardtanh_backward aten.hardshrink_backward aten.softshrink_backward aten.leaky_relu_backward
aten.native_dropout_backward = 2
    Two comparisons; a comparison and a product with the slope; products with mask and scale.
aten.rrelu_with_noise_backward = 1 if training and upper - lower > 1e-6 else 2
    The gradient times the slope that was drawn, which the forward pass kept.

    Outside training, or where there was nothing to draw, as `leaky_relu_backward`.
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

    A comparison and five operations; e lies in the buffer, or else takes three more.
aten.logit_backward = 5
    g / (x * (1 - x)) between two limits: two comparisons and three operations.
aten.gelu_backward = 17 + F if approximate == "tanh" else 9 + 2 * F
    g * (P(x) + x * p(x)), P = (1 + erf(x / sqrt 2)) / 2, p = exp(-x * x / 2) / sqrt(2 pi).

    Approximated: g * (r / 2 + x / 2 * (1 - t * t) * a * (1 + 3 b x * x)), with r = 1 + t and
    t = tanh(a * (x + b * x**3)).
aten.glu_jvp = 8 + F
    How x * s changes along dx, dy: dx * s + x * s * (dy - s * dy); x * s is given.
""",
    each_element,
)
table(
    """
aten.glu_backward = (7 + F).flop(grad_output.elements)
    For x * s with s = 1 / (1 + exp(-y)): h = g * s for x, and h * (1 - s) * x for y.
aten.glu_backward_jvp = (16 + F).flop(grad_glu.elements)
    How `glu_backward`'s h and h * (1 - s) * x change along dg, dx, dy; h is given.

    u = 1 - s, d = s * u * dy: h' = dg * s + g * d, and h' * u * x + h * (u * dx - d * x).
"""
)
