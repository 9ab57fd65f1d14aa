"""The picture of a quantisation: arrows from where layers stand to where few bits put them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from matplotlib.patches import FancyArrowPatch

from roofline.presentation.charts.before_after import AFTER, BEFORE
from roofline.presentation.charts.labels import Box
from roofline.presentation.charts.quantization_chart import (
    QuantizationChart,
    quantization_chart_of,
)
from roofline.presentation.charts.quantization_moves import KEPT, ONLY, moves_of, spot_of
from roofline.presentation.charts.quantization_roof import quantized_roof_lines
from roofline.presentation.drawing import savefig_bytes
from roofline.presentation.quantization_figure import draw_quantization, plot_quantization
from roofline.quantization.policy import LayerBits
from roofline.quantization.result import LayerWhatIf, Quantization
from tests.presentation.examples import bare_profile
from tests.presentation.quantizations import (
    analysis,
    bandwidth_only,
    layer,
    many,
    quantizations,
    residual,
    side,
    slower,
    unknown,
    with_kernels,
)

TWO = LayerBits(weights=2, activations=2)
EIGHT = LayerBits(weights=8, activations=8)


def moving(
    name: str,
    *,
    start: tuple[float, float] = (10.0, 6e9),
    end: tuple[float, float] = (80.0, 48e9),
    bits: LayerBits = TWO,
    after_s: float = 2e-6,
) -> LayerWhatIf:
    """A layer that goes from one place under the roof to another."""
    return layer(
        name,
        bits,
        before=side(intensity_flop_per_byte=start[0], attainable_flop_per_s=start[1]),
        after=side(intensity_flop_per_byte=end[0], attainable_flop_per_s=end[1], bound_s=after_s),
    )


def of(*layers: LayerWhatIf) -> Quantization:
    found = bandwidth_only()
    return replace(found, what_ifs=(replace(found.what_if, layers=layers),))


def of_look(chart: QuantizationChart, look: str) -> list[tuple[float, float, float]]:
    """Where the points of one look are on paper, and their radius."""
    return [
        (
            chart.base.x.pt(each.point.flop_per_byte),
            chart.base.y.pt(each.point.flop_per_s),
            each.point.diameter_pt / 2,
        )
        for each in chart.base.marks
        if each.point.type == look
    ]


def test_layers_that_stand_together_before_and_after_are_one_move() -> None:
    kept = layer("s", place="shortcut")
    layers = (
        moving("a"),
        moving("b", start=(10.1, 6.1e9)),
        moving("c", end=(160.0, 96e9), after_s=1e-6),
        moving("d", bits=EIGHT),
        kept,
    )
    moves, placeless = moves_of(of(*layers).what_if)
    assert placeless == 0
    # a and b save 16 µs together, c 9, d 8; what is kept comes last.
    assert [(each.name, each.look, each.count) for each in moves] == [
        ("a +1 w2a2", ONLY, 2),
        ("c w2a2", ONLY, 1),
        ("d w8a8", AFTER, 1),
        ("s float", KEPT, 1),
    ]
    assert moves[0].before == (10.0, 6e9) and moves[0].after == (80.0, 48e9)


def test_shares_are_those_of_the_pass() -> None:
    found = of(moving("a"), moving("b"))
    first = replace(found.what_if, bound_before_s=40e-6, bound_after_s=5e-6)
    ((move,), _) = moves_of(first)
    assert move.share_before == pytest.approx(0.5)
    assert move.share_after == pytest.approx(0.8)
    ((move,), _) = moves_of(replace(first, bound_before_s=None, bound_after_s=None))
    assert (move.share_before, move.share_after) == (0.0, 0.0)


def test_what_is_not_known_has_no_place_and_is_counted() -> None:
    assert spot_of(side(intensity_flop_per_byte=None)) is None
    chart = quantization_chart_of(unknown())
    assert not chart.base.marks and not chart.arrows
    assert chart.note.text.endswith(" · layers: 1 has no place: FLOP or bound are not known")


def test_arrows_join_the_middles_and_swing_below_the_roof() -> None:
    back = moving("b", start=(100.0, 50e9), end=(20.0, 10e9), bits=EIGHT)
    chart = quantization_chart_of(of(moving("a"), back))
    a, b = chart.arrows
    assert (a.is_hollow, b.is_hollow) == (True, False)
    (start, _) = of_look(chart, BEFORE)
    (end,) = of_look(chart, ONLY)
    assert (a.segment.x0, a.segment.y0) == pytest.approx(start[:2])
    assert (a.segment.x1, a.segment.y1) == pytest.approx(end[:2])
    assert (a.start_radius_pt, a.end_radius_pt) == pytest.approx((start[2], end[2]))
    for arrow in (a, b):
        # Matplotlib swings to the right of the way by a part of its length: downwards in both.
        assert arrow.bend * (arrow.segment.x1 - arrow.segment.x0) > 0


def test_what_stays_in_floats_has_a_mark_and_no_arrow() -> None:
    chart = quantization_chart_of(of(moving("a"), layer("s", place="shortcut")))
    assert len(of_look(chart, KEPT)) == len(of_look(chart, BEFORE)) == 1
    assert [each.name for each in chart.arrows] == ["a w2a2"]


def test_marks_that_touch_have_no_arrow() -> None:
    chart = quantization_chart_of(of(moving("a", end=(10.3, 6.2e9))))
    assert len(chart.base.marks) == 2 and not chart.arrows


def test_the_roof_has_the_ceilings_of_floats_and_of_what_is_executed() -> None:
    found = bandwidth_only()
    lines = quantized_roof_lines(found.analysis, found.what_if)
    assert [each.label.rpartition(" ")[0].rpartition(" ")[0] for each in lines.ceilings] == [
        *("int8 avx512-vnni dot", "int8 torch conv"),
        *("float32 avx512 fma", "float32 torch conv", "float32 torch gemm"),
    ]
    assert all(each.main for each in lines.ceilings)
    # Diagonals go up to the highest of them: 2092 GFLOP/s over 41.3 GB/s.
    assert lines.main_top_flop_per_s == 2092e9
    assert lines.diagonals[-1].ridge_flop_per_byte == pytest.approx(2092 / 41.3)


def test_types_that_are_not_executed_are_left_out() -> None:
    found = bandwidth_only()
    floats = tuple(replace(each, executable="float32") for each in found.what_if.layers)
    lines = quantized_roof_lines(found.analysis, replace(found.what_if, layers=floats))
    assert not any("int8" in each.label or "bfloat16" in each.label for each in lines.ceilings)
    odd = tuple(replace(each, executable="no type") for each in found.what_if.layers)
    assert quantized_roof_lines(found.analysis, replace(found.what_if, layers=odd)) == lines


def test_a_machine_without_ceilings_has_a_picture() -> None:
    found = bandwidth_only()
    bare = replace(found, analysis=replace(analysis(), hardware=bare_profile(), threads=1))
    assert quantization_chart_of(bare).base.marks


@pytest.mark.parametrize("name", quantizations())
def test_every_quantization_has_a_picture_in_its_frame(name: str) -> None:
    chart = quantization_chart_of(quantizations()[name])
    for look in (BEFORE, AFTER, ONLY, KEPT):
        for x, y, _ in of_look(chart, look):
            assert chart.base.frame.holds(Box.around(x, y, 0, 0))
    paper = Box(0, 0, chart.base.width_pt, chart.base.height_pt)
    assert paper.holds(chart.note.box)
    assert chart.note.text.startswith("Policy: ")
    assert "\n" not in chart.base.title


def test_the_legend_says_what_hollow_is() -> None:
    def words(quantization: Quantization) -> list[str]:
        return [each.label.text for each in quantization_chart_of(quantization).base.legend]

    assert ONLY in words(bandwidth_only()) and ONLY not in words(with_kernels())
    assert AFTER in words(with_kernels())


def test_as_many_as_asked_are_named_and_the_others_counted() -> None:
    chart = quantization_chart_of(many(), labels=2)
    named = [each for each in chart.base.marks if each.label]
    assert len(named) <= 2
    assert BEFORE not in {each.point.type for each in named}
    assert "drawn without a name" in chart.note.text


def test_speed_is_claimed_where_it_is_predicted_alone() -> None:
    assert quantization_chart_of(bandwidth_only()).base.title.endswith(" · bandwidth-only what-if")
    timed = quantization_chart_of(with_kernels()).base.title
    assert timed.endswith(" · 2.00 × faster, predicted")
    assert quantization_chart_of(slower()).base.title.endswith(" · 1.20 × slower, predicted")
    first = replace(with_kernels().what_if, before=None, after=None)
    silent = quantization_chart_of(replace(with_kernels(), what_ifs=(first,))).base.title
    assert "faster" not in silent and "what-if" not in silent


def test_a_model_without_layers_has_the_roof_alone() -> None:
    chart = quantization_chart_of(of())
    assert not chart.base.marks
    assert "nothing to draw but the roof" in chart.note.text
    assert "points:" not in chart.base.machine


def test_points_lie_on_or_under_the_roof() -> None:
    found = bandwidth_only()
    lines = quantized_roof_lines(found.analysis, found.what_if)
    top = max(each.flop_per_s for each in lines.ceilings)
    fastest = max(each.byte_per_s for each in lines.diagonals)
    for mark in quantization_chart_of(found).base.marks:
        point = mark.point
        assert point.flop_per_s <= 1.0001 * min(top, fastest * point.flop_per_byte)


def test_what_has_no_kernel_is_drawn_hollow_and_keeps_its_name() -> None:
    found = of(moving("a"), moving("b", end=(160.0, 96e9), bits=EIGHT))
    chart = quantization_chart_of(found)
    axes, over = draw_quantization(chart).axes
    heads = {patch.get_facecolor() for patch in axes.patches if isinstance(patch, FancyArrowPatch)}
    white = (1.0, 1.0, 1.0, 1.0)
    assert white in heads and len(heads) == 2
    rings = [each for each in axes.lines if each.get_markerfacecolor() == "none"]
    (ring,) = rings
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (80.0, 48e9)  # pyright: ignore[reportIndexIssue]
    words = {each.get_text() for each in over.texts}
    named = {each.label.text for each in chart.base.marks if each.label}
    assert named == {"a w2a2", "b w8a8"}
    assert named < words and {ONLY, AFTER, BEFORE} < words


def test_equal_quantizations_give_equal_pictures() -> None:
    one, other = (savefig_bytes(plot_quantization(bandwidth_only()), "svg") for _ in range(2))
    assert one == other
    assert bandwidth_only().plot(labels=2, width_inch=8.0).get_size_inches()[0] == 8.0


def test_examples_are_what_they_say() -> None:
    """Three blocks in three stages: 18 convolutions, 2 projections, the first and the last."""
    products = [each for each in residual().records if each.work.multiply_add]
    assert len(products) == len(bandwidth_only().what_if.layers) == 22
    spots = {spot_of(each.before) for each in bandwidth_only().what_if.layers}
    assert all(each is not None and math.isfinite(each[0]) for each in spots)
