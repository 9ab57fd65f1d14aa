"""The picture of a comparison: bars as long as their times, marks where their ratios are."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.analysis import Analysis
from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.measured_rounds import MeasuredRounds, RoundTime
from roofline.design.model_comparison.result import Comparison
from roofline.presentation.charts.comparison_chart import ComparisonChart, comparison_chart_of
from roofline.presentation.charts.comparison_rows import TimeScale
from roofline.presentation.charts.labels import Box
from roofline.presentation.comparison_output import render_comparison
from tests.presentation.examples import analysis_of, bare_profile, resnet_like, small
from tests.presentation.predictions import with_predictions


@functools.cache
def slow() -> Analysis:
    """10 s, from 9 to 12."""
    return with_predictions(small(), {"fc": 6.0, "act": 3.0})


@functools.cache
def fast() -> Analysis:
    """4 s, from 3.6 to 4.8."""
    return with_predictions(small(), {"fc": 2.0, "act": 1.0})


def pair(**options: object) -> Comparison:
    return Comparison.of([slow(), fast()], names=["a", "b"], **options)  # pyright: ignore[reportArgumentType]


def in_turn() -> MeasuredRounds:
    def time(time_s: float) -> RoundTime:
        return RoundTime(times_s=(time_s,))

    return MeasuredRounds(rounds=((time(11.0), time(5.0)), (time(11.0), time(6.0))))


def test_bars_are_as_long_as_their_times() -> None:
    (panel,) = comparison_chart_of(pair()).panels
    first, second = panel.rows
    by_kind = [{bar.kind: bar for bar in row.bars} for row in (first, second)]
    assert [list(each) for each in by_kind] == [["bound", "predicted"]] * 2
    left = panel.times.left
    long, short = (each["predicted"].box.right - left for each in by_kind)
    assert short / long == pytest.approx(0.4)
    # The end of the longest interval, 12 s, is the end of the scale.
    line = by_kind[0]["predicted"].interval
    assert line is not None
    assert line.x1 == pytest.approx(panel.times.right)
    assert (line.x0 - left) / (line.x1 - left) == pytest.approx(9 / 12)
    assert by_kind[1]["predicted"].label.text == "4.0 (3.6–4.8) s"
    assert panel.title is None


def test_ratios_stand_left_of_1_where_they_are_less() -> None:
    (panel,) = comparison_chart_of(pair(rounds=in_turn())).panels
    assert panel.one is not None
    assert not panel.rows[0].marks
    marks = {mark.kind: mark for mark in panel.rows[1].marks}
    assert set(marks) == {"flop", "bound", "predicted", "measured"}
    assert marks["flop"].x_pt == pytest.approx(panel.one.x0)
    assert marks["predicted"].x_pt < panel.one.x0
    line = marks["measured"].interval
    assert line is not None
    assert line.x0 < marks["measured"].x_pt < line.x1 < panel.one.x0
    # Each at the height of its bar, FLOP above them.
    for bar in panel.rows[1].bars:
        assert marks[bar.kind].y_pt == pytest.approx((bar.box.bottom + bar.box.top) / 2)
    assert marks["flop"].y_pt > max(bar.box.top for bar in panel.rows[1].bars)


def test_the_title_is_the_sentence_and_the_key_what_is_drawn() -> None:
    chart = comparison_chart_of(pair())
    assert " ".join(chart.title) == pair().sentences[0]
    assert [entry.kind for entry in chart.key] == ["bound", "predicted", "flop"]
    three = Comparison.of([slow(), fast(), small()], names=["a", "b", "c"])
    assert comparison_chart_of(three).title == ("a against b, c",)


def test_long_names_become_letters_that_are_explained() -> None:
    names = ["conv2d(64,64,3,padding=1)@56x56", "short"]
    comparison = Comparison.of([slow(), fast()], names=names)
    chart = comparison_chart_of(comparison)
    assert chart.legend == (f"A: {names[0]}", "B: short")
    assert [row.name.text for row in chart.panels[0].rows] == ["A", "B"]
    assert chart.title[0].startswith("B against A: ")
    text = render_comparison(comparison, "md")
    # A comment keeps a pull request from telling somebody of that name.
    assert names[0].replace("@", "@<!-- -->") in str(text)
    assert "B against A: as many FLOP" in str(text)
    # Files keep the names.
    assert f'"{names[0]}"' in str(render_comparison(comparison, "csv"))
    many = Comparison.of([slow()] * 28, names=[f"{names[0]} {number}" for number in range(28)])
    assert [row.name.text for row in comparison_chart_of(many).panels[0].rows][-2:] == ["A2", "B2"]


def elsewhere(analysis: Analysis) -> Analysis:
    return replace(analysis, hardware=replace(analysis.hardware, name="other"), prediction=None)


def test_each_machine_has_a_panel_and_a_scale_of_its_own() -> None:
    grid = ComparisonGrid.of(
        [pair(), Comparison.of([elsewhere(slow()), elsewhere(fast())], names=["a", "b"])]
    )
    chart = comparison_chart_of(grid)
    assert [panel.title.text if panel.title else "" for panel in chart.panels] == list(
        grid.machines
    )
    assert [[bar.kind for bar in panel.rows[0].bars] for panel in chart.panels] == [
        ["bound", "predicted"],
        ["bound"],
    ]
    upper, lower = (panel.rows[0].bars[0].box for panel in chart.panels)
    assert lower.right > upper.right
    # Ratios have one scale, so that they can be compared.
    assert len({panel.one.x0 for panel in chart.panels if panel.one}) == 1
    assert inside(chart)


def test_where_no_time_is_known_ratios_of_flop_are_drawn() -> None:
    bare = analysis_of(resnet_like((1,)), bare_profile())
    chart = comparison_chart_of(Comparison.of([bare, bare], names=["a", "b"]))
    (panel,) = chart.panels
    assert not panel.rows[0].bars
    assert render_comparison(Comparison.of([bare, bare]), "svg")


@given(st.integers(2, 12), st.text(min_size=1, max_size=60))
def test_nothing_leaves_the_paper(models: int, name: str) -> None:
    names = [f"{name}{number}" for number in range(models)]
    chart = comparison_chart_of(Comparison.of([slow()] * models, names=names))
    assert inside(chart)


def inside(chart: ComparisonChart) -> bool:
    """Whether every bar and word lies on the paper."""
    paper = Box(0, 0, chart.width_pt, chart.height_pt)
    boxes = [entry.label.box for entry in chart.key]
    for panel in chart.panels:
        boxes += [
            *(label.box for label in panel.captions),
            *(label.box for _, label in panel.ticks),
        ]
        for row in panel.rows:
            boxes += [row.name.box, *(bar.box for bar in row.bars)]
            boxes += [bar.label.box for bar in row.bars]
            boxes += [Box.around(mark.x_pt, mark.y_pt, 6, 6) for mark in row.marks]
    return all(paper.holds(box) for box in boxes)


@given(st.floats(1e-9, 1e5))
def test_ticks_are_few_and_round(longest_s: float) -> None:
    scale = TimeScale(longest_s=longest_s, start_pt=0.0, end_pt=100.0)
    values = [value for value, _ in scale.ticks]
    assert values[0] == 0
    assert 3 <= len(values) <= 7
    assert max(values) <= longest_s * (1 + 1e-9)
    assert f"{values[1]:.0e}"[0] in "125"


@pytest.mark.parametrize("format", ["json", "csv", "md", "html", "png", "svg"])
def test_every_format_survives_hostile_names(format: str) -> None:
    names = ["<script>alert(1)</script>", "b\n\x1b[31m$x$"]
    content = render_comparison(Comparison.of([slow(), fast()], names=names), format)
    assert len(content) > 100
    if format == "html":
        assert "<script>" not in str(content)
    if format in ("md", "html", "svg"):
        assert "\x1b" not in str(content)


def test_every_ratio_stands_between_two_ticks() -> None:
    (panel,) = comparison_chart_of(pair()).panels
    places = [line.x0 for line, _ in panel.ticks if line.x0 >= panel.ratios.left]
    marks = [mark.x_pt for row in panel.rows for mark in row.marks]
    assert marks
    assert min(places) <= min(marks)
    assert max(marks) <= max(places)
    # The ratio is 0.4, from 0.32 to 0.49, and 1 is on every axis.
    assert [label.text for line, label in panel.ticks if line.x0 >= panel.ratios.left] == [
        "0.2 ×",
        "0.5 ×",
        "1 ×",
        "2 ×",
    ]
