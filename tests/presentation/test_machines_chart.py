from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from roofline.errors import InputError
from roofline.placement import Bound
from roofline.plots.style import roof_styles
from roofline.presentation.charts.machines_chart import MachinesChart, machines_chart_of
from roofline.presentation.charts.machines_dots import DOT_PT
from tests.presentation.examples import Network, full_profile, resnet_like
from tests.presentation.machines import (
    NARROW,
    WIDE,
    compare,
    comparisons,
    eight,
    pair,
    sheet,
    three_operators,
    with_caches,
)

COMPARISONS = comparisons()


def dot_places(chart: MachinesChart) -> dict[str, list[tuple[int, Bound, float, float]]]:
    """By the name of the operator: machine, side, FLOP/byte and FLOP/s of each dot."""
    return {
        name.label.text.partition(" ·")[0]: [
            (dot.machine, dot.bound, chart.x.value(dot.x_pt), chart.y.value(dot.y_pt))
            for dot in operator.dots
        ]
        for name, operator in zip(chart.names, chart.operators, strict=True)
    }


def test_one_operator_hangs_on_both_roofs_at_its_intensity():
    """5 FLOP/byte: 50 GFLOP/s under 10 GB/s, and all of 100 GFLOP/s under 100 GB/s."""
    found = dot_places(machines_chart_of(pair()))
    assert found["middle"] == [
        (1, Bound.COMPUTE, pytest.approx(5), pytest.approx(100e9)),
        (0, Bound.MEMORY, pytest.approx(5), pytest.approx(50e9)),
    ]
    assert found["low"] == [
        (1, Bound.MEMORY, pytest.approx(0.1), pytest.approx(10e9)),
        (0, Bound.MEMORY, pytest.approx(0.1), pytest.approx(1e9)),
    ]


def test_roofs_bend_at_their_ridges():
    """100 GFLOP/s over 10 GB/s, and over 100 GB/s."""
    chart = machines_chart_of(pair())
    for roof, ridge in zip(chart.roofs, (10, 1), strict=True):
        (diagonal,) = roof.diagonals
        assert roof.ceiling is not None
        bend = (pytest.approx(ridge), pytest.approx(100e9))
        assert diagonal.ends(chart.x, chart.y)[1] == bend
        assert roof.ceiling.ends(chart.x)[0] == bend


def test_the_band_lies_between_the_ridges():
    chart = machines_chart_of(pair())
    assert chart.band is not None
    assert chart.x.value(chart.band.box.left) == pytest.approx(1)
    assert chart.x.value(chart.band.box.right) == pytest.approx(10)


def test_there_is_no_band_where_intensity_depends_on_the_machine():
    assert machines_chart_of(with_caches()).band is None


def test_who_changes_sides_outside_the_ridges_is_explained():
    """8000 FLOP over 800 bytes are right of both ridges, 2 and 4; only 2400 of them must be done.

    At 3 FLOP per byte that must be done, it is compute-bound with a ridge at 2, not at 4.
    """
    net = Network()
    x = net.tensor(100)
    net.call("aten.work", "pointwise", "", (x,), net.tensor(100), flop=8000, min_flop=2400)
    chart = machines_chart_of(compare(net, [sheet("a", 100e9, 50e9), sheet("b", 100e9, 25e9)]))
    assert chart.notes[0].startswith("1 operator that changes sides stands outside the ridges")
    assert not machines_chart_of(pair()).notes[0].startswith("1 operator that changes")


def test_operators_without_a_place_are_counted():
    """The copy takes 80 of 1040 ns on the narrow machine, its largest share."""
    assert machines_chart_of(pair()).notes == (
        "Of 4 operators, 1 without FLOP has no place on the axes: at most 7.7 % of a machine's"
        " bound",
    )


def test_those_that_change_sides_are_numbered_first_and_all_are_in_order_of_intensity():
    names = [name.label.text for name in machines_chart_of(pair(), labels=1).names]
    assert names == ["middle · 5.00 FLOP/byte"]
    names = [name.label.text.partition(" ")[0] for name in machines_chart_of(pair()).names]
    assert names == ["low", "middle", "high"]
    assert not machines_chart_of(pair(), labels=0).operators


def test_the_panel_says_what_the_summary_says():
    panel = machines_chart_of(pair()).panel
    narrow, wide = panel.rows
    assert {"narrow", "10.0 GB/s", "10.0", "1.04 µs", "76.9 %"} == {w.text for w in narrow.words}
    assert {"wide", "100 GB/s", "1.00", "856 ns", "98.1 %"} == {w.text for w in wide.words}
    assert [bound for bound, _ in narrow.sides] == [Bound.MEMORY, Bound.MEMORY, Bound.COMPUTE]
    assert [bound for bound, _ in wide.sides] == [Bound.MEMORY, Bound.COMPUTE, Bound.COMPUTE]
    (compute, box), (memory, rest) = narrow.bars
    assert (compute, memory) == (Bound.COMPUTE, Bound.MEMORY)
    whole = rest.right - box.left
    assert (box.right - box.left) / whole == pytest.approx(800 / 1040)


