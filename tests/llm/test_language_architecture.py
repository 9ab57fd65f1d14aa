"""What configurations say, held against what their authors published."""

from __future__ import annotations

from typing import Any

import pytest

from roofline.errors import InputError
from roofline.llm.architecture import Architecture
from roofline.llm.parts import weights_of
from tests.llm.language_examples import (
    DEEPSEEK_V3,
    FALCON_7B,
    GPT_2,
    LLAMA_2_7B,
    LLAMA_3_8B,
    MISTRAL_7B,
    MIXTRAL_8X7B,
    TINY,
)


@pytest.mark.parametrize(
    ("configuration", "published", "left_out"),
    [
        # Published counts of parameters, and the small ones: norms (biases, positions of GPT-2).
        pytest.param(LLAMA_2_7B, 6_738_415_616, 65 * 4096, id="llama-2-7b"),
        pytest.param(LLAMA_3_8B, 8_030_261_248, 65 * 4096, id="llama-3-8b"),
        pytest.param(MISTRAL_7B, 7_241_732_096, 65 * 4096, id="mistral-7b"),
        pytest.param(MIXTRAL_8X7B, 46_702_792_704, 65 * 4096, id="mixtral-8x7b"),
        pytest.param(
            GPT_2,
            124_439_808,
            1024 * 768 + 12 * (3 + 1 + 4 + 1 + 4) * 768 + 2 * 768,
            id="gpt2",
        ),
    ],
)
def test_weights_are_the_published_ones(
    configuration: dict[str, Any], published: int, left_out: int
) -> None:
    of = Architecture.of(configuration)
    assert (weights_of(of), of.small_weights) == (published, left_out)


def test_latent_attention_and_experts_have_the_published_size() -> None:
    of = Architecture.of(DEEPSEEK_V3)
    assert of.attention == "latent"
    assert sum(of.sparse) == 58
    assert of.sparse[:4] == (False, False, False, True)
    # "671B parameters, of which 37B are activated for each token": without the table, which no
    # product reads.
    assert round(weights_of(of) / 1e9) == 671


@pytest.mark.parametrize(
    ("configuration", "kind", "heads"),
    [
        (LLAMA_2_7B, "multi-head", 32),
        (LLAMA_3_8B, "grouped-query", 8),
        (FALCON_7B, "multi-query", 1),
        (GPT_2, "multi-head", 12),
        ({**FALCON_7B, "new_decoder_architecture": True}, "multi-head", 71),
    ],
)
def test_heads_that_share_keys(configuration: dict[str, Any], kind: str, heads: int) -> None:
    of = Architecture.of(configuration)
    assert (of.attention, of.key_value_heads) == (kind, heads)


def test_head_size_is_that_of_the_key_or_a_share_of_the_width() -> None:
    assert Architecture.of(LLAMA_2_7B).head_size == 128
    assert Architecture.of({**TINY, "head_dim": 8}).head_size == 8
    assert Architecture.of({**TINY, "head_dim": None}).head_size == 4


def test_windows_by_layer() -> None:
    assert Architecture.of(MISTRAL_7B).windows == (4096,) * 32
    assert Architecture.of({**MISTRAL_7B, "use_sliding_window": False}).windows == (None,) * 32
    kinds = ["sliding_attention", "full_attention", "chunked_attention"]
    mixed = {**TINY, "layer_types": kinds, "sliding_window": 8, "attention_chunk_size": 16}
    assert Architecture.of(mixed).windows == (8, None, 16)
    # A window that no layer has says nothing.
    plain = {**TINY, "layer_types": ["full_attention"] * 3, "sliding_window": 8}
    assert Architecture.of(plain).windows == (None,) * 3


def test_sizes_by_layer_may_be_alike() -> None:
    assert Architecture.of({**TINY, "intermediate_size": [40, 40, 40]}).inner_width == 40
    with pytest.raises(InputError, match="must be a whole number"):
        Architecture.of({**TINY, "intermediate_size": [40, 40, 80]})


def test_embeddings_per_layer_leave_the_number_of_parameters_open() -> None:
    gemma = {**TINY, "model_type": "gemma4_text"}
    assert Architecture.of(gemma).small_weights is not None
    assert Architecture.of({**gemma, "hidden_size_per_layer_input": 8}).small_weights is None


def test_layers_of_experts() -> None:
    sparse = {**TINY, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
    assert Architecture.of(sparse).sparse == (True,) * 3
    assert Architecture.of({**sparse, "decoder_sparse_step": 2}).sparse == (False, True, False)
    assert Architecture.of({**sparse, "mlp_only_layers": [0]}).sparse == (False, True, True)
    kinds = {**sparse, "mlp_layer_types": ["dense", "sparse", "dense"]}
    assert Architecture.of(kinds).sparse == (False, True, False)
    every_other = {**sparse, "moe_layer_freq": 2, "first_k_dense_replace": 1}
    assert Architecture.of(every_other).sparse == (False, False, True)


@pytest.mark.parametrize(
    ("kind", "head", "parameters"),
    [
        # Counted by transformers on meta, of Qwen2_5_VLTextModel and Qwen3VLTextModel.
        ("qwen2_5_vl_text", 64, 90_840_576),
        ("qwen3_vl_text", 128, 93_459_968),
    ],
)
def test_language_parts_of_qwen_vl(kind: str, head: int, parameters: int) -> None:
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": head}
    text = {**sizes, **heads, "model_type": kind, "vocab_size": 160_000}
    both = {"model_type": kind[:-5], "tie_word_embeddings": True, "text_config": text}
    assert weights_of(Architecture.of(both)) == parameters


def test_text_of_a_model_that_sees_images() -> None:
    both = {"model_type": "gemma3", "text_config": TINY, "vision_config": {"hidden_size": 99}}
    assert Architecture.of(both).width == 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads=5 does not divide hidden_size=16"),
        ({"num_key_value_heads": 3}, "3 KV heads do not divide 4 heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0: must be a whole number from 1"),
        ({"hidden_size": -1}, "hidden_size=-1: must be a whole number"),
        ({"hidden_size": "wide"}, "hidden_size='wide': must be a whole number"),
        ({"vocab_size": None}, "configuration without vocab_size"),
        ({"is_encoder_decoder": True}, "is an encoder-decoder model"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
        ({"layer_types": ["mamba"] * 3}, "unknown type 'mamba'"),
        ({"mamba_d_state": 16}, "mamba_d_state: state-space layers"),
        ({"num_experts": 2, "num_experts_per_tok": 3}, "3 experts per token of 2"),
        ({"num_experts": 2, "first_k_dense_replace": 4}, "first_k_dense_replace=4: at most the 3"),
        ({"hidden_size": 10**30}, "must be a whole number"),
        ({"hidden_size": True}, "hidden_size=True"),
    ],
)
def test_impossible_sizes_get_one_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Architecture.of({**TINY, **change})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model_type", ["apertus", "arcee", "jais2", "nanochat"])
def test_squares_of_relu_need_no_gate(model_type: str) -> None:
    assert not Architecture.of({**TINY, "model_type": model_type}).is_gated
    assert Architecture.of(TINY).is_gated


def test_experts_that_are_switched_off_are_none() -> None:
    switched = {**TINY, "num_experts": 8, "num_experts_per_tok": 2, "is_moe": False}
    assert Architecture.of(switched).experts is None
    assert Architecture.of({**switched, "is_moe": True}).experts is not None
