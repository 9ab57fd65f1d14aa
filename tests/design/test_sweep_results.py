"""Who wins a point, what is said of all of them, and the tables of numbers."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.design.comparison.cells import Cell, verdict_of
from roofline.design.comparison.result import Comparison
from roofline.design.comparison.sweeps import changes_of
from roofline.plots.figures import new_figure
from tests.builders import ceiling, level, profile
from tests.sweep_examples import cell, swept, times


def test_the_lower_prediction_wins() -> None:
    found = verdict_of([cell(3.0), cell(1.5)], 0)
    assert (found.winner, found.ratio, found.is_close, found.basis) == (1, 2.0, False, "predicted")
    assert found.factor == 2.0


def test_where_the_reference_wins_the_factor_is_over_the_next() -> None:
    found = verdict_of([cell(1.0), cell(4.0), cell(3.0)], 0)
    assert (found.winner, found.ratio) == (0, pytest.approx(1 / 3))
    assert found.factor == pytest.approx(3.0)


def test_ratios_whose_interval_holds_1_are_too_close_to_call() -> None:
    # -10 % and +10 % are 0.1054 and 0.0953 as logarithms, together 0.1421: a factor of 1.1527.
    assert verdict_of([cell(1.15), cell(1.0)], 0).is_close
    assert not verdict_of([cell(1.16), cell(1.0)], 0).is_close
    of_three = verdict_of([cell(1.15), cell(1.0), cell(5.0)], 0)
    assert (of_three.winner, of_three.rivals) == (1, (0,))


def test_bounds_are_compared_where_one_is_not_predicted() -> None:
    unknown = replace(cell(1.0, eager_min_time_s=2.0), predicted_s=None, predicted_low_s=None)
    found = verdict_of([unknown, cell(9.0, eager_min_time_s=1.0)], 0)
    assert (found.winner, found.ratio, found.basis, found.is_close) == (1, 2.0, "bound", False)
    assert verdict_of([unknown, cell(9.0, eager_min_time_s=1.95)], 0).is_close


def test_what_cannot_be_built_takes_no_part() -> None:
    assert verdict_of([cell(None), cell(1.0)], 0).winner is None
    found = verdict_of([cell(None), cell(3.0), cell(1.0)], 0)
    # Who refers to the reference has no ratio without it.
    assert (found.winner, found.ratio, found.factor) == (2, None, None)
    assert verdict_of([Cell(flop=1), Cell(flop=1)], 0).winner is None


@given(
    st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=5), st.integers(0, 4), st.floats(0.0, 0.9)
)
def test_a_verdict_names_the_least_and_is_never_below_1(
    seconds: list[float], reference: int, wide: float
) -> None:
    found = verdict_of([cell(each, wide=wide) for each in seconds], reference % len(seconds))
    assert found.winner is not None and seconds[found.winner] == min(seconds)
    assert found.factor is not None and found.factor >= 1
    assert found.winner not in found.rivals


def test_the_sentence_of_a_corner() -> None:
    # Slower only at channels up to 32 and size 7.
    result = times(
        "channels=16|32|64,size=7|14",
        *((1.0, 1.4), (3.0, 1.0), (1.0, 1.3), (3.0, 1.0), (2.0, 1.0), (4.0, 1.0)),
    )
    assert result.sentences == (
        "separable wins everywhere but at channels ≤ 32 and size 7;"
        " there it is up to 1.4 × slower than standard",
    )
    assert result.sentences[0].startswith("separable wins everywhere but")


def test_the_sentences_of_all_and_of_none() -> None:
    assert times("a=1|2", (2.0, 1.0), (8.0, 1.0)).sentences == (
        "separable wins at all 2 points, 2.0 to 8.0 × faster",
    )
    assert times("a=1|2", (1.0, 1.0), (1.0, 1.0)).sentences == (
        "too close to call at all 2 points",
    )
    assert times("a=1", (1.0, None)).sentences == ()


def test_the_sentences_of_a_mixture() -> None:
    result = times("channels=1|2|4|8", (1.0, 2.0), (1.0, 1.0), (3.0, 1.0), (4.0, 1.0))
    assert result.sentences == (
        "separable wins at 2 of 4 points, everywhere at channels ≥ 4, 3.0 to 4.0 × faster",
        "standard wins at 1, everywhere at channels 1, 2.0 × faster",
        "1 is too close to call, everywhere at channels 2",
    )


def test_of_three_it_is_said_between_whom_it_is_close() -> None:
    rows = [[cell(9.0), cell(1.0), cell(1.0)], [cell(1.0), cell(1.0), cell(1.0)]]
    result = swept("a=1|2", rows, ("x", "y", "z"))
    assert result.sentences == (
        "too close to call at all 2 points (between y and z at 1, all of them at 1)",
    )


def test_long_names_are_letters_in_sentences() -> None:
    long = "conv2d({channels},{channels},3,padding=1)"
    rows = [[cell(2.0), cell(1.0)]]
    assert swept("a=1", rows, (long, "b")).sentences == ("B wins at the only point, 2.0 × faster",)


def test_changes_along_a_line_neighbours_together() -> None:
    result = times(
        "channels=1|2|4,size=7|14|28",
        *((1.0, 2.0), (1.0, 2.0), (2.0, 1.0)),
        *((1.0, 1.0), (1.0, 1.0), (2.0, 1.0)),
        *((2.0, 1.0), (2.0, 1.0), (2.0, 1.0)),
    )
    found = changes_of(result, "channels")
    # At size 28 nothing changes, so there is no line of it.
    assert found == [("size ≤ 14", "standard up to channels 1, too close at 2, separable from 4")]


def test_reasons_are_said_once() -> None:
    result = times("c=1|2|3", (1.0, None), (1.0, None), (1.0, 2.0))
    assert result.problems == (
        "separable cannot be built at 2 of 3 points: groups must divide channels",
    )


def test_numbers_stand_in_the_same_rows_everywhere() -> None:
    result = times("channels=16|32,size=7", (3.0, 1.0), (1.0, None))
    frame = result.to_frame()
    assert list(frame.columns) == list(result.columns)
    assert frame["predicted_s"].tolist()[:3] == [3.0, 1.0, 1.0]
    assert frame["predicted_s"].isna().tolist() == [False, False, False, True]
    assert frame["flop"].dtype == "Int64" and frame["is_best"].dtype == "boolean"
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert [row["predicted_s"] for row in rows] == ["3.0", "1.0", "1.0", ""]
    assert rows[3]["problem"] == "groups must divide channels"
    assert [row["is_best"] for row in rows] == ["false", "true", "", ""]
    data = json.loads(result.to_json())
    assert data["axes"] == {"channels": [16, 32], "size": [7]}
    assert [row["predicted_s"] for row in data["rows"]] == [3.0, 1.0, 1.0, None]
    assert [each["winner"] for each in data["points"]] == ["separable", None]
    assert data["points"][0]["reference_over_best_other"] == 3.0
    assert data["hardware"][0]["name"] == "test"


def memory(*by_point: tuple[int, int], capacity_bytes: int | None = 100) -> Comparison:
    """A standard design of 2 s and a separable one of 1 s, which keep so many bytes alive."""
    rows = [
        [
            replace(cell(time), peak_memory_bytes=byte, memory_capacity_bytes=capacity_bytes)
            for time, byte in zip((2.0, 1.0), pair, strict=True)
        ]
        for pair in by_point
    ]
    values = "|".join(str(value) for value in range(1, len(by_point) + 1))
    there = profile([ceiling(1e12)], [level("DRAM", capacity_bytes, {"read": {1: 1e10}})])
    return replace(swept(f"c={values}", rows), hardware=(there,))


def test_a_design_that_does_not_fit_wins_nowhere() -> None:
    result = memory((50, 100), (50, 101), (101, 101), (101, 100))
    assert [each.winner for each in result.verdicts] == [1, None, None, None]
    assert [[each.fits for each in cells] for cells in result.cells] == [
        [True, True],
        [True, False],
        [False, False],
        [False, True],
    ]
    assert result.problems == (
        "standard does not fit into memory at 2 of 4 points, everywhere at c ≥ 3",
        "separable does not fit into memory at 2 of 4 points, everywhere at c 2 to 3",
    )


def test_cells_of_what_does_not_fit_are_marked_in_table_and_files() -> None:
    result = memory((50, 100), (50, 101), (101, 101))
    text = str(result)
    table = text[text.index("winner") :].splitlines()
    rows = {line.split()[0]: line for line in table[1:4]}
    assert rows["1"].endswith("B 2.0")
    assert rows["2"].endswith("only A, B!")
    assert rows["3"].endswith("A!, B!")
    assert rows["3"].count("!") == 4
    found = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert [row["fits"] for row in found] == ["true", "true", "true", "false", "false", "false"]
    assert [row["is_best"] for row in found] == ["false", "true", "", "", "", ""]
    assert {row["memory_capacity_bytes"] for row in found} == {"100"}
    assert [row["peak_memory_bytes"] for row in found][:4] == ["50", "100", "50", "101"]
    assert list(result.to_frame()["fits"]) == [True, True, True, False, False, False]
    assert [row["fits"] for row in json.loads(result.to_json())["rows"]][3] is False


def test_unknown_capacity_is_said_once_and_marks_nothing() -> None:
    result = memory((50, 100), (50, 101), capacity_bytes=None)
    assert [each.winner for each in result.verdicts] == [1, 1]
    text = str(result)
    assert text.count("memory capacity not known: test") == 1
    assert "!" not in text
    assert result.to_frame()["fits"].isna().all()


def test_pictures_cross_what_does_not_fit() -> None:
    figure = new_figure(10, 6)
    memory((50, 100), (50, 101), (101, 101)).draw(figure)
    crosses = [each for each in figure.axes[0].lines if each.get_marker() == "x"]
    assert [list(each.get_xdata()) for each in crosses] == [[3.0], [2.0, 3.0]]  # pyright: ignore
    four = memory((50, 100), (50, 101), (101, 101), (100, 100))
    grid = replace(four, axes={"a": (1, 2), "b": (1, 2)})
    figure = new_figure(10, 6)
    grid.draw(figure)
    patches: Any = figure.axes[0].patches
    crossed = [each.get_xy() for each in patches if "x" in (each.get_hatch() or "")]
    assert sorted(crossed) == [(-0.5, 0.5), (0.5, -0.5)]
    texts = {each.get_position(): each.get_text() for each in figure.axes[0].texts}
    assert texts == {(0, 0): "2.0", (0, 1): "only standard", (1, 1): "2.0"}
