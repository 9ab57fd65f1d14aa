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


def rows_along(spec: TensorSpec, dim: int) -> int:
    """How many rows `spec` has along its dimension `dim`; none if there is nothing in them."""
    if not spec.elements:
        return 0
    return spec.elements // spec.shape[dim] if spec.shape else 1


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


@formula("aten.median", "aten.nanmedian", "aten.kthvalue")
def selection(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """n - 1 comparisons: what every method takes. How many more depends on the values."""
    operations = max(0, self.elements - _first(output).elements)
    return Flop(other=operations if floats(self) else 0)


@formula("aten.bucketize")
def bucketize(self: TensorSpec, boundaries: TensorSpec, **_: Any) -> Flop:
    """A bisection for each element: ceil(log2(n + 1)) comparisons; no method takes less than 1."""
    return _bisection(self, boundaries, boundaries.elements)


@formula("aten.searchsorted")
def searchsorted(sorted_sequence: TensorSpec, self: Any, **_: Any) -> Flop:
    """As `bucketize`, with boundaries of its own for each row of elements, or one for all."""
    size = sorted_sequence.shape[-1] if sorted_sequence.shape else 1
    return _bisection(self, sorted_sequence, size)


def _bisection(values: Any, boundaries: TensorSpec, size: int) -> Flop:
    elements = values.elements if isinstance(values, TensorSpec) else 1
    if not floats(values, boundaries) or not size:
        return Flop()
    return Flop(other=elements * math.ceil(math.log2(size + 1)), least=elements)


@formula("aten.histc")
def histogram(self: TensorSpec, min: float = 0, max: float = 0, **_: Any) -> Flop:
    """Two comparisons with the range, a subtraction and a multiplication for the number of the bin.

    Two comparisons more where the range must be found, which is so if both its ends are the same.
    """
    each = 4 + 2 * (min == max)
    return Flop(other=each * self.elements, least=self.elements) if floats(self) else Flop()


@formula("aten.trace")
def trace(self: TensorSpec, **_: Any) -> Flop:
    """The diagonal's n - 1 additions; nothing else is read."""
    diagonal = min(self.shape)
    return Flop(other=max(0, diagonal - 1) if floats(self) else 0, elements={"self": diagonal})


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
def vector_norm(self: TensorSpec, output: TensorSpec, ord: float = 2, **_: Any) -> Flop:
    """2: a square an element, their sum, a root. 1 and infinity: magnitudes, and their fold.

    0: which are not zero, and their sum. Any other order takes a magnitude and a power an element,
    their sum, and a power.
    """
    folds = max(0, self.elements - output.elements)
    if ord == 2:
        return Flop(other=self.elements + folds + output.elements)
    if ord in (0, 1) or math.isinf(ord):
        return Flop(other=self.elements + folds)
    powers = self.elements + output.elements
    return Flop(
        other=self.elements + folds + TRANSCENDENTAL_FLOP * powers,
        least=self.elements + folds + powers,
    )


@formula("aten.norm")
def norm(self: TensorSpec, output: TensorSpec, p: float | None = 2, **_: Any) -> Flop:
    """As `vector_norm`."""
    return vector_norm(self, output, 2 if p is None else p)


@formula("aten.logsumexp")
def logsumexp(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """max + log(sum(exp(x - max))): n - 1 comparisons, n subtractions and exponentials, …"""
    folds = 2 * max(0, self.elements - output.elements)
    transcendental = self.elements + output.elements
    simple = folds + self.elements + output.elements
    return Flop(other=simple + TRANSCENDENTAL_FLOP * transcendental, least=simple + transcendental)


@formula("aten.logcumsumexp")
def log_scan(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """max + log1p(exp(-|x - y|)) for each element but the first along `dim`, as `logaddexp`."""
    steps = self.elements - rows_along(self, dim)
    return Flop(other=steps * (5 + 2 * TRANSCENDENTAL_FLOP), least=steps * (5 + 2))


@formula("aten.cumsum", "aten.cumprod", "aten.cummax", "aten.cummin")
def scan(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One operation for each element but the first along `dim`."""
    return Flop(other=self.elements - rows_along(self, dim) if floats(self) else 0)


def _comparisons(self: TensorSpec, dim: int, each: int) -> Flop:
    """`each` comparisons an element; no kernel takes fewer than n - 1 for a row of n."""
    if not floats(self):
        return Flop()
    return Flop(other=self.elements * each, least=self.elements - rows_along(self, dim))


@formula("aten.sort", "aten.argsort")
def sort(self: TensorSpec, dim: int = -1, **_: Any) -> Flop:
    """Merging n elements takes ceil(log2 n) rounds, with a comparison an element in each."""
    size = self.shape[dim] if self.shape else 1
    return _comparisons(self, dim, math.ceil(math.log2(max(size, 1))))


@formula("aten.topk")
def topk(self: TensorSpec, k: int, dim: int = -1, **_: Any) -> Flop:
    """Each element goes through a heap of the k best: ceil(log2 (k + 1)) comparisons."""
    return _comparisons(self, dim, math.ceil(math.log2(k + 1)))
