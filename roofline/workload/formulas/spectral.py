"""Eigenvalues, singular values, least squares and matrix exponentials.

They iterate, or choose a method by the values, so that a convention is counted: what the usual
method takes to leading order on a typical matrix. A complex operation is taken as four real ones.
All that is sure of an iteration is that each element of the matrix enters it: the least.
"""

from __future__ import annotations

import math
from typing import Any

from roofline.workload.formulas.complex_numbers import REAL_FMA, is_complex
from roofline.workload.formulas.linear_algebra import (
    Loops,
    applied,
    cholesky,
    flop_of,
    reflectors,
    triangular,
)
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _iterated(matrix: TensorSpec, operations: float) -> Flop:
    """So many for each matrix of a batch."""
    each = math.ceil(operations) * (REAL_FMA if is_complex(matrix) else 1)
    other = math.prod(matrix.shape[:-2]) * each
    return Flop(other=other, least=min(other, matrix.elements))


def _symmetric(size: int, with_vectors: bool) -> float:
    return 9 * size**3 if with_vectors else 4 * size**3 / 3


@formula("aten._linalg_eigh", type="linear algebra", is_for_complex=True)
def symmetric_eigenvalues(A: TensorSpec, compute_v: bool = True, **_: Any) -> Flop:
    """9 n^3 with eigenvectors; 4 n^3 / 3 without, which is the way to three diagonals.

    Source: G. H. Golub and C. F. Van Loan, "Matrix Computations", section 8.3.
    """
    return _iterated(A, _symmetric(A.shape[-1], compute_v))


@formula("aten.linalg_eigvals", "aten._linalg_eigvals", type="linear algebra", is_for_complex=True)
def eigenvalues(self: TensorSpec, **_: Any) -> Flop:
    """10 n^3: Hessenberg form, and some two iterations an eigenvalue.

    Source: G. H. Golub and C. F. Van Loan, "Matrix Computations", section 7.5.
    """
    return _iterated(self, 10 * self.shape[-1] ** 3)


@formula("aten.linalg_eig", type="linear algebra", is_for_complex=True)
def eigenvectors(self: TensorSpec, **_: Any) -> Flop:
    """79 n^3 / 3: the Schur form with its vectors, 25 n^3, then a triangle solved and a product.

    Source: the count of xGEEV in E. Anderson et al., "LAPACK Users' Guide", section 3.
    """
    return _iterated(self, 79 * self.shape[-1] ** 3 / 3)


def _singular(rows: int, columns: int, with_vectors: bool, is_full: bool) -> float:
    """The lesser of Golub and Reinsch's method, and of that after a QR."""
    m, n = max(rows, columns), min(rows, columns)
    if not with_vectors:
        return min(4 * m * n**2 - 4 * n**3 / 3, 2 * m * n**2 + 2 * n**3)
    full = min(4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3)
    return full if is_full else min(14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3, full)


@formula("aten._linalg_svd", type="linear algebra", is_for_complex=True)
def singular_values(
    A: TensorSpec, full_matrices: bool = False, compute_uv: bool = True, **_: Any
) -> Flop:
    """The lesser of two methods, for m rows and n columns (or the other way round).

    Values only: 4 m n^2 - 4 n^3 / 3, or 2 m n^2 + 2 n^3. With vectors: 14 m n^2 + 8 n^3, or
    6 m n^2 + 20 n^3; with all of U: 4 m^2 n + 8 m n^2 + 9 n^3, or 4 m^2 n + 22 n^3.
    Source: G. H. Golub and C. F. Van Loan, "Matrix Computations", 3rd edition, section 5.4.5.
    """
    return _iterated(A, _singular(A.shape[-2], A.shape[-1], compute_uv, full_matrices))


@formula("aten.linalg_pinv", type="linear algebra", is_for_complex=True)
def pseudo_inverse(self: TensorSpec, hermitian: bool = False, **_: Any) -> Flop:
    """Singular values and vectors (eigenvalues, if symmetric), a scale, and a product: 2 m n k."""
    rows, columns = self.shape[-2:]
    count = min(rows, columns)
    product = 2 * rows * columns * count + count * (columns + 1)
    if hermitian:
        return _iterated(self, _symmetric(count, True) + product)
    return _iterated(self, _singular(rows, columns, True, False) + product)


@formula("aten.linalg_lstsq", type="linear algebra", is_for_complex=True)
def least_squares(self: TensorSpec, b: TensorSpec, driver: str | None = None, **_: Any) -> Flop:
    """A QR of the longer side, its reflectors applied to each right side, and a triangle solved.

    A driver by singular values ("gelss", "gelsd") takes these, and two products a right side. The
    least is a Cholesky factorization of the smaller product of the matrix with its transpose.
    """
    rows, columns = self.shape[-2:]
    m, n = max(rows, columns), min(rows, columns)
    batch = max(1, math.prod(self.shape[:-2]))
    sides = b.elements // (rows * batch) if rows else 0
    if driver in ("gelss", "gelsd"):
        return _iterated(self, _singular(m, n, True, False) + 2 * (m + n) * n * sides)
    solved = triangular(n).times(sides)
    whole = flop_of(self, reflectors(m, n).then(applied(m, n, sides), solved))
    products = m * n * (n + 1) // 2 + m * n * sides
    normal = Loops(products, products).then(cholesky(n), triangular(n).times(2 * sides))
    return Flop(other=whole, least=min(whole, flop_of(self, normal)))


@formula("aten.linalg_matrix_exp", type="linear algebra", is_for_complex=True)
def matrix_exponential(self: TensorSpec, **_: Any) -> Flop:
    """Five products of a Taylor polynomial of degree 18: 10 n^3.

    Matrices of a large norm are squared as often again, those of a small one take fewer products:
    that depends on the values. Source: P. Bader, S. Blanes and F. Casas, "Computing the matrix
    exponential with an optimized Taylor polynomial approximation", Mathematics 7 (12), 2019, as
    torch does it.
    """
    return _iterated(self, 10 * self.shape[-1] ** 3)


@formula("aten._compute_linear_combination", type="linear algebra", is_for_complex=True)
def linear_combinations(input: TensorSpec, coefficients: TensorSpec, **_: Any) -> Flop:
    """A sum of tensors, each times a coefficient, for each row of these."""
    rows, terms = coefficients.shape
    each = input.elements // input.shape[0] if input.shape[0] else 0
    operations = rows * each * (2 * terms - 1) if terms else 0
    return Flop(other=operations * (REAL_FMA if is_complex(input) else 1))
