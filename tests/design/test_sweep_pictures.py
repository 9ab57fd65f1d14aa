"""Pictures of sweeps, and their reports."""

from __future__ import annotations

from typing import Any

import pytest

from roofline.core.blocks import Grid, View
from roofline.design.comparison.result import Comparison
from roofline.design.comparison.sweep_drawing import MOST_FACETS, can_be_lines, shade
from roofline.plots.figures import new_figure
from roofline.render.console import columns_that_fit, plain_text
from roofline.result import Result
from tests.sweep_examples import cell, known, ridge, swept, times


def grown(axes: str, names: tuple[str, ...] = ("standard", "separable")) -> Comparison:
    """Times that depend on the point: the first wins early, the others later."""
    count = sweep_count(axes)
    rows = [
        [cell(1.0 + 3 * i / count), *(cell(2.0 + 0.2 * k) for k in range(len(names) - 1))]
        for i in range(count)
    ]
    return swept(axes, rows, names)


def sweep_count(axes: str) -> int:
    from roofline.design.comparison.axes import grid_of

    return grid_of(axes).count


def drawn(result: Result) -> Any:
    figure = new_figure(10, 6.5)
    result.draw(figure)
    figure.draw_without_rendering()
    return figure


def notes_of(result: Result) -> str:
    return drawn(result).legends[0].get_title().get_text().replace("\n", " ")


def test_a_cell_has_the_color_of_its_winner_and_close_calls_are_hatched() -> None:
    result = times("a=1|2,b=1|2", (4.0, 1.0), (1.0, 4.0), (1.0, 1.0), (1.0, None))
    axes = drawn(result).axes[0]
    texts = {each.get_position(): each.get_text() for each in axes.texts}
    # Alike by how much they win, apart by who: blue, and vermilion.
    assert texts == {(0, 0): "4.0", (0, 1): "4.0", (1, 0): "1.0", (1, 1): "only standard"}
    image = (255 * axes.images[0].get_array()).round().astype(int)
    assert tuple(image[0][0]) == (0xD5, 0x5E, 0x00) and tuple(image[1][0]) == (0, 0x72, 0xB2)
    assert [each.get_xy() for each in axes.patches if each.get_hatch()] == [(0.5, -0.5)]
    assert "hatched" in notes_of(result) and "gray" in notes_of(result)


def test_shades_are_stronger_the_more_one_wins_by() -> None:
    whites = [int(shade("#0072b2", factor, 8.0)[1:3], 16) for factor in (1, 1.5, 3, 8, 20)]
    assert whites == sorted(whites, reverse=True) and whites[-1] == 0
    # A logarithmic scale: half of the way is the root.
    low, middle, high = (
        int(shade("#000000", factor, 16.0)[1:3], 16) for factor in (1.0, 4.0, 16.0)
    )
    assert middle == pytest.approx((low + high) / 2, abs=1)


def test_maps_beyond_a_dozen_are_left_out_and_said_to_be() -> None:
    result = grown("a=1:4:1,b=1:4:1,c=1|2|3|4,d=1:4:1")
    assert len(drawn(result).axes) == MOST_FACETS
    assert "4 of 16 maps not drawn: see the tables" in notes_of(result)


def test_one_axis_of_numbers_is_lines_one_of_words_a_map() -> None:
    assert can_be_lines(grown("a=1:64:x2"))
    assert can_be_lines(grown("a=1:64:x2,size=7"))
    assert not can_be_lines(grown("a=x|y"))
    assert not can_be_lines(grown("a=0:4:1"))
    assert not can_be_lines(grown("a=1|2,b=1|2"))


def test_lines_go_through_their_times_within_their_bands() -> None:
    result = times("a=1:8:x2", (1.0, 3.0), (2.0, 3.0), (4.0, None), (8.0, 3.0))
    axes = drawn(result).axes[0]
    dotted, first, _, _, second, _ = axes.lines
    assert list(zip(first.get_xdata(), first.get_ydata(), strict=True)) == [
        *((1.0, 1.0), (2.0, 2.0), (4.0, 4.0), (8.0, 8.0))
    ]
    assert list(second.get_xdata()) == [1.0, 2.0, 8.0]
    assert list(dotted.get_ydata())[3] == 4.0
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(0.9) and band[:, 1].max() == pytest.approx(8.8)
    assert [each.get_text() for each in axes.get_xticklabels()] == ["1", "2", "4", "8"]
    assert "gaps: " in notes_of(result)


def known_ridge(name: str = "near") -> Comparison:
    return ridge(
        known(name, 3.0, (8.0, 6.0)),
        known("beside", 3.01, (8.0, 6.0), has_caches=True),
        known("beyond", 100.0, (8.0, 9.0), has_caches=True),
        left_out=("old (no ceilings for float32)",),
        run="1x64x56x56 float32",
    )


def test_machines_stand_at_their_balance_with_names_apart() -> None:
    axes = drawn(known_ridge()).axes[0]
    names = {each.get_text(): each for each in axes.texts}
    assert names["near"].xy[0] == 3.0 and names["beside"].xy[0] == 3.01
    assert names["beside"].get_position()[0] - names["near"].get_position()[0] > 0.02
    assert "beyond" not in names and "beyond the axis: beyond" in notes_of(known_ridge())
    dots = [each for each in axes.collections if len(each.get_offsets()) == 1]
    hollow = [tuple(each.get_facecolor()[0][:3]) == (1.0, 1.0, 1.0) for each in dots]
    assert [float(each.get_offsets()[0][0]) for each in dots] == [3.0, 3.01]
    assert hollow == [True, False]
    assert "4.00 FLOP/B" in names
    assert list(axes.lines[1].get_ydata())[2] == 1.0


def test_the_table_of_two_axes() -> None:
    report = times(
        "channels=16|32|64,size=7|14", *[(3.0, 1.0)] * 3, (1.0, 1.04), (2.0, None), (1.0, 2.4)
    ).report()
    grid = next(each for each in report.blocks if isinstance(each, Grid))
    assert [each.heading for each in grid.columns] == ["", "16", "32", "64"]
    assert grid.title == "Fastest design: size down, channels across"
    assert grid.rows == (("7", "B 3.0", "B 3.0", "only A"), ("14", "B 3.0", "A 1.0~", "A 2.4"))
    changes = [each for each in report.blocks if isinstance(each, Grid)][-1]
    assert changes.title == "Fastest design along channels"


def test_wide_sweeps_fit_80_characters() -> None:
    report = grown("channels=1:2048:x2,size=7:112:x2").report()
    grids = [each for each in report.blocks if isinstance(each, Grid)]
    for grid in grids[:2]:
        widths = columns_that_fit(grid, 80)
        assert len(widths) == len(grid.columns)
        assert sum(widths.values()) + 3 * (len(widths) - 1) <= 80


def test_the_table_of_one_axis_has_times_and_intervals() -> None:
    text = str(times("channels=16|32", (3.0, 1.0), (1.0, None)))
    assert "3.0 (2.7–3.3) s" in text and "cannot be built" in text and "B 3.0" in text
    assert "80 % interval" in text


def test_the_report_of_a_ridge_says_that_there_are_no_predictions() -> None:
    text = str(known_ridge())
    assert "minimum times only" in text
    assert "below 4.00 FLOP/B, b has the lowest minimum time" in text
    text = plain_text(known_ridge().report(View(verbose=True)))
    assert "machines left out: old (no ceilings for float32)" in text
