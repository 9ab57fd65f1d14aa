"""Losses: operations per element of prediction and target, and their mean or sum.

Values of `reduction`: 0 keeps all, 1 takes the mean, 2 the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.costs import Cost, F, cost, has_floats
from roofline.workload.formulas.pointwise import broadcast_elements, each_element
from roofline.workload.formulas.registry import Flop, Tensors, formula, table, untouched
from roofline.workload.tensors import TensorSpec as Tensor

MEAN = 1


def reduction_flop(elements: int, reduction: int) -> int:
    """n - 1 additions for a sum, and a division for a mean."""
    return max(0, elements - (reduction != MEAN)) if reduction else 0


def each_pair(
    of: Cost | int, self: Tensor, target: Tensor, reduction: int = MEAN, **_: Any
) -> Flop:
    if not has_floats(self, target):
        return Flop()
    elements = broadcast_elements(self, target)
    return (elements * cost(of) + reduction_flop(elements, reduction)).flop()


table(
    """
aten.mse_loss = 2
    (x - t) squared: 2 per element.
aten.soft_margin_loss = 3 + 2 * F
    log(1 + exp(-t * x)): a sign change, a product, an addition, two functions.
aten.huber_loss = 7
    With z = |x - t|: 0.5 * z * z up to delta, delta * (z - 0.5 * delta) above.

    A difference, its magnitude, a comparison, two products, and a difference and a product.
aten.smooth_l1_loss = 6 if beta else 2
    With z = |x - t|: (0.5 / beta) * z * z below beta, z - 0.5 * beta above; z where beta is 0.

    A difference, its magnitude, a comparison, two products, a subtraction.
aten.binary_cross_entropy = 7 + (weight is not None) + 2 * F
    (t - 1) * max(log(1 - x), -100) - t * max(log(x), -100), times the weight if given.
