"""Bytes of weights and KV cache of published models, by arithmetic written out here."""

from __future__ import annotations

import pytest

from roofline.core.dtypes import dtype
from roofline.errors import InputError
from roofline.llm.architecture import Architecture
from roofline.llm.formats import WeightFormat
from roofline.llm.memory import Memory, cache_of
from roofline.llm.serving import Machine, Model
from roofline.placement import Roof
from roofline.workload.models.libraries.transformers_config import parse_settings
from tests.llm.language_examples import machine

HALF = dtype("bfloat16")

# Llama-3.1-8B: width 4096, 32 heads and 8 KV heads of 128, 14336 inside, 32 layers.
LLAMA_8B = 32 * (2 * 4096 * 4096 + 2 * 4096 * 8 * 128 + 3 * 4096 * 14336)
# Llama-3.1-70B: width 8192, 64 and 8 heads of 128, 28672 inside, 80 layers.
LLAMA_70B = 80 * (2 * 8192 * 8192 + 2 * 8192 * 8 * 128 + 3 * 8192 * 28672)
# Mixtral-8x7B: as Llama-3.1-8B, with 8 experts of 14336.
MIXTRAL = 32 * (2 * 4096 * 4096 + 2 * 4096 * 8 * 128 + 8 * 3 * 4096 * 14336)
# DeepSeek-V2-Lite: width 2048, 16 heads; queries of 128 + 64, a latent vector of 512 + 64, from it
# keys of 128 and values of 128; one dense layer of 10944, then 26 of 64 + 2 experts of 1408.
DEEPSEEK = 27 * (
    2048 * 16 * (128 + 64) + 2048 * (512 + 64) + 512 * 16 * (128 + 128) + 16 * 128 * 2048
) + (3 * 2048 * 10944 + 26 * (64 + 2) * 3 * 2048 * 1408)
# Gemma-2-2B: width 2304, 8 heads and 4 KV heads of 256, 9216 inside, 26 layers.
GEMMA = 26 * (2 * 2304 * 8 * 256 + 2 * 2304 * 4 * 256 + 3 * 2304 * 9216)

FLOATS = {
    # Embedding, head, routers, and norms: two or four a layer and one; latent vectors have one.
    "llama-3.1-8b": 2 * 128256 * 4096 + (2 * 32 + 1) * 4096,
    "llama-3.1-70b": 2 * 128256 * 8192 + (2 * 80 + 1) * 8192,
    "mixtral-8x7b": 2 * 32000 * 4096 + 32 * 8 * 4096 + (2 * 32 + 1) * 4096,
    "deepseek-v2-lite": 2 * 102400 * 2048 + 26 * 64 * 2048 + (2 * 27 + 1) * 2048 + 27 * 512,
    # One table, which is the head as well.
    "gemma-2-2b": 256000 * 2304 + (4 * 26 + 1) * 2304,
}
QUANTIZED = {
    "llama-3.1-8b": LLAMA_8B,
    "llama-3.1-70b": LLAMA_70B,
    "mixtral-8x7b": MIXTRAL,
    "deepseek-v2-lite": DEEPSEEK,
    "gemma-2-2b": GEMMA,
}


def model(name: str) -> Model:
    return Model(architecture=Architecture.of(parse_settings(name).base), floats=HALF)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("form", "bits"), [("bf16", 16), ("int8", 8), ("w4a16", 4)])
def test_weights(name: str, form: str, bits: int) -> None:
    of = model(name)
    types = of.types(WeightFormat.parse(form), None, Roof(machine(), 1))
    assert of.weight_bytes(types) == QUANTIZED[name] * bits // 8 + 2 * FLOATS[name]


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        # Layers x keys and values x KV heads x head size, of 8192 tokens.
        ("llama-3.1-8b", 8192 * 32 * 2 * 8 * 128),
        ("llama-3.1-70b", 8192 * 80 * 2 * 8 * 128),
        ("mixtral-8x7b", 8192 * 32 * 2 * 8 * 128),
        # The latent vector, for all heads and for keys and values.
        ("deepseek-v2-lite", 8192 * 27 * (512 + 64)),
        # Every second layer keeps 4096 tokens.
        ("gemma-2-2b", (8192 * 13 + 4096 * 13) * 2 * 4 * 256),
    ],
)
@pytest.mark.parametrize(("of", "bits"), [("bfloat16", 16), ("float8_e4m3fn", 8), ("int4", 4)])
def test_the_cache(name: str, elements: int, of: str, bits: int) -> None:
    cache = cache_of(model(name).architecture, dtype(of))
    assert cache.byte(8192, 3) == 3 * elements * bits // 8


def test_llama_70b_on_eight_ranks() -> None:
    of = model("llama-3.1-70b")
    roof = Roof(machine(), 1)
    types = of.types(WeightFormat.parse("int8"), None, roof)
    on = of.on(Machine(roof=roof, memory=Memory(size_bytes=None, source="a test")), types, 8)
    norms = (2 * 80 + 1) * 8192  # on every rank
    assert on.weight_bytes == LLAMA_70B // 8 + 2 * (2 * 128256 * 8192 // 8 + norms)
    # One KV head on each.
    assert cache_of(on.architecture, HALF).token_bytes == 80 * 2 * 1 * 128 * 2


def test_int4_is_answered_by_weight_only_quantization() -> None:
    with pytest.raises(InputError, match=r"did you mean 'w4a16'\?$"):
        WeightFormat.parse("int4")
