"""Losses against loops over their definition, number by number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.workload.passes import only, passed
from tests.workload.scalars import (
    Scalar,
    Tally,
    exp,
    flat,
    largest_of,
    log,
    numbers,
    same,
    select,
    sum_of,
)

ATEN = torch.ops.aten
REDUCTIONS = (0, 1, 2)
Loss = Callable[..., torch.Tensor]


def largest(x: Scalar, limit: float) -> Any:
    return select(x > limit, x, Scalar(limit, x.tally))


def smooth_l1(x: Scalar, t: Scalar, beta: float) -> Any:
    z = abs(x - t)
    return select(z < beta, z * z * (0.5 / beta), z - 0.5 * beta)


def huber(x: Scalar, t: Scalar, delta: float) -> Any:
    z = abs(x - t)
    return select(z > delta, (z - 0.5 * delta) * delta, z * z * 0.5)


def cross_entropy(x: Scalar, t: Scalar) -> Scalar:
    return (t - 1) * largest(log(1 - x), -100) - t * largest(log(x), -100)


def from_logits(x: Scalar, t: Scalar) -> Scalar:
    """The logarithm of a sigmoid is two sign changes, an addition, two functions."""
    return (1 - t) * x - -log(exp(-x) + 1)


def soft_margin(x: Scalar, t: Scalar) -> Scalar:
    return log(exp(-t * x) + 1)


LOSSES: list[tuple[str, Loss, Callable[[Scalar, Scalar], Any]]] = [
    ("mse", ATEN.mse_loss, lambda x, t: (d := x - t) * d),
    (
        "smooth l1",
        lambda x, t, r: ATEN.smooth_l1_loss(x, t, r, 0.3),
        lambda x, t: smooth_l1(x, t, 0.3),
    ),
    ("l1", lambda x, t, r: ATEN.smooth_l1_loss(x, t, r, 0), lambda x, t: abs(x - t)),
    ("huber", lambda x, t, r: ATEN.huber_loss(x, t, r, 0.3), lambda x, t: huber(x, t, 0.3)),
    ("cross entropy", lambda x, t, r: ATEN.binary_cross_entropy(x, t, None, r), cross_entropy),
    (
        "weighted cross entropy",
        lambda x, t, r: ATEN.binary_cross_entropy(x, t, x, r),
        lambda x, t: cross_entropy(x, t) * x,
    ),
    (
        "from logits",
        lambda x, t, r: ATEN.binary_cross_entropy_with_logits(x, t, None, None, r),
        from_logits,
    ),
    (
        "weighted, from logits",
        lambda x, t, r: ATEN.binary_cross_entropy_with_logits(x, t, x, None, r),
        lambda x, t: from_logits(x, t) * x,
    ),
    ("soft margin", ATEN.soft_margin_loss, soft_margin),
]


def reduced(losses: list[Scalar], reduction: int) -> list[Scalar]:
    if not reduction:
        return losses
    total = sum_of(losses)
    return [total / len(losses) if reduction == 1 else total]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("loss", "written_out"), [pytest.param(loss, loop, id=name) for name, loss, loop in LOSSES]
)
def test_written_out(
    loss: Loss, written_out: Callable[[Scalar, Scalar], Any], reduction: int
) -> None:
    """The operator gives what the definition gives, and counts what that takes."""
    x, t = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(4)) * 0.8 + 0.1
    tally = Tally()
    pairs = zip(flat(numbers(x, tally)), flat(numbers(t, tally)), strict=True)
    assert same(reduced([written_out(a, b) for a, b in pairs], reduction), loss(x, t, reduction))
    record = only(passed(lambda x, t: loss(x, t, reduction), x, t))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)
    assert (record.type, record.work.macs) == ("loss", 0)


def test_weights_of_positives() -> None:
    """(1 - t) * x - (1 + (p - 1) * t) * log(sigmoid(x)), with p - 1 once a class."""
    x, t = torch.randn(4, 3), torch.rand(4, 3)
    p = torch.tensor([0.5, 2.0, 3.0])
    tally = Tally()
    less = [each - 1 for each in numbers(p, tally)]
    found = []
    for row, targets in zip(numbers(x, tally), numbers(t, tally), strict=True):
        for a, b, c in zip(row, targets, less, strict=True):
            found.append((1 - b) * a - (c * b + 1) * -log(exp(-a) + 1))
    assert same(found, ATEN.binary_cross_entropy_with_logits(x, t, None, p, 0))
    record = only(
        passed(
            lambda *each: ATEN.binary_cross_entropy_with_logits(*each[:2], None, each[2], 0),
            x,
            t,
            p,
        )
    )
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)


def test_broadcast_targets() -> None:
    """Each pair of elements counts: 12 of them, two operations each, 11 additions, a division."""
    record = only(passed(lambda x, t: ATEN.mse_loss(x, t), (4, 3), (4, 1)))
    assert record.work.flop == 12 * 2 + 11 + 1


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_multi_margin(p: int, reduction: int, is_weighted: bool) -> None:
    """Every class but the target, and what a row takes besides."""
    x, target = torch.randn(4, 5), torch.tensor([0, 3, 1, 4])
    weight = torch.rand(5) if is_weighted else None
    tally = Tally()
    losses = []
    for row, t in zip(numbers(x, tally), target.tolist(), strict=True):
        start = 1 - row[t]
        terms = []
        for i, each in enumerate(row):
            if i != t:
                z = largest(each + start, 0)
                terms.append(z * z if p == 2 else z)
        total = sum_of(terms) / len(row)
        losses.append(total if weight is None else total * float(weight[t]))
    assert same(
        reduced(losses, reduction), ATEN.multi_margin_loss(x, target, p, 1, weight, reduction)
    )
    record = only(passed(lambda x: ATEN.multi_margin_loss(x, target, p, 1, weight, reduction), x))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)


@pytest.mark.parametrize("classes", [1, 2, 5, 6])
def test_multilabel_margin_is_what_the_worst_labels_take(classes: int) -> None:
    """Loops over pairs for each number of targets; the count is the largest of them."""
    taken = []
    x, labels = torch.randn(2, classes), torch.full((2, classes), -1)
    for targets in range(1, classes + 1):
        tally = Tally()
        labels[:, :targets] = torch.arange(targets)
        losses = []
        for row in numbers(x, tally):
            terms = []
            for t in range(targets):
                start = 1 - row[t]
                terms += [largest(each + start, 0) for each in row[targets:]]
            losses.append(sum_of(terms) / classes if terms else Scalar(0, tally))
        loss = ATEN.multilabel_margin_loss_forward(x, labels, 1)[0]
        assert same(reduced(losses, 1), loss)
        taken.append(tally.flop)
    record = only(passed(lambda x, t: ATEN.multilabel_margin_loss_forward(x, t, 1), x, labels))
    # Rows with nothing to compare are divided in the count, and not in the loop.
    assert record.work.flop == max(taken) + (2 if classes == 1 else 0)
    assert record.work.min_flop == 0


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_negative_log_likelihood(reduction: int, is_weighted: bool) -> None:
    """One probability a row is read, not the table; -w * x, and the weights are summed too."""
    x, target = torch.randn(4, 7), torch.tensor([0, 3, 1, 4])
    weight = torch.rand(7) if is_weighted else None
    tally = Tally()
    picked = [row[t] for row, t in zip(numbers(x, tally), target.tolist(), strict=True)]
    weights = None if weight is None else [numbers(weight, tally)[t] for t in target.tolist()]
    products = picked if weights is None else [a * w for a, w in zip(picked, weights, strict=True)]
    if not reduction:
        found = [-each for each in products]
    else:
        found = [-sum_of(products)]
        total = Scalar(4, tally) if weights is None else sum_of(weights)
        found = [found[0] / total] if reduction == 1 else found
    output, _ = ATEN.nll_loss_forward(x, target, weight, reduction, -100)
    assert same(found, output)
    record = only(
        passed(lambda x, t: ATEN.nll_loss_forward(x, t, weight, reduction, -100), x, target)
    )
    assert (record.work.flop, record.work.min_flop) == (tally.flop, 0)
    table = record.inputs[0]
    assert (table.distinct_elements, table.min_elements) == (4, 0)


def test_negative_log_likelihood_of_images() -> None:
    """A row for each pixel."""
    target = torch.zeros(2, 3, 5, dtype=torch.int64)
    record = only(
        passed(lambda x, t: ATEN.nll_loss2d_forward(x, t, None, 1, -100), (2, 4, 3, 5), target)
    )
    assert record.work.flop == 30 - 1 + 1 + 1
    assert record.inputs[0].byte == 30 * 4
    assert record.type == "loss"


def ctc(x: Any, labels: list[int], tally: Tally) -> Scalar:
    """Graves' sum over alignments, with all three paths into each state, as torch computes it."""
    low = Scalar(-math.inf, tally)
    states = [0, *itertools.chain.from_iterable((label, 0) for label in labels)]
    alpha = [x[0][0], x[0][states[1]]] + [low] * (len(states) - 2)
    for row in x[1:]:
        before, alpha = alpha, []
        for s, label in enumerate(states):
            skips = s > 1 and label != states[s - 2]
            paths = (before[s], before[s - 1] if s else low, before[s - 2] if skips else low)
            m = finite(largest_of(paths))
            terms = [exp(each - m) for each in paths]
            alpha.append(safe_log(sum_of(terms)) + m + row[label])
    m = largest_of(alpha[-2:])
    return -(log(sum_of([exp(each - m) for each in alpha[-2:]])) + m)


