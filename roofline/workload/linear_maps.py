"""The least multiply-adds of linear maps that may be merged: parallel ones, and consecutive ones.

A group is a graph: values, and the maps between them with constant weights. A value is computed, or
its readers merge the maps before it with their own. A merged map multiplies wherever an output
depends on an input: convolutions after one another have the larger kernel, parallel ones the union
of theirs. Where the dependences are not known exactly, the least that they can be stands for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import cast

from roofline.workload.work import FLOP_PER_FMA

Rows = tuple[int, ...]
"""Along one dimension, on which inputs each output depends, as bits."""

_MOST_CHOICES = 10
"""Readers of inner values for which all choices are tried: 2 to this power of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearMap:
    """A product with constant weights, seen as a map of ``inputs`` to ``outputs`` elements.

    ``fan_in`` are the inputs that each output depends on at least, ``fan_out`` the outputs of each
    input. ``dimensions`` are the dependences along each dimension but the ``batch`` (channels
    first), where they are known; ``sizes`` what is given along these. ``channels_last``: in memory,
    each row of what a matrix product gives is the channels of one place.
    """

    flop: int
    weight_byte: int
    element_byte: int
    inputs: int
    outputs: int
    fan_in: int
    fan_out: int
    batch: int = 0
    dimensions: tuple[Rows, ...] = ()
    sizes: tuple[int, ...] = ()
    channels_last: bool = False


@lru_cache(maxsize=1000)
def unknown_map(
    flop: int, weight_byte: int, element_byte: int, inputs: int, outputs: int
) -> LinearMap:
    """A product of which nothing is known but what it takes."""
    return LinearMap(
        flop=flop,
        weight_byte=weight_byte,
        element_byte=element_byte,
        inputs=inputs,
        outputs=outputs,
        fan_in=1,
        fan_out=1,
    )


