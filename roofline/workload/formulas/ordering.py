"""Order and number of values: sorting, sets, histograms.

How many comparisons a method takes depends on the values; what is counted is said at each. A hash
table finds what is equal without comparing numbers, so that the least may be nothing.
"""

from __future__ import annotations

import math
from typing import Any

from roofline.workload.formulas.costs import floats
from roofline.workload.formulas.reduction import joined, rows_along, steps
from roofline.workload.formulas.registry import Flop, Tensors, formula, table
from roofline.workload.tensors import TensorSpec as Tensor


def rounds(size: int) -> int:
    """Of merging: ceil(log2 size)."""
    return math.ceil(math.log2(max(size, 1)))


def bisections(size: int) -> int:
    """Comparisons that find a place among `size` numbers."""
    return math.ceil(math.log2(size + 1))


_BISECTED = "of the boundaries, what a bisection reads; minimum: one a row"


@formula("aten.bucketize", byte=_BISECTED)
def bucketize(self: Any, boundaries: Tensor, **_: Any) -> Flop:
    """A bisection for each element: ceil(log2(n + 1)) comparisons; no method takes less than 1."""
    return _bisection(self, 1, boundaries=boundaries)


@formula("aten.searchsorted", byte=_BISECTED)
def searchsorted(
    sorted_sequence: Tensor, self: Any, sorter: Tensor | None = None, **_: Any
) -> Flop:
    """As `bucketize`, with boundaries of its own for each row of elements, or one for all."""
    rows = math.prod(sorted_sequence.shape[:-1])
    return _bisection(self, rows, sorted_sequence=sorted_sequence, sorter=sorter)


def _bisection(values: Any, rows: int, **boundaries: Tensor | None) -> Flop:
    """How many of the values go the same way is not known: it may be all those of a row."""
    given = {name: each for name, each in boundaries.items() if each is not None}
    numbers = next(iter(given.values()))
    count = values.elements if isinstance(values, Tensor) else 1
    size = numbers.shape[-1] if numbers.shape else 1
    if not size or not count:
        return Flop()
    looked_at = count * bisections(size)
    is_counted = floats(values, numbers)
    return Flop(
        other=is_counted * looked_at,
        least=is_counted * count,
        elements=dict.fromkeys(given, looked_at),
        min_elements=dict.fromkeys(given, rows),
    )


def _comparisons(each: int, self: Tensor, dim: int = -1, **_: Any) -> Flop:
    """`each` comparisons an element; no kernel takes fewer than n - 1 for a row of n."""
    if not floats(self):
        return Flop()
    return Flop(other=self.elements * each, least=steps(self, dim))


def along(self: Tensor, dim: int) -> int:
    """Its size along a dimension."""
    return self.shape[dim] if self.shape else 1


@formula("aten.sort", "aten.argsort")
def sort(self: Tensor, dim: int = -1, **_: Any) -> Flop:
    """Merging n elements takes ceil(log2 n) rounds, with a comparison an element in each."""
    return _comparisons(rounds(along(self, dim)), self, dim)


table(
    """
aten.topk = bisections(k)
    Each element goes through a heap of the k best: ceil(log2 (k + 1)) comparisons.
""",
    _comparisons,
)


def _of_values(operations: int, self: Tensor, **_: Any) -> Flop:
    return Flop(other=operations if floats(self) else 0, least=0)


def distinct(slices: int, each: int = 1) -> int:
    """So many slices sorted, then each compared with the one before, element by element."""
    return each * (slices * rounds(slices) + max(0, slices - 1))


table(
    """
aten.mode = self.elements * rounds(along(self, dim)) + steps(self, dim)
    The row sorted, then each of its elements compared with the one before.
aten._unique aten._unique2 = distinct(self.elements)
    All sorted, then each compared with the one before.
aten.unique_dim = distinct(along(self, dim), self.elements // max(1, along(self, dim)))
    The slices sorted, then each compared with the one before, element by element.
aten.unique_consecutive
aten.unique_dim_consecutive = max(0, self.elements - (1 if dim is None else rows_along(self, dim)))
    Each element but the first, or each slice, compared with the one before.
""",
    _of_values,
    names={"rows_along": rows_along},
)


def of_points(operations: int, self: Tensor, output: Tensor, weight: Any, density: bool) -> Flop:
    """Points of several numbers: an addition of a weight, and a density, besides."""
    weights = math.prod(self.shape[:-1]) if weight is not None else 0
    return Flop(other=operations + weights + 4 * density * output.elements, least=0)


table(
    """
aten.median aten.nanmedian aten.kthvalue = floats(self) * joined(self, output)
    n - 1 comparisons: what every method takes. How many more depends on the values.
aten.bincount = Flop(other=self.elements if floats(weights) else 0, least=0)
    Integers are counted; a weight is an addition.
aten._histogramdd_from_bin_cts = of_points(4 * self.elements, self, output, weight, density)
    Points of several numbers: each as in `histogram_with_edges`, the weight once a point.
aten._histogramdd_bin_edges = Flop(other=0 if range is not None else 2 * self.elements, least=0)
    Two comparisons an element where the range must be found; the edges themselves are few.
""",
    names={"joined": joined},
)
table(
    """
aten.nonzero aten.nonzero_static = 0
    Places are written; what a bit pattern says is no arithmetic.
""",
    type="data movement",
)


@formula("aten.histc")
def histogram(self: Tensor, min: float = 0, max: float = 0, **_: Any) -> Flop:
    """Two comparisons with the range, a subtraction and a multiplication for the number of the bin.

    Two comparisons more where the range must be found, which is so if both its ends are the same.
    """
    each = 4 + 2 * (min == max)
    return Flop(other=each * self.elements, least=self.elements) if floats(self) else Flop()


@formula("aten.isin")
def isin(elements: Any = None, test_elements: Any = None, **arguments: Any) -> Flop:
    """The tests sorted, then a bisection for each element; a single test is compared with each."""
    tests = test_elements if test_elements is not None else arguments.get("test_element")
    count, size = (each.elements if isinstance(each, Tensor) else 1 for each in (elements, tests))
    if not floats(elements, tests) or not size:
        return Flop()
    return Flop(other=size * rounds(size) + count * bisections(size), least=0)


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
    """As `histogram`; with edges of one's own, a bisection an element. A weight is an addition.

    A density takes the sum of all bins, and two divisions each: by the sum, and by their width.
    """
    each = rounds(bins.elements) if isinstance(bins, Tensor) else 4 + 2 * (range is None)
    each += weight is not None
    return Flop(other=each * self.elements + 4 * density * output[0].elements, least=0)


@formula("aten._histogramdd_from_bin_tensors")
def histogram_of_points_with_edges(
    self: Tensor, bins: Tensors, output: Tensor, weight: Any, density: bool = False, **_: Any
) -> Flop:
    """As `histogram_of_points`, by a bisection of the edges for each number."""
    points = self.elements // max(1, len(bins))
    operations = points * sum(rounds(each.elements) for each in bins)
    return of_points(operations, self, output, weight, density)
