"""Lower bound on the work of merged linear maps, parallel and consecutive.

A group is a graph: values, and maps with constant weights between them. A merged map multiplies
wherever an output depends on an input, and applies each of its weights at no more places than the
maps it replaces. Hence, after any merging, the product that reads a given value and the one that
produces a kept value are at least as large as the smallest possible product along some path of the
graph. Products in between count nothing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from roofline.workload.formulas.convolution import Dimension
from roofline.workload.work import FLOP_PER_MAC


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A product with constant weights, as a map of ``inputs`` to ``outputs`` elements.

    ``fan_in`` and ``max_in`` are the minimum and maximum of inputs per output, ``fan_out`` and
    ``max_out`` of outputs per input.
    """

    flop: int
    weight_bytes: int
    inputs: int
    outputs: int
    fan_in: int
    max_in: int
    fan_out: int
    max_out: int

    @cached_property
    def reverse(self) -> LinearMap:
        fans = (self.fan_out, self.max_out, self.fan_in, self.max_in)
        return LinearMap(self.flop, self.weight_bytes, self.outputs, self.inputs, *fans)

    def followed_by(self, behind: Edge, size: int) -> LinearMap:
        """Return the smallest merge of this map and a reader of its result of `size` elements.

        This map may produce only part of the value, and the reader may read another.
        """
        carried = min(self.outputs, max(0, self.outputs + behind.inputs - size))
        # Unless all is read, some inputs may lead to unread elements only.
        lost = self.outputs - carried
        fan_out = 0 if lost else self.fan_out
        pairs = max(self.fan_in * carried, self.flop // FLOP_PER_MAC - self.max_in * lost)
        if not isinstance(behind, LinearMap):
            if not lost:
                return self
            return replace(self, flop=FLOP_PER_MAC * pairs, outputs=carried, fan_out=fan_out)
        # Paths to the same results count once.
        reached = -(-carried * behind.fan_out // max(1, behind.max_in))
        if carried >= behind.inputs and behind.fan_in:
            reached = behind.outputs
        fan_out = min(1, fan_out) * behind.fan_out
        pairs = pairs * behind.fan_out // max(1, behind.max_in)
        return replace(
            self,
            flop=FLOP_PER_MAC * max(self.fan_in * reached, self.inputs * fan_out, pairs),
            outputs=reached,
            fan_out=fan_out,
            max_in=self.max_in * behind.max_in,
        )


@dataclass(frozen=True, slots=True)
class Link:
    """Elements passed from value to value without a product (upper limit)."""

    inputs: int


Edge = LinearMap | Link


def matrix_map(flop: int, weight_bytes: int, inputs: int, outputs: int) -> LinearMap:
    """Return a matrix product: all elements of an output row depend on all of an input row."""
    fan_in, fan_out = (flop // (FLOP_PER_MAC * size) for size in (outputs, inputs))
    return LinearMap(flop, weight_bytes, inputs, outputs, fan_in, fan_in, fan_out, fan_out)


def convolution_map(
    flop: int,
    weight_bytes: int,
    inputs: int,
    outputs: int,
    *,
    channels: tuple[int, int],
    dimensions: Sequence[Dimension],
) -> LinearMap:
    """Return a convolution; `channels` are a group's: of the results, and under the windows."""
    reach = [_reach(*each) for each in dimensions]
    fan_in, max_in, fan_out, max_out = (math.prod(each) for each in zip(*reach, strict=True))
    above, under = channels
    fans = (under * fan_in, under * max_in, above * fan_out, above * max_out)
    return LinearMap(flop, weight_bytes, inputs, outputs, *fans)


@lru_cache(maxsize=1000)
def _reach(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> tuple[int, ...]:
    """Minimum and maximum of places per window, and of windows per place, along a dimension."""
    pairs = [
        (window, place)
        for window in range(windows)
        for tap in range(kernel)
        if 0 <= (place := window * stride - padding + tap * dilation) < size
    ]
    found: list[int] = []
    for counts, of in (
        (Counter(window for window, _ in pairs), windows),
        (Counter(place for _, place in pairs), size),
    ):
        # Missing ones count as 0.
        fewest = min(counts.values()) if len(counts) == of else 0
        found += (fewest, max(counts.values(), default=0))
    return tuple(found)


Adjacency = Mapping[int, Sequence[tuple[int, Edge]]]
"""Neighbors of each value: its sources, or its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Values in order of computation, with their incoming edges.

    Values without edges are given; those with equal `roots` are parts of each other. ``kept`` are
    those that something else reads; ``sizes`` are the elements of computed values.
    """

    edges: Adjacency
    kept: frozenset[int]
    sizes: Mapping[int, int]
    roots: Mapping[int, int]


def min_merged_work(group: Group) -> tuple[int, int]:
    """Return the minimum FLOP of a group, and the bytes of their weights, after any merging.

    Of all paths from a given value, one product counts. Of all products before a kept value, one
    counts too, minus the product already counted for the given value at the start of its path.
    """
    readers: dict[int, list[tuple[int, Edge]]] = defaultdict(list)
    makers: dict[int, list[tuple[int, Edge]]] = defaultdict(list)
    products: list[tuple[int, int, LinearMap]] = []
    for value, edges in group.edges.items():
        for far, edge in edges:
            readers[far].append((value, edge))
            makers[value].append((far, edge.reverse if isinstance(edge, LinearMap) else edge))
            if isinstance(edge, LinearMap) and edge.flop:
                products.append((far, value, edge))
    order = list(group.edges)
    flop, weight_bytes = Counter[tuple[str, int]](), Counter[tuple[str, int]]()

    def count(place: tuple[str, int], product: LinearMap, least: Iterable[int]) -> None:
        most = max(least, default=0)
        byte = product.weight_bytes * most // product.flop
        flop[place], weight_bytes[place] = max(flop[place], most), max(weight_bytes[place], byte)

    for far, value, product in products:
        if far not in group.edges:
            found = _propagated(value, product, readers, order, group.sizes)
            held = (found[each][0] for each in group.kept & found.keys())
            count(("first", group.roots[far]), product, held)
    ends = _kept_ends(group, readers)
    for far, value, product in products:
        if far in group.edges and value in ends:
            found = _propagated(far, product.reverse, makers, order[::-1], group.sizes)
            held = (
                min(taken, whole.flop - flop["first", group.roots[each]])
                for each, (taken, whole) in found.items()
                if each not in group.edges
            )
            count(("last", ends[value]), product, held)
    return flop.total(), weight_bytes.total()


def _propagated(
    start: int, first: LinearMap, ways: Adjacency, order: Sequence[int], sizes: Mapping[int, int]
) -> dict[int, tuple[int, LinearMap]]:
    """Return the FLOP that a product keeps on the path to each value, and the merged path.

    The FLOP are the minimum along a path; of several paths, the one with most counts.
    """
    found = {start: (first.flop, first)}
    for value in order:
        if value in found:
            least, whole = found[value]
            for far, edge in ways.get(value, ()):
                merged = whole.followed_by(edge, sizes[value])
                taken = min(least, merged.flop)
                if far not in found or taken > found[far][0]:
                    found[far] = taken, merged
    return found


def _kept_ends(group: Group, readers: Adjacency) -> dict[int, int]:
    """Kept value by value, if all of the latter reaches it without a product."""
    ends: dict[int, int] = {}
    for value in reversed(list(group.edges)):
        if value in group.kept:
            ends[value] = value
        for far, edge in readers.get(value, ()):
            if isinstance(edge, Link) and far in ends and edge.inputs >= group.sizes[value]:
                ends.setdefault(value, ends[far])
    return ends
