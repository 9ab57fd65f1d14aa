"""transformers models in the sizes asked for: what is built, what is refused, what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from roofline.errors import InputError, ModelError
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.libraries.transformers_config import (
    bundled_names,
    plain_configuration,
)
from roofline.workload.models.sources import load_model

if library_or_reason("transformers")[0] is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

SMALL = (
    "hidden_size=32,intermediate_size=48,num_hidden_layers=2,num_attention_heads=4,vocab_size=100"
)

# As the cards of the models have them, from the checkpoints' own tables of tensors.
PUBLISHED = {
    "gpt2": ("hf:gpt2", 124_439_808),
    "llama-2-7b": ("hf:llama", 6_738_415_616),
    "llama-3.1-8b": ("hf:llama", 8_030_261_248),
    "llama-3.1-70b": ("hf:llama", 70_553_706_496),
    "llama-3.2-1b": ("hf:llama", 1_235_814_400),
    "tinyllama-1.1b": ("hf:llama", 1_100_048_384),
    "smollm2-135m": ("hf:llama", 134_515_008),
    "mistral-7b": ("hf:mistral", 7_241_732_096),
    "mixtral-8x7b": ("hf:mixtral", 46_702_792_704),
    "qwen2.5-0.5b": ("hf:qwen2", 494_032_768),
    "qwen2.5-7b": ("hf:qwen2", 7_615_616_512),
    "qwen3-30b-a3b": ("hf:qwen3_moe", 30_532_122_624),
    "gemma-2-2b": ("hf:gemma2", 2_614_341_888),
    "phi-3-mini": ("hf:phi3", 3_821_079_552),
    # Its checkpoint has the tied head a second time: 7,217,189,760 with that.
    "falcon-7b": ("hf:falcon", 6_921_720_704),
    "deepseek-v2-lite": ("hf:deepseek_v2", 15_706_484_224),
    "olmoe-1b-7b": ("hf:olmoe", 6_919_161_856),
}


def config_of(name: str, config: str) -> Any:
    module: Any = load_model(name, config=config).module
    return module.config


@pytest.mark.parametrize("name", PUBLISHED)
def test_bundled_models_have_as_many_parameters_as_were_published(name: str) -> None:
    assert set(PUBLISHED) <= set(bundled_names())
    model, parameters = PUBLISHED[name]
    source = load_model(model, config=name)
    assert sum(each.numel() for each in source.module.parameters()) == parameters
    assert {each.device.type for each in source.module.parameters()} == {"meta"}
    assert f"the sizes of {name} (" in source.notes[0]


def test_the_type_of_weights_is_that_of_the_configuration() -> None:
    for model in ("hf:llama", "hf:LlamaForCausalLM"):
        source = load_model(model, config="smollm2-135m")
        assert {each.dtype for each in source.module.parameters()} == {torch.bfloat16}
        assert "note: weights are bfloat16, as in the configuration" in source.notes
    assert {each.dtype for each in load_model("hf:llama", config=SMALL).module.parameters()} == {
        torch.float32
    }


def test_sizes_by_key_and_value_and_what_was_filled_in() -> None:
    source = load_model("hf:llama", config=SMALL)
    module: Any = source.module
    config = module.config
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (32, 2, 100)
    assert len(module.model.layers) == 2
    first, filled = source.notes
    assert first.startswith(
        "note: hf:llama is LlamaForCausalLM of transformers with hidden_size=32, "
    )
    assert filled == (
        "defaults of LlamaConfig: num_key_value_heads=4, head_dim=8, max_position_embeddings=2048"
    )
    # Without any, nothing is said but that.
    assert load_model("hf:gpt2").notes == (
        "note: hf:gpt2 is GPT2LMHeadModel of transformers with the default sizes of GPT2Config",
    )


def test_plain_configurations_have_standard_names_positions_and_windows() -> None:
    plain = plain_configuration(config_of("hf:gpt2", "n_embd=96,num_hidden_layers=3,n_head=4"))
    assert (plain["n_embd"], plain["hidden_size"], plain["num_hidden_layers"]) == (96, 96, 3)
    assert json.loads(json.dumps(plain)) == plain
    plain = plain_configuration(config_of("hf:mistral", "mistral-7b"))
    assert (plain["model_type"], plain["sliding_window"]) == ("mistral", 4096)
    assert plain["dtype"] == "bfloat16"


def test_a_local_file_with_more_in_it_than_sizes(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    content = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "torch_dtype": "float16",
        "transformers_version": "4.40.0",
        "rope_theta": 500000.0,
        "quantization_config": {"quant_method": "gptq", "bits": 4},
        "my_own_key": 7,
    }
    file.write_text(json.dumps(content))
    source = load_model("hf:llama", config=str(file))
    module: Any = source.module
    assert module.config.rope_parameters["rope_theta"] == 500000.0
    assert {each.dtype for each in module.parameters()} == {torch.float16}
    said = "\n".join(source.notes)
    assert "settings unknown to LlamaConfig, kept as in transformers: my_own_key" in said
    assert "quantized weights" in said


@pytest.mark.parametrize(
    ("model", "config", "message"),
    [
        ("hf:llama", "hidden_sise=64", r"no such setting; did you mean 'hidden_size'\?"),
        ("hf:llama", "n_embd=64", "LlamaConfig has no such setting"),
        ("hf:llama", "mixtral-8x7b", "type 'mixtral', but hf:llama has type 'llama'; write"),
        ("hf:llama", "num_attention_heads=6,num_key_value_heads=4", r"use 1, 2, 3, 6"),
        ("hf:llama", "hidden_size=30,num_attention_heads=4", "use 28 or 32"),
        ("hf:gpt2", "n_embd=30,n_head=4", "use 28 or 32"),
        ("hf:llama", "hidden_size=0", "hidden_size=0: must be a whole number from 1"),
        ("hf:llama", "hidden_size=big", "hidden_size=big: must be a whole number from 1"),
        ("hf:llama", "num_hidden_layers=1.5", "must be a whole number from 1"),
        ("hf:llama", "num_hidden_layers=true", "num_hidden_layers=true: must be a whole number"),
        ("hf:llama", "num_hidden_layers=1_000_000_000", "too many to build; at most 4,096"),
        ("hf:mixtral", "num_experts_per_tok=9", "has 8 experts; use at most 8"),
        ("hf:llama", "rms_norm_eps=small", "LlamaConfig rejects config: "),
        ("hf:lama", "hidden_size=64", r"unknown model 'hf:lama'; did you mean 'hf:llama'\?"),
        ("resnet50", "hidden_size=64", "has no effect on resnet50"),
        ("timm:resnet50", "hidden_size=64", "has no effect on timm:resnet50"),
        ("mine.py:Net", "hidden_size=64", "has no effect on mine.py:Net"),
        ("relu()@1x8", "hidden_size=64", r"has no effect on relu\(\)@1x8"),
    ],
)
def test_what_is_refused(model: str, config: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        load_model(model, config=config)
    assert isinstance(raised.value, ModelError) is ("rejects" in message or "unknown" in message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"hidden_size": "4096"}, r'config.json: hidden_size="4096": must be a whole number'),
        ({"num_attention_heads": 0}, "num_attention_heads=0: must be"),
        ({"vocab_size": -5}, "vocab_size=-5: must be"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers=2.5: must be"),
        ({"hidden_size": float("nan")}, "hidden_size=NaN: must be"),
        ({"hidden_size": True}, "hidden_size=true: must be"),
        ({"n_layer": 10**12}, "n_layer=1000000000000: too many to build"),
        ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers=1000000000: too many"),
        ({"num_labels": 10**9}, "num_labels=1000000000: too many to build"),
        ({"to_json_string": 1}, "to_json_string is not a setting; remove it"),
        ({"hidden_size": 10**300}, "must be a whole number from 1 to 1,099,511,627,776"),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=message) as raised:
        load_model("hf:llama", config=str(file))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("is_nested", [False, True])
def test_code_that_a_file_names_is_never_run(tmp_path: Path, is_nested: bool) -> None:
    """As checkpoints on the hub name it, beside the file itself."""
    (tmp_path / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    code = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "auto_map": code}
    text = {**small, "model_type": "llama", "intermediate_size": 48, "vocab_size": 100}
    content: dict[str, Any] = {**text, "_name_or_path": str(tmp_path)}
    if is_nested:
        content = {"model_type": "llava", "text_config": text, "auto_map": code}
    (tmp_path / "config.json").write_text(json.dumps(content))
    source = load_model("hf:llava" if is_nested else "hf:llama", config=str(tmp_path))
    assert type(source.module).__module__.startswith("transformers.models.")
    assert not (tmp_path / "ran").exists()
