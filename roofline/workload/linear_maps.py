"""A bound from below on what is left of linear maps that are merged: parallel and consecutive ones.

A group is a graph: values, and the maps between them with constant weights. A merged map multiplies
wherever an output depends on an input, and applies each of its weights at no more places than what
it stands for. So whatever is merged, the product that reads a given value and the one that ends in
a value that must be there are no smaller than the smallest product that there can be along some way
of the graph. Products between those count nothing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from roofline.workload.formulas.convolution import Dimension
from roofline.workload.work import FLOP_PER_FMA


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A product with constant weights, seen as a map of ``inputs`` to ``outputs`` elements.

    ``fan_in`` and ``most_in`` are the inputs that each output depends on, at least and at most;
    ``fan_out`` and ``most_out`` the outputs that depend on each input.
    """

    flop: int
    weight_bytes: int
    inputs: int
    outputs: int
    fan_in: int
    most_in: int
    fan_out: int
    most_out: int

    @cached_property
    def back(self) -> LinearMap:
        """The map from its outputs to its inputs."""
        fans = (self.fan_out, self.most_out, self.fan_in, self.most_in)
        return LinearMap(self.flop, self.weight_bytes, self.outputs, self.inputs, *fans)

    def then(self, behind: Edge, size: int) -> LinearMap:
        """The least that this map can be together with what reads its result, of `size` elements.

        Only some of these may be what this map gives, and others be read.
        """
        carried = min(self.outputs, max(0, self.outputs + behind.inputs - size))
        # Where not all is read, some inputs may lead to nothing that is.
        lost = self.outputs - carried
        fan_out = 0 if lost else self.fan_out
        pairs = max(self.fan_in * carried, self.flop // FLOP_PER_FMA - self.most_in * lost)
        if not isinstance(behind, LinearMap):
            if not lost:
                return self
            return replace(self, flop=FLOP_PER_FMA * pairs, outputs=carried, fan_out=fan_out)
        # What reaches the same results is counted once.
        reached = -(-carried * behind.fan_out // max(1, behind.most_in))
        if carried >= behind.inputs and behind.fan_in:
            reached = behind.outputs
        fan_out = min(1, fan_out) * behind.fan_out
        pairs = pairs * behind.fan_out // max(1, behind.most_in)
        return replace(
            self,
            flop=FLOP_PER_FMA * max(self.fan_in * reached, self.inputs * fan_out, pairs),
            outputs=reached,
            fan_out=fan_out,
            most_in=self.most_in * behind.most_in,
        )


@dataclass(frozen=True, slots=True)
class Link:
    """Elements that pass from value to value without a product (at most so many)."""

    inputs: int


Edge = LinearMap | Link


def matrix_map(flop: int, weight_bytes: int, inputs: int, outputs: int) -> LinearMap:
    """A matrix product: all elements of a row of it depend on all of a row of what is given."""
    fan_in, fan_out = (flop // (FLOP_PER_FMA * size) for size in (outputs, inputs))
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
    """A convolution; `channels` are those of a group: of the windows' results, and under them."""
    reach = [_reach(*each) for each in dimensions]
    fan_in, most_in, fan_out, most_out = (math.prod(each) for each in zip(*reach, strict=True))
    above, under = channels
    fans = (under * fan_in, under * most_in, above * fan_out, above * most_out)
    return LinearMap(flop, weight_bytes, inputs, outputs, *fans)


@lru_cache(maxsize=1000)
def _reach(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> tuple[int, ...]:
    """Places under a window, at least and at most, and windows over a place, along a dimension."""
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
        # Those that are not there are 0.
        fewest = min(counts.values()) if len(counts) == of else 0
        found += (fewest, max(counts.values(), default=0))
    return tuple(found)


Ways = Mapping[int, Sequence[tuple[int, Edge]]]
"""From each value to those that it is made of, or that are made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Values in the order in which they are made, with the edges that lead to them.

    Values without edges are given; those that `roots` has one number for are parts of each other.
    ``kept`` are those that must be there, since something else reads them; ``sizes`` are the
    elements of those that are made.
    """

    edges: Ways
    kept: frozenset[int]
    sizes: Mapping[int, int]
    roots: Mapping[int, int]


def least_of(group: Group) -> tuple[int, int]:
    """The least FLOP of a group and the bytes of weights that go with it, whatever is merged.

    Of all that leads away from a given value, one product counts; of all products before a value
    that must be there too, with as much of it as what leads there from a given value takes more
    than the product that counts there already.
    """
    readers: dict[int, list[tuple[int, Edge]]] = defaultdict(list)
    makers: dict[int, list[tuple[int, Edge]]] = defaultdict(list)
    products: list[tuple[int, int, LinearMap]] = []
    for value, edges in group.edges.items():
        for far, edge in edges:
            readers[far].append((value, edge))
            makers[value].append((far, edge.back if isinstance(edge, LinearMap) else edge))
            if isinstance(edge, LinearMap) and edge.flop:
                products.append((far, value, edge))
    order = list(group.edges)
    flop, weight_bytes = Counter[tuple[str, int]](), Counter[tuple[str, int]]()

    def count(place: tuple[str, int], product: LinearMap, least: Iterable[int]) -> None:
        """Of products that may be one, the largest."""
        most = max(least, default=0)
        byte = product.weight_bytes * most // product.flop
        flop[place], weight_bytes[place] = max(flop[place], most), max(weight_bytes[place], byte)

    for far, value, product in products:
        if far not in group.edges:
            found = _carried(value, product, readers, order, group.sizes)
            held = (found[each][0] for each in group.kept & found.keys())
            count(("first", group.roots[far]), product, held)
    ends = _ends(group, readers)
    for far, value, product in products:
        if far in group.edges and value in ends:
            found = _carried(far, product.back, makers, order[::-1], group.sizes)
            held = (
                min(taken, whole.flop - flop["first", group.roots[each]])
                for each, (taken, whole) in found.items()
                if each not in group.edges
            )
            count(("last", ends[value]), product, held)
    return flop.total(), weight_bytes.total()


def _carried(
    start: int, first: LinearMap, ways: Ways, order: Sequence[int], sizes: Mapping[int, int]
) -> dict[int, tuple[int, LinearMap]]:
    """By value that `ways` lead to, how much of a product's FLOP all take that lead on to it.

    With the product that leads all of the way; of several ways the one on which most is taken.
    """
    found = {start: (first.flop, first)}
    for value in order:
        if value in found:
            least, whole = found[value]
            for far, edge in ways.get(value, ()):
                merged = whole.then(edge, sizes[value])
                taken = min(least, merged.flop)
                if far not in found or taken > found[far][0]:
                    found[far] = taken, merged
    return found


def _ends(group: Group, readers: Ways) -> dict[int, int]:
    """By value, one that is kept and to which all of it leads without a product."""
    ends: dict[int, int] = {}
    for value in reversed(list(group.edges)):
        if value in group.kept:
            ends[value] = value
        for far, edge in readers.get(value, ()):
            if isinstance(edge, Link) and far in ends and edge.inputs >= group.sizes[value]:
                ends.setdefault(value, ends[far])
    return ends
