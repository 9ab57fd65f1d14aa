"""Predicted and measured times of models side by side; the numbers are worked out by hand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from roofline.analysis import Analysis, Run
from roofline.design.comparison import Comparison
from roofline.design.model_quantities import Quantity
from roofline.presentation.markdown import report_markdown
from roofline.presentation.plain import plain_text
from roofline.presentation.reports.comparison_report import comparison_csv, comparison_report
from roofline.presentation.reports.report import Grid
from tests.presentation.examples import analysis_of, bare_profile, resnet_like, small
from tests.presentation.predictions import with_measurement, with_predictions


def slow() -> Analysis:
    """6 + 3 seconds and 1 between the operators: 10, from 9 to 12."""
    return with_predictions(small(), {"fc": 6.0, "act": 3.0})


def fast() -> Analysis:
    """2 + 1 seconds and 1 between the operators: 4, from 3.6 to 4.8."""
    return with_predictions(small(), {"fc": 2.0, "act": 1.0})


def quantity(comparison: Comparison, name: str) -> Quantity:
    (found,) = [each for each in comparison.quantities if each.name == name]
    return found


def cells(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    grid = next(each for each in comparison_report(comparison).blocks if isinstance(each, Grid))
    return {name: tuple(row) for name, *row in grid.rows}


def in_short(comparison: Comparison) -> str:
    return plain_text(comparison_report(comparison)).partition("In short\n")[2]


def test_predictions_have_intervals_and_a_ratio() -> None:
    comparison = Comparison.of([slow(), fast()], names=["a", "b"])
    assert quantity(comparison, "predicted_s").values == (10.0, 4.0)
    assert comparison.ratios(quantity(comparison, "predicted_s")) == (1.0, 0.4)
    assert cells(comparison)["predicted"] == ("10 (9–12) s", "4.0 (3.6–4.8) s", "0.4")
    assert comparison.sentences[0].endswith("; 2.5 × lower predicted time")
    assert "bound only" not in plain_text(comparison_report(comparison))


def test_the_reference_may_be_the_faster_one() -> None:
    comparison = Comparison.of([slow(), fast()], names=["a", "b"], reference=1)
    assert cells(comparison)["predicted"][-1] == "2.5"
    assert comparison.sentences[0].endswith("; 2.5 × higher predicted time")


def test_intervals_that_overlap_are_said_to() -> None:
    """10 from 9 to 12, and 8 from 7.2 to 9.6."""
    near = with_predictions(small(), {"fc": 5.0, "act": 2.0})
    (sentence,) = Comparison.of([slow(), near]).sentences
    assert sentence.endswith("; 1.2 × lower predicted time, though the intervals overlap")
    (sentence,) = Comparison.of([slow(), slow()]).sentences
    assert sentence.endswith("; about the same predicted time, though the intervals overlap")


def test_a_thousand_times_is_not_the_same() -> None:
    """9 and 1 seconds against 0.009 and 1: the pass is 9.9 times as fast; measured, 1000 times."""
    tiny = with_predictions(small(), {"fc": 0.006, "act": 0.003})
    pair = [with_measurement(slow(), 5.0), with_measurement(tiny, 0.005)]
    (sentence,) = Comparison.of(pair).sentences
    assert sentence.endswith("; 9.9 × lower predicted time; 1.0 k × lower measured time")


def test_who_is_not_predicted_has_no_ratio_and_a_line() -> None:
    half = with_predictions(small(), {"fc": 5.0})
    comparison = Comparison.of([slow(), half], names=["a", "b"])
    assert cells(comparison)["predicted"] == ("10 (9–12) s", "bound only", "–")
    assert "predicted" not in comparison.sentences[0]
    assert "bound only for b: 1 of 2 operators are not predicted" in in_short(comparison)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "nothing was learned there of such a run"),
        ({"cache": "cold"}, "a first pass, with cold caches, is not predicted"),
        ({"run": Run(train=True, optimizer="sgd", loss="its own")}, "training is not predicted"),
        ({"run": Run(autocast="bfloat16")}, "autocast is not predicted"),
        ({"run": Run(device="cuda")}, "operators for cuda are not predicted on cpu"),
    ],
)
def test_why_nothing_is_predicted_is_said_once(change: dict[str, object], reason: str) -> None:
    analysis = replace(small(), **change)  # pyright: ignore[reportArgumentType]
    comparison = Comparison.of([analysis, analysis], names=["a", "b"])
    assert "predicted" not in cells(comparison)
    assert "measured" not in cells(comparison)
    assert in_short(comparison).count("bound only") == 1
    assert f"bound only for a, b: {reason}" in in_short(comparison)


def test_without_a_bound_there_is_not_even_that() -> None:
    analysis = analysis_of(resnet_like((1,)), bare_profile())
    text = in_short(Comparison.of([analysis, analysis], names=["a", "b"]))
    assert "neither bound nor prediction for a, b: nothing was learned there" in text
    assert "bound only" not in text


def test_measured_passes_are_compared_too() -> None:
    comparison = Comparison.of(
        [with_measurement(slow(), 8.0), with_measurement(small(), 5.0)], names=["a", "b"]
    )
    assert cells(comparison)["measured"] == ("8.0 s", "5.0 s", "0.62")
    assert comparison.sentences[0].endswith("; 1.6 × lower measured time")
    assert cells(comparison)["predicted"] == ("10 (9–12) s", "bound only", "–")


def test_operators_alone_are_not_compared_in_silence() -> None:
    """One prediction knows what runs between operators, the other does not."""
    alone = fast()
    assert alone.prediction is not None
    alone = replace(
        alone,
        prediction=replace(
            alone.prediction, overhead_s=None, predicted_s=3.0, low_s=2.7, high_s=3.6
        ),
    )
    (note,) = Comparison.of([slow(), alone], names=["a", "b"]).notes
    assert note.startswith("predicted for b are the operators alone")
    assert not Comparison.of([alone, alone]).notes


def test_every_form_has_the_same_times_and_unknown_is_never_zero() -> None:
    comparison = Comparison.of([slow(), small()], names=["a", "b"])
    one, other = list(csv.DictReader(io.StringIO(comparison_csv(comparison))))
    names = ("predicted_s", "predicted_low_s", "predicted_high_s", "measured_s")
    assert [one[name] for name in names] == ["10.0", "9.0", "12.0", ""]
    assert [other[name] for name in names] == ["", "", "", ""]
    assert (one["predicted_s_ratio"], other["predicted_s_ratio"]) == ("1.0", "")
    data = json.loads(comparison.to_json())
    assert data["schema_version"] == 2
    assert [data["models"][0][name] for name in names] == [10.0, 9.0, 12.0, None]
    assert [data["models"][1][name] for name in names] == [None] * 4
    frame = comparison.to_frame()
    assert list(frame.columns) == list(one)
    assert list(frame["predicted_high_s"].isna()) == [False, True]
    assert "| 10 (9–12) s | bound only |" in report_markdown(comparison_report(comparison))
