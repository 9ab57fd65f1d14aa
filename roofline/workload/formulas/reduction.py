"""Reductions: n elements made one take n - 1 operations; complex numbers, as many a part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas import complex_numbers
from roofline.workload.formulas.complex_numbers import is_complex
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, elementwise, floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


def first(output: TensorSpec | Sequence[TensorSpec]) -> TensorSpec:
    """The values that a reduction returns, with or without their indices."""
    return output if isinstance(output, TensorSpec) else output[0]


def rows_along(spec: TensorSpec, dim: int) -> int:
    """How many rows `spec` has along its dimension `dim`; none if there is nothing in them."""
    if not spec.elements:
        return 0
    return spec.elements // spec.shape[dim] if spec.shape else 1


@formula(
    *("aten.amax", "aten.amin", "aten.max", "aten.min", "aten.argmax", "aten.argmin"),
    *("aten.nansum",),
)
def fold(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """One addition or comparison for each element but the first of each result."""
    operations = max(0, self.elements - first(output).elements)
    return Flop(other=operations if floats(self) else 0)


@formula("aten.sum", is_for_complex=True)
def addition(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """One addition for each element but the first of each result."""
    return Flop(other=fold(self, output).other * (2 if is_complex(self) else 1))


@formula("aten.prod", is_for_complex=True)
def multiplication(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """One multiplication for each element but the first of each result."""
    each = complex_numbers.PRODUCT.simple if is_complex(self) else 1
    return Flop(other=fold(self, output).other * each)


@formula("aten.any", "aten.all", "aten.count_nonzero", "aten._is_all_true", "aten._is_any_true")
def logic_fold(**_: Any) -> Flop:
    """Logic is no floating-point arithmetic."""
    return Flop()


@formula("aten.aminmax", "aten._aminmax")
def both_limits(self: TensorSpec, output: Sequence[TensorSpec], **_: Any) -> Flop:
    """Two comparisons for each element but the first of each result.

    Elements taken in pairs need three comparisons for two: the least of that is known to be exact.
    Source: I. Pohl, "A sorting problem and its complexity", CACM 15 (6), 1972.
    """
    rows = output[0].elements
    if not floats(self) or not self.elements:
        return Flop()
    size = self.elements // max(rows, 1)
    return Flop(other=2 * (self.elements - rows), least=rows * max(0, (3 * size + 1) // 2 - 2))


@formula("aten.trace", byte="the diagonal, not the matrix", is_for_complex=True)
def trace(self: TensorSpec, **_: Any) -> Flop:
    """The diagonal's n - 1 additions; nothing else is read."""
    diagonal = min(self.shape)
    each = 2 if is_complex(self) else 1
    operations = each * max(0, diagonal - 1) if floats(self) else 0
    return Flop(other=operations, elements={"self": diagonal})


@formula("aten.mean", is_for_complex=True)
def mean(self: TensorSpec, **_: Any) -> Flop:
    """n - 1 additions and a division for each result."""
    return Flop(other=self.elements * (2 if is_complex(self) else 1))


@formula("aten.var", "aten.var_mean", is_for_complex=True)
def variance(self: TensorSpec, **_: Any) -> Flop:
    """The mean, then a subtraction and a square an element, then the mean of those: 4 n.

    Complex: 2 n for the mean, a subtraction of 2 and a square of the magnitude of 3, and n.
    """
    return Flop(other=(8 if is_complex(self) else 4) * self.elements)


