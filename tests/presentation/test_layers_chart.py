from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.analysis import Analysis
from roofline.errors import InputError
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile, Provenance, TheoreticalRate
from roofline.presentation.charts.labels import Box, Label
from roofline.presentation.charts.layers_areas import Corner, cut_to_box
from roofline.presentation.charts.layers_chart import LayersChart, layers_chart_of
from roofline.presentation.charts.layers_losses import loss_words
from roofline.presentation.charts.layers_software import software_of
from tests.presentation.examples import (
    Network,
    analysis_of,
    dram_profile,
    examples,
    full_profile,
    measured,
    resnet,
    small,
    with_rows,
)
from tests.presentation.predictions import with_predictions

EXAMPLES = examples()
THEORY = Provenance(
    source="derived", reference="a handbook", date="2026", note="2 threads x 9.9 GHz"
)


def article_machine() -> tuple[HardwareProfile, HardwareProfile]:
    """Measured 2.86 TFLOP/s and 74 GB/s; on paper 4.608 TFLOP/s and 96 GB/s."""
    return load_hardware("10980xe-measured"), load_hardware("10980xe")


def article() -> LayersChart:
    profile, paper = article_machine()
    return layers_chart_of(profile, paper=paper)


def with_theory(flop_per_s: float, byte_per_s: float) -> HardwareProfile:
    """The measured example machine, with paper figures for its best FMA and its nearest level."""
    profile = full_profile()
    compute = tuple(
        replace(each, theoretical=TheoreticalRate(per_s=flop_per_s, provenance=THEORY))
        if each.label == "float32 avx512 fma"
        else each
        for each in profile.compute
    )
    nearest, *others = profile.memory
    bandwidth = tuple(
        replace(each, theoretical=TheoreticalRate(per_s=byte_per_s, provenance=THEORY))
        if each.kernel == "read"
        else each
        for each in nearest.bandwidth
    )
    return replace(
        profile, compute=compute, memory=(replace(nearest, bandwidth=bandwidth), *others)
    )


def said(chart: LayersChart) -> str:
    """All that stands below the picture, wrapped lines joined."""
    return " ".join(label.text for label in chart.key.notes)


def value_at(chart: LayersChart, corner: Corner) -> tuple[float, float]:
    return chart.base.x.value(corner[0]), chart.base.y.value(corner[1])


def holds(corners: tuple[Corner, ...], x: float, y: float) -> bool:
    """Whether a point lies in a convex polygon: on the same side of all of its edges."""
    turns = [
        (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)
        for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True)
    ]
    return all(turn > 0 for turn in turns) or all(turn < 0 for turn in turns)


# What the hardware loses


def test_the_losses_of_the_founding_article():
    """1 - 2.86 / 4.608 = 37.9 %, 1 - 74 / 96 = 22.9 %; ridges at 48 and 38.6 FLOP/byte."""
    chart = article()
    text = said(chart)
    assert (
        "float32 avx512: 4.61 TFLOP/s on paper → 2.86 TFLOP/s measured: -37.9 %"
        " (equals 16 cores x 4.5 GHz x 64 FLOP per cycle" in text
    )
    assert (
        "DRAM: 96.0 GB/s on paper → 74.0 GB/s measured: -22.9 %"
        " (equals four channels of DDR4 at 3000 MT/s x 8 byte)" in text
    )
    (ridge,) = chart.base.ridges
    assert ridge.flop_per_byte == pytest.approx(2860 / 74)
    (on_paper,) = chart.paper_ridges
    assert value_at(chart, on_paper) == (pytest.approx(48.0), pytest.approx(4.608e12))
    assert {label.text for label in chart.base.named} == {"-37.9 %", "-22.9 %", "48.0 on paper"}


def test_the_shaded_areas_are_what_lies_between_both_roofs():
    chart = article()
    assert [area.kind for area in chart.areas] == ["loss", "loss"]
    frame, draw = chart.base.frame, random.Random(7)
    inside = 0
    for _ in range(4000):
        at = (draw.uniform(frame.left, frame.right), draw.uniform(frame.bottom, frame.top))
        intensity, rate = value_at(chart, at)
        between = min(2.86e12, 74e9 * intensity) < rate < min(4.608e12, 96e9 * intensity)
        assert between == any(holds(area.corners, *at) for area in chart.areas)
        inside += between
    assert inside > 100


