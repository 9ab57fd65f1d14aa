"""Updates of parameters, fused over all of them, and the scaling of gradients.

An update takes the operations that torch's unfused one takes, element by element. What it computes
once for a list (corrections of the bias, the learning rate) is not counted. ``internal_bytes`` are
the values between those operations, each written and read: all but new parameters and states, and
unscaled gradients, which are kept.
"""

from __future__ import annotations

from typing import Any

# Formulas of single tensors must be there before those of lists.
from roofline.workload.formulas import layout as layout
from roofline.workload.formulas import matmul as matmul
from roofline.workload.formulas import reduction as reduction
from roofline.workload.formulas.costs import F
from roofline.workload.formulas.registry import Flop, Formula, Tensors, find, formula, table, total
from roofline.workload.tensors import TensorSpec as Tensor

_BYTE = "parameters, gradients and states once; gradients are written only where they are unscaled"


def _updated(
    of: tuple[int, int],
    self: Tensors,
    grads: Tensors,
    maximize: bool,
    grad_scale: Tensor | None = None,
    **_: Any,
) -> Flop:
    """Operations an element, one more each to unscale g and change its sign; values in between."""
    operations, values = of
    each = operations + maximize + (grad_scale is not None)
    byte = sum(each.dtype.byte(each.elements) for each in grads)
    return Flop(other=elements(self) * each, internal_bytes=2 * (values + maximize) * byte)


def elements(of: Tensors) -> int:
    """Of all tensors of a list."""
    return sum(each.elements for each in of)


def sgd(
    weight_decay: float, momentum: float, dampening: float, nesterov: bool, is_first_step: bool
) -> tuple[int, int]:
    """Operations an element, and values in between."""
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
    p - lr * g: two operations an element; one each to unscale g and to change its sign.

    Weight decay: g + decay * p, two. Momentum: b = momentum * b + (1 - dampening) * g, three, or
    two without dampening, or none in the first step, where b is g; then b takes the place of g, or
    g + momentum * b does (Nesterov), two more.
aten._fused_adam = 13 + amsgrad + 2 * bool(weight_decay), 4 + bool(weight_decay)
    13 operations an element: m, v, sqrt(v) / c + epsilon, p - a * m / that; 14 with amsgrad.

    m + (1 - beta1) * (g - m) takes three, v * beta2 + (1 - beta2) * g * g four, sqrt(v) / c +
    epsilon three, p - a * m / d three. One each to unscale g and to change its sign; weight decay:
    g + decay * p, two. Between them lie v * beta2, the root, its quotient and d; g with decay (or p
    with it) or with another sign.
aten._fused_adamw = 13 + amsgrad + bool(weight_decay), 4 + bool(weight_decay)
    As Adam, but that the weight decays by itself: p * (1 - lr * decay), one.
aten._fused_adagrad = 7 + 2 * bool(weight_decay), 2 + bool(weight_decay)
    s + g * g, two; sqrt(s) + epsilon, two; p - lr * g / that, three.

    One each to unscale g and to change its sign; weight decay: g + decay * p, two.
""",
    _updated,
    byte=_BYTE,
)
table(
    """
aten._amp_foreach_non_finite_check_and_unscale = 2 * elements(self)
    Is it finite, and a product with the inverse of the scale: two an element.
aten._amp_update_scale = Flop(other=3 * self.elements, least=self.elements)
    Was something infinite; then a product, and after many steps another: is that finite?

    Which of it is done lies in values: no more than the first question is sure.
"""
)


# Operators on lists of tensors: the sum of what each of them takes by itself.

_LISTED = (
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min clone copy cos cosh div erf"
    " erfc exp expm1 floor frac lerp lgamma log log10 log1p log2 max maximum minimum mm mul neg"
    " norm pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc zero"
)
"""Operators on one tensor that are there for lists of them, too."""

_SINGLE_ARGUMENT = {"scalar": "other", "tensors1": "end", "weights": "weight"}
"""What the operator on one tensor calls an argument, where that is another name."""


def _sum_of(single: Formula, arguments: dict[str, Any], output: Any) -> Flop:
    """What the operator on one tensor takes, over all tensors of the lists."""
    # In place nothing is returned; and a scalar may be raised to each tensor of a list.
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

    each_tensor.__doc__ = f"The sum over the lists of what {single.key} takes."
    formula(f"aten._foreach_{name}", type=single.type, is_for_complex=single.is_for_complex)(
        each_tensor
    )


for _name in _LISTED.split():
    _register(_name)


@formula("aten._foreach_powsum", type="reduction")
def sum_of_powers(self: Tensors, ord: float = 2, **_: Any) -> Flop:
    """The sum of |x|**ord: a square or magnitude an element, or a magnitude and a power; their sum.

    Order 0: which are not zero, and their sum.
    """
    simple = elements(self) + sum(max(0, each.elements - 1) for each in self)
    return (simple + (0 if ord in (0, 1, 2) else elements(self)) * F).flop()
