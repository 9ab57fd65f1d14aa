"""Tensor parallelism against a real block on two processes: results, weights and bytes sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofline.core.dtypes import dtype
from roofline.errors import InputError
from roofline.llm.architecture import Architecture
from roofline.llm.bounds import ModelOnMachine
from roofline.llm.formats import Types
from roofline.llm.memory import Memory
from roofline.llm.parts import StageSize, product_weights
from roofline.llm.serving import ServedStage
from roofline.machine.links import run_in_ranks
from roofline.placement import Bound, Roof
from roofline.scaling.settings import RankLink, all_reduce, named_link
from tests.llm.language_examples import DEEPSEEK_V3, LLAMA_3_8B, TINY, machine

FLOAT = dtype("float32")
LINK = RankLink(name="a test", bytes_per_s=1e6, latency_s=0.0)
# One layer; no vocabulary in the block.
BLOCK = {**TINY, "num_hidden_layers": 1, "vocab_size": 2}
BATCH, TOKENS = 3, 5


def on_ranks(ranks: int, configuration: dict[str, Any], link: RankLink | None) -> ModelOnMachine:
    return ModelOnMachine(
        architecture=Architecture.of(configuration).shard(ranks),
        roof=Roof(machine(), 1),
        types=Types.all_of(FLOAT),
        weight_bytes=0,
        memory=Memory(size_bytes=None, source="a test"),
        ranks=ranks,
        link=link,
    )


def run_block(rank: int, ranks: int) -> tuple[float, int, int, int]:
    """A Llama layer as Megatron-LM shards it; each all-reduce is a ring that counts its bytes.

    Returns the largest error against the whole layer, and the bytes of weights, of reduced data and
    sent.
    """
    import torch
    from torch import distributed
    from torch.nn import functional

    torch.manual_seed(0)
    width, heads, shared, inner, size = 16, 4, 2, 40, 4
    x = torch.randn(BATCH, TOKENS, width)
    q, k, v = (torch.randn(each * size, width) / 4 for each in (heads, shared, shared))
    o, down = torch.randn(width, width) / 4, torch.randn(width, inner) / 6
    gate, up = torch.randn(inner, width) / 4, torch.randn(inner, width) / 4
    reduced = sent = 0

    def ring(part: torch.Tensor) -> torch.Tensor:
        nonlocal reduced, sent
        reduced += part.numel() * part.element_size()
        chunks = [each.contiguous() for each in part.flatten().chunk(ranks)]
        for step in range(2 * (ranks - 1)):
            out, into = (rank - step) % ranks, (rank - step - 1) % ranks
            received = torch.empty_like(chunks[into])
            waiting: Any = distributed.isend(chunks[out], (rank + 1) % ranks)
            distributed.recv(received, (rank - 1) % ranks)
            waiting.wait()
            sent += chunks[out].numel() * chunks[out].element_size()
            is_sum = step < ranks - 1
            chunks[into] = chunks[into] + received if is_sum else received
        return torch.cat(chunks).view_as(part)

    def layer(weights: list[torch.Tensor], reduce: Any) -> torch.Tensor:
        q, k, v, o, gate, up, down = weights

        def split(each: torch.Tensor) -> torch.Tensor:
            return functional.linear(x, each).view(BATCH, TOKENS, -1, size).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            split(q), split(k), split(v), is_causal=True, enable_gqa=True
        )
        attended = x + reduce(functional.linear(mixed.transpose(1, 2).flatten(2), o))
        inner = functional.silu(attended @ gate.T) * (attended @ up.T)
        return attended + reduce(functional.linear(inner, down))

    whole = [q, k, v, o, gate, up, down]
    by_row = [each.chunk(ranks)[rank] for each in (q, k, v)]
    shard = [
        *by_row,
        o.chunk(ranks, 1)[rank],
        *(each.chunk(ranks)[rank] for each in (gate, up)),
        down.chunk(ranks, 1)[rank],
    ]
    found = layer(shard, ring)
    error = float((found - layer(whole, lambda each: each)).abs().max())
    return error, sum(each.numel() * each.element_size() for each in shard), reduced, sent


def test_a_sharded_block_moves_the_counted_bytes() -> None:
    on = on_ranks(2, BLOCK, LINK)
    limits = on.limits(StageSize(stage="prefill", batch=BATCH, context=TOKENS))
    vocabulary = 16 * 1  # half of two words
    for error, weight_bytes, reduced_bytes, sent_bytes in run_in_ranks(run_block, ranks=2):
        assert error < 1e-5
        assert weight_bytes == 4 * (product_weights(on.architecture) - vocabulary)
        assert reduced_bytes == limits.link_bytes
        each = all_reduce(limits.link_bytes // 2, 2)
        assert sent_bytes == 2 * each.sent_bytes
        # The sent bytes at the bandwidth of the link.
        assert limits.link is not None
        assert limits.link.time_s == pytest.approx(sent_bytes / 1e6)


def test_shards_divide_what_every_rank_does() -> None:
    size = StageSize(stage="decode", batch=4, context=1000)
    whole, eight = on_ranks(1, LLAMA_3_8B, None), on_ranks(8, LLAMA_3_8B, LINK)
    alone, shared = whole.limits(size), eight.limits(size)
    assert shared.weight_bytes * 8 == alone.weight_bytes
    assert shared.cache_bytes * 8 == alone.cache_bytes
    assert shared.flop * 8 == alone.flop
    # Two all-reduces a layer, of 4 tokens of 4096 numbers.
    assert (alone.link_bytes, shared.link_bytes) == (0, 2 * 32 * 4 * 4096 * 4)
    # Sixteen ranks share 8 KV heads in pairs.
    sixteen = on_ranks(16, LLAMA_3_8B, LINK).limits(size)
    assert sixteen.cache_bytes == shared.cache_bytes
    # A latent vector is on every rank.
    latent = [on_ranks(each, DEEPSEEK_V3, LINK).limits(size).cache_bytes for each in (1, 8)]
    assert latent[0] == latent[1]


def test_a_slow_link_is_the_limiter_and_overlaps() -> None:
    size = StageSize(stage="decode", batch=64, context=10)
    slow = on_ranks(2, TINY, replace(LINK, bytes_per_s=1.0)).limits(size)
    assert slow.bound is Bound.LINK and slow.link is not None and slow.memory is not None
    assert slow.minimum is not None and slow.minimum.time_s == slow.link.time_s
    assert ServedStage.of(slow).serial_s == pytest.approx(
        slow.link.time_s + max(slow.memory.time_s, slow.compute.time_s if slow.compute else 0)
    )
    assert on_ranks(2, TINY, None).limits(size).bound is Bound.UNKNOWN


@pytest.mark.parametrize(
    ("ranks", "words"),
    [(3, "tensor_parallel=3: does not divide 32 heads"), (64, "does not divide 32 heads")],
)
def test_ranks_that_do_not_divide_heads_are_refused(ranks: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Architecture.of(LLAMA_3_8B).shard(ranks)


def test_links_have_names() -> None:
    link = named_link("NVLink4")
    assert link is not None
    assert (link.bytes_per_s, link.is_latency_known) == (450e9, False)
    assert named_link("25GB/s") is None
