"""Backward of softmax and of losses against their derivatives, number by number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from roofline.workload.operators import State
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


def test_softmax() -> None:
    """y * (g - sum(g * y)) along a row."""
    y, g = torch.randn(3, 5).softmax(-1), torch.randn(3, 5)
    tally = Tally()
    found = []
    for a, b in zip(numbers(g, tally), numbers(y, tally), strict=True):
        total = sum_of([p * q for p, q in zip(a, b, strict=True)])
        found += [q * (p - total) for p, q in zip(a, b, strict=True)]
    assert same(found, ATEN._softmax_backward_data(g, y, -1, torch.float32))
    record = only(passed(lambda g, y: ATEN._softmax_backward_data(g, y, -1, torch.float32), g, y))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)
    assert (record.type, record.work.traffic_bytes) == ("softmax", 3 * 60)


def test_log_softmax() -> None:
    """g - exp(y) * sum(g) along a row."""
    y, g = torch.randn(3, 5).log_softmax(-1), torch.randn(3, 5)
    tally = Tally()
    found = []
    for a, b in zip(numbers(g, tally), numbers(y, tally), strict=True):
        total = sum_of(a)
        found += [p - exp(q) * total for p, q in zip(a, b, strict=True)]
    call = ATEN._log_softmax_backward_data
    assert same(found, call(g, y, -1, torch.float32))
    record = only(passed(lambda g, y: call(g, y, -1, torch.float32), g, y))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)


def test_rows_lie_along_the_dimension() -> None:
    """4 n less one for each row: 15, 12 or 20 rows of 3, … elements; one row of a number."""
    for dim, rows in ((0, 20), (1, 15), (2, 12), (-1, 12)):
        record = only(
            passed(lambda g, d=dim: ATEN._softmax_backward_data(g, g, d, torch.float32), (3, 4, 5))
        )
        assert record.work.flop == 4 * 60 - rows
    number = torch.tensor(1.0)
    record = only(passed(lambda g: ATEN._softmax_backward_data(g, g, 0, torch.float32), number))
    assert record.work.flop == 3


def test_masked_softmax_may_have_nothing_left() -> None:
    y, mask = torch.rand(2, 3, 5), torch.zeros(2, 3, 5, dtype=torch.bool)
    record = only(passed(lambda y, m: ATEN._masked_softmax_backward(y, y, m, -1), y, mask))
    assert (record.work.flop, record.work.min_flop) == (4 * 30 - 6, 0)


def smooth_l1(g: Scalar, x: Scalar, t: Scalar, factor: float, beta: float) -> Any:
    d = x - t
    s = scaled(g, factor)
    return select(d < -beta, -s, select(d > beta, s, s * d / beta))


def huber(g: Scalar, x: Scalar, t: Scalar, factor: float, delta: float) -> Any:
    d = x - t
    s = scaled(g, factor)
    outside = s * delta
    return select(d < -delta, -outside, select(d > delta, outside, s * d))


def scaled(x: Scalar, factor: float) -> Scalar:
    """A product, unless there is nothing to divide by."""
    return x if factor == 1 else x * factor


def cross_entropy(g: Scalar, x: Scalar, t: Scalar, factor: float) -> Any:
    slope = (1 - x) * x
    slope = select(slope > 1e-12, slope, Scalar(1e-12, x.tally))
    return scaled(g * (x - t) / slope, factor)


def soft_margin(g: Scalar, x: Scalar, t: Scalar, factor: float) -> Scalar:
    e = exp(-t * x)
    return t * -factor * e / (e + 1) * g


Gradient = Callable[..., torch.Tensor]

CASES: list[tuple[str, Gradient, Callable[..., Any]]] = [
    ("mse", ATEN.mse_loss_backward, lambda g, x, t, factor: (x - t) * (2 * factor) * g),
    (
        "smooth l1",
        lambda g, x, t, r: ATEN.smooth_l1_loss_backward(g, x, t, r, 0.3),
        lambda *each: smooth_l1(*each, beta=0.3),
    ),
    (
        "huber",
        lambda g, x, t, r: ATEN.huber_loss_backward(g, x, t, r, 0.3),
        lambda *each: huber(*each, delta=0.3),
    ),
    (
        "cross entropy",
        lambda g, x, t, r: ATEN.binary_cross_entropy_backward(g, x, t, None, r),
        cross_entropy,
    ),
    (
        "weighted cross entropy",
        lambda g, x, t, r: ATEN.binary_cross_entropy_backward(g, x, t, x, r),
        lambda g, x, t, factor: cross_entropy(g, x, t, factor) * x,
    ),
    ("soft margin", ATEN.soft_margin_loss_backward, soft_margin),
]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("function", "written_out"), [pytest.param(call, loop, id=name) for name, call, loop in CASES]
)
def test_written_out(function: Gradient, written_out: Callable[..., Any], reduction: int) -> None:
    """The operator gives what the derivative gives, and counts what that takes."""
    x, t = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(5)) * 0.8 + 0.1
    g = torch.randn(()) if reduction else torch.randn(3, 5)
    tally = Tally()
    lists = (flat(numbers(each, tally)) for each in (g.expand(3, 5), x, t))
    factor = 1 / 15 if reduction == 1 else 1
    found = [written_out(*each, factor) for each in zip(*lists, strict=True)]
    assert same(found, function(g, x, t, reduction))
    record = only(passed(lambda *each: function(*each, reduction), g, x, t))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)
    assert record.type == "loss"


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_multi_margin(p: int, is_weighted: bool) -> None:
    """g / n where the margin is not kept, and less all of that at the target."""
    x, target, g = torch.randn(4, 5), torch.tensor([0, 3, 1, 4]), torch.randn(())
    weight = torch.rand(5) if is_weighted else None
    tally = Tally()
    found = []
    gradient = numbers(g, tally)
    for row, t in zip(numbers(x, tally), target.tolist(), strict=True):
        start, s = 1 - row[t], gradient * (p / 20)
        s = s if weight is None else s * float(weight[t])
        total = None
        gradients: list[Any] = [None] * 5
        for i, each in enumerate(row):
            if i != t:
                z = each + start
                h = select(z > 0, s * z if p == 2 else s, 0)
                h = h if isinstance(h, Scalar) else Scalar(h, tally)
                total = -h if total is None else total - h
                gradients[i] = h
        gradients[t] = total
        found += gradients
    call = ATEN.multi_margin_loss_backward
    assert same(found, call(g, x, target, p, 1, weight, 1))
    record = only(passed(lambda g, x: call(g, x, target, p, 1, weight, 1), g, x))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)


@pytest.mark.parametrize("classes", [2, 5, 6])
def test_multilabel_margin_is_what_the_worst_labels_take(classes: int) -> None:
    """Loops over pairs for each number of targets; the count is the largest of them."""
    taken = []
    g, x, labels = torch.randn(()), torch.randn(2, classes), torch.full((2, classes), -1)
    is_target = torch.zeros(2, classes)
    for targets in range(1, classes + 1):
        tally = Tally()
        labels[:, :targets] = torch.arange(targets)
        found = []
        for row in numbers(x, tally):
            gradients = [Scalar(0, tally) for _ in row]
            for t in range(targets):
                start = 1 - row[t]
                for i in range(targets, classes):
                    h = select(row[i] + start > 0, 1, 0)
                    gradients[t], gradients[i] = gradients[t] - h, gradients[i] + h
            found += [each * (float(g) / (2 * classes)) for each in gradients]
        _, is_target = ATEN.multilabel_margin_loss_forward(x, labels, 1)
        assert same(found, ATEN.multilabel_margin_loss_backward(g, x, labels, 1, is_target))
        taken.append(tally.flop)
    record = only(
        passed(
            lambda *each: ATEN.multilabel_margin_loss_backward(*each[:3], 1, each[3]),
            g,
            x,
            labels,
            is_target,
        )
    )
    assert (record.work.flop, record.work.min_flop) == (max(taken), 0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_negative_log_likelihood(reduction: int, is_weighted: bool) -> None:
    """One number a row; the prediction is not read, and all of its gradient is written."""
    x, target = torch.randn(4, 7), torch.tensor([0, 3, 1, 4])
    weight = torch.rand(7) if is_weighted else None
    g = torch.randn(()) if reduction else torch.randn(4)
    total = torch.tensor(4.0) if weight is None else weight[target].sum()
    tally = Tally()
    if reduction:
        one = -numbers(g, tally)
        one = one / numbers(total, tally) if reduction == 1 else one
        signed = [one] * 4
    else:
        signed = [-each for each in numbers(g, tally)]
    if weight is not None:
        weights = numbers(weight, tally)
        signed = [each * weights[t] for each, t in zip(signed, target.tolist(), strict=True)]
    found = [
        each if i == t else 0
        for each, t in zip(signed, target.tolist(), strict=True)
        for i in range(7)
    ]
    call = ATEN.nll_loss_backward
    assert same(found, call(g, x, target, weight, reduction, -100, total))
    record = only(
        passed(lambda g, x, t, n: call(g, x, t, weight, reduction, -100, n), g, x, target, total)
    )
    assert (record.work.flop, record.work.min_flop) == (tally.flop, 0)
    (whole,) = record.outputs
    assert whole.byte == 4 * 7 * 4
    table = next(each for each in record.inputs if each.shape == (4, 7))
    assert table.byte == 0


def test_negative_log_likelihood_of_images() -> None:
    target, total = torch.zeros(2, 3, 5, dtype=torch.int64), torch.tensor(30.0)
    record = only(
        passed(
            lambda *each: ATEN.nll_loss2d_backward(*each[:3], None, 1, -100, each[3]),
            *(torch.tensor(1.0), torch.randn(2, 4, 3, 5), target, total),
        )
    )
    assert record.work.flop == 2
    assert record.outputs[0].byte == 2 * 4 * 15 * 4


LOW = -1e30
"""Of what cannot be reached: the logarithm of 0, but for differences that are numbers."""


def both(a: Scalar, b: Scalar) -> Scalar:
    """log(exp(a) + exp(b))."""
    m = largest_of([a, b])
    return log(exp(a - m) + exp(b - m)) + m


def paths_from_the_end(x: Any, states: list[int], tally: Tally) -> list[list[Scalar]]:
    """The logarithm of what all paths from each state of each step to the end add up to."""
    low = Scalar(LOW, tally)
    beta = [low] * (len(states) - 2) + [x[-1][states[-2]], x[-1][0]]
    betas = [beta]
    for row in reversed(x[:-1]):
        after, beta = beta, []
        for s, label in enumerate(states):
            skips = s + 2 < len(states) and label != states[s + 2]
            next_one = after[s + 1] if s + 1 < len(states) else low
            paths = (after[s], next_one, after[s + 2] if skips else low)
            m = largest_of(paths)
            beta.append(log(sum_of([exp(each - m) for each in paths])) + m + row[label])
        betas.insert(0, beta)
    return betas


def test_connectionist_temporal_classification() -> None:
    """The paths to the end, added to those from the start for each class.

    The loop starts each class with what adds nothing, where torch starts with the first path; so
    either adds once for each state but those of the last step, which are set.
    """
    log_probs = torch.randn(5, 1, 4, generator=torch.Generator().manual_seed(6)).log_softmax(-1)
    labels = [1, 2]
    states = [0, *itertools.chain.from_iterable((label, 0) for label in labels)]
    arguments = (torch.tensor([labels]), [5], [2])
    loss, alpha = ATEN._ctc_loss(log_probs, *arguments)
    tally = Tally()
    x, starts = numbers(log_probs[:, 0], tally), numbers(alpha[0].clamp_min(LOW), tally)
    g = numbers(torch.tensor(0.7), tally)
    lost = numbers(loss[0], tally)
    found = []
    for step, ends in enumerate(paths_from_the_end(x, states, tally)):
        sums: list[Scalar] = [Scalar(LOW, tally) for _ in range(4)]
        for s, label in enumerate(states):
            if step < 4:
                sums[label] = both(sums[label], starts[step][s] + ends[s])
            elif s >= len(states) - 2:
                sums[label] = Scalar(starts[step][s].value + ends[s].value, tally)
        found += [
            (exp(each) - (total + lost - each).apply(lambda v: math.exp(v) if v > -700 else 0)) * g
            for each, total in zip(x[step], sums, strict=True)
        ]
    gradient = torch.tensor([0.7])
    assert same(found, ATEN._ctc_loss_backward(gradient, log_probs, *arguments, loss, alpha, 0))
    record = only(
        passed(
            lambda *each: ATEN._ctc_loss_backward(*each[:2], *arguments, *each[2:], 0),
            *(gradient, log_probs, loss, alpha),
        )
    )
    assert (record.work.flop, record.work.min_flop) == (tally.flop, 0)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_shapes_and_types(shape: tuple[int, ...], kind: torch.dtype) -> None:
    """Whatever torch's fakes take is counted; for real, means of nothing end the process."""
    x = torch.full(shape, 0.5, dtype=kind)
    for _, function, _ in CASES:
        for reduction in REDUCTIONS:
            captured = passed(lambda x, f=function, r=reduction: f(x, x.clone(), x + 1, r), x)
            for record in captured.records:
                assert record.state is not State.UNKNOWN, record.op
                assert (record.work.min_flop or 0) <= (record.work.flop or 0)