def test_the_corners_lie_on_the_lines():
    chart = article()
    compute, memory = chart.areas
    x = chart.base.x
    expected = {
        (2.86e12 / 96e9, 2.86e12),
        (48.0, 4.608e12),
        (x.high, 4.608e12),
        (x.high, 2.86e12),
    }
    found = [value_at(chart, corner) for corner in compute.corners]
    assert len(found) == 4
    for want in expected:
        assert any(each == pytest.approx(want) for each in found)
    for corner in memory.corners:
        intensity, rate = value_at(chart, corner)
        lines = (rate / intensity == pytest.approx(96e9), rate / intensity == pytest.approx(74e9))
        assert any(lines) or rate == pytest.approx(2.86e12)


def test_the_area_between_two_ceilings_is_width_times_height():
    """A trapezoid: its lower edge begins left of its upper one by the height over the slope."""
    chart = article()
    x, y = chart.base.x, chart.base.y
    height = y.pt(4.608e12) - y.pt(2.86e12)
    upper, lower = x.end_pt - x.pt(48.0), x.end_pt - x.pt(2.86e12 / 96e9)
    assert chart.areas[0].area_pt2 == pytest.approx(height * (upper + lower) / 2)


def test_paper_lines_lie_on_their_rates():
    chart = article()
    level, diagonal = chart.paper
    assert level.y0 == level.y1 == pytest.approx(chart.base.y.pt(4.608e12))
    assert level.x1 == pytest.approx(chart.base.x.end_pt)
    for end in ((diagonal.x0, diagonal.y0), (diagonal.x1, diagonal.y1)):
        intensity, rate = value_at(chart, end)
        assert rate / intensity == pytest.approx(96e9)
    assert [label.text for label in chart.paper_labels] == ["float32 on paper 4.61 TFLOP/s"]


def test_a_machine_knows_its_own_paper_figures():
    """523 of 600 GFLOP/s: 12.8 %; 640 of 800 GB/s: 20 %; of the other levels nothing is known."""
    chart = layers_chart_of(analysis_of(Network(), with_theory(600e9, 800e9)))
    text = said(chart)
    assert "600 GFLOP/s on paper → 523 GFLOP/s measured: -12.8 % (2 threads x 9.9 GHz)" in text
    assert "L1 read: 800 GB/s on paper → 640 GB/s measured: -20.0 %" in text
    assert "L3 read (92.0 GB/s measured), DRAM read (41.3 GB/s measured); no paper line" in text
    assert [area.label for area in chart.areas if area.kind == "loss"] == [
        "float32 avx512 fma",
        "L1 read",
    ]
    assert len(chart.paper) == 2


def test_what_is_not_known_on_paper_has_no_line_and_no_area():
    chart = layers_chart_of(resnet())
    assert not chart.paper
    assert not chart.paper_labels
    assert not [area for area in chart.areas if area.kind == "loss"]
    assert "Not known on paper: float32 avx512 fma (523 GFLOP/s measured)" in said(chart)
    assert "roof on paper" not in [entry.label.text for entry in chart.key.entries]


def test_figures_of_a_data_sheet_are_paper_and_their_loss_is_not_known():
    chart = layers_chart_of(load_hardware("rtx4090"))
    assert not chart.areas
    assert {each.label for each in chart.base.ceilings} <= chart.base.on_paper
    assert {each.label for each in chart.base.diagonals} <= chart.base.on_paper
    assert "On paper only, not measured: float32 cuda-core fma" in said(chart)
    assert [entry.kind for entry in chart.key.entries] == ["paper"]
    assert chart.base.title == "What rtx4090 can do on paper"


def test_a_measurement_above_paper_is_said_and_not_shaded():
    chart = layers_chart_of(analysis_of(Network(), with_theory(500e9, 600e9)))
    assert not [area for area in chart.areas if area.kind == "loss"]
    assert "500 GFLOP/s on paper → 523 GFLOP/s measured: +4.6 %, above paper" in said(chart)


@pytest.mark.parametrize(
    ("loss", "words"),
    [(0.379, "-37.9 %"), (0.0009, "as on paper"), (-0.0009, "as on paper"), (1e-3, "-0.10 %")],
)
def test_losses_in_words(loss: float, words: str):
    assert loss_words(loss) == words


