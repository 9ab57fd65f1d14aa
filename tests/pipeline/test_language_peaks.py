"""The memory of prefill and decode, held against real passes whose storages are watched."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from roofline.pipeline.language import analyze_stage
from roofline.run import RunOptions
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import load_model
from tests import builders
from tests.pipeline.alive import Alive

if library_or_reason("transformers")[0] is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

MACHINE = builders.profile(
    [builders.ceiling(1e9)], [builders.level("DRAM", None, {"read": {1: 1e9}})]
)
SIZES = "hidden_size=32,num_hidden_layers=3,num_attention_heads=4,vocab_size=50"
GROUPED = f"{SIZES},intermediate_size=48,num_key_value_heads=2"
MODELS = {
    "hf:llama": GROUPED,
    "hf:gemma2": f"{GROUPED},head_dim=8,sliding_window=64",
    "hf:deepseek_v2": (
        f"{SIZES},intermediate_size=48,moe_intermediate_size=16,num_key_value_heads=4,"
        "kv_lora_rank=16,q_lora_rank=none,qk_nope_head_dim=8,qk_rope_head_dim=4,v_head_dim=8,"
        "n_routed_experts=4,n_shared_experts=1,num_experts_per_tok=2,first_k_dense_replace=1"
    ),
}
BATCH = 2


def real_peak_bytes(name: str, config: str, stage: str, context: int) -> int:
    """The most bytes alive in a pass of a model with its weights, which owns its cache."""
    from transformers import DynamicCache

    source = load_model(name, config=config)
    assert source.rebuild is not None
    model: Any = source.rebuild().eval()
    options = {"use_cache": True, "logits_to_keep": 1}
    ids = torch.zeros((BATCH, context), dtype=torch.int64)
    own = [*model.parameters(), *model.buffers()]
    with torch.no_grad():
        if stage == "prefill":
            # Made ahead: layers with windows keep the number of their tokens in a tensor.
            empty = DynamicCache(config=model.config)
            with Alive([*own, ids]) as alive:
                result = model(input_ids=ids, past_key_values=empty, **options)
            assert result.logits is not None
            return alive.peak_bytes
        cache = model(input_ids=ids, **options).past_key_values
        token = torch.zeros((BATCH, 1), dtype=torch.int64)
        kept = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        alive = Alive([*own, token, *kept])
        kept.clear()
        with alive:
            result = model(input_ids=token, past_key_values=cache, **options)
        assert result.logits is not None
        return alive.peak_bytes


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("prefill", "hf:gemma2"),
        ("prefill", "hf:deepseek_v2"),
        ("decode", "hf:llama"),
        ("decode", "hf:gemma2"),
        ("decode", "hf:deepseek_v2"),
    ],
)
def test_peak_memory_is_that_of_a_real_pass(name: str, stage: Literal["prefill", "decode"]) -> None:
    options = RunOptions(batch=BATCH, hardware=MACHINE)
    found = analyze_stage(name, options, config=MODELS[name], stage=stage, context=40)
    assert found.totals.peak_memory_bytes == real_peak_bytes(name, MODELS[name], stage, 40)


def test_a_decode_pass_holds_its_cache_once() -> None:
    """So long a context that the cache is nearly all there is."""
    context = 4000
    found = analyze_stage(
        "hf:llama", RunOptions(hardware=MACHINE), config=GROUPED, stage="decode", context=context
    )
    # 3 layers, 2 heads of 8, keys and values, 4 B; the keys of one layer twice.
    cache_bytes = context * 3 * 2 * 2 * 8 * 4
    beside = found.totals.peak_memory_bytes - found.totals.parameter_size_bytes
    assert cache_bytes < beside < cache_bytes * (1 + 1 / 6) + 100_000
