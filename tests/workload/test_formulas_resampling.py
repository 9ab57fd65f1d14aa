"""Antialiased resampling and sampled grids against the same, written out in loops."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workload.passes import only, passed, total
from tests.workload.scalars import Scalar, Tally, numbers, random, same, sum_of


def weights_of(mode: str, size: int, outputs: int) -> torch.Tensor:
    """What each output takes of each input along one dimension, as torch itself has it."""
    image = torch.eye(size).reshape(size, 1, 1, size)
    found = F.interpolate(image, size=(1, outputs), mode=mode, antialias=True)
    return found.reshape(size, outputs)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "outputs"), [(12, 4), (9, 6), (7, 5), (4, 10), (16, 2)])
def test_antialiased_resampling(mode: str, size: int, outputs: int) -> None:
    """Along the rows, then along the columns, only inputs that have weight: the least.

    How many those are is read off torch's own result for single pixels. The whole has the few more
    that torch's windows reach, which is not one for each end of a window.
    """
    kept = int((weights_of(mode, size, outputs).abs() > 1e-7).sum())
    once = 2 * kept - outputs
    planes = 2 * 3
    work = only(
        passed(lambda x: F.interpolate(x, outputs, mode=mode, antialias=True), (2, 3, size, size))
    ).work
    # A cubic may be zero inside its window too, where a weight is no saving for a general kernel.
    least = planes * (size + outputs) * once
    ends = planes * (size + outputs) * 2 * 2 * outputs
    assert work.flop is not None
    assert work.min_flop is not None
    assert least <= work.min_flop <= work.flop <= least + ends
    if mode == "bilinear":
        assert work.min_flop == least


def test_antialiased_halving_by_hand() -> None:
    """A triangle of radius 2 over 8 inputs, at 1, 3, 5, 7: 3 + 4 + 4 + 3 inputs have weight.

    14 products and 10 additions a line; 8 rows, then 4 columns.
    """
    work = only(
        passed(lambda x: F.interpolate(x, 4, mode="bilinear", antialias=True), (1, 1, 8, 8))
    ).work
    assert work.min_flop == (8 + 4) * (2 * 14 - 4)


def test_a_dimension_that_keeps_its_size_is_no_must() -> None:
    """The least has the other one only: 8 rows of 4."""
    work = only(
        passed(lambda x: F.interpolate(x, (8, 4), mode="bilinear", antialias=True), (1, 1, 8, 8))
    ).work
    assert work.min_flop == 8 * (2 * 14 - 4)


def test_weights_on_integers_are_no_floating_point_arithmetic() -> None:
    """torch resamples bytes with integer weights."""
    image = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    for antialias in (True, False):
        captured = passed(
            lambda x, antialias=antialias: F.interpolate(
                x, 4, mode="bilinear", antialias=antialias
            ),
            image,
        )
        assert total(captured).flop == 0


# -- grids -----------------------------------------------------------------------------------------


def position(x: Scalar, size: int, align_corners: bool) -> Scalar:
    """From -1 … 1 to pixels."""
    if align_corners:
        return (x + 1) / 2 * (size - 1)
    return ((x + 1) * size - 1) / 2


def floor(x: Scalar) -> int:
    x.tally.simple += 1
    return math.floor(x.value)


def at(plane: Any, place: tuple[int, ...], tally: Tally) -> Scalar:
    """The pixel, or zero where there is none."""
    for each in place:
        if not 0 <= each < len(plane):
            return Scalar(0.0, tally)
        plane = plane[each]
    return plane


def linear_sample(image: Any, coordinates: list[Scalar], tally: Tally) -> list[Scalar]:
    """Of each channel, 2 to the power of the dimensions weighted neighbours."""
    firsts = [floor(x) for x in coordinates]
    parts = [(1 - (x - first), x - first) for x, first in zip(coordinates, firsts, strict=True)]
    # Two differences a coordinate: to the floor, and that to 1; the loop above took one twice.
    tally.simple -= len(coordinates)
    weights, places = [], []
    for corner in product((0, 1), repeat=len(firsts)):
        weight = parts[0][corner[0]]
        for part, side in zip(parts[1:], corner[1:], strict=True):
            weight = weight * part[side]
        weights.append(weight)
        places.append(tuple(first + side for first, side in zip(firsts, corner, strict=True)))
    return [
        sum_of([at(plane, place, tally) * w for place, w in zip(places, weights, strict=True)])
        for plane in image
    ]


def cubic_weights(t: Scalar) -> list[Scalar]:
    """Keys' cubic with A = -0.75 at 1 + t, t, 1 - t and 2 - t."""
    a = -0.75

    def inner(x: Scalar) -> Scalar:
        return (x * (a + 2) - (a + 3)) * x * x + 1

    def outer(x: Scalar) -> Scalar:
        return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

    other = 1 - t
    return [outer(t + 1), inner(t), inner(other), outer(other + 1)]


