"""What a validation says: the verdict, the tables, the warnings, and its formats."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from roofline.core.blocks import Grid, Report, View
from roofline.latency.accuracy import FIGURES, RatioValidation, Skipped
from roofline.latency.validation import Validation
from roofline.render.console import print_report
from tests.latency.judged import judged, validation


def grid(report: Report, title: str) -> Grid:
    (found,) = [
        each for each in report.blocks if isinstance(each, Grid) and each.title.startswith(title)
    ]
    return found


def text_of(value: Validation, suffix: str, *, top: int = 20) -> str:
    """The validation in a format that is text."""
    text = value.render(suffix.removeprefix("."), View(top=top))
    assert isinstance(text, str)
    return text


def column(table: Grid, heading: str) -> list[str]:
    number = [each.heading for each in table.columns].index(heading)
    return [row[number] for row in table.rows]


def several() -> Validation:
    """Off by -8, +50 and 0 %, in two settings; each measured again, 2 % slower."""
    return validation(
        judged(0.1, 0.092, model="first", remeasured_s=0.102, operators=100, samples=500),
        judged(0.02, 0.03, model="second", remeasured_s=0.0204, operators=50, samples=1_400),
        judged(
            0.1,
            0.1,
            model="first",
            batch=8,
            dtype="bfloat16",
            threads=2,
            channels_last=True,
            remeasured_s=0.102,
            predicted_low_s=0.08,
            predicted_high_s=0.12,
            eager_min_time_s=0.05,
            samples=500,
        ),
    )


@pytest.mark.parametrize(
    ("value", "headline"),
    [
        (
            several(),
            "Prediction MAPE 19.3 % over 3 runs of 2 models, 66.7 % within ±10 %, noise floor"
            " 2.0 %",
        ),
        (
            validation(judged(100, 110), judged(100, model="other", remeasured_s=102)),
            "Prediction MAPE 10.0 % over 1 run of 1 model, 100 % within ±10 %, noise floor 2.0 %",
        ),
        (
            validation(judged(100), judged(100, model="other")),
            "No predictions: minimum times only, for 2 runs of 2 models",
        ),
        (
            validation(ratios=(RatioValidation(name="a", predicted=3, measured=4),)),
            "Prediction MAPE of speedups 25.0 % over 1 pair of designs",
        ),
        (validation(), "No runs to validate"),
    ],
)
def test_the_verdict_comes_first(value: Validation, headline: str) -> None:
    assert value.report().headline == headline
    assert str(value).startswith(f"{headline}\n\nMachine")


def test_every_figure_stands_beside_its_noise_floor() -> None:
    totals = grid(several().report(), "Prediction accuracy")
    rows = {row[1]: row[2:] for row in totals.rows}
    assert rows["mape"] == ("19.3 %", "2.0 %", "3 runs")
    assert rows["bias"] == ("+0.0 %", "+2.0 %", "3 runs")
    assert rows["within_10_percent"] == ("66.7 %", "100 %", "3 runs")
    assert rows["interval_coverage"] == ("100 %", "–", "1 run")
    # 0.02 and 0.1 s are too far apart, and the third run has another setting.
    assert rows["close_pairs_right"] == ("–", "–", "0 pairs")
    assert rows["operator_error"] == ("–", "–", "0 runs")
    assert rows["bound_validity"] == ("100 %", "–", "150 operators")
    # What nobody asked for has no row; the noise floor is a column.
    asked_for = {"ratio_error", "measured_operators_mape", "usual_clock_mape"}
    assert set(FIGURES) - set(rows) == {*asked_for, "noise_floor"}


def test_what_was_asked_for_has_its_row() -> None:
    value = validation(
        judged(100, 100, operators_measured_s=103, predicted_usual_s=90),
        ratios=(RatioValidation(name="a", predicted=2, measured=4, remeasured=5),),
    )
    rows = {row[1]: row[2:] for row in grid(value.report(), "Prediction accuracy").rows}
    assert rows["ratio_error"] == ("50.0 %", "25.0 %", "1 pair")
    assert rows["measured_operators_mape"] == ("3.0 %", "–", "1 run")
    assert rows["usual_clock_mape"] == ("10.0 %", "–", "1 run")


def test_settings_have_a_table_where_there_are_several() -> None:
    table = grid(several().report(), "Accuracy by setting")
    assert [row[:3] for row in table.rows] == [
        ("batch 1, float32, 1 thread", "2", "29.0 %"),
        ("batch 8, bfloat16, 2 threads, channels last", "1", "0 %"),
    ]
    text = str(validation(judged(1, 1), judged(2, 2, model="b")))
    assert "Accuracy by setting" not in text
    assert "Run          batch 1, float32, 1 thread" in text


def test_settings_are_in_order_and_a_batch_may_be_missing() -> None:
    batches = (8, None, 1)
    runs = [judged(1, 1, batch=batch, threads=threads) for threads in (2, 1) for batch in batches]
    table = grid(validation(*runs).report(), "Accuracy by setting")
    assert column(table, "Setting") == [
        f"{batch}float32, {threads}"
        for threads in ("1 thread", "2 threads")
        for batch in ("batch 1, ", "batch 8, ", "")
    ]


def test_the_worst_runs_come_first_and_those_without_a_prediction_last() -> None:
    runs = [judged(100), judged(100, 104), judged(100, 80), judged(100, 101), judged(100, 110)]
    value = validation(*runs)
    assert column(grid(value.report(), "Runs"), "Error") == [
        *("-20.0 %", "+10.0 %", "+4.0 %", "+1.0 %", "–")
    ]
    shown = grid(value.report(View(top=2)), "Runs")
    assert column(shown, "Error") == ["-20.0 %", "+10.0 %"]
    ((first, *_),) = shown.sums
    assert first == "… 3 more"
    assert "≤ 4.0 %" in shown.sums[0]


def test_a_run_is_shown_with_its_times() -> None:
    table = grid(several().report(), "Runs")
    assert table.rows[2] == (
        *("first", "batch 8, bfloat16, 2 threads, channels last"),
        *("100 ms", "80.0 ms – 120 ms", "100 ms", "+0.0 %", "+2.0 %", "50.0 ms"),
    )
    assert column(table, "Remeasured") == ["+2.0 %"] * 3
    alone = validation(judged(100, 90, operators_measured_s=98)).report()
    assert column(grid(alone, "Runs"), "Operators alone") == ["-2.0 %"]


def test_page_faults_have_columns_where_they_matter() -> None:
    many = judged(
        0.03,
        0.032,
        predicted_settled_s=0.02,
        predicted_page_faults=5_000,
        page_faults=4_800,
        model="many",
    )
    few = judged(
        0.03, 0.0301, predicted_settled_s=0.03, predicted_page_faults=50, page_faults=0, model="few"
    )
    table = grid(validation(many, few).report(), "Runs")
    assert column(table, "No page faults") == ["20.0 ms", "–"]
    assert column(table, "Page faults") == ["5,000, counted 4,800", "50, counted 0"]
    assert "No page faults" not in [
        each.heading for each in grid(validation(few).report(), "Runs").columns
    ]


def test_the_allocator_of_the_processes_is_named() -> None:
    found = replace(validation(judged(1, 1)), allocator="default")
    assert re.search("^Allocator +default$", str(found), re.MULTILINE)
    assert "Allocator" not in str(validation(judged(1, 1)))


def test_ratios_have_a_table() -> None:
    ratios = (
        RatioValidation(name="16 channels, 112 px", predicted=2.0, measured=1.6),
        RatioValidation(name="32 channels, 112 px", predicted=None, measured=2.5, remeasured=2.0),
        RatioValidation(name="960 channels, 7 px", predicted=4.0, measured=8.0),
    )
    table = grid(validation(ratios=ratios).report(), "Speedups")
    assert table.rows == (
        ("960 channels, 7 px", "4.00×", "8.00×", "-50.0 %", "–"),
        ("16 channels, 112 px", "2.00×", "1.60×", "+25.0 %", "–"),
        ("32 channels, 112 px", "–", "2.50×", "–", "-20.0 %"),
    )


def test_skipped_models_say_why() -> None:
    skipped = (
        Skipped(model="vgg11", batch=8, dtype="float32", threads=2, problem="ran out of memory"),
    )
    text = str(validation(skipped=skipped))
    assert "Skipped\n  vgg11 (batch 8, float32, 2 threads): ran out of memory\n" in text


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        (
            validation(judged(100, 100, operators=3_400, below_bound=2)),
            "2 of 3,400 operators took less than 97.0 % of the minimum time (net): a count, a data"
            " type or a ceiling is wrong; please report it",
        ),
        (
            validation(*(judged(100, model=f"m{i}") for i in range(7)), judged(100, 100)),
            "7 of 8 runs could not be predicted (m0, m1, m2, m3, m4 and 2 more): calibration"
            " data is missing; run `roofline calibrate`",
        ),
        (
            validation(judged(100, 100)),
            "no run was remeasured: the noise floor is unknown",
        ),
        (
            validation(judged(100, 102, remeasured_s=105)),
            "the noise floor is as high as the MAPE: validate on a quieter machine",
        ),
    ],
)
def test_what_a_reader_must_not_miss(value: Validation, warning: str) -> None:
    assert f"\n  {warning}\n" in str(value)


def test_all_is_well_without_a_warning() -> None:
    assert "Warnings" not in str(several())
    given = validation(judged(100, 110, remeasured_s=101), warnings=("the machine was busy",))
    assert "Warnings\n  the machine was busy\n" in str(given)


def test_what_it_was_learned_from() -> None:
    assert "500 to 1,400 samples" in str(several())
    one = str(validation(judged(1, 1, samples=1)))
    assert "Calibration  1 sample of other families (leave-one-family-out)" in one
    assert "Calibration" not in str(validation(judged(1)))


def test_what_others_wrote_is_made_safe() -> None:
    evil = validation(
        judged(1, 1, model="\x1b[31m<b>|red", dtype="\x1b"),
        skipped=(Skipped(model="\x1b", batch=None, dtype="x", threads=1, problem="\x1b\n"),),
        ratios=(RatioValidation(name="\x1b", predicted=1, measured=1),),
        warnings=("\x1b",),
    )
    assert "\x1b" not in str(evil)
    for suffix in (".md", ".html"):
        text = text_of(evil, suffix)
        assert "\x1b" not in text and "<b>" not in text


def test_a_terminal_of_any_width_shows_it() -> None:
    for width in (40, 80, 200):
        text = io.StringIO()
        print_report(several().report(), Console(file=text, width=width, force_terminal=True))
        assert "MAPE" in text.getvalue()


def test_formats() -> None:
    value = several()
    assert json.loads(text_of(value, ".json"))["totals"]["mape"] == pytest.approx(0.58 / 3)
    assert text_of(value, ".md").startswith("# Prediction MAPE 19.3 % ")
    page = text_of(value, ".html")
    assert page.startswith("<!doctype html>\n") and "<title>Prediction MAPE" in page
    assert page.count("<html") == page.count("</html>") == 1
    assert "Prediction MAPE" in value._repr_html_()
    # The picture stands above the tables, and nothing is fetched from elsewhere.
    assert 0 < page.index("<svg") < page.index("<h4>")
    assert "<script" not in page and 'src="' not in page
    assert text_of(value, ".svg").startswith("<?xml")
    picture = value.render("png")
    assert isinstance(picture, bytes) and picture.startswith(b"\x89PNG")
    short = text_of(value, ".md", top=1)
    assert "… 2 more" in short


def test_csv_has_a_line_a_run_and_says_what_was_skipped() -> None:
    value = validation(
        judged(100, 90, batch=None),
        judged(100),
        skipped=(Skipped(model="vgg11", batch=8, dtype="float32", threads=2, problem="raised"),),
    )
    first, second, third = csv.DictReader(io.StringIO(text_of(value, ".csv")))
    assert (first["predicted_s"], first["error"], first["batch"]) == ("90", "-0.1", "")
    assert (first["channels_last"], first["problem"]) == ("false", "")
    assert (second["predicted_s"], second["error"]) == ("", "")
    assert (third["model"], third["batch"], third["problem"]) == ("vgg11", "8", "raised")
    assert third["measured_s"] == ""


def test_a_frame_has_a_row_a_run() -> None:
    validation = several()
    frame = validation.to_frame()
    assert list(frame["model"]) == [run.model for run in validation.models]
    known = [run.error for run in validation.models if run.error is not None]
    assert list(frame["error"].dropna()) == known
    # The mean of what the frame has is the figure that is reported.
    assert frame["error"].abs().mean() == pytest.approx(validation.totals.mape)
    missing = [run.batch is None for run in validation.models]
    assert list(frame["batch"].isna()) == missing
