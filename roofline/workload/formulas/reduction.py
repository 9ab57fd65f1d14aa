"""Reductions: n elements made one take n - 1 operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _first(output: TensorSpec | Sequence[TensorSpec]) -> TensorSpec:
    return output if isinstance(output, TensorSpec) else output[0]


@formula(
    *("aten.sum", "aten.amax", "aten.amin", "aten.max", "aten.min", "aten.argmax", "aten.argmin"),
    *("aten.prod", "aten.nansum"),
)
def fold(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """One addition, multiplication or comparison for each element but the first of each result."""
    operations = max(0, self.elements - _first(output).elements)
    return Flop(other=operations if floats(self) else 0)


@formula("aten.any", "aten.all", "aten.count_nonzero")
def logic_fold(**_: Any) -> Flop:
    """Logic is no floating-point arithmetic."""
    return Flop()


@formula("aten.mean")
def mean(self: TensorSpec, **_: Any) -> Flop:
    """n - 1 additions and a division for each result."""
    return Flop(other=self.elements)


@formula("aten.var", "aten.var_mean")
def variance(self: TensorSpec, **_: Any) -> Flop:
    """The mean, then a subtraction and a square an element, then the mean of those: 4 n."""
    return Flop(other=4 * self.elements)


@formula("aten.std", "aten.std_mean")
def deviation(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """The root of each variance."""
    return Flop(other=4 * self.elements + _first(output).elements)


@formula("aten.linalg_vector_norm")
def norm(self: TensorSpec, output: TensorSpec, ord: float = 2, **_: Any) -> Flop:
    """2: a square an element, their sum, a root. 1 and infinity: magnitudes, and their fold.

    Any other order takes a magnitude and a power an element, their sum, and a power.
    """
    folds = max(0, self.elements - output.elements)
    if ord == 2:
        return Flop(other=self.elements + folds + output.elements)
    if ord == 1 or math.isinf(ord):
        return Flop(other=self.elements + folds)
    powers = self.elements + output.elements
    return Flop(
        other=self.elements + folds + TRANSCENDENTAL_FLOP * powers,
        least=self.elements + folds + powers,
    )


@formula("aten.logsumexp")
def logsumexp(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """max + log(sum(exp(x - max))): n - 1 comparisons, n subtractions and exponentials, …"""
    folds = 2 * max(0, self.elements - output.elements)
    transcendental = self.elements + output.elements
    simple = folds + self.elements + output.elements
    return Flop(other=simple + TRANSCENDENTAL_FLOP * transcendental, least=simple + transcendental)


@formula("aten.cumsum", "aten.cumprod", "aten.cummax", "aten.cummin")
def scan(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One operation for each element but the first along `dim`."""
    rows = self.elements // self.shape[dim] if self.shape else 1
    return Flop(other=self.elements - rows if floats(self) else 0)


def _comparisons(self: TensorSpec, dim: int, each: int) -> Flop:
    """`each` comparisons an element; no kernel takes fewer than n - 1 for a row of n."""
    if not floats(self):
        return Flop()
    rows = self.elements // self.shape[dim] if self.shape else self.elements
    return Flop(other=self.elements * each, least=self.elements - rows)


@formula("aten.sort", "aten.argsort")
def sort(self: TensorSpec, dim: int = -1, **_: Any) -> Flop:
    """Merging n elements takes ceil(log2 n) rounds, with a comparison an element in each."""
    size = self.shape[dim] if self.shape else 1
    return _comparisons(self, dim, math.ceil(math.log2(max(size, 1))))


@formula("aten.topk")
def topk(self: TensorSpec, k: int, dim: int = -1, **_: Any) -> Flop:
    """Each element goes through a heap of the k best: ceil(log2 (k + 1)) comparisons."""
    return _comparisons(self, dim, math.ceil(math.log2(k + 1)))


@formula("aten._weight_norm_interface", type="normalization")
def weight_norm(v: TensorSpec, g: TensorSpec, **_: Any) -> Flop:
    """v * (g / |v|): the 2-norm of each slice, a division for each, a multiplication an element."""
    return Flop(other=3 * v.elements + g.elements)
