"""Reductions: n - 1 operations for n elements; complex numbers, as many per part."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from roofline.workload.formulas.costs import (
    MAGNITUDE,
    PRODUCT,
    Cost,
    F,
    components,
    has_floats,
    is_complex,
)
from roofline.workload.formulas.pointwise import broadcast_elements, elementwise, first_output
from roofline.workload.formulas.registry import Flop, Tensors, formula, table, untouched
from roofline.workload.tensors import TensorSpec as Tensor
from roofline.workload.work import FLOP_PER_MAC


def folds(self: Tensor, output: Tensor | Tensors) -> int:
    """Elements but the first of each result."""
    return max(0, self.elements - first_output(output).elements)


def rows_along(spec: Tensor, dim: int) -> int:
    """Number of rows of `spec` along its dimension `dim`; 0 if empty."""
    if not spec.elements:
        return 0
    return spec.elements // spec.shape[dim] if spec.shape else 1


def scan_steps(self: Tensor, dim: int) -> int:
    """Elements but the first along `dim`."""
    return self.elements - rows_along(self, dim)


def product_flop(self: Tensor) -> int:
    return PRODUCT.simple if is_complex(self) else 1


def norm_order(p: float | None) -> float:
    return 2 if p is None else p


def norms(vectors: int, elements: int, ord: float, is_complex: bool = False) -> Flop:
    """Count the norms of `vectors` with `elements` in all, as aten.linalg_vector_norm."""
    folds = max(0, elements - vectors)
    if ord == 2:
        return Flop(other=(3 if is_complex else 1) * elements + folds + vectors)
    if ord == 0:
        return Flop(other=(2 if is_complex else 1) * elements + folds)
    magnitudes = (MAGNITUDE.simple if is_complex else 1) * elements
    if ord == 1 or math.isinf(ord):
        return Flop(other=magnitudes + folds)
    whole = (magnitudes + folds + (elements + vectors) * F).flop()
    # A power of a square needs no root.
    return Flop(other=whole.other, least=whole.min_flop - (elements if is_complex else 0))


table(
    """
aten.amax aten.amin aten.max aten.min aten.argmax aten.argmin
aten.nansum = has_floats(self) * folds(self, output)
    1 addition or comparison per element but the first of each result.
aten.sum = has_floats(self) * folds(self, output) * components(self); complex
    1 addition per element but the first of each result.
aten.prod = has_floats(self) * folds(self, output) * product_flop(self); complex
    1 multiplication per element but the first of each result.
aten.any aten.all aten.count_nonzero aten._is_all_true aten._is_any_true = 0
    Logic is not FLOP.
aten.mean = self.elements * components(self); complex
    n - 1 additions and 1 division per result.
aten.var aten.var_mean = 4 * components(self) * self.elements; complex
    The mean, then a subtraction and a square per element, then the mean of those: 4 n.

    Complex: 2 n for the mean, a subtraction of 2 and a square of the magnitude of 3, and n.
aten.std
aten.std_mean = 4 * components(self) * self.elements + first_output(output).elements; complex
    As aten.var, and 1 root per variance.
aten.linalg_vector_norm = norms(output.elements, self.elements, ord, is_complex(self)); complex
    2: a square per element, their sum, a root. 1 and infinity: magnitudes, and n - 1 more.

    0: comparisons with 0, and their sum. Any other order: a magnitude and a power per element,
    their sum, and a power. Complex: the square of a magnitude takes 3, a magnitude 4.
aten.norm
aten.native_norm = norms(output.elements, self.elements, norm_order(p), is_complex(self)); complex
    As aten.linalg_vector_norm.
aten.logsumexp = 2 * folds(self, output) + (self.elements + output.elements) * (1 + F)
    max + log(sum(exp(x - max))): n - 1 comparisons, n subtractions and exponentials, …
aten.logcumsumexp aten._logcumsumexp = scan_steps(self, dim) * (5 + 2 * F)
    max + log1p(exp(-|x - y|)) per element but the first along `dim`, as aten.logaddexp.
aten.cummax aten.cummin aten._cummax_helper
aten._cummin_helper = has_floats(self) * scan_steps(self, dim)
    1 operation per element but the first along `dim`.
aten.cumsum = has_floats(self) * scan_steps(self, dim) * components(self); complex
    1 addition per element but the first along `dim`.
aten.cumprod = has_floats(self) * scan_steps(self, dim) * product_flop(self); complex
    1 multiplication per element but the first along `dim`.