def finite(x: Scalar) -> Scalar:
    return x if math.isfinite(x.value) else Scalar(0, x.tally)


def safe_log(x: Scalar) -> Scalar:
    return x.apply(lambda v: math.log(v) if v else -math.inf)


def test_connectionist_temporal_classification() -> None:
    """Lengths in lists are known, as is then the work; lengths in tensors are the longest."""
    log_probs = torch.randn(6, 2, 5).log_softmax(-1)
    targets, steps, lengths = torch.tensor([[1, 2, 2], [3, 4, 0]]), [6, 4], [3, 2]
    tally = Tally()
    losses = [
        ctc(numbers(log_probs[: steps[i], i], tally), targets[i, : lengths[i]].tolist(), tally)
        for i in range(2)
    ]
    assert same(losses, ATEN._ctc_loss(log_probs, targets, steps, lengths)[0])
    record = only(passed(lambda x, t: ATEN._ctc_loss(x, t, steps, lengths), log_probs, targets))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, 0)
    # Of each step the blank and three or two labels.
    assert record.inputs[0].distinct_elements == 6 * 4 + 4 * 3
    longest = only(
        passed(
            lambda *each: ATEN._ctc_loss(*each),
            *(log_probs, targets, torch.tensor(steps), torch.tensor(lengths)),
        )
    )
    inner, ends = 2 * 5 * 7, 2
    assert longest.work.flop == inner * (9 + 4 * 8) + ends * (6 + 3 * 8)
