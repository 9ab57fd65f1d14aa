"""The architecture held against the passes that transformers really makes, in small sizes."""

from __future__ import annotations

from typing import Any

import pytest

import roofline
from roofline.llm.parts import weights_of
from roofline.llm.result import Language
from tests.llm.language_examples import machine

pytest.importorskip("roofline.pipeline.language")

SMALL = (
    "hidden_size=32,num_hidden_layers=2,intermediate_size=80,num_attention_heads=4,vocab_size=96"
)
MODELS = {
    "llama": f"{SMALL},num_key_value_heads=4",
    "llama, grouped": f"{SMALL},num_key_value_heads=2",
    "qwen2": f"{SMALL},num_key_value_heads=1",
    "gpt2": "n_embd=32,n_layer=2,n_head=4,n_inner=80,vocab_size=96,n_positions=16",
}


@pytest.fixture(scope="module", params=list(MODELS))
def language(request: pytest.FixtureRequest) -> Language:
    name: Any = request.param
    family = name.partition(",")[0]
    return roofline.analyze_language(
        f"hf:{family}",
        config=MODELS[name],
        context=12,
        batch=3,
        hardware=machine(),
        engine="transformers",
    )


def test_products_and_attention_are_those_that_are_called(language: Language) -> None:
    for stage in language.stages:
        assert stage.analysis is not None
        assert stage.asked.macs == stage.analysis.totals.macs, stage.stage


def test_the_cache_is_what_decode_is_given(language: Language) -> None:
    decode = language.stage("decode")
    assert decode is not None
    assert decode.given_cache_bytes == language.cache.byte(12, 3)


def test_no_library_beats_the_architecture(language: Language) -> None:
    for stage in language.stages:
        assert stage.asked.model_min_time_s is not None
        assert stage.eager_min_time_s is not None
        assert stage.asked.model_min_time_s <= stage.eager_min_time_s


def test_weights_are_those_of_the_model(language: Language) -> None:
    analysis = language.stages[0].analysis
    assert analysis is not None
    assert weights_of(language.architecture) == analysis.totals.parameters
