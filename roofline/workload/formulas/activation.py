"""Activation functions: so many operations for each element of the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas import complex_numbers
from roofline.workload.formulas.complex_numbers import Cost, series
from roofline.workload.formulas.pointwise import elementwise
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula("aten.softshrink", type="pointwise")
def softshrink(output: TensorSpec, **arguments: Any) -> Flop:
    """Two comparisons, and an addition or subtraction."""
    return elementwise(arguments, output, 3)


@formula("aten.rrelu_with_noise", "aten.rrelu_with_noise_functional", type="pointwise")
def random_leaky_relu(
    self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], training: bool = False, **_: Any
) -> Flop:
    """A comparison and a multiplication; in training the slope is drawn: two more."""
    result = output if isinstance(output, TensorSpec) else output[0]
    return elementwise({"self": self}, result, 4 if training else 2)


@formula("aten.hardsigmoid", type="pointwise")
def hardsigmoid(output: TensorSpec, **arguments: Any) -> Flop:
    """clamp(x + 3, 0, 6) / 6: four an element."""
    return elementwise(arguments, output, 4)


@formula("aten.hardswish", type="pointwise")
def hardswish(output: TensorSpec, **arguments: Any) -> Flop:
    """x * clamp(x + 3, 0, 6) / 6: five an element."""
    return elementwise(arguments, output, 5)


@formula("aten.sigmoid", type="pointwise", is_for_complex=True)
def sigmoid(output: TensorSpec, **arguments: Any) -> Flop:
    """1 / (1 + exp(-x)): a sign change, an exponential, an addition, a division."""
    return elementwise(arguments, output, 3, 1, complex_numbers.SIGMOID)


@formula("aten.silu", type="pointwise", is_for_complex=True)
def silu(output: TensorSpec, **arguments: Any) -> Flop:
    """x / (1 + exp(-x)): a sign change, an exponential, an addition, a division."""
    cost = series(Cost(2), complex_numbers.EXPONENTIAL, Cost(1), complex_numbers.QUOTIENT)
    return elementwise(arguments, output, 3, 1, cost)


@formula("aten.glu", type="pointwise")
def glu(output: TensorSpec, **arguments: Any) -> Flop:
    """x / (1 + exp(-y)), y being the other half of the channels: as silu."""
    return elementwise(arguments, output, 3, 1)


@formula("aten.softplus", type="pointwise")
def softplus(output: TensorSpec, beta: float = 1, **arguments: Any) -> Flop:
    """log(1 + exp(beta * x)) / beta: an addition, a comparison (threshold), two functions."""
    return elementwise(arguments, output, 2 if beta == 1 else 4, 2)


@formula("aten.log_sigmoid_forward", type="pointwise")
def log_sigmoid(output: Sequence[TensorSpec], **arguments: Any) -> Flop:
    """-log(1 + exp(-x)): two sign changes, an addition, two transcendental functions."""
    return elementwise(arguments, output[0], 3, 2)


@formula("aten.mish", type="pointwise")
def mish(output: TensorSpec, **arguments: Any) -> Flop:
    """x * tanh(log(1 + exp(x))): an addition, a multiplication, three transcendental functions."""
    return elementwise(arguments, output, 2, 3)


@formula("aten.elu", "aten.celu", "aten.selu", type="pointwise")
def elu(output: TensorSpec, **arguments: Any) -> Flop:
    """x or scale * (exp(x) - 1): a comparison, an exponential, a subtraction, a multiplication."""
    return elementwise(arguments, output, 3, 1)


@formula("aten.gelu", type="pointwise")
def gelu(output: TensorSpec, approximate: str = "none", **arguments: Any) -> Flop:
    """x/2 * (1 + erf(x/sqrt 2)), or x/2 * (1 + tanh(a * (x + b * x**3))) when approximated."""
    return elementwise(arguments, output, 8 if approximate == "tanh" else 4, 1)
