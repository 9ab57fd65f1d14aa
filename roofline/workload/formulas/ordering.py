"""Sorting, sets, histograms.

The number of comparisons depends on the values; each formula states its convention. Hash tables
find equal values without comparing numbers, so the minimum may be 0.
"""

from __future__ import annotations

import math
from typing import Any

from roofline.workload.formulas.costs import has_floats
from roofline.workload.formulas.reduction import folds, rows_along, scan_steps
from roofline.workload.formulas.registry import Flop, Tensors, formula, table
from roofline.workload.tensors import TensorSpec as Tensor


def merge_rounds(size: int) -> int:
    """Rounds of a merge sort: ceil(log2 size)."""
    return math.ceil(math.log2(max(size, 1)))


def bisection_steps(size: int) -> int:
    """Comparisons that locate a value among `size` numbers."""
    return math.ceil(math.log2(size + 1))


_BISECTED = "the boundaries that a bisection reads; minimum: one per row"


@formula("aten.bucketize", byte=_BISECTED)
def bucketize(self: Any, boundaries: Tensor, **_: Any) -> Flop:
    """A bisection per element: ceil(log2(n + 1)) comparisons; the minimum is 1."""
    return _bisection(self, 1, boundaries=boundaries)


@formula("aten.searchsorted", byte=_BISECTED)
def searchsorted(
    sorted_sequence: Tensor, self: Any, sorter: Tensor | None = None, **_: Any
) -> Flop:
    """As aten.bucketize, with boundaries per row of elements, or one set for all."""
    rows = math.prod(sorted_sequence.shape[:-1])
    return _bisection(self, rows, sorted_sequence=sorted_sequence, sorter=sorter)


def _bisection(values: Any, rows: int, **boundaries: Tensor | None) -> Flop:
    """Count bisections; all values of a row may take the same path."""
    given = {name: each for name, each in boundaries.items() if each is not None}
    numbers = next(iter(given.values()))
    count = values.elements if isinstance(values, Tensor) else 1
    size = numbers.shape[-1] if numbers.shape else 1
    if not size or not count:
        return Flop()
    looked_at = count * bisection_steps(size)
    is_counted = has_floats(values, numbers)
    return Flop(
        other=is_counted * looked_at,
        least=is_counted * count,
        elements=dict.fromkeys(given, looked_at),
        min_elements=dict.fromkeys(given, rows),
    )


def _comparisons(each: int, self: Tensor, dim: int = -1, **_: Any) -> Flop:
    """Count `each` comparisons per element; the minimum is n - 1 for a row of n."""
    if not has_floats(self):
        return Flop()
    return Flop(other=self.elements * each, least=scan_steps(self, dim))


def size_along(self: Tensor, dim: int) -> int:
    return self.shape[dim] if self.shape else 1


@formula("aten.sort", "aten.argsort")
def sort(self: Tensor, dim: int = -1, **_: Any) -> Flop:
    """A merge sort: ceil(log2 n) rounds, with a comparison per element in each."""
    return _comparisons(merge_rounds(size_along(self, dim)), self, dim)


table(
    """
aten.topk = bisection_steps(k)
    A heap of the k best: ceil(log2 (k + 1)) comparisons per element.
""",
    _comparisons,
)


def _of_values(operations: int, self: Tensor, **_: Any) -> Flop:
    return Flop(other=operations if has_floats(self) else 0, least=0)


def unique_flop(slices: int, each: int = 1) -> int:
    """Slices sorted, then each compared with the previous one, element by element."""
    return each * (slices * merge_rounds(slices) + max(0, slices - 1))


table(
    """
aten.mode = self.elements * merge_rounds(size_along(self, dim)) + scan_steps(self, dim)
    The row sorted, then each element compared with the previous one.
aten._unique aten._unique2 = unique_flop(self.elements)
    All sorted, then each compared with the previous one.
aten.unique_dim = unique_flop(size_along(self, dim), self.elements // max(1, size_along(self, dim)))
    The slices sorted, then each compared with the previous one, element by element.
aten.unique_consecutive
aten.unique_dim_consecutive = max(0, self.elements - (1 if dim is None else rows_along(self, dim)))
    Each element but the first, or each slice, compared with the previous one.
""",
    _of_values,
    names={"rows_along": rows_along},
)


def count_points(operations: int, self: Tensor, output: Tensor, weight: Any, density: bool) -> Flop:
    """Count points of several numbers, with an addition per weight, and a density."""
    weights = math.prod(self.shape[:-1]) if weight is not None else 0
    return Flop(other=operations + weights + 4 * density * output.elements, least=0)


table(
    """
aten.median aten.nanmedian aten.kthvalue = has_floats(self) * folds(self, output)
    n - 1 comparisons, the minimum of every method; more depend on the values.
aten.bincount = Flop(other=self.elements if has_floats(weights) else 0, least=0)
    1 addition per weight; integers are counted without FLOP.
aten._histogramdd_from_bin_cts = count_points(4 * self.elements, self, output, weight, density)
    As aten.histogram per number of a point, the weight once per point.
aten._histogramdd_bin_edges = Flop(other=0 if range is not None else 2 * self.elements, least=0)
    2 comparisons per element to find the range, if not given; the edges are few.
""",
    names={"folds": folds},
)
table(
    """
aten.nonzero aten.nonzero_static = 0
    Positions are written; tests of bit patterns are not FLOP.
""",
    type="data movement",
)


@formula("aten.histc")
def histogram(self: Tensor, min: float = 0, max: float = 0, **_: Any) -> Flop:
    """2 comparisons with the range, a subtraction and a multiplication for the bin number.

    2 more comparisons to find the range, if both its ends are equal.
    """
    each = 4 + 2 * (min == max)
    return Flop(other=each * self.elements, least=self.elements) if has_floats(self) else Flop()


@formula("aten.isin")
def isin(elements: Any = None, test_elements: Any = None, **arguments: Any) -> Flop:
    """The tests sorted, then a bisection per element; a single test is compared with each."""
    tests = test_elements if test_elements is not None else arguments.get("test_element")
    count, size = (each.elements if isinstance(each, Tensor) else 1 for each in (elements, tests))
    if not has_floats(elements, tests) or not size:
        return Flop()
    return Flop(other=size * merge_rounds(size) + count * bisection_steps(size), least=0)


@formula("aten.histogram")
def histogram_with_edges(
    self: Tensor,
    output: Tensors,
    bins: Any = 100,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
    **_: Any,
) -> Flop:
    """As aten.histc; with given edges, a bisection per element. A weight adds 1.

    A density takes the sum of all bins, and two divisions each: by the sum, and by the width.
    """
    each = merge_rounds(bins.elements) if isinstance(bins, Tensor) else 4 + 2 * (range is None)
    each += weight is not None
    return Flop(other=each * self.elements + 4 * density * output[0].elements, least=0)


@formula("aten._histogramdd_from_bin_tensors")
def histogram_of_points_with_edges(
    self: Tensor, bins: Tensors, output: Tensor, weight: Any, density: bool = False, **_: Any
) -> Flop:
    """As aten._histogramdd_from_bin_cts, by a bisection of the edges per number."""
    points = self.elements // max(1, len(bins))
    operations = points * sum(merge_rounds(each.elements) for each in bins)
    return count_points(operations, self, output, weight, density)
