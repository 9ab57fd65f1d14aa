"""Updates of parameters, fused over all of them, and the scaling of gradients.

An update takes the operations that torch's unfused one takes, element by element. What it computes
once for a list (corrections of the bias, the learning rate) is not counted. ``internal_bytes`` are
the values between those operations, each written and read: all but new parameters and states, and
unscaled gradients, which are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Formulas of single tensors must be there before those of lists.
from roofline.workload.formulas import layout as layout
from roofline.workload.formulas import matmul as matmul
from roofline.workload.formulas import reduction as reduction
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop, Formula, find, formula
from roofline.workload.tensors import TensorSpec

_BYTE = "parameters, gradients and states once; gradients are written only where they are unscaled"


def _updated(
    self: Sequence[TensorSpec], grads: Sequence[TensorSpec], operations: int, values: int
) -> Flop:
    """So many operations an element, and values in between, of the gradient's type."""
    elements = sum(each.elements for each in self)
    byte = sum(each.dtype.byte(each.elements) for each in grads)
    return Flop(other=elements * operations, internal_bytes=2 * values * byte)


@formula("aten._fused_sgd", byte=_BYTE)
def sgd(
    self: Sequence[TensorSpec],
    grads: Sequence[TensorSpec],
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """p - lr * g: two operations an element; one each to unscale g and to change its sign.

    Weight decay: g + decay * p, two. Momentum: b = momentum * b + (1 - dampening) * g, three, or
    two without dampening, or none in the first step, where b is g; then b takes the place of g, or
    g + momentum * b does (Nesterov), two more.
    """
    operations, values = 2 + maximize + (grad_scale is not None), int(maximize)
    if weight_decay:
        operations, values = operations + 2, values + 1
    if momentum:
        if not is_first_step:
            operations, values = operations + (3 if dampening else 2), values + 1
        if nesterov:
            operations, values = operations + 2, values + 1
    return _updated(self, grads, operations, values)


def _adam(
    self: Sequence[TensorSpec],
    grads: Sequence[TensorSpec],
    amsgrad: bool,
    maximize: bool,
    grad_scale: TensorSpec | None,
    decay: int,
) -> Flop:
    """m + (1 - beta1) * (g - m) takes three, v * beta2 + (1 - beta2) * g * g four.

    d = sqrt(v) / c + epsilon takes three, p - a * m / d three; one each to unscale g, to change its
    sign, and for the largest v so far (amsgrad); the weight's decay takes `decay`. Between them lie
    v * beta2, the root, its quotient and d; g with decay (or p with it) or with another sign.
    """
    operations = 13 + amsgrad + maximize + (grad_scale is not None) + decay
    return _updated(self, grads, operations, 4 + maximize + bool(decay))


@formula("aten._fused_adam", byte=_BYTE)
def adam(
    self: Sequence[TensorSpec],
    grads: Sequence[TensorSpec],
    weight_decay: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """13 operations an element: m, v, sqrt(v) / c + epsilon, p - a * m / that; 14 with amsgrad.

    One each to unscale g and to change its sign; weight decay: g + decay * p, two.
    """
    return _adam(self, grads, amsgrad, maximize, grad_scale, 2 if weight_decay else 0)


@formula("aten._fused_adamw", byte=_BYTE)
def adamw(
    self: Sequence[TensorSpec],
    grads: Sequence[TensorSpec],
    weight_decay: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """As Adam, but that the weight decays by itself: p * (1 - lr * decay), one."""
    return _adam(self, grads, amsgrad, maximize, grad_scale, 1 if weight_decay else 0)


@formula("aten._fused_adagrad", byte=_BYTE)
def adagrad(
    self: Sequence[TensorSpec],
    grads: Sequence[TensorSpec],
    weight_decay: float,
    maximize: bool,
    grad_scale: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """s + g * g, two; sqrt(s) + epsilon, two; p - lr * g / that, three.

    One each to unscale g and to change its sign; weight decay: g + decay * p, two.
    """
    decay = 1 if weight_decay else 0
    operations = 7 + maximize + (grad_scale is not None) + 2 * decay
    return _updated(self, grads, operations, 2 + maximize + decay)


@formula("aten._amp_foreach_non_finite_check_and_unscale")
def unscale(self: Sequence[TensorSpec], **_: Any) -> Flop:
    """Is it finite, and a product with the inverse of the scale: two an element."""
    return Flop(other=2 * sum(each.elements for each in self))


@formula("aten._amp_update_scale")
def update_scale(self: TensorSpec, **_: Any) -> Flop:
    """Was something infinite; then a product, and after many steps another: is that finite?

    Which of it is done lies in values: no more than the first question is sure.
    """
    return Flop(other=3 * self.elements, least=self.elements)


# Operators on lists of tensors: the sum of what each of them takes by itself.

_SAME_NAME = (
    *("abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min"),
    *("clone", "copy", "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac"),
    *("lerp", "lgamma", "log", "log10", "log1p", "log2", "max", "maximum", "minimum", "mm", "mul"),
    *("neg", "norm", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh"),
    *("sqrt", "sub", "tan", "tanh", "trunc", "zero"),
)

_SINGLE = {**{name: name for name in _SAME_NAME}, "norm": "linalg_vector_norm"}
"""The operator on one tensor, for each operator on lists of them."""

_SINGLE_ARGUMENT = {"scalar": "other", "tensors1": "end", "weights": "weight"}
"""What the operator on one tensor calls an argument, where that is another name."""

_OVER_LISTS = ("exponent", "self")
"""Arguments, one of which is the list: a scalar may be raised to each tensor of a list."""


def _sum_of(single: Formula, arguments: dict[str, Any], output: Any) -> Flop:
    """What the operator on one tensor takes, over all tensors of the lists.

    In place nothing is returned: the results are the tensors themselves.
    """
    lists = [arguments[name] for name in _OVER_LISTS if isinstance(arguments.get(name), list)]
    results: Sequence[Any] = output or lists[-1]
    counts = [
        single.function(
            **{_single_name(single, name): _item(each, i) for name, each in arguments.items()},
            output=result,
        )
        for i, result in enumerate(results)
    ]
    return Flop(
        macs=sum(each.macs for each in counts),
        other=sum(each.other for each in counts),
        least=sum(each.min_flop for each in counts),
        min_macs=sum(each.min_macs or 0 for each in counts),
    )


def _item(argument: list[Any] | TensorSpec | float | None, index: int) -> Any:
    return argument[index] if isinstance(argument, list) else argument


def _single_name(single: Formula, name: str) -> str:
    if name == "scalars":
        return "value" if single.key.startswith("aten.addc") else "other"
    return _SINGLE_ARGUMENT.get(name, name)


def _register(name: str, single: Formula) -> None:
    def each_tensor(output: Any, **arguments: Any) -> Flop:
        return _sum_of(single, arguments, output)

    each_tensor.__doc__ = f"The sum over the lists of what {single.key} takes."
    formula(f"aten._foreach_{name}", type=single.type, is_for_complex=single.is_for_complex)(
        each_tensor
    )


def _register_all() -> None:
    for name, operator in _SINGLE.items():
        single = find(f"aten.{operator}")
        assert single is not None, operator
        _register(name, single)


_register_all()


@formula("aten._foreach_powsum", type="reduction")
def sum_of_powers(self: Sequence[TensorSpec], ord: float = 2, **_: Any) -> Flop:
    """The sum of |x|**ord: a square or magnitude an element, or a magnitude and a power; their sum.

    Order 0: which are not zero, and their sum.
    """
    elements = sum(each.elements for each in self)
    simple = elements + sum(max(0, each.elements - 1) for each in self)
    powers = 0 if ord in (0, 1, 2) else elements
    return Flop(other=simple + TRANSCENDENTAL_FLOP * powers, least=simple + powers)
