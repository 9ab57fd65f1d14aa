"""Numbers for people: prefixes, digits, and shapes back into numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.errors import InputError
from roofline.foundation import units
from roofline.foundation.rows import sum_known
from roofline.foundation.text import counted
from roofline.foundation.units import format_ratio


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


@pytest.mark.parametrize(
    ("text", "hz"),
    [("3.0GHz", 3e9), ("2600 MHz", 2.6e9), (" 4.5ghz ", 4.5e9), ("100MHz", 1e8), ("10GHz", 1e10)],
)
def test_clocks(text: str, hz: float) -> None:
    assert units.parse_clock(text) == hz


@pytest.mark.parametrize(
    "text", ["", "3", "3.0", "3 THz", "-3GHz", "3,0GHz", "GHz", "1e9Hz", "3GHz!"]
)
def test_what_is_no_clock(text: str) -> None:
    with pytest.raises(InputError, match=r"is not of the form 3\.0GHz"):
        units.parse_clock(text)


@pytest.mark.parametrize("text", ["0GHz", "99MHz", "11GHz", "4500GHz"])
def test_clocks_that_no_cpu_has(text: str) -> None:
    with pytest.raises(InputError, match="is none that a CPU has"):
        units.parse_clock(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("2933MT/s", 2.933e9), ("6.4 GT/s", 6.4e9), ("800mt/s", 8e8)]
)
def test_transfer_rates(text: str, rate: float) -> None:
    assert units.parse_transfer_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2933", "is not of the form 2933MT/s"),
        ("2933MHz", "is not of the form 2933MT/s"),
        ("0MT/s", "is none that a memory has"),
        ("2933000MT/s", "is none that a memory has"),
    ],
)
def test_what_is_no_transfer_rate(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        units.parse_transfer_rate(text)


@given(st.integers(1, 2**20))
def test_capacities_there_and_back(kib: int) -> None:
    assert units.parse_capacity(f"{kib}KiB") == kib * 1024


@pytest.mark.parametrize(
    ("text", "byte"), [("1.25MiB", 1310720), ("24.75 MiB", 25952256), ("2gib", 2**31)]
)
def test_capacities(text: str, byte: int) -> None:
    assert units.parse_capacity(text) == byte


@pytest.mark.parametrize(
    "text", ["", "32", "32KB", "0KiB", "-1KiB", "0.0001KiB", "9" * 5000 + "KiB"]
)
def test_what_is_no_capacity(text: str) -> None:
    with pytest.raises(InputError, match="is not of the form 32KiB") as refused:
        units.parse_capacity(text)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("text", "byte"),
    [
        ("1MB", 1_000_000),
        ("1.5MiB", 1_572_864),
        ("800kB", 800_000),
        ("800 KB", 800_000),
        ("4096B", 4096),
        (" 2GiB ", 2_147_483_648),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, byte: int) -> None:
    assert units.parse_bytes(text) == byte


@pytest.mark.parametrize(
    "text", ["", "1", "0MB", "0.4B", "-1MB", "1mb", "1 M", "1MBit", "1e3kB", "9" * 5000 + "MB"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InputError, match="is not of the form 1MB") as refused:
        units.parse_bytes(text)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [("5ms", 0.005), ("800us", 8e-4), ("800 µs", 8e-4), ("1.5s", 1.5), (" 90ns ", 9e-8)],
)
def test_durations(text: str, duration_s: float) -> None:
    assert units.parse_duration(text) == pytest.approx(duration_s, rel=1e-12)


@pytest.mark.parametrize("text", ["", "5", "0ms", "-5ms", "5 min", "5MS", "1e3s", "9" * 5000 + "s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InputError, match="is not of the form 5ms") as refused:
        units.parse_duration(text)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.5, "0.50"),
        (2.0, "2.00"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (139.4, "139"),
    ],
)
def test_ratios_have_three_digits(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert sum_known([1.0, 2.5]) == 3.5
    assert sum_known(each for each in (1, 2)) == 3
    assert sum_known([1, None]) is None
    assert sum_known([]) == 0


def test_counts_have_their_nouns() -> None:
    assert counted(1, "run") == "1 run"
    assert counted(0, "run") == "0 runs"
    assert counted(3400, "operator") == "3,400 operators"
    assert (counted(1, "branch", "branches"), counted(2, "branch", "branches")) == (
        "1 branch",
        "2 branches",
    )
