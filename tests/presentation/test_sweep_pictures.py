"""Geometry of the pictures of sweeps, and their reports."""

from __future__ import annotations

import itertools
import math

import pytest

from roofline.design.sweeps.result import SweepResult
from roofline.design.sweeps.ridge import Crossing, KnownMachine, RidgeSweep
from roofline.foundation.blocks import Grid
from roofline.presentation.charts.labels import Box
from roofline.presentation.charts.sweep_cells import MOST_FACETS, shade, sweep_map_of
from roofline.presentation.charts.sweep_hatching import hatching
from roofline.presentation.charts.sweep_lines import apart, can_be_lines, lines_chart_of
from roofline.presentation.charts.sweep_ridge import ridge_chart_of
from roofline.presentation.reports.ridge_report import ridge_report
from roofline.presentation.reports.sweep_report import sweep_report
from roofline.presentation.sweep_output import render_sweep
from roofline.render.console import columns_that_fit, plain_text
from tests.sweep_examples import cell, machine, swept, times

HOSTILE = "<script>alert(1)</script>\x1b[31m\nnext"


def grown(axes: str, names: tuple[str, ...] = ("standard", "separable")) -> SweepResult:
    """Times that depend on the point: the first wins early, the others later."""
    count = sweep_count(axes)
    rows = [
        [cell(1.0 + 3 * i / count), *(cell(2.0 + 0.2 * k) for k in range(len(names) - 1))]
        for i in range(count)
    ]
    return swept(axes, rows, names)


def sweep_count(axes: str) -> int:
    from roofline.design.sweeps.spec import grid_of

    return grid_of(axes).count


@pytest.mark.parametrize(
    "axes",
    ["a=1:64:x2,b=7:42:+7", "a=1:64:x2,b=7|14,c=1|4|16", "a=x|y|z", "a=1:90:1,b=1:3:1"],
)
@pytest.mark.parametrize("names", [("a", "b"), ("one", "two", "three" * 30)])
def test_cells_tile_their_frame_and_nothing_leaves_the_sheet(
    axes: str, names: tuple[str, ...]
) -> None:
    chart = sweep_map_of(grown(axes, names))
    for facet in chart.facets:
        area = sum(
            (each.box.right - each.box.left) * (each.box.top - each.box.bottom)
            for each in facet.cells
        )
        frame = facet.frame
        assert area == pytest.approx((frame.right - frame.left) * (frame.top - frame.bottom))
        assert all(frame.grown(1e-6).holds(each.box) for each in facet.cells)
        for label in facet.labels:
            assert label.box.left >= 0 and label.box.top <= chart.height_pt
            assert not any(label.box.overlaps(each.box) for each in facet.cells)
    frames = [each.frame for each in chart.facets]
    for i, each in enumerate(frames):
        assert each.left >= 0 and each.right <= chart.width_pt and each.bottom > 0
        assert not any(each.overlaps(other) for other in frames[:i])
    for label in chart.key_labels:
        assert label.box.right <= chart.width_pt
        assert not any(label.box.overlaps(each) for each in frames)


def test_a_cell_has_the_colour_of_its_winner_and_close_calls_are_hatched() -> None:
    chart = sweep_map_of(times("a=1|2,b=1|2", (4.0, 1.0), (1.0, 4.0), (1.0, 1.0), (1.0, None)))
    (facet,) = chart.facets
    first, second, third, fourth = facet.cells
    # Alike by how much they win, apart by who: blue, and vermilion.
    assert (first.text, second.text, third.text, fourth.text) == (
        *("4.0", "4.0", "1.0"),
        "only standard",
    )
    assert first.colour == "#d55e00" and second.colour == "#0072b2"
    assert [each.is_hatched for each in facet.cells] == [False, False, True, False]
    assert any("hatched" in each for each in chart.notes)
    assert any("grey" in each for each in chart.notes)


