"""An earlier measurement in reports; every number here was worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from roofline.analysis import Analysis
from roofline.core.blocks import View
from roofline.latency.prediction import RunPrediction
from roofline.latency.samples import EarlierRun
from tests.analysis.blocks import facts_of
from tests.analysis.examples import bare_profile, resnet, small

EARLIER = EarlierRun(
    # The spread is 0.7 % and leaves three digits.
    measured_s=0.0283,
    iqr_s=0.0002,
    date="2026-03-04T10:00:00",
    origin="calibrate",
    model="resnet-like",
)
PREDICTION = RunPrediction(
    predicted_s=0.0274,
    low_s=0.0238,
    high_s=0.0312,
    operators_s=0.0252,
    overhead_s=0.0022,
    calibration="1234 operators",
)


def measured_before() -> Analysis:
    return replace(resnet(), prediction=PREDICTION, earlier=EARLIER)


def test_the_headline_has_bound_prediction_and_measurement() -> None:
    said = measured_before().summary
    assert said.startswith(
        "resnet-like: measured 28.3 ms earlier, predicted 27 ms (80 % interval 24–31 ms),"
        " minimum 17.6 ms (eager; "
    )


def test_what_was_measured_says_when_and_by_which_command() -> None:
    report = measured_before().report(View(today=date(2026, 3, 7)))
    # 17.6 / 28.3 = 62 %
    assert facts_of(report)["Measured"].startswith(
        "28.3 ms (IQR 200 µs) · 3 days ago (2026-03-04) by roofline calibrate · efficiency 62."
    )
    for_good = replace(measured_before(), earlier=replace(EARLIER, origin="profile")).report()
    assert " · on 2026-03-04 by roofline profile · " in facts_of(for_good)["Measured"]


def test_a_prediction_that_learned_from_it_says_so() -> None:
    # 27.4 / 28.3 - 1 = -3.18 %
    said = facts_of(measured_before().report())["Predicted"]
    assert " · 3.2 % below measured (in the calibration set)" in said
    rows = [
        replace(row, predicted_s=1e-6, prediction_source="measured alone: 9 times")
        for row in resnet().operators
    ]
    alone = replace(measured_before(), operators=tuple(rows))
    said = facts_of(alone.report())["Predicted"]
    assert said.endswith(" · 3.2 % below measured")


def test_a_measurement_without_page_faults_is_compared_without_them() -> None:
    # 27.4 ms and 10 ms of page faults.
    faults = replace(PREDICTION, predicted_s=0.0374, high_s=0.0412, page_faults=3500)
    known = replace(measured_before(), prediction=faults)
    assert " · 32 % above measured" in facts_of(known.report())["Predicted"]
    settled = replace(known, earlier=replace(EARLIER, page_faults=0.0))
    assert "measured 28.3 ms earlier without page faults, predicted" in settled.summary
    said = facts_of(settled.report())["Predicted"]
    assert " · without page faults 27.4 ms · 3.2 % below measured" in said
    of_faulting = replace(known, earlier=replace(EARLIER, page_faults=3500.0))
    assert of_faulting.summary == known.summary


def test_another_name_is_said_and_cannot_break_the_page() -> None:
    earlier = replace(EARLIER, model="timm:\x1b[31mnet", date="", iqr_s=0.0)
    said = facts_of(replace(measured_before(), earlier=earlier).report())["Measured"]
    # Of a single pass the spread is not known.
    assert said.startswith("28.3 ms · by roofline calibrate, as timm:\\x1b[31mnet · efficiency")


def test_without_a_prediction_and_without_a_bound() -> None:
    alone = replace(small(), earlier=EARLIER)
    assert alone.report().headline.startswith(
        "small: measured 28.3 ms earlier, minimum 157 ns (eager, all operands from DRAM; "
    )
    bare = replace(measured_before(), hardware=bare_profile())
    bare = replace(bare, totals=replace(bare.totals, eager_min_time_s=None))
    assert facts_of(bare.report())["Measured"].endswith(" by roofline calibrate")
    assert bare.report().headline == (
        "resnet-like: measured 28.3 ms earlier, predicted 27 ms (80 % interval 24–31 ms), minimum"
        " unknown (no ceilings)"
    )
