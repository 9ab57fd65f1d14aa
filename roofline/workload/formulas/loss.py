"""Losses: operations for each element of prediction and target, and their mean or sum.

What `reduction` says: 0 keeps all, 1 takes the mean, 2 the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from roofline.workload.formulas.complex_numbers import Cost
from roofline.workload.formulas.pointwise import (
    TRANSCENDENTAL_FLOP,
    each_element,
    elementwise,
    floats,
    number,
    numbers,
)
from roofline.workload.formulas.registry import Flop, formula, table
from roofline.workload.tensors import TensorSpec

MEAN = 1


def together(first: TensorSpec, second: TensorSpec) -> int:
    """Elements of two tensors that are broadcast against each other."""
    return math.prod(
        a if b == 1 else b
        for a, b in zip_longest(first.shape[::-1], second.shape[::-1], fillvalue=1)
    )


def reduced(elements: int, reduction: int) -> int:
    """n - 1 additions for a sum, and a division for a mean."""
    return max(0, elements - (reduction != MEAN)) if reduction else 0


def _loss(
    self: TensorSpec, target: TensorSpec, reduction: int, simple: int, functions: int = 0
) -> Flop:
    """So many operations and functions for each pair of elements, and the reduction."""
    if not floats(self, target):
        return Flop()
    elements = together(self, target)
    rest = elements * simple + reduced(elements, reduction)
    return Flop(
        other=rest + elements * functions * TRANSCENDENTAL_FLOP, least=rest + elements * functions
    )


def _each_pair(
    cost: Cost, self: TensorSpec, target: TensorSpec, reduction: int = MEAN, **_: Any
) -> Flop:
    return _loss(self, target, reduction, cost.simple, cost.functions)


table(
    """
aten.mse_loss = 2
    (x - t) squared: two an element.
aten.soft_margin_loss = 3+2f
    log(1 + exp(-t * x)): a sign change, a product, an addition, two functions.
aten.huber_loss = 7
    With z = |x - t|: 0.5 * z * z up to delta, delta * (z - 0.5 * delta) above.

    A difference, its magnitude, a comparison, two products, and a difference and a product.
