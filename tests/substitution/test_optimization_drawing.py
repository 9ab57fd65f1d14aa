"""The picture of an optimization: an arrow for each cluster of rewrites."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from roofline.analysis import Analysis
from roofline.substitution.drawing import clusters_of, moves_of
from roofline.substitution.result import Optimization, Substitution
from roofline.workload.operators import State
from roofline.workload.tensors import Role
from tests.analysis.examples import Network, analysis_of, measured, with_rows
from tests.substitution.optimizations import (
    SIZES,
    accelerator,
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
    before = chain((9000, 36000))
    found = of(before, chain((45000,)), rewrite((0, 1), (0,)))
    (cluster,), kind = clusters_of(found)
    assert kind == "bound"
    assert (cluster.before.flop, cluster.before.byte) == (45000, 360000)
    # 72 kB and 288 kB at 900 GB/s, and two launches of 8 µs.
    assert cluster.before.time_s == pytest.approx(80e-9 + 320e-9 + 16e-6)
    assert cluster.after.time_s == pytest.approx(400e-9 + 8e-6)
    assert cluster.before.spot == pytest.approx((0.125, 45000 / 16.4e-6))
    assert cluster.where == "block"
    # In fused kernels 180 kB in all, and one launch.
    rows = [replace(row, chain=0, fused_bytes=row.traffic_bytes // 2) for row in before.operators]
    fused = replace(found, before=with_rows(before, rows), is_fused=True)
    (cluster,), _ = clusters_of(fused)
    assert cluster.before.byte == 180000
    assert cluster.before.time_s == pytest.approx(200e-9 + 8e-6)
    # Unknown FLOP are no zero.
    unknown = dict.fromkeys(("flop", "macs", "min_flop"))
    mystery = replace(before.operators[1], state=State.UNKNOWN, **unknown)
    rows = [before.operators[0], mystery]
    (cluster,), _ = clusters_of(replace(found, before=with_rows(before, rows)))
    assert cluster.before.flop is None and cluster.spots[0] is None


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
    assert [each.rules for each in clusters] == [("apart",), ("first", "second", "both")]
    # Three of 8 elements each.
    assert clusters[1].before.flop == clusters[1].after.flop == 24


def words_of(figure: Figure) -> str:
    legend = figure.legends[0].get_title().get_text()
    return " ".join((figure.get_suptitle(), figure.axes[0].get_title(loc="left"), legend))


def names_in(figure: Figure) -> list[str]:
    return [each.get_text() for each in figure.axes[0].texts]


def arrows_in(figure: Figure) -> int:
    return sum(isinstance(each, FancyArrowPatch) for each in figure.axes[0].patches)


def test_what_vanishes_has_no_place_and_is_counted() -> None:
    found = of(chain((8, 9000)), chain((9000,)), rewrite((0,), ()), rewrite((1,), (0,)))
    picture = found.plot()
    assert arrows_in(picture) == 0
    assert "Not drawn: 1 rewrite without FLOP or time on one side" in words_of(picture)


def test_clusters_alike_on_one_spot_are_one_arrow() -> None:
    found = predicted()
    moves = moves_of(clusters_of(found)[0], found, "after")
    # The first two fire modules stand on one spot.
    assert len(moves) == arrows_in(found.plot()) == len(SIZES) - 1
    assert [each.name for each in moves if "+" in each.name] == ["features.3 +1"]
    for each in moves:
        assert each.share_before > 0 and each.share_after > 0


@pytest.mark.parametrize("name", optimizations())
def test_every_optimization_has_a_picture(name: str) -> None:
    picture = optimizations()[name].plot()
    axes, text = picture.axes[0], words_of(picture)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for each in axes.collections:
        for x, y in each.get_offsets():  # pyright: ignore[reportGeneralTypeIssues]
            assert left <= x <= right and bottom <= y <= top
    assert "Ceilings: " in text and "\x1b" not in text
    speeds = {"predicted": "1.69× faster (predicted)", "measured": "1.80× faster (measured)"}
    assert speeds.get(name, "") in text


def test_those_that_save_most_are_named_first_and_the_others_counted() -> None:
    before, after = chain((900, 90000, 9)), chain((90, 9000, 1))
    found = of(before, after, *(rewrite((i,), (i,), f"rule-{i}") for i in range(3)))
    assert moves_of(clusters_of(found)[0], found, "after")[0].name == "block.1"
    picture = found.plot(labels=1, width_inch=8.0)
    assert picture.get_size_inches()[0] == 8.0
    named = names_in(picture)
    assert "block.1" in named and not {"block.0", "block.2"} & set(named)
    assert "Without label: 2 arrows" in words_of(picture)


def test_a_model_that_is_kept_has_the_roof_alone() -> None:
    picture = nothing().plot()
    assert not arrows_in(picture) and not picture.axes[0].collections
    text = words_of(picture)
    assert "original kept" in text and "No rewrite found." in text and "points:" not in text
