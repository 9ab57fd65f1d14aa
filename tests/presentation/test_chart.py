from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest

from roofline.plots.roof import diameter_pt
from roofline.plots.style import styles
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.chart import Chart, chart_of
from tests.presentation.examples import (
    Network,
    analysis_of,
    ceiling,
    dram_profile,
    examples,
    full_profile,
    measured,
    resnet,
    resnet_like,
    small,
    unknown_only,
    with_rows,
)

EXAMPLES = examples()


def test_the_ridge_of_100_gflop_per_s_and_10_gb_per_s_is_at_10_flop_per_byte():
    chart = chart_of(small())
    (ridge,) = chart.ridges
    assert ridge.flop_per_byte == pytest.approx(10)
    assert ridge.flop_per_s == pytest.approx(100e9)
    assert ridge.label.text == "10.0 FLOP/byte"


def test_lines_end_where_they_meet_and_where_the_axes_end():
    chart = chart_of(small())
    (roof,), (memory,) = chart.ceilings, chart.diagonals
    assert roof.ends(chart.x) == ((pytest.approx(10), 100e9), (chart.x.high, 100e9))
    start, end = memory.ends(chart.x, chart.y)
    assert end == (pytest.approx(10), pytest.approx(100e9))
    assert start[1] == pytest.approx(10e9 * start[0])
    assert start[0] == pytest.approx(max(chart.x.low, chart.y.low / 10e9))
    assert roof.label == "float32 core 100 GFLOP/s"
    assert memory.label == "DRAM 10.0 GB/s"


def test_points_stand_at_intensity_and_attainable_rate():
    marks = {mark.point.name: mark.point for mark in chart_of(small()).marks}
    # The linear layer: 650 FLOP over 1488 bytes; on the DRAM roof of 10 GB/s.
    assert marks["fc"].flop_per_byte == pytest.approx(650 / 1488)
    assert marks["fc"].flop_per_s == pytest.approx(650 / 1488 * 10e9)
    assert marks["fc"].share == pytest.approx(1488 / (1488 + 80))
    assert marks["act"].share == pytest.approx(80 / (1488 + 80))


def test_measured_points_stand_lower_by_the_factor_they_took_longer():
    bound = {mark.point.name: mark.point for mark in chart_of(small()).marks}
    slower = {mark.point.name: mark.point for mark in chart_of(measured(small(), 4.0)).marks}
    for name, point in bound.items():
        assert slower[name].flop_per_s == pytest.approx(point.flop_per_s / 4)
        assert slower[name].flop_per_byte == pytest.approx(point.flop_per_byte)


def test_calls_on_the_same_spot_are_one_point_that_counts_them():
    net = Network()
    for i in range(3):
        net.relu(net.tensor(1000, 1000), f"act{i}")
    (mark,) = chart_of(analysis_of(net, dram_profile())).marks
    assert mark.point.count == 3
    assert mark.point.name == "act0 ×3"
    assert mark.point.share == pytest.approx(1)


def test_every_operator_is_on_the_axes_in_the_strip_or_free():
    analysis = resnet()
    chart = chart_of(analysis)
    drawn = sum(mark.point.count for mark in chart.marks)
    aside = sum(mark.point.count for mark in chart.strip_marks)
    free = sum(row.state == "free" for row in analysis.operators)
    assert drawn + aside + free == len(analysis.operators)
    assert sum(m.point.share for m in chart.marks) + sum(
        m.point.share or 0 for m in chart.strip_marks
    ) == pytest.approx(1)


def test_operators_without_flop_stand_in_the_strip_the_unknown_first():
    chart = chart_of(resnet())
    assert [(mark.point.op, mark.point.why) for mark in chart.strip_marks] == [
        ("custom.shuffle", "FLOP unknown"),
        ("cat", "no FLOP"),
    ]
    assert [word.text for word in chart.strip_words] == ["FLOP unknown", "no FLOP, only bytes"]
    assert chart.strip is not None
    for mark in chart.strip_marks:
        assert chart.strip.holds(mark.label.box)
    assert chart_of(small()).strip is None


