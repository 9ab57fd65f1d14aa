"""Predictions and measurements in reports; every number here was worked out by hand."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from roofline.analysis import Analysis, working
from roofline.analysis.drawing import subtitle_of, title_of
from roofline.analysis.grouping import grouping_key
from roofline.analysis.points import points_of
from roofline.analysis.words import above_roofline, kind_of_time, modules_of, why_not_predicted
from roofline.core.blocks import Grid, KeyValueBlock, View
from roofline.core.sampling import Sample, digits_of, interval_cell, interval_text
from roofline.latency.prediction import RunPrediction
from roofline.latency.samples import RunMeasurement
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Roof
from roofline.render.console import plain_text, print_report
from roofline.run import Run
from roofline.workload.operators import State
from roofline.workload.tensors import Role
from tests.analysis.blocks import column, facts_of, grid_of
from tests.analysis.examples import (
    Network,
    analysis_of,
    bare_profile,
    dram_profile,
    full_profile,
    measured,
    resnet,
    small,
    trained,
    with_rows,
)

PREDICTION = RunPrediction(
    predicted_s=0.0274,
    low_s=0.0238,
    high_s=0.0312,
    operators_s=0.0252,
    overhead_s=0.0022,
    calibration="1234 operators of 30 models of 14 families, measured 2026-03-04",
    held_out_error=0.0812,
)
MEASUREMENT = RunMeasurement(
    # The quartiles are 28.2 and 28.4 ms: the spread is 0.7 % and leaves three digits.
    end_to_end=Sample(times_s=(0.0281, 0.0282, 0.0283, 0.0284, 0.0285)),
    operators_s=0.0271,
    page_faults=12,
    rounds=5,
    discarded=2,
    date="2026-03-04T10:00:00",
)

DETAILS = View(verbose=True)


def predicted(analysis: Analysis, factor: float = 1.5, *, source: str | None = None) -> Analysis:
    """`analysis` with every operator predicted at `factor` times its bound, -20 to +25 %."""
    rows = tuple(
        row
        if row.state is State.FREE or row.eager_min_time_s is None
        else replace(
            row,
            predicted_s=factor * row.eager_min_time_s,
            predicted_low_s=0.8 * factor * row.eager_min_time_s,
            predicted_high_s=1.25 * factor * row.eager_min_time_s,
            prediction_source=source or "calibrated: 12 samples, distance 0.4",
        )
        for row in analysis.operators
    )
    sum_s = sum(row.predicted_s or 0.0 for row in rows)
    totals = replace(
        analysis.totals,
        predicted_s=sum_s,
        predicted_low_s=0.9 * sum_s,
        predicted_high_s=1.1 * sum_s,
    )
    return replace(analysis, operators=rows, totals=totals)


def timed(analysis: Analysis, factor: float = 2.0) -> Analysis:
    """`analysis` with every operator measured at `factor` times its bound, with 1 % of spread."""
    return measured(analysis, factor, iqr=0.01 * factor)


def full() -> Analysis:
    """The ResNet-like model, predicted and measured."""
    return replace(timed(predicted(resnet())), prediction=PREDICTION, measurement=MEASUREMENT)


@pytest.mark.parametrize(
    ("spread", "digits"), [(0.0, 4), (0.004, 3), (0.04, 2), (0.3, 2), (2.0, 2), (0.0001, 4)]
)
def test_digits_are_those_that_the_spread_leaves(spread: float, digits: int) -> None:
    assert digits_of(spread) == digits


@pytest.mark.parametrize(
    ("times", "cell"),
    [
        ((0.0012, 0.001, 0.0015), "1.2 (1.0–1.5) ms"),
        ((0.0274, 0.0238, 0.0312), "27 (24–31) ms"),
        ((0.000677, 0.000542, 0.000846), "680 (540–850) µs"),
        ((0.9996, 0.8, 1.2), "1.0 (0.8–1.2) s"),
        ((2e-6, 1.992e-6, 2.008e-6), "2.00 (1.99–2.01) µs"),
        ((0.00123, None, None), "1.2 ms"),
        ((None, None, None), "–"),
        ((0.0, 0.0, 0.0), "0 s"),
    ],
)
def test_an_interval_stands_in_one_unit(
    times: tuple[float | None, float | None, float | None], cell: str
) -> None:
    assert interval_cell(*times) == cell


def test_an_interval_in_words() -> None:
    assert interval_text(0.0274, 0.0238, 0.0312) == ("27 ms", "24–31 ms")
    assert interval_text(0.0, 0.0, 1e-6) == ("0 s", "0 s–1.00 µs")


def test_the_headline_says_what_is_expected_then_what_is_possible() -> None:
    analysis = replace(small(), prediction=PREDICTION)
    assert analysis.report().headline == (
        "small: predicted 27 ms (80 % interval 24–31 ms), minimum 157 ns (eager, all operands"
        " from DRAM; memory-bound (DRAM) for 100 %)"
    )
    said = replace(resnet(), prediction=PREDICTION).report().headline
    assert said.startswith(
        "resnet-like: predicted 27 ms (80 % interval 24–31 ms), minimum 17.6 ms (eager; "
    )


def test_the_headline_says_what_it_took_first() -> None:
    said = full().report().headline
    assert said.startswith(
        "resnet-like: measured 28.3 ms (median of 5 passes, IQR 200 µs), predicted 27 ms (80 %"
        " interval 24–31 ms), minimum 17.6 ms (eager; "
    )
    alone = replace(small(), measurement=replace(MEASUREMENT, end_to_end=Sample(times_s=(0.5,))))
    assert alone.report().headline.startswith("small: measured 500 ms (one pass), minimum 157 ns")


def test_a_time_without_a_bound() -> None:
    analysis = replace(resnet(), hardware=bare_profile(), prediction=PREDICTION)
    analysis = replace(analysis, totals=replace(analysis.totals, eager_min_time_s=None))
    assert analysis.report().headline == (
        "resnet-like: predicted 27 ms (80 % interval 24–31 ms), minimum unknown (no ceilings)"
    )


def test_the_facts_of_a_pass_that_was_predicted_and_measured() -> None:
    brief = facts_of(full().report())
    assert brief["Predicted"] == (
        "27 ms (80 % prediction interval 24–31 ms) · MAPE 8.1 % (leave-one-family-out)"
        " · 3.2 % below measured"
    )
    assert brief["Measured"].startswith("28.3 ms (median of 5 passes, IQR 200 µs) · efficiency 62.")
    facts = facts_of(full().report(View(verbose=True)))
    # 27.4 / 28.3 - 1 = -3.18 %
    assert facts["Predicted"] == (
        f"{brief['Predicted']} · operators 25 ms + overhead 2 ms · calibration: 1234 operators of"
        " 30 models of 14 families, measured 2026-03-04"
    )
    taken = facts["Measured"]
    assert taken.startswith("28.3 ms (median of 5 passes, IQR 200 µs) · efficiency 62.")
    for words in (
        " · framework overhead 1.2 ms · ",
        " · 12 page faults per pass · ",
        " · 2 of 7 rounds discarded",
        " · on 2026-03-04",
    ):
        assert words in taken
    assert "Compiled" not in facts


def test_a_sum_above_the_whole_is_a_cost_of_timing() -> None:
    slow = replace(full(), measurement=replace(MEASUREMENT, operators_s=0.0298, page_faults=1))
    said = facts_of(slow.report(DETAILS))["Measured"]
    assert "operators 29.8 ms" in said
    assert "timing overhead 1.5 ms · " in said
    assert "1 page fault per pass" in said


def test_what_views_take_is_said_because_tables_leave_them_out() -> None:
    analysis = timed(small(), 2.0)  # 2 x 156.8 ns
    measurement = replace(MEASUREMENT, operators_s=413.6e-9)
    said = facts_of(replace(analysis, measurement=measurement).report(DETAILS))["Measured"]
    assert "(views and allocations 100 ns)" in said


def test_torch_compile_stands_beside_eager() -> None:
    compiled = Sample(times_s=(0.0141, 0.0142, 0.0142))
    analysis = replace(full(), measurement=replace(MEASUREMENT, compiled=compiled))
    # 28.3 / 14.2 = 1.993
    said = facts_of(analysis.report())["Compiled"]
    assert said.startswith("14.2 ms with torch.compile (median of 3 passes")
    assert said.endswith(" · speedup 1.99×")


def test_the_table_of_a_measured_run() -> None:
    # On the data sheet: 650 FLOP and 1488 B in 2 x 148.8 ns, 10 FLOP and 80 B in 2 x 8 ns.
    grid = grid_of(timed(small()).report(), "Top operators by measured time")
    assert column(grid, "Op") == ["addmm", "relu_", ""]
    # The spread of 1 % leaves three digits.
    assert column(grid, "Measured") == ["298 ns", "16.0 ns", "314 ns"]
    assert column(grid, "FLOP/s") == ["2.18 GFLOP/s", "625 MFLOP/s", "2.10 GFLOP/s"]
    assert column(grid, "B/s") == ["5.00 GB/s", "5.00 GB/s", "5.00 GB/s"]
    assert column(grid, "Efficiency") == ["50.0 %", "50.0 %", "50.0 %"]
    assert column(grid, "IQR") == ["3.0 ns", "0.16 ns", ""]


def test_unknown_flop_has_no_rate_and_makes_sums_lower_limits() -> None:
    grid = grid_of(timed(resnet()).report(View(top=1000)), "Top operators by measured time")
    names = map("".join, zip(column(grid, "Op"), column(grid, "Module"), strict=True))
    rates = dict(zip(names, column(grid, "FLOP/s"), strict=True))
    assert next(rates[each] for each in rates if each.startswith("custom.shuffle")) == "–"
    assert rates["total"].startswith("≥ ")


def test_the_table_of_a_predicted_run() -> None:
    grid = grid_of(predicted(small()).report(), "Top operators by predicted time")
    # 1.5 x 148.8 = 223.2 ns, from 178.6 to 279.0; 1.5 x 8 = 12; together 235.2, ±10 %.
    assert column(grid, "Predicted") == ["220 (180–280) ns", "12 (10–15) ns", "240 (210–260) ns"]
    assert column(grid, "Source") == ["calibrated", "calibrated", ""]
    assert column(grid, "Share") == ["94.9 %", "5.1 %", "100 %"]
    assert "Measured" not in [each.heading for each in grid.columns]


def test_alike_calls_with_one_prediction_share_a_row() -> None:
    bounds = grid_of(resnet().report(), "Top operators by minimum time")
    grid = grid_of(predicted(resnet()).report(), "Top operators by predicted time")
    assert column(grid, "Module") == column(bounds, "Module")
    assert any(each != "1" for each in column(grid, "Calls")[:-2])
    # Two layers of one size, each 100 ns from 80 to 120: together 200 from 160 to 240.
    net = Network()
    x = net.linear(net.linear(net.tensor(1, 32, role=Role.INPUT), 32, "a"), 32, "b")
    net.relu(x, "act")
    analysis = predicted(analysis_of(net, dram_profile()))
    rows = tuple(
        replace(row, predicted_s=1e-7, predicted_low_s=0.8e-7, predicted_high_s=1.2e-7)
        for row in analysis.operators
    )
    alike = grid_of(replace(analysis, operators=rows).report(), "Top operators by predicted time")
    assert (column(alike, "Module")[0], column(alike, "Calls")[0]) == ("a and 1 more", "2")
    assert column(alike, "Predicted")[0] == "200 (160–240) ns"
    apart = (replace(rows[0], predicted_s=1.1e-7), *rows[1:])
    grid = grid_of(replace(analysis, operators=apart).report(), "Top operators by predicted time")
    assert column(grid, "Module")[:2] == ["a", "b"]


def test_without_every_prediction_rows_are_sorted_by_bounds() -> None:
    analysis = predicted(small(), 1.5)
    lacking = replace(
        analysis.operators[0],
        predicted_s=None,
        predicted_low_s=None,
        predicted_high_s=None,
        prediction_source=None,
    )
    # The ReLU's prediction is longer than the bound of the layer, of which nothing is predicted.
    long = replace(analysis.operators[1], predicted_s=1.0, predicted_high_s=2.0)
    totals = replace(analysis.totals, predicted_s=None, predicted_low_s=None, predicted_high_s=None)
    analysis = replace(analysis, operators=(lacking, long), totals=totals)
    assert kind_of_time(analysis) == "bound"
    report = analysis.report()
    grid = grid_of(report, "Top operators by minimum time")
    assert column(grid, "Op") == ["addmm", "relu_", ""]
    assert column(grid, "Predicted")[0] == "bound only"
    assert column(grid, "Predicted")[2] == "–"
    assert column(grid, "Source") == ["bound only", "calibrated", ""]
    assert column(grid, "Share") == ["94.9 %", "5.1 %", "100 %"]
    assert (
        facts_of(analysis.report(DETAILS))["Sources"]
        == "1 from calibration data · 1 minimum time only (addmm)"
    )
    assert "Predicted" not in facts_of(report)


def test_sources_are_counted_and_the_doubtful_ones_named() -> None:
    analysis = predicted(resnet())
    rows = tuple(
        replace(row, prediction_source="extrapolated: 9 samples, distance 5.1")
        if row.op in ("aten.cat", "aten.mean")
        else row
        for row in analysis.operators
    )
    said = facts_of(replace(analysis, operators=rows).report(DETAILS))["Sources"]
    at_work = len(working(rows))
    assert said == f"{at_work - 2} from calibration data · 2 extrapolated (cat, mean)"


@pytest.mark.parametrize("by", ["module", "type", "phase"])
def test_sums_by_module_type_and_phase_have_all_times(by: str) -> None:
    analysis = timed(predicted(small()))
    report = analysis.report(View(by=by))  # pyright: ignore[reportArgumentType]
    (grid,) = [each for each in report.blocks if isinstance(each, Grid)]
    at = 0 if by == "module" else -1
    assert column(grid, "Min time")[at] == "157 ns"
    # 235.5 ns; the totals say 10 % less to 10 % more.
    assert column(grid, "Predicted")[at] == "240 (210–260) ns"
    assert column(grid, "Measured")[at] == "314 ns"
    assert column(grid, "Share")[at] == "100 %"


def test_a_sum_with_an_unknown_time_is_unknown() -> None:
    analysis = timed(small())
    rows = (replace(analysis.operators[0], measured_s=None), analysis.operators[1])
    grid = grid_of(with_rows(analysis, rows).report(View(by="type")), "Operator types")
    assert column(grid, "Measured") == ["–", "16.0 ns", "–"]
    assert column(grid, "Share") == ["94.9 %", "5.1 %", "100 %"], "of the bound"


def test_types_are_sorted_by_the_time_that_their_share_is_of() -> None:
    analysis = timed(small())
    slow = replace(analysis.operators[1], measured_s=1.0)
    changed = with_rows(analysis, (analysis.operators[0], slow))
    grid = grid_of(changed.report(View(by="type")), "Operator types")
    assert column(grid, "Type") == ["pointwise", "matrix product", "total"]


def test_page_faults_that_cost_something_are_warned_about() -> None:
    """9,400 faults of 1 µs take 9.4 ms of 28.3; 12 take none of it."""
    measurement = replace(
        MEASUREMENT,
        page_faults=9_400,
        page_fault_s=1e-6,
        allocator="default",
        conditions=("another process took 3 %",),
    )
    analysis = replace(full(), measurement=measurement)
    rows = [replace(analysis.operators[0], measured_page_faults=9_000), *analysis.operators[1:]]
    report = replace(analysis, operators=tuple(rows)).report(DETAILS)
    assert (
        "9,400 page faults per pass (9.4 ms, 33.2 % of the pass; allocator: default; without page"
        " faults: about 19 ms)"
    ) in facts_of(report)["Measured"]
    text = plain_text(report)
    assert "9,400 page faults per pass (most in convolution of 'conv1'): the allocator" in text
    assert "GLIBC_TUNABLES" not in text
    assert "\n  another process took 3 %\n" in text
    quiet = replace(
        full(), measurement=replace(MEASUREMENT, page_fault_s=1e-6, allocator="default")
    )
    assert (
        "12 page faults per pass (allocator: default)"
        in facts_of(quiet.report(DETAILS))["Measured"]
    )
    assert "to the system" not in plain_text(quiet.report())


def test_settings_that_keep_memory_are_named_beside_page_faults() -> None:
    run = replace(PREDICTION, tunables="glibc.malloc.mmap_threshold=4194304")
    measurement = replace(MEASUREMENT, page_faults=9_400, page_fault_s=1e-6)
    analysis = replace(full(), measurement=measurement, prediction=run)
    assert "; GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4194304 avoids them" in plain_text(
        analysis.report()
    )


def test_page_faults_of_unknown_cost_are_counted_alone() -> None:
    unknown = replace(full(), measurement=replace(MEASUREMENT, page_faults=9_400))
    assert "9,400 page faults per pass · " in facts_of(unknown.report(DETAILS))["Measured"]


def test_disturbed_and_scattered_measurements_are_warned_about() -> None:
    scattered = Sample(times_s=(0.01, 0.02, 0.03, 0.04))
    measurement = replace(MEASUREMENT, are_disturbed=True, end_to_end=scattered)
    text = plain_text(replace(full(), measurement=measurement).report())
    assert "other processes disturbed every round" in text
    # The quartiles are 17.5 and 32.5 ms around 25 ms.
    assert "pass times vary: IQR is 60.0 % of the median" in text
    assert re.search(r"^Measured +25 ms \(", text, re.MULTILINE)


def test_many_operators_faster_than_their_bound_do_not_fill_the_page() -> None:
    lines = above_roofline(timed(resnet(), 0.5))
    assert len([each for each in lines if "below its minimum time" in each]) == 5
    at_work = len(working(resnet().operators))
    assert lines[5] == f"{at_work - 5} more operators were measured below their minimum time"


def test_the_picture_shows_the_whole_pass_and_keeps_bounds_where_nothing_was_measured() -> None:
    assert title_of(full()).endswith(" · 28.3 ms measured")
    expected = replace(predicted(resnet()), prediction=PREDICTION)
    assert title_of(expected).endswith(" · minimum 17.6 ms, predicted 27 ms")
    assert points_of(expected) == points_of(resnet())
    assert subtitle_of(expected) == subtitle_of(resnet())


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("analysis", [full(), timed(predicted(trained()))], ids=["net", "lesson"])
def test_a_narrow_terminal_keeps_what_counts(width: int, analysis: Analysis) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    print_report(analysis.report(), console)
    lines = stream.getvalue().splitlines()
    at = next(
        i for i, line in enumerate(lines) if line.startswith("Top operators by measured time")
    )
    for heading in ("Module", "Op", "Min", "Predicted", "Measured", "Share"):
        assert heading in lines[at + 1].split(), lines[at + 1]
    assert max(map(len, lines[at + 1 : at + 5])) <= width
    assert "Efficiency" in lines[at + 1] or width < 100


SHEET = dram_profile()
ON_HOST = replace(SHEET, name="own", host=full_profile().host)


@pytest.mark.parametrize(
    ("hardware", "run", "reason", "step"),
    [
        (
            *(ON_HOST, Run()),
            "no calibration data; run `roofline calibrate` on that machine (5 to 8 minutes)",
            "calibrate",
        ),
        (
            *(ON_HOST, Run(dtype="float64")),
            "no calibration data in float64; run `roofline calibrate --dtype float64` on that"
            " machine (5 to 8 minutes)",
            "calibrate --dtype float64",
        ),
        (ON_HOST, Run(train=True, optimizer="sgd", loss="mean"), "training is not predicted", ""),
        (load_hardware("v100"), Run(device="cuda"), "no measurements of such GPUs", ""),
        (SHEET, Run(), "no calibration data of this machine", ""),
    ],
)
def test_calibrate_is_the_fix_only_where_it_gives_predictions(
    hardware: HardwareProfile, run: Run, reason: str, step: str
) -> None:
    analysis = replace(small(), hardware=hardware, threads=hardware.threads, run=run)
    assert why_not_predicted(analysis) == reason
    text = plain_text(analysis.report(View(arguments="net --train")))
    steps = text[text.index("Next: ") :].splitlines()[0]
    assert (f"roofline {step} ·" in steps) == bool(step)
    assert ("calibrate" in steps) == bool(step) and "predict" not in steps


def test_calibrate_is_no_fix_for_other_numbers_of_threads() -> None:
    hardware = replace(ON_HOST, threads=8)
    analysis = replace(small(), hardware=hardware, threads=3)
    assert why_not_predicted(analysis) == (
        "no calibration data for 3 threads; `roofline calibrate` measures 1 and 8"
    )


def test_calls_with_equal_cells_share_a_row() -> None:
    # The second call finds a few more bytes in L3, which no cell shows.
    net = Network()
    x = net.tensor(128, 768, role=Role.INPUT)
    net.linear(net.linear(x, 768, "layer.0.query"), 768, "layer.1.query")
    analysis = analysis_of(net, full_profile())
    first, second = analysis.operators
    crossing = {**first.level_bytes}
    crossing["L3"] += 4
    rows = (first, replace(second, level_bytes=crossing, eager_min_time_s=first.eager_min_time_s))
    assert grouping_key(rows[0]) == grouping_key(rows[1])
    # Modules that differ in the number of the layer are one.
    assert modules_of(rows) == "layer.0.query"
    assert modules_of((rows[0], replace(rows[1], module_path="layer.1.key"))) == (
        "layer.0.query and 1 more"
    )


def test_verbose_reports_have_the_ridge_of_each_level() -> None:
    analysis = resnet()
    verbose, short = (analysis.report(view).blocks[0] for view in (View(verbose=True), View()))
    assert isinstance(verbose, KeyValueBlock) and isinstance(short, KeyValueBlock)
    lines = dict(verbose.lines)
    roof = Roof(analysis.hardware, analysis.threads)
    for each in roof.levels:
        assert f"{each.level.name} " in lines["Ridges"]
    assert "float32" in lines["Ridges"]
    assert "Ridges" not in dict(short.lines)
