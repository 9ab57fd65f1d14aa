"""What is said of a language model, as a report, a picture and files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roofline.errors import InputError
from roofline.foundation.blocks import Facts, Grid, Notes
from roofline.foundation.units import format_byte
from roofline.language.result import Language
from roofline.language.stages import Rate
from roofline.language.verdict import rate_number, rate_words
from roofline.placement import Bound
from roofline.presentation.charts.language_chart import language_chart_of
from roofline.presentation.charts.language_sweep_chart import (
    can_be_swept,
    language_sweep_chart_of,
)
from roofline.presentation.language_output import render_language, write_language
from roofline.presentation.reports.language_report import language_report
from roofline.render.markdown import report_markdown
from tests.presentation.languages import language


def grids(of: Language, title: str, *, top: int | None = None) -> list[Grid]:
    blocks = language_report(of, top=top).blocks
    return [each for each in blocks if isinstance(each, Grid) and each.title.startswith(title)]


def facts(of: Language) -> dict[str, str]:
    (block,) = (each for each in language_report(of).blocks if isinstance(each, Facts))
    return dict(block.lines)


def test_stages_have_a_row_as_run_and_one_as_asked_for() -> None:
    of = language()
    (grid,) = grids(of, "Stages")
    assert [row[:2] for row in grid.rows] == [
        ("prefill", "transformers"),
        ("", "architecture"),
        ("", "of each sequence"),
        ("decode", "transformers"),
        ("", "architecture"),
        ("", "of each sequence"),
    ]
    # 4 x 512 tokens, and 4, in 80 to 140 ms.
    assert grid.rows[0][-1] == "15,000 to 26,000"
    assert grid.rows[3][-1] == "29 to 50"
    assert grid.rows[5][-1] == "7.1 to 12"


def test_parts_add_up_to_their_stage() -> None:
    for name in ("Prefill, as", "Decode, as"):
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


def test_the_cache_is_told_by_kinds_of_layers() -> None:
    (grid,) = grids(language(windows=True), "Key-value cache")
    # 4 heads of 64, keys and values, 4 B: 2048 B a token.
    assert grid.rows[0][:2] == ("6", "256 tokens")
    assert grid.rows[0][-2] == format_byte(6 * 256 * 2048)
    assert grid.rows[1][:2] == ("2", "all tokens")
    assert grid.rows[1][-2] == format_byte(2 * 512 * 2048)
    assert grid.sums[0][-1] == format_byte(4 * (6 * 256 + 2 * 512) * 2048)
    assert "6 of 8 layers see 256 tokens at most" in facts(language(windows=True))["Attention"]


def test_memory_is_told_with_what_else_would_fit() -> None:
    said = facts(language())
    assert said["Fits"].startswith("yes: 1.00 GB (--memory) · room for ")
    assert "700 MB at the peak of transformers' passes" in said["Memory"]
    assert facts(language(memory=680_000_000))["Fits"].startswith("only without the copies")
    alone = "no: 100 MB (--memory) · the weights alone take more"
    assert facts(language(memory=10**8))["Fits"] == alone
    # Weights of 600 MB leave 20 MB. A token takes 8 x 2 x 4 x 64 numbers in the cache and 2 x 1024
    # on its way, of 4 B: 24,576 B, 12.6 MB for 512.
    few = facts(language(memory=620_000_000))["Fits"]
    room = "room for 1 sequence of 512 tokens · or for 203 tokens at batch 4"
    assert few == f"no: 620 MB (--memory) · {room}"
    assert facts(language(memory=None))["Fits"].startswith("not known")
    assert "do not fit into 100 MB" in language(memory=10**8).summary


def test_experts_are_told_for_each_routing() -> None:
    (grid,) = grids(language(sparse=True), "Experts")
    assert [row[1] for row in grid.rows[3:]] == [
        "all tokens alike",
        "even",
        "as far apart as can be",
    ]
    # 16 x (1 - (14/16)^4) = 6.62 of 16 experts, for four tokens.
    assert grid.rows[4][2].startswith("6.6 ± ")
    assert "16 experts of inner width 512" in facts(language(sparse=True))["Experts"]
    assert not grids(language(), "Experts")


def test_unpacking_is_flagged_as_not_measured() -> None:
    (grid,) = grids(language(), "Weights in fewer bits")
    assert [row[-1] for row in grid.rows] == ["not measured", "not measured"]
    (notes,) = (
        each
        for each in language_report(language()).blocks
        if isinstance(each, Notes) and each.title == "Notes"
    )
    assert any(each.startswith("unpacking codes into floats") for each in notes.lines)
    assert "a note of the model" in notes.lines


def test_a_sweep_marks_what_binds_and_what_does_not_fit() -> None:
    of = language()
    assert of.sweep is not None
    (grid,) = grids(of, "Decode: tokens/s")
    for row, context in zip(grid.rows, of.sweep.contexts, strict=True):
        for said, batch in zip(row[1:], of.sweep.batches, strict=True):
            cell = of.sweep.cell("decode", batch, context)
            assert said.endswith("*") == (cell.bound is Bound.COMPUTE)
            assert ("!" in said) == (cell.fit == "does not fit")
    (crossovers,) = grids(of, "Where memory")
    assert len(crossovers.rows) == 4


def test_operators_are_shown_where_they_are_asked_for() -> None:
    assert not grids(language(), "Decode: operators")
    shown = [*grids(language(), "Prefill:", top=3), *grids(language(), "Decode:", top=3)]
    assert len([each for each in shown if "operator" in each.columns[0].heading]) == 2


def test_points_are_parts_below_their_roof() -> None:
    of = language()
    chart = language_chart_of(of)
    assert {mark.point.type for mark in chart.marks} == {"prefill", "decode"}
    assert len(chart.marks) == 8
    top = max(each.flop_per_s for each in chart.ceilings)
    for mark in chart.marks:
        assert mark.point.flop_per_s <= top * 1.0001
        assert chart.x.low < mark.point.flop_per_byte < chart.x.high
        assert chart.y.low < mark.point.flop_per_s < chart.y.high
    assert {each.label.text for each in chart.legend} >= {"prefill", "decode"}


def test_a_swept_picture_has_a_line_for_each_stage_and_context() -> None:
    of = language()
    chart = language_sweep_chart_of(of)
    assert len(chart.lines) == 4
    assert len(chart.marks) == 12
    assert of.sweep is not None
    assert sum(mark.is_compute for mark in chart.marks) == sum(
        cell.bound is Bound.COMPUTE for cell in of.sweep.cells
    )
    for _, label in chart.crossings:
        assert chart.x.start_pt <= label.box.left
        assert label.box.right <= chart.x.end_pt
    assert not can_be_swept(language(swept=False))


def test_over_contexts_alone_lines_are_batches() -> None:
    of = language()
    assert of.sweep is not None
    cells = tuple(each for each in of.sweep.cells if each.batch == 8)
    narrow = replace(of, sweep=replace(of.sweep, batches=(8,), cells=cells))
    chart = language_sweep_chart_of(narrow)
    assert [each.name for each in chart.lines] == ["prefill, batch 8", "decode, batch 8"]
    assert chart.crossings == ()


@pytest.mark.parametrize("format", ["json", "csv", "md", "html", "svg", "png"])
@pytest.mark.parametrize("swept", [True, False])
def test_every_format_can_be_written(format: str, swept: bool, tmp_path: Path) -> None:
    of = language(swept=swept, sparse=swept)
    path = tmp_path / f"model.{format}"
    write_language(of, [path])
    content = path.read_bytes()
    rendered = render_language(of, format)
    assert content == (rendered if isinstance(rendered, bytes) else rendered.encode())
    if format == "html":
        assert content.count(b"<svg") == (2 if swept else 1)
    if format == "json":
        assert json.loads(content)["kind"] == "language model"
    if format == "csv":
        assert len(content.splitlines()) == 1 + 2 + (12 if swept else 0)
    if format == "md":
        assert content.decode() == report_markdown(language_report(of))
    with pytest.raises(InputError):
        write_language(of, [path])


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a language model is written as"):
        language().save(tmp_path / "model.txt")


def test_notebooks_show_the_report() -> None:
    assert "<table>" in language()._repr_html_()
    assert repr(language()).startswith("<Language: hf:llama on ")


@pytest.mark.parametrize(
    ("rate", "text"),
    [(21_934.0, "21,900"), (436.4, "436"), (8.126, "8.13"), (0.01234, "0.0123"), (None, "–")],
)
def test_rates_have_three_digits_and_no_prefix(rate: float | None, text: str) -> None:
    assert rate_number(rate) == text


def test_predicted_rates_are_ranges() -> None:
    rate = Rate(tokens_per_s=9.0, low_per_s=8.12, high_per_s=10.4)
    assert rate_words(rate) == "8.1 to 10 tokens/s"
    assert rate_words(Rate(tokens_per_s=9.0)) == "9 tokens/s"
