"""Factorizations, and what is solved with them, for each matrix of a batch.

Direct methods are counted loop by loop, as LAPACK's unblocked routines run: multiplications (with
divisions and roots) and additions apart, since of complex numbers they are 6 operations and 2.
Comparisons that look for a pivot are left out. Sources of that convention: S. Blackford and J.
Dongarra, "Installation Guide for LAPACK", LAPACK Working Note 41, 1999, appendix C; G. H. Golub and
C. F. Van Loan, "Matrix Computations".

Nothing of this is a `macs`: those are of matrix products, and how much of a factorization
is one depends on its block size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roofline.workload.formulas.complex_numbers import REAL_FMA, is_complex
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


class Loops(NamedTuple):
    """Multiplications, divisions and roots; additions and subtractions."""

    multiplications: int = 0
    additions: int = 0

    def times(self, count: int) -> Loops:
        """As many times."""
        return Loops(self.multiplications * count, self.additions * count)

    def then(self, *others: Loops) -> Loops:
        """And the others after it."""
        return Loops(*(sum(each) for each in zip(self, *others, strict=True)))


def flop_of(spec: TensorSpec, loops: Loops) -> int:
    """Operations on every matrix of `spec`."""
    batch = math.prod(spec.shape[:-2])
    multiplication, addition = (6, 2) if is_complex(spec) else (1, 1)
    return batch * (multiplication * loops.multiplications + addition * loops.additions)


def _triangle(size: int) -> int:
    """0 + 1 + … + (size - 1)."""
    return size * (size - 1) // 2


def _pyramid(size: int) -> int:
    """The squares of 0, 1, … size - 1."""
    return (size - 1) * size * (2 * size - 1) // 6


# -- elimination -----------------------------------------------------------------------------------


def lu(rows: int, columns: int) -> Loops:
    """Column by column: a division a row below, and an FMA for each element to the right of it."""
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
    """Element (i, j): j products taken off, then a division, or a root on the diagonal."""
    inner = sum(j * (size - j) for j in range(size))
    return Loops(inner + _triangle(size + 1), inner)


def triangular(size: int, *, is_unit: bool = False) -> Loops:
    """One right side: an FMA for each element off the diagonal, a division for each on it."""
    return Loops(_triangle(size) + (0 if is_unit else size), _triangle(size))


def ldl(size: int) -> Loops:
    """As an elimination that computes one half: column by column, a division a row, and a triangle.

    Blocks of 2 x 2 on the diagonal are counted as two of 1 x 1.
    """
    inner = sum(_triangle(size - j) for j in range(size))
    return Loops(inner + _triangle(size), inner)


def _columns(matrix: TensorSpec, right: TensorSpec) -> int:
    """Right sides: the columns of a matrix, or one vector for each matrix of a batch."""
    size = math.prod(matrix.shape[:-2]) * matrix.shape[-1]
    return right.elements // size if size else 0


@formula("aten.linalg_lu_factor_ex", "aten.linalg_lu", type="linear algebra", is_for_complex=True)
def lu_factorization(A: TensorSpec, **_: Any) -> Flop:
    """About 2 n^3 / 3: a division a row, an FMA for each element right of it, column by column."""
    return Flop(other=flop_of(A, lu(*A.shape[-2:])))


@formula("aten.lu_unpack", type="data movement")
def lu_parts(**_: Any) -> Flop:
    """Triangles are copied, and a permutation written out."""
    return Flop()


@formula("aten.linalg_lu_solve", type="linear algebra", is_for_complex=True)
def lu_solution(LU: TensorSpec, B: TensorSpec, **_: Any) -> Flop:
    """Two triangles, one with ones on its diagonal: n^2 products, n^2 - n sums a right side."""
    return Flop(other=flop_of(LU, _lu_solve(LU.shape[-1]).times(_columns(LU, B))))


def _lu_solve(size: int) -> Loops:
    return triangular(size).then(triangular(size, is_unit=True))


@formula("aten._linalg_solve_ex", type="linear algebra", is_for_complex=True)
def solution(A: TensorSpec, B: TensorSpec, **_: Any) -> Flop:
    """The factorization, then both triangles for each right side."""
    size = A.shape[-1]
    return Flop(other=flop_of(A, lu(size, size).then(_lu_solve(size).times(_columns(A, B)))))


def _inverse_of_triangle(size: int) -> Loops:
    """Column by column: a reciprocal, then inner products that grow with the distance from it."""
    return Loops(size * (size + 1) * (size + 2) // 6, size * (size - 1) * (size - 2) // 6)


@formula("aten.linalg_inv_ex", type="linear algebra", is_for_complex=True)
def inverse(A: TensorSpec, **_: Any) -> Flop:
    """About 2 n^3: the factorization, the inverse of U, and from that, column by column, the whole.

    Solving for the identity, as torch does, takes a third more; its zeros can be left out.
    """
    size = A.shape[-1]
    columns = Loops(size * _triangle(size), size * _triangle(size))
    return Flop(other=flop_of(A, lu(size, size).then(_inverse_of_triangle(size), columns)))


@formula("aten._linalg_det", type="linear algebra", is_for_complex=True)
def determinant(A: TensorSpec, **_: Any) -> Flop:
    """The factorization, and the product of the diagonal."""
    size = A.shape[-1]
    return Flop(other=flop_of(A, lu(size, size).then(Loops(max(0, size - 1)))))


@formula("aten._linalg_slogdet", type="linear algebra", is_for_complex=True)
def sign_and_logarithm_of_determinant(A: TensorSpec, **_: Any) -> Flop:
    """The factorization, the product of the diagonal's signs, the sum of their logarithms.

    Complex: of each a magnitude and two divisions, 6 more.
    """
    size = A.shape[-1]
    loops = lu(size, size).then(Loops(max(0, size - 1)))
    diagonal = math.prod(A.shape[:-2]) * size
    simple = flop_of(A, loops) + max(0, diagonal - math.prod(A.shape[:-2]))
    simple += 6 * diagonal if is_complex(A) else 0
    return Flop(other=simple + TRANSCENDENTAL_FLOP * diagonal, least=simple + diagonal)


@formula("aten.cholesky", type="linear algebra", is_for_complex=True)
def cholesky_factorization(self: TensorSpec, **_: Any) -> Flop:
    """About n^3 / 3: element (i, j) of L takes j products off; a division, or a root."""
    return Flop(other=flop_of(self, cholesky(self.shape[-1])))


@formula("aten.linalg_cholesky_ex", type="linear algebra", is_for_complex=True)
def cholesky_factorization_if_any(self: TensorSpec, check_errors: bool = False, **_: Any) -> Flop:
    """As `aten.cholesky`; it stops, without an error, at the first root of what is not positive."""
    whole = cholesky_factorization(self)
    roots = math.prod(self.shape[:-2]) * min(self.shape[-1], 1)
    return whole if check_errors else replace(whole, least=min(roots, whole.flop))


@formula(
    *("aten.cholesky_solve", "aten._cholesky_solve_helper"),
    type="linear algebra",
    is_for_complex=True,
)
def cholesky_solution(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Two triangles a right side: 2 n^2."""
    size, columns = self.shape[-2:]
    return Flop(other=flop_of(output, triangular(size).times(2 * columns)))


