"""Updates of parameters, fused over all of them, and the scaling of gradients.

An update takes the operations that torch's unfused one takes, element by element. What it computes
once for a list (corrections of the bias, the learning rate) is not counted. ``internal_bytes`` are
the values between those operations, each written and read: all but new parameters and states, and
unscaled gradients, which are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

_BYTE = "parameters, gradients and states once; gradients are written only where they are unscaled"


def _updated(
    self: Sequence[TensorSpec], grads: Sequence[TensorSpec], operations: int, values: int
) -> Flop:
    """So many operations an element, and values in between, of the gradient's type."""
    elements = sum(each.elements for each in self)
    byte = sum(each.dtype.byte(each.elements) for each in grads)
    return Flop(other=elements * operations, internal_bytes=2 * values * byte)


@formula("aten._fused_sgd", type="optimizer", byte=_BYTE)
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


@formula("aten._fused_adam", type="optimizer", byte=_BYTE)
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


@formula("aten._fused_adamw", type="optimizer", byte=_BYTE)
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


@formula("aten._fused_adagrad", type="optimizer", byte=_BYTE)
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


@formula("aten._amp_foreach_non_finite_check_and_unscale", type="optimizer")
def unscale(self: Sequence[TensorSpec], **_: Any) -> Flop:
    """Is it finite, and a product with the inverse of the scale: two an element."""
    return Flop(other=2 * sum(each.elements for each in self))


@formula("aten._amp_update_scale", type="optimizer")
def update_scale(self: TensorSpec, **_: Any) -> Flop:
    """Was something infinite; then a product, and after many steps another: is that finite?

    Which of it is done lies in values: no more than the first question is sure.
    """
    return Flop(other=3 * self.elements, least=self.elements)
