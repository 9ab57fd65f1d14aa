"""Backward of the distances between all pairs of vectors, with respect to the vectors."""

from __future__ import annotations

import math
from typing import Any

from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


def _distances(pairs: int, size: int, p: float, sums: int) -> Flop:
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
def cdist(
    x1: TensorSpec, x2: TensorSpec, p: float, cdist: TensorSpec, output: TensorSpec, **_: Any
) -> Flop:
    """With respect to the first set: each of its vectors sums over all of the second."""
    if p == 0 or not output.elements:
        return Flop(elements=dict.fromkeys(("grad", "x1", "x2", "cdist"), 0))
    pairs, size = cdist.elements, x2.shape[-1]
    return _distances(pairs, size, p, max(0, pairs * size - output.elements))


@formula(
    "aten._pdist_backward", type="distance", byte="order 0 reads nothing: its gradient is zero"
)
def pdist(self: TensorSpec, p: float, pdist: TensorSpec, **_: Any) -> Flop:
    """Each pair adds to the gradient of either vector: with the sign changed to the second's."""
    if p == 0 or not pdist.elements:
        return Flop(elements=dict.fromkeys(("grad", "self", "pdist"), 0))
    size = self.shape[-1]
    return _distances(pdist.elements, size, p, 2 * pdist.elements * size - self.elements)
