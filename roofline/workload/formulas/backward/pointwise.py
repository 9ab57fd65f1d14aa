"""Derivatives of functions of single elements, times the gradient of the result.

What both branches of a choice need is computed for every element, as vector units do it; what does
not depend on the element is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.pointwise import elementwise
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula("aten.threshold_backward", type="pointwise")
def threshold(output: TensorSpec, **arguments: Any) -> Flop:
    """The gradient where the input is above the threshold: one comparison an element."""
    return elementwise(arguments, output, 1)


@formula(
    *("aten.hardtanh_backward", "aten.hardshrink_backward", "aten.softshrink_backward"),
    *("aten.leaky_relu_backward", "aten.native_dropout_backward"),
    type="pointwise",
)
def two_operations(output: TensorSpec, **arguments: Any) -> Flop:
    """Two comparisons; a comparison and a product with the slope; products with mask and scale."""
    return elementwise(arguments, output, 2)


@formula("aten.rrelu_with_noise_backward", type="pointwise")
def random_leaky_relu(
    output: TensorSpec, lower: float, upper: float, training: bool, **arguments: Any
) -> Flop:
    """The gradient times the slope that was drawn, which the forward pass kept.

    Outside training, or where there was nothing to draw, as `leaky_relu_backward`.
    """
    is_drawn = training and upper - lower > 1e-6
    return elementwise(arguments, output, 1 if is_drawn else 2)


@formula("aten._prelu_kernel_backward", type="pointwise")
def prelu(output: Sequence[TensorSpec], **arguments: Any) -> Flop:
    """A comparison, and products of the gradient with the slope and with the input."""
    return elementwise(arguments, output[0], 3)


@formula("aten.sigmoid_backward", "aten.tanh_backward", type="pointwise")
def from_result(output: TensorSpec, **arguments: Any) -> Flop:
    """g * (1 - y) * y, and g * (1 - y * y): a subtraction and two products."""
    return elementwise(arguments, output, 3)


@formula("aten.silu_backward", type="pointwise")
def silu(output: TensorSpec, **arguments: Any) -> Flop:
    """g * s * (1 + x * (1 - s)), with s = 1 / (1 + exp(-x)): five operations and a sigmoid."""
    return elementwise(arguments, output, 5 + 3, 1)


@formula("aten.mish_backward", type="pointwise")
def mish(output: TensorSpec, **arguments: Any) -> Flop:
    """g * (t + x * s * (1 - t * t)), with t = tanh(log(1 + e)), s = e / (1 + e), e = exp(x)."""
    return elementwise(arguments, output, 6 + 2, 3)


@formula("aten.elu_backward", type="pointwise")
def elu(
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


@formula("aten.hardsigmoid_backward", type="pointwise")
def hardsigmoid(output: TensorSpec, **arguments: Any) -> Flop:
    """g / 6 from -3 to 3: two comparisons and a division."""
    return elementwise(arguments, output, 3)


@formula("aten.hardswish_backward", type="pointwise")
def hardswish(output: TensorSpec, **arguments: Any) -> Flop:
    """g * (x / 3 + 0.5) from -3 to 3, g above: two comparisons and three operations."""
    return elementwise(arguments, output, 5)


@formula("aten.softplus_backward", type="pointwise")
def softplus(output: TensorSpec, beta: float = 1, **arguments: Any) -> Flop:
    """g * e / (e + 1), with e = exp(beta * x): three operations, a comparison (threshold)."""
    return elementwise(arguments, output, 4 if beta == 1 else 5, 1)


@formula("aten.log_sigmoid_backward", type="pointwise")
def log_sigmoid(output: TensorSpec, buffer: TensorSpec, **arguments: Any) -> Flop:
    """g * (d - s * e / (1 + e)), with e = exp(-|x|), d = 1 or 0 and s = 1 or -1 by the sign of x.

    A comparison and five operations; e lies in the buffer, or else takes three more.
    """
    is_kept = bool(buffer.elements)
    return elementwise(arguments, output, 6 if is_kept else 8, 0 if is_kept else 1)


@formula("aten.logit_backward", type="pointwise")
def logit(output: TensorSpec, **arguments: Any) -> Flop:
    """g / (x * (1 - x)) between two limits: two comparisons and three operations."""
    return elementwise(arguments, output, 5)


@formula("aten.gelu_backward", type="pointwise")
def gelu(output: TensorSpec, approximate: str = "none", **arguments: Any) -> Flop:
    """g * (P(x) + x * p(x)), P = (1 + erf(x / sqrt 2)) / 2, p = exp(-x * x / 2) / sqrt(2 pi).

    Approximated: g * (r / 2 + x / 2 * (1 - t * t) * a * (1 + 3 b x * x)), with r = 1 + t and
    t = tanh(a * (x + b * x**3)).
    """
    if approximate == "tanh":
        return elementwise(arguments, output, 17, 1)
    return elementwise(arguments, output, 9, 2)


@formula("aten.glu_backward", type="pointwise")
def glu(grad_output: TensorSpec, **arguments: Any) -> Flop:
    """For x * s with s = 1 / (1 + exp(-y)): h = g * s for x, and h * (1 - s) * x for y."""
    return elementwise(arguments, grad_output, 4 + 3, 1)


@formula("aten.glu_jvp", type="pointwise")
def glu_along(output: TensorSpec, **arguments: Any) -> Flop:
    """How x * s changes along dx, dy: dx * s + x * s * (dy - s * dy); x * s is given."""
    return elementwise(arguments, output, 5 + 3, 1)


@formula("aten.glu_backward_jvp", type="pointwise")
def glu_backward_along(grad_glu: TensorSpec, **arguments: Any) -> Flop:
    """How `glu_backward`'s h and h * (1 - s) * x change along dg, dx, dy; h is given.

    u = 1 - s, d = s * u * dy: h' = dg * s + g * d, and h' * u * x + h * (u * dx - d * x).
    """
    return elementwise(arguments, grad_glu, 3 + 3 + 7 + 3, 1)