def test_a_paper_that_does_not_fit_is_refused():
    measured_here, sheet = article_machine()
    with pytest.raises(InputError, match="'h100' is a cuda device, but '10980xe-measured' is a"):
        layers_chart_of(measured_here, paper=load_hardware("h100"))
    with pytest.raises(InputError, match="'10980xe-measured' has no figures on paper"):
        layers_chart_of(measured_here, paper=measured_here)
    # For 16 threads there are figures, for 2 there are none, and none are made up.
    with pytest.raises(InputError, match=r"no figures on paper for .* \(2 threads; "):
        layers_chart_of(full_profile(), paper=sheet)
    with pytest.raises(InputError, match="nothing of 'v100' was measured that paper 'h100' could"):
        layers_chart_of(load_hardware("v100"), paper=load_hardware("h100"))


# What software loses


def test_operators_that_take_four_times_their_bound_reach_a_quarter_of_the_roof():
    chart = layers_chart_of(measured(small(), 4.0))
    (area,) = chart.areas
    assert (area.kind, area.label) == ("software", "DRAM")
    corners = [value_at(chart, corner) for corner in area.corners]
    # From the ReLU at 10 FLOP / 80 bytes to the linear layer at 650 / 1488, under 10 GB/s.
    assert min(x for x, _ in corners) == pytest.approx(10 / 80)
    assert max(x for x, _ in corners) == pytest.approx(650 / 1488)
    assert sorted(round(y / x / 1e9, 6) for x, y in corners) == [2.5, 2.5, 10.0, 10.0]
    (line,) = chart.reached
    ends = [value_at(chart, end) for end in ((line.x0, line.y0), (line.x1, line.y1))]
    assert [y / x for x, y in ends] == [pytest.approx(2.5e9)] * 2
    assert "25.0 % of DRAM reached" in [label.text for label in chart.base.named]


def test_the_efficiency_is_the_sum_of_bounds_over_the_sum_of_times():
    """A ReLU at half its roof and a linear layer at a tenth: weighted by time, not their mean."""
    analysis = small()
    factors = {"fc": 10.0, "act": 2.0}
    rows = [
        replace(row, measured_s=factors[row.module_path] * (row.bound_s or 0))
        for row in analysis.operators
    ]
    software = software_of(with_rows(analysis, rows))
    assert software is not None
    # 1488 and 80 bytes at 10 GB/s.
    assert software.bound_s == pytest.approx(1568 / 10e9)
    assert software.time_s == pytest.approx((14880 + 160) / 10e9)
    assert software.efficiency == pytest.approx(1568 / 15040)
    assert "reach 10.4 % of the roof on paper, weighted by time" in said(
        layers_chart_of(with_rows(analysis, rows))
    )


def test_predicted_efficiency_is_called_predicted():
    analysis = small()
    bounds = {row.module_path: row.bound_s or 0 for row in analysis.operators}
    chart = layers_chart_of(with_predictions(analysis, {name: 2 * s for name, s in bounds.items()}))
    assert "are predicted to reach 50.0 % of the roof" in said(chart)
    assert "50.0 % of DRAM predicted" in [label.text for label in chart.base.named]
    assert any("predicted to be reached" in each.label.text for each in chart.key.entries)


def test_without_times_no_efficiency_is_made_up():
    chart = layers_chart_of(small())
    assert not chart.areas
    assert not chart.reached
    assert "how much of the roof the operators reach is not known" in said(chart)


def test_operators_of_unknown_bound_are_in_no_sum_and_that_is_said():
    net = Network()
    x = net.linear(net.tensor(1, 32), 10, "fc")
    net.call("custom.mystery", "unknown", "odd", (x,), net.tensor(1, 10), flop=None)
    analysis = analysis_of(net, dram_profile())
    rows = [replace(row, measured_s=1e-6) for row in analysis.operators]
    software = software_of(with_rows(analysis, rows))
    assert software is not None
    assert (software.time_s, software.whole_s) == (1e-6, pytest.approx(2e-6))
    assert "over 50.0 % of the time" in said(layers_chart_of(with_rows(analysis, rows)))


def test_a_machine_alone_shades_what_its_library_leaves():
    """torch's convolutions reach 454 of 523 GFLOP/s in float32: 86.8 %."""
    chart = layers_chart_of(full_profile())
    (area,) = chart.areas
    assert (area.kind, area.label) == ("software", "float32 avx512 fma")
    rates = sorted({round(value_at(chart, corner)[1] / 1e9, 3) for corner in area.corners})
    assert rates == [454.0, 523.0]
    assert "86.8 % of float32 avx512 fma (float32 torch conv 454 GFLOP/s)" in said(chart)