def test_hatching_slants_within_its_box() -> None:
    for box in (Box(10, 20, 94, 54), Box(0, 0, 15, 80), Box(0, 0, 3, 3)):
        lines = hatching(box)
        for each in lines:
            assert each.x1 - each.x0 == pytest.approx(each.y1 - each.y0)
            assert box.grown(1e-9).holds(Box(each.x0, each.y0, each.x1, each.y1))
            # Every line goes from one edge to another.
            assert min(each.x0 - box.left, each.y0 - box.bottom) == pytest.approx(0)
            assert min(box.right - each.x1, box.top - each.y1) == pytest.approx(0)


def test_shades_are_stronger_the_more_one_wins_by() -> None:
    whites = [int(shade("#0072b2", factor, 8.0)[1:3], 16) for factor in (1, 1.5, 3, 8, 20)]
    assert whites == sorted(whites, reverse=True) and whites[-1] == 0
    # A logarithmic scale: half of the way is the root.
    low, middle, high = (
        int(shade("#000000", factor, 16.0)[1:3], 16) for factor in (1.0, 4.0, 16.0)
    )
    assert middle == pytest.approx((low + high) / 2, abs=1)


def test_maps_beyond_a_dozen_are_left_out_and_said_to_be() -> None:
    chart = sweep_map_of(grown("a=1:4:1,b=1:4:1,c=1|2|3|4,d=1:4:1"))
    assert len(chart.facets) == MOST_FACETS
    assert "4 of 16 maps are not drawn: see the tables" in chart.notes


def test_one_axis_of_numbers_is_lines_one_of_words_a_map() -> None:
    assert can_be_lines(grown("a=1:64:x2"))
    assert can_be_lines(grown("a=1:64:x2,size=7"))
    assert not can_be_lines(grown("a=x|y"))
    assert not can_be_lines(grown("a=0:4:1"))
    assert not can_be_lines(grown("a=1|2,b=1|2"))


def test_lines_go_through_their_times_within_their_bands() -> None:
    result = times("a=1:8:x2", (1.0, 3.0), (2.0, 3.0), (4.0, None), (8.0, 3.0))
    chart = lines_chart_of(result)
    first, second = chart.lines
    assert first.points == ((1.0, 1.0), (2.0, 2.0), (4.0, 4.0), (8.0, 8.0))
    assert [x for x, _ in second.points] == [1.0, 2.0, 8.0]
    assert first.band[0] == (1.0, pytest.approx(0.9), pytest.approx(1.1))
    assert first.bounds[3] == (8.0, 4.0)
    # On log-log paper what doubles with its axis is straight.
    steps = [
        chart.y.pt(y) - chart.x.pt(x) * chart.y.pt_per_decade / chart.x.pt_per_decade
        for x, y in first.points
    ]
    assert max(steps) == pytest.approx(min(steps))
    assert [text for _, text in chart.x.ticks] == ["1", "2", "4", "8"]
    assert not chart.labels[0].box.overlaps(chart.labels[1].box)
    assert any("gap" in each for each in chart.notes)


def test_places_are_apart_and_in_order() -> None:
    found = apart({0: 5.0, 1: 5.0, 2: 5.5, 3: 50.0}, gap_pt=10.0, low=0.0, high=100.0)
    places = list(found.values())
    assert list(found) == [0, 1, 2, 3]
    assert all(b - a >= 10.0 - 1e-9 for a, b in itertools.pairwise(places))
    crowded = apart(dict.fromkeys(range(30), 99.0), gap_pt=10.0, low=0.0, high=100.0)
    assert min(crowded.values()) >= -1e-9 and max(crowded.values()) <= 100.0


