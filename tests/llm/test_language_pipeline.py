"""analyze_language: what it makes of two passes and a configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import roofline
from roofline.core.blocks import KeyValueBlock
from roofline.errors import InputError
from roofline.llm.architecture import Architecture
from roofline.llm.result import Language
from roofline.pipeline.language import sizes_of
from roofline.placement import Bound
from tests.llm.language_examples import TINY, machine
from tests.llm.language_stand_in import PREDICTED, stand_in

SPARSE = {**TINY, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12}


def analysed(patch: pytest.MonkeyPatch, **options: Any) -> Language:
    stand_in(patch, prediction=PREDICTED)
    options.setdefault("hardware", machine())
    options.setdefault("engine", "transformers")
    return roofline.analyze_language("hf:llama", **options)


def test_both_stages_stand_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(monkeypatch, context=10, batch=2)
    prefill, decode = found.stages
    assert (prefill.stage, decode.stage) == ("prefill", "decode")
    assert (prefill.tokens, decode.tokens) == (20, 2)
    # The same products, ten times as often, and the logits of one token in both.
    per_token = 3 * (768 + 3 * 16 * 40)
    assert prefill.asked.macs == 20 * per_token + 2 * 800 + 2 * 3 * 4 * 100 * 8
    assert decode.asked.macs == 2 * per_token + 2 * 800 + 2 * 3 * 4 * 11 * 8
    assert found.stage("decode") is decode


@pytest.mark.parametrize(("context", "batch"), [(10, 2), (1, 1), (16, 1)])
def test_the_architecture_asks_for_no_more_than_torch_does(
    monkeypatch: pytest.MonkeyPatch, context: int, batch: int
) -> None:
    """The same products, in no more time."""
    (prefill,) = analysed(monkeypatch, stage="prefill", context=context, batch=batch).stages
    assert prefill.analysis is not None
    assert prefill.asked.macs == prefill.analysis.totals.macs
    assert (prefill.asked.model_min_time_s or 0) <= (prefill.eager_min_time_s or 0)


def test_rates_are_tokens_over_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = analysed(monkeypatch, stage="decode", context=10, batch=4).stages[0]
    predicted = decode.predicted_rate
    assert predicted is not None
    # Four tokens in 20 ms; the slowest end of the interval gives the fewest.
    assert predicted.tokens_per_s == pytest.approx(200)
    assert (predicted.low_per_s, predicted.high_per_s) == pytest.approx((100, 400))
    alone = predicted.of_one(4)
    assert (alone.tokens_per_s, alone.low_per_s) == pytest.approx((50, 25))
    bound = decode.bound_rate
    assert bound is not None
    assert bound.tokens_per_s == pytest.approx(4 / (decode.eager_min_time_s or 0))


def test_a_missing_prediction_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    found = roofline.analyze_language(
        "hf:llama", stage="decode", hardware=machine(), engine="transformers"
    )
    (facts,) = (each for each in found.report().blocks if isinstance(each, KeyValueBlock))
    assert dict(facts.lines)["Prediction"].startswith("none of decode: no calibration data")


def test_what_is_asked_for_reaches_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    stood = stand_in(monkeypatch)
    profile = machine()
    roofline.analyze_language(
        "hf:llama",
        config="hidden_size=16",
        context=7,
        batch=3,
        hardware=profile,
        cold=True,
        engine="transformers",
    )
    assert [each["stage"] for each in stood.asked] == ["prefill", "decode"]
    for each in stood.asked:
        assert (each["config"], each["context"], each["batch"]) == ("hidden_size=16", 7, 3)
        assert (each["hardware"], each["cold"]) == (profile, True)


def test_memory_that_is_given_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is, that of the profile."""
    # 3 x (768 + 1920) + 2 x 800 weights in float32; 3 layers, 2 heads of 4, keys and values, 4 B.
    weights, last = 4 * (3 * 2688 + 1600), machine().memory[-1]
    known = replace(machine(), memory=(replace(last, capacity_bytes=2**30, scope="shared"),))
    small = 4 * (2 * 3 + 1) * 16  # norms
    for profile, memory, size, fit in (
        (machine(), None, None, "unknown"),
        (machine(), weights, weights, "does not fit"),
        (machine(), "1GiB", 2**30, "fits"),
        (known, None, 2**30, "fits"),
        (known, 1000, 1000, "does not fit"),
    ):
        found = analysed(monkeypatch, context=10, memory=memory, hardware=profile).footprint
        assert (found.memory.size_bytes, found.fit) == (size, fit)
        assert (found.weight_bytes, found.cache_bytes) == (weights + small, 10 * 192)


