"""Model types of transformers: what a configuration leaves to the code of its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A model type whose weights are known to the last element.

    Attributes:
        is_tied: default of ``tie_word_embeddings``.
        norms: norms over the width in a layer.
        has_norm_bias: norms have a bias.
        head_norms: norms of queries and keys: over one head, over all heads, or none.
        biases: projections with a bias: letters of ``qkv``, ``o`` (output), ``m`` (feed-forward).
        pattern: every n-th layer sees all tokens, the others a window (0: all layers alike).
        expert_biases: biases of router and experts, and an attention sink per head.
        position_table: learned positions.
        head_bias: bias of the vocabulary product.
        expert_scales: norms over the width, and scales per expert, of layers with experts.
    """

    is_tied: bool = False
    norms: int = 2
    has_norm_bias: bool = False
    head_norms: str = ""
    biases: str = ""
    pattern: int = 0
    expert_biases: bool = False
    position_table: bool = False
    head_bias: bool = False
    expert_scales: int = 0


_LLAMA = Family()

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "phi3", "granite", "dbrx"), _LLAMA),
    **dict.fromkeys(("internlm2", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe"), _LLAMA),
    "smollm3": Family(is_tied=True),
    **dict.fromkeys(("qwen2", "mimo"), Family(biases="qkv")),
    # Language parts of models with images.
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_text"), Family(biases="qkv")),
    **dict.fromkeys(("qwen2_5_vl", "qwen2_5_vl_text"), Family(biases="qkv")),
    **dict.fromkeys(("qwen3", "qwen3_moe", "qwen3_vl_text"), Family(head_norms="one")),
    **dict.fromkeys(("olmo2", "olmoe", "minimax_m2"), Family(head_norms="all")),
    "gemma2": Family(is_tied=True, norms=4, pattern=2),
    "gemma3_text": Family(is_tied=True, norms=4, head_norms="one", pattern=6),
    "gemma4_text": Family(is_tied=True, norms=4, head_norms="one", expert_scales=4),
    "llama4_text": Family(pattern=4),
    "gpt_oss": Family(biases="qkvo", expert_biases=True, pattern=2),
    "cohere": Family(is_tied=True, norms=1),
    "falcon": Family(is_tied=True, norms=1, has_norm_bias=True),
    "gpt2": Family(is_tied=True, has_norm_bias=True, biases="qkvom", position_table=True),
    "gptj": Family(norms=1, has_norm_bias=True, biases="m", head_bias=True),
    "starcoder2": Family(is_tied=True, has_norm_bias=True, biases="qkvom"),
}
"""Verified against the parameters that transformers allocates (`tests/llm`)."""


def is_known(configuration: Mapping[str, Any]) -> bool:
    """Return True if a published configuration is complete without the defaults of transformers."""
    return configuration.get("model_type") in FAMILIES and not has_layer_inputs(configuration)


def has_layer_inputs(configuration: Mapping[str, Any]) -> bool:
    """Return True for models with an embedding per layer, which is not modeled."""
    return bool(configuration.get("hidden_size_per_layer_input"))
