"""Reductions: n elements made one take n - 1 operations; complex numbers, as many a part."""

from __future__ import annotations

import math
from typing import Any

from roofline.workload.formulas.costs import MAGNITUDE, PRODUCT, Cost, F, floats, is_complex, parts
from roofline.workload.formulas.pointwise import elementwise, first, together
from roofline.workload.formulas.registry import Flop, Tensors, formula, none_of, table
from roofline.workload.tensors import TensorSpec as Tensor
from roofline.workload.work import FLOP_PER_FMA


def joined(self: Tensor, output: Tensor | Tensors) -> int:
    """Elements but the first of each result."""
    return max(0, self.elements - first(output).elements)


def rows_along(spec: Tensor, dim: int) -> int:
    """How many rows `spec` has along its dimension `dim`; none if there is nothing in them."""
    if not spec.elements:
        return 0
    return spec.elements // spec.shape[dim] if spec.shape else 1


def steps(self: Tensor, dim: int) -> int:
    """Elements but the first along `dim`."""
    return self.elements - rows_along(self, dim)


def multiplication(self: Tensor) -> int:
    """Operations of a product."""
    return PRODUCT.simple if is_complex(self) else 1


def order(p: float | None) -> float:
    """Of a norm, by default 2."""
    return 2 if p is None else p


def norms(vectors: int, elements: int, ord: float, is_complex: bool = False) -> Flop:
    """Of `vectors` with `elements` in all, as `aten.linalg_vector_norm` says."""
    folds = max(0, elements - vectors)
    if ord == 2:
        return Flop(other=(3 if is_complex else 1) * elements + folds + vectors)
    if ord == 0:
        return Flop(other=(2 if is_complex else 1) * elements + folds)
    magnitudes = (MAGNITUDE.simple if is_complex else 1) * elements
    if ord == 1 or math.isinf(ord):
        return Flop(other=magnitudes + folds)
    whole = (magnitudes + folds + (elements + vectors) * F).flop()
    # A power of a square does without its root.
    return Flop(other=whole.other, least=whole.min_flop - (elements if is_complex else 0))


table(
    """
aten.amax aten.amin aten.max aten.min aten.argmax aten.argmin
aten.nansum = floats(self) * joined(self, output)
    One addition or comparison for each element but the first of each result.
aten.sum = floats(self) * joined(self, output) * parts(self); complex
    One addition for each element but the first of each result.
aten.prod = floats(self) * joined(self, output) * multiplication(self); complex
    One multiplication for each element but the first of each result.
aten.any aten.all aten.count_nonzero aten._is_all_true aten._is_any_true = 0
    Logic is no floating-point arithmetic.
aten.mean = self.elements * parts(self); complex
    n - 1 additions and a division for each result.
aten.var aten.var_mean = 4 * parts(self) * self.elements; complex
    The mean, then a subtraction and a square an element, then the mean of those: 4 n.

    Complex: 2 n for the mean, a subtraction of 2 and a square of the magnitude of 3, and n.
aten.std aten.std_mean = 4 * parts(self) * self.elements + first(output).elements; complex
    The root of each variance.
aten.linalg_vector_norm = norms(output.elements, self.elements, ord, is_complex(self)); complex
    2: a square an element, their sum, a root. 1 and infinity: magnitudes, and their fold.

    0: which are not zero, and their sum. Any other order takes a magnitude and a power an element,
    their sum, and a power. Complex: the square of a magnitude takes 3, a magnitude 4.
aten.norm
aten.native_norm = norms(output.elements, self.elements, order(p), is_complex(self)); complex
    As `vector_norm`.
aten.logsumexp = 2 * joined(self, output) + (self.elements + output.elements) * (1 + F)
    max + log(sum(exp(x - max))): n - 1 comparisons, n subtractions and exponentials, …
aten.logcumsumexp aten._logcumsumexp = steps(self, dim) * (5 + 2 * F)
    max + log1p(exp(-|x - y|)) for each element but the first along `dim`, as `logaddexp`.
aten.cummax aten.cummin aten._cummax_helper aten._cummin_helper = floats(self) * steps(self, dim)
    One operation for each element but the first along `dim`.
aten.cumsum = floats(self) * steps(self, dim) * parts(self); complex
    One addition for each element but the first along `dim`.
aten.cumprod = floats(self) * steps(self, dim) * multiplication(self); complex
    One multiplication for each element but the first along `dim`.
aten.segment_reduce = floats(data) * (joined(data, output) + (reduce == "mean") * output.elements)
    An operation for each element but the first of each result; a mean is divided besides.

    A segment may be empty, so that it is at the most one for each element.
aten.allclose = Flop(other=6 * floats(self) * self.elements, least=0)
    |x - y| <= atol + rtol * |y|: six an element; it may stop at the first that is not.
""",
)