aten.segment_reduce = has_floats(data) * (
    folds(data, output) + (reduce == "mean") * output.elements)
    1 operation per element but the first of each result; a mean is also divided.

    A segment may be empty: this is the maximum, 1 per element.
aten.allclose = Flop(other=6 * has_floats(self) * self.elements, least=0)
    |x - y| <= atol + rtol * |y|: 6 per element; it may stop at the first difference.
""",
)


@formula("aten.aminmax", "aten._aminmax")
def both_limits(self: Tensor, output: Tensors, **_: Any) -> Flop:
    """2 comparisons per element but the first of each result.

    Elements taken in pairs need three comparisons for two, the exact minimum. Source: I. Pohl, "A
    sorting problem and its complexity", CACM 15 (6), 1972.
    """
    rows = output[0].elements
    if not has_floats(self) or not self.elements:
        return Flop()
    size = self.elements // max(rows, 1)
    return Flop(other=2 * (self.elements - rows), least=rows * max(0, (3 * size + 1) // 2 - 2))


@formula("aten.trace", byte="the diagonal, not the matrix", is_for_complex=True)
def trace(self: Tensor, **_: Any) -> Flop:
    """n - 1 additions of the diagonal; nothing else is read."""
    diagonal = min(self.shape)
    other = has_floats(self) * components(self) * max(0, diagonal - 1)
    return Flop(other=other, elements={"self": diagonal})


@formula("aten.linalg__powsum", is_for_complex=True)
def sum_of_powers(self: Tensor, output: Tensor, ord: float = 2, **_: Any) -> Flop:
    """As aten.linalg_vector_norm, without the final root or power."""
    ends = output.elements
    whole = norms(ends, self.elements, ord, is_complex(self))
    if ord in (0, 1) or math.isinf(ord):
        return whole
    last = (Cost(1) if ord == 2 else F).flop(ends)
    return Flop(other=whole.other - last.other, least=whole.min_flop - last.min_flop)


@formula("aten.renorm", is_for_complex=True)
def renorm(self: Tensor, p: float, dim: int, **_: Any) -> Flop:
    """Per slice a norm, a comparison, and two operations for its factor; products with the factor.

    Small slices need neither factor nor products.
    """
    slices = self.shape[dim] if self.elements else 0
    count = norms(slices, self.elements, p, is_complex(self))
    return count.plus(3 * slices + self.elements * components(self), slices)


@formula(
    "aten._segment_reduce_backward",
    byte="for sums and means only the gradient and the lengths",
)
def segments_backward(grad: Tensor, data: Tensor, reduce: str, **_: Any) -> Flop:
    """The gradient of a sum passes to each element of its segment; that of a mean is divided first.

    For a maximum or minimum it passes to elements that equal the result (a comparison each),
    divided among them; for a product it is multiplied by the result and divided by each element.
    """
    if reduce in ("sum", "mean"):
        other = grad.elements if reduce == "mean" else 0
        return Flop(other=other, elements=untouched("data", "output"))
    least = data.elements + (grad.elements if reduce == "prod" else 0)
    return Flop(other=data.elements + grad.elements, least=least)


# Softmax along one dimension, with or without a mask.


def softmax(
    of: tuple[Cost | int, Cost], output: Tensor, dim: int | None = None, **arguments: Any
) -> Flop:
    each, row = of
    rows = rows_along(output, -1 if dim is None else dim)
    count = elementwise(arguments, output, each)
    return count.plus(rows * row.operations, rows * row.min_operations)


def masked_softmax(of: tuple[Cost | int, Cost], **arguments: Any) -> Flop:
    """Count a softmax; the number of unmasked elements depends on values."""
    return Flop(other=softmax(of, **arguments).flop, least=0)


table(
    """
aten._softmax aten.softmax aten._safe_softmax = 4 + F, Cost(-2)
    exp(x - max) / sum: comparison, subtraction, exponential, addition, division.
aten._log_softmax aten.log_softmax = 4 + F, -2 + F
    As softmax, with 1 logarithm per row, and its subtraction instead of the division.
aten._softmax_backward_data = 4, Cost(-1)
    y * (g - sum(g * y)): two products, an addition, a subtraction; the first addition is free.
aten._log_softmax_backward_data = 3 + F, Cost(-1)
    g - exp(y) * sum(g): an addition, an exponential, a product, a subtraction.
""",
    softmax,
    type="softmax",
)
table(
    """
aten._masked_softmax = 4 + F, Cost(-2)
    Softmax of the unmasked elements; their number depends on values.
aten._masked_softmax_backward = 4, Cost(-1)
    As aten._softmax_backward_data, of the unmasked elements; their number depends on values.
