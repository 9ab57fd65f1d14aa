"""What the report on a quantisation says: parts, layers, passes, widths, and what was found."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Literal

import pytest
from rich.console import Console

from roofline.analysis.words import saved_words
from roofline.design.advice.times import Time
from roofline.foundation.blocks import Facts, Grid, Notes
from roofline.presentation.reports.quantization_cells import (
    change,
    places_words,
    time_cell,
    time_change,
    times_faster,
    times_less,
)
from roofline.presentation.reports.quantization_findings import error_words, signed_percent
from roofline.presentation.reports.quantization_report import quantization_report
from roofline.presentation.reports.quantization_tables import layers_grid, passes_grid
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import BANDWIDTH_ONLY, Quantization, WhatIf
from roofline.render.console import print_report
from tests.presentation.quantizations import (
    bandwidth_only,
    hostile,
    layer,
    many,
    one_pass,
    part,
    passes,
    quantizations,
    sensitive,
    side,
    slower,
    swept,
    unknown,
    with_kernels,
)

TWO = LayerBits(weights=2, activations=2)
EIGHT = LayerBits(weights=8, activations=8)


def shown(quantization: Quantization, width: int = 80) -> str:
    """What a terminal of that width shows."""
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    print_report(quantization_report(quantization), console)
    return text.getvalue()


def grid_of(quantization: Quantization, title: str) -> Grid:
    blocks = quantization_report(quantization).blocks
    return next(each for each in blocks if isinstance(each, Grid) and each.title.startswith(title))


def titles(quantization: Quantization) -> list[str]:
    blocks = quantization_report(quantization).blocks
    return [each.title for each in blocks if isinstance(each, Grid | Notes)]


def facts(quantization: Quantization) -> dict[str, str]:
    blocks = quantization_report(quantization).blocks
    return dict(line for each in blocks if isinstance(each, Facts) for line in each.lines)


def tiny() -> WhatIf:
    """Hand-made: 100 kB and 100 µs of layers become 10 kB and 10 µs."""
    before = side(bound_s=100e-6, weight_byte=40_000, input_byte=30_000, output_byte=30_000)
    after = side(
        bound_s=10e-6,
        weight_byte=2_500,
        input_byte=3_750,
        output_byte=3_750,
        ceiling="int8 avx512-vnni dot",
    )
    return WhatIf(
        policy=Policy(),
        layers=(layer("fc", TWO, "last", before=before, after=after),),
        passes=(),
        parts=(
            part("layers", 1, 100_000, 10_000, 100e-6, 10e-6),
            part("requantization", 1, 0, 5_000, None, 1e-6),
            part("conversions", 0, 0, 0, 0.0, 0.0),
            part("shortcuts", 2, 20_000, 20_000, 20e-6, 20e-6),
            part("others", 3, 10_000, 10_000, 5e-6, 5e-6),
        ),
        layer_byte_before=100_000,
        layer_byte_after=10_000,
        model_byte_before=40_000,
        model_byte_after=2_504,
        bound_before_s=125e-6,
        bound_after_s=35e-6,
        separate_bound_s=36e-6,
        before=None,
        after=None,
    )


def of(what_if: WhatIf) -> Quantization:
    return replace(bandwidth_only(), what_ifs=(what_if,))


def test_changes_are_said_once_where_nothing_changes() -> None:
    assert change(2_000, 500, lambda each: f"{each:g}") == "2000 → 500"
    assert change(7, 7, str) == "7"
    assert change(None, 3, str) == "– → 3"
    assert change(None, None, str) == "–"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (2_689_296, 193_000, "13.9 × less"),
        (2_689_296, 295_000, "9.12 × less"),
        (3_200, 25, "128 × less"),
        (999.6, 100, "10.0 × less"),
        (100, 120, "1.20 × more"),
        (1000, 1001, "the same"),
        (0, 5, "more"),
        (5, 0, "less"),
        (None, 5, "–"),
    ],
)
def test_ratios_are_in_words(before: float | None, after: float | None, words: str) -> None:
    assert times_less(before, after) == words


def test_slower_is_said_to_be() -> None:
    assert times_faster(1.0, 1.2) == "1.20 × slower"
    assert times_faster(1.8, 1.0) == "1.80 × faster"


def test_times_are_in_two_digits_or_with_their_interval() -> None:
    before, after = Time(s=1.23e-3), Time(s=456e-6, low_s=400e-6, high_s=600e-6)
    assert time_change(before, after) == "1.2 ms → 460 µs"
    assert time_change(before, None) == "1.2 ms → –"
    assert time_cell(after) == "460 (400–600) µs"
    assert time_cell(None) == "–"


def test_places_are_the_first_and_the_last() -> None:
    assert places_words(["a", "a"]) == "a"
    assert places_words(["a", "b", "c"]) == "a … c"
    assert places_words([""]) == "(model)"
    long = "encoder.layers.11.self_attention.out"
    assert places_words([long, "fc"]) == "…11.self_attention.out … fc"


def test_the_pass_is_the_sum_of_its_parts_and_requantization_stands_apart() -> None:
    grid = grid_of(of(tiny()), "The pass in parts")
    assert [row[0] for row in grid.rows] == [
        "layers",
        "shortcuts",
        "others",
    ]
    assert grid.rows[0][1:] == (
        *("1", "100 kB → 10.0 kB", "10.0 × less", "100 µs → 10.0 µs"),
        BANDWIDTH_ONLY,
    )
    assert grid.rows[1][1:] == ("2", "20.0 kB", "the same", "20.0 µs", "–")
    # 130 kB before; 40 kB after, and 5 kB more where requantization is apart.
    assert grid.sums[0] == (
        *("the whole pass", "", "130 kB → 40.0 kB", "3.25 × less", "125 µs → 35.0 µs"),
        BANDWIDTH_ONLY,
    )
    assert grid.sums[1] == (
        *("requantisation apart", "1", "130 kB → 45.0 kB", "2.89 × less", "125 µs → 36.0 µs"),
        "–",
    )


def test_parts_that_are_predicted_have_their_times() -> None:
    timed = replace(
        tiny(),
        layers=(layer("fc", EIGHT),),
        parts=(
            part(
                *("layers", 1, 100_000, 25_000, 100e-6, 25e-6),
                before_time=Time(s=3e-4),
                after_time=Time(s=1e-4),
            ),
        ),
        before=Time(s=4e-4),
        after=Time(s=2e-4),
    )
    grid = grid_of(of(timed), "The pass in parts")
    assert grid.rows[0][-1] == "300 µs → 100 µs"
    assert grid.sums[0][-1] == "400 µs → 200 µs"
    assert len(grid.sums) == 1


def test_no_speed_is_claimed_where_there_is_no_kernel() -> None:
    # A prediction of the pass that came along by mistake is not shown either.
    text = shown(of(replace(tiny(), before=Time(s=1.0), after=Time(s=0.5))), 200)
    assert "500 ms" not in text and BANDWIDTH_ONLY in text


def test_a_layer_is_a_row() -> None:
    (row,) = grid_of(of(tiny()), "Layers").rows
    assert row == (
        *("fc", "last", "w2a2", "2-bit", "100 kB → 10.0 kB", "int8", "100 µs → 10.0 µs"),
        "DRAM read → int8 avx512-vnni dot",
        BANDWIDTH_ONLY,
    )


def test_times_are_never_cut_on_narrow_terminals() -> None:
    for timed in (with_kernels(), swept()):
        for line in shown(timed).splitlines():
            assert not re.search(r"\d ?[mµn]?s?…", line)
    assert re.search(r"bandwidth-only [a-z]*…", shown(bandwidth_only()))


def test_names_and_types_get_the_room_of_predictions_that_there_are_none_of() -> None:
    names = ("layer1.0.conv1", "layer4.1.conv2")
    untimed = tuple(layer(each, TWO) for each in names)
    for width in (80, 160):
        lines = shown(of(replace(tiny(), layers=untimed)), width).splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("Layers, before"))
        assert ("predicted" in lines[start + 1]) == (width == 160)
        assert "computed in" in lines[start + 1]
        assert any(line.startswith(names[0]) for line in lines[start:])
    timed = layer("fc", EIGHT, before=side(time=Time(s=3e-3)), after=side(time=Time(s=1e-3)))
    text = shown(of(replace(tiny(), layers=(*untimed, timed))))
    assert "3.0 ms → 1.0 ms" in text


def test_layers_with_a_kernel_have_predictions_and_floats_are_called_so() -> None:
    timed = layer(
        "a",
        EIGHT,
        before=side(time=Time(s=3e-3)),
        after=side(time=Time(s=1e-3), bound_s=5e-6),
    )
    rows = layers_grid(replace(tiny(), layers=(timed, layer("b", place="shortcut"))), 10).rows
    assert rows[0][-1] == "3.0 ms → 1.0 ms"
    assert rows[1][:4] == ("b", "shortcut", "float", "float")
    assert rows[1][4:] == ("6.00 kB", "float32", "10.0 µs", "DRAM read", "–")


def test_those_that_change_most_come_first_and_the_others_are_summed() -> None:
    def of_bound(name: str, after_s: float | None) -> object:
        return layer(name, TWO, after=side(bound_s=after_s, weight_byte=0))

    layers = [of_bound("a", 9e-6), of_bound("b", 2e-6), of_bound("c", 16e-6), of_bound("d", None)]
    grid = layers_grid(replace(tiny(), layers=tuple(layers)), 2)  # pyright: ignore[reportArgumentType]
    # By 8 µs, by 6 µs more, by 1 µs, and by an unknown time.
    assert [row[0] for row in grid.rows] == ["b", "c"]
    rest, every = grid.sums
    assert rest[0] == "2 more" and every[0] == "all 4"
    assert rest[4] == "12.0 kB → 10.0 kB"
    assert rest[6] == "20.0 µs → –"
    assert rest[8] == BANDWIDTH_ONLY


def test_top_says_how_many_layers_there_are() -> None:
    blocks = quantization_report(many(), top=3).blocks
    grid = next(each for each in blocks if isinstance(each, Grid) and "Layers" in each.title)
    assert len(grid.rows) == 3
    layers = len(many().what_if.layers)
    assert grid.sums[0][0] == f"{layers - 3} more"
    assert f": 3 of {layers} (--top {layers}), " in grid.title
    assert len(grid_of(many(), "Layers").rows) == 10


def test_passes_that_are_alike_are_one_row_and_kernels_of_their_own_come_first() -> None:
    grid = passes_grid(passes())
    assert [row[:3] for row in grid.rows] == [
        ("quantize", "float → 2-bit", "1"),
        ("dequantize", "2-bit → float", "1"),
        ("requantize", "accumulators → 2-bit", "2"),
        ("requantize", "accumulators → 8-bit", "1"),
    ]
    # Twice 4 kB, 250 B, 5 kFLOP and 100 ns.
    assert grid.rows[2][3:8] == ("8.00 kB", "500 B", "10.0 kFLOP", "200 ns", "–")
    assert grid.rows[2][8] == "the layer's"
    assert grid.rows[2][9] == "layer1.0.conv1 … layer1.1.conv1"
    assert grid.rows[0][8] == "its own"


def test_passes_of_unknown_bound_are_not_free() -> None:
    grid = passes_grid([one_pass("quantize", "a"), one_pass("quantize", "b", bound_s=None)])
    assert grid.rows[0][6] == "–"


def test_facts_say_sizes_types_and_shortcuts() -> None:
    said = facts(of(tiny()))
    assert said["Model size"] == "40.0 kB → 2.50 kB, 16.0 × less"
    assert said["Layers' traffic"].startswith("100 kB → 10.0 kB, 10.0 × less: each weight once")
    assert said["Computed in"] == (
        "int8: 1 layer (w2a2: bandwidth-only what-if, example-2core has no kernel)"
    )
    assert said["Shortcuts"] == "kept in floats · 2 additions 20.0 kB, the same"
    assert said["Policy"].endswith("shortcuts in full precision · a scale a layer")
    low = replace(
        tiny(),
        policy=Policy(shortcut="low", per_channel=True),
        layers=(layer("s", TWO, "shortcut"),),
    )
    assert facts(of(low))["Shortcuts"] == (
        "in few bits · 2 additions 20.0 kB, the same · 1 layer on them 6.00 kB, the same"
    )
    assert facts(of(low))["Policy"].endswith("a scale for each output channel")


def test_predictions_have_their_intervals_and_are_compared_where_both_are_there() -> None:
    before = Time(s=4e-3, low_s=3.5e-3, high_s=4.6e-3)
    after = Time(s=2e-3, low_s=1.8e-3, high_s=2.3e-3)
    eight = replace(tiny(), layers=(layer("fc", EIGHT),), before=before, after=after)
    assert facts(of(eight))["Predicted"] == "4.0 (3.5–4.6) ms → 2.0 (1.8–2.3) ms, 2.00 × faster"
    alone = facts(of(replace(eight, after=None)))["Predicted"]
    assert alone == "4.0 (3.5–4.6) ms as it is; none in few bits"
    two = facts(of(replace(tiny(), before=before, after=after)))["Predicted"]
    assert two == f"{alone}: {BANDWIDTH_ONLY}"
    assert "Predicted" not in facts(of(tiny()))


def test_models_without_shortcuts_have_no_line_on_them() -> None:
    plain = replace(tiny(), parts=(part("layers", 1, 1, 1, 1.0, 1.0),))
    assert "Shortcuts" not in facts(of(plain))
    nothing = replace(plain, layers=())
    assert facts(of(nothing))["Computed in"] == "nothing: no layer has weights"
    assert not any(title.startswith("Layers") for title in titles(of(nothing)))


def test_a_sweep_has_a_row_for_each_width_once() -> None:
    grid = grid_of(swept(), "Widths")
    assert [row[0] for row in grid.rows] == ["as it is", "w2a2", "w3a3", "w4a4", "w8a8", "w16a16"]
    by_bits = {row[0]: row for row in grid.rows}
    assert by_bits["w2a2"][6] == BANDWIDTH_ONLY
    assert by_bits["w8a8"][6].endswith("s")
    assert by_bits["w8a8"][7] == "int8, float32"
    assert not any(title.startswith("Widths") for title in titles(bandwidth_only()))


def test_companions_stand_beside_what_was_predicted() -> None:
    rows = grid_of(with_kernels(), "Timed here").rows
    assert rows[0] == (
        *("bfloat16", "w16a16", "4.00 ms", "5.00 ms", "0.80 (0.78–0.83)", "7"),
        *("4.2 ms → 5.5 ms", "+10 %", "0.0042"),
    )
    # One round has no interval; what was not predicted is not off.
    assert rows[1][4:] == ("2.00", "1", "–", "–", "0.031")
    (note,) = [
        each
        for each in quantization_report(with_kernels()).blocks
        if isinstance(each, Notes) and each.title == "Not timed"
    ]
    assert note.lines == ("int8 (torchao) (w8a8): torchao is not installed",)


def test_companions_that_could_not_run_make_no_table() -> None:
    found = replace(with_kernels(), companions=with_kernels().companions[2:])
    assert "Not timed" in titles(found)
    assert not any(title.startswith("Timed") for title in titles(found))


def test_sensitivity_begins_with_the_worst_bargain() -> None:
    grid = grid_of(sensitive(), "Sensitivity")
    assert [column.heading for column in grid.columns][3:] == [
        *("saves, by bound", "saves, bytes", "error per µs saved")
    ]
    assert grid.rows == (
        ("conv1", "w2a2", "0.4", "adds 1.00 µs", "adds 500 B", "–"),
        # 0.2 for 2 µs, 0.05 for 20 µs.
        ("layer3.0.conv1", "w2a2", "0.2", "2.00 µs", "9.00 kB", "0.1"),
        ("layer1.0.conv1", "w2a2", "0.05", "20.0 µs", "8.00 kB", "0.0025"),
    )
    assert facts(sensitive())["Errors on"] == "random numbers · weights: the model's"


def test_sensitivity_is_cut_to_top_and_says_how_bad_the_rest_is() -> None:
    blocks = quantization_report(sensitive(), top=1).blocks
    grid = next(each for each in blocks if isinstance(each, Grid) and "Sens" in each.title)
    assert grid.sums[0][:3] == ("2 more", "", "≤ 0.2")


def test_without_times_errors_are_held_against_bytes() -> None:
    found = sensitive()
    assert found.sensitivity is not None
    layers = tuple(replace(each, saved_s=None) for each in found.sensitivity.layers)
    grid = grid_of(
        replace(found, sensitivity=replace(found.sensitivity, layers=layers)), "Sensitivity"
    )
    assert grid.columns[5].heading == "error per kB saved"
    # 0.05 for 8 kB.
    assert grid.rows[2][3:] == ("–", "8.00 kB", "0.0063")


def test_layers_that_could_not_be_tried_are_named() -> None:
    found = sensitive()
    assert found.sensitivity is not None
    why = "layer 'a' does not run as a module of its own, so its error is not known"
    other = replace(found, sensitivity=replace(found.sensitivity, left=(why,)))
    blocks = quantization_report(other).blocks
    (note,) = [each for each in blocks if isinstance(each, Notes) and each.title == "Not ranked"]
    assert note.lines == (why,)
    assert "Not ranked" not in titles(found)


def test_a_proposal_says_whose_bits_are_which() -> None:
    said = facts(sensitive())["Proposal"]
    assert said == (
        "within a model of 100 kB · model 98.7 kB · error of outputs with all of it 0.27"
    )
    rows = grid_of(sensitive(), "Proposed").rows
    by_bits = {row[0]: row for row in rows}
    assert by_bits["w4a4"][1:] == ("1", "layer3.0.conv1")
    assert by_bits["w8a8"][1:] == ("2", "conv1, fc")
    assert by_bits["float"][2] == "layer2.0.shortcut, layer3.0.shortcut"
    assert by_bits["w2a2"][2].endswith(" and 13 others")
    assert sum(int(row[1]) for row in rows) == len(sensitive().what_if.layers)


@pytest.mark.parametrize(
    ("basis", "said"), [("bound", " · bound 1.50 ms · "), ("prediction", " · predicted 1.5 ms · ")]
)
def test_a_budget_that_cannot_be_held_is_said_to_be(
    basis: Literal["bound", "prediction"], said: str
) -> None:
    found = sensitive()
    assert found.sensitivity is not None and found.sensitivity.proposal is not None
    proposal = replace(found.sensitivity.proposal, is_within=False, time_s=1.5e-3)
    other = replace(found.sensitivity, proposal=proposal, basis=basis)
    words = facts(replace(found, sensitivity=other))["Proposal"]
    assert words.startswith("a model of 100 kB cannot be held; the nearest · model 98.7 kB")
    # A bound is no prediction.
    assert said in words


def test_what_is_left_and_noted_is_shown_once_and_only_warnings_are_urgent() -> None:
    first = replace(tiny(), left=("lstm: 12 kB",), notes=("a note", "a note"))
    second = replace(tiny(), policy=Policy(weights=3), notes=("a note", "another"))
    found = replace(of(first), what_ifs=(first, second), warnings=("mind this",))
    notes = {
        each.title: each for each in quantization_report(found).blocks if isinstance(each, Notes)
    }
    assert notes["Left in floats"].lines == ("lstm: 12 kB",)
    assert notes["Notes"].lines == ("a note", "another")
    assert notes["Warnings"].lines[0] == "mind this"
    assert [title for title, each in notes.items() if each.urgent] == ["Warnings"]


def test_unknown_is_never_zero() -> None:
    (row,) = grid_of(unknown(), "Layers").rows
    assert row[6] == "–"
    assert grid_of(unknown(), "The pass").sums[0][4] == "–"


def test_errors_and_differences_are_short() -> None:
    assert [error_words(each) for each in (None, 0.0, 0.0123, 1.5, 4e-6, 250.0)] == [
        *("–", "0", "0.012", "1.5", "4.0e-06", "2.5e+02")
    ]
    assert signed_percent(0.124) == "+12 %" and signed_percent(-0.03) == "-3 %"
    assert saved_words(None, str) == "–" and saved_words(0, lambda each: f"{each:g} B") == "0 B"


@pytest.mark.parametrize("name", quantizations())
@pytest.mark.parametrize("width", [40, 80, 200])
def test_terminals_of_any_width_show_it(name: str, width: int) -> None:
    text = shown(quantizations()[name], width)
    assert "\x1b" not in text
    if width >= 80:
        assert max(map(len, text.splitlines())) <= width


def test_the_headline_is_the_verdict() -> None:
    for quantization in (bandwidth_only(), with_kernels(), slower()):
        report = quantization_report(quantization)
        assert report.headline == quantization.summary
        assert "\n" not in report.headline


def test_notebooks_show_it_escaped() -> None:
    html = hostile()._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "<script>alert" not in html and "&lt;script&gt;" in html