def test_a_point_above_the_measured_roof_is_still_a_warning():
    chart = layers_chart_of(measured(resnet(), 0.5))
    assert any("faster than its bound" in each for each in chart.base.warnings)
    assert not [area for area in chart.areas if area.kind == "software"]


# The picture


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width_pt", [360.0, 720.0])
def test_words_lie_on_the_paper_and_not_on_each_other(name: str, width_pt: float):
    chart = layers_chart_of(EXAMPLES[name], width_pt=width_pt)
    base = chart.base
    page = Box(0, 0, base.width_pt, base.height_pt)
    below = [*chart.key.notes, *(entry.label for entry in chart.key.entries)]
    legend = [entry.label for entry in base.legend]
    inside = [*base.named, *(mark.label for mark in base.marks if mark.label)]
    for label in (*below, *legend, *inside):
        assert page.holds(label.box), label.text
    for group in ([*below, *legend], inside, [*base.ceiling_labels, *chart.paper_labels]):
        assert_apart(group)
    for label in (*below, *legend):
        assert label.box.top <= base.frame.bottom


def assert_apart(labels: list[Label]):
    for one, other in combinations(labels, 2):
        # Rounding may let neighbouring lines of words share a hair.
        assert not one.box.grown(-0.01).overlaps(other.box), (one.text, other.text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_areas_lie_within_the_axes(name: str):
    chart = layers_chart_of(EXAMPLES[name])
    frame = chart.base.frame.grown(1e-6)
    for area in chart.areas:
        assert area.area_pt2 > 0
        for x, y in area.corners:
            assert frame.left <= x <= frame.right
            assert frame.bottom <= y <= frame.top


def test_a_picture_too_low_for_its_words_is_refused():
    with pytest.raises(InputError, match=r"height_inch 3 is too low .* give at least"):
        layers_chart_of(resnet(), height_pt=216.0)


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_lower_efficiency_means_a_larger_area(factor: float):
    def area(analysis: Analysis) -> float:
        return sum(each.area_pt2 for each in layers_chart_of(analysis).areas)

    one = layers_chart_of(measured(small(), factor)).base.y.pt_per_decade
    width = layers_chart_of(measured(small(), factor)).areas[0]
    across = max(x for x, _ in width.corners) - min(x for x, _ in width.corners)
    assert area(measured(small(), factor)) == pytest.approx(across * one * math.log10(factor))


# Polygons

points = st.tuples(st.floats(-50, 150), st.floats(-50, 150))


@given(st.lists(points, min_size=3, max_size=3))
def test_a_cut_polygon_is_what_of_it_lies_in_the_box(corners: list[Corner]):
    box = Box(0, 0, 100, 100)
    found = cut_to_box(corners, box)
    assert all(-1e-6 <= x <= 100 + 1e-6 and -1e-6 <= y <= 100 + 1e-6 for x, y in found)
    draw = random.Random(3)
    (x0, y0), (x1, y1), (x2, y2) = corners
    whole = abs((x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)) / 2
    if whole < 1:
        return
    for _ in range(50):
        # A point of the triangle, and whether the cut one has it too.
        a, b = sorted((draw.random(), draw.random()))
        x, y = (a * u + (b - a) * v + (1 - b) * w for u, v, w in zip(*corners, strict=True))
        if 0.01 < x < 99.99 and 0.01 < y < 99.99:
            assert len(found) > 2
            assert _distance_inside(found, x, y) > -1e-6


def _distance_inside(corners: tuple[Corner, ...], x: float, y: float) -> float:
    """How far inside a convex polygon a point lies, in points; below 0: outside."""
    area = sum(
        x0 * y1 - x1 * y0
        for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True)
    )
    return min(
        math.copysign(1, area)
        * ((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0))
        / math.dist((x0, y0), (x1, y1))
        for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True)
    )


def test_a_polygon_within_the_box_stays_as_it_is():
    corners = [(1.0, 1.0), (5.0, 1.0), (3.0, 4.0)]
    assert set(cut_to_box(corners, Box(0, 0, 10, 10))) == set(corners)
    assert cut_to_box(corners, Box(20, 20, 30, 30)) == ()
