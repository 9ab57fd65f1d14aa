"""Fourier transforms against a radix-2 transform in loops, and by hand."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.operators import State
from tests.workload.passes import only, passed, total

BUTTERFLY_FLOP = 6 + 2 + 2
"""A product with a power of the root of unity, a sum and a difference."""

Numbers = list[complex]


def radix_2(numbers: Numbers) -> tuple[Numbers, int]:
    """The transform, and the butterflies it took, trivial ones too."""
    size = len(numbers)
    if size == 1:
        return numbers, 0
    (even, first), (odd, second) = radix_2(numbers[::2]), radix_2(numbers[1::2])
    turned = [cmath.exp(-2j * math.pi * k / size) * each for k, each in enumerate(odd)]
    upper = [a + b for a, b in zip(even, turned, strict=True)]
    lower = [a - b for a, b in zip(even, turned, strict=True)]
    return upper + lower, first + second + size // 2


def random(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.view_as_complex(torch.randn(*shape, 2, generator=generator))


@given(rounds=st.integers(0, 6), batch=st.integers(1, 3))
def test_radix_2(rounds: int, batch: int) -> None:
    """5 N log2 N are N / 2 butterflies of 10 in each of log2 N rounds."""
    x = random(batch, 2**rounds)
    results, butterflies = zip(*(radix_2(row.tolist()) for row in x), strict=True)
    assert torch.allclose(torch.tensor(results), torch.fft.fft(x), atol=1e-4)
    work = only(passed(torch.fft.fft, x)).work
    assert work.flop == BUTTERFLY_FLOP * sum(butterflies)
    assert work.macs == 0


def split_radix(size: int) -> float:
    """Real operations of the split-radix transform, once the fewest known: 4 N log2 N - 6 N + 8."""
    return 4 * size * math.log2(size) - 6 * size + 8 if size > 1 else 0


@pytest.mark.parametrize("rounds", range(13))
def test_no_known_transform_takes_less_than_the_least(rounds: int) -> None:
    """Nor a real one. The fewest known since 2007 are 34 / 9 N log2 N, to leading order."""
    size = 2**rounds
    whole = only(passed(torch.fft.fft, random(size))).work
    assert (whole.min_flop or 0) <= split_radix(size)
    if size > 1:
        # A real transform of N: split radix takes 2 N log2 N - 4 N + 6.
        half = only(passed(torch.fft.rfft, (size,))).work
        assert (half.min_flop or 0) <= max(0, 2 * size * math.log2(size) - 4 * size + 6)


@settings(max_examples=40)
@given(size=st.integers(1, 40), batch=st.integers(1, 3))
def test_real_transforms_take_half(size: int, batch: int) -> None:
    """There and back; whether the mirrored half is written or not."""
    x = torch.zeros(batch, size)
    there = total(passed(torch.fft.rfft, x)).flop
    whole = total(passed(torch.fft.fft, x)).flop
    back = total(passed(lambda x: torch.fft.irfft(x, size, norm="forward"), torch.fft.rfft(x)))
    complex_one = total(passed(torch.fft.fft, x.to(torch.complex64))).flop
    assert there == whole == back.flop
    assert there == pytest.approx((complex_one or 0) / 2, abs=1)


@settings(max_examples=40)
@given(rows=st.integers(1, 9), columns=st.integers(1, 9))
def test_two_dimensions_are_rows_and_columns(rows: int, columns: int) -> None:
    """Each row, then each column."""
    x = random(rows, columns)
    both = total(passed(torch.fft.fft2, x)).flop or 0
    parts = [total(passed(lambda x, d=dim: torch.fft.fft(x, dim=d), x)).flop for dim in (0, 1)]
    assert both == pytest.approx(sum(each or 0 for each in parts), abs=2)


@pytest.mark.parametrize(
    ("function", "scales"),
    [
        (lambda x: torch.fft.ifft(x), 2 * 16),
        (lambda x: torch.fft.ifft(x, norm="forward"), 0),
        (lambda x: torch.fft.fft(x, norm="ortho"), 2 * 16),
    ],
)
def test_normalised_transforms_are_scaled(function: Callable[[Any], Any], scales: int) -> None:
    """16 complex numbers: 5 * 16 * 4, and a product for each of their parts."""
    assert only(passed(function, random(16))).work.flop == 320 + scales


def test_normalised_real_transforms_are_scaled() -> None:
    """Of 16: 9 complex numbers there, 16 real ones back; 5 * 16 * 4 / 2."""
    assert only(passed(lambda x: torch.fft.rfft(x, norm="ortho"), (16,))).work.flop == 160 + 18
    assert only(passed(lambda x: torch.fft.fft(x, norm="ortho"), (16,))).work.flop == 160 + 18
    assert only(passed(lambda x: torch.fft.irfft(x), random(9))).work.flop == 160 + 16


def test_short_time_transform_is_its_windows() -> None:
    """64 numbers in hops of 2, padded by 4 at either end: 33 windows of 8."""
    window = torch.hann_window(8)
    captured = passed(
        lambda x: torch.stft(x, 8, hop_length=2, window=window, return_complex=True), (64,)
    )
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    work = [each.work.flop for each in captured.records if each.op == "aten._fft_r2c"]
    assert work == [33 * 5 * 8 * 3 // 2]
