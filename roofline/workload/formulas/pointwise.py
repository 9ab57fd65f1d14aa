"""Element by element: so many operations for each element of the output.

Additions, multiplications, divisions, square roots, comparisons and sign changes count 1 each;
exponentials, logarithms and the other transcendental functions count `TRANSCENDENTAL_FLOP`, of
which a kernel cannot avoid 1. Arithmetic on integers is no floating-point operation. What complex
numbers take is in `complex_numbers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas import complex_numbers as cx
from roofline.workload.formulas.complex_numbers import Cost, is_complex, series
from roofline.workload.formulas.registry import Flop, formula, table
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


def first(output: TensorSpec | Sequence[TensorSpec]) -> TensorSpec:
    """What an operator returns, or the first of it."""
    return output if isinstance(output, TensorSpec) else output[0]


def number(term: str) -> Cost:
    """Operations and functions: ``3``, ``3+1f``, or the name of a cost of complex numbers."""
    if term.isidentifier():
        return getattr(cx, term)
    simple, _, functions = term.partition("+")
    return Cost(int(simple), int(functions.removesuffix("f") or 0))


def numbers(text: str) -> tuple[Cost, Cost | None]:
    """What an element takes and, after ``complex``, the costs of a complex one in series."""
    real, _, of_complex = text.partition("; complex ")
    return number(real), series(*map(number, of_complex.split())) if of_complex else None


def each_element(
    costs: tuple[Cost, Cost | None], output: TensorSpec | Sequence[TensorSpec], **arguments: Any
) -> Flop:
    """`elementwise`, by the numbers of a row."""
    each, of_complex = costs
    return elementwise(arguments, first(output), each.simple, each.functions, of_complex)


table(
    """
aten.relu aten.maximum aten.minimum aten.lt aten.le aten.gt aten.ge aten.sign aten.floor aten.ceil
aten.round aten.trunc aten.threshold aten.max.other aten.min.other aten.clamp_min aten.clamp_max
aten.remainder aten.fmod aten.frac aten.fmax aten.fmin aten.signbit aten.isposinf aten.isneginf
aten.deg2rad aten.rad2deg aten.ldexp = 1
    One operation an element.
aten.neg aten._neg_view_copy aten.eq aten.ne aten.isnan aten.isinf = 1; complex 2
    One operation an element; of complex numbers, one for either part.
""",
    each_element,
    numbers,
)


@formula(
    "aten.equal",
    byte="each operand once; minimum: nothing (shapes or first elements may differ)",
    is_for_complex=True,
)
def equal(self: TensorSpec, other: TensorSpec, **_: Any) -> Flop:
    """A comparison an element, of complex numbers two; it stops at the first that differs."""
    whole = elementwise({"other": other}, self, 1, of_complex=Cost(2))
    return Flop(other=whole.other, least=0, min_elements={"self": 0, "other": 0})


@formula("aten.round.decimals")
def round_to_decimals(output: TensorSpec, decimals: int, **arguments: Any) -> Flop:
    """A scaling, a rounding, and the scaling back; to no decimals, the rounding alone."""
    return elementwise(arguments, output, 3 if decimals else 1)


@formula("aten.mul", is_for_complex=True)
def multiplication(self: Any, other: Any, output: TensorSpec, **_: Any) -> Flop:
    """One an element; complex: four products and two sums, or two products with a real number."""
    cost = cx.times(self, other)
    return elementwise({"self": self, "other": other}, output, 1, of_complex=cost)


@formula("aten.div", is_for_complex=True)
def division(self: Any, other: Any, output: TensorSpec, **_: Any) -> Flop:
    """One an element; complex: 11 (8 for a real dividend, 2 for a real divisor)."""
    cost = cx.divided(self, other)
    return elementwise({"self": self, "other": other}, output, 1, of_complex=cost)


table(
    """
aten.reciprocal = 1; complex RECIPROCAL
    One division an element; complex: 6, conj(z) / (a * a + b * b).
aten.square = 1; complex SQUARE
    One product an element; complex: 6.
aten.abs = 1; complex MAGNITUDE
    One an element; complex: sqrt(a * a + b * b), four.
