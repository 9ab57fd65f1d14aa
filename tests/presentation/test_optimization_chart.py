"""The picture of an optimization: arrows from where operators stood to where their heirs stand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from roofline.analysis import Analysis
from roofline.presentation.charts.labels import Box
from roofline.presentation.charts.optimization_chart import (
    OptimizationChart,
    optimization_chart_of,
)
from roofline.presentation.charts.optimization_clusters import clusters_of
from roofline.presentation.drawing import savefig_bytes
from roofline.presentation.optimization_figure import plot_optimization
from roofline.substitution.result import Optimization, Substitution
from roofline.workload.tensors import Role
from tests.presentation.examples import Network, analysis_of, measured, with_rows
from tests.presentation.optimizations import (
    SIZES,
    accelerator,
    many_folds,
    nothing,
    optimizations,
    predicted,
)


def rewrite(before: tuple[int, ...], after: tuple[int, ...], rule: str = "x") -> Substitution:
    return Substitution(
        rule=rule,
        where=rule,
        why="",
        is_applied=True,
        before_operators=before,
        after_operators=after,
    )


def chain(sizes: tuple[int, ...]) -> Analysis:
    """ReLUs in place, one of each size: as many FLOP as elements, 8 bytes for each."""
    net = Network()
    for number, size in enumerate(sizes):
        net.relu(net.tensor(size, role=Role.INPUT), f"block.{number}")
    return analysis_of(net, accelerator(), model="chain")


def of(before: Analysis, after: Analysis, *substitutions: Substitution) -> Optimization:
    return replace(predicted(), before=before, after=after, substitutions=substitutions)


def test_a_cluster_is_the_sum_of_its_operators() -> None:
    found = of(chain((9000, 36000)), chain((45000,)), rewrite((0, 1), (0,)))
    (cluster,), kind = clusters_of(found)
    assert kind == "bound"
    assert (cluster.before.flop, cluster.before.byte) == (45000, 360000)
    # 72 kB and 288 kB at 900 GB/s, and two launches of 8 µs.
    assert cluster.before.time_s == pytest.approx(80e-9 + 320e-9 + 16e-6)
    assert cluster.after.time_s == pytest.approx(400e-9 + 8e-6)
    assert cluster.before.spot == pytest.approx((0.125, 45000 / 16.4e-6))
    assert cluster.where == "block"


def test_in_fused_kernels_a_chain_is_one_launch() -> None:
    before = chain((9000, 36000))
    rows = [replace(row, chain=0, fused_byte=row.traffic_byte // 2) for row in before.operators]
    found = of(with_rows(before, rows), chain((45000,)), rewrite((0, 1), (0,)))
    (cluster,), _ = clusters_of(replace(found, is_fused=True))
    # 180 kB in all at 900 GB/s, and one launch.
    assert cluster.before.byte == 180000
    assert cluster.before.time_s == pytest.approx(200e-9 + 8e-6)


def test_measured_times_are_taken_where_all_have_one() -> None:
    before, after = chain((9000,)), chain((9000,))
    both = of(measured(before, 3.0), measured(after, 2.0), rewrite((0,), (0,)))
    (cluster,), kind = clusters_of(both)
    assert kind == "measured"
    assert cluster.before.time_s == pytest.approx(240e-9)
    one = of(measured(before, 3.0), after, rewrite((0,), (0,)))
    assert clusters_of(one)[1] == "bound"


def test_rewrites_that_share_operators_are_one_cluster() -> None:
    before, after = chain((8,) * 6), chain((8,) * 4)
    chained = (
        rewrite((0, 1), (0,), "first"),
        rewrite((4,), (3,), "apart"),
        rewrite((2,), (1,), "second"),
        rewrite((1, 2), (2,), "both"),
    )
    clusters, _ = clusters_of(of(before, after, *chained))
    assert [each.rules for each in clusters] == [("first", "second", "both"), ("apart",)]
    # Three of 8 elements each.
    assert clusters[0].before.flop == clusters[0].after.flop == 24


def test_what_vanishes_has_no_place_and_is_counted() -> None:
    found = of(chain((8, 9000)), chain((9000,)), rewrite((0,), ()), rewrite((1,), (0,)))
    chart = optimization_chart_of(found)
    assert len(chart.base.marks) == 2
    assert chart.note is not None
    assert chart.note.text == "Rewrites: 1 has no place: no FLOP, or no time, on one side"


def test_unknown_flop_is_no_zero() -> None:
    net = Network()
    x = net.tensor(100, role=Role.INPUT)
    net.relu(x, "a")
    net.call("custom.mystery", "unknown", "b", (x,), net.tensor(100), flop=None)
    before = analysis_of(net, accelerator(), model="odd")
    (cluster,), _ = clusters_of(of(before, chain((100,)), rewrite((0, 1), (0,))))
    assert cluster.before.flop is None and not cluster.has_place


def marks(chart: OptimizationChart, side: str) -> list[tuple[float, float, float]]:
    """Where the points of one side are, and their radius."""
    return [
        (
            chart.base.x.pt(each.point.flop_per_byte),
            chart.base.y.pt(each.point.flop_per_s),
            each.point.diameter_pt / 2,
        )
        for each in chart.base.marks
        if each.point.type == side
    ]


def test_arrows_go_from_rim_to_rim() -> None:
    chart = optimization_chart_of(predicted())
    # The first two fire modules stand on one spot.
    assert len(chart.arrows) == len(SIZES) - 1
    assert [each.count for each in chart.arrows].count(2) == 1
    for arrow, start, end in zip(
        chart.arrows, marks(chart, "before"), marks(chart, "after"), strict=True
    ):
        segment = arrow.segment
        assert math.dist((segment.x0, segment.y0), start[:2]) == pytest.approx(start[2])
        assert math.dist((segment.x1, segment.y1), end[:2]) == pytest.approx(end[2])


@pytest.mark.parametrize("name", optimizations())
def test_every_optimization_has_a_picture_in_its_frame(name: str) -> None:
    chart = optimization_chart_of(optimizations()[name])
    for x, y, _ in (*marks(chart, "before"), *marks(chart, "after")):
        assert chart.base.frame.holds(Box.around(x, y, 0, 0))
    paper = Box(0, 0, chart.base.width_pt, chart.base.height_pt)
    if chart.note:
        assert paper.holds(chart.note.box)
    assert "\n" not in chart.base.title


def test_at_most_a_dozen_are_named_and_the_others_counted() -> None:
    chart = optimization_chart_of(many_folds())
    named = [each for each in chart.base.marks if each.label]
    assert 0 < len(named) <= 12
    assert {each.point.type for each in named} == {"after"}
    moves = len(chart.base.marks) // 2
    assert chart.note is not None
    assert chart.note.text == f"Rewrites: {moves - len(named)} more are drawn without a name"


def test_those_that_save_most_are_named_first() -> None:
    before, after = chain((900, 90000, 9)), chain((90, 9000, 1))
    found = of(before, after, *(rewrite((i,), (i,), f"rule-{i}") for i in range(3)))
    chart = optimization_chart_of(found, labels=1)
    (named,) = (each for each in chart.base.marks if each.label)
    assert named.point.name == "block.1"


def test_a_model_that_is_kept_has_the_roof_alone() -> None:
    chart = optimization_chart_of(nothing())
    assert not chart.base.marks and not chart.arrows
    assert chart.base.title.endswith(" · the original is kept")
    assert chart.note is not None and "nothing to draw but the roof" in chart.note.text
    assert "points:" not in chart.base.machine


def test_a_prediction_is_called_one_in_the_title() -> None:
    assert optimization_chart_of(predicted()).base.title.endswith(" · 1.69 × faster, predicted")
    timed = optimizations()["measured"]
    assert optimization_chart_of(timed).base.title.endswith(" · 1.80 × faster, measured")


def test_equal_optimizations_give_equal_pictures() -> None:
    one, other = (savefig_bytes(plot_optimization(predicted()), "svg") for _ in range(2))
    assert one == other
    assert predicted().plot(labels=2, width_inch=8.0).get_size_inches()[0] == 8.0
