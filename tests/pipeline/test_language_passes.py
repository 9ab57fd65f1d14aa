"""Prefill and decode against counts that were worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

import roofline
from roofline.analysis import Analysis
from roofline.errors import InputError, ModelError
from roofline.pipeline.language import LanguageModel, analyze_stage, language_model
from roofline.run import RunOptions
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.tensors import Role
from tests import builders

if library_or_reason("transformers")[0] is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

Stage = Literal["prefill", "decode"]

MACHINE = builders.profile(
    [builders.ceiling(1e9)], [builders.level("DRAM", None, {"read": {1: 1e9}})]
)

# All heads have 8 numbers.
FIRST = (
    "hidden_size=32,intermediate_size=48,num_hidden_layers=2,num_attention_heads=4,vocab_size=100"
)
SECOND = (
    "hidden_size=64,intermediate_size=160,num_hidden_layers=3,num_attention_heads=8,vocab_size=50,"
    "tie_word_embeddings=true"
)
GROUPED = (
    "hidden_size=48,intermediate_size=64,num_hidden_layers=2,num_attention_heads=6,"
    "num_key_value_heads=2,vocab_size=40"
)
MIXTURE = (
    "hidden_size=16,intermediate_size=24,num_hidden_layers=1,num_attention_heads=2,"
    "num_key_value_heads=2,vocab_size=20,num_local_experts=8,num_experts_per_tok=2"
)


def stage_of(
    config: str, stage: Stage, context: int, batch: int, name: str = "hf:llama", **options: Any
) -> Analysis:
    asked = RunOptions(batch=batch, hardware=MACHINE, **options)
    return analyze_stage(name, asked, config=config, stage=stage, context=context)


def of_ops(analysis: Analysis, *ops: str) -> list[Any]:
    return [row for row in analysis.operators if row.op in ops]


def attention(analysis: Analysis) -> list[Any]:
    return [row for row in analysis.operators if "attention" in row.op]


@pytest.mark.parametrize(
    ("config", "stage", "context", "batch", "macs"),
    [
        # 4 projections of 10 tokens x 32 x 32 are 40,960; the 3 of the MLP, 10 x 32 x 48 each,
        # 46,080; two products over 2 samples x 4 heads x 5 x 5 x 8 3,200: 90,240 a layer. Logits of
        # 2 last tokens x 32 x 100 are 6,400.
        (FIRST, "prefill", 5, 2, 2 * 90_240 + 6_400),
        # One token of each sample: 4 x 2 x 1,024 = 8,192; 3 x 2 x 1,536 = 9,216; it sees 8 keys:
        # 2 x 2 x 4 x 8 x 8 = 1,024: 18,432 a layer.
        (FIRST, "decode", 7, 2, 2 * 18_432 + 6_400),
        # 4 x 4 x 4,096 = 65,536; 3 x 4 x 10,240 = 122,880; 2 x 8 x 4 x 4 x 8 = 2,048: 190,464 a
        # layer. Logits of one token x 64 x 50 are 3,200.
        (SECOND, "prefill", 4, 1, 3 * 190_464 + 3_200),
        # 4 x 4,096 = 16,384; 3 x 10,240 = 30,720; 2 x 8 x 10 x 8 = 1,280: 48,384 a layer.
        (SECOND, "decode", 9, 1, 3 * 48_384 + 3_200),
        # Queries and outputs: 2 x 18 x 48 x 48 = 82,944; keys and values: 2 x 18 x 48 x 16 =
        # 27,648; 3 x 18 x 48 x 64 = 165,888; every head of the 6 does its products, whomever it
        # shares keys with: 2 x 3 x 6 x 6 x 6 x 8 = 10,368: 286,848 a layer.
        (GROUPED, "prefill", 6, 3, 2 * 286_848 + 3 * 48 * 40),
        # 2 x 3 x 2,304 = 13,824; 2 x 3 x 768 = 4,608; 3 x 3 x 3,072 = 27,648; 2 x 3 x 6 x 12 x 8 =
        # 3,456: 49,536 a layer.
        (GROUPED, "decode", 11, 3, 2 * 49_536 + 3 * 48 * 40),
    ],
)
def test_multiply_adds_by_hand(
    config: str, stage: Stage, context: int, batch: int, macs: int
) -> None:
    analysis = stage_of(config, stage, context, batch)
    assert analysis.totals.unknown_operators == 0
    assert analysis.totals.macs == macs


def test_the_least_of_a_prefill_is_the_triangle() -> None:
    """Of 6 x 6 pairs 21 must be computed; everything else of a product must be."""
    (one, other) = attention(stage_of(GROUPED, "prefill", 6, 3))
    for row in (one, other):
        assert row.macs == 10_368
        # 2 a multiply-add over 3 x 6 x 21 pairs x 16. In each of the 18 heads 21 exponentials, 15
        # additions of them, 21 divisions, and 6 logarithms, which this kernel returns.
        assert row.min_flop == 2 * 3 * 6 * 21 * 16 + 18 * (21 + 15 + 21 + 6)


def test_decode_reads_the_cache_of_the_kept_heads_alone() -> None:
    analysis = stage_of(GROUPED, "decode", 11, 3)
    kept = 3 * 2 * 8 * 4  # A token of one layer's keys: samples x kept heads x numbers x bytes.
    rows = attention(analysis)
    assert len(rows) == 2
    for row in rows:
        # Queries in all 6 heads, keys and values of 12 tokens in 2.
        assert row.input_bytes == 3 * kept + 2 * 12 * kept
    growing = [
        row
        for row in of_ops(analysis, "aten.cat")
        if any(each.role is Role.INPUT for each in row.inputs)
    ]
    assert len(growing) == 4
    assert {row.traffic_bytes for row in growing} == {11 * kept + kept + 12 * kept}


def test_growing_the_cache_is_said_beside_what_a_static_one_would_take() -> None:
    analysis = stage_of(GROUPED, "decode", 11, 3)
    (note,) = [each for each in analysis.warnings if each.startswith("KV cache growth")]
    # 4 tensors: 24 tokens of 192 bytes each are moved, and 2 would be.
    assert note.startswith("KV cache growth moves 18.4 kB")
    assert "a static cache 1.54 kB" in note
    prefill = stage_of(GROUPED, "prefill", 11, 3)
    assert not any(each.startswith("KV cache growth") for each in prefill.warnings)


def test_the_inputs_are_a_token_and_the_cache() -> None:
    analysis = stage_of(GROUPED, "decode", 11, 3)
    assert [(each.name, each.shape, each.dtype.name) for each in analysis.inputs] == [
        ("input_ids", (3, 1), "int64"),
        ("past_keys", (2, 3, 2, 11, 8), "float32"),
        ("past_values", (2, 3, 2, 11, 8), "float32"),
    ]
    byte = sum(each.dtype.byte(_elements(each.shape)) for each in analysis.inputs)
    assert analysis.peak is not None
    assert analysis.peak.input_bytes == byte == 3 * 8 + 4 * 11 * 192


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def test_experts_are_counted_as_chosen_and_the_spread_is_said() -> None:
    # 3 tokens choose 2 of 8 experts each: 6 rows. Two halves up and one down are 3 x 16 x 24 a row.
    analysis = stage_of(MIXTURE, "decode", 5, 3, name="hf:mixtral")
    products = of_ops(analysis, "aten._grouped_mm")
    assert sum(row.macs for row in products) == 6 * 3 * 16 * 24
    # As many as can be: 6 of the 8 experts, of 4 bytes a weight.
    assert sum(row.parameter_bytes for row in products) == 6 * 3 * 16 * 24 * 4
    (note,) = [each for each in analysis.warnings if each.startswith("expert routing is unknown")]
    assert "6 of 8 experts per layer" in note
    assert analysis.totals.unknown_operators == 0


def test_twice_the_batch_doubles_the_multiply_adds_and_reads_weights_once() -> None:
    one, two = (stage_of(GROUPED, "decode", 11, batch) for batch in (1, 2))
    assert one.totals.macs is not None
    assert two.totals.macs == 2 * one.totals.macs
    products = ("aten.mm", "aten.addmm", "aten.linear")
    weights = [sum(row.parameter_bytes for row in of_ops(each, *products)) for each in (one, two)]
    assert weights[0] == weights[1] > 0


def test_half_the_type_halves_the_cache() -> None:
    full, half = (stage_of(GROUPED, "decode", 11, 3, dtype=each) for each in (None, "bfloat16"))
    assert [row.input_bytes for row in attention(full)] == [
        2 * row.input_bytes for row in attention(half)
    ]


def test_an_analysis_of_a_stage_can_be_saved_and_read_again(tmp_path: Path) -> None:
    analysis = stage_of(GROUPED, "decode", 11, 3)
    analysis.save(tmp_path / "decode.json")
    assert roofline.read_analysis(tmp_path / "decode.json") == analysis


def test_a_language_model_is_its_configuration_as_plain_data() -> None:
    found = language_model("hf:llama", config=GROUPED)
    assert isinstance(found, LanguageModel)
    assert found.name == "hf:llama"
    plain = json.loads(json.dumps(found.configuration))
    assert plain == found.configuration
    names = ("model_type", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    assert [plain[each] for each in names] == ["llama", 48, 6, 2, 8]
    assert any(each.startswith("defaults of LlamaConfig: ") for each in found.notes)
    assert language_model("hf:gpt2", config=None).configuration["hidden_size"] == 768


def test_a_published_model_is_counted_without_its_memory() -> None:
    """70 billion parameters: bytes of the weights and of the cache, as their sizes say."""
    analysis = stage_of("llama-3.1-70b", "decode", 4096, 8)
    assert analysis.totals.parameters == 70_553_706_496
    assert analysis.totals.parameter_size_bytes == 2 * 70_553_706_496
    # 80 layers x keys and values x 8 heads x 128 numbers x 2 bytes are 320 KiB a token.
    assert analysis.peak is not None
    assert analysis.peak.input_bytes == 8 * 4096 * 320 * 1024 + 8 * 8


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hf:llama", {"stage": "training"}, "expected prefill or decode"),
        ("hf:llama", {"context": 0}, "context=0"),
        ("hf:llama", {"batch": 0}, "batch=0"),
        ("hf:llama", {"dtype": "int8"}, "dtype='int8'"),
        ("hf:llama", {"config": "hidden_size=30,num_attention_heads=4"}, "use 28 or 32"),
        ("resnet18", {}, "prefill and decode need a transformers language model"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"config": None, "stage": "decode", "context": 4, **options}
    with pytest.raises(InputError, match=message) as raised:
        run = {each: given.pop(each) for each in ("batch", "dtype") if each in given}
        analyze_stage(name, RunOptions(hardware=MACHINE, **run), **given)
    assert "\n" not in str(raised.value)


def test_what_is_no_language_model_has_no_configuration() -> None:
    with pytest.raises(ModelError, match="no language model of transformers"):
        language_model("resnet18", config=None)
