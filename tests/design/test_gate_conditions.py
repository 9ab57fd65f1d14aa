"""Conditions of a gate: what is read, where the caret stands, and what passes to the last FLOP."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.conditions import Condition, parse_conditions
from roofline.core.source_errors import PlacedError
from roofline.design.gate.cost import QUANTITIES
from roofline.errors import InputError


def parse_condition(text: str) -> Condition:
    (found,) = parse_conditions(text, QUANTITIES)
    return found


@pytest.mark.parametrize(
    ("text", "total", "limit", "baseline"),
    [
        ("flop>+1%", "flop", 1010, 1000),
        ("flop > + 1 %", "flop", 1010, 1000),
        ("FLOP>+0.5%", "flop", 1005, 1000),
        ("flop>-10%", "flop", 900, 1000),
        ("flop>4.1GFLOP", "flop", 4_100_000_000, None),
        ("flop>4.1G", "flop", 4_100_000_000, None),
        ("flop>1e3", "flop", 1000, None),
        ("macs>+2k", "macs", 3000, 1000),
        ("launches>+3", "launches", 13, 10),
        ("launches<-3", "launches", 7, 10),
        ("parameters>25.5M", "parameters", 25_500_000, None),
        ("traffic_bytes>1MB", "traffic_bytes", 1_000_000, None),
        ("peak_memory_bytes>512MiB", "peak_memory_bytes", 536_870_912, None),
        ("peak_memory_bytes>+1KiB", "peak_memory_bytes", 2024, 1000),
        ("traffic_bytes>4096", "traffic_bytes", 4096, None),
        ("traffic_bytes>4096B", "traffic_bytes", 4096, None),
    ],
)
def test_the_limit_is_the_number_that_the_words_say(
    text: str, total: str, limit: int, baseline: int | None
) -> None:
    condition = parse_condition(text)
    assert condition.quantity.name == total
    assert condition.limit_at(baseline) == limit
    is_above = condition.sign == ">"
    assert not condition.fails(limit, baseline)
    assert condition.fails(limit + 1 if is_above else limit - 1, baseline)
    assert not condition.fails(limit - 1 if is_above else limit + 1, baseline)


@pytest.mark.parametrize(
    ("text", "limit_s"),
    [
        ("predicted_s>5ms", "0.005"),
        ("eager_min_time_s>800us", "0.0008"),
        ("eager_min_time_s>90 ns", "9e-8"),
        ("predicted_s>1.5s", "1.5"),
        ("predicted_s>0.25", "0.25"),
    ],
)
def test_times_take_their_units(text: str, limit_s: str) -> None:
    condition = parse_condition(text)
    assert condition.quantity.is_time
    exact = condition.limit_at(None)
    assert Decimal(exact.numerator) / Decimal(exact.denominator) == Decimal(limit_s)


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 0, "the name of a total is expected"),
        ("+1%", 0, "the name of a total is expected"),
        ("flopp>+1%", 0, "did you mean 'flop'"),
        ("flops>+1%", 0, "did you mean 'flop'"),
        ("flop", 4, "> or < is expected"),
        ("flop 5", 5, "> or < is expected"),
        ("flop>=5", 5, "write > or < alone"),
        ("flop>", 5, "a number is expected"),
        ("flop>+", 6, "a number is expected"),
        ("flop>lots", 5, "a number is expected"),
        ("flop>nan", 5, "a number is expected"),
        ("flop>1%", 5, "Write +1%"),
        ("flop>+1%x", 7, "'%x' is no unit of flop"),
        ("flop>5ms", 6, "'ms' is no unit of flop"),
        ("launches>5GB", 10, "'GB' is no unit of launches"),
        ("predicted_s>5m", 13, "'m' is no unit of predicted_s"),
        ("traffic_bytes>5M", 15, "'M' is no unit of traffic_bytes"),
        ("traffic_bytes>5iB", 15, "'iB' is no unit of traffic_bytes"),
        ("flop>1e999", 9, "is no unit of flop"),
        ("flop>" + "9" * 30, 25, "is no unit of flop"),
    ],
)
def test_the_caret_stands_under_what_is_wrong(text: str, at: int, said: str) -> None:
    with pytest.raises(PlacedError) as caught:
        parse_condition(text)
    assert caught.value.at == at
    assert said in caught.value.message and "\n" not in caught.value.message
    assert isinstance(caught.value, InputError) and caught.value.exit_code == 2


def test_a_condition_that_is_given_twice_counts_once_and_the_order_stays() -> None:
    found = parse_conditions(["flop>+1%", "launches>+0", " flop>+1% "], QUANTITIES)
    assert [each.text for each in found] == ["flop>+1%", "launches>+0"]


def test_one_condition_may_stand_alone_and_what_is_no_text_is_refused() -> None:
    assert [each.text for each in parse_conditions("flop>+1%", QUANTITIES)] == ["flop>+1%"]
    for wrong in ([1], [None], [b"flop>+1%"]):
        with pytest.raises(InputError, match="expected texts such as 'flop>\\+1%'"):
            parse_conditions(wrong, QUANTITIES)  # pyright: ignore[reportArgumentType]


def test_spaces_and_line_ends_make_no_other_condition() -> None:
    (found,) = parse_conditions(["flop >\n+1\t%", "flop > +1 %"], QUANTITIES)
    assert found.text == "flop > +1 %"
    assert found.limit_at(1000) == 1010


@pytest.mark.parametrize("text", ["a" * 100_000, "flop>1" + "x" * 100_000, "flop>+1%" * 10_000])
def test_what_is_long_is_cut_in_messages(text: str) -> None:
    with pytest.raises(PlacedError) as caught:
        parse_condition(text)
    assert len(caught.value.message) < 300
    assert all(len(line) < 300 for line in str(caught.value).splitlines())


@given(
    baseline=st.integers(0, 10**18),
    percent=st.decimals("0", "500", places=3, allow_nan=False),
    now=st.integers(0, 10**19),
)
def test_shares_are_exact_in_whole_numbers(baseline: int, percent: Decimal, now: int) -> None:
    # Cross-multiplied in whole numbers, where nothing can be rounded.
    thousandths = int(percent * 1000)
    beyond = now * 100_000 > baseline * (100_000 + thousandths)
    assert parse_condition(f"flop>+{percent}%").fails(now, baseline) == beyond


@given(st.text(max_size=30))
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    try:
        parse_condition(text)
    except PlacedError as error:
        assert 0 <= error.at <= len(text)
        assert "\n" not in error.message
