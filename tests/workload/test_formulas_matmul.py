"""Matrix products against the loops they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from roofline.workload.work import Work
from tests.workload.passes import only, passed, total
from tests.workload.scalars import Scalar, Tally, numbers, random, same, sum_of

sizes = st.integers(1, 4)


def dots(a: Any, b: Any) -> list[list[Scalar]]:
    """Rows of `a` times columns of `b`: k multiplications each, added into an accumulator."""
    zero = Scalar(0.0, a[0][0].tally)
    return [
        [sum_of([zero, *(x * row[j] for x, row in zip(line, b, strict=True))]) for j in range(cols)]
        for line in a
        for cols in [len(b[0])]
    ]


@given(m=sizes, k=sizes, n=sizes)
def test_mm(m: int, k: int, n: int) -> None:
    """m * n dot products of k FMAs."""
    a, b, tally = random(m, k), random(k, n), Tally()
    assert same(dots(numbers(a, tally), numbers(b, tally)), a @ b)
    record = only(passed(torch.mm, a, b))
    assert record.type == "matrix product"
    work = record.work
    assert work.flop == work.min_flop == tally.simple
    assert work.macs == tally.simple / 2
    assert work.traffic_bytes == 4 * (m * k + k * n + m * n)


@given(batch=sizes, m=sizes, k=sizes, n=sizes)
def test_bmm_is_a_batch_of_mm(batch: int, m: int, k: int, n: int) -> None:
    """b products take b times one."""
    one = only(passed(torch.mm, (m, k), (k, n))).work
    many = only(passed(torch.bmm, (batch, m, k), (batch, k, n))).work
    assert many == sum(batch * [one])


@pytest.mark.parametrize(
    ("function", "shapes", "fma"),
    [
        (torch.mv, [(3, 5), (5,)], 15),  # 3 outputs of 5
        (torch.dot, [(7,), (7,)], 7),
        (torch.vdot, [(7,), (7,)], 7),
        (torch.inner, [(5, 7), (3, 7)], 5 * 3 * 7),
        (torch.outer, [(3,), (5,)], None),  # torch multiplies pointwise
        (torch.matmul, [(2, 4, 5, 7), (4, 7, 3)], 2 * 4 * 5 * 7 * 3),
        # A chain is multiplied from the left, the cheaper way.
        (lambda *x: torch.linalg.multi_dot(x), [(2, 9), (9, 3), (3, 8)], 2 * 9 * 3 + 2 * 3 * 8),
        (lambda x: torch.linalg.matrix_power(x, 5), [(6, 6)], 3 * 6**3),
        (lambda x, y: torch.einsum("i,i->", x, y), [(7,), (7,)], 7),
        (lambda x, y: x @ y.T, [(5, 7), (3, 7)], 5 * 7 * 3),
        (F.bilinear, [(6, 4), (6, 5), (3, 4, 5)], 6 * (4 * 3 * 5 + 5 * 3)),
        (lambda x, y: x @ y, [(2, 3, 4), (4, 5)], 2 * 3 * 5 * 4),
        (lambda x, y: x @ y, [(2, 3, 4), (2, 4, 5)], 2 * 3 * 5 * 4),
        (lambda x, y: x @ y, [(2, 1, 3, 4), (6, 4, 5)], 2 * 6 * 3 * 5 * 4),
        (lambda x, y: torch.einsum("bchw,bdhw->bcd", x, y), [(2, 3, 4, 5)] * 2, 2 * 3 * 3 * 20),
        (lambda x, y: torch.einsum("ij,kj->ik", x, y), [(2, 3), (4, 3)], 2 * 4 * 3),
        (lambda x, y: torch.tensordot(x, y, 2), [(2, 3, 4), (3, 4, 5)], 2 * 5 * 12),
        (lambda x, y: F.linear(x, y), [(2, 7, 3), (5, 3)], 2 * 7 * 5 * 3),
    ],
)
def test_products_by_hand(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], fma: int | None
) -> None:
    """However a product is written, it takes its dot products."""
    work = total(passed(function, *shapes))
    assert work.macs == (fma or 0)
    assert work.flop == (15 if fma is None else 2 * fma)


def test_a_broadcast_matrix_is_read_once() -> None:
    """Six products with the same 4x5 matrix: 20 numbers of it are read, not 120."""
    records = passed(lambda x, y: torch.bmm(x, y.expand(6, 4, 5)), (6, 3, 4), (4, 5))
    assert total(records).input_bytes == 4 * (6 * 3 * 4 + 20)


@pytest.mark.parametrize(
    ("beta", "alpha", "operations"),
    [
        (1, 1, 1),  # one addition an output
        (2, 1, 2),  # and a scale
        (1, 3, 2),
        (2, 3, 3),
        (0, 1, 0),  # the term is left out
        (0, 3, 1),
    ],
)
@pytest.mark.parametrize(
    ("function", "shapes", "outputs", "fma"),
    [
        (torch.addmm, [(3, 5), (3, 4), (4, 5)], 15, 60),
        (torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)], 30, 120),
        (torch.addbmm, [(3, 5), (2, 3, 4), (2, 4, 5)], 15, 120),
        (torch.addmv, [(3,), (3, 5), (5,)], 3, 15),
        (torch.addr, [(3, 5), (3,), (5,)], 15, 15),
    ],
)
def test_a_term_is_added(
    function: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    outputs: int,
    fma: int,
    beta: float,
    alpha: float,
    operations: int,
) -> None:
    """beta * term + alpha * product; the least is the product, which can start with the term."""
    captured = passed(lambda *x: function(*x, beta=beta, alpha=alpha), *shapes)
    work = total(captured)
    assert work.macs == fma
    assert work.flop == 2 * fma + operations * outputs
    assert work.min_flop == 2 * fma


@given(samples=sizes, features=sizes, outputs=sizes, bias=st.booleans())
def test_linear_layer(samples: int, features: int, outputs: int, bias: bool) -> None:
    """A dot product an output, and the bias; weights are parameters, each read once."""
    layer = torch.nn.Linear(features, outputs, bias=bias)
    x, tally = random(samples, features), Tally()
    result = dots(numbers(x, tally), numbers(layer.weight.detach().T, tally))
    if bias:
        result = [
            [value + each for value, each in zip(row, layer.bias.tolist(), strict=True)]
            for row in result
        ]
    assert same(result, layer(x))
    work = only(passed(layer, x)).work
    assert work == Work(
        flop=tally.flop,
        macs=samples * features * outputs,
        min_flop=tally.flop - bias * samples * outputs,
        min_macs=samples * features * outputs,
        parameter_bytes=4 * outputs * (features + bias),
        input_bytes=4 * samples * features,
        output_bytes=4 * samples * outputs,
    )


@settings(max_examples=20)
@given(shapes=st.tuples(sizes, sizes, sizes, sizes))
def test_torch_counts_the_same_multiply_adds(shapes: tuple[int, ...]) -> None:
    """torch's FlopCounterMode is right for products of matrices."""
    b, m, k, n = shapes
    x, y = random(b, m, k), random(b, k, n)
    for function in (torch.bmm, torch.matmul, lambda x, y: x[0] @ y[0]):
        with FlopCounterMode(display=False) as counter:
            function(x, y)
        assert 2 * (total(passed(function, x, y)).macs or 0) == counter.get_total_flops()


def test_a_gram_matrix_reads_its_factor_once() -> None:
    """x and its transpose are the same 12 numbers."""
    work = only(passed(lambda x: torch.mm(x, x.T), (3, 4))).work
    assert work.flop == 2 * 3 * 3 * 4
    assert work.input_bytes == 4 * 12
