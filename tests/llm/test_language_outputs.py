"""Reports, files and pictures of a language model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from numpy import asarray

from roofline.core.blocks import Grid, KeyValueBlock, Notes, View
from roofline.core.units import format_bytes
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
    assert said["Fits"].startswith("yes: 1.00 GB (--memory) · up to ")
    assert "peak of transformers 700 MB" in said["Memory"]
    assert facts(language(memory=680_000_000))["Fits"].startswith("only without copies")
    alone = "no: 100 MB (--memory) · weights alone exceed it"
    assert facts(language(memory=10**8))["Fits"] == alone
    # Weights of 600 MB leave 20 MB. A token takes 8 x 2 x 4 x 64 numbers in the cache and 2 x 1024
    # on its way, of 4 B: 24,576 B, 12.6 MB for 512.
    few = facts(language(memory=620_000_000))["Fits"]
    room = "up to 1 sequence of 512 tokens · or 203 tokens at batch 4"
    assert few == f"no: 620 MB (--memory) · {room}"
    assert facts(language(memory=None))["Fits"].startswith("unknown")
    assert "do not fit into 100 MB" in language(memory=10**8).summary


def test_experts_have_a_row_for_each_routing() -> None:
    (grid,) = grids(language(sparse=True), "Distinct experts")
    assert [row[1] for row in grid.rows[3:]] == ["identical", "uniform", "disjoint"]
    # 16 x (1 - (14/16)^4) = 6.62 of 16 experts, for four tokens.
    assert grid.rows[4][2].startswith("6.6 ± ")
    assert "16 experts, 2 per token · inner width 512" in facts(language(sparse=True))["Experts"]
    assert not grids(language(), "Distinct experts")


def test_dequantization_is_flagged_as_not_measured() -> None:
    (grid,) = grids(language(), "Weight-only quantization")
    assert [row[-1] for row in grid.rows] == ["not measured", "not measured"]
    assert [row[2] for row in grid.rows] == ["3.00×", "3.00×"]
    (notes,) = (
        each
        for each in language().report(View(verbose=True)).blocks
        if isinstance(each, Notes) and each.title == "Notes"
    )
    assert any("do not include dequantization" in each for each in notes.lines)
    assert "a note of the model" in notes.lines


def test_a_sweep_marks_limiters_and_what_does_not_fit() -> None:
    of = language()
    assert of.sweep is not None
    (grid,) = grids(of, "Decode: max tokens/s")
    for row, context in zip(grid.rows, of.sweep.contexts, strict=True):
        for said, batch in zip(row[1:], of.sweep.batches, strict=True):
            cell = of.sweep.cell("decode", batch, context)
            assert said.endswith("*") == (cell.bound is Bound.COMPUTE)
            assert ("!" in said) == (cell.fit == "does not fit")
    (crossovers,) = grids(of, "Memory-to-compute-bound crossover")
    assert len(crossovers.rows) == 4


def test_operators_are_shown_where_they_are_asked_for() -> None:
    assert not grids(language(), "Decode: operators")
    shown = [*grids(language(), "Prefill:", top=3), *grids(language(), "Decode:", top=3)]
    assert len([each for each in shown if each.columns[1].heading == "Op"]) == 2


def test_points_are_parts_below_their_roof() -> None:
    of = language()
    points = [point for stage in of.stages for point in points_of(stage)]
    assert {point.type for point in points} == {"prefill", "decode"}
    assert len(points) == 8
    (axes,) = of.plot(sweep=False).axes
    heights = [asarray(line.get_ydata()) for line in axes.lines]
    top = max(each[0] for each in heights if len(set(each)) == 1)
    for point in points:
        assert point.flop_per_s <= top * 1.0001
        assert axes.get_xlim()[0] < point.flop_per_byte < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < point.flop_per_s < axes.get_ylim()[1]


def legend(figure: Figure) -> list[str]:
    return [each.get_text() for each in figure.legends[0].get_texts()]


def test_a_swept_picture_has_a_line_for_each_stage_and_context() -> None:
    of = language()
    assert of.sweep is not None and of.has_curves
    figure = of.plot()
    (axes,) = figure.axes
    marks = {line.get_label(): 0 for line in axes.lines if line.get_linestyle() == "None"}
    for line in axes.lines:
        if line.get_label() in marks:
            marks[line.get_label()] += len(asarray(line.get_xdata()))
    cells = of.sweep.cells
    assert marks == {
        "compute-bound": sum(cell.bound is Bound.COMPUTE for cell in cells),
        "memory-bound": sum(cell.bound is Bound.MEMORY for cell in cells),
        "limiter unknown": 0,
        "does not fit into memory": sum(cell.fit == "does not fit" for cell in cells),
    }
    assert {"compute-bound", "memory-bound"} <= set(legend(figure))
    said = [text.get_text() for text in axes.texts]
    assert [each for each in said if each.endswith("tokens")] == [
        "prefill, 128 tokens",
        "prefill, 4,096 tokens",
        "decode, 128 tokens",
        "decode, 4,096 tokens",
    ]
    within = [each for each in of.sweep.crossovers if each.batch and 1 < each.batch <= 64]
    assert sum("compute-bound from batch" in each for each in said) == len(within)
    assert not language(swept=False).has_curves
    assert legend(language(swept=False).plot()) == legend(of.plot(sweep=False))


def test_over_contexts_alone_lines_are_batches() -> None:
    of = language()
    assert of.sweep is not None
    cells = tuple(each for each in of.sweep.cells if each.batch == 8)
    narrow = replace(of, sweep=replace(of.sweep, batches=(8,), cells=cells))
    (axes,) = narrow.plot().axes
    assert [text.get_text() for text in axes.texts] == ["prefill, batch 8", "decode, batch 8"]
    assert axes.get_xlabel() == "context (tokens)"


@pytest.mark.parametrize("swept", [True, False])
def test_files_have_all_of_it(swept: bool, tmp_path: Path) -> None:
    of = language(swept=swept, sparse=swept)
    of.save(*(tmp_path / f"model.{suffix}" for suffix in ("json", "csv", "html")))
    assert read_result(tmp_path / "model.json") == of
    assert (tmp_path / "model.html").read_text().count("<svg") == (2 if swept else 1)
    lines = (tmp_path / "model.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 + (12 if swept else 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stages": []}, "stages: not all of batch 4, context 512"),
        ({"batch": 8}, "stages: not all of batch 8"),
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
        ("sweep", "cells", [], "sweep: cells or crossovers are not those"),
        ("sweep", "batches", [1, 8], "sweep: cells or crossovers are not those"),
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
