"""Element by element: so many operations for each element of the output.

Additions, multiplications, divisions, square roots, comparisons and sign changes count 1 each;
exponentials, logarithms and the other transcendental functions count `TRANSCENDENTAL_FLOP`, of
which a kernel cannot avoid 1. Arithmetic on integers is no floating-point operation.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def _elementwise(
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
)
def one_operation(output: TensorSpec, **arguments: Any) -> Flop:
    """One operation an element."""
    return _elementwise(arguments, output, 1)


@formula("aten.rsqrt", "aten.hardtanh", "aten.leaky_relu", "aten.prelu", "aten._prelu_kernel")
@formula("aten.hardshrink", "aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide")
def two_operations(output: TensorSpec, **arguments: Any) -> Flop:
    """Two an element: root and reciprocal; two comparisons; comparison and multiplication;
    division and rounding."""
    return _elementwise(arguments, output, 2)


@formula("aten.softshrink")
def softshrink(output: TensorSpec, **arguments: Any) -> Flop:
    """Two comparisons, and an addition or subtraction."""
    return _elementwise(arguments, output, 3)


@formula("aten.rrelu_with_noise")
def random_leaky_relu(output: TensorSpec, training: bool = False, **arguments: Any) -> Flop:
    """A comparison and a multiplication; in training the slope is drawn: two more."""
    return _elementwise(arguments, output, 4 if training else 2)


@formula("aten.add", "aten.sub", "aten.rsub")
def scaled_sum(output: TensorSpec, alpha: float = 1, **arguments: Any) -> Flop:
    """self + alpha * other: one an element, two where alpha is not 1."""
    return _elementwise(arguments, output, 1 if alpha == 1 else 2)


@formula("aten.addcmul", "aten.addcdiv")
def sum_of_products(output: TensorSpec, value: float = 1, **arguments: Any) -> Flop:
    """self + value * tensor1 * tensor2 (or divided): two an element, three where value is not 1."""
    return _elementwise(arguments, output, 2 if value == 1 else 3)


@formula("aten.lerp")
def interpolation(output: TensorSpec, **arguments: Any) -> Flop:
    """self + weight * (end - self): three an element."""
    return _elementwise(arguments, output, 3)


@formula("aten.clamp")
def clamp(output: TensorSpec, min: object = None, max: object = None, **arguments: Any) -> Flop:
    """One comparison an element and limit."""
    limits = (min is not None) + (max is not None)
    return _elementwise({**arguments, "min": min, "max": max}, output, limits)


@formula("aten.hardsigmoid")
def hardsigmoid(output: TensorSpec, **arguments: Any) -> Flop:
    """clamp(x + 3, 0, 6) / 6: four an element."""
    return _elementwise(arguments, output, 4)


@formula("aten.hardswish")
def hardswish(output: TensorSpec, **arguments: Any) -> Flop:
    """x * clamp(x + 3, 0, 6) / 6: five an element."""
    return _elementwise(arguments, output, 5)


@formula(
    *("aten.exp", "aten.exp2", "aten.expm1", "aten.log", "aten.log2", "aten.log10", "aten.log1p"),
    *("aten.sin", "aten.cos", "aten.tan", "aten.asin", "aten.acos", "aten.atan", "aten.atan2"),
    *("aten.sinh", "aten.cosh", "aten.tanh", "aten.erf", "aten.erfc", "aten.erfinv"),
)
def transcendental(output: TensorSpec, **arguments: Any) -> Flop:
    """One transcendental function an element."""
    return _elementwise(arguments, output, 0, 1)


@formula("aten.sigmoid")
def sigmoid(output: TensorSpec, **arguments: Any) -> Flop:
    """1 / (1 + exp(-x)): a sign change, an exponential, an addition, a division."""
    return _elementwise(arguments, output, 3, 1)


@formula("aten.silu", "aten.glu")
def silu(output: TensorSpec, **arguments: Any) -> Flop:
    """x / (1 + exp(-x)): a sign change, an exponential, an addition, a division.

    glu: x / (1 + exp(-y)), y being the other half of the channels.
    """
    return _elementwise(arguments, output, 3, 1)


@formula("aten.softplus")
def softplus(output: TensorSpec, beta: float = 1, **arguments: Any) -> Flop:
    """log(1 + exp(beta * x)) / beta: an addition, a comparison (threshold), two functions."""
    return _elementwise(arguments, output, 2 if beta == 1 else 4, 2)


@formula("aten.log_sigmoid_forward")
def log_sigmoid(output: Sequence[TensorSpec], **arguments: Any) -> Flop:
    """-log(1 + exp(-x)): two sign changes, an addition, two transcendental functions."""
    return _elementwise(arguments, output[0], 3, 2)


@formula("aten.mish")
def mish(output: TensorSpec, **arguments: Any) -> Flop:
    """x * tanh(log(1 + exp(x))): an addition, a multiplication, three transcendental functions."""
    return _elementwise(arguments, output, 2, 3)


@formula("aten.elu", "aten.celu", "aten.selu")
def elu(output: TensorSpec, **arguments: Any) -> Flop:
    """x or scale * (exp(x) - 1): a comparison, an exponential, a subtraction, a multiplication."""
    return _elementwise(arguments, output, 3, 1)


@formula("aten.gelu")
def gelu(output: TensorSpec, approximate: str = "none", **arguments: Any) -> Flop:
    """x/2 * (1 + erf(x/sqrt 2)), or x/2 * (1 + tanh(a * (x + b * x**3))) when approximated."""
    return _elementwise(arguments, output, 8 if approximate == "tanh" else 4, 1)


@formula("aten.pow")
def power(output: TensorSpec, exponent: object = None, **arguments: Any) -> Flop:
    """A square is one multiplication, a cube two, any other power a transcendental function."""
    arguments = {**arguments, "exponent": exponent}
    if exponent in (2, 3):
        return _elementwise(arguments, output, 1 if exponent == 2 else 2)
    return _elementwise(arguments, output, 0, 1)


@formula("aten.logical_and", "aten.logical_or", "aten.logical_not", "aten.logical_xor")
@formula("aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_not", "aten.bitwise_xor")
def logic(**_: Any) -> Flop:
    """Logic is no floating-point arithmetic."""
    return Flop()


def _softmax(arguments: dict[str, Any], output: TensorSpec, dim: int) -> tuple[Flop, int]:
    """The FLOP that both kinds share, and the number of rows.

    An element: a comparison, a subtraction, an exponential, an addition, a division or subtraction;
    a row of n has n - 1 comparisons and n - 1 additions.
    """
    rows = output.elements // output.shape[dim] if output.shape else 1
    each = _elementwise(arguments, output, 4, 1)
    return Flop(other=each.flop - 2 * rows, least=each.least_flop - 2 * rows), rows


@formula("aten._softmax", "aten.softmax", "aten._safe_softmax", type="softmax")
def softmax(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """exp(x - max) / sum: comparison, subtraction, exponential, addition, division."""
    return _softmax(arguments, output, dim)[0]


@formula("aten._log_softmax", "aten.log_softmax", type="softmax")
def log_softmax(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """As softmax, with one logarithm a row, and its subtraction instead of the division."""
    each, rows = _softmax(arguments, output, dim)
    return Flop(other=each.flop + rows * TRANSCENDENTAL_FLOP, least=each.least_flop + rows)
