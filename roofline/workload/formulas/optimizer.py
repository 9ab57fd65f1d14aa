"""Parameter updates, fused over all parameters, and gradient scaling.

An update counts the operations of torch's unfused one, per element. Values computed once per list
(bias corrections, learning rate) are not counted. ``internal_bytes`` are the values between those
operations, each written and read: all but new parameters, states and unscaled gradients.
"""

from __future__ import annotations

from typing import Any

# Formulas of lists need those of single tensors.
from roofline.workload.formulas import layout as layout
from roofline.workload.formulas import matmul as matmul
from roofline.workload.formulas import reduction as reduction
from roofline.workload.formulas.costs import F
from roofline.workload.formulas.registry import Flop, Formula, Tensors, find, formula, table, total
from roofline.workload.tensors import TensorSpec as Tensor

_BYTE = "parameters, gradients and states once; gradients are written only if unscaled"


def _count_update(
    of: tuple[int, int],
    self: Tensors,
    grads: Tensors,
    maximize: bool,
    grad_scale: Tensor | None = None,
    **_: Any,
) -> Flop:
    """Count operations per element, 1 more each to unscale and to negate g, and values between."""
    operations, values = of
    each = operations + maximize + (grad_scale is not None)
    byte = sum(each.dtype.byte(each.elements) for each in grads)
    return Flop(other=elements_of(self) * each, internal_bytes=2 * (values + maximize) * byte)


def elements_of(of: Tensors) -> int:
    return sum(each.elements for each in of)


def sgd(
    weight_decay: float, momentum: float, dampening: float, nesterov: bool, is_first_step: bool
) -> tuple[int, int]:
    """Operations per element, and values between them."""
    operations, values = 2, 0
    if weight_decay:
        operations, values = operations + 2, values + 1
    if momentum and not is_first_step:
        operations, values = operations + (3 if dampening else 2), values + 1
    if momentum and nesterov:
        operations, values = operations + 2, values + 1
    return operations, values


table(
    """
aten._fused_sgd = sgd(weight_decay, momentum, dampening, nesterov, is_first_step)
    p - lr * g: 2 per element; 1 each to unscale g and to change its sign.

    Weight decay: g + decay * p, 2. Momentum: b = momentum * b + (1 - dampening) * g, 3, or 2
    without dampening, or 0 in the first step, where b is g; then b replaces g, or with Nesterov g +
    momentum * b does, 2 more.
aten._fused_adam = 13 + amsgrad + 2 * bool(weight_decay), 4 + bool(weight_decay)
    13 per element: m, v, sqrt(v) / c + epsilon, p - a * m / that; 14 with amsgrad.

    m + (1 - beta1) * (g - m) takes 3, v * beta2 + (1 - beta2) * g * g 4, sqrt(v) / c + epsilon 3, p
    - a * m / d 3. 1 each to unscale g and to change its sign; weight decay: g + decay * p, 2.
    Values between: v * beta2, the root, its quotient and d; g with decay (or p with it) or with
    another sign.
aten._fused_adamw = 13 + amsgrad + bool(weight_decay), 4 + bool(weight_decay)
    As aten._fused_adam, but with decoupled weight decay: p * (1 - lr * decay), 1.
aten._fused_adagrad = 7 + 2 * bool(weight_decay), 2 + bool(weight_decay)
    s + g * g, 2; sqrt(s) + epsilon, 2; p - lr * g / that, 3.

    1 each to unscale g and to change its sign; weight decay: g + decay * p, 2.
""",
    _count_update,
    byte=_BYTE,
)
table(
    """
aten._amp_foreach_non_finite_check_and_unscale = 2 * elements_of(self)
    2 per element: a test for finite, and a product with the inverse of the scale.
aten._amp_update_scale = Flop(other=3 * self.elements, least=self.elements)
    A test for infinite, a product, and after many steps another product with a test for finite.

    Values decide: the minimum is the first test.
"""
)


# Operators on lists of tensors: the sum over the tensors.

_LISTED = (
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min clone copy cos cosh div erf"
    " erfc exp expm1 floor frac lerp lgamma log log10 log1p log2 max maximum minimum mm mul neg"
    " norm pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc zero"
)
"""Operators on one tensor that also exist for lists."""

_SINGLE_ARGUMENT = {"scalar": "other", "tensors1": "end", "weights": "weight"}
"""Argument names of operators on one tensor, where they differ."""


def _sum_of(single: Formula, arguments: dict[str, Any], output: Any) -> Flop:
    """Return the sum of the operator on one tensor, over all tensors of the lists."""
    # In-place operators return nothing; a scalar may be raised to each tensor of a list.
    lists = [arguments[name] for name in ("exponent", "self") if _is_list(arguments.get(name))]
    results = output or lists[-1]
    return total(
        single.function(
            **{
                _single_name(single, name): each[index] if _is_list(each) else each
                for name, each in arguments.items()
            },
            output=result,
        )
        for index, result in enumerate(results)
    )


def _is_list(argument: Any) -> bool:
    return isinstance(argument, list)


def _single_name(single: Formula, name: str) -> str:
    if name == "scalars":
        return "value" if single.key.startswith("aten.addc") else "other"
    return _SINGLE_ARGUMENT.get(name, name)


def _register(name: str) -> None:
    single = find("aten.linalg_vector_norm" if name == "norm" else f"aten.{name}")
    assert single is not None, name

    def each_tensor(output: Any, **arguments: Any) -> Flop:
        return _sum_of(single, arguments, output)

    each_tensor.__doc__ = f"The sum of `{single.key}` over the lists."
    formula(f"aten._foreach_{name}", type=single.type, is_for_complex=single.is_for_complex)(
        each_tensor
    )


for _name in _LISTED.split():
    _register(_name)


@formula("aten._foreach_powsum", type="reduction")
def sum_of_powers(self: Tensors, ord: float = 2, **_: Any) -> Flop:
    """Sum of |x|**ord: a square or magnitude per element, or a magnitude and a power; their sum.

    Order 0: a comparison with 0, and their sum.
    """
    simple = elements_of(self) + sum(max(0, each.elements - 1) for each in self)
    return (simple + (0 if ord in (0, 1, 2) else elements_of(self)) * F).flop()