aten.sgn = 1; complex MAGNITUDE SCALED
    One an element; complex: the magnitude, and a division of both parts.
aten.angle = 2; complex 0+1f
    Complex: one transcendental function, atan2(b, a); real: is it NaN, is it below 0?
aten.polar = 0; complex 2+2f
    abs * (cos(angle) + i sin(angle)): two functions, two products.
aten.conj_physical aten._conj_physical aten._conj_copy = 0; complex 1
    A sign change of the imaginary part; real numbers are copied.
aten.sqrt = 1; complex ROOT
    One an element; complex: 9, from the magnitude.
aten.rsqrt = 2; complex ROOT RECIPROCAL
    Root and reciprocal: two an element; complex: 9 and 6.
aten.hardtanh aten.leaky_relu aten.prelu aten._prelu_kernel aten.hardshrink aten.div.Tensor_mode
aten.div.Scalar_mode aten.floor_divide aten.heaviside aten._add_relu aten._masked_scale = 2
    Two an element: two comparisons; comparison and multiplication; division and rounding; addition
    and comparison; mask and scale.
""",
    each_element,
    numbers,
)


@formula("aten.add", is_for_complex=True)
def scaled_sum(self: Any, other: Any, output: TensorSpec, alpha: Any = 1, **_: Any) -> Flop:
    """self + alpha * other: one an element, two where alpha is not 1; complex: each part."""
    cost = cx.plus(self, other, alpha)
    operands = {"self": self, "other": other}
    return elementwise(operands, output, 1 if alpha == 1 else 2, of_complex=cost)


@formula("aten.sub", is_for_complex=True)
def scaled_difference(self: Any, other: Any, output: TensorSpec, alpha: Any = 1, **_: Any) -> Flop:
    """self - alpha * other: one an element, two where alpha is not 1; complex: each part."""
    cost = cx.minus(self, other, alpha)
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
    cost = series(cx.PRODUCT, cx.SUM)
    return _with_value(cost, output, value, arguments)


@formula("aten.addcdiv", is_for_complex=True)
def sum_of_quotients(output: TensorSpec, value: float = 1, **arguments: Any) -> Flop:
    """self + value * tensor1 / tensor2: two, or three; complex: 13, or 15."""
    cost = series(cx.QUOTIENT, cx.SUM)
    return _with_value(cost, output, value, arguments)


def _with_value(cost: Cost, output: TensorSpec, value: Any, arguments: dict[str, Any]) -> Flop:
    if value == 1:
        return elementwise(arguments, output, 2, of_complex=cost)
    return elementwise(arguments, output, 3, of_complex=series(cost, _by(value)))


def _by(value: Any) -> Cost:
    return cx.PRODUCT if is_complex(value) else cx.SCALED


@formula("aten.lerp", is_for_complex=True)
def interpolation(output: TensorSpec, weight: Any, **arguments: Any) -> Flop:
    """self + weight * (end - self): three an element; complex: 6, or 10 if the weight is too."""
    cost = series(cx.SUM, cx.SUM, _by(weight))
    return elementwise({**arguments, "weight": weight}, output, 3, of_complex=cost)


table(
    """
aten.nan_to_num = 3
    Is it NaN, the largest, the smallest?
aten.hypot = 4
    sqrt(x * x + y * y): four an element.
""",
    each_element,
    numbers,
)


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


# Activation functions: so many operations for each element of the output.


table(
    """
aten.softshrink = 3
    Two comparisons, and an addition or subtraction.
""",
    each_element,
    numbers,
)


@formula("aten.rrelu_with_noise", "aten.rrelu_with_noise_functional")
def random_leaky_relu(
    self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], training: bool = False, **_: Any
) -> Flop:
    """A comparison and a multiplication; in training the slope is drawn: two more."""
    result = output if isinstance(output, TensorSpec) else output[0]
    return elementwise({"self": self}, result, 4 if training else 2)


table(
    """
aten.hardsigmoid = 4
    clamp(x + 3, 0, 6) / 6: four an element.
aten.hardswish = 5
    x * clamp(x + 3, 0, 6) / 6: five an element.
