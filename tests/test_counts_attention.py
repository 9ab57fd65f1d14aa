"""Transformers and their like: their multiply-adds by hand, layer by layer, and by torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import load_model
from roofline.workload.operators import Capture, State
from tests.workload.passes import passed, total

torchvision, _reason = library_or_reason("torchvision")
# These two import only where torchvision does. timm announces what moved within itself.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import timm
    import transformers

TOKENS = 128
IMAGE = {"pixel_values": (1, 3, 224, 224)}
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}


def on_meta(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    with torch.device("meta"):
        return build()


def bert() -> torch.nn.Module:
    return on_meta(lambda: transformers.BertModel(transformers.BertConfig()))


def gpt2() -> torch.nn.Module:
    return on_meta(lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()))


def t5_small() -> torch.nn.Module:
    config = transformers.T5Config()
    return on_meta(lambda: transformers.T5ForConditionalGeneration(config))


def llama_like(key_value_heads: int) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=key_value_heads,
        vocab_size=8000,
    )
    return on_meta(lambda: transformers.LlamaForCausalLM(config))


def text(module: torch.nn.Module, tokens: int = TOKENS) -> Capture:
    return passed(module, input_ids=f"1x{tokens}:int64")


def macs(captured: Capture) -> int:
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    return total(captured).macs or 0


def encoder_layer(tokens: int, width: int, inner: int, keys: int | None = None) -> int:
    """Four projections, queries with keys and weights with values, two linear layers.

    However many the heads are, together they are as wide as the model.
    """
    attention = 4 * tokens * width * width + 2 * tokens * (keys or tokens) * width
    return attention + 2 * tokens * width * inner


# -- by hand ---------------------------------------------------------------------------------------


def test_bert_base() -> None:
    """Devlin et al. (2019): 12 layers, 768 wide, 12 heads of 64, 3072 inside; 128 tokens.

    A layer: 4 * 128 * 768 * 768 = 301,989,888; 2 * 12 * 128 * 128 * 64 = 25,165,824;
    2 * 128 * 768 * 3072 = 603,979,776. The pooler sees the first token: 768 * 768.
    """
    by_hand = 12 * (301_989_888 + 25_165_824 + 603_979_776) + 589_824
    assert by_hand == 11_174_215_680
    assert macs(text(bert())) == by_hand


def test_bert_reads_rows_of_its_tables() -> None:
    """128 of 30522 words, 128 of 512 positions, both of two types: not 95 MB of tables."""
    records = [each for each in text(bert()).records if each.type == "embedding"]
    rows = sorted(each.work.parameter_bytes // (4 * 768) for each in records)
    assert rows == [2, 128, 128]
    # Written are 128 rows each.
    assert {each.work.output_bytes for each in records} == {4 * 128 * 768}


def test_gpt2() -> None:
    """Radford et al. (2019): as wide and deep as BERT, with a word's score for every token.

    Every query is multiplied with every key by convention, though a causal mask hides half.
    """
    by_hand = 12 * encoder_layer(TOKENS, 768, 3072) + 128 * 768 * 50257
    assert by_hand == 16_114_089_984
    assert macs(text(gpt2())) == by_hand


def test_gpt2_needs_half_of_its_attention() -> None:
    """The least is the triangle: 128 * 129 / 2 pairs of a head instead of 128 * 128."""
    records = [each for each in text(gpt2()).records if each.type == "attention"]
    assert len(records) == 12
    triangle, pairs = 128 * 129 // 2, 128 * 128
    for each in records:
        assert each.work.macs == 12 * pairs * 2 * 64
        # Two products, an exponential and an addition a pair (none for the first of a row), and a
        # division: of the weights while they are fewer than the 64 numbers of a value.
        divisions = 64 * 65 // 2 + 64 * 64
        least = 2 * 2 * 64 * triangle + 2 * triangle - 128 + divisions + 128
        assert each.work.min_flop == 12 * least


def llama(tokens: int, width: int, inner: int, shared: int, layers: int, words: int) -> int:
    """Touvron et al. (2023); ``shared`` is the width of keys and values together with few heads."""
    projections = 2 * tokens * width * width + 2 * tokens * width * shared
    attention = 2 * tokens * tokens * width
    gated = 3 * tokens * width * inner
    return layers * (projections + attention + gated) + tokens * width * words


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_llama_like(heads: int) -> None:
    """4 layers, 512 wide, 8 heads of 64, keys and values in fewer; 1536 inside, 8000 words.

    A layer with 4: queries and output 2 * 128 * 512 * 512 = 67,108,864; keys and values
    2 * 128 * 512 * 256 = 33,554,432; attention 2 * 128 * 128 * 512 = 16,777,216; the gated layers
    3 * 128 * 512 * 1536 = 301,989,888. The scores: 128 * 512 * 8000 = 524,288,000.
    Attention multiplies as much whatever they share, and reads as many heads as there are.
    """
    by_hand = 4 * (67_108_864 + 33_554_432 + 16_777_216 + 301_989_888) + 524_288_000
    assert by_hand == 2_202_009_600 == llama(128, 512, 1536, 256, 4, 8000)
    captured = text(llama_like(heads))
    assert macs(captured) == llama(128, 512, 1536, 64 * heads, 4, 8000)
    attention = [each for each in captured.records if each.type == "attention"]
    assert len(attention) == 4
    for each in attention:
        assert each.work.macs == 2 * 128 * 128 * 512
        assert each.work.input_bytes == 4 * 128 * 64 * (8 + 2 * heads)


def test_mixtral_like() -> None:
    """Jiang et al. (2024): each token goes to two of four experts; the products of the others none.

    16 tokens, 2 layers, 64 wide, 4 heads, keys and values 32 wide, experts 128 inside, 100 words.
    """
    config = transformers.MixtralConfig(
        **SMALL, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, vocab_size=100
    )
    model = on_meta(lambda: transformers.MixtralForCausalLM(config))
    attention = 2 * 16 * 64 * 64 + 2 * 16 * 64 * 32 + 2 * 16 * 16 * 64
    experts = 16 * 64 * 4 + 2 * 16 * 3 * 64 * 128
    captured = passed(model, change="bfloat16", input_ids="1x16:int64")
    assert macs(captured) == 2 * (attention + experts) + 16 * 64 * 100


def test_t5_small() -> None:
    """Raffel et al. (2020): 6 and 6 layers, 512 wide, 2048 inside; 128 tokens in, 64 out.

    A decoder layer also has queries of its own 64 to the keys of the encoder's 128.
    """
    tokens, out = 128, 64
    cross = 2 * out * 512 * 512 + 2 * tokens * 512 * 512 + 2 * out * tokens * 512
    by_hand = 6 * encoder_layer(tokens, 512, 2048) + 6 * (encoder_layer(out, 512, 2048) + cross)
    by_hand += out * 512 * 32128
    captured = passed(t5_small(), input_ids="1x128:int64", decoder_input_ids="1x64:int64")
    assert macs(captured) == by_hand


def test_vit_b_16(fast: bool) -> None:
    """Dosovitskiy et al. (2021): 14 x 14 patches of 16 x 16 x 3, and a class token.

    Patches: 196 * 768 * 768 = 115,605,504. A layer: 197 * 768 * 768 * 12 = 1,394,343,936 and
    2 * 12 * 197 * 197 * 64 = 59,610,624. The head: 768 * 1000.
    """
    by_hand = 115_605_504 + 12 * (1_394_343_936 + 59_610_624) + 768_000
    assert by_hand == 17_563_828_224
    captured = passed(load_model("vit_b_16").module, (1, 3, 224, 224))
    assert macs(captured) == by_hand
    fused = sum(each.op == "aten._native_multi_head_attention" for each in captured.records)
    assert fused == (12 if fast else 0)


def test_swin_t() -> None:
    """Liu et al. (2021): windows of 7 x 7 on 56, 28, 14 and 7 pixels a side; 4 x 4 patches."""
    by_hand = 56**2 * 96 * 3 * 4**2
    for side, width, blocks in ((56, 96, 2), (28, 192, 2), (14, 384, 6), (7, 768, 2)):
        by_hand += blocks * encoder_layer(side**2, width, 4 * width, keys=49)
        if side > 7:
            # Four neighbours become one, twice as wide.
            by_hand += (side // 2) ** 2 * 4 * width * 2 * width
    by_hand += 768 * 1000
    assert macs(passed(load_model("swin_t").module, (1, 3, 224, 224))) == by_hand


def test_mlp_mixer_b_16() -> None:
    """Tolstikhin et al. (2021), table 1: 12 layers, 768 wide, 196 patches, 384 and 3072 inside."""
    model = on_meta(lambda: timm.create_model("mixer_b16_224"))
    layer = 2 * 768 * 196 * 384 + 2 * 196 * 768 * 3072
    by_hand = 196 * 768 * 768 + 12 * layer + 768 * 1000
    assert macs(passed(model, (1, 3, 224, 224))) == by_hand


def test_convnext_t() -> None:
    """Liu et al. (2022): 7 x 7 depthwise, then four times as wide and back; 2 x 2 between."""
    by_hand, before = 56**2 * 96 * 3 * 4**2, 96
    for side, width, blocks in ((56, 96, 3), (28, 192, 3), (14, 384, 9), (7, 768, 3)):
        if width > before:
            by_hand += side**2 * width * before * 2**2
        by_hand += blocks * side**2 * (width * 7**2 + 2 * width * 4 * width)
        before = width
    by_hand += 768 * 1000
    assert macs(passed(load_model("convnext_tiny").module, (1, 3, 224, 224))) == by_hand


# -- by torch --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "config", "options", "inputs"),
    [
        ("BertModel", "BertConfig", SMALL, {"input_ids": (2, 16)}),
        ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 2}, {"input_ids": (2, 16)}),
        ("DistilBertModel", "DistilBertConfig", {}, {"input_ids": (2, 16)}),
        ("AlbertModel", "AlbertConfig", SMALL, {"input_ids": (2, 16)}),
        (
            "LlamaForCausalLM",
            "LlamaConfig",
            {**SMALL, "num_key_value_heads": 2},
            {"input_ids": (2, 16)},
        ),
        (
            "Qwen3ForCausalLM",
            "Qwen3Config",
            {**SMALL, "num_key_value_heads": 2},
            {"input_ids": (2, 16)},
        ),
        (
            "T5Model",
            "T5Config",
            {"num_layers": 2},
            {"input_ids": (2, 16), "decoder_input_ids": (2, 8)},
        ),
        ("ViTModel", "ViTConfig", {"num_hidden_layers": 2}, IMAGE),
        ("SwinModel", "SwinConfig", {}, IMAGE),
        ("ConvNextModel", "ConvNextConfig", {}, IMAGE),
        ("CLIPVisionModel", "CLIPVisionConfig", {"num_hidden_layers": 2}, IMAGE),
    ],
)
def test_torch_counts_the_same_on_the_meta_device(
    model: str, config: str, options: dict[str, Any], inputs: dict[str, Any]
) -> None:
    """There torch takes attention apart, and FlopCounterMode counts its products.

    On a CPU it knows no attention: it would give less, and say nothing.
    """
    made = getattr(transformers, config)(**options)
    module = on_meta(lambda: getattr(transformers, model)(made)).eval()
    tensors = {
        name: torch.zeros(shape, device="meta", dtype=torch.int64 if "ids" in name else None)
        for name, shape in inputs.items()
    }
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(**tensors)
    given = {
        name: "x".join(map(str, shape)) + (":int64" if "ids" in name else "")
        for name, shape in inputs.items()
    }
    assert 2 * macs(passed(module, **given)) == counter.get_total_flops()
