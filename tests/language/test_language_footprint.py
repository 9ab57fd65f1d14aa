"""What fits into memory, found by adding sequences and tokens one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.foundation.dtypes import dtype
from roofline.language.architecture import Architecture
from roofline.language.cache import cache_of
from roofline.language.footprint import Fit, Footprint, Memory, fit_of, footprint_of
from tests.language.language_examples import LLAMA_2_7B, TINY

HALF = dtype("bfloat16")


def footprint(
    memory: int | None, *, context: int = 10, batch: int = 1, peak: int | None = None
) -> Footprint:
    return footprint_of(
        cache_of(Architecture.of(TINY), HALF),
        context=context,
        batch=batch,
        weight_byte=1000,
        activation_byte=batch * 30,
        memory=Memory(byte=memory, source="a test"),
        peak_byte=peak,
    )


@given(memory=st.integers(0, 30_000), context=st.integers(1, 40))
def test_room_is_what_adding_one_more_finds(memory: int, context: int) -> None:
    # 3 layers, 2 key-value heads of 4 elements, keys and values, 2 B: 96 B a token.
    sequences = 0
    while 1000 + (sequences + 1) * (96 * context + 30) <= memory:
        sequences += 1
    assert footprint(memory, context=context).most_sequences == sequences
    tokens = 0
    while 1000 + 30 + 96 * (tokens + 1) <= memory:
        tokens += 1
    assert footprint(memory, context=context).most_context == tokens


def test_a_footprint_is_the_sum_of_its_parts() -> None:
    found = footprint(10_000, context=10, batch=2)
    assert (found.weight_byte, found.cache_byte, found.activation_byte) == (1000, 1920, 60)
    assert found.byte == 2980


@pytest.mark.parametrize(
    ("least", "peak", "memory", "fit"),
    [
        (10, 20, 20, "fits"),
        (10, None, 10, "fits"),
        (10, 21, 20, "only without copies"),
        (11, 21, 10, "does not fit"),
        (11, 21, None, "unknown"),
    ],
)
def test_whether_it_fits(least: int, peak: int | None, memory: int | None, fit: Fit) -> None:
    assert fit_of(least, peak, memory) == fit


def test_without_a_size_there_is_no_room_to_tell() -> None:
    found = footprint(None)
    assert (found.most_sequences, found.most_context, found.fit) == (None, None, "unknown")


def test_llama_2_7b_in_sixteen_gigabyte() -> None:
    # 13.48 GB of weights leave 2,523,168,768 B: 4,812 tokens of 524,288 B.
    found = footprint_of(
        cache_of(Architecture.of(LLAMA_2_7B), HALF),
        context=4096,
        batch=1,
        weight_byte=2 * 6_738_415_616,
        activation_byte=0,
        memory=Memory(byte=16_000_000_000, source="a test"),
    )
    assert found.most_context == 4812
    assert found.most_sequences == 1
    assert found.fit == "fits"
