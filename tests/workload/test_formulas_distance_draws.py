"""Distances between vectors, products of three tensors, and random numbers, in loops or by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workload.passes import only, passed, total
from tests.workload.scalars import Scalar, Tally, largest_of, numbers, random, same, sum_of

sizes = st.integers(1, 4)


def distance(a: list[Scalar], b: list[Scalar], p: float) -> Scalar:
    """The norm of a difference."""
    differences = [abs(x - y) if p != 2 else x - y for x, y in zip(a, b, strict=True)]
    if p == 1:
        return sum_of(differences)
    if math.isinf(p):
        return largest_of(differences)
    if p == 2:
        return sum_of([each * each for each in differences]).root()
    return sum_of([each.apply(lambda x: x**p) for each in differences]).apply(
        lambda x: x ** (1 / p)
    )


@settings(max_examples=30)
@given(batch=sizes, shape=st.tuples(sizes, sizes, sizes), p=st.sampled_from([1, 2, 3, math.inf]))
def test_cdist(batch: int, shape: tuple[int, ...], p: float) -> None:
    """Of each vector to each: a difference, a magnitude or square, a sum or comparison."""
    m, n, size = shape
    x, y, tally = random(batch, m, size), random(batch, n, size), Tally()
    result = [
        [[distance(a, b, p) for b in numbers(y[i], tally)] for a in numbers(x[i], tally)]
        for i in range(batch)
    ]
    assert same(result, torch.cdist(x, y, p))
    work = only(passed(lambda x, y: torch.cdist(x, y, p), x, y)).work
    assert work.flop == tally.flop
    assert (work.min_flop or 0) <= tally.min_flop


@given(count=st.integers(2, 4), size=sizes, p=st.sampled_from([1, 2, 3, math.inf]))
def test_pdist(count: int, size: int, p: float) -> None:
    """Only the later ones."""
    x, tally = random(count, size), Tally()
    rows = numbers(x, tally)
    result = [distance(rows[i], rows[j], p) for i in range(count) for j in range(i + 1, count)]
    assert same(result, F.pdist(x, p))
    assert only(passed(lambda x: F.pdist(x, p), x)).work.flop == tally.flop


def test_many_vectors_are_compared_by_a_product() -> None:
    """40 and 30 vectors of 4: torch multiplies 40 x 6 with 6 x 30.

    Squared norms: 4 squares and 3 additions of 70; -2 times 160; a comparison and a root a pair.
    """
    record = only(passed(torch.cdist, (40, 4), (30, 4)))
    assert record.op == "aten._euclidean_dist"
    assert record.work.macs == 40 * 6 * 30
    assert record.work.flop == 2 * 7200 + 70 * 7 + 160 + 2 * 1200
    assert record.work.min_flop == 1200 * (2 * 4 + 1)


@pytest.mark.parametrize(("rows", "is_product"), [(26, True), (25, False)])
def test_distances_are_a_product_from_26_rows_on(rows: int, is_product: bool) -> None:
    work = only(passed(torch.cdist, (rows, 7), (5, 7))).work
    assert work.macs == (rows * 5 * (7 + 2) if is_product else 0)


@settings(max_examples=20)
@given(batch=sizes, left=sizes, right=sizes, outputs=sizes)
def test_bilinear_layer(batch: int, left: int, right: int, outputs: int) -> None:
    """x^T A for every output, that times y."""
    layer = torch.nn.Bilinear(left, right, outputs, bias=False)
    x, y = random(batch, left), random(batch, right)
    tally = Tally()
    result = []
    weights = numbers(layer.weight.detach(), tally)
    for a, b in zip(numbers(x, tally), numbers(y, tally), strict=True):
        row = []
        for matrix in weights:
            zero = Scalar(0.0, tally)
            inner = [
                sum_of([zero, *(a[i] * matrix[i][j] for i in range(left))]) for j in range(right)
            ]
            row.append(sum_of([zero, *(inner[j] * b[j] for j in range(right))]))
        result.append(row)
    assert same(result, layer(x, y).detach())
    work = total(passed(layer, x, y))
    assert work.flop == tally.flop
    assert work.macs == tally.simple / 2


def test_products_of_experts() -> None:
    """7 rows of 16 through one of 4 matrices of 16 x 32 each; at least one matrix is read."""
    rows = torch.zeros(7, 16, dtype=torch.bfloat16)
    experts = torch.zeros(4, 16, 32, dtype=torch.bfloat16)
    ends = torch.zeros(4, dtype=torch.int32)
    grouped: Any = torch.ops.aten._grouped_mm
    record = only(passed(lambda x, w, e: grouped(x, w, e), rows, experts, ends))
    assert record.work.macs == 7 * 16 * 32
    weights = record.inputs[1]
    assert (weights.distinct_elements, weights.min_elements) == (4 * 16 * 32, 16 * 32)
    few = only(passed(lambda x, w, e: grouped(x, w, e), rows[:2], experts, ends))
    # Two rows cannot go to more than two experts.
    assert few.inputs[1].distinct_elements == 2 * 16 * 32


def test_integers_take_no_flop() -> None:
    """Products of integers are integer arithmetic."""
    a, b = torch.zeros(3, 4, dtype=torch.int64), torch.zeros(4, 5, dtype=torch.int64)
    for function in (torch.mm, lambda a, b: a @ b[:, 0], lambda a, b: F.max_pool2d(a[None], 2)):
        assert total(passed(function, a, b)).flop == 0


# -- random numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "flop"),
    [
        (lambda x: torch.rand(10), 10),
        (lambda x: torch.rand_like(x), 10),
        (lambda x: x.uniform_(), 10),
        (lambda x: x.uniform_(-1, 1), 30),  # a draw, a width, a beginning
        (lambda x: torch.bernoulli(x), 20),  # a draw and a comparison
        (lambda x: x.bernoulli_(0.5), 20),
        # Five pairs: two draws, five products and roots, a logarithm, a sine and a cosine.
        (lambda x: torch.randn(10), 5 * (7 + 3 * 8)),
        (lambda x: torch.randn_like(x[:9]), 5 * (7 + 3 * 8)),
        (lambda x: x.normal_(), 5 * (7 + 3 * 8)),
        (lambda x: x.normal_(1, 2), 5 * (7 + 3 * 8) + 20),
        (lambda x: torch.normal(x, 2.0), 5 * (7 + 3 * 8) + 20),
        (lambda x: x.exponential_(), 10 * (3 + 8)),
        (lambda x: torch.randint(0, 4, (10,)), 0),
        (lambda x: torch.randint(0, 4, (10,), dtype=torch.float32), 0),
        (lambda x: torch.randperm(10), 0),
        (lambda x: x.random_(), 0),
        (lambda x: torch.rand(0), 0),
    ],
)
def test_draws_by_hand(draw: Callable[[Any], Any], flop: int) -> None:
    """Ten numbers; no kernel must do any of it, as generators differ."""
    work = total(passed(lambda x: draw(x.clone()), (10,)))
    assert (work.flop, work.min_flop) == (flop, 0)


@pytest.mark.parametrize(("train", "flop"), [(True, 4 * 10), (False, 0)])
def test_dropout(train: bool, flop: int) -> None:
    """A draw, a comparison, and two products; outside training the input comes back."""
    captured = passed(lambda x: torch.native_dropout(x, 0.5, train), (10,))
    assert total(captured).flop == flop


# -- order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "shape", "flop", "least"),
    [
        (lambda x: x.median(), (4, 5), 19, 19),
        (lambda x: x.median(-1), (4, 5), 16, 16),
        (lambda x: x.nanmedian(), (4, 5), 19, 19),
        (lambda x: x.kthvalue(2, 0), (4, 5), 15, 15),
        # Of 20: 19 for each limit; in pairs 10, then 9 for each. Of 5: 4 each; 2 + 2 + 2.
        (lambda x: x.aminmax(), (4, 5), 38, 28),
        (lambda x: x.aminmax(dim=1), (4, 5), 32, 24),
        (lambda x: torch.trace(x), (4, 5), 3, 3),
        (lambda x: torch.histc(x, 4, 0, 1), (4, 5), 80, 20),
        (lambda x: torch.histc(x, 4), (4, 5), 120, 20),
        # 7 boundaries: three comparisons find one of eight places.
        (lambda x: torch.bucketize(x, torch.zeros(7)), (4, 5), 60, 20),
        (lambda x: torch.searchsorted(torch.zeros(4, 7), x), (4, 5), 60, 20),
    ],
)
def test_order_by_hand(
    function: Callable[[Any], Any], shape: tuple[int, ...], flop: int, least: int
) -> None:
    """Comparisons, and those that no method can do without."""
    work = total(passed(function, shape))
    assert (work.flop, work.min_flop) == (flop, least)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.median(),
        lambda x: x.aminmax(),
        lambda x: torch.bucketize(x, torch.zeros(7, dtype=torch.int64)),
    ],
)
def test_order_of_integers_takes_no_flop(function: Callable[[Any], Any]) -> None:
    """Comparing integers is no floating-point operation."""
    assert total(passed(function, torch.zeros(4, 5, dtype=torch.int64))).flop == 0