def test_a_strip_without_room_says_how_many_it_leaves_out():
    net = Network()
    x = net.tensor(100, 100)
    for i in range(60):
        net.call(f"aten.copy{i}", "data movement", "", (x,), net.tensor(100, 100), flop=0)
    chart = chart_of(analysis_of(net, full_profile()))
    shown = len(chart.strip_marks)
    assert 0 < shown < 60
    assert chart.strip_words[-1].text == f"and {60 - shown} more"
    assert chart.strip is not None
    assert all(chart.strip.holds(word.box) for word in chart.strip_words)


def test_an_unknown_operator_is_never_a_point_on_the_axes():
    chart = chart_of(unknown_only())
    assert not chart.marks
    assert [mark.point.why for mark in chart.strip_marks] == ["FLOP unknown"]


def test_ceilings_are_drawn_and_named_with_their_rates():
    chart = chart_of(resnet())
    # All of the type in use, with the library's; of every other type the highest of the hardware.
    assert len(chart.ceilings) == 8
    labels = [label.text for label in chart.ceiling_labels]
    assert "float32 avx512 fma 523 GFLOP/s" in labels
    assert "bfloat16 avx512-bf16 dot 1.05 TFLOP/s" in labels
    by_label = {each.label: each for each in chart.ceilings}
    assert by_label["float32 avx512 fma 523 GFLOP/s"].main
    assert [each.label for each in chart.ceilings if not each.main] == [
        "bfloat16 avx512-bf16 dot 1.05 TFLOP/s",
        "float64 avx512 fma 262 GFLOP/s",
    ]
    assert {each.label for each in chart.ceilings if each.kind == "library"} == {
        "float32 torch gemm 208 GFLOP/s",
        "float32 torch conv 454 GFLOP/s",
    }
    assert len(chart_of(resnet(), roofs="in use").ceilings) == 6


def test_ridges_use_the_main_data_type_and_cuts_the_highest_of_all():
    chart = chart_of(resnet())
    dram = chart.diagonals[-1]
    assert dram.level == "DRAM"
    assert dram.ridge_flop_per_byte == pytest.approx(523e9 / 41.3e9)
    assert dram.cut_flop_per_byte == pytest.approx(1046e9 / 41.3e9)
    assert [ridge.level for ridge in chart.ridges] == ["L1", "L2", "L3", "DRAM"]


def test_a_point_that_beats_its_bound_is_marked_and_warned_of():
    chart = chart_of(measured(small(), 0.5))
    assert all(mark.point.above for mark in chart.marks)
    assert len(chart.warnings) == 2
    assert "faster than its bound" in chart.warnings[0]
    assert not chart_of(measured(small(), 1.0)).warnings


def test_a_rate_above_the_ceiling_that_the_convention_explains_is_named_as_such():
    net = Network()
    x = net.tensor(512, 512)
    # Half of the counted FLOP need not be done, as in causal attention.
    net.call(
        "aten.attention", "attention", "attn", (x,), net.tensor(512, 512),
        flop=10**10, least_flop=5 * 10**9,
    )  # fmt: skip
    bound = analysis_of(net, full_profile())
    assert not chart_of(bound).warnings
    (mark,) = chart_of(bound).marks
    assert mark.point.flop_per_s == pytest.approx(523e9)
    chart = chart_of(measured(bound, 1.2))
    (warning,) = chart.warnings
    assert "without beating the bound" in warning
    assert not chart.marks[0].point.above


def test_operators_that_no_ceiling_gives_a_time_are_reported_not_dropped_in_silence():
    chart = chart_of(EXAMPLES["no ceilings"])
    assert not chart.marks
    assert "18 operators cannot be drawn" in chart.warnings[-1]


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("size", [(720, 468), (500, 360), (1200, 700)])
def test_words_keep_apart(name: str, size: tuple[int, int]):
    chart = chart_of(EXAMPLES[name], width_pt=size[0], height_pt=size[1])
    assert_words_keep_apart(chart)


