"""Parts under a roof whose bounds can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import DType, dtype
from roofline.llm.architecture import Architecture
from roofline.llm.bounds import ModelOnMachine, PlacedStage
from roofline.llm.formats import Types
from roofline.llm.memory import Memory
from roofline.llm.parts import Stage, StageSize
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Bound, Roof
from tests import builders
from tests.llm.language_examples import LLAMA_2_7B, LLAMA_3_8B, TINY, machine

FLOAT = dtype("float32")
HALF = dtype("bfloat16")


def placed(
    stage: Stage,
    batch: int,
    context: int,
    *,
    flop_per_s: float = 1e9,
    bytes_per_s: float = 1e8,
    cache_bytes: int | None = None,
    types: Types | None = None,
) -> PlacedStage:
    profile = machine(flop_per_s, bytes_per_s, cache_bytes=cache_bytes)
    return placed_on(profile, TINY, stage, batch, context, types or Types.all_of(FLOAT))


def placed_on(
    profile: HardwareProfile,
    configuration: dict[str, Any],
    stage: Stage,
    batch: int,
    context: int,
    types: Types,
) -> PlacedStage:
    model = ModelOnMachine(
        architecture=Architecture.of(configuration),
        roof=Roof(profile, 1),
        types=types,
        weight_bytes=0,
        memory=Memory(size_bytes=None, source="a test"),
    )
    return model.placed(StageSize(stage=stage, batch=batch, context=context))


def test_a_slow_memory_binds_by_its_bytes() -> None:
    # So fast an arithmetic that only bytes count.
    found = placed("decode", 1, 10, flop_per_s=1e15)
    parts = {each.name: each for each in found.parts}
    assert all(each.bound is Bound.MEMORY for each in found.parts)
    layer = 16 * 16 + 2 * 16 * 8 + 16 * 16
    assert parts["attention projections"].weight_bytes == 3 * 4 * layer
    # Read: 10 tokens of 16 elements; written: one.
    assert parts["attention"].cache_bytes == 3 * 4 * (10 + 1) * 16
    byte = 4 * (3 * (layer + 3 * 16 * 40) + 16 * 50) + 3 * 4 * 11 * 16
    assert found.traffic_bytes == byte
    assert found.model_min_time_s == pytest.approx(byte / 1e8)
    assert found.tokens_per_s == pytest.approx(1e8 / byte)


def test_a_slow_arithmetic_binds_by_its_flop() -> None:
    found = placed("prefill", 2, 10, bytes_per_s=1e15)
    assert all(each.bound is Bound.COMPUTE for each in found.parts)
    assert found.bound is Bound.COMPUTE
    assert found.compute_share == pytest.approx(1.0)
    least = 2 * (20 * 3 * (768 + 3 * 16 * 40) + 2 * 16 * 50) + 2 * (2 * 3 * 4 * 55 * 8)
    assert found.model_min_time_s == pytest.approx(least / 1e9)
    # Two sequences of ten tokens.
    assert found.tokens_per_s == pytest.approx(20 * 1e9 / least)


def test_one_part_may_compute_while_another_is_read() -> None:
    """Attention waits for bytes, products for arithmetic: the longer of the two sums, not both."""
    # Decode of 100 sequences behind 50 tokens each, of the TINY model: 3 layers, width 16, 4 heads
    # of 4 for queries and 2 for keys, 40 inside, a vocabulary of 50.
    found = placed("decode", 100, 50, flop_per_s=1e9, bytes_per_s=4e8)
    weights = 3 * (768 + 3 * 16 * 40) + 16 * 50
    flop = 2 * 100 * weights + 100 * 3 * 2 * 4 * 51 * 8
    byte = 4 * weights + 4 * 3 * 100 * 51 * 16
    assert (flop, byte) == (2_752_000, 1_014_656)
    assert found.model_min_time_s == pytest.approx(2.752e-3)
    assert (found.parts_s or 0) > 1.4 * (found.model_min_time_s or 0)
    assert found.tokens_per_s == pytest.approx(100 / 2.752e-3)


def test_llama_3_1_8b_decodes_1024_sequences_in_the_longer_of_arithmetic_and_bytes() -> None:
    """On 989 TFLOP/s and 3.35 TB/s, behind 512 tokens each: 15 GB of weights, 69 GB of cache."""
    profile = builders.profile(
        [builders.ceiling(989e12, of="bfloat16")],
        [builders.level("HBM", None, {"read": {1: 3.35e12}})],
    )
    layer = 4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336
    weights = 32 * layer + 4096 * 128256
    found = placed_on(profile, LLAMA_3_8B, "decode", 1024, 512, Types.all_of(HALF))
    compute_s = (2 * 1024 * weights + 32 * 1024 * 2 * 32 * 513 * 256) / 989e12
    memory_s = (2 * weights + 2 * 32 * 1024 * 513 * 2 * 1024) / 3.35e12
    assert (compute_s, memory_s) == pytest.approx((15.8e-3, 25.0e-3), rel=5e-3)
    assert found.model_min_time_s == pytest.approx(memory_s)
    assert found.bound is Bound.MEMORY
    # The parts one by one, which is no limit: 15.5 ms of products, then the cache.
    assert found.parts_s == pytest.approx(36.1e-3, rel=5e-3)


def test_what_fits_into_a_cache_comes_from_it() -> None:
    in_cache = placed("decode", 1, 10, flop_per_s=1e15, cache_bytes=2**20)
    beyond = placed("decode", 1, 10, flop_per_s=1e15)
    assert {each.level for each in in_cache.parts} == {"L1"}
    assert 5 * (in_cache.model_min_time_s or 0) < (beyond.model_min_time_s or 0)


def test_llama_2_7b_decodes_at_the_speed_of_memory() -> None:
    # 13.2 GB of weights that products read, at 1 TB/s: 13 ms a token, whatever is computed.
    profile = builders.profile(
        [builders.ceiling(1e15, of="bfloat16")],
        [
            builders.level("L2", 40 * 2**20, {"read": {1: 5e12}}),
            builders.level("HBM", None, {"read": {1: 1e12}}),
        ],
    )
    found = placed_on(profile, LLAMA_2_7B, "decode", 1, 1, Types.all_of(HALF))
    weights = 2 * (6_738_415_616 - 65 * 4096 - 32000 * 4096)
    assert found.model_min_time_s == pytest.approx(weights / 1e12, rel=0.01)
    assert found.bound is Bound.MEMORY


@given(
    batch=st.integers(1, 64),
    context=st.integers(1, 200),
    stage=st.sampled_from(["prefill", "decode"]),
    slower=st.floats(1.0, 20.0),
)
def test_a_slower_machine_is_no_faster(
    batch: int, context: int, stage: Stage, slower: float
) -> None:
    usual = placed(stage, batch, context).model_min_time_s or 0
    assert (placed(stage, batch, context, flop_per_s=1e9 / slower).model_min_time_s or 0) >= usual
    assert (placed(stage, batch, context, bytes_per_s=1e8 / slower).model_min_time_s or 0) >= usual
    larger = placed(stage, batch + 1, context).model_min_time_s or 0
    assert larger >= usual


def test_few_bits_are_read_and_floats_are_computed_in() -> None:
    codes = replace(Types.all_of(FLOAT), weights=DType("codes4", 4, "int"))
    before, after = placed("decode", 1, 1), placed("decode", 1, 1, types=codes)
    parts = {each.name: each for each in after.parts}
    for each in before.parts:
        share = 1 if each.name == "vocabulary" else 8
        assert parts[each.name].weight_bytes * share == each.weight_bytes
        assert parts[each.name].flop == each.flop
    assert (after.model_min_time_s or 0) < (before.model_min_time_s or 0)


def test_without_ceilings_nothing_is_claimed() -> None:
    found = placed_on(builders.profile([], []), TINY, "decode", 1, 1, Types.all_of(FLOAT))
    assert found.model_min_time_s is None
    assert found.tokens_per_s is None
    assert found.bound is Bound.UNKNOWN