""",
    each_pair,
)


@formula("aten.binary_cross_entropy_with_logits")
def cross_entropy_of_two_from_logits(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = MEAN,
    **_: Any,
) -> Flop:
    """(1 - t) * x + log(1 + exp(-x)), computed with the logarithm of the sigmoid.

    With a weight p of positives, the logarithm is multiplied by 1 + (p - 1) * t.
    """
    weighted = (weight is not None) + 3 * (pos_weight is not None)
    count = each_pair(6 + weighted + 2 * F, self, target, reduction)
    return count.plus(pos_weight.elements) if pos_weight is not None and count.flop else count


def rows_and_classes(self: Tensor) -> tuple[int, int]:
    """Rows and classes of a batch or of one row; (0, 0) if empty."""
    classes = self.shape[-1] if self.shape else 1
    return (self.elements // classes, classes) if classes else (0, 0)


def max_label_pairs(self: Tensor) -> tuple[int, int]:
    """Maximum numbers of targets, and of pairs of a target and a non-target, over all rows.

    A row of n classes with k targets has k * (n - k) pairs; k depends on values.
    """
    rows, classes = rows_and_classes(self)
    targets = (classes + 1) // 2
    return rows * targets, rows * targets * (classes - targets)


@formula("aten.multi_margin_loss")
def multi_margin(
    self: Tensor, p: float = 1, weight: Tensor | None = None, reduction: int = MEAN, **_: Any
) -> Flop:
    """Sum of max(0, margin - x[target] + x)**p over all classes but the target, over n.

    Per row: margin - x[target], a division, and a product with a weight. Per class: an addition, a
    comparison, another addition (the first of a row none), and a square for p = 2.
    """
    rows, classes = rows_and_classes(self)
    others = rows * max(0, classes - 1)
    folds = max(0, others - rows) + reduction_flop(rows, reduction)
    return Flop(other=rows * (2 + (weight is not None)) + others * (2 + (p == 2)) + folds)


@formula("aten.multi_margin_loss_backward")
def multi_margin_backward(self: Tensor, p: float, weight: Tensor | None = None, **_: Any) -> Flop:
    """g / n where margin - x[target] + x is above 0, times twice that for p = 2; minus all at x[t].

    Per class but the target: an addition, a comparison, an addition to the target's gradient (the
    first a sign change), a product for p = 2. Per row: margin - x[target], g / n, and a weight.
    """
    rows, classes = rows_and_classes(self)
    others = rows * max(0, classes - 1)
    return Flop(other=rows * (2 + (weight is not None)) + others * (3 + (p == 2)))


@formula("aten.multilabel_margin_loss_forward")
def multilabel_margin(self: Tensor, reduction: int, **_: Any) -> Flop:
    """Sum of max(0, 1 - x[target] + x[other]) over all pairs, over the number of classes.

    A subtraction per target; two additions and a comparison per pair (the first addition of a row
    none), a division per row. Targets depend on values: half of the classes is the maximum.
    """
    rows, _classes = rows_and_classes(self)
    targets, pairs = max_label_pairs(self)
    folds = max(0, pairs - rows) + reduction_flop(rows, reduction)
    return Flop(other=targets + 2 * pairs + rows + folds, least=0)


@formula("aten.multilabel_margin_loss_backward")
def multilabel_margin_backward(self: Tensor, output: Tensor, **_: Any) -> Flop:
    """A pair with 1 - x[target] + x[other] above 0 adds to one gradient, subtracts from another.

    A subtraction per target; an addition, a comparison and these two per pair; a product with g per
    class. Targets depend on values: half of the classes is the maximum.
    """
    targets, pairs = max_label_pairs(self)
    return Flop(other=targets + 4 * pairs + output.elements, least=0)


@formula(
    *("aten.nll_loss_forward", "aten.nll_loss2d_forward"),
    byte="the value of the target per row; minimum: none (rows may be ignored)",
)
def negative_log_likelihood(
    target: Tensor, weight: Tensor | None, reduction: int, **_: Any
) -> Flop:
    """-w[t] * x[t]: a sign change (of the sum, if reduced), a product with a weight.

    A mean is divided by the sum of the weights, or the number of rows. Ignored rows depend on
    values: the minimum is 0.
    """
    rows = target.elements
    folds = max(0, rows - 1)
    operations = rows if not reduction or not rows else folds + 1 + (reduction == MEAN)
    touched = {"self": rows}
    if weight is not None:
        operations += rows + (folds if reduction else 0)
        touched["weight"] = rows
    return Flop(other=operations, least=0, elements=touched, min_elements=untouched(*touched))


@formula(
    *("aten.nll_loss_backward", "aten.nll_loss2d_backward"),
    byte="the prediction is not read, only its shape is used; all of its gradient is written",
)
def negative_log_likelihood_backward(
    target: Tensor, weight: Tensor | None, reduction: int, **_: Any
) -> Flop:
    """-w[t] * g for the target of each row: -g once for all rows, divided for a mean.

    Ignored rows depend on values: the minimum is 0.
    """
    rows = target.elements
    signs = (1 + (reduction == MEAN)) if reduction and rows else rows
    weights = {"weight": rows} if weight is not None else {}
    return Flop(
        other=signs + sum(weights.values()),
        least=0,
        elements={"self": 0, **weights},
        min_elements=untouched(*weights),
    )


STATE = 9 + 4 * F
"""Comparisons and sums of log(exp(a - m) + exp(b - m) + exp(c - m)) + m + x with the largest m."""


def trellis(input_lengths: Any, target_lengths: Any, log_alpha: Tensor) -> list[tuple[int, int]]:
    """Steps and states of each sample: one state per label and per blank around it.

    Lengths in tensors count as the maximum that `log_alpha` has room for.
    """
    samples, steps, states = log_alpha.shape
    if isinstance(input_lengths, Tensor) or isinstance(target_lengths, Tensor):
        return [(steps, states)] * samples
    return [
        (step, 2 * labels + 1) for step, labels in zip(input_lengths, target_lengths, strict=True)
    ]


def inner_states(paths: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, steps - 1) * states for steps, states in paths)


@formula("aten._ctc_loss", byte="the values of the labels and of the blank per step")
def connectionist(
    log_probs: Tensor, input_lengths: Any, target_lengths: Any, output: Tensors, **_: Any
) -> Flop:
    """Sum over all alignments: three paths into every state, per step but the first.

    At the end, two states and a sign change. Reachable states and repeated labels depend on values:
    the minimum is 0. Source: A. Graves et al., "Connectionist temporal classification", ICML 2006.
    """
    paths = trellis(input_lengths, target_lengths, output[1])
    whole = inner_states(paths) * STATE + len(paths) * (6 + 3 * F)
    # The states of a step look up the probabilities of labels and of the blank.
    classes = log_probs.shape[-1]
    looked_up = sum(steps * min(states // 2 + 1, classes) for steps, states in paths)
    return Flop(other=whole.operations, least=0, elements={"log_probs": looked_up})


@formula("aten._ctc_loss_backward")
def connectionist_backward(
    log_probs: Tensor, input_lengths: Any, target_lengths: Any, log_alpha: Tensor, **_: Any
) -> Flop:
    """The same sums from the end, added to those from the start per class.

    log(exp(a - m) + exp(b - m)) + m with the larger m; then (exp(x) - exp(s + l - x)) * g, with the
    loss l, per class of each step. The minimum is 0, as in the forward pass.
    """
    paths = trellis(input_lengths, target_lengths, log_alpha)
    every = log_probs.shape[-1] * sum(steps for steps, _ in paths)
    whole = inner_states(paths) * (STATE + 1 + 5 + 3 * F) + every * (4 + 2 * F)
    return Flop(other=whole.operations, least=0)


# Derivatives of losses, times the gradient of the loss; a mean divides it by its elements.
table(
    """
aten.mse_loss_backward = 3
    (2 / n) * (x - t) * g: 3 per element.
aten.soft_margin_loss_backward = 7 + F
    -t / n * e / (e + 1) * g, with e = exp(-t * x): 7 operations and an exponential.
aten.smooth_l1_loss_backward aten.huber_loss_backward = 6 + (reduction == MEAN)
    With d = x - t: g * d / beta from -beta to beta, -g below, g above; or delta times all three.

    A subtraction, two comparisons, a sign change, two products or a product and a division.
aten.binary_cross_entropy_backward = 6 + (weight is not None) + (reduction == MEAN)
    g * (x - t) / max((1 - x) * x, 1e-12), times the weight if given.
""",
    each_element,
)
