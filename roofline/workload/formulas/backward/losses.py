"""Derivatives of losses, times the gradient of the loss; means divide it by their elements."""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas.loss import (
    MEAN,
    STATE_FLOP,
    STATE_FUNCTIONS,
    pairs_of,
    rows_and_classes,
    trellis,
)
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, elementwise
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula("aten.mse_loss_backward", type="loss")
def squared_error(output: TensorSpec, **arguments: Any) -> Flop:
    """(2 / n) * (x - t) * g: three an element."""
    return elementwise(arguments, output, 3)


@formula("aten.smooth_l1_loss_backward", "aten.huber_loss_backward", type="loss")
def smooth_l1(output: TensorSpec, reduction: int, **arguments: Any) -> Flop:
    """With d = x - t: g * d / beta from -beta to beta, -g below, g above; or delta times all three.

    A subtraction, two comparisons, a sign change, two products or a product and a division.
    """
    return elementwise(arguments, output, 6 + (reduction == MEAN))


@formula("aten.binary_cross_entropy_backward", type="loss")
def cross_entropy_of_two(
    output: TensorSpec, weight: TensorSpec | None = None, reduction: int = MEAN, **arguments: Any
) -> Flop:
    """g * (x - t) / max((1 - x) * x, 1e-12), times the weight if there is one."""
    each = 6 + (weight is not None) + (reduction == MEAN)
    return elementwise(arguments, output, each)


@formula("aten.soft_margin_loss_backward", type="loss")
def soft_margin(output: TensorSpec, **arguments: Any) -> Flop:
    """-t / n * e / (e + 1) * g, with e = exp(-t * x): seven operations and an exponential."""
    return elementwise(arguments, output, 7, 1)


@formula("aten.multi_margin_loss_backward", type="loss")
def multi_margin(self: TensorSpec, p: float, weight: TensorSpec | None = None, **_: Any) -> Flop:
    """g / n where margin - x[target] + x is above 0, times twice that for p = 2; less all at x[t].

    A class but the target takes an addition, a comparison, an addition to the target's gradient
    (the first a sign change), a product for p = 2; a row margin - x[target], g / n, and a weight.
    """
    rows, classes = rows_and_classes(self)
    others = rows * max(0, classes - 1)
    return Flop(other=rows * (2 + (weight is not None)) + others * (3 + (p == 2)))


@formula("aten.multilabel_margin_loss_backward", type="loss")
def multilabel_margin(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """A pair with 1 - x[target] + x[other] above 0 adds to one gradient, subtracts from another.

    A subtraction a target, an addition, a comparison and those two a pair, and a product with g
    for each class. The values say how many targets there are: half is the most.
    """
    targets, pairs = pairs_of(self)
    return Flop(other=targets + 4 * pairs + output.elements, least=0)


@formula(
    *("aten.nll_loss_backward", "aten.nll_loss2d_backward"),
    type="loss",
    byte="of the prediction only the shape is used; all of its gradient is written",
)
def negative_log_likelihood(
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


@formula("aten._ctc_loss_backward", type="loss")
def connectionist(
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
