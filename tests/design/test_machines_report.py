"""What is said of one model on several machines, in every form and width."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from roofline.core.blocks import By, Choice, Grid, View
from roofline.core.units import format_s
from roofline.design.comparison.cells import letter
from roofline.design.comparison.machine_blocks import machines_grid
from roofline.design.comparison.result import Comparison
from roofline.render.console import grid_that_fits, plain_text, print_report
from tests.design.machine_comparisons import (
    comparisons,
    eight,
    pair,
    partly_predicted,
    predicted_on_wide,
    with_caches,
)

COMPARISONS = comparisons()
everything = pytest.mark.parametrize("name", COMPARISONS)
WIDTHS = (80, 120, 200)


def on_terminal(comparison: Comparison, width: int, *, by: By = "operator", top: int = 10) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    print_report(comparison.report(View(by=by, top=top)), console)
    return stream.getvalue()


def grids(comparison: Comparison, *, by: By = "operator", top: int = 10) -> list[Grid]:
    """The fullest layout of each table."""
    blocks = comparison.report(View(by=by, top=top)).blocks
    return [each.grids[0] for each in blocks if isinstance(each, Choice)]


def test_the_verdict_comes_first():
    assert pair().report().headline == (
        "example: 1 of 4 operators is compute-bound on wide and memory-bound on narrow"
    )


def test_sides_and_times_by_hand():
    """800 bytes take 80 ns or 8 ns; 4000 and 80000 FLOP take 40 and 800 ns."""
    changing, same = grids(pair())
    assert changing.title == "Operators with different limiters by share"
    assert [(row[1], *row[-3:]) for row in changing.rows] == [
        ("middle", "memory 80.0 ns", "compute 40.0 ns", "7.7 %")
    ]
    assert [(row[1], *row[-3:]) for row in same.rows] == [
        ("high", "compute 800 ns", "compute 800 ns", "93.5 %"),
        ("low", "memory 80.0 ns", "memory 8.00 ns", "7.7 %"),
        ("copy", "memory 80.0 ns", "memory 8.00 ns", "7.7 %"),
    ]
    assert same.sums[-1][-3:] == ("1.04 µs", "856 ns", "100 %")


def test_what_is_left_out_is_one_row_and_the_total_is_that_of_all():
    _, same = grids(pair(), top=1)
    assert [row[0] for row in same.sums] == ["2 more", "total"]
    assert same.sums[0][-3:-1] == ("160 ns", "16.0 ns")


def test_groups_say_what_most_of_their_time_is_bound_by():
    changing, same = grids(pair(), by="module")
    assert [row[0] for row in (*changing.rows, *same.rows)] == ["middle", "high", "low", "copy"]
    (whole,) = grids(pair(), by="type")
    assert whole.rows[0][:2] == ("pointwise", "3")
    assert whole.rows[0][2:4] == ("mostly compute 960 ns", "mostly compute 848 ns")


def test_predictions_by_hand():
    comparison = predicted_on_wide()
    machines = machines_grid(comparison)
    assert machines.columns[-1].heading == "predicted"
    assert [row[-1] for row in machines.rows] == ["bound only", "11 (10–13) s"]
    changing, same = grids(comparison)
    assert same.columns[-2].heading == "predicted on wide"
    assert [(row[1], row[-2]) for row in (*changing.rows, *same.rows)] == [
        ("middle", "3.0 s"),
        ("high", "4.0 s"),
        ("low", "2.0 s"),
        ("copy", "1.0 s"),
    ]
    assert same.sums[-1][-2] == "10 s"
    assert "predicted on wide: 11 s" in plain_text(comparison.report())


def test_what_is_not_predicted_says_so():
    machines = machines_grid(partly_predicted())
    assert [row[-1] for row in machines.rows] == ["–", "12 ms", *["–"] * 6]
    grid = grids(partly_predicted(), by="operator", top=1000)[-1]
    at = [each.heading for each in grid.columns].index("predicted on v100")
    cells = {row[1]: row[at] for row in grid.rows}
    assert cells["maxpool"] == "bound only"
    assert grid.sums[-1][at] == "–"


def test_machines_have_all_minimum_times_by_name():
    comparison = pair()
    grid = machines_grid(comparison)
    headings = [each.heading for each in grid.columns]
    first = headings.index("eager")
    assert headings[first : first + 3] == ["eager", "fused", "model"]
    assert "minimum times" in grid.title
    for row, machine in zip(grid.rows, comparison.machines, strict=True):
        expected = (machine.eager_min_time_s, machine.fused_min_time_s, machine.model_min_time_s)
        assert row[first : first + 3] == tuple(map(format_s, expected))


def test_without_predictions_there_is_no_column_for_them():
    assert "predicted" not in " ".join(each.heading for each in machines_grid(pair()).columns)
    assert not any("predicted" in each.heading for each in grids(pair())[0].columns)


def test_narrow_terminals_show_bound_and_prediction():
    text = on_terminal(predicted_on_wide(), 80)
    line = next(line for line in text.splitlines() if "11 (10–13) s" in line)
    assert "856 ns" in line
    assert "wide" in line


def test_who_knows_which_levels_is_said_once():
    text = plain_text(with_caches().report())
    assert text.count("one memory level") == 1
    assert "narrow, wide: one memory level" in text
    assert "example-2core has L1 to DRAM" in text
    assert "hardware 'narrow' has ceilings for DRAM only" not in text


@everything
@pytest.mark.parametrize("by", ["operator", "module", "type"])
@pytest.mark.parametrize("width", WIDTHS)
def test_tables_fit_the_terminal(name: str, by: By, width: int):
    machines = COMPARISONS[name]
    lines = on_terminal(machines, width, by=by).splitlines()
    assert max(map(len, lines)) <= width
    # Cut words end in an ellipsis; a long path of a module may begin with one.
    assert not any(re.search(r"\w…", line) for line in lines)
    assert "None" not in "".join(lines)


def test_narrow_terminals_show_a_letter_for_each_machine():
    text = on_terminal(eight(), 80)
    assert "A B C D E F G H" in text
    assert re.search(r"layer\S+ .* (C|M) (C|M) (C|M) (C|M) (C|M) (C|M) (C|M) (C|M) ", text)
    assert "C compute-, M memory-bound" in text


def test_wider_terminals_show_more():
    blocks = eight().report().blocks
    choice = next(each for each in blocks if isinstance(each, Choice))
    layouts = [choice.grids.index(grid_that_fits(choice, width)) for width in (80, 140, 1000)]
    assert layouts == sorted(layouts, reverse=True)
    assert layouts[0] == len(choice.grids) - 1
    assert layouts[-1] == 0


def test_every_layout_tells_the_same_sides():
    blocks = eight().report(View(top=1000)).blocks
    for choice in (each for each in blocks if isinstance(each, Choice)):
        full, letters, keys, narrow = choice.grids
        count = len(eight().machine_names)
        for row, by_letter, by_key, short in zip(
            full.rows, letters.rows, keys.rows, narrow.rows, strict=True
        ):
            words = [cell.split()[0] for cell in row[-count - 1 : -1]]
            sides = "".join({"compute": "C", "memory": "M", "unknown": "?"}[each] for each in words)
            assert sides == "".join(cell[0] for cell in by_letter[-count:])
            assert sides == "".join(cell[0] for cell in by_key[-count:])
            assert sides == short[2].replace(" ", "")


def test_svg_names_every_machine_beside_its_roof():
    text = "".join(ElementTree.fromstring(eight().render("svg")).itertext())
    assert "h100 66.9 TFLOP/s" in text
    assert "between the ridge points" in text


def test_letters_go_on_after_z():
    assert [letter(i) for i in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]


def test_headings_name_the_level_of_an_intensity() -> None:
    """Analyses have that at the limiting level, comparisons that of operands."""
    comparison = with_caches()
    (first, *_) = comparison.analyses
    row = next(row for row in first.operators if row.flop and row.intensity_flop_per_byte)
    assert row.flop is not None
    headings = {
        column.heading.removesuffix(" (FLOP/B)")
        for each in grids(comparison)
        for column in each.columns
        if "AI" in column.heading
    }
    assert headings == {"Operand AI"}
    alone, by_type = (
        {column.heading for column in block.columns}
        for by in ("operator", "type")
        for block in first.report(View(by=by)).blocks
        if isinstance(block, Grid) and block.title.startswith(("Top", "Operator types"))
    )
    assert "Limiting AI" in alone and "Operand AI" in by_type
    assert "AI" not in alone | by_type
