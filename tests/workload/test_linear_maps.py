"""Groups of linear maps against matrices of numbers, merged in all ways."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload import linear_maps
from roofline.workload.linear_maps import Edge, Group, Link, least_of, matrix_map

ROWS = 2
Matrices = dict[int, list[tuple[int, np.ndarray[Any, Any]]]]


def drawn(draw: Any) -> tuple[Group, Matrices]:
    """A group of products, sums and concatenations of a few values, as maps and as numbers."""
    numbers = np.random.default_rng(draw(st.integers(0, 99)))
    widths = {-1 - n: draw(st.integers(1, 6)) for n in range(draw(st.integers(1, 2)))}
    edges: dict[int, list[tuple[int, Edge]]] = {}
    matrices: Matrices = {}
    joins: set[int] = set()
    for value in range(draw(st.integers(2, 6))):
        kind = draw(st.sampled_from(["product", "sum", "cat"]))
        first, second = (draw(st.sampled_from(sorted(widths))) for _ in range(2))
        if (
            kind == "product"
            or first == second
            or (kind == "sum" and widths[first] != widths[second])
        ):
            width = draw(st.integers(1, 6))
            k = widths[first]
            flop = 2 * ROWS * k * width
            new = matrix_map(flop, 4 * k * width, 4, ROWS * k, ROWS * width, keeps_rows=True)
            edges[value] = [(first, new)]
            matrices[value] = [(first, numbers.random((width, k)) + 1)]
        elif kind == "sum":
            width = widths[first]
            edges[value] = [(each, Link(ROWS * width)) for each in (first, second)]
            matrices[value] = [(each, np.eye(width)) for each in (first, second)]
        else:
            joins.add(value)
            width = widths[first] + widths[second]
            edges[value] = [(each, Link(ROWS * widths[each])) for each in (first, second)]
            places = np.eye(width)
            matrices[value] = [
                (first, places[:, : widths[first]]),
                (second, places[:, widths[first] :]),
            ]
        widths[value] = width
    read = {far for each in edges.values() for far, _ in each}
    kept = {value for value in edges if value not in read or draw(st.booleans())}
    return Group(edges=edges, kept=frozenset(kept), joins=frozenset(joins)), matrices


def least_of_numbers(group: Group, matrices: Matrices) -> int:
    """FLOP of the best of all ways in which each reader of a value merges with it or reads it."""
    inner = [(v, u) for v, before in matrices.items() for u, _ in before if u in matrices]
    found: list[int] = []
    for choice in product((False, True), repeat=len(inner)):
        merged = {pair for pair, is_merged in zip(inner, choice, strict=True) if is_merged}
        read = {u for v, before in matrices.items() for u, _ in before if (v, u) not in merged}
        ways: dict[int, dict[int, np.ndarray[Any, Any]]] = {}
        flop = 0
        for v, before in matrices.items():
            ways[v] = {}
            for u, matrix in before:
                through = ways[u] if (v, u) in merged else {u: np.eye(matrix.shape[1])}
                for far, earlier in through.items():
                    ways[v][far] = ways[v].get(far, 0) + matrix @ earlier
            if v in group.kept or v in read:
                flop += sum(2 * ROWS * multiplied(each) for each in ways[v].values())
        found.append(flop)
    return min(found)


def multiplied(matrix: np.ndarray[Any, Any]) -> int:
    """Numbers that are multiplied by: all that are not 0, but none where elements only move."""
    is_move = np.isin(matrix, (0.0, 1.0)).all() and (matrix != 0).sum(axis=1).max() <= 1
    return 0 if is_move else int((matrix != 0).sum())


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_way_to_merge_is_below_the_least(data: st.DataObject):
    group, matrices = drawn(data.draw)
    exact = least_of_numbers(group, matrices)
    assert least_of(group).flop <= exact
    if not group.joins:
        assert least_of(group).flop == exact


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_bounds_of_large_groups_are_below_the_least(data: st.DataObject):
    """As if these groups were too large to try all choices."""
    group, matrices = drawn(data.draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_maps, "_MOST_CHOICES", -1)
        assert least_of(group).flop <= least_of_numbers(group, matrices)


@pytest.mark.parametrize("widths", [[4, 9, 2, 8], [3] * 5, [9, 2, 9, 2, 9, 2, 9]])
def test_long_chains_take_the_cheapest_way_through(widths: Sequence[int]):
    """Squares where nothing narrow is between: all become one."""
    edges: dict[int, list[tuple[int, Edge]]] = {}
    for n in range(len(widths) * 4):
        a, b = widths[n % len(widths)], widths[(n + 1) % len(widths)]
        edges[n] = [(n - 1, matrix_map(2 * a * b, 4 * a * b, 4, a, b, keeps_rows=True))]
    last = len(edges) - 1
    group = Group(edges=edges, kept=frozenset({last}), joins=frozenset())
    ends = widths[0], widths[(last + 1) % len(widths)]
    narrow = min(widths)
    expected = min(ends[0] * ends[1], narrow * sum(ends))
    assert least_of(group).flop == 2 * expected
