"""Factorizations and solvers, for each matrix of a batch.

Direct methods are counted loop by loop, as in LAPACK's unblocked routines: multiplications (with
divisions and roots) separate from additions, as complex ones take 6 operations and 2. Comparisons
for pivots are not counted. Sources of that convention: S. Blackford and J. Dongarra, "Installation
Guide for LAPACK", LAPACK Working Note 41, 1999, appendix C; G. H. Golub and C. F. Van Loan, "Matrix
Computations".

None of this counts as `macs`: those are of matrix products, and their share of a factorization
depends on its block size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from roofline.workload.formulas.costs import REAL_MACS, F, is_complex
from roofline.workload.formulas.registry import Flop, Sizes, formula, table
from roofline.workload.tensors import TensorSpec as Tensor


@dataclass(frozen=True, slots=True)
class Loops:
    """Multiplications, divisions and roots; additions and subtractions."""

    multiplications: int = 0
    additions: int = 0

    def __rmul__(self, count: int) -> Loops:
        return Loops(self.multiplications * count, self.additions * count)

    def __add__(self, other: Loops) -> Loops:
        return Loops(self.multiplications + other.multiplications, self.additions + other.additions)


def flop_of(spec: Tensor, loops: Loops) -> int:
    multiplication, addition = (6, 2) if is_complex(spec) else (1, 1)
    each = multiplication * loops.multiplications + addition * loops.additions
    return matrices(spec) * each


def matrices(spec: Tensor) -> int:
    return math.prod(spec.shape[:-2])


def order(spec: Tensor) -> int:
    return spec.shape[-1]


def _triangle(size: int) -> int:
    """0 + 1 + … + (size - 1)."""
    return size * (size - 1) // 2


def _pyramid(size: int) -> int:
    """Sum of the squares of 0, 1, … size - 1."""
    return (size - 1) * size * (2 * size - 1) // 6


# -- elimination -----------------------------------------------------------------------------------


def lu(rows: int, columns: int) -> Loops:
    """Column by column: a division per row below, and a MAC per element to the right of it."""
    count = min(rows, columns)
    # Of column j, rows - 1 - j are below and columns - 1 - j to the right.
    below = count * (rows - 1) - _triangle(count)
    inner = (
        count * (rows - 1) * (columns - 1)
        - (rows + columns - 2) * _triangle(count)
        + _pyramid(count)
    )
    return Loops(inner + below, inner)


def cholesky(size: int) -> Loops:
    """Element (i, j): j products subtracted, then a division, or a root on the diagonal."""
    inner = sum(j * (size - j) for j in range(size))
    return Loops(inner + _triangle(size + 1), inner)


def triangular(size: int, is_unit: bool = False) -> Loops:
    """One right-hand side: a MAC per element off the diagonal, a division per element on it."""
    return Loops(_triangle(size) + (0 if is_unit else size), _triangle(size))


def ldl(size: int) -> Loops:
    """Elimination of one half, by columns; blocks of 2 x 2 count as two of 1 x 1."""
    inner = sum(_triangle(size - j) for j in range(size))
    return Loops(inner + _triangle(size), inner)


def right_sides(matrix: Tensor, right: Tensor) -> int:
    """Right-hand sides: the columns of a matrix, or one vector per matrix of a batch."""
    size = matrices(matrix) * order(matrix)
    return right.elements // size if size else 0


def two_triangles(size: int) -> Loops:
    return triangular(size) + triangular(size, True)


def inverse_of_triangle(size: int) -> Loops:
    """Column by column: a reciprocal, then inner products that grow with the distance from it."""
    return Loops(size * (size + 1) * (size + 2) // 6, size * (size - 1) * (size - 2) // 6)


def inverse(size: int) -> Loops:
    """The factorization, the inverse of U, and from it, column by column, the whole inverse."""
    columns = Loops(size * _triangle(size), size * _triangle(size))
    return lu(size, size) + inverse_of_triangle(size) + columns


def determinant(size: int) -> Loops:
    return lu(size, size) + Loops(max(0, size - 1))


def cholesky_inverse(size: int) -> Loops:
    """The inverse of L, and half of the product of its transpose with it."""
    square = Loops(size * (size + 1) * (size + 2) // 6, (size - 1) * size * (size + 1) // 6)
    return inverse_of_triangle(size) + square


# -- orthogonalization -----------------------------------------------------------------------------


def _apply_reflector(length: int) -> Loops:
    """A reflector (first element 1) on a column: an inner product, a scale, a difference."""
    return Loops(max(0, 2 * length - 1), max(0, 2 * length - 1))


def reflectors(rows: int, columns: int) -> Loops:
    """Householder's QR, column by column: a reflector, applied to the columns to the right.

    A reflector of n elements takes their norm (n products, n - 1 sums, a root), a sum for its first
    element, a sum and a division for its scale, and n - 1 divisions; one of 1 element nothing.
    """
    loops = Loops()
    for j in range(min(rows - 1, columns)):
        length = rows - j
        made = Loops(length + 1 + 1 + length - 1, length - 1 + 1 + 1)
        loops += made + (columns - 1 - j) * _apply_reflector(length)
    return loops


def orthogonal(rows: int, columns: int, count: int) -> Loops:
    """First columns of the product of `count` reflectors, from the last reflector to the first.

    A reflector multiplies later columns; its own takes a scale per element, and a difference from
    1.
    """
    loops = Loops()
    for j in range(min(count, rows - 1)):
        length = rows - j
        own = Loops(length - 1, 1)
        loops += own + (columns - 1 - j) * _apply_reflector(length)
    return loops


def apply_reflectors(rows: int, count: int, columns: int) -> Loops:
    """`count` reflectors of up to `rows` elements, applied to `columns` columns."""
    loops = Loops()
    for j in range(min(count, rows - 1)):
        loops += columns * _apply_reflector(rows - j)
    return loops


def qr(rows: int, columns: int, mode: str) -> Loops:
    """R, and Q unless the mode omits it."""
    loops, count = reflectors(rows, columns), min(rows, columns)
    if mode == "r":
        return loops
    return loops + orthogonal(rows, rows if mode == "complete" else count, count)


def multiply_by_q(reflectors: int, shape: Sizes, left: bool) -> Loops:
    rows, columns = shape if left else shape[::-1]
    return apply_reflectors(rows, reflectors, columns)


def _count_direct(of: tuple[Tensor, Loops], **_: Any) -> Flop:
    return Flop(other=flop_of(*of))


table(
    """
