"""Serving runs: every one anew, every crossover by trying all batches, what-ifs by hand."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofline
from roofline.core.dtypes import DType, dtype
from roofline.errors import InputError
from roofline.llm.architecture import Architecture
from roofline.llm.bounds import ModelOnMachine
from roofline.llm.formats import Types, WeightFormat, cache_type, stored_format
from roofline.llm.memory import Memory, cache_of
from roofline.llm.parts import StageSize, attended_pairs, parts_of
from roofline.llm.serving import (
    Axes,
    Machine,
    Model,
    accepted_tokens,
    cells_of,
    crossover_of,
    smallest_batch,
    what_if_pipelined,
    what_if_speculative,
)
from roofline.placement import Bound, Roof
from tests import builders
from tests.llm.language_examples import TINY, machine

FLOAT, HALF = dtype("float32"), dtype("bfloat16")
WINDOW = {**TINY, "sliding_window": 8}


def placed(
    memory: int | None = None, prefix: float = 0.0, **sizes: Any
) -> tuple[Model, ModelOnMachine, Machine]:
    model = Model(
        architecture=Architecture.of({**TINY, **sizes}), floats=FLOAT, prefix_share=prefix
    )
    of = Machine(roof=Roof(machine(), 1), memory=Memory(size_bytes=memory, source="a test"))
    return model, model.on(of, Types.all_of(FLOAT)), of


def axes(of: Machine, **given: Any) -> Axes:
    usual: dict[str, Any] = {
        "ranks": (1,),
        "weights": ("fp32",),
        "caches": (None,),
        "contexts": (8, 32),
        "batches": (1, 4),
        "stages": ("prefill", "decode"),
    }
    return Axes(machines=(of,), **{**usual, **given})


def test_every_cell_is_the_stage_at_its_place() -> None:
    model, on, of = placed()
    found = list(cells_of(model, axes(of)))
    runs = [(each.run.context, each.run.batch) for each in found]
    assert runs == [(8, 1), (8, 4), (32, 1), (32, 4)]
    for cell, stage in [(each, stage) for each in found for stage in each.stages]:
        batch, context = cell.run.batch, cell.run.context
        alone = on.placed(StageSize(stage=stage.stage, batch=batch, context=context))
        assert (stage.model_min_time_s, stage.flop) == (alone.model_min_time_s, alone.flop)
        assert (stage.bound, stage.weight_bytes) == (alone.bound, alone.weight_bytes)
        # Weights and 7 norms; 3 layers, 2 KV heads of 4, keys and values, 4 B; one token of each
        # sequence as 16 numbers and 50 logits.
        weights = 4 * (3 * 2688 + 1600 + 7 * 16)
        each = context * 3 * 2 * 2 * 4 * 4 + 4 * (16 + 50)
        assert cell.footprint_bytes == weights + batch * each
        assert cell.fit == "unknown"


def test_cells_say_what_does_not_fit() -> None:
    # 8 tokens of 192 B, and 264 B of logits: two sequences take 3,600 B.
    weights = 4 * (3 * 2688 + 1600 + 7 * 16)
    model, _, of = placed(weights + 3599)
    found = list(cells_of(model, axes(of, batches=(1, 2), contexts=(8,))))
    assert [each.fit for each in found] == ["minimum fits", "does not fit"]
    assert [each.max_sequences for each in found] == [1, 1]


@pytest.mark.parametrize("context", [1, 5, 20])
def test_crossovers_are_the_first_batch_that_computes(context: int) -> None:
    model, on, _ = placed()
    batches = [
        batch
        for batch in range(1, 200)
        if on.limits(model.size("decode", batch, context)).bound is Bound.COMPUTE
    ]
    found = crossover_of(model, on, context)
    assert found == (batches[0] if batches else None)
    if batches:
        assert batches == list(range(batches[0], 200))


def test_a_long_context_never_computes_in_decode() -> None:
    # Attention does 1 FLOP for each byte of a cache in float32 with 4 heads on 2: below the 10 of
    # this machine, at any batch.
    model, on, _ = placed()
    assert crossover_of(model, on, 4000) is None


@given(first=st.integers(1, 5000), most=st.integers(1, 5000))
def test_the_least_batch_is_found(first: int, most: int) -> None:
    found = smallest_batch(lambda batch: batch >= first, most)
    assert found == (first if first <= most else None)


def test_what_holds_of_small_batches_alone_is_no_crossover() -> None:
    """A small model in a cache computes; with more sequences it does not, until it does again."""
    assert smallest_batch(lambda batch: batch < 5 or batch >= 300) == 300
    assert smallest_batch(lambda batch: batch < 5) is None


@given(
    context=st.integers(2, 40),
    share=st.integers(0, 39),
    batch=st.integers(1, 4),
    windows=st.sampled_from(["all", "window", "chunk"]),
)
def test_a_shared_prefix_is_walked_over_once(
    context: int, share: int, batch: int, windows: str
) -> None:
    """Which tokens of which sequences are kept, read and met, as sets of (sequence, token)."""
    prefix = min(share, context - 1)
    kinds = {"chunk": "chunked_attention", "window": "sliding_attention", "all": "full_attention"}
    configuration = {
        **TINY,
        "layer_types": [kinds[windows]] * 3,
        "sliding_window": 8,
        "attention_chunk_size": 8,
    }
    of = Architecture.of(configuration)

    def meets(query: int, key: int) -> bool:
        is_near = {"all": True, "window": query - key < 8, "chunk": query // 8 == key // 8}
        return key <= query and is_near[windows]

    def tokens(keys: set[int]) -> int:
        return len(
            {(0 if key < prefix else sequence, key) for sequence in range(batch) for key in keys}
        )

    read = tokens({key for key in range(context) if meets(context, key)})
    size = StageSize(stage="decode", batch=batch, context=context, shared=prefix)
    (attention,) = (each for each in parts_of(of, size) if each.name == "attention")
    assert attention.cache_elements == read * 16
    new = StageSize(stage="prefill", batch=batch, context=context, shared=prefix)
    pairs = sum(meets(query, key) for query in range(prefix, context) for key in range(context))
    assert (
        attended_pairs(new, None if windows == "all" else 8, is_chunk=windows == "chunk") == pairs
    )
    assert new.new_tokens == batch * (context - prefix)
    if windows != "chunk":
        kept = {key for key in range(context) if windows == "all" or key >= context - 8}
        assert cache_of(of, dtype("int8")).byte(context, batch, prefix) == 3 * 16 * tokens(kept)


def test_a_shared_prefix_leaves_room_for_more_sequences() -> None:
    weights = 4 * (3 * 2688 + 1600 + 7 * 16)
    # 32 tokens of 192 B, half of them shared, and 264 B of logits.
    model, on, _ = placed(weights + 16 * 192 + 5 * (16 * 192 + 264), prefix=0.5)
    assert model.footprint(on, 5, 32).fit == "minimum fits"
    assert model.footprint(on, 6, 32).fit == "does not fit"
    assert model.footprint(on, 1, 32).max_sequences == 5


def test_drafts_that_are_accepted_as_drawn() -> None:
    draw, passes = random.Random(3), 20_000
    made = 0
    for _ in range(passes):
        accepted = itertools.takewhile(lambda _: draw.random() < 0.7, range(4))
        made += 1 + len(list(accepted))
    assert accepted_tokens(4, 0.7) == pytest.approx(made / passes, rel=0.01)
    assert accepted_tokens(3, 0.0) == 1.0


def test_a_pass_that_verifies_drafts() -> None:
    size = StageSize(stage="decode", batch=2, context=10, drafts=3)
    of = {each.name: each for each in parts_of(Architecture.of(TINY), size)}
    # Four tokens see 11, 12, 13 and 14; the cache is read once, and grows by four.
    assert of["attention"].min_flop == 2 * 2 * 4 * (11 + 12 + 13 + 14) * 8
    assert of["attention"].cache_elements == 2 * 10 * 16
    assert of["attention"].new_elements == 2 * 4 * 16
    assert of["vocabulary"].macs == 8 * 16 * 50
    model, on, machine_ = placed()
    (run, _, _), *_ = axes(machine_, contexts=(10,), batches=(2,)).groups(model)
    found = what_if_speculative(model, on, run, drafts=3, acceptance=0.5)
    minimum = on.limits(size).minimum
    assert minimum is not None and found.tpot_s == pytest.approx(minimum.time_s / 1.875)
    assert found.tokens_per_s == pytest.approx(2 / (found.tpot_s or 1))


def test_stages_of_a_pipeline_divide_layers_and_batch() -> None:
    model, on, machine_ = placed()
    (run, _, _), *_ = axes(machine_, contexts=(10,), batches=(6,)).groups(model)
    found = what_if_pipelined(model, on, run, 3)
    alone = on.limits(model.size("decode", 2, 10)).minimum
    assert alone is not None and found.tpot_s == alone.time_s
    assert found.tokens_per_s == pytest.approx(6 / alone.time_s)
    assert found.footprint_bytes < model.footprint(on, 6, 10).total_bytes / 2.9
    with pytest.raises(InputError, match="pipeline_parallel=4: the model has 3 layers"):
        what_if_pipelined(model, on, run, 4)


def test_layers_that_share_a_cache_neither_keep_nor_project() -> None:
    whole = Architecture.of(TINY)
    shared = Architecture.of({**TINY, "num_kv_shared_layers": 2})
    assert 3 * cache_of(shared, HALF).token_bytes == cache_of(whole, HALF).token_bytes
    size = StageSize(stage="decode", batch=1, context=10)

    def macs(of: Architecture, name: str) -> int:
        return sum(each.count * each.macs for each in parts_of(of, size) if each.name == name)

    # Two layers without 16 -> 8 twice; attention is as much.
    assert macs(whole, "attention projections") - macs(shared, "attention projections") == 2 * 256
    assert macs(whole, "attention") == macs(shared, "attention")


def roof(*types: str) -> Roof:
    ceilings = [builders.ceiling(1e12, of=name) for name in types]
    return Roof(builders.profile(ceilings, [builders.level("HBM", None, {"read": {1: 1e9}})]), 1)


@pytest.mark.parametrize(
    ("form", "ceilings", "compute", "bits"),
    [
        ("bf16", ("bfloat16",), "bfloat16", 16),
        ("fp8", ("bfloat16", "float8_e4m3fn"), "float8_e4m3fn", 8),
        # Kernels convert where there are no units.
        ("fp8", ("bfloat16",), "bfloat16", 8),
        ("int8", ("bfloat16", "int8"), "int8", 8),
        ("w4a16", ("bfloat16", "int8"), "bfloat16", 4),
        ("w4.5a8", ("bfloat16", "int8"), "int8", 4.5),
        ("nvfp4", ("bfloat16", "float8_e4m3fn"), "float8_e4m3fn", 4.5),
        ("nvfp4", ("float8_e4m3fn", "float4_e2m1fn_x2"), "float4_e2m1fn_x2", 4.5),
        ("nvfp4", ("bfloat16",), "bfloat16", 4.5),
    ],
)
def test_formats_on_machines(
    form: str, ceilings: tuple[str, ...], compute: str, bits: float
) -> None:
    types = WeightFormat.parse(form).types(HALF, None, roof(*ceilings))
    assert (types.compute.name, types.floats.name) == (compute, "bfloat16")
    assert types.weights.byte(1600) == 1600 * bits / 8
    assert types.cache == HALF


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        # A scale of 16 bits and a zero point of 4 for 128 weights: 20 / 128 = 0.15625 bits each.
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "w4.15625a16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "w8a16"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "int"},
                        "input_activations": {"num_bits": 8},
                    }
                },
            },
            "int8",
        ),
        (None, None),
    ],
)
def test_quantized_checkpoints_have_their_format(settings: object, name: str | None) -> None:
    found = stored_format({**TINY, "quantization_config": settings})
    assert found == name
    assert name is None or WeightFormat.parse(name).floats is None


def test_the_checkpoint_of_gpt_oss_by_hand() -> None:
    found = roofline.analyze_language("gpt-oss-20b", hardware="h100").cells[0]
    # 24 layers of 32 experts of 3 x 2880 x 2880 numbers of 4.25 bits.
    experts = 24 * 32 * 3 * 2880 * 2880 * 17 // 32
    # Projections of 64 + 2 x 8 + 64 heads of 64, two tables, routers, small ones: 2 B each.
    floats = 24 * 2880 * 144 * 64 + 2 * 201088 * 2880 + 24 * 2880 * 32 + 6_970_944
    cache = 24 * 2 * 8 * 64 * 2 * (4096 + 128) // 2
    assert found.footprint_bytes == experts + 2 * floats + cache + 2 * (2880 + 201088)
    # The files of the checkpoint have 13.76 GB.
    assert round((experts + 2 * floats) / 1e9, 1) == 13.8


@pytest.mark.parametrize("method", ["bitsandbytes", "compressed-tensors", "awq"])
def test_unknown_formats_of_checkpoints_are_refused(method: str) -> None:
    with pytest.raises(InputError, match=f"'{method}' not supported; add weights='w4a16'"):
        stored_format({"quantization_config": {"quant_method": method}})


def test_heads_and_embeddings_may_be_quantized_too() -> None:
    model = Model(architecture=Architecture.of(TINY), floats=HALF)
    form, on = WeightFormat.parse("w4a16"), roof("bfloat16")
    norms = 2 * 7 * 16
    table = 50 * 16
    few = model.weight_bytes(model.types(form, None, on))
    assert few == 3 * 2688 // 2 + 2 * 2 * table + norms
    every = replace(model, all_weights=True)
    assert every.weight_bytes(every.types(form, None, on)) == (3 * 2688 + 2 * table) // 2 + norms


def test_attention_computes_in_the_type_of_an_8_bit_cache() -> None:
    eight = roof("bfloat16", "float8_e4m3fn")
    types = WeightFormat.parse("bf16").types(HALF, cache_type("fp8"), eight)
    assert (types.attention.name, types.compute.name) == ("float8_e4m3fn", "bfloat16")
    few = WeightFormat.parse("bf16").types(HALF, cache_type("int8"), eight)
    assert isinstance(few.cache, DType) and few.attention == HALF
