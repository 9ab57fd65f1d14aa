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
from roofline.design.comparison.sweeps import winner_changes
from roofline.plots.figures import new_figure
from tests.builders import ceiling, level, profile
from tests.sweep_examples import cell, swept, times

BOUND = Cell(eager_min_time_s=2.0, predicted_high_s=1.1)


@pytest.mark.parametrize(
    ("cells", "winner", "ratio", "factor", "rivals", "basis"),
    [
        ([cell(3.0), cell(1.5)], 1, 2.0, 2.0, (), "predicted"),
        # Where the reference wins, the factor is over the next.
        ([cell(1.0), cell(4.0), cell(3.0)], 0, 1 / 3, 3.0, (), "predicted"),
        # -10 % and +10 % are 0.1054 and 0.0953 as logarithms, together 0.1421: a factor of 1.1527.
        ([cell(1.15), cell(1.0)], 1, 1.15, 1.15, (0,), "predicted"),
        ([cell(1.16), cell(1.0)], 1, 1.16, 1.16, (), "predicted"),
        ([cell(1.15), cell(1.0), cell(5.0)], 1, 1.15, 1.15, (0,), "predicted"),
        # Where one is not predicted, bounds are compared: within 5 % they are too close.
        ([BOUND, cell(9.0, eager_min_time_s=1.0)], 1, 2.0, 2.0, (), "bound"),
        ([BOUND, cell(9.0, eager_min_time_s=1.95)], 1, 2 / 1.95, 2 / 1.95, (0,), "bound"),
        # What cannot be built takes no part; who refers to it has no ratio.
        ([cell(None), cell(1.0)], None, None, None, (), ""),
        ([cell(None), cell(3.0), cell(1.0)], 2, None, None, (), "predicted"),
        ([Cell(flop=1), Cell(flop=1)], None, None, None, (), ""),
    ],
)
def test_who_wins_a_point(
    cells: list[Cell],
    winner: int | None,
    ratio: float | None,
    factor: float | None,
    rivals: tuple[int, ...],
    basis: str,
) -> None:
    found = verdict_of(cells, 0)
    assert (found.winner, found.rivals, found.basis) == (winner, rivals, basis)
    assert (found.ratio, found.factor) == (pytest.approx(ratio), pytest.approx(factor))
    assert found.is_close == bool(rivals)


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


CORNER = ((1.0, 1.4), (3.0, 1.0), (1.0, 1.3), (3.0, 1.0), (2.0, 1.0), (4.0, 1.0))
ONE, NINE = cell(1.0), cell(9.0)


@pytest.mark.parametrize(
    ("result", "sentences"),
    [
        (
            times("channels=16|32|64,size=7|14", *CORNER),
            [
                "separable is fastest except at channels ≤ 32 and size 7"
                " (up to 1.4× slower there than standard)"
            ],
        ),
        (
            times("a=1|2", (2.0, 1.0), (8.0, 1.0)),
            ["separable is fastest at all 2 points, 2.0 to 8.0× faster"],
        ),
        (times("a=1|2", (1.0, 1.0), (1.0, 1.0)), ["no significant difference at all 2 points"]),
        (times("a=1", (1.0, None)), []),
        (
            times("channels=1|2|4|8", (1.0, 2.0), (1.0, 1.0), (3.0, 1.0), (4.0, 1.0)),
            [
                "separable is fastest at 2 of 4 points (all points with channels ≥ 4),"
                " 3.0 to 4.0× faster",
                "standard is fastest at 1 (all points with channels 1), 2.0× faster",
                "no significant difference at 1 (all points with channels 2)",
            ],
        ),
        (
            swept("a=1|2", [[NINE, ONE, ONE], [ONE, ONE, ONE]], ("x", "y", "z")),
            ["no significant difference at all 2 points (between y and z at 1, all of them at 1)"],
        ),
        # Long names are letters.
        (
            swept("a=1", [[cell(2.0), ONE]], ("conv2d({channels},{channels},3,padding=1)", "b")),
            ["B is fastest at the only point, 2.0× faster"],
        ),
    ],
)
def test_who_wins_where_in_sentences(result: Comparison, sentences: list[str]) -> None:
    assert list(result.sentences) == sentences


def test_changes_along_a_line_neighbours_together() -> None:
    result = times(
        "channels=1|2|4,size=7|14|28",
        *((1.0, 2.0), (1.0, 2.0), (2.0, 1.0)),
        *((1.0, 1.0), (1.0, 1.0), (2.0, 1.0)),
        *((2.0, 1.0), (2.0, 1.0), (2.0, 1.0)),
    )
    found = winner_changes(result, "channels")
    # At size 28 nothing changes, so there is no line of it.
    assert found == [
        ("size ≤ 14", "standard up to channels 1, not significant at 2, separable from 4")
    ]


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
        "standard does not fit into memory at 2 of 4 points (all points with c ≥ 3)",
        "separable does not fit into memory at 2 of 4 points (all points with c 2 to 3)",
    )


def test_cells_of_what_does_not_fit_are_marked_in_table_and_files() -> None:
    result = memory((50, 100), (50, 101), (101, 101))
    text = str(result)
    table = text[text.index("Times by c") :].splitlines()
    rows = {line.split()[0]: line for line in table[2:5]}
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
