"""The minimum of direct, Winograd and FFT, against runs of these algorithms that count products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.placement import Roof
from roofline.workload.formulas.convolution_algorithms import (
    is_convolution,
    min_flop_of_algorithms,
    min_transform_length,
)
from roofline.workload.formulas.registry import known
from roofline.workload.operators import OperatorRecord
from tests.builders import ceiling, level, profile
from tests.workload.passes import only, passed, working
from tests.workload.test_formulas_convolution import Case, cases, gradients

ONE = Case(1, (14, 14), 1, 1, 1, (3, 3), (1, 1), (0, 0), (1, 1), bias=False)


def simple(size: Sequence[int], kernel: Sequence[int], padding: int, **channels: int) -> Case:
    """Two samples, steps of 1."""
    ones = (1,) * len(size)
    return Case(
        *(2, tuple(size), channels["channels"], channels["filters"], 1, tuple(kernel)),
        *(ones, (padding,) * len(size), ones, False),
    )


def forward(case: Case, *, transposed: bool = False) -> OperatorRecord:
    return only(passed(case.module(transposed=transposed), case.input()))


def least(case: Case, *, transposed: bool = False) -> int:
    found = min_flop_of_algorithms(forward(case, transposed=transposed))
    assert found is not None
    return found


POINTS = (0, 1, -1, 2, -2, 0.5, -0.5)


def cook_toom(tile: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices that transform a tile's image, its kernel, and their products into results.

    By the transpose of a product of two polynomials, from its values at as many points as it has
    coefficients, the last of them infinity.
    """
    points = tile + taps - 1

    def values(coefficients: int) -> np.ndarray:
        rows = [[float(at) ** power for power in range(coefficients)] for at in POINTS]
        infinity = [float(power == coefficients - 1) for power in range(coefficients)]
        return np.array([*rows[: points - 1], infinity])

    return np.linalg.inv(values(points)).T, values(taps), values(tile).T


def winograd(x: np.ndarray, w: np.ndarray, tiles: Sequence[int]) -> tuple[np.ndarray, int]:
    """A convolution without padding in nested tiles of results, and its element-wise products.

    x: (batch, channels, *size); w: (filters, channels, *kernel).
    """
    spatial = "xyz"[: len(tiles)]
    of_image, of_kernel, of_results = zip(
        *(cook_toom(m, r) for m, r in zip(tiles, w.shape[2:], strict=True)), strict=True
    )

    def along(matrices: Sequence[np.ndarray], data: np.ndarray) -> np.ndarray:
        for axis, matrix in enumerate(matrices):
            data = np.moveaxis(np.tensordot(matrix, data, axes=(1, axis + 2)), 0, axis + 2)
        return data

    kernels = along(of_kernel, w)
    sizes = [n - r + 1 for n, r in zip(x.shape[2:], w.shape[2:], strict=True)]
    padded = [ceil(n / m) * m for n, m in zip(sizes, tiles, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *padded))
    room = [(0, 0), (0, 0), *((0, p - n) for p, n in zip(padded, sizes, strict=True))]
    x = np.pad(x, room)
    products = 0
    for corner in product(*(range(0, n, m) for n, m in zip(padded, tiles, strict=True))):
        here = tuple(
            slice(at, at + m + r - 1) for at, m, r in zip(corner, tiles, w.shape[2:], strict=True)
        )
        tile = along(of_image, x[(slice(None), slice(None), *here)])
        products += x.shape[0] * kernels.size
        summed = np.einsum(f"nc{spatial},kc{spatial}->nk{spatial}", tile, kernels)
        there = tuple(slice(at, at + m) for at, m in zip(corner, tiles, strict=True))
        y[(slice(None), slice(None), *there)] = along(of_results, summed)
    return y[(slice(None), slice(None), *(slice(n) for n in sizes))], products


def directly(x: np.ndarray, w: np.ndarray, **named: Any) -> np.ndarray:
    function = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim]
    return function(torch.from_numpy(x), torch.from_numpy(w), **named).numpy()


@pytest.mark.parametrize(
    ("tiles", "kernel", "results"),
    [
        ((2, 2), (3, 3), (6, 4)),
        ((4, 4), (3, 3), (8, 4)),
        ((6, 6), (3, 3), (6, 6)),
        ((4, 4), (5, 5), (4, 4)),
        ((6,), (3,), (12,)),
        ((6, 4), (3, 1), (6, 4)),
        ((6, 6, 6), (3, 3, 3), (6, 6, 6)),
        ((6, 6), (3, 3), (7, 11)),
    ],
)
def test_winograd_computes_the_convolution_with_no_fewer_products(
    tiles: tuple[int, ...], kernel: tuple[int, ...], results: tuple[int, ...]
) -> None:
    random = np.random.default_rng(0)
    size = tuple(n + k - 1 for n, k in zip(results, kernel, strict=True))
    x, w = random.normal(size=(2, 3, *size)), random.normal(size=(4, 3, *kernel))
    y, products = winograd(x, w, tiles)
    np.testing.assert_allclose(y, directly(x, w), atol=1e-8)
    assert least(simple(size, kernel, 0, channels=3, filters=4)) <= 2 * products