def ridge(name: str = "near") -> RidgeSweep:
    return RidgeSweep(
        designs=("a", "b"),
        base=machine(),
        threads=1,
        dtype="float32",
        balances=(1.0, 2.0, 4.0, 8.0),
        bound_s=((8.0, 2.0), (8.0, 4.0), (8.0, 8.0), (8.0, 16.0)),
        peak_memory_byte=(1000, 2000),
        crossings=(Crossing(balance=4.0, before=1, after=0),),
        machines=(
            KnownMachine(name=name, balance=3.0, bound_s=(8.0, 6.0), has_caches=False),
            KnownMachine(name="beside", balance=3.01, bound_s=(8.0, 6.0), has_caches=True),
            KnownMachine(name="beyond", balance=100.0, bound_s=(8.0, 9.0), has_caches=True),
        ),
        left_out=("old (no ceilings for float32)",),
        run="1x64x56x56 float32",
    )


def test_machines_stand_at_their_balance_with_names_apart() -> None:
    chart = ridge_chart_of(ridge())
    first, second = chart.machines
    assert first.lead.x0 == pytest.approx(chart.x.pt(3.0))
    assert not first.label.box.overlaps(second.label.box)
    assert "beyond the axis: beyond" in chart.notes
    assert [(each.balance, each.is_hollow) for each in chart.dots] == [
        (3.0, True),
        (3.01, False),
        (100.0, False),
    ]
    assert chart.crossings[0][0] == 4.0 and chart.crossings[0][1].text == "4.00 FLOP/byte"
    assert math.isclose(chart.lines[1].points[2][1], 1.0)


def test_the_table_of_two_axes() -> None:
    report = sweep_report(
        times(
            "channels=16|32|64,size=7|14", *[(3.0, 1.0)] * 3, (1.0, 1.04), (2.0, None), (1.0, 2.4)
        )
    )
    grid = next(each for each in report.blocks if isinstance(each, Grid))
    assert [each.heading for each in grid.columns] == ["", "16", "32", "64"]
    assert grid.title == "size down, channels across"
    assert grid.rows == (
        ("7", "B 3.0", "B 3.0", "only A"),
        ("14", "B 3.0", "A 1.0~", "A 2.4"),
    )
    changes = report.blocks[3]
    assert isinstance(changes, Grid)
    assert changes.title == "Where the winner changes along channels"


def test_wide_sweeps_fit_80_characters() -> None:
    report = sweep_report(grown("channels=1:2048:x2,size=7:112:x2"))
    grids = [each for each in report.blocks if isinstance(each, Grid)]
    for grid in grids[:2]:
        widths = columns_that_fit(grid, 80)
        assert len(widths) == len(grid.columns)
        assert sum(widths.values()) + 3 * (len(widths) - 1) <= 80


def test_the_table_of_one_axis_has_times_and_intervals() -> None:
    text = plain_text(sweep_report(times("channels=16|32", (3.0, 1.0), (1.0, None))))
    assert "3.0 (2.7–3.3) s" in text and "cannot be built" in text and "B 3.0" in text
    assert "10-90 % interval" in text


def test_the_report_of_a_ridge_says_that_there_are_no_predictions() -> None:
    text = plain_text(ridge_report(ridge()))
    assert "no predictions for machines that do not exist" in text
    assert "below 4.00 FLOP/byte, b has the lowest bound" in text
    assert "not on the axis: old (no ceilings for float32)" in text


@pytest.mark.parametrize("format", ["json", "csv", "md", "html", "svg", "png"])
@pytest.mark.parametrize("which", ["map", "lines", "ridge"])
def test_every_format_of_every_kind_with_hostile_names(format: str, which: str) -> None:
    names = (HOSTILE, "b$x$" + HOSTILE)
    result = {
        "map": lambda: grown("a=1|2,b=x|y", names),
        "lines": lambda: grown("a=1|2|4", names),
        "ridge": lambda: ridge(HOSTILE),
    }[which]()
    content = render_sweep(result, format)  # pyright: ignore[reportArgumentType]
    assert content
    if isinstance(content, str) and format in ("html", "svg"):
        assert "<script>alert" not in content
    if isinstance(content, str) and format != "json":
        assert "\x1b" not in content or format == "csv"