def test_words_keep_apart_with_many_ceilings():
    profile = full_profile()
    more = [
        *(
            ceiling(60e9 + number * 0.2e9, of="float32", unit=f"unit{number}", kernel="dot")
            for number in range(15)
        ),
        *(ceiling(61e9, of=of, unit="sse", kernel="dot") for of in ("int32", "float16", "int8")),
    ]
    profile = replace(profile, compute=(*profile.compute, *more))
    chart = chart_of(analysis_of(resnet_like(), profile))
    assert len(chart.ceiling_labels) == 26
    assert_words_keep_apart(chart)


def assert_words_keep_apart(chart: Chart) -> None:
    labels = [mark.label for mark in chart.marks if mark.label]
    discs = []
    for mark in chart.marks:
        x, y, r = mark.point.flop_per_byte, mark.point.flop_per_s, mark.point.diameter_pt / 2
        at = (chart.x.pt(x), chart.y.pt(y))
        discs.append((at, r))
        assert chart.frame.left < at[0] < chart.frame.right
        assert chart.frame.bottom < at[1] < chart.frame.top
    for label in labels:
        assert chart.frame.holds(label.box)
        for (x, y), r in discs:
            dx = x - min(max(x, label.box.left), label.box.right)
            dy = y - min(max(y, label.box.bottom), label.box.top)
            assert math.hypot(dx, dy) >= r
    words = [*labels, *chart.ceiling_labels, *(ridge.label for ridge in chart.ridges)]
    words += [mark.label for mark in chart.strip_marks]
    words += [*chart.strip_words, *(entry.label for entry in chart.legend)]
    for a, b in combinations(words, 2):
        assert not a.box.grown(-0.01).overlaps(b.box.grown(-0.01)), (a.text, b.text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_ceilings_are_within_the_axes(name: str):
    chart = chart_of(EXAMPLES[name])
    for line in chart.ceilings:
        assert chart.y.low < line.flop_per_s < chart.y.high
        (x0, _), (x1, _) = line.ends(chart.x)
        assert chart.x.low <= x0 < x1 <= chart.x.high
    for line in chart.diagonals:
        (x0, y0), (x1, y1) = line.ends(chart.x, chart.y)
        assert x0 < x1
        assert y1 / x1 == pytest.approx(y0 / x0)


def test_labels_can_be_left_out():
    assert all(mark.label is None for mark in chart_of(resnet(), labels=0).marks)


def test_axes_map_decades_to_points_and_back():
    axis = LogAxis(title="x", low=0.1, high=1000, start_pt=100, end_pt=500)
    assert axis.pt_per_decade == pytest.approx(100)
    assert axis.pt(1) == pytest.approx(200)
    assert axis.value(300) == pytest.approx(10)
    assert [text for _, text in axis.ticks] == ["0.1", "1", "10", "100", "1 k"]


def test_the_area_of_a_mark_follows_its_share():
    assert diameter_pt(0.4) == pytest.approx(2 * diameter_pt(0.1))
    assert diameter_pt(0) == diameter_pt(0.0001)


def test_types_look_different_in_colour_or_marker_and_keep_their_look():
    names = ["convolution", "pointwise", *(f"type {i}" for i in range(40))]
    look = styles(names)
    assert len(set(look.values())) == len(names)
    assert styles(["pointwise"])["pointwise"] == look["pointwise"]


def test_a_zero_measured_time_is_not_drawn_and_does_not_fail():
    analysis = small()
    rows = [replace(row, measured_s=0.0) for row in analysis.operators]
    assert not chart_of(with_rows(analysis, rows)).marks


def test_a_long_name_is_cut_and_the_time_is_not() -> None:
    """A number cut short is another one."""
    analysis = replace(EXAMPLES["resnet"], model="timm:" + "a_very_long_name_" * 8)
    title = chart_of(analysis).title
    assert "…" in title
    assert title.endswith(" · bound 17.6 ms")