def test_times_stand_on_a_logarithmic_axis():
    panel = machines_chart_of(eight()).panel
    bounds = [each.eager_min_time_s for each in eight().machines]
    places = [row.time_x_pt for row in panel.rows]
    assert None not in bounds and None not in places
    slopes = [
        (b - a) / math.log(t / s)  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        for (a, s), (b, t) in pairwise(zip(places, bounds, strict=True))
    ]
    assert slopes == pytest.approx([slopes[0]] * len(slopes))


def test_lines_in_one_place_take_turns():
    """h100 and h200 have the same peak and different memories; the others are alone."""
    roofs = {roof.name: roof for roof in machines_chart_of(eight()).roofs}
    assert {roofs["h100"].ceiling_turns.turn, roofs["h200"].ceiling_turns.turn} == {0, 1}
    assert roofs["h100"].ceiling_turns.of == roofs["h200"].ceiling_turns.of == 2
    assert roofs["h100"].diagonal_turns.of == 1
    assert roofs["v100"].ceiling_turns.of == 1


def test_dots_in_one_place_can_all_be_seen():
    chart = machines_chart_of(eight())
    for operator in chart.operators:
        for a, b in combinations(operator.dots, 2):
            assert math.dist((a.x_pt, a.y_pt), (b.x_pt, b.y_pt)) > 0.6 * DOT_PT


def test_nearer_levels_are_drawn_and_named():
    chart = machines_chart_of(with_caches())
    assert [each.level for each in chart.roofs[0].diagonals] == ["L1", "L2", "L3", "DRAM"]
    assert [text.text for text in chart.level_labels] == ["L1", "L2", "L3"]
    assert chart.provenance.startswith("Ceilings: ")


def test_the_caches_of_many_machines_are_drawn_without_names():
    machines = [replace(full_profile(), name=f"machine {number}") for number in range(3)]
    chart = machines_chart_of(compare(resnet_like(), machines))
    assert [len(each.diagonals) for each in chart.roofs] == [4, 4, 4]
    assert chart.level_labels == ()
    assert chart.provenance.startswith("Thin lines: caches. Ceilings: ")


def test_a_machine_without_ceilings_has_a_row_and_no_roof():
    chart = machines_chart_of(COMPARISONS["one without ceilings"])
    bare = chart.roofs[1]
    assert (bare.ceiling, bare.diagonals, bare.dots) == (None, (), ())
    row = chart.panel.rows[1]
    assert row.time_x_pt is None
    assert "–" in {word.text for word in row.words}
    assert {dot.machine for operator in chart.operators for dot in operator.dots} == {0}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("width", [720, 900])
def test_words_keep_apart_and_inside(name: str, width: int):
    chart = machines_chart_of(COMPARISONS[name], width_pt=width)
    words = [roof.label for roof in chart.roofs if roof.label]
    words += [operator.badge for operator in chart.operators]
    words += [*chart.panel.headings, *(label for _, label in chart.panel.ticks)]
    words += [word for row in chart.panel.rows for word in row.words]
    words += [label for _, label in chart.panel.key]
    words += [name.label for name in chart.names]
    words += [chart.band.label] if chart.band else []
    for label in words:
        assert label.box.left >= 0 and label.box.right <= width, label.text
        assert label.box.bottom >= 0 and label.box.top <= chart.height_pt, label.text
    for a, b in combinations(words, 2):
        assert not a.box.grown(-0.01).overlaps(b.box.grown(-0.01)), (a.text, b.text)
    for row in chart.panel.rows:
        marks = [box for _, box in row.bars]
        assert not any(box.grown(-0.01).overlaps(word.box) for box in marks for word in row.words)


@pytest.mark.parametrize("name", COMPARISONS)
def test_dots_stay_on_the_axes(name: str):
    chart = machines_chart_of(COMPARISONS[name])
    for operator in chart.operators:
        for dot in operator.dots:
            assert chart.frame.left < dot.x_pt < chart.frame.right
            assert chart.frame.bottom < dot.y_pt < chart.frame.top


def test_dots_in_one_place_stay_near_it():
    """Ten pairs of machines with one memory: on the diagonal all stand on 0.1 TB/s x intensity."""
    chart = machines_chart_of(COMPARISONS["twenty"])
    low = chart.operators[0]
    true = chart.y.pt(chart.x.value(low.line[-1][0]) * 100e9)
    assert len(low.dots) == 20
    assert max(abs(dot.y_pt - true) for dot in low.dots) <= DOT_PT


def test_operators_that_no_ceiling_gives_a_time_are_not_said_to_have_no_flop():
    assert machines_chart_of(COMPARISONS["none has ceilings"]).notes == (
        "Of 4 operators, 1 without FLOP and 3 that no ceiling gives a time have no place on the"
        " axes",
    )


def test_a_picture_without_room_is_refused():
    with pytest.raises(InputError, match="too narrow"):
        machines_chart_of(eight(), width_pt=360)


def test_the_first_eight_machines_have_colours_of_their_own_and_more_have_strokes():
    styles = roof_styles(20)
    assert len({style.colour for style in styles[:8]}) == 8
    assert not any(style.strokes for style in styles[:8])
    assert len(set(styles)) == 20


def test_equal_ridges_leave_no_band():
    twin = sheet("twin", 10e9, 1e9)
    assert machines_chart_of(compare(three_operators(), [NARROW, twin])).band is None
    assert machines_chart_of(compare(three_operators(), [NARROW, WIDE])).band is not None