def test_of_whole_tiles_the_least_is_that_of_f6() -> None:
    """12 × 12 results are 2 × 2 tiles of 8 × 8 products; an FFT of 14 × 14 has 292."""
    x = w = np.ones((1, 1, 14, 14))
    _, products = winograd(x, w[..., :3, :3], (6, 6))
    assert products == 256
    assert least(ONE) == 2 * products


def test_even_and_odd_places_of_a_stride_of_two_are_convolutions() -> None:
    """24 × 24 places and no padding; 12 results: 2 tiles of 6 + 2 - 1, and 12 of one tap."""
    random = np.random.default_rng(0)
    x, w = random.normal(size=(1, 2, 25, 25)), random.normal(size=(3, 2, 3, 3))
    y, products = np.zeros((1, 3, 12, 12)), 0
    for phase in product(range(2), repeat=2):
        places = x[:, :, phase[0] :: 2, phase[1] :: 2]
        taps = w[:, :, phase[0] :: 2, phase[1] :: 2]
        part, more = winograd(places, taps, (6, 6))
        y, products = y + part[:, :, :12, :12], products + more
    np.testing.assert_allclose(y, directly(x, w, stride=2), atol=1e-8)
    case = replace(ONE, size=(25, 25), channels=2, filters=3, stride=(2, 2))
    # Of one tap only 12 × 12 results are asked for, of 13 places.
    assert least(case) == 2 * 6 * (14 + 12) ** 2 <= 2 * products


def cyclic(x: np.ndarray, w: np.ndarray, length: Sequence[int], padding: int) -> tuple[Any, int]:
    """A convolution by FFT of that many points, and the real products of its spectrum.

    The image lies behind `padding` places, what is beyond the end of the transform at its begin.
    """
    axes = tuple(range(2, x.ndim))
    folded = np.zeros((*x.shape[:2], *length))
    for at in np.ndindex(*x.shape[2:]):
        place = tuple((i + padding) % n for i, n in zip(at, length, strict=True))
        folded[(slice(None), slice(None), *place)] += x[(slice(None), slice(None), *at)]
    image = np.fft.rfftn(folded, axes=axes)
    kernel = np.conj(np.fft.rfftn(w, s=tuple(length), axes=axes))
    summed = np.einsum("nc...,kc...->nk...", image, kernel)
    pairs = x.shape[0] * x.shape[1] * w.shape[0]
    points = {
        min(at, tuple((-i) % n for i, n in zip(at, length, strict=True)))
        for at in np.ndindex(*length)
    }
    real = {at for at in points if all(2 * i % n == 0 for i, n in zip(at, length, strict=True))}
    # A spectrum of real numbers has every point twice, conjugate; what is its own is real.
    assert len(points) <= prod(image.shape[2:])
    products = pairs * (3 * len(points - real) + len(real))
    return np.fft.irfftn(summed, s=tuple(length), axes=axes), products


@pytest.mark.parametrize(
    ("size", "kernel", "padding"),
    [((40, 40), 3, 1), ((16, 20), 5, 2), ((12, 12), 7, 3), ((8, 8, 8), 5, 2)],
)
def test_fft_computes_the_convolution_with_as_many_products(
    size: tuple[int, ...], kernel: int, padding: int
) -> None:
    """Zeros at the end of the image are those before its begin: size + padding points do."""
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 2, *size))
    w = random.normal(size=(3, 2, *(kernel,) * len(size)))
    expected = directly(x, w, padding=padding)
    y, products = cyclic(x, w, [n + padding for n in size], padding)
    inside = tuple(slice(n) for n in expected.shape)
    np.testing.assert_allclose(y[inside], expected, atol=1e-8)
    case = simple(size, (kernel,) * len(size), padding, channels=2, filters=3)
    assert least(case) == 2 * products


def shortest(size: int, kernel: int, padding: int, windows: int) -> int:
    """By trial: the first length at which products modulo it are those of the convolution."""
    wanted = {
        (i, k, o)
        for i, k, o in product(range(size), range(kernel), range(windows))
        if i == o + k - padding
    }
    used = [sorted({each[which] for each in wanted}) for which in range(3)]
    for length in range(1, 100):
        made = {(i, k, o) for i, k, o in product(*used) if (o + k - padding - i) % length == 0}
        apart = all(len({each % length for each in these}) == len(these) for these in used)
        if made == wanted and apart:
            return length
    raise AssertionError("no length")