def cubic_sample(image: Any, coordinates: list[Scalar], tally: Tally) -> list[Scalar]:
    """Four rows of four neighbours, then the four rows."""
    y, x = (floor(each) for each in coordinates)
    of_y, of_x = (
        cubic_weights(each - first) for each, first in zip(coordinates, (y, x), strict=True)
    )
    found = []
    for plane in image:
        rows = [
            sum_of([at(plane, (y + i - 1, x + j - 1), tally) * of_x[j] for j in range(4)])
            for i in range(4)
        ]
        found.append(sum_of([row * w for row, w in zip(rows, of_y, strict=True)]))
    return found


@settings(max_examples=30)
@given(
    dimensions=st.integers(2, 3),
    channels=st.integers(1, 3),
    mode=st.sampled_from(["bilinear", "nearest", "bicubic"]),
    align_corners=st.booleans(),
)
def test_grid_sample(dimensions: int, channels: int, mode: str, align_corners: bool) -> None:
    """Positions, weights and sums as they are computed, place by place."""
    if mode == "bicubic":
        dimensions = 2
    size, places, tally = 4, 3, Tally()
    image = random(1, channels, *[size] * dimensions)
    grid = random(1, *[places] * dimensions, dimensions) / 2

    def sample(image: Any, grid: Any) -> torch.Tensor:
        return F.grid_sample(image, grid, mode=mode, align_corners=align_corners)

    pixels, result = numbers(image[0], tally), []
    for place in product(range(places), repeat=dimensions):
        # A grid names the last dimension first.
        coordinates = [
            position(x, size, align_corners) for x in numbers(grid[(0, *place)], tally)[::-1]
        ]
        if mode == "nearest":
            rounded = tuple(round(x.value) for x in coordinates)
            tally.simple += dimensions
            found = [at(plane, rounded, tally) for plane in pixels]
        else:
            sampler = linear_sample if mode == "bilinear" else cubic_sample
            found = sampler(pixels, coordinates, tally)
        result.append(found)
    expected = sample(image, grid)[0].reshape(channels, -1).T
    assert same(result, expected)
    record = only(passed(sample, image, grid))
    assert record.work.flop == tally.flop
    assert record.work.min_flop == 2 * dimensions * places**dimensions


def test_a_grid_touches_no_more_than_its_neighbours() -> None:
    """One place of a large image: four pixels a channel, and maybe none."""
    record = only(
        passed(lambda x, g: F.grid_sample(x, g, align_corners=False), (1, 3, 99, 99), (1, 1, 1, 2))
    )
    image = record.inputs[0]
    assert (image.distinct_elements, image.min_elements) == (4 * 3, 0)


@pytest.mark.parametrize("size", [[2, 3, 4, 5], [2, 3, 4, 5, 6]])
def test_affine_grid(size: list[int]) -> None:
    """A vector of d + 1 numbers times d rows for each place."""
    d = len(size) - 2
    work = only(
        passed(lambda theta: F.affine_grid(theta, size, align_corners=False), (2, d, d + 1))
    ).work
    assert work.macs == 2 * math.prod(size[2:]) * d * (d + 1)
    assert work.flop == 2 * (work.macs or 0)