aten.linalg_lu_factor_ex aten.linalg_lu = A, lu(*A.shape[-2:]); complex
    About 2 n^3 / 3: a division per row, a MAC per element to the right of it, column by column.
aten.linalg_lu_solve = LU, right_sides(LU, B) * two_triangles(order(LU)); complex
    Two triangles, one with a unit diagonal: n^2 products, n^2 - n sums per right-hand side.
aten._linalg_solve_ex = A, (
    lu(order(A), order(A)) + right_sides(A, B) * two_triangles(order(A))); complex
    The factorization, then both triangles per right-hand side.
aten.linalg_inv_ex = A, inverse(order(A)); complex
    About 2 n^3: the factorization, the inverse of U, and from it, column by column, the whole.

    torch solves for the identity, which takes a third more; its zeros can be skipped.
aten._linalg_det = A, determinant(order(A)); complex
    The factorization, and the product of the diagonal.
aten.cholesky = self, cholesky(order(self)); complex
    About n^3 / 3: j products subtracted per element (i, j) of L, then a division, or a root.
aten.cholesky_solve
aten._cholesky_solve_helper = output, 2 * order(self) * triangular(self.shape[-2]); complex
    Two triangles per right-hand side: 2 n^2.
aten.cholesky_inverse = self, cholesky_inverse(order(self)); complex
    About 2 n^3 / 3: the inverse of L, and half of the product of its transpose with it.
aten.linalg_solve_triangular = output, output.shape[-1 if left else -2] * (
    triangular(order(self), unitriangular)); complex
    n^2 per right-hand side: a MAC per element off the diagonal, a division per element on it.
aten.triangular_solve = output[0], order(output[0]) * triangular(order(A), unitriangular); complex
    As aten.linalg_solve_triangular.
aten.linalg_ldl_factor_ex = self, ldl(order(self)); complex
    About n^3 / 3: elimination of one half.
aten.linalg_ldl_solve = B, order(B) * (
    2 * triangular(order(LD), True) + Loops(order(LD))); complex
    Two triangles with unit diagonals, and a division by the diagonal, per right-hand side.
aten.linalg_qr = A, qr(*A.shape[-2:], mode); complex
    About 2 m n^2 - 2 n^3 / 3, and as much for Q; a complete Q has m columns.
aten.geqrf = self, reflectors(*self.shape[-2:]); complex
    About 2 m n^2 - 2 n^3 / 3: R and the reflectors, without Q.
aten.linalg_householder_product = input, orthogonal(*input.shape[-2:], order(tau)); complex
    First columns of Q, from the last reflector to the first.
aten.ormqr = output, multiply_by_q(order(input2), output.shape[-2:], left); complex
    Q times a matrix, without forming Q: each reflector applied to each of its columns, or rows.