@lru_cache(maxsize=1000)
def matrix_map(
    flop: int, weight_byte: int, element_byte: int, inputs: int, outputs: int, *, keeps_rows: bool
) -> LinearMap:
    """A matrix product; `keeps_rows`: each row of what is given becomes a row of the result."""
    fan_in, fan_out = (max(1, flop // (FLOP_PER_FMA * size)) for size in (outputs, inputs))
    return LinearMap(
        flop=flop,
        weight_byte=weight_byte,
        element_byte=element_byte,
        inputs=inputs,
        outputs=outputs,
        fan_in=fan_in,
        fan_out=fan_out,
        batch=outputs // fan_out if keeps_rows else 0,
        dimensions=(((1 << fan_in) - 1,) * fan_out,) if keeps_rows else (),
        sizes=(fan_in,) if keeps_rows else (),
    )


@lru_cache(maxsize=1000)
def convolution_map(
    flop: int,
    weight_byte: int,
    element_byte: int,
    inputs: int,
    outputs: int,
    *,
    given: tuple[int, ...],
    weight: tuple[int, ...],
    windows: tuple[int, ...],
    groups: int,
    taps: tuple[tuple[int, ...], ...],
    channels_last: bool,
) -> LinearMap:
    """A convolution, not transposed.

    ``given`` and ``windows`` are the sizes of image and result, ``weight`` the shape of the weight,
    ``taps`` stride, padding and dilation, each for every dimension of the image.
    """
    rows = [_channels(weight[0], weight[1], groups)]
    for size, kernel, count, *each in zip(given, weight[2:], windows, *taps, strict=True):
        rows.append(_windows(size, kernel, count, *each))
    return LinearMap(
        flop=flop,
        weight_byte=weight_byte,
        element_byte=element_byte,
        inputs=inputs,
        outputs=outputs,
        fan_in=_fewest(rows),
        fan_out=weight[0] // groups,
        batch=outputs // (weight[0] * math.prod(windows)),
        dimensions=tuple(rows),
        sizes=(weight[1] * groups, *given),
        channels_last=channels_last,
    )


def _channels(outputs: int, inputs: int, groups: int) -> Rows:
    """Channels in groups: each depends on all `inputs` of its group."""
    group = (1 << inputs) - 1
    return tuple(group << (n * groups // outputs * inputs) for n in range(outputs))


@lru_cache(maxsize=1000)
def _windows(size: int, kernel: int, count: int, stride: int, padding: int, dilation: int) -> Rows:
    """Along one dimension of an image, the places under the taps of each window."""
    rows: list[int] = []
    for window in range(count):
        places = (window * stride - padding + tap * dilation for tap in range(kernel))
        rows.append(sum(1 << place for place in places if 0 <= place < size))
    return tuple(rows)


def _fewest(dimensions: Iterable[Rows]) -> int:
    return math.prod(min(row.bit_count() for row in rows) for rows in dimensions)


@dataclass(frozen=True, slots=True)
class Link:
    """Elements that pass from value to value without a product (at most so many)."""

    elements: int


Edge = LinearMap | Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Values in the order in which they are made, with the edges that lead to them.

    Values without edges are given. ``kept`` are those that must be there, since something else
    reads them; in ``joins`` the edges fill different parts of the value.
    """

    edges: Mapping[int, Sequence[tuple[int, Edge]]]
    kept: frozenset[int]
    joins: frozenset[int]

    @property
    def maps(self) -> list[LinearMap]:
        """All products."""
        found = (edge for edges in self.edges.values() for _, edge in edges)
        return [edge for edge in found if isinstance(edge, LinearMap)]


@dataclass(frozen=True, slots=True)
class Least:
    """The least of all ways to merge a group, FLOP and weights each for themselves."""

    flop: int
    weight_byte: int


def least_of(group: Group) -> Least:
    """The least FLOP and weights of a group; what it has if nothing that is merged saves FLOP.

    Exact over all choices for small groups and for chains; else a bound from below.
    """
    maps = group.maps
    whole = Least(sum(each.flop for each in maps), sum(each.weight_byte for each in maps))
    bound = _out_of_givens_into_ends(group, _flop)
    if bound >= whole.flop:
        return whole
    inner = [(v, u) for v, edges in group.edges.items() for u, _ in edges if u in group.edges]
    if len(inner) > _MOST_CHOICES:
        weight_byte = _out_of_givens_into_ends(group, _weight_byte)
        return Least(max(bound, _chain(group)), weight_byte)
    flop, weight_byte = whole.flop, whole.weight_byte
    for choice in product((False, True), repeat=len(inner)):
        made = _made(
            group, {pair for pair, is_merged in zip(inner, choice, strict=True) if is_merged}
        )
        flop = min(flop, sum(each.flop for each in made))
        weight_byte = min(weight_byte, sum(each.weight_byte for each in made))
    return Least(flop, weight_byte)


def _made(group: Group, merged: set[tuple[int, int]]) -> list[LinearMap]:
    """The products that are left if these readers (value, what it is made of) merge."""
    is_read = {u for v, edges in group.edges.items() for u, _ in edges if (v, u) not in merged}
    ways: dict[int, dict[int, Edge]] = {}
    made: list[LinearMap] = []
    for v, edges in group.edges.items():
        parts: list[dict[int, Edge]] = []
        for u, edge in edges:
            if (v, u) in merged:
                before = ways[u].items()
                parts.append(_parallel((far, _after(first, edge)) for far, first in before))
            else:
                parts.append({u: edge})
        ways[v] = _parallel(way for part in parts for way in part.items())
        if v in group.kept or v in is_read:
            counted = parts if v in group.joins else [ways[v]]
            made += [e for part in counted for e in part.values() if isinstance(e, LinearMap)]
    return made


def _parallel(ways: Iterable[tuple[int, Edge]]) -> dict[int, Edge]:
    """Of maps with the same ends one that does what all do, by the largest of them."""
    found: dict[int, Edge] = {}
    for far, edge in ways:
        other = found.get(far)
        if (
            other is None
            or isinstance(other, Link)
            or (isinstance(edge, LinearMap) and edge.flop > other.flop)
        ):
            found[far] = edge
    return found


def _rank(edge: Edge) -> tuple[int, int]:
    return (0, edge.elements) if isinstance(edge, Link) else (1, edge.flop)


@lru_cache(maxsize=10_000)
def _after(first: Edge, second: Edge) -> Edge:
    """The second of two edges behind the first, as one."""
    if isinstance(first, Link):
        if isinstance(second, Link):
            return Link(min(first.elements, second.elements))
        return _part(second, inputs=first.elements)
    if isinstance(second, Link):
        return _part(first, outputs=second.elements)
    element_byte = min(first.element_byte, second.element_byte)
    dimensions = _composed(first, second)
    if dimensions:
        pairs = [sum(row.bit_count() for row in rows) for rows in dimensions]
        taps = (max(row.bit_count() for row in rows) for rows in dimensions[1:])
        return LinearMap(
            flop=FLOP_PER_FMA * second.batch * math.prod(pairs),
            weight_byte=element_byte * pairs[0] * math.prod(taps),
            element_byte=element_byte,
            inputs=first.inputs,
            outputs=second.outputs,
            fan_in=_fewest(dimensions),
            fan_out=second.fan_out,
            batch=second.batch,
            dimensions=dimensions,
            sizes=first.sizes if len(first.sizes) == len(dimensions) else (),
            channels_last=first.channels_last,
        )
    least = max(second.outputs * first.fan_in, first.inputs * second.fan_out)
    return LinearMap(
        flop=FLOP_PER_FMA * least,
        weight_byte=element_byte * first.fan_in,
        element_byte=element_byte,
        inputs=first.inputs,
        outputs=second.outputs,
        fan_in=first.fan_in,
        fan_out=second.fan_out,
    )


def _part(whole: LinearMap, *, inputs: int | None = None, outputs: int | None = None) -> LinearMap:
    """A map of which only so many elements are given or needed."""
    given, needed = inputs or whole.inputs, outputs or whole.outputs
    if given >= whole.inputs and needed >= whole.outputs:
        return whole
    return LinearMap(
        flop=min(whole.flop * given // whole.inputs, whole.flop * needed // whole.outputs),
        weight_byte=0,
        element_byte=whole.element_byte,
        inputs=given,
        outputs=needed,
        fan_in=whole.fan_in if given >= whole.inputs else 1,
        fan_out=whole.fan_out if needed >= whole.outputs else 1,
    )


def _composed(first: LinearMap, second: LinearMap) -> tuple[Rows, ...]:
    """The dependences of two maps after one another; none where they are not known."""
    batch, before = first.batch, first.dimensions
    if len(before) == 1 and second.channels_last:
        # A matrix product of the channels at each place.
        places = second.sizes[1:]
        before = (*before, *(tuple(1 << place for place in range(size)) for size in places))
        batch //= math.prod(places)
    if not before or batch != second.batch or second.sizes != tuple(map(len, before)):
        return ()
    return tuple(map(_composed_rows, before, second.dimensions))


@lru_cache(maxsize=1000)
def _composed_rows(first: Rows, second: Rows) -> Rows:
    known: dict[int, int] = {}
    for row in second:
        if row not in known:
            known[row], left = 0, row
            while left:
                lowest = left & -left
                known[row] |= first[lowest.bit_length() - 1]
                left ^= lowest
    return tuple(known[row] for row in second)


Ways = Mapping[int, Sequence[tuple[int, Edge]]]
"""From each value to those that it is made of, or that are made of it."""


def _out_of_givens_into_ends(group: Group, cost: Callable[[LinearMap], int]) -> int:
    """A bound by products that read what is given, and products behind which there is no other.

    Each of these lies on a way from a given value to one that is kept, and what is merged still
    leads along it. Of all that leads away from a given value, one product counts; of all products
    before a kept value too, with as much as is left of what leads there from a given value.
    Products between those count nothing.
    """
    readers: dict[int, list[tuple[int, Edge]]] = {}
    for v, edges in group.edges.items():
        for u, edge in edges:
            readers.setdefault(u, []).append((v, edge))
    firsts: dict[int, int] = {}
    for u in readers.keys() - group.edges.keys():
        found = (
            _held(v, edge, readers, lambda v: 0 if v in group.kept else None, _after, cost)
            for v, edge in readers[u]
            if isinstance(edge, LinearMap)
        )
        firsts[u] = max(found, default=0)
    lasts: dict[int, int] = {}
    for u, end, share, edge in _lasts(group):
        least = _held(u, edge, group.edges, firsts.get, _before, cost)
        lasts[end] = max(lasts.get(end, 0), min(least, int(cost(edge) * share)))
    return sum(firsts.values()) + sum(lasts.values())


def _lasts(group: Group) -> list[tuple[int, int, float, LinearMap]]:
    """Products of values that are not given, behind which only links follow.

    With the value that they read, the kept value to which the widest way leads, and how much of
    the result comes through on it.
    """
    leads_on: set[int] = set()
    ends = {v: (math.inf if v in group.kept else 0.0, v) for v in group.edges}
    found: list[tuple[int, int, float, LinearMap]] = []
    for v, edges in reversed(list(group.edges.items())):
        for u, edge in edges:
            if isinstance(edge, Link):
                if u in ends:
                    ends[u] = max(ends[u], (min(edge.elements, ends[v][0]), ends[v][1]))
                leads_on.update([u] if v in leads_on else [])
            else:
                leads_on.add(u)
                if u in group.edges and v not in leads_on:
                    width, end = ends[v]
                    found.append((u, end, min(1.0, width / edge.outputs), edge))
    return found


def _before(behind: Edge, edge: Edge) -> Edge:
    return _after(edge, behind)


def _held(
    start: int,
    first: LinearMap,
    ways: Ways,
    taken: Callable[[int], int | None],
    merge: Callable[[Edge, Edge], Edge],
    cost: Callable[[LinearMap], int],
) -> int:
    """As much of a product's cost as all still take that lead along some way from it to an end.

    `taken` says of an end what of that belongs to another product, of other values None.
    """
    for part in _PARTS:
        least = int(cost(first) * part)
        waiting: list[tuple[int, Edge]] = [(start, first)]
        for _ in range(_MOST_STEPS):
            if not waiting:
                break
            value, whole = waiting.pop()
            already = taken(value)
            if already is not None and cost(cast(LinearMap, whole)) - already >= least:
                return least
            for far, edge in sorted(ways.get(value, ()), key=lambda each: each[0]):
                merged = merge(whole, edge)
                if cost(cast(LinearMap, merged)) >= least:
                    waiting.append((far, merged))
    return 0


_PARTS = (1.0, 0.75, 0.5, 0.25)
_MOST_STEPS = 100
"""Values looked at before a way is taken not to be there."""


def may_pass_by(read: int, reader: LinearMap, edges: Ways) -> bool:
    """Whether a product may take less by reading what a value is made of, in place of that value.

    Whatever it reads instead, some of that lies on each way to the value: if all values on one of
    them take as much, nothing is gained. (Values without `edges` are given.)
    """
    least = _held(read, reader, edges, lambda v: None if v in edges else 0, _before, _flop)
    return least < reader.flop


def _flop(edge: Edge) -> int:
    return edge.flop if isinstance(edge, LinearMap) else 0


def _weight_byte(edge: LinearMap) -> int:
    return edge.weight_byte


def _chain(group: Group) -> int:
    """The cheapest way through a chain of values; 0: it is none."""
    order = list(group.edges)
    chain: list[Edge] = []
    for place, v in enumerate(order):
        edges = group.edges[v]
        is_kept = v in group.kept and place + 1 < len(order)
        if len(edges) > 1 or is_kept or (place and edges[0][0] != order[place - 1]):
            return 0
        chain.append(edges[0][1])
    least = [0]
    for end in range(1, len(chain) + 1):
        merged = chain[end - 1]
        ways = [least[end - 1] + _flop(merged)]
        for start in range(end - 2, -1, -1):
            merged = _after(chain[start], merged)
            ways.append(least[start] + _flop(merged))
        least.append(min(ways))
    return least[-1]