""",
    _each_pair,
    number,
)


@formula("aten.smooth_l1_loss")
def smooth_l1(
    self: TensorSpec, target: TensorSpec, reduction: int = MEAN, beta: float = 1, **_: Any
) -> Flop:
    """With z = |x - t|: (0.5 / beta) * z * z below beta, z - 0.5 * beta above; z where beta is 0.

    A difference, its magnitude, a comparison, two products, a subtraction.
    """
    return _loss(self, target, reduction, 6 if beta else 2)


@formula("aten.binary_cross_entropy")
def cross_entropy_of_two(
    self: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None = None,
    reduction: int = MEAN,
    **_: Any,
) -> Flop:
    """(t - 1) * max(log(1 - x), -100) - t * max(log(x), -100), times the weight if there is one."""
    return _loss(self, target, reduction, 7 + (weight is not None), 2)


@formula("aten.binary_cross_entropy_with_logits")
def cross_entropy_of_two_from_logits(
    self: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None = None,
    pos_weight: TensorSpec | None = None,
    reduction: int = MEAN,
    **_: Any,
) -> Flop:
    """(1 - t) * x + log(1 + exp(-x)), as a difference to the logarithm of the sigmoid.

    With a weight p of positives the logarithm is multiplied by 1 + (p - 1) * t.
    """
    weighted = (weight is not None) + 3 * (pos_weight is not None)
    each = _loss(self, target, reduction, 6 + weighted, 2)
    more = pos_weight.elements if pos_weight is not None and each.flop else 0
    return Flop(other=each.flop + more, least=each.min_flop + more)


@formula("aten.multi_margin_loss")
def multi_margin(
    self: TensorSpec,
    p: float = 1,
    weight: TensorSpec | None = None,
    reduction: int = MEAN,
    **_: Any,
) -> Flop:
    """Of a row's n classes but the target: the sum of max(0, margin - x[target] + x)**p, over n.

    margin - x[target] once a row, with the division and the product with a weight; a class takes
    an addition, a comparison, another addition (the first of a row none), and a square for p = 2.
    """
    rows, classes = rows_and_classes(self)
    others = rows * max(0, classes - 1)
    each = 2 + (weight is not None)
    folds = max(0, others - rows)
    return Flop(other=rows * each + others * (2 + (p == 2)) + folds + reduced(rows, reduction))


def rows_and_classes(self: TensorSpec) -> tuple[int, int]:
    """Of a batch of rows, or of one row; none of nothing."""
    classes = self.shape[-1] if self.shape else 1
    return (self.elements // classes, classes) if classes else (0, 0)


def pairs_of(self: TensorSpec) -> tuple[int, int]:
    """The most targets, and pairs of a target with what is none, that labels can make of all rows.

    A row of n classes with k targets has k * (n - k) pairs: how many is not known from shapes.
    """
    rows, classes = rows_and_classes(self)
    targets = (classes + 1) // 2
    return rows * targets, rows * targets * (classes - targets)


@formula("aten.multilabel_margin_loss_forward")
def multilabel_margin(self: TensorSpec, reduction: int, **_: Any) -> Flop:
    """The sum of max(0, 1 - x[target] + x[other]) over all pairs, over the number of classes.

    A subtraction a target; two additions and a comparison a pair (the first addition of a row
    none), a division a row. The values say how many targets there are: half is the most.
    """
    rows, _classes = rows_and_classes(self)
    targets, pairs = pairs_of(self)
    folds = max(0, pairs - rows)
    return Flop(other=targets + 2 * pairs + folds + rows + reduced(rows, reduction), least=0)


@formula(
    *("aten.nll_loss_forward", "aten.nll_loss2d_forward"),
    byte="of a row only the target's value is read; none of rows that are ignored",
)
def negative_log_likelihood(
    self: TensorSpec, target: TensorSpec, weight: TensorSpec | None, reduction: int, **_: Any
) -> Flop:
    """-w[t] * x[t]: a sign change (of the sum, if that is asked), a product with a weight.

    A mean is divided by the sum of the weights, or the number of rows. Rows may be ignored, which
    cannot be known from shapes: the least is nothing.
    """
    rows = target.elements
    folds = max(0, rows - 1)
    operations = rows if not reduction or not rows else folds + 1 + (reduction == MEAN)
    touched = {"self": rows}
    if weight is not None:
        operations += rows + (folds if reduction else 0)
        touched["weight"] = rows
    return Flop(
        other=operations,
        least=0,
        elements=touched,
        min_elements=dict.fromkeys(touched, 0),
    )


STATE_FLOP = 9
"""log(exp(a - m) + exp(b - m) + exp(c - m)) + m + x with the largest m: comparisons and sums."""

STATE_FUNCTIONS = 4


def trellis(
    input_lengths: Any, target_lengths: Any, log_alpha: TensorSpec
) -> list[tuple[int, int]]:
    """Steps and states of each sample: a state for every label and for the blanks around them.

    Lengths that lie in tensors are taken to be the longest that `log_alpha` has room for.
    """
    samples, steps, states = log_alpha.shape
    if isinstance(input_lengths, TensorSpec) or isinstance(target_lengths, TensorSpec):
        return [(steps, states)] * samples
    return [
        (step, 2 * labels + 1) for step, labels in zip(input_lengths, target_lengths, strict=True)
    ]


def looked_up(log_probs: TensorSpec, paths: Sequence[tuple[int, int]]) -> int:
    """Probabilities that the states of every step can look up: those of labels, and the blank's."""
    classes = log_probs.shape[-1]
    return sum(steps * min(states // 2 + 1, classes) for steps, states in paths)


@formula("aten._ctc_loss", byte="of a step only the labels' and the blank's values are read")
def connectionist(
    log_probs: TensorSpec,
    input_lengths: Any,
    target_lengths: Any,
    output: Sequence[TensorSpec],
    **_: Any,
) -> Flop:
    """The sum over all alignments: in each step but the first, of three paths into every state.

    At the end of two states, and a sign change. Which states can be reached, and which labels
    repeat, cannot be known from shapes: the least is nothing. Source: A. Graves et al.,
    "Connectionist temporal classification", ICML 2006.
    """
    paths = trellis(input_lengths, target_lengths, output[1])
    inner = sum(max(0, steps - 1) * states for steps, states in paths)
    simple = inner * STATE_FLOP + len(paths) * 6
    functions = inner * STATE_FUNCTIONS + len(paths) * 3
    return Flop(
        other=simple + functions * TRANSCENDENTAL_FLOP,
        least=0,
        elements={"log_probs": looked_up(log_probs, paths)},
    )


# Derivatives of losses, times the gradient of the loss; means divide it by their elements.


table(
    """
aten.mse_loss_backward = 3
    (2 / n) * (x - t) * g: three an element.
aten.soft_margin_loss_backward = 7+1f
    -t / n * e / (e + 1) * g, with e = exp(-t * x): seven operations and an exponential.
""",
    each_element,
    numbers,
    type="loss",
)


@formula("aten.smooth_l1_loss_backward", "aten.huber_loss_backward")
def smooth_l1_backward(output: TensorSpec, reduction: int, **arguments: Any) -> Flop:
    """With d = x - t: g * d / beta from -beta to beta, -g below, g above; or delta times all three.

    A subtraction, two comparisons, a sign change, two products or a product and a division.
    """
    return elementwise(arguments, output, 6 + (reduction == MEAN))


@formula("aten.binary_cross_entropy_backward")
def cross_entropy_of_two_backward(
    output: TensorSpec, weight: TensorSpec | None = None, reduction: int = MEAN, **arguments: Any
) -> Flop:
    """g * (x - t) / max((1 - x) * x, 1e-12), times the weight if there is one."""
    each = 6 + (weight is not None) + (reduction == MEAN)
    return elementwise(arguments, output, each)


@formula("aten.multi_margin_loss_backward")
def multi_margin_backward(
    self: TensorSpec, p: float, weight: TensorSpec | None = None, **_: Any
) -> Flop:
    """g / n where margin - x[target] + x is above 0, times twice that for p = 2; less all at x[t].

    A class but the target takes an addition, a comparison, an addition to the target's gradient
    (the first a sign change), a product for p = 2; a row margin - x[target], g / n, and a weight.
    """
    rows, classes = rows_and_classes(self)
    others = rows * max(0, classes - 1)
    return Flop(other=rows * (2 + (weight is not None)) + others * (3 + (p == 2)))


@formula("aten.multilabel_margin_loss_backward")
def multilabel_margin_backward(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """A pair with 1 - x[target] + x[other] above 0 adds to one gradient, subtracts from another.

    A subtraction a target, an addition, a comparison and those two a pair, and a product with g
    for each class. The values say how many targets there are: half is the most.
    """
    targets, pairs = pairs_of(self)
    return Flop(other=targets + 4 * pairs + output.elements, least=0)


@formula(
    *("aten.nll_loss_backward", "aten.nll_loss2d_backward"),
    byte="of the prediction only the shape is used; all of its gradient is written",
)
def negative_log_likelihood_backward(
    target: TensorSpec, weight: TensorSpec | None, reduction: int, **_: Any
) -> Flop:
    """-w[t] * g for the target of each row: for all rows -g, and divided for a mean, at once.

    Rows may be ignored, which cannot be known from shapes: the least is nothing.
    """
    rows = target.elements
    signs = (1 + (reduction == MEAN)) if reduction else rows
    weights = {"weight": rows} if weight is not None else {}
    return Flop(
        other=(signs if rows else 0) + (rows if weight is not None else 0),
        least=0,
        elements={"self": 0, **weights},
        min_elements=dict.fromkeys(weights, 0),
    )


@formula("aten._ctc_loss_backward")
def connectionist_backward(
    log_probs: TensorSpec,
    input_lengths: Any,
    target_lengths: Any,
    log_alpha: TensorSpec,
    **_: Any,
) -> Flop:
    """The same sums from the end; with those from the start they are added up for each class.

    log(exp(a - m) + exp(b - m)) + m with the larger m; then (exp(x) - exp(s + l - x)) * g, where l
    is the loss, for each class of each step. The least is nothing, as in the forward pass.
    """
    paths = trellis(input_lengths, target_lengths, log_alpha)
    inner = sum(max(0, steps - 1) * states for steps, states in paths)
    every = log_probs.shape[-1] * sum(steps for steps, _ in paths)
    simple = inner * (STATE_FLOP + 1 + 5) + every * 4
    functions = inner * (STATE_FUNCTIONS + 3) + every * 2
    return Flop(other=simple + functions * TRANSCENDENTAL_FLOP, least=0)
