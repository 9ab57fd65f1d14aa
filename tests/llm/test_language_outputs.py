"""Reports, files and pictures of a language model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy import asarray

import roofline
from roofline.core.blocks import Grid, KeyValueBlock, View
from roofline.core.units import format_bytes, format_s
from roofline.errors import FileFormatError
from roofline.llm.drawing import points_of
from roofline.llm.result import Language
from roofline.llm.stages import Rate, rate_text
from roofline.placement import Bound
from roofline.result import read_result
from tests.llm.languages import language


def grids(of: Language, title: str, *, top: int | None = None) -> list[Grid]:
    blocks = of.report(View(top=top)).blocks
    return [each for each in blocks if isinstance(each, Grid) and each.title.startswith(title)]


def facts(of: Language) -> dict[str, str]:
    (block,) = (each for each in of.report().blocks if isinstance(each, KeyValueBlock))
    return dict(block.lines)


def test_stages_have_a_row_of_transformers_and_one_of_the_architecture() -> None:
    (grid,) = grids(language(), "Stages")
    assert [row[:2] for row in grid.rows] == [
        ("prefill", "transformers"),
        ("", "architecture"),
        ("", "per sequence"),
        ("decode", "transformers"),
        ("", "architecture"),
        ("", "per sequence"),
    ]
    # 4 x 512 tokens, and 4, in 80 to 140 ms.
    assert grid.rows[0][-1] == "15,000 to 26,000"
    assert grid.rows[3][-1] == "29 to 50"
    assert grid.rows[5][-1] == "7.1 to 12"


def test_parts_add_up_to_their_stage() -> None:
    for name in ("Prefill: parts", "Decode: parts"):
        (grid,) = grids(language(), name)
        assert {row[0] for row in grid.rows} == {
            "attention projections",
            "attention",
            "feed-forward",
            "vocabulary",
        }
        shares = [float(row[-1].removesuffix(" %").removeprefix("< ")) for row in grid.rows]
        assert sum(shares) == pytest.approx(100, abs=0.3)
        assert shares == sorted(shares, reverse=True)


def test_the_cache_has_a_row_for_layers_that_keep_alike() -> None:
    (grid,) = grids(language(windows=True), "KV cache")
    # 4 heads of 64, keys and values, 4 B: 2048 B a token.
    assert grid.rows[0][:2] == ("6", "256")
    assert grid.rows[0][-2] == format_bytes(6 * 256 * 2048)
    assert grid.rows[1][:2] == ("2", "all")
    assert grid.rows[1][-2] == format_bytes(2 * 512 * 2048)
    assert grid.sums[0][-1] == format_bytes(4 * (6 * 256 + 2 * 512) * 2048)
    attention = facts(language(windows=True))["Attention"]
    assert "6 of 8 layers with a window of 256 tokens" in attention


def test_memory_comes_with_what_else_would_fit() -> None:
    said = facts(language())
    assert said["Fits"].startswith("yes: 1.00 GB (--memory) · without copies up to ")
    assert "peak of transformers 700 MB" in said["Memory"]
    assert facts(language(memory=680_000_000))["Fits"].startswith("only without copies")
    alone = "no: 100 MB (--memory) · weights alone exceed it"
    assert facts(language(memory=10**8))["Fits"] == alone
    # Weights of 600 MB leave 20 MB. A token takes 8 x 2 x 4 x 64 numbers in the cache and 2 x 1024
    # on its way, of 4 B: 24,576 B, 12.6 MB for 512.
    few = facts(language(memory=620_000_000))["Fits"]
    room = "without copies up to 1 sequence of 512 tokens · or 203 tokens at batch 4"
    assert few == f"no: 620 MB (--memory) · {room}"
    assert facts(language(memory=None))["Fits"].startswith("unknown")
    assert "do not fit into 100 MB" in language(memory=10**8).summary


def test_tables_are_those_of_one_rank_and_of_a_common_prefix() -> None:
    asked: dict[str, Any] = {"hardware": "h100", "batch": 4, "prefix": "50%"}
    few = roofline.analyze_language("llama-3.1-8b", tensor_parallel="1,2", **asked)
    # The link is that of the second run: 64 all-reduces, each of 4 tokens of 4096 numbers of 2 B.
    said = facts(few)["Tensor parallel"]
    assert said.startswith("64 all-reduces per pass over nvlink, GPU to GPU")
    assert "2 ranks: " in said and "decode 2.10 MB in 4.66 µs" in said
    eight = roofline.analyze_language("llama-3.1-8b", tensor_parallel=8, **asked)
    assert facts(eight)["Memory"].startswith("2.18 GB per rank = ")
    blocks = eight.report(View(verbose=True)).blocks
    titles = [each.title for each in blocks if isinstance(each, Grid)]
    assert sum(each.endswith(" on one of 8 ranks") for each in titles) == 3
    (cache,) = (each for each in blocks if isinstance(each, Grid) and each.title[:2] == "KV")
    # Half of 4096 tokens once, half four times, in 32 layers of one KV head: 512 B each.
    assert cache.sums[0][-1] == format_bytes(2048 * (1 + 4) * 32 * 512)


def test_the_headline_of_transformers() -> None:
    said = language().summary
    assert "(eager transformers, batch 4, 512 tokens): decode at most" in said
    # Four tokens in 80 to 140 ms.
    assert "(29 to 50 predicted), TPOT at least" in said and "(80–140) ms)" in said


def test_experts_have_a_row_for_each_routing() -> None:
    (grid,) = grids(language(sparse=True), "Distinct experts")
    assert [row[1] for row in grid.rows[3:]] == ["identical", "uniform", "disjoint"]
    # 16 x (1 - (14/16)^4) = 6.62 of 16 experts, for four tokens.
    assert grid.rows[4][2].startswith("6.6 ± ")
    assert "16 experts, 2 per token · inner width 512" in facts(language(sparse=True))["Experts"]
    assert not grids(language(), "Distinct experts")
    # Fewer experts are read where tokens agree: times of uniform routing are no limit.
    sparse = language(engine="paged", sparse=True)
    assert "tokens, uniform routing)" in sparse.summary
    assert grids(sparse, "Paged engine, minimum times, uniform routing: ")
    assert "routing" not in language(engine="paged").summary


def test_runs_have_a_row_each_with_what_varies() -> None:
    of = language()
    (grid,) = grids(of, "Paged engine")
    headings = [each.heading for each in grid.columns]
    assert headings[:3] == ["weights", "context", "batch"]
    assert "KV fp32" in grid.title and "ranks 1" in grid.title
    assert len(grid.rows) == len(of.cells) == 8
    for row, cell in zip(grid.rows, of.cells, strict=True):
        said = dict(zip(headings, row, strict=True))
        decode, prefill = cell.stage("decode"), cell.stage("prefill")
        assert decode is not None and prefill is not None
        assert said["tokens/s"] == rate_text(decode.tokens_per_s)
        assert said["tokens/s each"] == rate_text((decode.tokens_per_s or 0) / cell.run.batch)
        assert said["TPOT"] == format_s(decode.model_min_time_s)
        assert said["TTFT"] == format_s(prefill.model_min_time_s)
        assert said["fits"] == ("no" if cell.fit == "does not fit" else "yes")
        # Of a row of batches the first alone has what they share.
        assert bool(said["max batch"]) == (cell.run.batch == 4)
    assert {row[-3] for row in grid.rows} == {"yes", "no"}


def test_what_ifs_stand_next_to_the_headline() -> None:
    (grid,) = grids(language(), "What-ifs")
    assert [row[0].partition(":")[0] for row in grid.rows] == [
        "as above",
        "speculative decoding",
        "pipeline parallel over 2",
    ]
    assert grid.rows[0][3] == "1.00×"


def test_the_headline_of_a_paged_engine() -> None:
    of = language(engine="paged")
    said = of.summary
    assert "(paged engine, fp32 weights, fp32 KV cache, batch 4, 512 tokens)" in said
    assert said.index("decode at most") < said.index("TPOT at least") < said.index("TTFT at least")
    # Of 10^9 B, 600 MB of weights, 33.6 MB of KV cache and 528 kB of activations.
    assert "fits: yes, 0.341 GiB left, up to 46 sequences" in said
    assert not grids(of, "Stages")
    # 634 MB leave 20 of 654 MB.
    tight = language(engine="paged", memory=654_000_000).summary
    assert "fits: yes, 0.0185 GiB left (vLLM keeps 10.0 % free by default), up to" in tight
    assert "unknown, --memory" in language(engine="paged", memory=None).summary
    # Of 600 MB, 500 MB are too many.
    few = language(engine="paged", memory=10**8).summary
    assert "weights alone 0.466 GiB too large" in few
    assert facts(of)["Prediction"].startswith("none for paged engines (not learned)")


def test_operators_are_shown_where_they_are_asked_for() -> None:
    assert not grids(language(), "Decode: operators")
    shown = [*grids(language(), "Prefill:", top=3), *grids(language(), "Decode:", top=3)]
    assert len([each for each in shown if each.columns[1].heading == "Op"]) == 2


def test_points_are_parts_below_their_roof() -> None:
    of = language()
    points = [point for stage in of.stages for point in points_of(stage)]
    assert {point.type for point in points} == {"prefill", "decode"}
    assert len(points) == 8
    (axes,) = of.plot(heat_map=False).axes
    heights = [asarray(line.get_ydata()) for line in axes.lines]
    top = max(each[0] for each in heights if len(set(each)) == 1)
    for point in points:
        assert point.flop_per_s <= top * 1.0001
        assert axes.get_xlim()[0] < point.flop_per_byte < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < point.flop_per_s < axes.get_ylim()[1]


def legend(figure: Figure) -> list[str]:
    return [each.get_text() for each in figure.legends[0].get_texts()]


def test_a_heat_map_has_a_cell_for_each_run() -> None:
    of = language()
    assert of.has_map
    (axes,) = of.plot().axes
    said = [text.get_text() for text in axes.texts]
    rates = [each.stage("decode") for each in of.cells]
    assert [each.rstrip("*") for each in said] == [
        rate_text(each.tokens_per_s) for each in rates if each
    ]
    assert [each.endswith("*") for each in said] == [
        each.bound is Bound.COMPUTE for each in rates if each
    ]
    hatched = [each for each in axes.patches if isinstance(each, Rectangle)]
    assert len(hatched) == sum(each.fit == "does not fit" for each in of.cells) > 0
    assert [each.get_text() for each in axes.get_xticklabels()] == ["4", "64"]
    assert axes.get_yticklabels()[0].get_text() == "fp32, 512 tokens"
    assert legend(of.plot()) == ["does not fit into memory"]
    assert not language(swept=False).has_map
    assert legend(language(swept=False).plot()) == legend(of.plot(heat_map=False))


def test_a_heat_map_stays_legible() -> None:
    contexts = list(range(1, 101))
    of = roofline.analyze_language(
        "gpt2", hardware="h100", batch="1,2", context=contexts, stage="decode"
    )
    figure = of.plot()
    assert len(figure.axes[0].get_yticklabels()) == 64
    assert "first 64 of 100 rows" in figure.legends[0].get_title().get_text()


@pytest.mark.parametrize("swept", [True, False])
def test_files_have_all_of_it(swept: bool, tmp_path: Path) -> None:
    of = language(swept=swept, sparse=swept)
    of.save(*(tmp_path / f"model.{suffix}" for suffix in ("json", "csv", "html")))
    assert read_result(tmp_path / "model.json") == of
    assert (tmp_path / "model.html").read_text().count("<svg") == (2 if swept else 1)
    lines = (tmp_path / "model.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 + (16 if swept else 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stages": []}, "stages: not all of batch 4, context 512"),
        ({"batch": 8}, "stages: not all of batch 8"),
        ({"cells": []}, "cells: the first is not that of the headline"),
        ({"model": 1}, "model: expected a string"),
    ],
)
def test_damaged_files_are_refused(change: dict[str, object], words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**language(swept=False).to_data(), **change}))
    with pytest.raises(FileFormatError, match=words):
        read_result(path)


@pytest.mark.parametrize(
    ("table", "key", "value", "words"),
    [
        ("architecture", "key_value_heads", 0, "architecture: 16 heads and 0 KV heads"),
    ],
)
def test_impossible_values_in_files_are_refused(
    table: str, key: str, value: object, words: str, tmp_path: Path
) -> None:
    path, data = tmp_path / "model.json", language().to_data()
    data[table][key] = value
    path.write_text(json.dumps(data))
    with pytest.raises(FileFormatError, match=words):
        read_result(path)


def test_stages_of_another_size_are_refused() -> None:
    decode = language(sparse=True).stages[1]
    for change in ({"context": 8}, {"routed": ()}):
        with pytest.raises(ValueError, match="decode: asked or routed"):
            replace(decode, **change)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(21_934.0, "21,900"), (436.4, "436"), (8.126, "8.13"), (0.01234, "0.0123"), (None, "–")],
)
def test_rates_have_three_digits_and_no_prefix(rate: float | None, text: str) -> None:
    assert rate_text(rate) == text


def test_predicted_rates_are_ranges() -> None:
    rate = Rate(tokens_per_s=9.0, low_per_s=8.12, high_per_s=10.4)
    assert rate.words == "8.1 to 10"
    assert Rate(tokens_per_s=9.0).words == "9"
