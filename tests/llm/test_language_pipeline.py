"""analyze_language: what it makes of two passes and a configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import roofline
from roofline.errors import InputError
from roofline.llm.result import Language
from roofline.placement import Bound
from tests.llm.language_examples import TINY, machine
from tests.llm.language_stand_in import PREDICTED, stand_in

SPARSE = {**TINY, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12}


def analysed(patch: pytest.MonkeyPatch, **options: Any) -> Language:
    stand_in(patch, prediction=PREDICTED)
    options.setdefault("hardware", machine())
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


def test_what_is_asked_for_reaches_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    stood = stand_in(monkeypatch)
    profile = machine()
    roofline.analyze_language(
        "hf:llama", config="hidden_size=16", context=7, batch=3, hardware=profile, cold=True
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
    for profile, memory, size, fit in (
        (machine(), None, None, "unknown"),
        (machine(), weights, weights, "does not fit"),
        (machine(), "1GiB", 2**30, "fits"),
        (known, None, 2**30, "fits"),
        (known, 1000, 1000, "does not fit"),
    ):
        found = analysed(monkeypatch, context=10, memory=memory, hardware=profile).footprint
        assert (found.memory.size_bytes, found.fit) == (size, fit)
        assert (found.weight_bytes, found.cache_bytes) == (weights, 10 * 192)


def test_this_machine_has_what_is_free(monkeypatch: pytest.MonkeyPatch, no_user_data: Path) -> None:
    monkeypatch.setattr("roofline.pipeline.language.available_memory_bytes", lambda: 12345)
    profile = machine()
    path = no_user_data / "share" / "roofline" / "hardware" / "host.toml"
    path.parent.mkdir(parents=True)
    profile.save(path)
    found = analysed(monkeypatch, stage="decode", context=4, hardware=None)
    assert (found.footprint.memory.size_bytes, found.footprint.fit) == (12345, "does not fit")


def test_few_bits_shrink_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(monkeypatch, context=10, weight_bits=["w8a16", "w4a16"])
    for of, bits in zip(found.weight_bits, (8, 4), strict=True):
        # The vocabulary's table and product stay floats, of 16 bits as what is computed.
        quantized = 3 * 2688
        assert of.weight_bytes_before == 4 * (quantized + 1600)
        assert of.weight_bytes_after == quantized * bits // 8 + 2 * 1600
        for stage in of.stages:
            assert stage.unpacked_weights == quantized
            assert (stage.asked_after.model_min_time_s or 0) <= (
                stage.asked_before.model_min_time_s or 0
            )
            assert stage.eager_min_time_after_s is not None
            assert stage.eager_min_time_before_s is not None
            assert stage.eager_min_time_after_s < stage.eager_min_time_before_s
    decode = found.weight_bits[1].stages[1]
    # Eight times fewer bytes of all weights but those of the vocabulary, at 100 MB/s.
    less = 4 * 3 * 2688 * (1 - 1 / 8) / 1e8
    saved = (decode.asked_before.model_min_time_s or 0) - (decode.asked_after.model_min_time_s or 0)
    # The cache has half as many bytes, too: its floats have 16 bits.
    assert saved == pytest.approx(less + (11 * 192 + 3200) / 2 / 1e8)


def test_experts_have_a_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, configuration=SPARSE)
    found = roofline.analyze_language("hf:x", context=3, batch=4, hardware=machine())
    decode = found.stages[1]
    assert decode.spread is not None
    assert [each.distinct for each in decode.routed] == [2, round(8 * (1 - 0.75**4)), 8]
    bytes_read = [each.weight_bytes for each in decode.routed]
    one = 3 * 16 * 12 * 4
    assert bytes_read[2] - bytes_read[0] == 3 * 6 * one
    bounds = [each.model_min_time_s or 0 for each in decode.routed]
    assert bounds == sorted(bounds)
    assert decode.asked.distinct_experts == decode.spread.typical


def test_a_sweep_has_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(
        monkeypatch, stage="decode", context=8, sweep_batch=[1, 2, 64], sweep_context=[8, 16]
    )
    assert found.sweep is not None
    assert len(found.sweep.cells) == 6
    assert (
        found.sweep.cell("decode", 1, 8).model_min_time_s == found.stages[0].asked.model_min_time_s
    )
    one_axis = analysed(monkeypatch, stage="decode", context=8, sweep_batch=[1, 2])
    assert one_axis.sweep is not None
    assert one_axis.sweep.contexts == (8,)
    assert analysed(monkeypatch, context=8).sweep is None


def test_a_context_beyond_the_positions_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(monkeypatch, stage="decode", context=65)
    assert any(
        "context 65 exceeds the maximum of the configuration (64)" in each for each in found.notes
    )


def test_data_has_what_the_result_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = analysed(
        monkeypatch, context=10, weight_bits=["w4a16"], sweep_batch=[1, 2], memory="1MB"
    )
    data = json.loads(found.to_json())
    assert (data["kind"], data["schema_version"]) == ("language model", 1)
    assert data["configuration"] == TINY
    assert data["cache"]["token_bytes"] == 192
    assert data["stages"][0]["analysis"]["totals"]["flop"] > 0
    assert data["stages"][1]["predicted_rate"]["low_per_s"] == pytest.approx(25)
    assert data["weight_bits"][0]["bits"] == {"weights": 4, "activations": 16}
    assert len(data["sweep"]["cells"]) == 4
    frame = found.to_frame()
    assert list(frame["is_swept"]) == [False, False, True, True, True, True]
    swept = frame[frame["is_swept"]]
    assert swept["model_min_time_s"].isna().all()
    assert swept["asked_model_min_time_s"].notna().all()


def test_without_ceilings_there_are_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import builders

    stand_in(monkeypatch)
    found = roofline.analyze_language(
        "hf:llama", context=4, sweep_batch=[1, 2], hardware=builders.profile([], [])
    )
    assert [each.bound_rate for each in found.stages] == [None, None]
    assert found.sweep is not None
    assert {each.bound for each in found.sweep.cells} == {Bound.UNKNOWN}
    assert "no ceilings" in found.summary


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stage": "decoding"}, "stage='decoding': must be prefill or decode"),
        ({"context": 0}, "context=0: must be a whole number from 1"),
        ({"batch": -1}, "batch=-1: must be"),
        ({"batch": True}, "batch=True: must be"),
        ({"weight_bits": ["4"]}, "weight bits '4': expected a form"),
        ({"weight_bits": ["w4a4"]}, "activations must have 16 or 32 bits"),
        ({"weight_bits": ["w20a16"]}, "20 bits"),
        ({"weight_bits": ["w16a16"]}, "weights must have fewer bits"),
        ({"sweep_batch": [0]}, "sweep_batch=0: must be"),
        ({"sweep_batch": "1,2"}, "must be a list"),
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
        "hf:llama", stage="prefill", context=8, hardware=machine(), sweep_batch=[1, 2]
    )
    (line,) = (each for each in found.warnings if "use the rows of transformers" in each)
    assert line.startswith("prefill: architecture")
    assert "differ for model type 'llama'" in line
    right = analysed(monkeypatch, stage="prefill", context=8)
    assert not any("use the rows" in each for each in right.warnings)


def test_other_floats_than_were_asked_for_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import builders

    whole = builders.profile(
        [builders.ceiling(1e9)], [builders.level("DRAM", None, {"read": {1: 1e8}})]
    )
    stand_in(monkeypatch)
    asked: dict[str, Any] = {"stage": "decode", "weight_bits": ["w8a16", "w4a32"]}
    without, full = roofline.analyze_language("hf:llama", hardware=whole, **asked).weight_bits
    assert without.notes == (
        "w8a16: arithmetic counted in float32, because the machine has no ceiling for 16-bit floats",  # noqa: E501
    )
    assert full.notes == ()
    with_half = roofline.analyze_language("hf:llama", hardware=machine(), **asked).weight_bits
    assert [each.notes for each in with_half] == [(), ()]


def test_fewer_bits_gain_no_more_than_the_bytes_that_they_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not what taking the gate's activation function into its product would gain besides."""
    stand_in(monkeypatch)
    found = roofline.analyze_language(
        "hf:llama",
        context=64,
        batch=8,
        dtype="bfloat16",
        weight_bits=["w8a16"],
        hardware=machine(),
    )
    for stage in found.weight_bits[0].stages:
        assert stage.eager_min_time_before_s is not None
        assert stage.eager_min_time_after_s is not None
        gain = stage.eager_min_time_before_s - stage.eager_min_time_after_s
        # 3 layers of 2,688 weights, a byte less each, at 100 MB/s.
        assert -1e-12 <= gain <= 3 * 2688 / 1e8 * (1 + 1e-9)
    decode = found.weight_bits[0].stages[1]
    assert (decode.eager_min_time_before_s or 0) > (decode.eager_min_time_after_s or 0)
