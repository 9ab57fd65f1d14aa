"""What fits into memory, found by adding sequences and tokens one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.llm.architecture import Architecture
from roofline.llm.memory import (
    Activations,
    Fit,
    Footprint,
    Memory,
    activations_of,
    cache_of,
    fit_of,
    footprint_of,
)
from tests.llm.language_examples import LLAMA_2_7B, LLAMA_3_8B, TINY

HALF = dtype("bfloat16")
NOTHING = Activations(token_bytes=0, sequence_bytes=0, takes_context=False)
OF_PROMPTS = Activations(token_bytes=7, sequence_bytes=30, takes_context=True)
OF_TOKENS = Activations(token_bytes=7, sequence_bytes=30, takes_context=False)


def footprint(
    memory: int | None,
    *,
    context: int = 10,
    batch: int = 1,
    peak: int | None = None,
    activations: Activations = OF_TOKENS,
    **sizes: Any,
) -> Footprint:
    return footprint_of(
        cache_of(Architecture.of({**TINY, **sizes}), HALF),
        context=context,
        batch=batch,
        weight_bytes=1000,
        activations=activations,
        memory=Memory(size_bytes=memory, source="a test"),
        peak_bytes=peak,
    )


def taken(batch: int, context: int, is_prefill: bool) -> int:
    """By walking over sequences; 3 layers, 2 heads of 4, keys and values, 2 B: 96 B a token."""
    byte = 1000
    for _ in range(batch):
        byte += 96 * context + max(30, 7 * (context if is_prefill else 1))
    return byte


@given(
    memory=st.integers(0, 30_000),
    context=st.integers(1, 40),
    batch=st.integers(1, 4),
    is_prefill=st.booleans(),
)
def test_room_is_what_adding_one_more_finds(
    memory: int, context: int, batch: int, is_prefill: bool
) -> None:
    activations = OF_PROMPTS if is_prefill else OF_TOKENS
    found = footprint(memory, context=context, batch=batch, activations=activations)
    assert found.total_bytes == taken(batch, context, is_prefill)
    sequences = 0
    while taken(sequences + 1, context, is_prefill) <= memory:
        sequences += 1
    assert found.max_sequences == sequences
    tokens = 0
    while taken(batch, tokens + 1, is_prefill) <= memory:
        tokens += 1
    assert found.max_context == tokens


@given(
    window=st.integers(1, 20),
    memory=st.integers(0, 5000),
    batch=st.integers(1, 3),
    all_end=st.booleans(),
)
def test_windows_that_all_end_have_room_for_any_context(
    window: int, memory: int, batch: int, all_end: bool
) -> None:
    kinds = ["sliding_attention" if all_end else "full_attention", *["sliding_attention"] * 2]
    sizes = {"layer_types": kinds, "sliding_window": window}
    fitting = [
        context
        for context in range(1, 300)
        if footprint(memory, context=context, batch=batch, **sizes).total_bytes <= memory
    ]
    found = footprint(memory, batch=batch, **sizes).max_context
    assert found == (None if len(fitting) == 299 else max(fitting, default=0))


def test_a_footprint_is_the_sum_of_its_parts() -> None:
    found = footprint(10_000, context=10, batch=2)
    assert (found.weight_bytes, found.cache_bytes, found.activation_bytes) == (1000, 1920, 60)
    assert found.total_bytes == 2980


def test_activations_are_those_of_a_prompt_or_the_logits() -> None:
    of = Architecture.of(LLAMA_3_8B)
    # 4096 numbers of 2 B are read and written for each token; logits are 128,256 of them.
    prefill, decode = (activations_of(of, stage, HALF) for stage in ("prefill", "decode"))
    assert prefill.byte(4096, 8) == 8 * 4096 * 2 * 4096 * 2
    assert decode.byte(4096, 8) == 8 * (4096 + 128_256) * 2
    assert prefill.byte(1) == decode.byte(1)


@pytest.mark.parametrize(
    ("least", "peak", "memory", "fit"),
    [
        (10, 20, 20, "fits"),
        (10, 10, 10, "fits"),
        (10, None, 10, "minimum fits"),
        (10, 21, 20, "only without copies"),
        (11, 21, 10, "does not fit"),
        (11, 21, None, "unknown"),
    ],
)
def test_whether_it_fits(least: int, peak: int | None, memory: int | None, fit: Fit) -> None:
    assert fit_of(least, peak, memory) == fit


def test_without_a_size_there_is_no_room_to_tell() -> None:
    found = footprint(None)
    assert (found.max_sequences, found.max_context, found.fit) == (None, None, "unknown")


def test_llama_2_7b_in_sixteen_gigabyte() -> None:
    # 13.48 GB of weights leave 2,523,168,768 B: 4,812 tokens of 524,288 B.
    found = footprint_of(
        cache_of(Architecture.of(LLAMA_2_7B), HALF),
        context=4096,
        batch=1,
        weight_bytes=2 * 6_738_415_616,
        activations=NOTHING,
        memory=Memory(size_bytes=16_000_000_000, source="a test"),
    )
    assert found.max_context == 4812
    assert found.max_sequences == 1
    assert found.fit == "minimum fits"
