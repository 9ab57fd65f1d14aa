"""Groups of linear maps against matrices of numbers, merged in all ways."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.linear_maps import Edge, Group, LinearMap, Link, matrix_map, min_merged_work

ROWS = 2
Matrices = dict[int, list[tuple[int, np.ndarray[Any, Any]]]]


def map_of(matrix: np.ndarray[Any, Any]) -> LinearMap:
    """What a matrix is as a map, for each of the rows that it is applied to."""
    there = matrix != 0
    outputs, inputs = there.sum(axis=1), there.sum(axis=0)
    return LinearMap(
        flop=2 * ROWS * int(there.sum()),
        weight_bytes=4 * int(there.sum()),
        inputs=ROWS * matrix.shape[1],
        outputs=ROWS * matrix.shape[0],
        fan_in=int(outputs.min()),
        max_in=int(outputs.max()),
        fan_out=int(inputs.min()),
        max_out=int(inputs.max()),
    )


def drawn(draw: Any) -> tuple[Group, Matrices]:
    """A group of products, sums, concatenations and slices of a few values, as maps and as numbers.

    Products are of whole matrices, of two blocks (groups of channels), or have numbers left out.
    """
    numbers = np.random.default_rng(draw(st.integers(0, 99)))
    widths = {-1 - n: draw(st.integers(1, 6)) for n in range(draw(st.integers(1, 2)))}
    edges: dict[int, list[tuple[int, Edge]]] = {}
    matrices: Matrices = {}
    for value in range(draw(st.integers(2, 6))):
        kind = draw(st.sampled_from(["product", "sum", "cat", "slice"]))
        first, second = (draw(st.sampled_from(sorted(widths))) for _ in range(2))
        width = k = widths[first]
        if kind == "slice":
            begin = draw(st.integers(0, k - 1))
            width = draw(st.integers(1, k - begin))
            edges[value] = [(first, Link(ROWS * width))]
            matrices[value] = [(first, np.eye(k)[begin : begin + width])]
        elif kind == "product" or first == second or (kind == "sum" and k != widths[second]):
            width = draw(st.integers(1, 6))
            matrix = numbers.random((width, k)) + 1
            form = draw(st.sampled_from(["whole", "blocks", "sparse"]))
            if form == "blocks" and not (width % 2 or k % 2):
                matrix[: width // 2, k // 2 :] = matrix[width // 2 :, : k // 2] = 0
            elif form == "sparse":
                matrix[numbers.random((width, k)) < 0.3] = 0
            edges[value] = [(first, map_of(matrix))]
            matrices[value] = [(first, matrix)]
        elif kind == "sum":
            edges[value] = [(each, Link(ROWS * width)) for each in (first, second)]
            matrices[value] = [(each, np.eye(width)) for each in (first, second)]
        else:
            width = k + widths[second]
            edges[value] = [(each, Link(ROWS * widths[each])) for each in (first, second)]
            places = np.eye(width)
            matrices[value] = [(first, places[:, :k]), (second, places[:, k:])]
        widths[value] = width
    read = {far for each in edges.values() for far, _ in each}
    kept = {value for value in edges if value not in read or draw(st.booleans())}
    group = Group(
        edges=edges,
        kept=frozenset(kept),
        sizes={value: ROWS * widths[value] for value in edges},
        roots={far: far for far in widths},
    )
    return group, matrices


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


@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_no_way_to_merge_is_below_the_least(data: st.DataObject):
    group, matrices = drawn(data.draw)
    assert min_merged_work(group)[0] <= least_of_numbers(group, matrices)


def chain(*widths: int) -> Group:
    """Products one after the other; only the last result is kept."""
    edges: dict[int, list[tuple[int, Edge]]] = {
        n: [(n - 1, matrix_map(2 * a * b, 4 * a * b, a, b))]
        for n, (a, b) in enumerate(pairwise(widths))
    }
    last = len(widths) - 2
    return Group(
        edges=edges,
        kept=frozenset({last}),
        sizes=dict(enumerate(widths[1:])),
        roots={-1: -1},
    )


@given(widths=st.lists(st.integers(1, 50), min_size=3, max_size=3))
def test_of_two_products_the_least_is_exact(widths: list[int]):
    a, b, c = widths
    least = min(a * b + b * c, a * c)
    assert min_merged_work(chain(a, b, c)) == (2 * least, 4 * least)


@pytest.mark.parametrize("widths", [[4, 9, 2, 8], [3] * 5, [9, 2, 9, 2, 9, 2, 9]])
def test_long_chains_take_the_cheapest_way_through(widths: Sequence[int]):
    """Squares where nothing narrow is between: all become one."""
    repeated = [widths[n % len(widths)] for n in range(len(widths) * 4 + 1)]
    ends = repeated[0], repeated[-1]
    expected = min(ends[0] * ends[1], min(widths) * sum(ends))
    assert min_merged_work(chain(*repeated))[0] == 2 * expected


def test_what_reaches_a_group_of_channels_is_not_taken_to_reach_all():
    """Two products side by side, each read by its own half of a product in two groups.

    Merged, each given value leads to 4 results, not to 8: 2 x 8 x 4, where apart 1,536 are taken.
    """
    wide = matrix_map(2 * 8 * 64, 4 * 8 * 64, 8, 64)
    fans = {"fan_in": 64, "max_in": 64, "fan_out": 4, "max_out": 4}
    halves = LinearMap(2 * 512, 4 * 512, inputs=128, outputs=8, **fans)
    group = Group(
        edges={
            0: [(-1, wide)],
            1: [(-2, wide)],
            2: [(0, Link(64)), (1, Link(64))],
            3: [(2, halves)],
        },
        kept=frozenset({3}),
        sizes={0: 64, 1: 64, 2: 128, 3: 8},
        roots={-1: -1, -2: -2, 0: 0, 1: 1, 2: 2},
    )
    assert min_merged_work(group)[0] == 2 * (2 * 8 * 4)
