"""Sweeps over batch and context: every cell anew, every crossover by trying all batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.llm.architecture import Architecture
from roofline.llm.bounds import ModelOnMachine, Types
from roofline.llm.memory import Memory
from roofline.llm.parts import Stage, StageSize
from roofline.llm.sweep import crossover_of, smallest_batch, sweep_of
from roofline.placement import Bound, Roof
from tests.llm.language_examples import TINY, machine


def model(memory: int | None = None, **sizes: int) -> ModelOnMachine:
    return ModelOnMachine(
        architecture=Architecture.of({**TINY, **sizes}),
        roof=Roof(machine(), 1),
        types=Types.all_of(dtype("float32")),
        weight_bytes=40_000,
        memory=Memory(size_bytes=memory, source="a test"),
    )


def test_every_cell_is_the_stage_at_its_place() -> None:
    swept = model()
    found = sweep_of(swept, ("prefill", "decode"), (1, 4, 4), (8, 32))
    assert (found.batches, found.contexts) == ((1, 4), (8, 32))
    assert len(found.cells) == 8
    for cell in found.cells:
        alone = swept.placed(StageSize(stage=cell.stage, batch=cell.batch, context=cell.context))
        assert (cell.model_min_time_s, cell.flop) == (alone.model_min_time_s, alone.flop)
        assert found.cell(cell.stage, cell.batch, cell.context) == cell
        # 3 layers, 2 key-value heads of 4, keys and values, 4 B; each token as 16 numbers, twice,
        # or 16 numbers and 50 logits of a sequence.
        tokens = cell.context if cell.stage == "prefill" else 1
        each = cell.context * 3 * 2 * 2 * 4 * 4 + 4 * max(tokens * 2 * 16, 16 + 50)
        assert cell.footprint_bytes == 40_000 + cell.batch * each
        assert cell.fit == "unknown"


def test_cells_say_what_does_not_fit() -> None:
    # 8 tokens of 192 B, and 264 B of logits: two sequences take 3,600 B.
    found = sweep_of(model(memory=40_000 + 3599), ("decode",), (1, 2), (8,))
    assert [each.fit for each in found.cells] == ["minimum fits", "does not fit"]


@pytest.mark.parametrize("stage", ["prefill", "decode"])
@pytest.mark.parametrize("context", [1, 5, 20])
def test_crossovers_are_the_first_batch_that_computes(stage: Stage, context: int) -> None:
    swept = model()
    found = crossover_of(swept, stage, context)
    batches = [
        batch
        for batch in range(1, 200)
        if swept.placed(StageSize(stage=stage, batch=batch, context=context)).bound is Bound.COMPUTE
    ]
    assert found.batch == (batches[0] if batches else None)
    if batches:
        assert batches == list(range(batches[0], 200))


def test_a_long_context_never_computes_in_decode() -> None:
    # Attention does 1 FLOP for each byte of a cache in float32 with 4 heads on 2: below the 10 of
    # this machine, at any batch.
    found = crossover_of(model(), "decode", 4000)
    assert found.batch is None
    assert found.weights_batch is not None
    assert found.cache_flop_per_byte == pytest.approx(1.0)


def test_products_cross_where_flop_take_as_long_as_bytes() -> None:
    # 2 FLOP a weight and token at 1 GFLOP/s take as long as 4 B at 100 MB/s from 20 tokens on.
    found = crossover_of(model(), "decode", 1)
    assert found.weights_batch in (20, 21)


@given(first=st.integers(1, 5000), most=st.integers(1, 5000))
def test_the_least_batch_is_found(first: int, most: int) -> None:
    found = smallest_batch(lambda batch: batch >= first, most)
    assert found == (first if first <= most else None)


def test_what_holds_of_small_batches_alone_is_no_crossover() -> None:
    """A small model in a cache computes; with more sequences it does not, until it does again."""
    assert smallest_batch(lambda batch: batch < 5 or batch >= 300) == 300
    assert smallest_batch(lambda batch: batch < 5) is None
