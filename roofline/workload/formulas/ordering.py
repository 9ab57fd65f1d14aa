"""Order and number of values: sorting, sets, histograms.

How many comparisons a method takes depends on the values; what is counted is said at each. A hash
table finds what is equal without comparing numbers, so that the least may be nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from roofline.workload.formulas.pointwise import floats
from roofline.workload.formulas.reduction import first, rows_along
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula("aten.median", "aten.nanmedian", "aten.kthvalue", type="reduction")
def selection(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """n - 1 comparisons: what every method takes. How many more depends on the values."""
    operations = max(0, self.elements - first(output).elements)
    return Flop(other=operations if floats(self) else 0)


_BISECTED = "of the boundaries, what a bisection reads; minimum: one a row"


@formula("aten.bucketize", type="reduction", byte=_BISECTED)
def bucketize(self: Any, boundaries: TensorSpec, **_: Any) -> Flop:
    """A bisection for each element: ceil(log2(n + 1)) comparisons; no method takes less than 1."""
    return _bisection(self, {"boundaries": boundaries}, 1)


@formula("aten.searchsorted", type="reduction", byte=_BISECTED)
def searchsorted(
    sorted_sequence: TensorSpec, self: Any, sorter: TensorSpec | None = None, **_: Any
) -> Flop:
    """As `bucketize`, with boundaries of its own for each row of elements, or one for all."""
    rows = math.prod(sorted_sequence.shape[:-1])
    return _bisection(self, {"sorted_sequence": sorted_sequence, "sorter": sorter}, rows)


def _bisection(values: Any, boundaries: Mapping[str, TensorSpec | None], rows: int) -> Flop:
    """How many of the values go the same way is not known: it may be all those of a row."""
    given = {name: each for name, each in boundaries.items() if each is not None}
    numbers = next(iter(given.values()))
    values_count = values.elements if isinstance(values, TensorSpec) else 1
    size = numbers.shape[-1] if numbers.shape else 1
    if not size or not values_count:
        return Flop()
    looked_at = values_count * math.ceil(math.log2(size + 1))
    is_counted = floats(values, numbers)
    return Flop(
        other=looked_at if is_counted else 0,
        least=values_count if is_counted else 0,
        elements=dict.fromkeys(given, looked_at),
        min_elements=dict.fromkeys(given, rows),
    )


@formula("aten.histc", type="reduction")
def histogram(self: TensorSpec, min: float = 0, max: float = 0, **_: Any) -> Flop:
    """Two comparisons with the range, a subtraction and a multiplication for the number of the bin.

    Two comparisons more where the range must be found, which is so if both its ends are the same.
    """
    each = 4 + 2 * (min == max)
    return Flop(other=each * self.elements, least=self.elements) if floats(self) else Flop()


def _comparisons(self: TensorSpec, dim: int, each: int) -> Flop:
    """`each` comparisons an element; no kernel takes fewer than n - 1 for a row of n."""
    if not floats(self):
        return Flop()
    return Flop(other=self.elements * each, least=self.elements - rows_along(self, dim))


@formula("aten.sort", "aten.argsort", type="reduction")
def sort(self: TensorSpec, dim: int = -1, **_: Any) -> Flop:
    """Merging n elements takes ceil(log2 n) rounds, with a comparison an element in each."""
    size = self.shape[dim] if self.shape else 1
    return _comparisons(self, dim, math.ceil(math.log2(max(size, 1))))


@formula("aten.topk", type="reduction")
def topk(self: TensorSpec, k: int, dim: int = -1, **_: Any) -> Flop:
    """Each element goes through a heap of the k best: ceil(log2 (k + 1)) comparisons."""
    return _comparisons(self, dim, math.ceil(math.log2(k + 1)))


def _rounds(size: int) -> int:
    """Of merging: ceil(log2 size)."""
    return math.ceil(math.log2(max(size, 1)))


@formula("aten.mode", type="reduction")
def mode(self: TensorSpec, dim: int = -1, **_: Any) -> Flop:
    """The row sorted, then each of its elements compared with the one before."""
    size = self.shape[dim] if self.shape else 1
    rows = rows_along(self, dim)
    if not floats(self):
        return Flop()
    return Flop(other=self.elements * _rounds(size) + self.elements - rows, least=0)


@formula("aten._unique", "aten._unique2", type="reduction")
def unique(self: TensorSpec, **_: Any) -> Flop:
    """All sorted, then each compared with the one before."""
    size = self.elements
    operations = size * _rounds(size) + max(0, size - 1)
    return Flop(other=operations if floats(self) else 0, least=0)


@formula("aten.unique_dim", type="reduction")
def unique_slices(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """The slices sorted, then each compared with the one before, element by element."""
    size = self.shape[dim] if self.shape else 1
    each = self.elements // size if size else 0
    operations = each * (size * _rounds(size) + max(0, size - 1))
    return Flop(other=operations if floats(self) else 0, least=0)


@formula("aten.unique_consecutive", "aten.unique_dim_consecutive", type="reduction")
def unique_in_order(self: TensorSpec, dim: int | None = None, **_: Any) -> Flop:
    """Each element but the first, or each slice, compared with the one before."""
    first_slice = 1 if dim is None else rows_along(self, dim)
    operations = max(0, self.elements - first_slice)
    return Flop(other=operations if floats(self) else 0, least=0)


@formula("aten.isin", type="reduction")
def isin(elements: Any = None, test_elements: Any = None, **arguments: Any) -> Flop:
    """The tests sorted, then a bisection for each element; a single test is compared with each."""
    tests = test_elements if test_elements is not None else arguments.get("test_element")
    if not floats(elements, tests):
        return Flop()
    count, size = (
        each.elements if isinstance(each, TensorSpec) else 1 for each in (elements, tests)
    )
    if not size:
        return Flop()
    return Flop(other=size * _rounds(size) + count * math.ceil(math.log2(size + 1)), least=0)


@formula("aten.bincount", type="reduction")
def bincount(self: TensorSpec, weights: TensorSpec | None = None, **_: Any) -> Flop:
    """Integers are counted; a weight is an addition."""
    return Flop(other=self.elements if floats(weights) else 0, least=0)


@formula("aten.histogram", type="reduction")
def histogram_with_edges(
    self: TensorSpec,
    output: Sequence[TensorSpec],
    bins: Any = 100,
    range: Sequence[float] | None = None,
    weight: TensorSpec | None = None,
    density: bool = False,
    **_: Any,
) -> Flop:
    """As `histogram`; with edges of one's own, a bisection an element. A weight is an addition.

    A density takes the sum of all bins, and two divisions each: by the sum, and by their width.
    """
    if isinstance(bins, TensorSpec):
        each = math.ceil(math.log2(max(bins.elements, 1)))
    else:
        each = 4 + 2 * (range is None)
    each += weight is not None
    return Flop(other=each * self.elements + 4 * density * output[0].elements, least=0)


@formula("aten._histogramdd_from_bin_cts", type="reduction")
def histogram_of_points(self: TensorSpec, output: TensorSpec, **arguments: Any) -> Flop:
    """Points of several numbers: each as in `histogram_with_edges`, the weight once a point."""
    return _of_points(self, output, arguments, 4 * self.elements)


@formula("aten._histogramdd_from_bin_tensors", type="reduction")
def histogram_of_points_with_edges(
    self: TensorSpec, bins: Sequence[TensorSpec], output: TensorSpec, **arguments: Any
) -> Flop:
    """As `histogram_of_points`, by a bisection of the edges for each number."""
    points = self.elements // max(1, len(bins))
    rounds = sum(math.ceil(math.log2(max(each.elements, 1))) for each in bins)
    return _of_points(self, output, arguments, points * rounds)


def _of_points(
    self: TensorSpec, output: TensorSpec, arguments: dict[str, Any], operations: int
) -> Flop:
    points = math.prod(self.shape[:-1])
    operations += points if arguments.get("weight") is not None else 0
    operations += 4 * output.elements if arguments.get("density") else 0
    return Flop(other=operations, least=0)


@formula("aten._histogramdd_bin_edges", type="reduction")
def edges_of_bins(self: TensorSpec, range: Sequence[float] | None = None, **_: Any) -> Flop:
    """Two comparisons an element where the range must be found; the edges themselves are few."""
    return Flop(other=0 if range is not None else 2 * self.elements, least=0)


@formula("aten.nonzero", "aten.nonzero_static", type="data movement")
def nonzero(**_: Any) -> Flop:
    """Places are written; what a bit pattern says is no arithmetic."""
    return Flop()
