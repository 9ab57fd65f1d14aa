"""Distinct experts, held against every way in which tokens may choose."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.llm.architecture import Architecture
from roofline.llm.parts import distinct_experts, expert_spread
from tests.llm.language_examples import LLAMA_2_7B, MIXTRAL_8X7B


def every_way(count: int, per_token: int, tokens: int) -> list[int]:
    """How many distinct experts each combination of choices touches."""
    choices = list(itertools.combinations(range(count), per_token))
    return [
        len(set().union(*taken)) if taken else 0
        for taken in itertools.product(choices, repeat=tokens)
    ]


@pytest.mark.parametrize(
    ("count", "per_token", "tokens"),
    [(2, 1, 1), (3, 1, 4), (4, 2, 3), (5, 2, 2), (4, 4, 2), (1, 1, 3), (6, 3, 2), (5, 1, 0)],
)
def test_mean_and_deviation_are_those_of_all_ways(count: int, per_token: int, tokens: int) -> None:
    ways = every_way(count, per_token, tokens)
    mean = sum(ways) / len(ways)
    deviation = math.sqrt(sum((each - mean) ** 2 for each in ways) / len(ways))
    found = distinct_experts(count, per_token, tokens)
    assert found == pytest.approx((mean, deviation), abs=1e-9)


def test_no_deviation_is_too_small_for_files() -> None:
    assert distinct_experts(8, 2, 1024) == (8.0, 0.0)
    assert distinct_experts(8, 2, 100)[1] > 0


def test_many_experts_are_as_if_drawn() -> None:
    draw = random.Random(7)
    taken = [
        len(set(itertools.chain.from_iterable(draw.sample(range(64), 6) for _ in range(16))))
        for _ in range(4000)
    ]
    mean = sum(taken) / len(taken)
    found, deviation = distinct_experts(64, 6, 16)
    # Five standard errors.
    assert abs(found - mean) < 5 * deviation / math.sqrt(len(taken))


@given(
    count=st.integers(1, 300),
    share=st.floats(0.01, 1.0),
    tokens=st.integers(1, 5000),
)
def test_it_lies_between_least_and_most(count: int, share: float, tokens: int) -> None:
    per_token = max(1, int(count * share))
    expected, deviation = distinct_experts(count, per_token, tokens)
    assert per_token - 1e-6 <= expected <= min(count, per_token * tokens) + 1e-6
    assert deviation >= 0


def test_bytes_of_experts() -> None:
    of = Architecture.of(MIXTRAL_8X7B)
    spread = expert_spread(of, 1, dtype("bfloat16"))
    assert spread is not None
    # Three products of 4096 x 14336, two bytes each.
    assert spread.expert_bytes == 3 * 4096 * 14336 * 2
    assert (spread.least, spread.expected, spread.most) == (2, pytest.approx(2.0), 2)
    many = expert_spread(of, 4096, dtype("bfloat16"))
    assert many is not None
    assert (many.least, many.typical, many.most) == (2, 8, 8)


def test_a_dense_model_has_none() -> None:
    assert expert_spread(Architecture.of(LLAMA_2_7B), 4, dtype("float32")) is None