aten.sigmoid = 3+1f; complex SIGMOID
    1 / (1 + exp(-x)): a sign change, an exponential, an addition, a division.
aten.silu = 3+1f; complex 2 EXPONENTIAL 1 QUOTIENT
    x / (1 + exp(-x)): a sign change, an exponential, an addition, a division.
aten.glu = 3+1f
    x / (1 + exp(-y)), y being the other half of the channels: as silu.
""",
    each_element,
    numbers,
)


@formula("aten.softplus")
def softplus(output: TensorSpec, beta: float = 1, **arguments: Any) -> Flop:
    """log(1 + exp(beta * x)) / beta: an addition, a comparison (threshold), two functions."""
    return elementwise(arguments, output, 2 if beta == 1 else 4, 2)


table(
    """
aten.log_sigmoid_forward = 3+2f
    -log(1 + exp(-x)): two sign changes, an addition, two transcendental functions.
aten.mish = 2+3f
    x * tanh(log(1 + exp(x))): an addition, a multiplication, three transcendental functions.
aten.elu aten.celu aten.selu = 3+1f
    x or scale * (exp(x) - 1): a comparison, an exponential, a subtraction, a multiplication.
""",
    each_element,
    numbers,
)


@formula("aten.gelu")
def gelu(output: TensorSpec, approximate: str = "none", **arguments: Any) -> Flop:
    """x/2 * (1 + erf(x/sqrt 2)), or x/2 * (1 + tanh(a * (x + b * x**3))) when approximated."""
    return elementwise(arguments, output, 8 if approximate == "tanh" else 4, 1)


# Transcendental functions: each counts `TRANSCENDENTAL_FLOP`, of which a kernel cannot avoid 1.


@formula(
    *("aten.atan2", "aten.erf", "aten.erfc", "aten.erfinv", "aten.lgamma", "aten.digamma"),
    *("aten.i0", "aten.special_i0e", "aten.special_i1", "aten.special_i1e", "aten.special_erfcx"),
    *("aten.igamma", "aten.igammac", "aten.polygamma", "aten.special_zeta", "aten.special_ndtri"),
    *("aten.special_airy_ai", "aten.special_log_ndtr", "aten.special_spherical_bessel_j0"),
    *(f"aten.special_bessel_{kind}{order}" for kind in "jy" for order in "01"),
    *(f"aten.special_modified_bessel_{kind}{order}" for kind in "ik" for order in "01"),
    *(f"aten.special_scaled_modified_bessel_k{order}" for order in "01"),
)
def transcendental(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element."""
    return elementwise(arguments, output, 0, 1)


table(
    """
aten.exp = 0+1f; complex EXPONENTIAL
    One transcendental function an element; complex: exp(a) * (cos(b) + i sin(b)).
aten.exp2 = 0+1f; complex SCALED EXPONENTIAL
    One transcendental function an element; complex: exp(z * log(2)).
aten.expm1 = 0+1f; complex EXPONENTIAL 1
    One transcendental function an element; complex: exp(z), and 1 less in the real part.
aten.log = 0+1f; complex LOGARITHM
    One transcendental function an element; complex: log(|z|) + i atan2(b, a).
aten.log2 aten.log10 = 0+1f; complex LOGARITHM SCALED
    One transcendental function an element; complex: log(z) times a real number.
aten.log1p = 0+1f; complex 1 LOGARITHM
    One transcendental function an element; complex: log(1 + z).
aten.sin aten.cos aten.sinh aten.cosh = 0+1f; complex SINE
    One transcendental function an element; complex: four, and two products.
aten.tan aten.tanh = 0+1f; complex TANGENT
    One transcendental function an element; complex: four, and five operations.
aten.asin aten.acos aten.asinh aten.acosh = 0+1f; complex INVERSE_SINE
    One transcendental function an element; complex: log(z + sqrt(z * z + 1)) and its like.
aten.atan aten.atanh = 0+1f; complex INVERSE_TANGENT
    One transcendental function an element; complex: log((1 + z) / (1 - z)) / 2 and its like.
""",
    each_element,
    numbers,
)