""",
    _count_direct,
)
table(
    """
aten.lu_unpack = 0
    Triangles are copied, and a permutation is written.
""",
    type="data movement",
)


@formula("aten._linalg_slogdet", is_for_complex=True)
def sign_and_logarithm_of_determinant(A: Tensor, **_: Any) -> Flop:
    """The factorization, the product of the diagonal's signs, the sum of its logarithms.

    Complex: a magnitude and two divisions per diagonal element, 6 more.
    """
    diagonal = matrices(A) * order(A)
    simple = flop_of(A, determinant(order(A))) + max(0, diagonal - matrices(A))
    return (simple + (6 * diagonal if is_complex(A) else 0) + diagonal * F).flop()


@formula("aten.linalg_cholesky_ex", is_for_complex=True)
def cholesky_factorization_if_any(self: Tensor, check_errors: bool = False, **_: Any) -> Flop:
    """As aten.cholesky; without an error, it stops at the first root that is not positive."""
    whole = Flop(other=flop_of(self, cholesky(order(self))))
    roots = matrices(self) * min(order(self), 1)
    return whole if check_errors else replace(whole, least=min(roots, whole.flop))


# Eigenvalues, singular values, least squares and matrix exponentials.
#
# They iterate, or choose a method by the values. Counted is a convention: leading order of the
# usual method on a typical matrix. A complex operation counts as four real ones. The minimum of an
# iteration: each element of the matrix enters it.


def _count_iterative(of: tuple[Tensor, float], **_: Any) -> Flop:
    matrix, operations = of
    each = math.ceil(operations) * (REAL_MACS if is_complex(matrix) else 1)
    other = matrices(matrix) * each
    return Flop(other=other, least=min(other, matrix.elements))


def symmetric(size: int, with_vectors: bool) -> float:
    """Eigenvalues of a symmetric matrix."""
    return 9 * size**3 if with_vectors else 4 * size**3 / 3


def singular(rows: int, columns: int, with_vectors: bool, is_full: bool) -> float:
    """Minimum of Golub and Reinsch's method, and the same after a QR."""
    m, n = max(rows, columns), min(rows, columns)
    if not with_vectors:
        return min(4 * m * n**2 - 4 * n**3 / 3, 2 * m * n**2 + 2 * n**3)
    full = min(4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3)
    return full if is_full else min(14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3, full)


def pseudo_inverse(rows: int, columns: int, hermitian: bool) -> float:
    """Singular values or eigenvalues, a scale, and a product."""
    count = min(rows, columns)
    product = 2 * rows * columns * count + count * (columns + 1)
    values = symmetric(count, True) if hermitian else singular(rows, columns, True, False)
    return values + product


table(
    """
aten._linalg_eigh = A, symmetric(order(A), compute_v); complex
    9 n^3 with eigenvectors; 4 n^3 / 3 without (tridiagonal form).

    Source: G. H. Golub and C. F. Van Loan, "Matrix Computations", section 8.3.
aten.linalg_eigvals aten._linalg_eigvals = self, 10 * order(self) ** 3; complex
    10 n^3: Hessenberg form, and about two iterations per eigenvalue.

    Source: G. H. Golub and C. F. Van Loan, "Matrix Computations", section 7.5.
aten.linalg_eig = self, 79 * order(self) ** 3 / 3; complex
    79 n^3 / 3: the Schur form with its vectors, 25 n^3, then a triangular solve and a product.

    Source: the count of xGEEV in E. Anderson et al., "LAPACK Users' Guide", section 3.
aten._linalg_svd = A, singular(A.shape[-2], A.shape[-1], compute_uv, full_matrices); complex
    Minimum of two methods, for m rows and n columns (or vice versa).

    Values only: 4 m n^2 - 4 n^3 / 3, or 2 m n^2 + 2 n^3. With vectors: 14 m n^2 + 8 n^3, or 6 m n^2
    + 20 n^3; with all of U: 4 m^2 n + 8 m n^2 + 9 n^3, or 4 m^2 n + 22 n^3. Source: G. H. Golub and
    C. F. Van Loan, "Matrix Computations", 3rd edition, section 5.4.5.
aten.linalg_pinv = self, pseudo_inverse(*self.shape[-2:], hermitian); complex
    Singular values and vectors (eigenvalues if symmetric), a scale, and a product: 2 m n k.
aten.linalg_matrix_exp = self, 10 * order(self) ** 3; complex
    Five products of a Taylor polynomial of degree 18: 10 n^3.

    Matrices of a large norm take more squarings, those of a small norm fewer products: that depends
    on the values. Source: P. Bader, S. Blanes and F. Casas, "Computing the matrix exponential with
    an optimized Taylor polynomial approximation", Mathematics 7 (12), 2019, torch's method.
""",
    _count_iterative,
)


