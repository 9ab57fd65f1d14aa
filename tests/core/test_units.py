"""Numbers for people: prefixes, digits, and shapes back into numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import units
from roofline.core.text import counted
from roofline.core.units import format_ratio, sum_known
from roofline.errors import InputError


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
    with pytest.raises(InputError, match="fewer than 2\\^60 elements") as refused:
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


@given(st.integers(1, 2**20))
def test_capacities_there_and_back(kib: int) -> None:
    assert units.parse_capacity(f"{kib}KiB") == kib * 1024


READ = {
    units.parse_clock: {
        "3.0GHz": 3e9,
        "2600 MHz": 2.6e9,
        " 4.5ghz ": 4.5e9,
        "100MHz": 1e8,
        "10GHz": 1e10,
    },
    units.parse_transfer_rate: {"2933MT/s": 2.933e9, "6.4 GT/s": 6.4e9, "800mt/s": 8e8},
    units.parse_capacity: {"1.25MiB": 1310720, "24.75 MiB": 25952256, "2gib": 2**31},
    units.parse_bytes: {
        "1MB": 1_000_000,
        "1.5MiB": 1_572_864,
        "800kB": 800_000,
        "800 KB": 800_000,
        "4096B": 4096,
        " 2GiB ": 2_147_483_648,
        "1TB": 10**12,
    },
    units.parse_duration: {
        "5ms": 0.005,
        "800us": 8e-4,
        "800 µs": 8e-4,
        "1.5s": 1.5,
        " 90ns ": 9e-8,
    },
}


@pytest.mark.parametrize(
    ("parse", "text", "value"), [(p, *each) for p, texts in READ.items() for each in texts.items()]
)
def test_amounts(parse: Callable[[str], float], text: str, value: float) -> None:
    is_rounded = parse is units.parse_duration
    assert parse(text) == (pytest.approx(value, rel=1e-12) if is_rounded else value)


MANY = "9" * 5000
REFUSED: dict[tuple[Callable[[str], float], str], tuple[str, ...]] = {
    (units.parse_clock, r"must be a frequency"): (
        *("", "3", "3.0", "3 THz", "-3GHz", "3,0GHz", "GHz", "1e9Hz", "3GHz!"),
    ),
    (units.parse_clock, "must be from 100MHz"): ("0GHz", "99MHz", "11GHz", "4500GHz"),
    (units.parse_transfer_rate, "must be a rate such as 2933MT/s"): ("2933", "2933MHz"),
    (units.parse_transfer_rate, "must be from 100MT/s"): ("0MT/s", "2933000MT/s"),
    (units.parse_capacity, "must be a size such as 32KiB"): (
        *("", "32", "32KB", "0KiB", "-1KiB", "0.0001KiB", f"{MANY}KiB"),
    ),
    (units.parse_bytes, "must be a size such as 1MB"): (
        *("", "1", "0MB", "0.4B", "-1MB", "1mb", "1 M", "1MBit", "1e3kB", f"{MANY}MB"),
    ),
    (units.parse_duration, "must be a time such as 5ms"): (
        *("", "5", "0ms", "-5ms", "5 min", "5MS", "1e3s", f"{MANY}s"),
    ),
}


@pytest.mark.parametrize(
    ("parse", "words", "text"), [(*key, each) for key, texts in REFUSED.items() for each in texts]
)
def test_what_is_no_amount(parse: Callable[[str], float], words: str, text: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        parse(text)
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
