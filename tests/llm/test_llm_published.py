"""Published tokens/s against the limit: rows worked out on paper, and all committed ones."""

from __future__ import annotations

import pytest

from benchmarks import llm_published

ROW = {
    "device": "A100-SXM-80GB",
    "model": "Llama-2-7B",
    "weights": "bf16",
    "engine": "gpt-fast",
    "batch": "1",
    "ranks": "1",
    "what": "decode",
    "tokens_per_s": "104.9",
    "mean_bits_per_weight": "16",
    "input_tokens": "",
    "output_tokens": "",
    "excluded": "",
}


def test_no_committed_figure_is_above_its_limit() -> None:
    rows = llm_published.rows_of(llm_published.HERE / "llm_published.csv")
    found = list(map(llm_published.held, rows))
    known = [each for each in found if each.limit]
    assert len(known) >= 300
    assert [each.row for each in known if each.ratio > 1] == []
    assert all(each.reason for each in found if not each.limit)


def test_a_decode_step_reads_all_weights_once() -> None:
    # 32 layers of 4 x 4096^2 and 3 x 4096 x 11008 weights, and 32000 x 4096 of the head; a token in
    # the cache and a new one: 2 B each, at 2.039 TB/s; 40 MB of them stay in L2.
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    byte = 2 * weights + 2 * 32 * 2 * 32 * 128 * 2
    limit = llm_published.held(ROW).limit
    assert limit == pytest.approx(2.039e12 / byte, rel=0.01)


def test_groups_of_ranks_and_exclusions() -> None:
    alone = llm_published.held(ROW).limit
    assert alone is not None
    assert llm_published.held({**ROW, "ranks": "2"}).limit == pytest.approx(2 * alone, rel=0.01)
    # 32 heads are no seven shares: seven groups of one rank, one of them at work.
    assert llm_published.held({**ROW, "ranks": "7"}).limit == pytest.approx(alone)
    for change, reason in (
        ({"excluded": "speculation"}, "speculation"),
        ({"device": "TPU"}, "no bundled machine file"),
        ({"model": "Llama-1-33B"}, "no bundled configuration"),
        ({"model": "Llama-3.1-405B", "batch": "many"}, "does not fit"),
    ):
        found = llm_published.held({**ROW, **change})
        assert found.limit is None and found.reason.startswith(reason)