@formula("aten.linalg_lstsq", is_for_complex=True)
def least_squares(self: Tensor, b: Tensor, driver: str | None = None, **_: Any) -> Flop:
    """A QR of the longer side, its reflectors applied to each right-hand side, a triangular solve.

    Drivers by singular values ("gelss", "gelsd") take these, and two products per right-hand side.
    The minimum: a Cholesky factorization of the smaller Gram matrix.
    """
    rows, columns = self.shape[-2:]
    m, n = max(rows, columns), min(rows, columns)
    many = b.elements // (rows * max(1, matrices(self))) if rows else 0
    if driver in ("gelss", "gelsd"):
        return _count_iterative((self, singular(m, n, True, False) + 2 * (m + n) * n * many))
    whole = flop_of(self, reflectors(m, n) + apply_reflectors(m, n, many) + many * triangular(n))
    products = m * n * (n + 1) // 2 + m * n * many
    normal = Loops(products, products) + cholesky(n) + 2 * many * triangular(n)
    return Flop(other=whole, least=min(whole, flop_of(self, normal)))


@formula("aten._compute_linear_combination", is_for_complex=True)
def linear_combinations(input: Tensor, coefficients: Tensor, **_: Any) -> Flop:
    """A sum of tensors, each times a coefficient, per row of coefficients."""
    rows, terms = coefficients.shape
    each = input.elements // input.shape[0] if input.shape[0] else 0
    operations = rows * each * (2 * terms - 1) if terms else 0
    return Flop(other=operations * (REAL_MACS if is_complex(input) else 1))


# Fourier transforms, by the convention of FFT benchmarks: 5 N log2 N for a complex transform.
#
# N is the product of the transformed sizes; half as much if one side is real. That is the cost of a
# radix-2 transform; other sizes and kernels count the same. Source: M. Frigo and S. G. Johnson,
# "benchFFT", https://www.fftw.org/speed/method.html.
#
# No lower bound is known for all algorithms. If no coefficient exceeds 1 in magnitude, as in those
# in use, the determinant of the matrix gives one: (N / 2) log2 N complex additions. Source: J.
# Morgenstern, "Note on a lower bound of the linear complexity of the fast Fourier transform", JACM
# 20 (2), 1973. The determinant of a real transform's matrix is at least (N / 2)^(N / 2): it takes
# at least (N / 2) log2 (N / 2) real additions.


def _size(spec: Tensor, dim: Sizes) -> int:
    return math.prod(spec.shape[each] for each in dim) if spec.shape else 1


def _between_reals(normalization: int, transforms: int, size: int, numbers: int) -> Flop:
    """`transforms` between `size` real numbers and half as many complex ones."""
    rounds = transforms * size / 2
    return Flop(
        other=round(5 * rounds * math.log2(size)) + (numbers if normalization else 0),
        least=math.floor(rounds * max(0.0, math.log2(size) - 1)),
    )


@formula("aten._fft_c2c", type="FFT", is_for_complex=True)
def complex_transform(
    self: Tensor, dim: Sizes, normalization: int, output: Tensor, **_: Any
) -> Flop:
    """5 N log2 N per transform of N complex numbers; 2 per number if normalized."""
    if not self.elements:
        return Flop()
    rounds = self.elements * math.log2(_size(self, dim))
    scales = 2 * output.elements if normalization else 0
    return Flop(other=round(5 * rounds) + scales, least=math.floor(rounds))


@formula("aten._fft_r2c", type="FFT", is_for_complex=True)
def transform_of_reals(
    self: Tensor, dim: Sizes, normalization: int, output: Tensor, **_: Any
) -> Flop:
    """2.5 N log2 N per transform of N real numbers; half of the result is mirrored.

    If normalized, 2 per computed complex number.
    """
    if not self.elements:
        return Flop()
    size = _size(self, dim)
    half = output.elements // output.shape[dim[-1]] * (self.shape[dim[-1]] // 2 + 1) if dim else 0
    made = 2 * min(half, output.elements)
    return _between_reals(normalization, self.elements // size, size, made)


@formula("aten._fft_c2r", type="FFT", is_for_complex=True)
def transform_to_reals(dim: Sizes, normalization: int, output: Tensor, **_: Any) -> Flop:
    """2.5 N log2 N per transform to N real numbers, and 1 per number if normalized."""
    if not output.elements:
        return Flop()
    size = _size(output, dim)
    return _between_reals(normalization, output.elements // size, size, output.elements)