_POWERS = {0: 0, 1: 0, 2: 1, 3: 2, 0.5: 1, -1: 1, -0.5: 2, -2: 2}
"""Operations of the powers that torch computes without a logarithm: products, root, reciprocal."""

_COMPLEX_POWERS = {
    0: Cost(0),
    1: Cost(0),
    2: cx.SQUARE,
    3: series(cx.SQUARE, cx.PRODUCT),
    0.5: cx.ROOT,
    -1: cx.RECIPROCAL,
    -0.5: series(cx.ROOT, cx.RECIPROCAL),
    -2: series(cx.SQUARE, cx.RECIPROCAL),
}


@formula("aten.pow", is_for_complex=True)
def power(output: TensorSpec, exponent: object = None, **arguments: Any) -> Flop:
    """A square, a cube, a root or a reciprocal are one or two operations.

    Any other power is a transcendental function; complex: exp(exponent * log(z)).
    """
    arguments = {**arguments, "exponent": exponent}
    if isinstance(exponent, (int, float)) and exponent in _POWERS:
        cost = _COMPLEX_POWERS[exponent]
        return elementwise(arguments, output, _POWERS[exponent], of_complex=cost)
    return elementwise(arguments, output, 0, 1, cx.POWER)


@formula(
    *("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Scalar_out", "aten.pow_.Scalar"),
    byte="each operand once, but nothing is read for the power of 0",
    is_for_complex=True,
)
def power_of_tensor(output: TensorSpec, exponent: object = None, **arguments: Any) -> Flop:
    """As `aten.pow`; the power of 0 is 1, whatever it is of."""
    unread = {"self": 0, "output": output.elements} if exponent == 0 else {}
    return replace(power(output, exponent, **arguments), elements=unread)


table(
    """
aten.xlogy aten.special_xlog1py aten.special_entr = 2+1f
    x * log(y): is x zero, a multiplication, a logarithm.
""",
    each_element,
    numbers,
)


@formula("aten.logit")
def logit(output: TensorSpec, eps: float | None = None, **arguments: Any) -> Flop:
    """log(x / (1 - x)): a subtraction, a division, a logarithm; two comparisons with limits."""
    return elementwise(arguments, output, 2 if eps is None else 4, 1)


table(
    """
aten.sinc = 3+1f
    sin(pi * x) / (pi * x): is x zero, a multiplication, a sine, a division.
aten.logaddexp aten.logaddexp2 = 5+2f
    max + log1p(exp(-|x - y|)): comparison, subtraction, magnitude, sign, addition, functions.
""",
    each_element,
    numbers,
)


