"""Distances between all pairs of vectors."""

from __future__ import annotations

import math
from typing import Any

from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


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