@formula("aten.aminmax", "aten._aminmax")
def both_limits(self: Tensor, output: Tensors, **_: Any) -> Flop:
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
def trace(self: Tensor, **_: Any) -> Flop:
    """The diagonal's n - 1 additions; nothing else is read."""
    diagonal = min(self.shape)
    other = floats(self) * parts(self) * max(0, diagonal - 1)
    return Flop(other=other, elements={"self": diagonal})


@formula("aten.linalg__powsum", is_for_complex=True)
def sum_of_powers(self: Tensor, output: Tensor, ord: float = 2, **_: Any) -> Flop:
    """As `vector_norm`, without the root or power at its end."""
    whole, ends = norms(output.elements, self.elements, ord, is_complex(self)), output.elements
    if ord in (0, 1) or math.isinf(ord):
        return whole
    last = (Cost(1) if ord == 2 else F).flop(ends)
    return Flop(other=whole.other - last.other, least=whole.min_flop - last.min_flop)


@formula("aten.renorm", is_for_complex=True)
def renorm(self: Tensor, p: float, dim: int, **_: Any) -> Flop:
    """A norm for each slice, is it too large, two operations for its factor; products with that.

    A slice that is small enough needs neither factor nor products.
    """
    slices = self.shape[dim] if self.elements else 0
    count = norms(slices, self.elements, p, is_complex(self))
    return count.plus(3 * slices + self.elements * parts(self), slices)


@formula(
    "aten._segment_reduce_backward",
    byte="of sums and means only the gradient and the lengths are read",
)
def segments_backward(grad: Tensor, data: Tensor, reduce: str, **_: Any) -> Flop:
    """A sum's gradient goes to each element of its segment; a mean's is divided first.

    Of the largest and smallest it goes where an element equals the result (a comparison each), and
    is divided among those; of a product it is multiplied by the result and divided by each element.
    """
    if reduce in ("sum", "mean"):
        other = grad.elements if reduce == "mean" else 0
        return Flop(other=other, elements=none_of("data", "output"))
    least = data.elements + (grad.elements if reduce == "prod" else 0)
    return Flop(other=data.elements + grad.elements, least=least)


# Softmax along one dimension, whole or with what a mask leaves of it.


def softmax(
    of: tuple[Cost | int, Cost], output: Tensor, dim: int | None = None, **arguments: Any
) -> Flop:
    """The cost of an element, and of a row."""
    each, row = of
    rows = rows_along(output, -1 if dim is None else dim)
    count = elementwise(arguments, output, each)
    return count.plus(rows * row.operations, rows * row.least_operations)


def masked_softmax(of: tuple[Cost | int, Cost], **arguments: Any) -> Flop:
    """How much of it a mask leaves cannot be known from shapes."""
    return Flop(other=softmax(of, **arguments).flop, least=0)


