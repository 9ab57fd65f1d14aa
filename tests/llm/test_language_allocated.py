"""Weights and KV cache against what transformers allocates on the meta device, to the byte."""

from __future__ import annotations

from typing import Any

import pytest

from roofline.core.dtypes import dtype
from roofline.llm.architecture import Architecture
from roofline.llm.memory import cache_of
from roofline.llm.parts import weights_of
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.libraries.transformers_config import bundled_names, parse_settings

HALF = dtype("bfloat16")

# Counted once by transformers on meta (tied weights once), many of them equal to the number that
# the publisher states; kimi-k2 as a deepseek_v3.
PARAMETERS = {
    "codellama-34b": 33_743_970_304,
    "command-r-08-2024": 32_296_476_672,
    "deepseek-r1": 671_026_404_352,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "falcon-7b": 6_921_720_704,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-12b": 11_765_788_416,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_009_002_240,
    "gemma-3-4b": 3_880_099_328,
    "gemma-4-26b-a4b": 25_233_141_760,
    "glm-4.5-air": 106_852_245_504,
    "glm-4.7": 352_797_814_784,
    "gpt-j-6b": 6_050_882_784,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2": 124_439_808,
    "granite-3.1-8b": 8_170_848_256,
    "kimi-k2": 1_026_408_209_408,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "llama-4-maverick": 400_711_848_960,
    "llama-4-scout": 107_769_861_120,
    "minimax-m2.5": 228_689_748_992,
    "mistral-7b": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "olmo-2-32b": 32_234_279_936,
    "olmo-2-7b": 7_298_617_344,
    "olmoe-1b-7b": 6_919_161_856,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-coder-480b-a35b": 480_154_875_392,
    "smollm2-135m": 134_515_008,
    "smollm3-3b": 3_075_098_624,
    "starcoder2-7b": 7_173_923_840,
    "tinyllama-1.1b": 1_100_048_384,
}

BUILT = (
    *("llama-3.2-3b", "qwen2.5-0.5b", "qwen3-30b-a3b", "gemma-2-9b", "gemma-3-1b", "gpt-oss-20b"),
    *("deepseek-v2-lite", "olmo-2-7b", "phi-4-mini", "llama-4-scout", "starcoder2-7b"),
)


def architecture(name: str) -> Architecture:
    return Architecture.of(parse_settings(name).base)


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_models_have_the_parameters_of_transformers(name: str) -> None:
    assert weights_of(architecture(name)) == PARAMETERS[name]


@pytest.mark.parametrize("name", BUILT)
def test_footprints_are_what_transformers_allocates(name: str) -> None:
    if library_or_reason("transformers")[0] is None:
        pytest.skip("transformers is not installed")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

    settings: dict[str, Any] = dict(parse_settings(name).base)
    settings.pop("dtype", None)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    of = architecture(name)
    parameters = {id(each): each for each in model.parameters()}.values()
    assert sum(each.numel() * each.element_size() for each in parameters) == HALF.byte(
        weights_of(of)
    )
    # Each layer is given the keys and values of all tokens, and keeps those of its window. One
    # token fewer than a window sees is kept: the next one is added before attention.
    batch, context = 2, 9000
    cache: Any = DynamicCache(config=config)
    for layer in range(of.layers):
        heads, sizes = of.key_value_heads, (of.head_size, of.head_size)
        if of.latent is not None:
            # transformers expands keys and values of all heads.
            heads, sizes = of.heads, (of.latent.key_size, of.latent.value_size)
        for tokens in (context, 1):
            given = [
                torch.zeros(batch, heads, tokens, size, dtype=torch.bfloat16, device="meta")
                for size in sizes
            ]
            cache.update(*given, layer)
    kept = [part for layer in cache.layers for part in (layer.keys, layer.values)]
    allocated = sum(each.numel() * each.element_size() for each in kept)
    ours = cache_of(of, HALF).byte(context + 1, batch)
    limited = sum(window is not None and window <= context for window in of.windows)
    one_less = limited * batch * 2 * of.key_value_heads * of.head_size * 2
    if of.latent is not None:
        ours = ours * of.heads * (of.latent.key_size + of.latent.value_size) // of.latent.kept
    assert allocated == ours - one_less
