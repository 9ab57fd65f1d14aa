"""What stages ask for, counted by hand and by walking over every token, head and layer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.llm.architecture import Architecture
from roofline.llm.parts import (
    Part,
    Stage,
    StageSize,
    all_parts,
    attended_pairs,
    parts_of,
    product_weights,
)
from tests.llm.language_examples import DEEPSEEK_V3, LLAMA_2_7B, LLAMA_3_8B, TINY

SPARSE = {**TINY, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12}


def parts(
    configuration: dict[str, Any], stage: Stage, batch: int, context: int, **more: Any
) -> tuple[Part, ...]:
    size = StageSize(stage=stage, batch=batch, context=context)
    return parts_of(Architecture.of(configuration), size, **more)


def total(found: tuple[Part, ...], name: str) -> int:
    return sum(each.count * getattr(each, name) for each in found)


def by_name(found: tuple[Part, ...], name: str) -> dict[str, int]:
    sums: defaultdict[str, int] = defaultdict(int)
    for each in found:
        sums[each.name] += each.count * getattr(each, name)
    return dict(sums)


def test_decode_of_tiny_by_hand() -> None:
    # Width 16, 4 heads of 4, 2 key-value heads, 3 layers, inner width 40, 50 words; two sequences
    # of 10 tokens.
    found = by_name(parts(TINY, "decode", 2, 10), "macs")
    # 16 -> 16 (queries), 16 -> 8 twice (keys, values), 16 -> 16, for 2 tokens in 3 layers.
    assert found["attention projections"] == 2 * 3 * (256 + 128 + 128 + 256)
    # 4 heads look at 11 tokens, 4 elements of a key and 4 of a value each.
    assert found["attention"] == 2 * 3 * 4 * 11 * 8
    assert found["feed-forward"] == 2 * 3 * 3 * 16 * 40
    assert found["vocabulary"] == 2 * 16 * 50


def test_prefill_of_tiny_by_hand() -> None:
    found = parts(TINY, "prefill", 2, 10)
    products = by_name(found, "macs")
    assert products["attention projections"] == 20 * 3 * 768
    # The whole rectangle by convention; only the triangle must be done.
    assert products["attention"] == 2 * 3 * 4 * 100 * 8
    assert by_name(found, "min_flop")["attention"] == 2 * (2 * 3 * 4 * 55 * 8)
    assert products["feed-forward"] == 20 * 3 * 3 * 16 * 40
    # The logits of the last token of each sequence alone.
    assert products["vocabulary"] == 2 * 16 * 50


def test_llama_2_7b_decodes_with_two_flop_a_weight() -> None:
    found = parts(LLAMA_2_7B, "decode", 1, 1)
    weights = 6_738_415_616 - 65 * 4096 - 32000 * 4096
    products = total(found, "macs") - by_name(found, "macs")["attention"]
    assert products == weights == product_weights(Architecture.of(LLAMA_2_7B))


def test_grouped_queries_read_a_quarter_of_the_cache_and_compute_as_much() -> None:
    many = parts({**LLAMA_3_8B, "num_key_value_heads": 32}, "decode", 4, 1000)
    few = parts(LLAMA_3_8B, "decode", 4, 1000)
    for name, factor in (("cache_elements", 4), ("macs", 1)):
        assert by_name(many, name)["attention"] == factor * by_name(few, name)["attention"]
    # 1000 tokens before, 8 heads of 128, keys and values, 32 layers, 4 sequences.
    assert total(few, "cache_elements") == 4 * 32 * 1000 * 2 * 8 * 128
    assert total(few, "new_elements") == 4 * 32 * 2 * 8 * 128


@given(
    context=st.integers(1, 40),
    window=st.integers(1, 50),
    kind=st.sampled_from(["all", "window", "chunk"]),
    stage=st.sampled_from(["prefill", "decode"]),
)
def test_pairs_are_those_that_a_mask_leaves(
    context: int, window: int, kind: str, stage: Stage
) -> None:
    queries = range(context) if stage == "prefill" else range(context, context + 1)
    seen = {
        "all": lambda query, key: True,
        "window": lambda query, key: query - key < window,
        "chunk": lambda query, key: query // window == key // window,
    }[kind]
    pairs = sum(seen(query, key) for query in queries for key in range(query + 1))
    size = StageSize(stage=stage, batch=3, context=context)
    limit = None if kind == "all" else window
    assert attended_pairs(size, limit, is_chunk=kind == "chunk") == pairs


def test_layers_of_chunks_read_their_own_chunk() -> None:
    kinds = ["chunked_attention", "chunked_attention", "full_attention"]
    of = {**TINY, "layer_types": kinds, "attention_chunk_size": 8}
    # The 20th token stands fourth in the third chunk of 8; 2 heads of 4, keys and values.
    found = parts(of, "decode", 2, 19)
    assert total(found, "cache_elements") == 2 * 16 * (3 + 3 + 19)
    # 4 heads, 4 elements of a key and 4 of a value; transformers multiplies all that it keeps.
    assert by_name(found, "min_flop")["attention"] == 2 * (2 * 4 * 8) * (4 + 4 + 20)
    assert by_name(found, "macs")["attention"] == (2 * 4 * 8) * (8 + 8 + 20)


@given(
    stage=st.sampled_from(["prefill", "decode"]),
    batch=st.integers(1, 6),
    context=st.integers(1, 60),
    sparse=st.booleans(),
)
def test_twice_the_batch_is_twice_the_work_and_the_same_weights(
    stage: Stage, batch: int, context: int, sparse: bool
) -> None:
    configuration = SPARSE if sparse else TINY
    once = parts(configuration, stage, batch, context)
    twice = parts(configuration, stage, 2 * batch, context)
    for name in ("macs", "min_flop", "cache_elements", "new_elements"):
        assert total(twice, name) == 2 * total(once, name)
    assert total(twice, "weights") == total(once, "weights")


def test_prefill_leaves_what_decode_reads() -> None:
    window = {**TINY, "sliding_window": 8}
    chunks = {**TINY, "layer_types": ["chunked_attention"] * 3, "attention_chunk_size": 8}
    for configuration in (TINY, SPARSE, DEEPSEEK_V3, window, chunks):
        left = total(parts(configuration, "prefill", 2, 30), "new_elements")
        assert total(parts(configuration, "decode", 2, 30), "cache_elements") == left


def test_experts_compute_for_each_token_and_are_read_once() -> None:
    found = parts(SPARSE, "prefill", 1, 10, distinct=5)
    # 3 layers, 10 tokens, 2 experts each, three products of 16 x 12.
    assert by_name(found, "macs")["experts"] == 3 * 10 * 2 * 3 * 16 * 12
    assert by_name(found, "weights")["experts"] == 3 * 5 * 3 * 16 * 12
    assert by_name(found, "macs")["router"] == 3 * 10 * 16 * 8
    assert "feed-forward" not in by_name(found, "weights")


def test_latent_attention_in_decode_works_on_what_is_kept() -> None:
    found = parts(DEEPSEEK_V3, "decode", 1, 99)
    # Each of 128 heads: 100 tokens, 576 elements for scores and 512 for sums, 61 layers.
    assert by_name(found, "macs")["attention"] == 61 * 128 * 100 * (576 + 512)
    assert total(found, "cache_elements") == 61 * 99 * 576
    before = parts(DEEPSEEK_V3, "prefill", 1, 100)
    assert by_name(before, "macs")["attention"] == 61 * 128 * 100**2 * (192 + 128)


def test_the_bound_of_latent_decode_takes_the_way_of_fewest_flop() -> None:
    # Keys of 192 and values of 128 elements, kept for each of 128 heads, would be fewer FLOP.
    found = parts(DEEPSEEK_V3, "decode", 1, 99)
    assert by_name(found, "min_flop")["attention"] == 2 * 61 * 128 * 100 * (192 + 128)


def test_published_activated_parameters_of_deepseek_v3() -> None:
    # "37B activated for each token" (DeepSeek-V3 technical report), its embedding among them.
    found = parts(DEEPSEEK_V3, "decode", 1, 1)
    assert total(found, "weights") / 1e9 == pytest.approx(36.7, abs=0.3)


def test_the_vocabulary_and_the_router_keep_their_floats() -> None:
    of = Architecture.of(SPARSE)
    floats = [each for each in all_parts(of) if not each.is_quantized]
    assert sum(each.count * each.weights for each in floats) == 16 * 50 + 3 * 16 * 8