@given(size=st.integers(1, 9), kernel=st.integers(2, 7), padding=st.integers(0, 8))
def test_no_shorter_transform_holds_the_windows(size: int, kernel: int, padding: int) -> None:
    windows = size + 2 * padding - kernel + 1
    if windows < 1:
        return
    assert min_transform_length(size, kernel, padding, windows) == shortest(
        size, kernel, padding, windows
    )


@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=60)
@given(case=cases(), mask=st.sampled_from([(1, 0, 0), (0, 1, 0), (1, 1, 0)]))
def test_never_above_direct_and_the_same_for_each_gradient(
    transposed: bool, case: Case, mask: tuple[int, ...]
) -> None:
    case = replace(case, bias=False)
    record = forward(case, transposed=transposed)
    min_flop = min_flop_of_algorithms(record)
    assert min_flop is not None
    assert 0 <= min_flop <= (record.work.min_flop or 0)
    backward = gradients(case, list(map(bool, mask)), transposed=transposed)
    assert min_flop_of_algorithms(backward) == sum(mask) * min_flop


@given(case=cases(), more=st.integers(1, 3))
@settings(max_examples=30)
def test_more_channels_take_more(case: Case, more: int) -> None:
    case = replace(case, bias=False, groups=1)
    once = least(case)
    assert least(replace(case, channels=more * case.channels)) == pytest.approx(more * once, abs=9)
    assert least(replace(case, filters=case.filters + more)) >= once
    assert least(replace(case, batch=2 * case.batch)) >= once


@pytest.mark.parametrize(
    "changed",
    [
        {"kernel": (1, 1)},
        {"dilation": (2, 2)},
        {"dilation": (1, 2)},
        {"stride": (3, 3)},
        {"stride": (1, 3)},
        {"stride": (4, 4), "kernel": (4, 4)},
        {"kernel": (1, 1), "stride": (2, 2)},
        # One result: a sum of as many products as there are taps.
        {"kernel": (14, 14)},
    ],
)
def test_what_only_the_direct_algorithm_does(changed: dict[str, tuple[int, int]]) -> None:
    record = forward(replace(ONE, **changed))
    assert min_flop_of_algorithms(record) == record.work.min_flop


def test_dilation_of_a_dimension_without_taps_changes_nothing() -> None:
    assert least(replace(ONE, kernel=(3, 1), dilation=(1, 2))) == least(replace(ONE, kernel=(3, 1)))


def test_groups_have_their_own_channels() -> None:
    """A depthwise convolution has as many products as one of a channel for each of its channels."""
    assert least(replace(ONE, groups=8)) == 8 * least(ONE)


def test_integers_are_direct() -> None:
    record = forward(ONE)
    codes = tuple(replace(each, dtype=dtype("int8")) for each in record.inputs)
    assert min_flop_of_algorithms(replace(record, inputs=codes)) == record.work.min_flop


def test_a_bias_is_no_product() -> None:
    assert least(replace(ONE, bias=True)) == least(ONE)


def test_one_tensor_as_image_weight_and_gradient_is_no_error() -> None:
    def twice(x: torch.Tensor) -> Any:
        options = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
        return torch.ops.aten.convolution_backward(x.new_ones(4, 4, 1, 1), x, x, *options)

    own = only(passed(lambda x: F.conv2d(x, x), (4, 4, 3, 3)))
    assert min_flop_of_algorithms(own) == own.work.min_flop
    backward = working(passed(twice, (4, 4, 3, 3)))[-1]
    assert min_flop_of_algorithms(backward) == 0 < (backward.work.min_flop or 0)


def test_every_convolution_of_aten_is_one() -> None:
    """Names with a formula for convolutions of images, and no others."""
    names = {
        key
        for key, each in known().items()
        if each.type == "convolution" and key.startswith("aten.")
    }
    record = forward(ONE)
    taken = {each for each in names if is_convolution(replace(record, op=each))}
    assert names - taken == {"aten.conv_tbc"}
    assert not is_convolution(replace(record, op="quantized.conv2d"))


def test_bounds_take_it_where_the_library_has_it() -> None:
    cpu = profile([ceiling(1e12)], [level("DRAM", None, {"read": {1: 1e12}})])
    roof = Roof(replace(cpu, device="cuda"), 1)
    record = forward(replace(ONE, channels=64, filters=64, batch=8))
    direct = Roof(cpu, 1).place(record, [])
    placed = roof.place(record, [])
    assert direct.eager_min_time_s == pytest.approx(2 * 8 * 64 * 64 * 144 * 9 / 1e12)
    assert placed.eager_min_time_s == pytest.approx(2 * 8 * 64 * 64 * 256 / 1e12)
    assert placed.attainable_flop_per_s == direct.attainable_flop_per_s == 1e12
    assert Roof(cpu, 1).convolution_algorithms == "direct algorithm"
    assert roof.convolution_algorithms == "minimum of direct, Winograd F(2, 4, 6), FFT"
