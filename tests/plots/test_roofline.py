"""The roofline picture: what it shows, and that its words can be read."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations
from typing import Any

import matplotlib
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Annotation, Text

import roofline
from roofline.analysis import Analysis
from roofline.analysis.drawing import picture_warnings, title_of
from roofline.analysis.points import points_of, roof_lines, strip_of
from roofline.analysis.words import provenance_text
from roofline.core.units import format_bytes_per_s
from roofline.plots.figures import new_figure
from roofline.plots.roof import Diagonal, Point, RoofLines, diameter_pt
from roofline.plots.roofline import draw_roofline, spread
from roofline.plots.style import styles
from tests.analysis.examples import (
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


def drawn(analysis: Analysis, **options: Any) -> Any:
    figure = new_figure(10, 6.5)
    analysis.draw(figure, **options)
    figure.draw_without_rendering()
    return figure


def test_the_ridge_point_of_100_gflop_per_s_and_10_gb_per_s_is_at_10_flop_per_byte() -> None:
    lines = roof_lines(small(), "all")
    (memory,) = lines.diagonals
    assert memory.ridge_flop_per_byte == pytest.approx(10)
    assert lines.main_top_flop_per_s == pytest.approx(100e9)
    (roof,) = lines.ceilings
    assert roof.start_flop_per_byte == pytest.approx(10)
    assert roof.label == "float32 core 100 GFLOP/s"
    assert memory.label == "DRAM 10.0 GB/s"
    words = {each.get_text() for each in drawn(small()).axes[0].texts}
    assert {"10.0", roof.label, memory.label} <= words


def by_name(analysis: Analysis) -> dict[str, Point]:
    return {each.name: each for each in points_of(analysis)}


def test_points_stand_at_intensity_and_attainable_rate() -> None:
    points = by_name(small())
    # The linear layer: 650 FLOP over 1488 bytes; on the DRAM roof of 10 GB/s.
    assert points["fc"].flop_per_byte == pytest.approx(650 / 1488)
    assert points["fc"].flop_per_s == pytest.approx(650 / 1488 * 10e9)
    assert points["fc"].share == pytest.approx(1488 / (1488 + 80))
    assert points["act"].share == pytest.approx(80 / (1488 + 80))


def test_measured_points_stand_lower_by_the_factor_they_took_longer() -> None:
    slower = by_name(measured(small(), 4.0))
    for name, point in by_name(small()).items():
        assert slower[name].flop_per_s == pytest.approx(point.flop_per_s / 4)
        assert slower[name].flop_per_byte == pytest.approx(point.flop_per_byte)


def test_calls_on_the_same_spot_are_one_point_that_counts_them() -> None:
    net = Network()
    for i in range(3):
        net.relu(net.tensor(1000, 1000), f"act{i}")
    (point,) = points_of(analysis_of(net, dram_profile()))
    assert point.count == 3
    assert point.name == "act0 ×3"
    assert point.share == pytest.approx(1)


def test_every_operator_is_on_the_axes_in_the_strip_or_free() -> None:
    analysis = resnet()
    points, aside = points_of(analysis), strip_of(analysis)
    free = sum(row.state == "free" for row in analysis.operators)
    assert sum(each.count for each in (*points, *aside)) + free == len(analysis.operators)
    assert sum(each.share or 0 for each in (*points, *aside)) == pytest.approx(1)


def test_operators_without_flop_stand_in_the_strip_the_unknown_first() -> None:
    assert [(each.op, each.why) for each in strip_of(resnet())] == [
        ("custom.shuffle", "FLOP unknown"),
        ("cat", "no FLOP"),
    ]
    (strip,) = drawn(resnet()).axes[0].child_axes
    words = [each.get_text() for each in strip.texts]
    assert [each.partition(" · ")[0] for each in words] == [
        *("FLOP unknown", "custom.shuffle", "no FLOP (bytes only)", "cat")
    ]
    assert not drawn(small()).axes[0].child_axes


def test_a_strip_without_room_says_how_many_it_leaves_out() -> None:
    net = Network()
    x = net.tensor(100, 100)
    for i in range(60):
        net.call(f"aten.copy{i}", "data movement", "", (x,), net.tensor(100, 100), flop=0)
    (strip,) = drawn(analysis_of(net, full_profile())).axes[0].child_axes
    heading, *shown, more = (each.get_text() for each in strip.texts)
    assert heading == "no FLOP (bytes only)"
    assert more == f"and {60 - len(shown)} more"


def test_an_unknown_operator_is_never_a_point_on_the_axes() -> None:
    assert not points_of(unknown_only())
    assert [each.why for each in strip_of(unknown_only())] == ["FLOP unknown"]


def test_doubtful_figures_are_marked() -> None:
    found = small()
    profile = found.hardware
    (memory,) = profile.memory
    doubted = replace(
        profile,
        compute=tuple(replace(each, doubt="too low") for each in profile.compute),
        memory=(
            replace(
                memory, bandwidth=tuple(replace(each, doubt="low") for each in memory.bandwidth)
            ),
        ),
    )
    lines = roof_lines(replace(found, hardware=doubted), "all")
    labels = [each.label for each in (*lines.ceilings, *lines.diagonals)]
    assert "; ?: unreliable" in provenance_text(doubted)
    assert "unreliable" not in provenance_text(profile)
    assert labels == ["float32 core ? 100 GFLOP/s", "DRAM ? 10.0 GB/s"]


def test_ceilings_are_those_of_the_types_in_use_or_the_highest_of_all_others_too() -> None:
    every = roof_lines(resnet(), "all").ceilings
    # All of the type in use, with the library's; of every other type the highest of the hardware.
    assert len(every) == 8
    labels = [each.label for each in every]
    assert "float32 AVX-512 FMA 523 GFLOP/s" in labels
    assert [each.label for each in every if not each.main] == [
        "bfloat16 AVX-512-BF16 dot 1.05 TFLOP/s",
        "float64 AVX-512 FMA 262 GFLOP/s",
    ]
    assert {each.label for each in every if each.kind == "library"} == {
        "float32 torch gemm 208 GFLOP/s",
        "float32 torch conv 454 GFLOP/s",
    }
    assert len(roof_lines(resnet(), "in use").ceilings) == 6
    texts = [each.get_text() for each in drawn(resnet()).axes[0].texts]
    assert "bfloat16 AVX-512-BF16 dot 1.05 TFLOP/s" not in texts


def test_ridge_points_use_the_main_data_type_and_cuts_the_highest_of_all() -> None:
    lines = roof_lines(resnet(), "all")
    dram = lines.diagonals[-1]
    assert dram.level == "DRAM"
    assert dram.ridge_flop_per_byte == pytest.approx(523e9 / 41.3e9)
    assert dram.cut_flop_per_byte == pytest.approx(1046e9 / 41.3e9)
    assert [each.level for each in lines.diagonals] == ["L1", "L2", "L3", "DRAM"]


def test_levels_of_one_bandwidth_share_a_label_and_a_ridge_point() -> None:
    levels = [("L1", 4e12), ("L2 copy", 2e12), ("L3 read", 2e12), ("DRAM", 1e11)]
    diagonals = tuple(
        Diagonal(
            label=f"{name} {format_bytes_per_s(rate)}",
            level=name,
            bytes_per_s=rate,
            ridge_flop_per_byte=1e13 / rate,
            cut_flop_per_byte=1e13 / rate,
        )
        for name, rate in levels
    )
    axes = new_figure(10, 6.5).add_subplot()
    draw_roofline(
        axes, RoofLines(ceilings=(), diagonals=diagonals, main_top_flop_per_s=1e13), rate="FLOP/s"
    )
    texts = [each.get_text() for each in axes.texts]
    ridges = ["2.50", "5.00", "100"]
    assert texts == [*ridges, "L1 4.00 TB/s", "L2 copy, L3 read 2.00 TB/s", "DRAM 100 GB/s"]


def test_a_point_that_beats_its_minimum_is_marked_and_warned_of() -> None:
    fast = measured(small(), 0.5)
    assert all(each.above for each in points_of(fast))
    first, second = picture_warnings(fast)
    assert "below its minimum time" in first and second
    assert not picture_warnings(measured(small(), 1.0))


def test_a_rate_above_the_ceiling_that_the_convention_explains_is_named_as_such() -> None:
    net = Network()
    x = net.tensor(512, 512)
    # Half of the counted FLOP need not be done, as in causal attention.
    net.call(
        "aten.attention", "attention", "attn", (x,), net.tensor(512, 512),
        flop=10**10, min_flop=5 * 10**9,
    )  # fmt: skip
    bound = analysis_of(net, full_profile())
    assert not picture_warnings(bound)
    (point,) = points_of(bound)
    assert point.flop_per_s == pytest.approx(523e9)
    slower = measured(bound, 1.2)
    (warning,) = picture_warnings(slower)
    assert "counted FLOP include work that kernels skip" in warning
    assert not points_of(slower)[0].above


def test_operators_that_no_ceiling_gives_a_time_are_reported_not_dropped_in_silence() -> None:
    analysis = EXAMPLES["no ceilings"]
    assert not points_of(analysis)
    assert "18 operators not drawn" in picture_warnings(analysis)[-1]


def many_ceilings() -> Analysis:
    profile = full_profile()
    more = [
        *(
            ceiling(60e9 + number * 0.2e9, of="float32", unit=f"unit{number}", kernel="dot")
            for number in range(15)
        ),
        *(ceiling(61e9, of=of, unit="sse", kernel="dot") for of in ("int32", "float16", "int8")),
    ]
    profile = replace(profile, compute=(*profile.compute, *more))
    return analysis_of(resnet_like(), profile)


CROWDED = {**EXAMPLES, "many ceilings": many_ceilings()}


@pytest.mark.parametrize("name", CROWDED)
def test_words_keep_apart(name: str) -> None:
    """As they are drawn: names of operators, and the labels of ceilings right of the axes."""
    axes = drawn(CROWDED[name]).axes[0]
    names = {each.name for each in points_of(CROWDED[name])}
    texts = [
        each
        for each in axes.texts
        if each.get_text() in names or (isinstance(each, Annotation) and each.arrow_patch)
    ]
    for a, b in combinations(texts, 2):
        first, second = Text.get_window_extent(a), Text.get_window_extent(b)
        assert not first.padded(-1.5).overlaps(second.padded(-1.5)), (a.get_text(), b.get_text())
    inside = axes.get_window_extent()
    for text in texts:
        if text.get_text() in names:
            box = text.get_window_extent()
            assert inside.x0 <= box.x0 and box.x1 <= inside.x1


def test_labels_can_be_left_out() -> None:
    names = {each.name for each in points_of(resnet())}
    assert names & {each.get_text() for each in drawn(resnet()).axes[0].texts}
    assert not names & {each.get_text() for each in drawn(resnet(), labels=0).axes[0].texts}


@pytest.mark.parametrize("name", EXAMPLES)
def test_points_and_ceilings_are_within_the_axes(name: str) -> None:
    axes = drawn(EXAMPLES[name]).axes[0]
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    for line in roof_lines(EXAMPLES[name], "in use").ceilings:
        assert low < line.flop_per_s < high
    for point in points_of(EXAMPLES[name]):
        assert left < point.flop_per_byte < right and low < point.flop_per_s < high


def test_the_area_of_a_mark_follows_its_share() -> None:
    assert diameter_pt(0.4) == pytest.approx(2 * diameter_pt(0.1))
    assert diameter_pt(0) == diameter_pt(0.0001)


def test_types_look_different_in_color_or_marker_and_keep_their_look() -> None:
    names = ["convolution", "pointwise", *(f"type {i}" for i in range(40))]
    look = styles(names)
    assert len(set(look.values())) == len(names)
    assert styles(["pointwise"])["pointwise"] == look["pointwise"]


def test_a_zero_measured_time_is_not_drawn_and_does_not_fail() -> None:
    analysis = small()
    rows = [replace(row, measured_s=0.0) for row in analysis.operators]
    assert not points_of(with_rows(analysis, rows))


def test_a_long_name_is_cut_and_the_time_is_not() -> None:
    """A number cut short is another one."""
    analysis = replace(EXAMPLES["resnet"], model="timm:" + "a_very_long_name_" * 8)
    title = drawn(analysis).get_suptitle()
    assert "…" in title and title.endswith(" · minimum 17.6 ms")
    assert title_of(EXAMPLES["resnet"]).endswith(" · minimum 17.6 ms")


def test_svg_is_the_same_every_time_and_its_text_is_text() -> None:
    first, second = (small().render("svg") for _ in range(2))
    assert first == second
    text = "".join(ElementTree.fromstring(first).itertext())
    for words in ("Roofline of small", "float32 core 100 GFLOP/s", "DRAM 10.0 GB/s"):
        assert words in text


def test_names_are_escaped_in_svg_and_dollars_begin_no_formula() -> None:
    root = ElementTree.fromstring(EXAMPLES["hostile names"].render("svg"))
    assert "$a_b$" in "".join(root.itertext())
    assert not [each for each in root.iter() if each.tag.endswith(("script", "image"))]


def test_names_in_any_script_draw_without_warnings() -> None:
    net = Network()
    net.relu(net.tensor(8, 8), "模型.层")
    analysis_of(net, full_profile(), model="模型").render("png")


def test_global_settings_are_left_alone_and_files_know_nothing_of_pyplot() -> None:
    from matplotlib import pyplot

    before, figures = dict(matplotlib.rcParams), pyplot.get_fignums()
    resnet().render("svg")
    assert dict(matplotlib.rcParams) == before and pyplot.get_fignums() == figures


def test_pyplot_shows_what_plot_returned_in_the_size_that_was_asked() -> None:
    from matplotlib import pyplot

    figure = roofline.plot(resnet(), width_inch=7, height_inch=5)
    assert tuple(figure.get_size_inches()) == (7, 5)
    assert pyplot.fignum_exists(figure.number)
    pyplot.close(figure)


def test_two_operators_have_each_the_color_of_its_type() -> None:
    # A tuple of two colors is one color and its opacity to matplotlib.
    net = Network()
    x = net.convolution(net.tensor(1, 8, 16, 16), 8, 3, "conv")
    net.relu(x, "relu")
    analysis = analysis_of(net, full_profile())
    marks: Any = drawn(analysis).axes[0].collections[0]
    faces = [tuple(face[:3]) for face in marks.get_facecolor()]
    kinds = [each.type for each in points_of(analysis)]
    assert faces == [to_rgb(styles(kinds)[each].colour) for each in kinds]
    assert len(set(faces)) == 2


def test_spread_moves_neighbors_apart_and_keeps_their_order() -> None:
    assert spread([0.5, 0.5], gap=0.1) == pytest.approx((0.45, 0.55))
    assert spread([0.9, 0.1, 0.92], gap=0.05) == pytest.approx((0.885, 0.1, 0.935))
    assert spread([1.0, 1.0], gap=0.1) == pytest.approx((0.9, 1.0))
    # What cannot fit shares the room.
    assert spread([0.0] * 5, gap=1.0) == pytest.approx((0.0, 0.25, 0.5, 0.75, 1.0))
    assert spread([], gap=0.1) == ()
