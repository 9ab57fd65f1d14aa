"""Factorizations against loops over counted numbers, and conventions by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.operators import State
from roofline.workload.work import Work
from tests.workload.passes import only, passed, total
from tests.workload.scalars import Scalar, Tally, columns, flat, numbers, same, sum_of

Matrix = list[list[Any]]
sizes = st.integers(1, 5)


def random(*shape: int) -> torch.Tensor:
    """With a diagonal so large that no pivot is looked for."""
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return x + 4 * torch.eye(*shape[-2:])


def positive(size: int) -> torch.Tensor:
    x = random(size, size)
    return x @ x.mT


def eliminate(a: Matrix) -> None:
    """In place: L below the diagonal, U above."""
    for k in range(min(len(a), len(a[0]))):
        for i in range(k + 1, len(a)):
            a[i][k] = a[i][k] / a[k][k]
            for j in range(k + 1, len(a[0])):
                a[i][j] = a[i][j] - a[i][k] * a[k][j]


def solve_lower(a: Matrix, b: list[Any], *, is_unit: bool) -> list[Any]:
    x: list[Any] = []
    for i, right in enumerate(b):
        for j in range(i):
            right = right - a[i][j] * x[j]
        x.append(right if is_unit else right / a[i][i])
    return x


def solve_upper(a: Matrix, b: list[Any]) -> list[Any]:
    mirrored = [row[::-1] for row in a[::-1]]
    return solve_lower(mirrored, b[::-1], is_unit=False)[::-1]


def cholesky(a: Matrix) -> Matrix:
    low: Matrix = [[0.0] * len(a) for _ in a]
    for i in range(len(a)):
        for j in range(i + 1):
            left = a[i][j]
            for k in range(j):
                left = left - low[i][k] * low[j][k]
            low[i][j] = left.root() if i == j else left / low[j][j]
    return low


def counted(function: Callable[..., Any], *tensors: Any) -> Work:
    """Of the one operator, which is all `other`."""
    work = only(passed(function, *tensors)).work
    assert work.macs == 0
    return work


@given(rows=sizes, cols=sizes)
def test_lu(rows: int, cols: int) -> None:
    """Tall, square and wide."""
    x, tally = random(rows, cols), Tally()
    a = numbers(x, tally)
    eliminate(a)
    assert same(a, lu_of(x))
    work = counted(torch.linalg.lu_factor_ex, x)
    assert (work.flop, work.min_flop) == (tally.flop, tally.flop)


def lu_of(x: torch.Tensor) -> torch.Tensor:
    factors, pivots = torch.linalg.lu_factor(x)
    assert pivots.tolist() == list(range(1, min(x.shape) + 1))
    return factors


@given(size=sizes, sides=sizes, batch=st.integers(1, 2))
def test_solution(size: int, sides: int, batch: int) -> None:
    """The factorization, and both triangles for each column; a vector is one column."""
    x, tally = random(batch, size, size), Tally()
    right = random(size, sides).expand(batch, size, sides).clone()
    result = []
    for matrix, other in zip(x, right, strict=True):
        a = numbers(matrix, tally)
        eliminate(a)
        solved = [
            solve_upper(a, solve_lower(a, each, is_unit=True))
            for each in columns(numbers(other, tally))
        ]
        result.append(columns(solved))
    assert same(result, torch.linalg.solve(x, right), 1e-3)
    assert counted(torch.linalg.solve, x, right).flop == tally.flop
    one = counted(torch.linalg.solve, x, right[..., 0]).flop
    assert one == counted(torch.linalg.solve, x, right[..., :1]).flop
    factors, pivots = torch.linalg.lu_factor(x)
    alone = counted(lambda b: torch.linalg.lu_solve(factors, pivots, b), right).flop or 0
    factored = counted(torch.linalg.lu_factor_ex, x).flop or 0
    assert alone + factored == tally.flop


@given(size=sizes, sides=sizes, is_unit=st.booleans(), left=st.booleans())
def test_triangle(size: int, sides: int, is_unit: bool, left: bool) -> None:
    """From the left a column at a time, from the right a row at a time."""
    low, tally = random(size, size).tril(), Tally()
    if is_unit:
        low = low.tril(-1) + torch.eye(size)
    right = torch.rand(size, sides)
    a = numbers(low, tally)
    solved = [solve_lower(a, each, is_unit=is_unit) for each in columns(numbers(right, tally))]
    found = columns(solved)
    expected = torch.linalg.solve_triangular(low, right, upper=False, unitriangular=is_unit)
    assert same(found, expected, 1e-3)
    given_side = right if left else right.mT.contiguous()
    given_matrix = low if left else low.mT.contiguous()
    work = counted(
        lambda a, b: torch.linalg.solve_triangular(
            a, b, upper=not left, left=left, unitriangular=is_unit
        ),
        given_matrix,
        given_side,
    )
    assert work.flop == tally.flop


@given(size=sizes, sides=sizes)
def test_cholesky(size: int, sides: int) -> None:
    """The factor, what is solved with it, and the inverse from it."""
    x, tally = positive(size), Tally()
    low = cholesky(numbers(x, tally))
    factor = torch.linalg.cholesky(x)
    assert same([[float(e.value) if e else 0.0 for e in row] for row in low], factor, 1e-3)
    assert counted(torch.linalg.cholesky, x).flop == tally.flop
    right, tally = torch.rand(size, sides), Tally()
    a = numbers(factor, tally)
    result = columns(
        [
            solve_upper(columns(a), solve_lower(a, each, is_unit=False))
            for each in columns(numbers(right, tally))
        ]
    )
    assert same(result, torch.cholesky_solve(right, factor), 1e-3)
    assert counted(torch.cholesky_solve, right, factor).flop == tally.flop


def test_a_factorization_may_stop_at_its_first_root() -> None:
    """Of the first of its numbers; torch leaves the rest as it was, and says where it stopped."""
    x = -torch.eye(5).expand(3, 5, 5)
    _, stopped = torch.linalg.cholesky_ex(x)
    assert stopped.tolist() == [1, 1, 1]
    assert counted(torch.linalg.cholesky_ex, x).min_flop == 3
    whole = counted(lambda a: torch.linalg.cholesky_ex(a, check_errors=True), x)
    assert whole.min_flop == whole.flop == counted(torch.linalg.cholesky_ex, x).flop


def invert_upper(a: Matrix, tally: Tally) -> Matrix:
    """Column by column of the inverse, which is a triangle too."""
    size = len(a)
    inverse: Matrix = [[0.0] * size for _ in a]
    for j in range(size):
        inverse[j][j] = 1 / a[j][j]
        for i in range(j):
            inner = sum_of([inverse[i][k] * a[k][j] for k in range(i, j)])
            inverse[i][j] = Scalar(-inner.value, tally) * inverse[j][j]
    return inverse


@given(size=sizes)
def test_inverse(size: int) -> None:
    """U is inverted, then the inverse times L gives that: from the last column to the first."""
    x, tally = random(size, size), Tally()
    a = numbers(x, tally)
    eliminate(a)
    inverse = invert_upper(a, tally)
    for j in reversed(range(size)):
        for i in range(size):
            for k in range(j + 1, size):
                if not isinstance(inverse[i][j], Scalar):
                    inverse[i][j] = Scalar(0.0, tally)
                inverse[i][j] = inverse[i][j] - inverse[i][k] * a[k][j]
    assert same(inverse, torch.linalg.inv(x), 1e-3)
    assert counted(torch.linalg.inv, x).flop == tally.flop


@given(size=sizes)
def test_inverse_from_cholesky(size: int) -> None:
    """The inverse of the factor, and its transpose times it: only one half."""
    factor, tally = torch.linalg.cholesky(positive(size)), Tally()
    a = numbers(factor.mT, tally)
    upper = invert_upper(a, tally)
    result: Matrix = [[0.0] * size for _ in a]
    for i in range(size):
        for j in range(i + 1):
            result[i][j] = sum_of([upper[i][k] * upper[j][k] for k in range(i, size)])
            result[j][i] = result[i][j].value
    assert same(result, torch.cholesky_inverse(factor), 1e-3)
    assert counted(torch.cholesky_inverse, factor).flop == tally.flop


def reflect(vector: list[Any], scale: Any, column: list[Any]) -> list[Any]:
    """The column without twice its part along the vector, whose first element is 1."""
    inner = sum_of([column[0], *(v * c for v, c in zip(vector[1:], column[1:], strict=True))])
    inner = inner * scale
    rest = [c - v * inner for v, c in zip(vector[1:], column[1:], strict=True)]
    return [column[0] - inner, *rest]


def householder(a: Matrix) -> tuple[Matrix, list[tuple[list[Any], Any]]]:
    """The columns of R, and the reflectors."""
    cols, reflectors = columns(a), []
    for j in range(min(len(a) - 1, len(cols))):
        x = cols[j][j:]
        size = sum_of([each * each for each in x]).root()
        # All first elements are positive here, so that nothing cancels with this sign.
        end = Scalar(-size.value, size.tally)
        first = x[0] - end
        scale = (end - x[0]) / end
        vector = [1.0, *(each / first for each in x[1:])]
        reflectors.append((vector, scale))
        cols[j][j:] = [end, *(Scalar(0.0, size.tally) for _ in x[1:])]
        for other in cols[j + 1 :]:
            other[j:] = reflect(vector, scale, other[j:])
    return cols, reflectors


def orthogonal(reflectors: list[tuple[list[Any], Any]], rows: int, count: int, tally: Tally) -> Any:
    """The first `count` columns of Q."""
    q = [[Scalar(float(i == j), tally) for i in range(rows)] for j in range(count)]
    for j, (vector, scale) in reversed(list(enumerate(reflectors))):
        for other in q[j + 1 :]:
            other[j:] = reflect(vector, scale, other[j:])
        opposite = Scalar(-scale.value, tally)
        q[j][j:] = [1 - scale, *(each * opposite for each in vector[1:])]
    return columns(q)


@settings(max_examples=30)
@given(rows=sizes, cols=sizes, mode=st.sampled_from(["r", "reduced", "complete"]))
def test_qr(rows: int, cols: int, mode: str) -> None:
    """R column by column, then Q from the last reflector to the first."""
    x, tally = random(rows, cols), Tally()
    r, reflectors = householder(numbers(x, tally))
    expected_q, expected_r = torch.linalg.qr(x, mode)
    count = expected_r.shape[0]
    assert same(columns([column[:count] for column in r]), expected_r, 1e-3) or rows <= cols
    if mode != "r":
        q = orthogonal(reflectors, rows, count, tally)
        product = torch.tensor([each.value for each in flat(q)]).reshape(rows, count)
        assert torch.allclose(product.abs(), expected_q.abs(), atol=1e-3)
    assert counted(lambda x: torch.linalg.qr(x, mode), x).flop == tally.flop
    if mode == "r":
        assert counted(torch.geqrf, x).flop == tally.flop


def test_reflectors_applied() -> None:
    """Three of 5, 4 and 3 elements to 2 columns, each 2 n - 1 products and as many sums."""
    a, tau, other = torch.zeros(5, 3), torch.zeros(3), torch.zeros(5, 2)
    assert counted(torch.ormqr, a, tau, other).flop == 2 * 2 * (9 + 7 + 5)
    right = counted(lambda a, t, o: torch.ormqr(a, t, o, left=False), a, tau, other.mT.clone())
    assert right.flop == 2 * 2 * (9 + 7 + 5)
    made = counted(torch.linalg.householder_product, a, tau).flop
    # Of each its own column, and 2, 1 and no columns after it.
    assert made == (4 + 1 + 2 * 2 * 9) + (3 + 1 + 2 * 7) + (2 + 1)


@pytest.mark.parametrize(
    ("function", "flop"),
    [
        # LU of 3 x 3: 2 + 1 divisions, 4 + 1 multiply-adds: 13; then the diagonal.
        (torch.linalg.det, 13 + 2),
        (torch.linalg.slogdet, 13 + 2 + 2 + 3 * 8),
        # LDL: 3 divisions; triangles of 3 and 1 multiply-adds.
        (torch.linalg.ldl_factor, 3 + 2 * 4),
        (torch.linalg.eigh, 9 * 27),
        (lambda x: torch.linalg.svd(x, full_matrices=False), 21 * 27),
        (torch.linalg.eig, 79 * 9),
        (torch.linalg.matrix_exp, 10 * 27),
        (lambda x: torch.linalg.pinv(x), 21 * 27 + 2 * 27 + 3 * 4),
    ],
)
def test_counts_by_hand(function: Callable[[Any], Any], flop: int) -> None:
    """A matrix of 3 x 3; twice as much for two, none for none."""
    x = random(3, 3)
    x = x + x.mT
    records = passed(function, x).records
    assert all(each.state is not State.UNKNOWN for each in records)
    assert total(passed(function, x)).flop == flop
    assert total(passed(function, torch.stack([x, x]))).flop == 2 * flop
    assert total(passed(function, torch.zeros(0, 3, 3))).flop == 0


def test_least_squares() -> None:
    """6 x 3 and 2 sides: a QR, its reflectors applied, a triangle; the least needs no QR."""
    a, b = random(6, 3), torch.zeros(6, 2)
    factored = counted(torch.geqrf, a).flop or 0
    applied = 2 * 2 * (11 + 9 + 7)
    work = counted(lambda a, b: torch.linalg.lstsq(a, b).solution, a, b)
    assert work.flop == factored + applied + 2 * 9
    # 3 x 4 / 2 inner products of 6, and 6 more for the sides; Cholesky of 3 and four triangles.
    assert work.min_flop == 2 * (36 + 36) + 14 + 4 * 9


def test_singular_values_of_long_matrices() -> None:
    """100 x 2: values alone, or with vectors, after a QR or not; the same of the transpose."""
    x = torch.zeros(100, 2)
    thin = counted(lambda x: torch.linalg.svd(x, full_matrices=False), x)
    assert thin.flop == 6 * 100 * 4 + 20 * 8
    assert thin.min_flop == 200
    full = counted(torch.linalg.svd, x)
    assert full.flop == 4 * 10_000 * 2 + 22 * 8
    assert counted(torch.linalg.svd, x.mT.clone()).flop == full.flop


def test_complex_matrices() -> None:
    """LU of 2 x 2: a division and a product of 6 each, a sum of 2; eigenvectors 4 times."""
    x = torch.eye(2, dtype=torch.complex64)
    assert counted(torch.linalg.lu_factor_ex, x).flop == 6 + 6 + 2
    assert counted(torch.linalg.eigh, x).flop == 4 * 9 * 8


@pytest.mark.parametrize(
    "function",
    [
        *(torch.linalg.inv, torch.linalg.det, torch.linalg.slogdet, torch.linalg.qr),
        *(torch.linalg.eigh, torch.linalg.svd, torch.linalg.matrix_exp, torch.linalg.cholesky),
        *(torch.linalg.lu, torch.linalg.eigvalsh, torch.linalg.eig, torch.linalg.svdvals),
        lambda x: torch.linalg.solve(x, x),
    ],
)
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (2, 0, 0), (0, 2, 2), (3, 1, 1)])
def test_legal_calls(function: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    """Nothing, and matrices of one number."""
    captured = passed(function, torch.ones(shape))
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    work = total(captured)
    assert 0 <= (work.min_flop or 0) <= (work.flop or 0)
    assert math.prod(shape) or not work.flop