@formula(
    *(f"aten.special_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *(f"aten.special_shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *("aten.special_hermite_polynomial_h", "aten.special_hermite_polynomial_he"),
    *("aten.special_laguerre_polynomial_l", "aten.special_legendre_polynomial_p"),
)
def orthogonal_polynomial(output: TensorSpec, **_: Any) -> Flop:
    """As one transcendental function an element: the degrees are values, and may be 0."""
    elements = output.elements if floats(output) else 0
    return Flop(other=elements * TRANSCENDENTAL_FLOP, least=0)


@formula("aten.mvlgamma")
def multivariate_lgamma(p: int, output: TensorSpec, **arguments: Any) -> Flop:
    """`p` terms: a subtraction and a function each, their sum, and a constant added to it."""
    return elementwise(arguments, output, 2 * p, p)


# Derivatives of functions of single elements, times the gradient of the result.
#
# What both branches of a choice need is computed for every element, as vector units do it; what
# does not depend on the element is not counted.


table(
    """
aten.threshold_backward = 1
    The gradient where the input is above the threshold: one comparison an element.
aten.hardtanh_backward aten.hardshrink_backward aten.softshrink_backward aten.leaky_relu_backward
aten.native_dropout_backward = 2
    Two comparisons; a comparison and a product with the slope; products with mask and scale.
""",
    each_element,
    numbers,
)


@formula("aten.rrelu_with_noise_backward")
def random_leaky_relu_backward(
    output: TensorSpec, lower: float, upper: float, training: bool, **arguments: Any
) -> Flop:
    """The gradient times the slope that was drawn, which the forward pass kept.

    Outside training, or where there was nothing to draw, as `leaky_relu_backward`.
    """
    is_drawn = training and upper - lower > 1e-6
    return elementwise(arguments, output, 1 if is_drawn else 2)


table(
    """
aten._prelu_kernel_backward = 3
    A comparison, and products of the gradient with the slope and with the input.
aten.sigmoid_backward aten.tanh_backward = 3
    g * (1 - y) * y, and g * (1 - y * y): a subtraction and two products.
aten.silu_backward = 8+1f
    g * s * (1 + x * (1 - s)), with s = 1 / (1 + exp(-x)): five operations and a sigmoid.
aten.mish_backward = 8+3f
    g * (t + x * s * (1 - t * t)), with t = tanh(log(1 + e)), s = e / (1 + e), e = exp(x).
""",
    each_element,
    numbers,
)


@formula("aten.elu_backward")
def elu_backward(
    output: TensorSpec,
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
    positive = scale != 1
    if is_result:
        return elementwise(arguments, output, 3 + positive + (input_scale != 1))
    factor = alpha * scale * input_scale != 1
    return elementwise(arguments, output, 2 + positive + factor + (input_scale != 1), 1)


table(
    """
aten.hardsigmoid_backward = 3
    g / 6 from -3 to 3: two comparisons and a division.
aten.hardswish_backward = 5
    g * (x / 3 + 0.5) from -3 to 3, g above: two comparisons and three operations.
""",
    each_element,
    numbers,
)


@formula("aten.softplus_backward")
def softplus_backward(output: TensorSpec, beta: float = 1, **arguments: Any) -> Flop:
    """g * e / (e + 1), with e = exp(beta * x): three operations, a comparison (threshold)."""
    return elementwise(arguments, output, 4 if beta == 1 else 5, 1)


@formula("aten.log_sigmoid_backward")
def log_sigmoid_backward(output: TensorSpec, buffer: TensorSpec, **arguments: Any) -> Flop:
    """g * (d - s * e / (1 + e)), with e = exp(-|x|), d = 1 or 0 and s = 1 or -1 by the sign of x.

    A comparison and five operations; e lies in the buffer, or else takes three more.
    """
    is_kept = bool(buffer.elements)
    return elementwise(arguments, output, 6 if is_kept else 8, 0 if is_kept else 1)


table(
    """
aten.logit_backward = 5
    g / (x * (1 - x)) between two limits: two comparisons and three operations.
""",
    each_element,
    numbers,
)


@formula("aten.gelu_backward")
def gelu_backward(output: TensorSpec, approximate: str = "none", **arguments: Any) -> Flop:
    """g * (P(x) + x * p(x)), P = (1 + erf(x / sqrt 2)) / 2, p = exp(-x * x / 2) / sqrt(2 pi).

    Approximated: g * (r / 2 + x / 2 * (1 - t * t) * a * (1 + 3 b x * x)), with r = 1 + t and
    t = tanh(a * (x + b * x**3)).
    """
    if approximate == "tanh":
        return elementwise(arguments, output, 17, 1)
    return elementwise(arguments, output, 9, 2)


@formula("aten.glu_backward")
def glu_backward(grad_output: TensorSpec, **arguments: Any) -> Flop:
    """For x * s with s = 1 / (1 + exp(-y)): h = g * s for x, and h * (1 - s) * x for y."""
    return elementwise(arguments, grad_output, 4 + 3, 1)


table(
    """
aten.glu_jvp = 8+1f
    How x * s changes along dx, dy: dx * s + x * s * (dy - s * dy); x * s is given.
""",
    each_element,
    numbers,
)


@formula("aten.glu_backward_jvp")
def glu_backward_along(grad_glu: TensorSpec, **arguments: Any) -> Flop:
    """How `glu_backward`'s h and h * (1 - s) * x change along dg, dx, dy; h is given.

    u = 1 - s, d = s * u * dy: h' = dg * s + g * d, and h' * u * x + h * (u * dx - d * x).
    """
    return elementwise(arguments, grad_glu, 3 + 3 + 7 + 3, 1)
