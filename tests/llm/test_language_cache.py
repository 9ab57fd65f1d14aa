"""Bytes of the key-value cache, held against published figures and counted one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.llm.architecture import Architecture
from roofline.llm.memory import Cache, cache_of
from tests.llm.language_examples import (
    DEEPSEEK_V3,
    FALCON_7B,
    LLAMA_2_7B,
    LLAMA_3_8B,
    MISTRAL_7B,
    TINY,
)

HALF = dtype("bfloat16")


def cache(configuration: dict[str, Any], of: str = "bfloat16") -> Cache:
    return cache_of(Architecture.of(configuration), dtype(of))


@pytest.mark.parametrize(
    ("configuration", "token_bytes"),
    [
        # 2 (keys and values) x 32 layers x 32 heads x 128 x 2 B: half a MiB, as is often told.
        (LLAMA_2_7B, 512 * 1024),
        (LLAMA_3_8B, 128 * 1024),
        # One key-value head of 64 for all 71 heads.
        (FALCON_7B, 2 * 32 * 64 * 2),
        # 70,272 bytes a token: DeepSeek-AI, "Insights into DeepSeek-V3", ISCA 2025, table 1.
        (DEEPSEEK_V3, 70_272),
    ],
)
def test_bytes_of_a_token(configuration: dict[str, Any], token_bytes: int) -> None:
    assert cache(configuration).token_bytes == token_bytes
    assert cache(configuration).byte(1000, 3) == 3000 * token_bytes


def test_windows_end_what_is_kept() -> None:
    of = cache(MISTRAL_7B)
    full = 4096 * 128 * 1024
    assert of.byte(4096) == full
    assert of.byte(32768) == full
    assert of.byte(1) == 128 * 1024


@given(
    kinds=st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=1),
    window=st.integers(1, 40),
    context=st.integers(0, 100),
    batch=st.integers(1, 5),
)
def test_it_is_what_walking_over_tokens_and_layers_finds(
    kinds: list[str], window: int, context: int, batch: int
) -> None:
    sizes = {"num_hidden_layers": len(kinds), "layer_types": kinds, "sliding_window": window}
    counted = 0
    for kind in kinds:
        for token in range(context):
            is_dropped = kind == "sliding_attention" and token < context - window
            counted += 0 if is_dropped else 2 * 2 * 4 * 2
    assert cache({**TINY, **sizes}).byte(context, batch) == batch * counted


def test_bits_of_the_cache() -> None:
    assert 2 * cache(TINY, "int8").token_bytes == cache(TINY).token_bytes
    assert 4 * cache(TINY, "int4").token_bytes == cache(TINY).token_bytes
