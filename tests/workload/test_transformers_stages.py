"""Prefill and decode of transformers models: the cache is the model's own, and so is the pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from roofline.errors import InputError, ModelError
from roofline.run import Run
from roofline.workload.capture.fake_tensors import FakeTensors
from roofline.workload.capture.passes import capture, run_single_pass
from roofline.workload.capture.real_tensors import RealTensors
from roofline.workload.models.building import Source
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.libraries.transformers_stages import (
    StagedSource,
    staged_source,
)
from roofline.workload.models.sources import load_model
from roofline.workload.operators import Capture, State
from roofline.workload.residency import trace_residency
from roofline.workload.tensors import Role

if library_or_reason("transformers")[0] is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

SIZES = "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,vocab_size=50"
LLAMA = ("hf:llama", f"{SIZES},intermediate_size=48,num_key_value_heads=2")
GPT2 = ("hf:gpt2", SIZES)
WINDOW = ("hf:mistral", f"{SIZES},intermediate_size=48,num_key_value_heads=2,sliding_window=8")
BOTH = (
    "hf:gemma2",
    f"{SIZES},intermediate_size=48,num_key_value_heads=2,head_dim=8,sliding_window=8",
)
EXPERTS = ("hf:mixtral", f"{SIZES},intermediate_size=48,num_key_value_heads=2")
LATENT = (
    "hf:deepseek_v2",
    f"{SIZES},intermediate_size=48,moe_intermediate_size=16,num_key_value_heads=4,kv_lora_rank=16,"
    "q_lora_rank=none,qk_nope_head_dim=8,qk_rope_head_dim=4,v_head_dim=8,n_routed_experts=4,"
    "n_shared_experts=1,num_experts_per_tok=2,first_k_dense_replace=1",
)
ALL = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "mistral": WINDOW,
    "gemma2": BOTH,
    "mixtral": EXPERTS,
    "deepseek_v2": LATENT,
}


def staged(
    model: tuple[str, str], stage: Any, context: int, batch: int = 2, dtype: str = ""
) -> StagedSource:
    return staged_source(
        load_model(model[0], config=model[1]),
        stage=stage,
        context=context,
        batch=batch,
        run=Run(dtype=dtype),
    )


def captured(found: StagedSource, dtype: str = "") -> Capture:
    return capture(
        found.source.module,
        found.given,
        name=found.source.name,
        run=Run(dtype=dtype),
        rebuild=found.source.rebuild,
    )


def of_attributes(cache: Any) -> dict[str, torch.Tensor]:
    """The keys and values of a real cache, by the names of a pass's inputs."""
    return {
        f"{number}_{name}": getattr(layer, name)
        for number, layer in enumerate(cache.layers)
        for name in ("keys", "values")
    }


@pytest.mark.parametrize("kind", sorted(ALL))
@pytest.mark.parametrize("context", [3, 20])
def test_a_decode_pass_gives_what_a_prefill_of_one_token_more_gives(
    kind: str, context: int
) -> None:
    """The whole of a prompt at once, and all but its last token kept in a cache: same logits."""
    found = staged(ALL[kind], "decode", context)
    assert found.source.rebuild is not None
    torch.manual_seed(0)
    decoding: Any = found.source.rebuild().eval()
    ids = torch.randint(0, 50, (2, context + 1))
    whole = type(decoding).forward
    with torch.no_grad():
        expected = whole(decoding, input_ids=ids, use_cache=False).logits[:, -1]
        kept = whole(decoding, input_ids=ids[:, :-1], use_cache=True).past_key_values
        given = of_attributes(kept)
        result = decoding(ids[:, -1:], past=given)
    torch.testing.assert_close(result.logits[:, -1], expected, rtol=1e-4, atol=1e-5)
    asked = {name: request.shape for name, request in found.given.kwargs["past"].items()}
    assert asked == {name: tuple(each.shape) for name, each in given.items()}