@formula("aten.cholesky_inverse", type="linear algebra", is_for_complex=True)
def cholesky_inverse(self: TensorSpec, **_: Any) -> Flop:
    """About 2 n^3 / 3: the inverse of L, and half of the product of its transpose with it."""
    size = self.shape[-1]
    square = Loops(size * (size + 1) * (size + 2) // 6, (size - 1) * size * (size + 1) // 6)
    return Flop(other=flop_of(self, _inverse_of_triangle(size).then(square)))


@formula("aten.linalg_solve_triangular", type="linear algebra", is_for_complex=True)
def triangular_solution(
    self: TensorSpec,
    output: TensorSpec,
    left: bool = True,
    unitriangular: bool = False,
    **_: Any,
) -> Flop:
    """A right side takes n^2: an FMA an element off the diagonal, a division an element on it."""
    columns = output.shape[-1] if left else output.shape[-2]
    loops = triangular(self.shape[-1], is_unit=unitriangular)
    return Flop(other=flop_of(output, loops.times(columns)))


@formula("aten.triangular_solve", type="linear algebra", is_for_complex=True)
def older_triangular_solution(
    A: TensorSpec, output: Sequence[TensorSpec], unitriangular: bool = False, **_: Any
) -> Flop:
    """As `triangular_solution`."""
    return triangular_solution(A, output[0], unitriangular=unitriangular)


@formula("aten.linalg_ldl_factor_ex", type="linear algebra", is_for_complex=True)
def ldl_factorization(self: TensorSpec, **_: Any) -> Flop:
    """About n^3 / 3: an elimination of one half."""
    return Flop(other=flop_of(self, ldl(self.shape[-1])))


@formula("aten.linalg_ldl_solve", type="linear algebra", is_for_complex=True)
def ldl_solution(LD: TensorSpec, B: TensorSpec, **_: Any) -> Flop:
    """Two triangles with ones on their diagonals, and a division by the diagonal, a right side."""
    size = LD.shape[-1]
    loops = triangular(size, is_unit=True).times(2).then(Loops(size))
    return Flop(other=flop_of(B, loops.times(B.shape[-1])))


# -- orthogonalization -----------------------------------------------------------------------------


def _reflected(length: int) -> Loops:
    """A reflector applied to one column: an inner product, a scale, and what is taken off.

    The reflector's first element is 1.
    """
    return Loops(max(0, 2 * length - 1), max(0, 2 * length - 1))


def reflectors(rows: int, columns: int) -> Loops:
    """Householder's QR, column by column: a reflector, applied to the columns to the right.

    A reflector of n elements takes their norm (n products, n - 1 sums, a root), a sum for its first
    element, a sum and a division for its scale, and n - 1 divisions. One of 1 element does nothing.
    """
    loops = Loops()
    for j in range(min(rows - 1, columns)):
        length = rows - j
        made = Loops(length + 1 + 1 + length - 1, length - 1 + 1 + 1)
        loops = loops.then(made, _reflected(length).times(columns - 1 - j))
    return loops


def orthogonal(rows: int, columns: int, count: int) -> Loops:
    """The first columns of the product of `count` reflectors, from the last reflector to the first.

    A reflector meets the columns after its own; its own takes its scale times what it holds, and a
    difference from 1.
    """
    loops = Loops()
    for j in range(min(count, rows - 1)):
        length = rows - j
        own = Loops(length - 1, 1)
        loops = loops.then(own, _reflected(length).times(columns - 1 - j))
    return loops


def applied(rows: int, count: int, columns: int) -> Loops:
    """`count` reflectors of up to `rows` elements, applied to so many columns."""
    loops = Loops()
    for j in range(min(count, rows - 1)):
        loops = loops.then(_reflected(rows - j).times(columns))
    return loops


@formula("aten.linalg_qr", type="linear algebra", is_for_complex=True)
def qr(A: TensorSpec, mode: str = "reduced", **_: Any) -> Flop:
    """About 2 m n^2 - 2 n^3 / 3, and as much again for Q, which a complete one has m columns of."""
    rows, columns = A.shape[-2:]
    count = min(rows, columns)
    loops = reflectors(rows, columns)
    if mode != "r":
        loops = loops.then(orthogonal(rows, rows if mode == "complete" else count, count))
    return Flop(other=flop_of(A, loops))


@formula("aten.geqrf", type="linear algebra", is_for_complex=True)
def packed_qr(self: TensorSpec, **_: Any) -> Flop:
    """About 2 m n^2 - 2 n^3 / 3: R and the reflectors, without Q."""
    return Flop(other=flop_of(self, reflectors(*self.shape[-2:])))


@formula("aten.linalg_householder_product", type="linear algebra", is_for_complex=True)
def product_of_reflectors(input: TensorSpec, tau: TensorSpec, **_: Any) -> Flop:
    """The first columns of Q, from the last reflector to the first."""
    rows, columns = input.shape[-2:]
    return Flop(other=flop_of(input, orthogonal(rows, columns, tau.shape[-1])))


@formula("aten.ormqr", type="linear algebra", is_for_complex=True)
def reflected(input2: TensorSpec, output: TensorSpec, left: bool = True, **_: Any) -> Flop:
    """Q times a matrix, without Q: each reflector applied to each of its columns, or rows."""
    rows, columns = output.shape[-2:] if left else output.shape[-2:][::-1]
    return Flop(other=flop_of(output, applied(rows, input2.shape[-1], columns)))


# Eigenvalues, singular values, least squares and matrix exponentials.
#
# They iterate, or choose a method by the values, so that a convention is counted: what the usual
# method takes to leading order on a typical matrix. A complex operation is taken as four real ones.
# All that is sure of an iteration is that each element of the matrix enters it: the least.


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


# Fourier transforms, by the convention of FFT benchmarks: 5 N log2 N for a complex transform.
#
# N is the product of the transformed sizes; half as much where one side is real. That is what a
# radix-2 transform takes, whatever the kernel does; other sizes are counted the same. Source: M.
# Frigo and S. G. Johnson, "benchFFT", https://www.fftw.org/speed/method.html.
#
# No lower bound is known for every algorithm. Where no coefficient exceeds 1 in magnitude, as in
# those in use, the determinant of the matrix gives one: (N / 2) log2 N complex additions. Source:
# J. Morgenstern, "Note on a lower bound of the linear complexity of the fast Fourier transform",
# JACM 20 (2), 1973. Of a real transform's matrix the determinant is at least (N / 2)^(N / 2), so
# that its real additions are (N / 2) log2 (N / 2).


def _size(spec: TensorSpec, dim: Sequence[int]) -> int:
    return math.prod(spec.shape[each] for each in dim) if spec.shape else 1


def _scaled(normalization: int, numbers: int) -> int:
    """A product with 1 / N, or its root, for each real number of the result if asked."""
    return numbers if normalization else 0


@formula("aten._fft_c2c", type="FFT", is_for_complex=True)
def complex_transform(
    self: TensorSpec, dim: Sequence[int], normalization: int, output: TensorSpec, **_: Any
) -> Flop:
    """5 N log2 N for each transform of N complex numbers; 2 a number where it is normalised."""
    size = _size(self, dim)
    if not self.elements:
        return Flop()
    rounds = self.elements * math.log2(size)
    return Flop(
        other=round(5 * rounds) + _scaled(normalization, 2 * output.elements),
        least=math.floor(rounds),
    )


def _real(normalization: int, transforms: int, size: int, numbers: int) -> Flop:
    """Between `size` real numbers and half as many complex ones, `transforms` times."""
    rounds = transforms * size / 2
    return Flop(
        other=round(5 * rounds * math.log2(size)) + _scaled(normalization, numbers),
        least=math.floor(rounds * max(0.0, math.log2(size) - 1)),
    )


@formula("aten._fft_r2c", type="FFT", is_for_complex=True)
def transform_of_reals(
    self: TensorSpec, dim: Sequence[int], normalization: int, output: TensorSpec, **_: Any
) -> Flop:
    """2.5 N log2 N for each transform of N real numbers; the other half of its result is mirrored.

    Where it is normalised, 2 for each complex number that is made.
    """
    if not self.elements:
        return Flop()
    size = _size(self, dim)
    half = output.elements // output.shape[dim[-1]] * (self.shape[dim[-1]] // 2 + 1) if dim else 0
    return _real(normalization, self.elements // size, size, 2 * min(half, output.elements))


@formula("aten._fft_c2r", type="FFT", is_for_complex=True)
def transform_to_reals(
    dim: Sequence[int], normalization: int, output: TensorSpec, **_: Any
) -> Flop:
    """2.5 N log2 N for each transform to N real numbers, and 1 a number where it is normalised."""
    if not output.elements:
        return Flop()
    size = _size(output, dim)
    return _real(normalization, output.elements // size, size, output.elements)