@formula("aten.std", "aten.std_mean", is_for_complex=True)
def deviation(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """The root of each variance."""
    results = output if isinstance(output, TensorSpec) else output[0]
    return Flop(other=variance(self).other + results.elements)


def norms_of_vectors(vectors: int, elements: int, ord: float, is_complex: bool = False) -> Flop:
    """Of `vectors` with `elements` in all.

    2: a square an element, their sum, a root. 1 and infinity: magnitudes, and their fold.
    0: which are not zero, and their sum. Any other order takes a magnitude and a power an element,
    their sum, and a power. Complex: the square of a magnitude takes 3, a magnitude 4.
    """
    folds = max(0, elements - vectors)
    if ord == 2:
        return Flop(other=(3 if is_complex else 1) * elements + folds + vectors)
    if ord == 0:
        return Flop(other=(2 if is_complex else 1) * elements + folds)
    magnitudes = (complex_numbers.MAGNITUDE.simple if is_complex else 1) * elements
    if ord == 1 or math.isinf(ord):
        return Flop(other=magnitudes + folds)
    powers = elements + vectors
    return Flop(
        other=magnitudes + folds + TRANSCENDENTAL_FLOP * powers,
        # A power of a square does without its root.
        least=magnitudes - (elements if is_complex else 0) + folds + powers,
    )


@formula("aten.linalg_vector_norm", is_for_complex=True)
def vector_norm(self: TensorSpec, output: TensorSpec, ord: float = 2, **_: Any) -> Flop:
    """2: a square an element, their sum, a root. 1 and infinity: magnitudes, and their fold.

    0: which are not zero, and their sum. Any other order takes a magnitude and a power an element,
    their sum, and a power. Complex: the square of a magnitude takes 3, a magnitude 4.
    """
    return norms_of_vectors(output.elements, self.elements, ord, is_complex(self))


@formula("aten.norm", "aten.native_norm", is_for_complex=True)
def norm(self: TensorSpec, output: TensorSpec, p: float | None = 2, **_: Any) -> Flop:
    """As `vector_norm`."""
    return vector_norm(self, output, 2 if p is None else p)


@formula("aten.linalg__powsum", is_for_complex=True)
def sum_of_powers(self: TensorSpec, output: TensorSpec, ord: float = 2, **_: Any) -> Flop:
    """As `vector_norm`, without the root or power at its end."""
    whole, ends = vector_norm(self, output, ord), output.elements
    if ord in (0, 1) or math.isinf(ord):
        return whole
    last = 1 if ord == 2 else TRANSCENDENTAL_FLOP
    return Flop(other=whole.other - last * ends, least=whole.min_flop - ends)


@formula("aten.renorm", is_for_complex=True)
def renorm(self: TensorSpec, p: float, dim: int, **_: Any) -> Flop:
    """A norm for each slice, is it too large, two operations for its factor; products with that.

    A slice that is small enough needs neither factor nor products.
    """
    slices = self.shape[dim] if self.elements else 0
    norms = norms_of_vectors(slices, self.elements, p, is_complex(self))
    products = self.elements * (2 if is_complex(self) else 1)
    return Flop(other=norms.other + 3 * slices + products, least=norms.min_flop + slices)


@formula("aten.logsumexp")
def logsumexp(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """max + log(sum(exp(x - max))): n - 1 comparisons, n subtractions and exponentials, …"""
    folds = 2 * max(0, self.elements - output.elements)
    transcendental = self.elements + output.elements
    simple = folds + self.elements + output.elements
    return Flop(other=simple + TRANSCENDENTAL_FLOP * transcendental, least=simple + transcendental)


@formula("aten.logcumsumexp", "aten._logcumsumexp")
def log_scan(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """max + log1p(exp(-|x - y|)) for each element but the first along `dim`, as `logaddexp`."""
    steps = self.elements - rows_along(self, dim)
    return Flop(other=steps * (5 + 2 * TRANSCENDENTAL_FLOP), least=steps * (5 + 2))


@formula("aten.cummax", "aten.cummin", "aten._cummax_helper", "aten._cummin_helper")
def scan(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One operation for each element but the first along `dim`."""
    return Flop(other=self.elements - rows_along(self, dim) if floats(self) else 0)


@formula("aten.cumsum", is_for_complex=True)
def running_sum(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One addition for each element but the first along `dim`."""
    return Flop(other=scan(self, dim).other * (2 if is_complex(self) else 1))


@formula("aten.cumprod", is_for_complex=True)
def running_product(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One multiplication for each element but the first along `dim`."""
    each = complex_numbers.PRODUCT.simple if is_complex(self) else 1
    return Flop(other=scan(self, dim).other * each)


@formula("aten.segment_reduce")
def segments(data: TensorSpec, reduce: str, output: TensorSpec, **_: Any) -> Flop:
    """An operation for each element but the first of each result; a mean is divided besides.

    A segment may be empty, so that it is at the most one for each element.
    """
    operations = max(0, data.elements - output.elements)
    operations += output.elements if reduce == "mean" else 0
    return Flop(other=operations if floats(data) else 0)


@formula("aten.allclose")
def all_close(self: TensorSpec, **_: Any) -> Flop:
    """|x - y| <= atol + rtol * |y|: six an element; it may stop at the first that is not."""
    return Flop(other=6 * self.elements if floats(self) else 0, least=0)


# Backward of reductions; most of torch's are made of other operators.


@formula(
    "aten._segment_reduce_backward",
    byte="of sums and means only the gradient and the lengths are read",
)
def segments_backward(grad: TensorSpec, data: TensorSpec, reduce: str, **_: Any) -> Flop:
    """A sum's gradient goes to each element of its segment; a mean's is divided first.

    Of the largest and smallest it goes where an element equals the result (a comparison each), and
    is divided among those; of a product it is multiplied by the result and divided by each element.
    """
    if reduce == "sum":
        return Flop(elements={"data": 0, "output": 0})
    if reduce == "mean":
        return Flop(other=grad.elements, elements={"data": 0, "output": 0})
    return Flop(
        other=data.elements + grad.elements,
        least=data.elements + (grad.elements if reduce == "prod" else 0),
    )


# Softmax along one dimension, whole or with what a mask leaves of it.


def _softmax(arguments: dict[str, Any], output: TensorSpec, dim: int) -> tuple[Flop, int]:
    """The FLOP that both kinds share, and the number of rows.

    An element: a comparison, a subtraction, an exponential, an addition, a division or subtraction;
    a row of n has n - 1 comparisons and n - 1 additions.
    """
    rows = rows_along(output, dim)
    each = elementwise(arguments, output, 4, 1)
    return Flop(other=each.flop - 2 * rows, least=each.min_flop - 2 * rows), rows


@formula("aten._softmax", "aten.softmax", "aten._safe_softmax", type="softmax")
def softmax(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """exp(x - max) / sum: comparison, subtraction, exponential, addition, division."""
    return _softmax(arguments, output, dim)[0]


@formula("aten._masked_softmax", type="softmax")
def masked_softmax(output: TensorSpec, dim: int | None = None, **arguments: Any) -> Flop:
    """Softmax of what a boolean mask leaves; how much that is cannot be known from shapes."""
    whole = _softmax(arguments, output, -1 if dim is None else dim)[0]
    return Flop(other=whole.flop, least=0)


@formula("aten._log_softmax", "aten.log_softmax", type="softmax")
def log_softmax(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """As softmax, with one logarithm a row, and its subtraction instead of the division."""
    each, rows = _softmax(arguments, output, dim)
    return Flop(other=each.flop + rows * TRANSCENDENTAL_FLOP, least=each.min_flop + rows)


# Backward of softmax and its logarithm, from the result.


@formula("aten._softmax_backward_data", type="softmax")
def softmax_backward(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """y * (g - sum(g * y)): two products, an addition, a subtraction; no addition for a first."""
    each = elementwise(arguments, output, 4)
    rows = rows_along(output, dim)
    return Flop(other=each.flop - rows, least=each.min_flop - rows)


@formula("aten._log_softmax_backward_data", type="softmax")
def log_softmax_backward(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """g - exp(y) * sum(g): an addition, an exponential, a product, a subtraction."""
    each = elementwise(arguments, output, 3, 1)
    rows = rows_along(output, dim)
    return Flop(other=each.flop - rows, least=each.min_flop - rows)


@formula("aten._masked_softmax_backward", type="softmax")
def masked_softmax_backward(output: TensorSpec, dim: int | None = None, **arguments: Any) -> Flop:
    """As softmax, of what a mask leaves; how much that is cannot be known from shapes."""
    whole = softmax_backward(output, -1 if dim is None else dim, **arguments)
    return Flop(other=whole.flop, least=0)


# Distances between all pairs of vectors.


def _distances(pairs: int, size: int, p: float) -> Flop:
    """The norm of a difference, for each of `pairs` of vectors of `size` numbers.

    A number takes a subtraction, a magnitude or a square, and an addition or comparison (the first
    of each pair none); order 0 has no magnitude. Order 2 ends in a root; others than 0, 1, 2 and
    infinity take a power a number, and one at the end. Squares of differences can be had from
    products of matrices: of each number only an FMA is left, and the root.
    """
    if not size:
        return Flop()
    folds = pairs * (size - 1)
    if p in (0, 1) or math.isinf(p):
        return Flop(other=pairs * size * 2 + folds)
    if p == 2:
        return Flop(other=pairs * (2 * size + 1) + folds, least=pairs * (FLOP_PER_FMA * size + 1))
    simple, powers = pairs * size * 2 + folds, pairs * (size + 1)
    return Flop(other=simple + TRANSCENDENTAL_FLOP * powers, least=simple + powers)


@formula("aten._cdist_forward", "aten.cdist", type="distance")
def cdist(x1: TensorSpec, p: float, output: TensorSpec, **_: Any) -> Flop:
    """Of each vector of the first set to each of the second."""
    return _distances(output.elements, x1.shape[-1], p)


@formula("aten._pdist_forward", "aten.pdist", type="distance")
def pdist(self: TensorSpec, output: TensorSpec, p: float = 2, **_: Any) -> Flop:
    """Of each vector to each later one."""
    return _distances(output.elements, self.shape[-1], p)


@formula("aten._euclidean_dist", type="distance")
def euclidean(x1: TensorSpec, x2: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """sqrt(|x|^2 - 2 x y + |y|^2), as one product of [-2 x, |x|^2, 1] and [y, 1, |y|^2].

    That is two FMAs more a pair than numbers in a vector; then a comparison with 0, and the root.
    Squared norms take a square a number and their sum, and the factor -2 a multiplication.
    """
    size = x1.shape[-1]
    if not size:
        return Flop()
    pairs, vectors = output.elements, (x1.elements + x2.elements) // size
    return Flop(
        macs=pairs * (size + 2),
        other=vectors * (2 * size - 1) + x1.elements + 2 * pairs,
        least=pairs * (FLOP_PER_FMA * size + 1),
        min_macs=pairs * size,
    )


@formula("aten.dist", type="distance")
def distance(
    self: TensorSpec, other: TensorSpec, output: TensorSpec, p: float = 2, **_: Any
) -> Flop:
    """Of two tensors, as one vector each."""
    sizes = zip(_aligned(self, other), _aligned(other, self), strict=True)
    return _distances(output.elements, math.prod(a if b == 1 else b for a, b in sizes), p)


def _aligned(self: TensorSpec, other: TensorSpec) -> tuple[int, ...]:
    """Its sizes, with as many 1 before them as make it as long as the other."""
    return (1,) * (len(other.shape) - len(self.shape)) + self.shape


# Backward of the distances between all pairs of vectors, with respect to the vectors.


def _distances_backward(pairs: int, size: int, p: float, sums: int) -> Flop:
    """For `pairs` of vectors of `size` numbers; `sums` additions gather what belongs together.

    Order 2: a pair takes a comparison with 0 and g / d, a number the difference and its product.
    As products of matrices an FMA a number and g / d are left. Order 1: the difference, its sign,
    and the product with g. Infinity: also the magnitude, and a comparison with the distance. Other
    orders: |x - y|**(p - 1) and its product as well, and a comparison and g / d**(p - 1) a pair.
    """
    numbers = pairs * size
    if p == 1:
        return Flop(other=3 * numbers + sums)
    if p == 2:
        least = pairs + FLOP_PER_FMA * numbers
        whole = 2 * pairs + 2 * numbers + sums
        return Flop(other=whole, least=min(least, whole))
    if math.isinf(p):
        return Flop(other=5 * numbers + sums)
    simple, powers = 2 * pairs + 5 * numbers + sums, pairs + numbers
    return Flop(other=simple + TRANSCENDENTAL_FLOP * powers, least=simple + powers)


@formula(
    "aten._cdist_backward", type="distance", byte="order 0 reads nothing: its gradient is zero"
)
def cdist_backward(
    x1: TensorSpec, x2: TensorSpec, p: float, cdist: TensorSpec, output: TensorSpec, **_: Any
) -> Flop:
    """With respect to the first set: each of its vectors sums over all of the second."""
    if p == 0 or not output.elements:
        return Flop(elements=dict.fromkeys(("grad", "x1", "x2", "cdist"), 0))
    pairs, size = cdist.elements, x2.shape[-1]
    return _distances_backward(pairs, size, p, max(0, pairs * size - output.elements))


@formula(
    "aten._pdist_backward", type="distance", byte="order 0 reads nothing: its gradient is zero"
)
def pdist_backward(self: TensorSpec, p: float, pdist: TensorSpec, **_: Any) -> Flop:
    """Each pair adds to the gradient of either vector: with the sign changed to the second's."""
    if p == 0 or not pdist.elements:
        return Flop(elements=dict.fromkeys(("grad", "self", "pdist"), 0))
    size = self.shape[-1]
    return _distances_backward(pdist.elements, size, p, 2 * pdist.elements * size - self.elements)