""",
    masked_softmax,
    type="softmax",
)


# Distances between all pairs of vectors.


def distances(pairs: int, size: int, p: float) -> Flop:
    """Count the norm of a difference, for each of `pairs` of vectors of `size` numbers.

    Per number: a subtraction, a magnitude or a square, and an addition or comparison (the first of
    each pair none); order 0 has no magnitude. Order 2 ends in a root; orders other than 0, 1, 2 and
    infinity take a power per number, and one at the end. Squares of differences can come from
    matrix products: a MAC per number is left, and the root.
    """
    if not size:
        return Flop()
    simple = pairs * (2 * size + size - 1)
    if p in (0, 1) or math.isinf(p):
        return Flop(other=simple)
    if p == 2:
        return Flop(other=simple + pairs, least=pairs * (FLOP_PER_MAC * size + 1))
    return (simple + pairs * (size + 1) * F).flop()


def distances_backward(pairs: int, size: int, p: float, sums: int) -> Flop:
    """Count the gradient for `pairs` of vectors of `size` numbers, with `sums` additions.

    Order 2: a comparison with 0 and g / d per pair, the difference and its product per number. As
    matrix products: a MAC per number and g / d. Order 1: the difference, its sign, and the product
    with g. Infinity: also the magnitude, and a comparison with the distance. Other orders: also |x
    - y|**(p - 1) and its product, and a comparison and g / d**(p - 1) per pair.
    """
    numbers = pairs * size
    if p == 1:
        return Flop(other=3 * numbers + sums)
    if p == 2:
        whole = 2 * pairs + 2 * numbers + sums
        return Flop(other=whole, least=min(pairs + FLOP_PER_MAC * numbers, whole))
    if math.isinf(p):
        return Flop(other=5 * numbers + sums)
    return (2 * pairs + 5 * numbers + sums + (pairs + numbers) * F).flop()


table(
    """
aten._cdist_forward aten.cdist = distances(output.elements, x1.shape[-1], p)
    Distance of each vector of the first set to each of the second.
aten._pdist_forward aten.pdist = distances(output.elements, self.shape[-1], p)
    Distance of each vector to each later one.
aten.dist = distances(output.elements, broadcast_elements(self, other), p)
    Distance of two tensors, as one vector each.
""",
    type="distance",
    names={"broadcast_elements": broadcast_elements},
)


@formula("aten._euclidean_dist", type="distance")
def euclidean(x1: Tensor, x2: Tensor, output: Tensor, **_: Any) -> Flop:
    """sqrt(|x|^2 - 2 x y + |y|^2), as one product of [-2 x, |x|^2, 1] and [y, 1, |y|^2].

    Per pair, two MACs more than numbers in a vector; then a comparison with 0, and the root.
    Squared norms take a square per number and their sum, and the factor -2 a multiplication.
    """
    size = x1.shape[-1]
    if not size:
        return Flop()
    pairs, vectors = output.elements, (x1.elements + x2.elements) // size
    return Flop(
        macs=pairs * (size + 2),
        other=vectors * (2 * size - 1) + x1.elements + 2 * pairs,
        least=pairs * (FLOP_PER_MAC * size + 1),
        min_macs=pairs * size,
    )


_NOTHING = "each operand once; nothing for order 0, whose gradient is 0"


def _gradients(operands: Iterable[str]) -> list[str]:
    """Return the name of the given gradient: ``grad``, or since torch 2.14 ``grad_output``."""
    return [each for each in operands if each.startswith("grad")]


@formula("aten._cdist_backward", type="distance", byte=_NOTHING)
def cdist_backward(
    x1: Tensor, x2: Tensor, p: float, cdist: Tensor, output: Tensor, **others: Any
) -> Flop:
    """Gradient for the first set: each of its vectors sums over all of the second."""
    if p == 0 or not output.elements:
        return Flop(elements=untouched(*_gradients(others), "x1", "x2", "cdist"))
    numbers = cdist.elements * x2.shape[-1]
    sums = max(0, numbers - output.elements)
    return distances_backward(cdist.elements, x2.shape[-1], p, sums)


@formula("aten._pdist_backward", type="distance", byte=_NOTHING)
def pdist_backward(self: Tensor, p: float, pdist: Tensor, **others: Any) -> Flop:
    """Each pair adds to the gradients of both vectors, with opposite signs."""
    if p == 0 or not pdist.elements:
        return Flop(elements=untouched(*_gradients(others), "self", "pdist"))
    pairs, size = pdist.elements, self.shape[-1]
    return distances_backward(pairs, size, p, 2 * pairs * size - self.elements)