table(
    """
aten._softmax aten.softmax aten._safe_softmax = 4 + F, Cost(-2)
    exp(x - max) / sum: comparison, subtraction, exponential, addition, division.
aten._log_softmax aten.log_softmax = 4 + F, -2 + F
    As softmax, with one logarithm a row, and its subtraction instead of the division.
aten._softmax_backward_data = 4, Cost(-1)
    y * (g - sum(g * y)): two products, an addition, a subtraction; no addition for a first.
aten._log_softmax_backward_data = 3 + F, Cost(-1)
    g - exp(y) * sum(g): an addition, an exponential, a product, a subtraction.
""",
    softmax,
    type="softmax",
)
table(
    """
aten._masked_softmax = 4 + F, Cost(-2)
    Softmax of what a boolean mask leaves; how much that is cannot be known from shapes.
aten._masked_softmax_backward = 4, Cost(-1)
    As softmax, of what a mask leaves; how much that is cannot be known from shapes.
""",
    masked_softmax,
    type="softmax",
)


# Distances between all pairs of vectors.


def distances(pairs: int, size: int, p: float) -> Flop:
    """The norm of a difference, for each of `pairs` of vectors of `size` numbers.

    A number takes a subtraction, a magnitude or a square, and an addition or comparison (the first
    of each pair none); order 0 has no magnitude. Order 2 ends in a root; others than 0, 1, 2 and
    infinity take a power a number, and one at the end. Squares of differences can be had from
    products of matrices: of each number only an FMA is left, and the root.
    """
    if not size:
        return Flop()
    simple = pairs * (2 * size + size - 1)
    if p in (0, 1) or math.isinf(p):
        return Flop(other=simple)
    if p == 2:
        return Flop(other=simple + pairs, least=pairs * (FLOP_PER_FMA * size + 1))
    return (simple + pairs * (size + 1) * F).flop()


def distances_backward(pairs: int, size: int, p: float, sums: int) -> Flop:
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
        whole = 2 * pairs + 2 * numbers + sums
        return Flop(other=whole, least=min(pairs + FLOP_PER_FMA * numbers, whole))
    if math.isinf(p):
        return Flop(other=5 * numbers + sums)
    return (2 * pairs + 5 * numbers + sums + (pairs + numbers) * F).flop()


table(
    """
aten._cdist_forward aten.cdist = distances(output.elements, x1.shape[-1], p)
    Of each vector of the first set to each of the second.
aten._pdist_forward aten.pdist = distances(output.elements, self.shape[-1], p)
    Of each vector to each later one.
aten.dist = distances(output.elements, together(self, other), p)
    Of two tensors, as one vector each.
""",
    type="distance",
    names={"together": together},
)


@formula("aten._euclidean_dist", type="distance")
def euclidean(x1: Tensor, x2: Tensor, output: Tensor, **_: Any) -> Flop:
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


_NOTHING = "order 0 reads nothing: its gradient is zero"


@formula("aten._cdist_backward", type="distance", byte=_NOTHING)
def cdist_backward(
    x1: Tensor, x2: Tensor, p: float, cdist: Tensor, output: Tensor, **_: Any
) -> Flop:
    """With respect to the first set: each of its vectors sums over all of the second."""
    if p == 0 or not output.elements:
        return Flop(elements=none_of("grad", "x1", "x2", "cdist"))
    numbers = cdist.elements * x2.shape[-1]
    sums = max(0, numbers - output.elements)
    return distances_backward(cdist.elements, x2.shape[-1], p, sums)


@formula("aten._pdist_backward", type="distance", byte=_NOTHING)
def pdist_backward(self: Tensor, p: float, pdist: Tensor, **_: Any) -> Flop:
    """Each pair adds to the gradient of either vector: with the sign changed to the second's."""
    if p == 0 or not pdist.elements:
        return Flop(elements=none_of("grad", "self", "pdist"))
    pairs, size = pdist.elements, self.shape[-1]
    return distances_backward(pairs, size, p, 2 * pairs * size - self.elements)
