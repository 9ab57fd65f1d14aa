"""Axes written as text: their values, and what is said of those that are wrong."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.design.comparison.axes import Axis, Grid, grid_of, point_text, text_of
from roofline.errors import InputError


def values(text: str) -> dict[str, list[object]]:
    return {each.name: list(each.values) for each in grid_of(text).axes}


def test_the_three_kinds_of_axes() -> None:
    assert values("channels=16:1024:x2,size=7:28:+7,batch=1:4:1,dtype=float32|bfloat16") == {
        "channels": [16, 32, 64, 128, 256, 512, 1024],
        "size": [7, 14, 21, 28],
        "batch": [1, 2, 3, 4],
        "dtype": ["float32", "bfloat16"],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=16:100:x2", [16, 32, 64]),
        ("a=7:20:+7", [7, 14]),
        ("a=5:5:x2", [5]),
        ("a=5:5:1", [5]),
        ("a=1:4:x1.5", [1, 2, 3]),
        ("a=0.5:4:x2", [0.5, 1.0, 2.0, 4.0]),
        ("a=0.1:0.5:0.2", [0.1, pytest.approx(0.3), 0.5]),
        ("a= 1 | 4 |32", [1, 4, 32]),
        ("a=32|4|4|1", [1, 4, 32]),
        ("a=64", [64]),
        ("a=wide", ["wide"]),
        ("a=0:3:1", [0, 1, 2, 3]),
    ],
)
def test_ends_are_inclusive_where_they_are_hit(text: str, expected: list[object]) -> None:
    assert values(text) == {"a": expected}


def test_factors_of_two_end_on_what_they_hit() -> None:
    # Logarithms are not exact: no end may be lost to them.
    for low, times in itertools.product((1, 3, 7, 16), range(30)):
        assert values(f"a={low}:{low * 2**times}:x2")["a"][-1] == low * 2**times
        assert values(f"a={low}:{low * 3 ** min(times, 20)}:x3")["a"][-1] == low * 3 ** min(
            times, 20
        )


@given(
    low=st.integers(1, 500),
    more=st.integers(0, 5000),
    factor=st.sampled_from(["1.1", "1.5", "2", "3.7", "10"]),
)
def test_what_is_multiplied_ascends_between_its_ends(low: int, more: int, factor: str) -> None:
    found = values(f"a={low}:{low + more}:x{factor}")["a"]
    assert found == sorted(set(found))  # pyright: ignore[reportArgumentType]
    assert found[0] == low
    assert all(isinstance(each, int) and low <= each <= low + more for each in found)
    last = found[-1]
    assert isinstance(last, int)
    assert (last + 0.5) * float(factor) > low + more - 1


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("channels", 0, "has no values"),
        ("channels=", 9, "has no values"),
        ("channels=16:8:x2", 9, "low exceeds high"),
        ("channels=16:x2", 12, "low:high:x2"),
        ("channels=16:32:x2:3", 18, "low:high:x2"),
        ("channels=16:32:x1", 15, "above 1"),
        ("channels=0:32:x2", 9, "above 0"),
        ("channels=1:32:0", 14, "above 0"),
        ("channels=1:zwei:x2", 11, "expected a number, got 'zwei'"),
        ("channels=1:32:y2", 14, "expected a number, got 'y2'"),
        ("a=1,,b=2", 4, "missing"),
        ("a=1,", 4, "missing"),
        ("a=1,a=2", 4, "duplicate"),
        ("a=1|", 4, "missing value"),
        ("a=1, 3b=2", 5, "invalid axis name"),
        ("a=1:99999999999999:1", 4, "too large"),
        ("a=1:1000000:x1.000001", 12, "values on one axis"),
    ],
)
def test_errors_point_at_the_place(text: str, place: int, said: str) -> None:
    with pytest.raises(InputError) as caught:
        grid_of(text)
    message, shown, caret = str(caught.value).splitlines()
    assert said in message
    assert shown == f"  {text}"
    assert caret == f"  {' ' * place}^"


def test_python_takes_lists_ranges_and_texts() -> None:
    found = grid_of({"c": [64, 16], "size": range(7, 22, 7), "d": ["a"], "e": "1:4:x2", "f": 3})
    assert {each.name: list(each.values) for each in found.axes} == {
        "c": [16, 64],
        "size": [7, 14, 21],
        "d": ["a"],
        "e": [1, 2, 4],
        "f": [3],
    }


@pytest.mark.parametrize("wrong", [{}, {"a": []}, {"a": None}, {"a": [True]}, {"a": range(0)}])
def test_python_without_values_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        grid_of(wrong)


def test_a_million_million_points_are_counted_without_being_made() -> None:
    grid = grid_of("a=1:1000000:1,b=1:1000000:1,c=1:4:x2")
    assert grid.count == 3 * 10**12
    assert grid.point(0) == {"a": 1, "b": 1, "c": 1}
    assert grid.point(grid.count - 1) == {"a": 1_000_000, "b": 1_000_000, "c": 4}
    assert grid.point(10**12) == {"a": 333334, "b": 333334, "c": 2}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_points_are_all_combinations_the_last_axis_fastest(sizes: list[int]) -> None:
    grid = Grid(axes=tuple(Axis(name=f"x{i}", values=range(size)) for i, size in enumerate(sizes)))
    expected = list(itertools.product(*(range(size) for size in sizes)))
    assert [tuple(point.values()) for point in grid.points()] == expected
    assert [grid.index([int(v) for v in each]) for each in expected] == list(range(grid.count))
    with pytest.raises(IndexError):
        grid.point(grid.count)


def test_values_in_words() -> None:
    assert [text_of(each) for each in (64, 0.5, 4.0, "bfloat16")] == ["64", "0.5", "4", "bfloat16"]
    assert point_text({"channels": 64, "size": 7}) == "channels 64, size 7"
