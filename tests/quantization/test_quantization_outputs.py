"""Reports, files and pictures of lower precision: what they hold, and that unknown is never 0."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from matplotlib.patches import FancyArrowPatch
from rich.console import Console

from roofline.analysis import Analysis
from roofline.core import schema
from roofline.core.blocks import Grid, KeyValueBlock, Notes, View
from roofline.design.advice.subject import Time
from roofline.errors import FileFormatError, InputError
from roofline.quantization.blocks import (
    change_text,
    error_cell,
    proposal_grid,
    ratio_text,
    speedup_text,
    time_cell,
)
from roofline.quantization.drawing import AFTER, KEPT, ONLY, lines_of, moves_of, spot_of
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import (
    LayerSensitivity,
    LayerWhatIf,
    NativeVariant,
    Quantization,
    Sensitivity,
    WhatIf,
)
from roofline.quantization.what_ifs import evaluate_policies
from roofline.render.console import print_report
from roofline.result import read_result
from tests.analysis.examples import bare_profile
from tests.design.advice_models import Clock
from tests.quantization.quantizations import (
    analysis,
    bandwidth_only,
    hostile,
    layer,
    many,
    one_pass,
    part,
    quantizations,
    sensitive,
    side,
    slower,
    swept,
    unknown,
    with_kernels,
)
from tests.quantization.what_if_machines import PingPong, timed_analysis_of

TWO = LayerBits(weights=2, activations=2)
EIGHT = LayerBits(weights=8, activations=8)


def shown(quantization: Quantization, width: int = 80) -> str:
    """Return what a terminal of that width shows."""
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    print_report(quantization.report(), console)
    return text.getvalue()


def grid_of(quantization: Quantization, title: str, top: int | None = None) -> Grid:
    blocks = quantization.report(View(top=top)).blocks
    return next(each for each in blocks if isinstance(each, Grid) and each.title.startswith(title))


def cells(grid: Grid, row: int = 0) -> dict[str, str]:
    """Return a row by its headings."""
    return dict(zip((each.heading for each in grid.columns), grid.rows[row], strict=True))


def notes_of(quantization: Quantization) -> dict[str, Notes]:
    blocks = quantization.report().blocks
    return {each.title: each for each in blocks if isinstance(each, Notes)}


def titles(quantization: Quantization) -> list[str]:
    blocks = quantization.report().blocks
    return [each.title for each in blocks if isinstance(each, Grid | Notes)]


def facts(quantization: Quantization) -> dict[str, str]:
    blocks = quantization.report().blocks
    return dict(line for each in blocks if isinstance(each, KeyValueBlock) for line in each.lines)


def tiny() -> WhatIf:
    """Hand-made: 100 kB and 100 µs of layers become 10 kB and 10 µs."""
    before = side(
        eager_min_time_s=100e-6, weight_bytes=40_000, input_bytes=30_000, output_bytes=30_000
    )
    after = side(
        eager_min_time_s=10e-6,
        weight_bytes=2_500,
        input_bytes=3_750,
        output_bytes=3_750,
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
        layer_bytes_before=100_000,
        layer_bytes_after=10_000,
        model_bytes_before=40_000,
        model_bytes_after=2_504,
        eager_min_time_before_s=125e-6,
        eager_min_time_after_s=35e-6,
        separate_eager_min_time_s=36e-6,
        before=None,
        after=None,
    )


def of(what_if: WhatIf) -> Quantization:
    return replace(bandwidth_only(), what_ifs=(what_if,))


def of_layers(*layers: LayerWhatIf) -> Quantization:
    return of(replace(bandwidth_only().what_if, layers=layers))


def ranking_of(quantization: Quantization, **changes: Any) -> Quantization:
    assert quantization.sensitivity is not None
    return replace(quantization, sensitivity=replace(quantization.sensitivity, **changes))


def test_changes_are_said_once_where_nothing_changes() -> None:
    assert change_text(2_000, 500, lambda each: f"{each:g}") == "2000 → 500"
    assert change_text(7, 7, str) == "7"
    assert change_text(None, 3, str) == "– → 3"
    assert change_text(None, None, str) == "–"
    assert change_text(1.23e-3, 456e-6, time_cell) == "1.2 ms → 460 µs"
    assert speedup_text(1.0, 1.2) == "1.20× slower" and speedup_text(1.8, 1.0) == "1.80× faster"
    found = [error_cell(each) for each in (None, 0.0, 0.0123, 1.5, 4e-6, 250.0)]
    assert found == ["–", "0", "0.012", "1.5", "4e-06", "2.5e+02"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (2_689_296, 193_000, "13.9× smaller"),
        (2_689_296, 295_000, "9.12× smaller"),
        (3_200, 25, "128× smaller"),
        (999.6, 100, "10.0× smaller"),
        (100, 120, "1.20× larger"),
        (1000, 1001, "unchanged"),
        (0, 0, "unchanged"),
        (0, 5, "larger"),
        (5, 0, "smaller"),
        (None, 5, "–"),
    ],
)
def test_ratios_are_in_words(before: float | None, after: float | None, words: str) -> None:
    assert ratio_text(before, after) == words


def test_the_pass_is_the_sum_of_its_parts_and_requantization_stands_apart() -> None:
    grid = grid_of(of(tiny()), "Breakdown before and after")
    assert [row[0] for row in grid.rows] == ["layers", "shortcuts", "others"]
    assert grid.rows[0][1:] == (
        *("1", "100 kB → 10.0 kB", "10.0× smaller", "100 µs → 10.0 µs", "no kernel"),
    )
    assert grid.rows[1][1:] == ("2", "20.0 kB", "unchanged", "20.0 µs", "–")
    # 130 kB before; 40 kB after, and 5 kB more where requantization is apart.
    assert grid.sums == (
        ("total", "", "130 kB → 40.0 kB", "3.25× smaller", "125 µs → 35.0 µs", "no kernel"),
        (
            *("with requantization in separate kernels", "1", "130 kB → 45.0 kB", "2.89× smaller"),
            *("125 µs → 36.0 µs", "–"),
        ),
    )


def test_parts_that_are_predicted_have_their_times() -> None:
    timed = part(
        *("layers", 1, 100_000, 25_000, 100e-6, 25e-6),
        before_time=Time(s=3e-4),
        after_time=Time(s=1e-4),
    )
    before, after = Time(s=4e-4), Time(s=2e-4)
    eight = replace(tiny(), layers=(layer("fc", EIGHT),), parts=(timed,))
    grid = grid_of(of(replace(eight, before=before, after=after)), "Breakdown before and after")
    assert grid.rows[0][-1] == "300 µs → 100 µs"
    assert [row[-1] for row in grid.sums] == ["400 µs → 200 µs"]


def test_a_layer_is_a_row() -> None:
    assert grid_of(of(tiny()), "Layers").rows == (
        (
            *("fc", "last", "w2a2", "2-bit", "100 kB → 10.0 kB", "int8", "100 µs → 10.0 µs"),
            *("DRAM read → int8 AVX-512-VNNI dot", "no kernel"),
        ),
    )
    timed = layer(
        *("a", EIGHT),
        before=side(time=Time(s=3e-3)),
        after=side(time=Time(s=1e-3), eager_min_time_s=5e-6),
    )
    rows = grid_of(of_layers(timed, layer("b", place="shortcut")), "Layers").rows
    assert rows[0][-1] == "3.0 ms → 1.0 ms"
    # Names and types get the room of predictions that there are none of.
    untimed = tuple(layer(each, TWO) for each in ("layer1.0.conv1", "layer4.1.conv2"))
    for width in (80, 160):
        table = shown(of_layers(*untimed), width).partition("Layers, before")[2]
        headings = table.splitlines()[1]
        assert ("predicted time" in headings) == (width == 160)
        assert "data type" in headings and "layer1.0.conv1" in table
    assert "3.0 ms → 1.0 ms" in shown(of_layers(*untimed, timed))
    assert rows[1] == (
        *("b", "shortcut", "float", "float", "6.00 kB", "float32", "10.0 µs", "DRAM read", "–"),
    )


def test_those_that_change_most_come_first_and_the_others_are_summed() -> None:
    after = {"a": 9e-6, "b": 2e-6, "c": 16e-6, "d": None}
    found = of_layers(
        *(
            layer(name, TWO, after=side(eager_min_time_s=s, weight_bytes=0))
            for name, s in after.items()
        )
    )
    grid = grid_of(found, "Layers", top=2)
    # By 8 µs, by 6 µs more, by 1 µs, and by an unknown time.
    assert [row[0] for row in grid.rows] == ["b", "c"]
    rest, every = grid.sums
    assert rest[0] == "2 more" and every[0] == "all 4"
    assert (rest[4], rest[6], rest[8]) == ("12.0 kB → 10.0 kB", "20.0 µs → –", "no kernel")


def test_top_says_how_many_layers_there_are() -> None:
    grid, layers = grid_of(many(), "Layers", top=3), len(many().what_if.layers)
    assert len(grid.rows) == 3 and grid.sums[0][0] == f"{layers - 3} more"
    assert f": 3 of {layers} (top={layers} for all), " in grid.title
    assert len(grid_of(many(), "Layers").rows) == 10
    for format in ("md", "html"):
        assert "2 of 22 (top=22 " in str(with_kernels().render(format, View(top=2)))


def test_passes_that_are_alike_are_one_row_and_separate_kernels_come_first() -> None:
    grid = grid_of(bandwidth_only(), "Quantize")
    assert [row[:3] for row in grid.rows] == [
        ("quantize", "float → 2-bit", "1"),
        ("dequantize", "2-bit → float", "1"),
        ("requantize", "accumulators → 2-bit", "2"),
        ("requantize", "accumulators → 8-bit", "1"),
    ]
    # Twice 4 kB, 250 B, 5 kFLOP and 100 ns.
    assert grid.rows[2][3:] == (
        *("8.00 kB", "500 B", "10.0 kFLOP", "200 ns", "–", "fused into layer"),
        "layer1.0.conv1 … layer1.1.conv1",
    )
    assert cells(grid)["kernel"] == "separate" and cells(grid)["where"] == "layer1.0.conv1"
    unknown = one_pass("quantize", "", eager_min_time_s=None)
    other = grid_of(
        of(replace(tiny(), passes=(one_pass("quantize", "a"), unknown))), "Quantize, req"
    )
    assert cells(other)["minimum time"] == "–" and cells(other)["where"] == "a … (model)"


def test_facts_say_sizes_types_and_shortcuts() -> None:
    said = facts(of(tiny()))
    assert said["Model size"] == "40.0 kB → 2.50 kB (16.0× smaller)"
    assert said["Layer traffic"].startswith("100 kB → 10.0 kB (10.0× smaller): weights once")
    assert said["Data types"] == "int8 w2a2: 1 layer (no kernel, bandwidth-only what-if)"
    assert said["Policy"].endswith("shortcuts in full precision · one scale per layer")
    assert "Shortcuts" not in said
    low = replace(
        tiny(),
        policy=Policy(shortcut="low", per_channel=True),
        layers=(layer("s", TWO, "shortcut"), layer("f")),
    )
    assert facts(of(low))["Shortcuts"] == "1 layer, traffic 6.00 kB"
    assert facts(of(low))["Policy"].endswith("one scale per channel")
    assert facts(of(low))["Data types"].endswith(" · float32: 1 layer")
    nothing = of(replace(tiny(), layers=()))
    assert facts(nothing)["Data types"] == "no layer has weights"
    assert not any(title.startswith("Layers") for title in titles(nothing))


def test_predictions_have_their_intervals_and_are_compared_where_both_are_there() -> None:
    before = Time(s=4e-3, low_s=3.5e-3, high_s=4.6e-3)
    after = Time(s=2e-3, low_s=1.8e-3, high_s=2.3e-3)
    eight = replace(tiny(), layers=(layer("fc", EIGHT),), before=before, after=after)
    said = facts(of(eight))["Predicted time"]
    assert said == "4.0 (3.5–4.6) ms → 2.0 (1.8–2.3) ms, 2.00× faster"
    alone = facts(of(replace(eight, after=None)))["Predicted time"]
    assert alone == "4.0 (3.5–4.6) ms → no prediction"
    # A prediction that came along by mistake is not shown where there is no kernel.
    two = of(replace(tiny(), before=before, after=after))
    assert facts(two)["Predicted time"] == f"{alone}: no kernel"
    assert "2.0 ms" not in str(two)
    assert "Predicted time" not in facts(of(tiny()))


def test_a_sweep_has_a_row_for_each_width_once() -> None:
    grid = grid_of(swept(), "Bit widths")
    assert [row[0] for row in grid.rows] == ["w2a2", "w3a3", "w4a4", "w8a8", "w16a16"]
    assert cells(grid, 0)["predicted time"] == "no kernel"
    assert cells(grid, 3)["predicted time"] == "230 µs"
    assert cells(grid, 3)["data types"] == "int8, float32"
    assert not any(title.startswith("Bit widths") for title in titles(bandwidth_only()))


def test_variants_stand_next_to_their_predictions() -> None:
    rows = grid_of(with_kernels(), "Measured here").rows
    assert rows[0] == (
        *("bfloat16", "w16a16", "4.00 ms", "5.00 ms", "0.80 (0.78–0.83)", "7"),
        *("4.2 ms → 5.5 ms", "+10 %", "0.0042"),
    )
    # One round has no interval; what was not predicted is not off.
    assert rows[1][4:] == ("2.00", "1", "–", "–", "0.031")
    lines = notes_of(with_kernels())["Not measured"].lines
    assert lines == ("int8 (torchao) (w8a8): torchao is not installed",)
    without = replace(with_kernels(), native_variants=with_kernels().native_variants[2:])
    assert "Not measured" in titles(without)
    assert not any(title.startswith("Measured") for title in titles(without))


def test_sensitivity_begins_with_the_highest_error_per_saving() -> None:
    grid = grid_of(sensitive(), "Sensitivity")
    assert [column.heading for column in grid.columns][3:] == [
        *("saved minimum time", "saved traffic", "error per µs saved")
    ]
    assert grid.rows == (
        ("conv1", "w2a2", "0.4", "adds 1.00 µs", "adds 500 B", "–"),
        # 0.2 for 2 µs, 0.05 for 20 µs.
        ("layer3.0.conv1", "w2a2", "0.2", "2.00 µs", "9.00 kB", "0.1"),
        ("layer1.0.conv1", "w2a2", "0.05", "20.0 µs", "8.00 kB", "0.0025"),
    )
    assert facts(sensitive())["Error inputs"] == "random numbers · weights: the model's"
    assert grid_of(sensitive(), "Sensitivity", top=1).sums[0][:3] == ("2 more", "", "≤ 0.2")
    # Without times errors are per byte: 0.05 for 8 kB.
    ranking = sensitive().sensitivity
    assert ranking is not None
    layers = tuple(replace(each, saved_s=None) for each in ranking.layers)
    last = cells(grid_of(ranking_of(sensitive(), layers=layers), "Sensitivity"), 2)
    assert (last["saved minimum time"], last["saved traffic"]) == ("–", "8.00 kB")
    assert last["error per kB saved"] == "0.0063"


def test_a_proposal_says_whose_bits_are_which() -> None:
    said = facts(sensitive())["Proposal"]
    assert said == "within a model of 100 kB · model size 98.7 kB · output error 0.27"
    rows = grid_of(sensitive(), "Proposed").rows
    by_bits = {row[0]: row for row in rows}
    assert by_bits["w4a4"][1:] == ("1", "layer3.0.conv1")
    assert by_bits["w8a8"][1:] == ("2", "conv1, fc")
    assert by_bits["float"][2] == "layer2.0.shortcut, layer3.0.shortcut"
    assert by_bits["w2a2"][2].endswith(" and 13 others")
    assert sum(int(row[1]) for row in rows) == len(sensitive().what_if.layers)
    # A module that runs twice is named once.
    own = LayerBits(weights=3, activations=5)
    ranking = sensitive().sensitivity
    assert ranking is not None and ranking.proposal is not None
    proposal = replace(ranking.proposal, policy=Policy(layers={"again": own}))
    layers = (layer("again", own), layer("again#2", own), layer("other"))
    assert proposal_grid(proposal, layers).rows == (
        *(("w2a2", "1", "other"), ("w3a5", "1", "again")),
    )
    # Layers that could not be tried are named.
    why = "layer 'a' does not run as a module of its own, so its error is not known"
    assert notes_of(ranking_of(sensitive(), unranked=(why,)))["Not ranked"].lines == (why,)
    assert "Not ranked" not in titles(sensitive())


@pytest.mark.parametrize(
    ("basis", "said"),
    [("bound", " · minimum time 1.50 ms · "), ("prediction", " · predicted time 1.5 ms · ")],
)
def test_a_budget_out_of_reach_is_said_to_be(
    basis: Literal["bound", "prediction"], said: str
) -> None:
    ranking = sensitive().sensitivity
    assert ranking is not None and ranking.proposal is not None
    proposal = replace(ranking.proposal, is_within=False, time_s=1.5e-3)
    words = facts(ranking_of(sensitive(), proposal=proposal, basis=basis))["Proposal"]
    assert words.startswith("a model of 100 kB not attainable; closest · model size 98.7 kB")
    # A minimum time is no prediction.
    assert said in words


def test_notes_are_shown_once_and_only_warnings_are_urgent() -> None:
    first = replace(tiny(), unquantized=("lstm: 12 kB",), notes=("a note", "a note"))
    second = replace(tiny(), policy=Policy(weights=3), notes=("a note", "another"))
    found = notes_of(replace(of(first), what_ifs=(first, second), warnings=("mind this",)))
    assert found["Not quantized"].lines == ("lstm: 12 kB",)
    assert found["Notes"].lines == ("a note", "another")
    assert found["Warnings"].lines[0] == "mind this"
    assert [title for title, each in found.items() if each.urgent] == ["Warnings"]


def test_unknown_is_never_zero() -> None:
    assert cells(grid_of(unknown(), "Layers"))["minimum time"] == "–"
    assert grid_of(unknown(), "Breakdown").sums[0][4] == "–"
    (row,) = csv.DictReader(io.StringIO(unknown().to_csv()))
    bounds = [value for name, value in row.items() if "min_time" in name]
    assert bounds and not any(bounds)


@pytest.mark.parametrize("name", quantizations())
def test_what_is_saved_is_read_back_and_every_format_has_it(name: str, tmp_path: Path) -> None:
    found = quantizations()[name]
    paths = [tmp_path / f"out{suffix}" for suffix in (".json", ".csv", ".md", ".html", ".svg")]
    found.save(*paths)
    assert read_result(paths[0]) == found
    for path, start in zip(paths[2:], ("# ", "<!doctype html>", "<?xml"), strict=True):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(start) and "<script>alert" not in text and "\x1b" not in text
    page = paths[3].read_text(encoding="utf-8")
    for words in ("<svg", "Breakdown before and after", "Layers, before", "Quantize, req"):
        assert words in page
    assert "<script>alert" not in found._repr_html_()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(InputError, match="add overwrite=True"):
        found.save(paths[0])
    for width in (40, 80, 200):
        text = shown(found, width)
        assert "\x1b" not in text
        assert width < 80 or max(map(len, text.splitlines())) <= width


def test_equal_quantizations_give_equal_pictures() -> None:
    assert bandwidth_only().render("svg") == replace(bandwidth_only()).render("svg")
    assert bandwidth_only().plot(labels=2, width_inch=8.0).get_size_inches()[0] == 8.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"what_ifs": []}, "what_ifs: expected one or more"),
        ({"kind": "quantisation"}, "did you mean 'quantization'"),
        ({"companions": []}, "unknown key 'companions'"),
    ],
)
def test_damaged_files_are_refused(
    changes: Mapping[str, object], message: str, tmp_path: Path
) -> None:
    data = {**json.loads(bandwidth_only().to_json()), **changes}
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(FileFormatError, match=message):
        read_result(tmp_path / "a.json")


@pytest.fixture(scope="module")
def found() -> Quantization:
    analysis = timed_analysis_of(PingPong(16, 3), 4, 16, clock=Clock())
    policy = Policy(layers={"layers.1": LayerBits(weights=3, activations=4)})
    ranked = LayerSensitivity(
        name="layers.0", bits=EIGHT, error=math.nan, saved_s=None, saved_bytes=3
    )
    return Quantization(
        model="net",
        analysis=analysis,
        what_ifs=evaluate_policies(analysis, policy, (2, 8), Clock()),
        native_variants=(NativeVariant(way="int8", bits=EIGHT, error=math.inf),),
        sensitivity=Sensitivity(
            layers=(ranked,), basis="bound", inputs="random", weights="as given"
        ),
        warnings=("a warning",),
    )


def test_json_is_whole_and_finite(found: Quantization) -> None:
    data = json.loads(found.to_json())
    assert (data["kind"], data["schema_version"]) == ("quantization", 1)
    assert data["summary"] == found.summary
    assert [len(each["layers"]) for each in data["what_ifs"]] == [3, 3, 3]
    assert data["native_variants"][0]["error"] is None
    assert data["sensitivity"]["layers"][0]["error"] is None
    assert data["warnings"] == ["a warning"]
    assert schema.from_data(Analysis, data["analysis"], file="x", fix="") == found.analysis
    assert data["what_ifs"][2]["has_kernels"] is False
    for each, what_if in zip(data["what_ifs"], found.what_ifs, strict=True):
        assert schema.from_data(Policy, each["policy"], file="x") == what_if.policy
    ranking = sensitive().sensitivity
    assert ranking is not None and ranking.proposal is not None
    proposed = json.loads(sensitive().to_json())["sensitivity"]["proposal"]["policy"]
    assert schema.from_data(Policy, proposed, file="x") == ranking.proposal.policy


def test_one_row_a_layer_of_every_what_if(found: Quantization) -> None:
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows()]
    assert [row["what_if"] for row in rows] == [0] * 3 + [1] * 3 + [2] * 3
    for row, each in zip(rows, found.what_if.layers, strict=False):
        assert row["layer"] == each.layer.name
        assert row["after_traffic_bytes"] == each.after.traffic_bytes
        assert row["before_eager_min_time_s"] == each.before.eager_min_time_s
        assert row["after_bound"] == each.after.bound.value
    assert rows[1]["after_predicted_s"] is None
    assert rows[0]["before_predicted_s"] is not None
    frame = found.to_frame()
    assert list(frame.columns) == list(found.columns)
    assert frame["after_predicted_s"].isna().sum() == sum(
        row["after_predicted_s"] is None for row in rows
    )
    assert str(frame["before_flop"].dtype) == "Int64"
    assert frame.loc[1, "weight_bits"] == 3
    counts = {"what_if", "operator", "weight_bits", "activation_bits", "output_bits"}
    counts |= {"parameters", "macs", "before_flop", "after_flop"}
    for name, kind in Quantization.columns.items():
        if kind in ("Int64", "Float64") and name not in counts:
            assert name.endswith(("_bytes", "_s", "_flop_per_byte", "_flop_per_s"))
    lines = list(csv.DictReader(io.StringIO(found.to_csv(top=1))))
    assert len(lines) == 9 and list(lines[0]) == list(found.columns)
    assert lines[1]["after_predicted_s"] == "" and lines[1]["has_kernel"] == "false"
    assert (
        float(lines[0]["before_eager_min_time_s"])
        == found.what_if.layers[0].before.eager_min_time_s
    )


def moving(
    name: str,
    *,
    start: tuple[float, float] = (10.0, 6e9),
    end: tuple[float, float] = (80.0, 48e9),
    bits: LayerBits = TWO,
    after_s: float = 2e-6,
) -> LayerWhatIf:
    """Return a layer that goes from one place under the roof to another."""
    return layer(
        name,
        bits,
        before=side(intensity_flop_per_byte=start[0], attainable_flop_per_s=start[1]),
        after=side(
            intensity_flop_per_byte=end[0], attainable_flop_per_s=end[1], eager_min_time_s=after_s
        ),
    )


def words_in(quantization: Quantization, **options: Any) -> str:
    """Return title, notes and legend of the picture."""
    figure = quantization.plot(**options)
    (legend,) = figure.legends
    lines = [*(each.get_text() for each in legend.get_texts()), legend.get_title().get_text()]
    return "\n".join([figure.get_suptitle(), figure.axes[0].get_title("left"), *lines])


def test_layers_that_stand_together_before_and_after_are_one_move() -> None:
    layers = (
        moving("a"),
        moving("b", start=(10.1, 6.1e9)),
        moving("c", end=(160.0, 96e9), after_s=1e-6),
        moving("d", bits=EIGHT),
        layer("s", place="shortcut"),
    )
    moves, unplaced = moves_of(of_layers(*layers).what_if)
    assert unplaced == 0
    # a and b save 16 µs together, c 9, d 8; what is kept comes last.
    assert [(each.name, each.look) for each in moves] == [
        ("a +1 w2a2", ONLY),
        ("c w2a2", ONLY),
        ("d w8a8", AFTER),
        ("s float", KEPT),
    ]
    assert moves[0].before == (10.0, 6e9) and moves[0].after == (80.0, 48e9)
    assert moves[3].before == moves[3].after
    # Shares are those of the pass.
    first = of_layers(moving("a"), moving("b")).what_if
    for before_s, after_s, shares in ((40e-6, 5e-6, (0.5, 0.8)), (None, None, (0.0, 0.0))):
        whole = {"eager_min_time_before_s": before_s, "eager_min_time_after_s": after_s}
        ((move,), _) = moves_of(replace(first, **whole))
        assert (move.share_before, move.share_after) == pytest.approx(shares)


def test_what_is_not_known_has_no_place_and_is_counted() -> None:
    assert spot_of(side(intensity_flop_per_byte=None)) is None
    assert moves_of(unknown().what_if) == ([], 1)
    assert "not drawn: 1 layer of unknown FLOP or minimum time" in words_in(unknown())
    assert "no layer to draw" in words_in(of_layers())


def test_each_move_is_an_arrow_and_heads_without_a_kernel_are_hollow() -> None:
    back = moving("b", start=(100.0, 50e9), end=(20.0, 10e9), bits=EIGHT)
    figure = of_layers(moving("a"), back, layer("s", place="shortcut")).plot()
    axes = figure.axes[0]
    arrows = [each for each in axes.patches if isinstance(each, FancyArrowPatch)]
    white = (1.0, 1.0, 1.0, 1.0)
    assert [each.get_facecolor() == white for each in arrows] == [True, False]
    assert {each.get_text() for each in axes.texts} >= {"a w2a2", "b w8a8", "s float"}


def test_the_legend_says_what_hollow_is_and_the_title_no_unknown_speed() -> None:
    assert ONLY in words_in(bandwidth_only()) and ONLY not in words_in(with_kernels())
    assert "w2a2: bandwidth-only what-if" in words_in(bandwidth_only())
    assert "w8a8: 2.00× faster (predicted)" in words_in(with_kernels())
    assert "w8a8: 1.20× slower (predicted)" in words_in(slower())
    assert "\x1b" not in words_in(hostile())
    first = replace(with_kernels().what_if, before=None, after=None)
    silent = words_in(replace(with_kernels(), what_ifs=(first,)))
    assert "faster" not in silent and "what-if" not in silent
    moves, _ = moves_of(many().what_if)
    assert f"without label: {len(moves)} arrows" in words_in(many(), labels=0)


def test_the_roof_has_the_ceilings_of_floats_and_of_what_is_executed() -> None:
    found = bandwidth_only()
    lines = lines_of(found.analysis, found.what_if)
    assert [each.label.rpartition(" ")[0].rpartition(" ")[0] for each in lines.ceilings] == [
        *("int8 AVX-512-VNNI dot", "int8 torch conv"),
        *("float32 AVX-512 FMA", "float32 torch conv", "float32 torch gemm"),
    ]
    assert all(each.main for each in lines.ceilings)
    # Diagonals go up to the highest of them: 2092 GFLOP/s over 41.3 GB/s.
    assert lines.main_top_flop_per_s == 2092e9
    assert lines.diagonals[-1].ridge_flop_per_byte == pytest.approx(2092 / 41.3)
    floats = tuple(replace(each, executable="float32") for each in found.what_if.layers)
    lines = lines_of(found.analysis, replace(found.what_if, layers=floats))
    assert not any("int8" in each.label or "bfloat16" in each.label for each in lines.ceilings)
    odd = tuple(replace(each, executable="no type") for each in found.what_if.layers)
    assert lines_of(found.analysis, replace(found.what_if, layers=odd)) == lines
    bare = replace(analysis(), hardware=bare_profile(), threads=1)
    assert replace(found, analysis=bare).plot().axes[0].collections


def test_points_lie_on_or_under_the_roof() -> None:
    found = bandwidth_only()
    lines = lines_of(found.analysis, found.what_if)
    top = max(each.flop_per_s for each in lines.ceilings)
    fastest = max(each.bytes_per_s for each in lines.diagonals)
    moves, _ = moves_of(found.what_if)
    for x, y in (spot for each in moves for spot in (each.before, each.after)):
        assert y <= 1.0001 * min(top, fastest * x)