def test_a_pass_leaves_the_cache_that_it_was_given_as_it_was() -> None:
    found = staged(LLAMA, "decode", 5)
    assert found.source.rebuild is not None
    decoding = found.source.rebuild().eval()
    past = {
        name: torch.zeros(request.shape) for name, request in found.given.kwargs["past"].items()
    }
    ids = torch.zeros((2, 1), dtype=torch.int64)
    with torch.no_grad():
        lengths = [decoding(ids, past=past).past_key_values.get_seq_length() for _ in range(3)]
    assert lengths == [6, 6, 6]
    assert {each.shape[-2] for each in past.values()} == {5}


def test_the_cache_may_have_its_name_of_transformers_5_24(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import LlamaForCausalLM
    from transformers.utils.generic import ModelOutput

    @dataclass
    class Output(ModelOutput):
        logits: torch.Tensor | None = None
        cache: Any = None

    own: Any = LlamaForCausalLM.forward
    expected = captured(staged(LLAMA, "decode", 5))

    def forward(
        self: Any, input_ids: Any, cache: Any = None, use_cache: Any = None, logits_to_keep: int = 0
    ) -> Output:
        options = {"use_cache": use_cache, "logits_to_keep": logits_to_keep}
        result = own(self, input_ids=input_ids, past_key_values=cache, **options)
        return Output(logits=result.logits, cache=result.past_key_values)

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    found = captured(staged(LLAMA, "decode", 5))
    assert [each.op for each in found.records] == [each.op for each in expected.records]


def test_the_cache_has_the_heads_that_are_kept_and_no_more_than_the_window() -> None:
    # 2 of 4 heads of 8 numbers are kept; a window of 8 tokens keeps 7 and sees the new one.
    plain = [(each.name, each.shape) for each in staged(LLAMA, "decode", 20).specs]
    assert plain == [
        ("input_ids", (2, 1)),
        ("past_keys", (2, 2, 2, 20, 8)),
        ("past_values", (2, 2, 2, 20, 8)),
    ]
    window = [each.shape for each in staged(WINDOW, "decode", 20).specs]
    assert window == [(2, 1), (2, 2, 2, 7, 8), (2, 2, 2, 7, 8)]
    both = sorted(each.shape for each in staged(BOTH, "decode", 20).specs[1:])
    assert both == [(1, 2, 2, 7, 8)] * 2 + [(1, 2, 2, 20, 8)] * 2


@pytest.mark.parametrize("kind", sorted(ALL))
@pytest.mark.parametrize("stage", ["prefill", "decode"])
def test_all_kinds_are_captured_without_memory_and_known(kind: str, stage: str) -> None:
    found = captured(staged(ALL[kind], stage, 12))
    assert not any("real tensors" in each for each in found.notes)
    assert [each.op for each in found.records if each.state is State.UNKNOWN] == []


@pytest.mark.parametrize("stage", ["prefill", "decode"])
@pytest.mark.parametrize("kind", ["gemma2", "llama", "mixtral"])
def test_passes_without_memory_are_those_on_real_tensors(kind: str, stage: str) -> None:
    """The same operators, each with the same work, and the same memory over time."""
    found = staged(ALL[kind], stage, 12)
    assert found.source.rebuild is not None
    model = found.source.rebuild()
    paths = {id(module): path for path, module in model.named_modules()}
    fake, real = (
        run_single_pass(model, found.given, paths, Run(), tensors)
        for tensors in (FakeTensors(Run()), RealTensors(Run()))
    )
    assert [each.op for each in fake.records] == [each.op for each in real.records]
    assert [each.work for each in fake.records] == [each.work for each in real.records]
    assert trace_residency(fake.records) == trace_residency(real.records)
    assert fake.input_bytes == real.input_bytes


def test_the_cache_is_an_input_in_the_type_of_the_run() -> None:
    found = captured(staged(LLAMA, "decode", 6, dtype="bfloat16"), dtype="bfloat16")
    read = {
        each.storage: each
        for record in found.records
        for each in record.inputs
        if each.role is Role.INPUT and each.dtype.kind == "float"
    }
    # Keys and values of 2 layers: 2 sequences x 2 heads x 6 tokens x 8 numbers of 2 bytes.
    assert [each.byte for each in read.values()] == [2 * 2 * 6 * 8 * 2] * 4


def test_modules_have_the_paths_that_they_have_without_stages() -> None:
    paths = {each.path for each in captured(staged(LLAMA, "decode", 6)).modules}
    assert {"", "model.layers.1.self_attn.k_proj", "lm_head"} <= paths
    assert not any(each.startswith("<") for each in paths)


def test_the_users_own_module_is_left_alone() -> None:
    built = load_model("hf:llama", config=LLAMA[1])
    before = dict(vars(built.module))
    own = Source(name="mine", module=built.module)
    found = staged_source(own, stage="decode", context=4, batch=1, run=Run())
    assert vars(built.module) == before
    assert found.source.module is not built.module
    assert "forward" not in vars(built.module)


def test_only_the_last_position_gets_logits_where_that_can_be_said() -> None:
    found = staged(LLAMA, "prefill", 12)
    assert "logits of the last position only (logits_to_keep=1)" in found.notes
    heads = [each for each in captured(found).records if each.module_path == "lm_head"]
    assert [each.shape for record in heads for each in record.outputs][-1] == (2, 1, 50)


@pytest.mark.parametrize(
    ("model", "asked", "message"),
    [
        (LLAMA, ("training", 4, 1), "stage='training': expected prefill or decode"),
        (LLAMA, ("decode", 0, 1), "context=0: must be a whole number from 1"),
        (LLAMA, ("decode", True, 1), "context=True: must be a whole number from 1"),
        (LLAMA, ("decode", 4, 0), "batch=0: must be a whole number from 1"),
        (GPT2, ("decode", 1024, 1), "positions for 1024 tokens, the new one included"),
        (GPT2, ("prefill", 1025, 1), r"positions for 1024 tokens \(max_position_embeddings\)"),
    ],
)
def test_what_is_refused(model: tuple[str, str], asked: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        staged(model, *asked)
    assert "\n" not in str(raised.value)


def test_the_last_position_of_a_table_is_used_and_computed_ones_go_on() -> None:
    staged(GPT2, "decode", 1023, 1)
    staged(GPT2, "prefill", 1024, 1)
    (note,) = [each for each in staged(LLAMA, "decode", 4096, 1).notes if "exceeds" in each]
    assert "context 4096 exceeds the 2048 tokens of hf:llama (max_position_embeddings)" in note


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet18", "prefill and decode need a transformers language model"),
        ("hf:t5", "is an encoder-decoder"),
        ("hf:mamba", "has no argument past_key_values"),
        ("hf:vit", "has no argument input_ids or past_key_values"),
        ("hf:bert", "BertModel generates no tokens"),
        ("hf:BertLMHeadModel", "returns no KV cache, so it has no decode"),
    ],
)
def test_models_without_stages(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        staged_source(load_model(name), stage="decode", context=4, batch=1, run=Run())
    assert "\n" not in str(raised.value)


def test_positions_that_follow_the_longest_text_are_refused_with_what_to_do() -> None:
    rope = 'rope_parameters={"rope_type":"dynamic","factor":2.0,"rope_theta":10000.0}'
    found = load_model("hf:llama", config=f"{LLAMA[1]},{rope}")
    with pytest.raises(ModelError, match="'dynamic' RoPE depends on tensor values") as raised:
        staged_source(found, stage="decode", context=4, batch=1, run=Run())
    assert "\n" not in str(raised.value)
    default = rope.replace("dynamic", "default")
    found = load_model("hf:llama", config=f"{LLAMA[1]},{default}")
    assert staged_source(found, stage="decode", context=4, batch=1, run=Run()).specs