def test_this_machine_has_what_is_free(monkeypatch: pytest.MonkeyPatch, no_user_data: Path) -> None:
    monkeypatch.setattr("roofline.pipeline.language.available_memory_bytes", lambda: 12345)
    profile = machine()
    path = no_user_data / "share" / "roofline" / "hardware" / "host.toml"
    path.parent.mkdir(parents=True)
    profile.save(path)
    found = analysed(monkeypatch, stage="decode", context=4, hardware=None)
    assert (found.footprint.memory.size_bytes, found.footprint.fit) == (12345, "does not fit")


def test_few_bits_shrink_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(
        monkeypatch, context=10, engine="paged", dtype="float32", weights="fp32,w8a32,w4a32"
    )
    small = 4 * (2 * 3 + 1) * 16
    for cell, bits in zip(found.cells, (32, 8, 4), strict=True):
        # The vocabulary's table and product stay floats.
        whole = 3 * 2688 * bits // 8 + 4 * 1600 + small
        activations = 4 * (16 + 50)
        assert cell.footprint_bytes == whole + 10 * 192 + activations
    full, _, few = (cell.stage("decode") for cell in found.cells)
    assert full is not None and few is not None
    # Eight times fewer bytes of all weights but those of the vocabulary, at 100 MB/s.
    saved = (full.model_min_time_s or 0) - (few.model_min_time_s or 0)
    assert saved == pytest.approx(4 * 3 * 2688 * (1 - 1 / 8) / 1e8)
    assert full.flop == few.flop


def test_experts_have_a_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, configuration=SPARSE)
    found = roofline.analyze_language(
        "hf:x", context=3, batch=4, hardware=machine(), dtype="float32"
    )
    decode = found.stages[1]
    assert decode.spread is not None
    assert [each.distinct for each in decode.routed] == [2, round(8 * (1 - 0.75**4)), 8]
    bytes_read = [each.weight_bytes for each in decode.routed]
    one = 3 * 16 * 12 * 4
    assert bytes_read[2] - bytes_read[0] == 3 * 6 * one
    bounds = [each.model_min_time_s or 0 for each in decode.routed]
    assert bounds == sorted(bounds)
    assert decode.asked.distinct_experts == decode.spread.typical


def test_every_combination_is_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(
        monkeypatch,
        stage="decode",
        batch="1..4,64",
        context=[8, 16],
        kv="fp32,int8",
        weights="fp32",
    )
    runs = [(each.run.cache, each.run.context, each.run.batch) for each in found.cells]
    batches = (1, 2, 4, 64)
    assert runs == [(kv, of, each) for kv in ("fp32", "int8") for of in (8, 16) for each in batches]
    first = found.cells[0].stages[0]
    assert first.model_min_time_s == found.stages[0].asked.model_min_time_s
    assert len(analysed(monkeypatch, context=8).cells) == 1


def test_sizes_are_lists_ranges_and_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, sizes in (("1..6", (1, 2, 4, 6)), ("3..12", (3, 6, 12)), ("5,5,2", (5, 2))):
        assert sizes_of("batch", text, 1) == sizes
    assert sizes_of("context", "4k,32k,1m", 1) == (4096, 32768, 2**20)
    assert sizes_of("context", [7], 1) == (7,)


def test_the_usual_context_is_within_the_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert analysed(monkeypatch, stage="decode").context == 64


