"""Numbers for people: prefixes, digits, and shapes back into numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.errors import InputError
from roofline.foundation import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.608e12, "4.61 TFLOP/s"),
        (2.65e11, "265 GFLOP/s"),
        (999.6e9, "1.00 TFLOP/s"),
        (999.4e9, "999 GFLOP/s"),
        (1e9, "1.00 GFLOP/s"),
        (12.0, "12 FLOP/s"),
        (0.0, "0 FLOP/s"),
        (0.25, "0.250 FLOP/s"),
        (None, "–"),
    ],
)
def test_rates(value: float | None, text: str) -> None:
    assert units.format_flop_per_s(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00 s"),
        (0.0123, "12.3 ms"),
        (4.56e-7, "456 ns"),
        (9.996e-4, "1.00 ms"),
        (2.5e-12, "0.00250 ns"),
        (0.0, "0 s"),
        (None, "–"),
    ],
)
def test_times(value: float | None, text: str) -> None:
    assert units.format_s(value) == text


@pytest.mark.parametrize(
    ("byte", "text"),
    [(32 * 2**20, "32 MiB"), (49152, "48 KiB"), (100, "100 B"), (0, "0 B"), (None, "–")],
)
def test_capacities_are_binary(byte: int | None, text: str) -> None:
    assert units.format_capacity(byte) == text


def test_percent_is_all_or_nothing_only_when_it_is() -> None:
    assert units.format_percent(1.0) == "100 %"
    assert units.format_percent(0.99999) == "> 99.9 %"
    assert units.format_percent(0.0) == "0 %"
    assert units.format_percent(1e-6) == "< 0.1 %"
    assert units.format_percent(0.1234) == "12.3 %"
    assert units.format_percent(None) == "–"


@given(st.lists(st.integers(1, 900), min_size=1, max_size=6))
def test_shapes_there_and_back(sizes: list[int]) -> None:
    assert units.parse_shape(units.format_shape(tuple(sizes))) == tuple(sizes)


@pytest.mark.parametrize(
    "text", ["", "x", "1x", "1,3", "-1x3", "1x3.0", "0x3", "1 x 3", "\uff11x3"]
)
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(InputError, match="shape"):
        units.parse_shape(text)


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1x" + "9" * 5000, f"{2**60}", f"{2**30}x{2**30}", "1024x" * 6 + "1"]
)
def test_shapes_that_no_tensor_has(text: str) -> None:
    """torch counts bytes in 64 bits, and Python reads no number of 5000 digits."""
    with pytest.raises(InputError, match="less than 2\\^60 elements") as refused:
        units.parse_shape(text)
    assert len(str(refused.value)) < 200


def test_the_largest_shape() -> None:
    assert units.parse_shape(f"{2**60 - 1}x1") == (2**60 - 1, 1)


@given(st.floats(1e-9, 1e18))
def test_formatted_numbers_are_within_their_digits(value: float) -> None:
    """Three significant digits: what is printed lies within half a per cent of the number."""
    number, _, rest = units.format_si(value, "X").partition(" ")
    factor = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}[rest.removesuffix("X")]
    assert float(number) * factor == pytest.approx(value, rel=0.0051)
