"""Configurations as their authors published them, and machines that they are placed on."""

from __future__ import annotations

from typing import Any

from roofline.machine.hardware import HardwareProfile
from tests import builders

LLAMA_2_7B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
LLAMA_3_8B: dict[str, Any] = {
    **LLAMA_2_7B,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
MISTRAL_7B: dict[str, Any] = {
    **LLAMA_3_8B,
    "model_type": "mistral",
    "vocab_size": 32000,
    "sliding_window": 4096,
    "max_position_embeddings": 32768,
}
MIXTRAL_8X7B: dict[str, Any] = {
    **MISTRAL_7B,
    "model_type": "mixtral",
    "sliding_window": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
GPT_2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "n_positions": 1024,
    "vocab_size": 50257,
    "tie_word_embeddings": True,
}
FALCON_7B: dict[str, Any] = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "num_kv_heads": 71,
    "multi_query": True,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
}

TINY: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
"""Small enough to count by hand: heads of 4 elements."""


def machine(
    flop_per_s: float = 1e9, bytes_per_s: float = 1e8, *, cache_bytes: int | None = None
) -> HardwareProfile:
    """One thread, float32 and bfloat16 alike; a cache ten times as fast, where one is given."""
    ceilings = [builders.ceiling(flop_per_s, of=name) for name in ("float32", "bfloat16")]
    levels = [builders.level("DRAM", None, {"read": {1: bytes_per_s}})]
    if cache_bytes is not None:
        near = builders.level("L1", cache_bytes, {"read": {1: 10 * bytes_per_s}})
        levels = [near, *levels]
    return builders.profile(ceilings, levels)