def test_known_configurations_need_no_transformers(tmp_path: Path) -> None:
    content = {**TINY, "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    for name in (str(tmp_path), str(tmp_path / "config.json")):
        found = roofline.analyze_language(name, hardware=machine(), context=8)
        assert (found.architecture, found.dtype.name) == (Architecture.of(TINY), "float32")


def test_a_quantized_checkpoint_is_read_in_its_format(tmp_path: Path) -> None:
    quantized = {"quant_method": "fp8"}
    content = {**TINY, "torch_dtype": "bfloat16", "quantization_config": quantized}
    (tmp_path / "config.json").write_text(json.dumps(content))
    found = roofline.analyze_language(str(tmp_path), hardware=machine(), context=8)
    assert {each.run.weights for each in found.cells} == {"fp8"}
    given = roofline.analyze_language(str(tmp_path), hardware=machine(), weights="bf16")
    assert given.cells[0].run.weights == "bf16"


def test_a_known_configuration_loads_no_torch() -> None:
    code = (
        "import roofline, sys\n"
        "found = roofline.analyze_language('llama-3.1-8b', hardware='h100', kv='fp8')\n"
        "found.report()\n"
        "print([each for each in ('torch', 'numpy', 'transformers') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_data_has_what_the_result_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(monkeypatch, context=10, batch=[1, 2], memory="1MB")
    data = json.loads(found.to_json())
    assert (data["kind"], data["schema_version"]) == ("language model", 1)
    assert data["configuration"] == TINY
    assert data["cache"]["token_bytes"] == 192
    assert data["stages"][0]["analysis"]["totals"]["flop"] > 0
    assert data["stages"][1]["predicted_rate"]["low_per_s"] == pytest.approx(25)
    assert len(data["cells"]) == 2
    frame = found.to_frame()
    assert list(frame["is_swept"]) == [False, False, True, True, True, True]
    swept = frame[frame["is_swept"]]
    assert swept["model_min_time_s"].isna().all()
    assert swept["asked_model_min_time_s"].notna().all()


def test_without_ceilings_there_are_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import builders

    stand_in(monkeypatch)
    found = roofline.analyze_language(
        "hf:llama", context=4, batch=[1, 2], hardware=builders.profile([], [])
    )
    assert [each.asked_rate for each in found.stages] == [None, None]
    assert {each.bound for cell in found.cells for each in cell.stages} == {Bound.UNKNOWN}
    assert "no ceilings" in found.summary


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stage": "decoding"}, "stage='decoding': must be prefill or decode"),
        ({"context": 0}, "context='0': must be whole numbers from 1"),
        ({"batch": -1}, "batch='-1': must be"),
        ({"batch": True}, "batch='True': must be"),
        ({"weights": "4"}, "weights='4': must be"),
        ({"weights": "w4a4"}, "must be"),
        ({"weights": "w20a16"}, "at least 1 bit and fewer bits"),
        ({"weights": "w16a16"}, "at least 1 bit and fewer bits"),
        ({"kv": "fp7"}, "kv='fp7': must be one of"),
        ({"batch": "1,x"}, "batch='x': must be whole numbers"),
        ({"batch": []}, "batch: the list is empty"),
        ({"context": "8..4"}, "context='8..4': must be"),
        ({"context": 65}, "context=65: exceeds the maximum of hf:llama (64)"),
        ({"tensor_parallel": 3, "link_bandwidth": "1GB/s"}, "does not divide 4 heads"),
        ({"tensor_parallel": 2}, "has no links between ranks"),
        ({"pipeline_parallel": 4, "link_bandwidth": "1GB/s"}, "the model has 3 layers"),
        ({"pipeline_parallel": 2}, "has no links between ranks"),
        ({"link_bandwidth": "pcie4"}, "link_bandwidth='pcie4': has no effect on one rank"),
        ({"quantized_head": True, "weights": "bf16"}, "has no effect on weights in floats"),
        ({"speculate": 2}, "speculate=2: needs the share of accepted drafts"),
        ({"acceptance": 0.5}, "acceptance=0.5: has no effect without"),
        ({"prefix": "100%"}, "prefix='100%': must be a share"),
        ({"cold": True}, "has no effect on a paged engine"),
        ({"engine": "vllm"}, "engine='vllm': must be paged or transformers"),
        ({"engine": "transformers", "weights": "int8"}, "captured in floats"),
        ({"memory": "lots"}, "memory='lots': must be a size"),
        ({"memory": 0}, "memory=0: must be a size"),
    ],
)
def test_wrong_options_get_one_line(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], words: str
) -> None:
    stood = stand_in(monkeypatch)
    with pytest.raises(InputError) as caught:
        roofline.analyze_language("hf:llama", hardware=machine(), **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert stood.asked == []


def test_an_architecture_that_asks_for_more_than_is_computed_is_doubted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(monkeypatch, configuration={**TINY, "intermediate_size": 400})
    found = roofline.analyze_language(
        "hf:llama", stage="prefill", context=8, hardware=machine(), engine="transformers"
    )
    (line,) = (each for each in found.warnings if "use the rows of transformers" in each)
    assert line.startswith("prefill: architecture")
    assert "differ for model type 'llama'" in line
    right = analysed(monkeypatch, stage="prefill", context=8)
    assert not any("use the rows" in each for each in right.warnings)


def test_embeddings_per_layer_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, configuration={**TINY, "hidden_size_per_layer_input": 8})
    found = roofline.analyze_language("hf:llama", context=8, hardware=machine())
    assert found.warnings == ("embeddings per layer are not counted: weights take more memory",)


def test_other_arithmetic_than_was_asked_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(monkeypatch, engine="paged", context=8, weights="fp8")
    assert (
        "fp8 on test: arithmetic in bfloat16, because the machine has no ceiling for float8_e4m3fn"
        in found.notes
    )
