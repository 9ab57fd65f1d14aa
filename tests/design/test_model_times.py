"""Predicted and measured times of models side by side; the numbers are worked out by hand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from roofline.analysis import Analysis, Run
from roofline.core.blocks import Grid, View
from roofline.design.comparison.models import Quantity
from roofline.design.comparison.result import Comparison
from roofline.render.console import plain_text
from roofline.render.markdown import report_markdown
from tests.analysis.examples import analysis_of, bare_profile, resnet_like, small
from tests.analysis.predictions import with_measurement, with_predictions


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
    grid = next(each for each in comparison.report().blocks if isinstance(each, Grid))
    return {name: tuple(row) for name, *row in grid.rows}


def in_short(comparison: Comparison) -> str:
    return plain_text(comparison.report(View(verbose=True))).partition("Notes\n")[2]


def test_predictions_have_intervals_and_a_ratio() -> None:
    comparison = Comparison.of([slow(), fast()], names=["a", "b"])
    assert quantity(comparison, "predicted_s").values == (10.0, 4.0)
    assert comparison.ratios(quantity(comparison, "predicted_s")) == (1.0, 0.4)
    # ln(4 / 3.6) and ln(12 / 10) downwards, ln(4.8 / 4) and ln(10 / 9) upwards, both times 0.2106.
    assert cells(comparison)["predicted"] == ("10 (9–12) s", "4.0 (3.6–4.8) s", "0.40 (0.32–0.49)")
    assert comparison.sentences[0].startswith(
        "b vs a: equal FLOP, 2.5× faster on sheet (predicted, 80 % interval 2.0 to 3.1);"
    )
    assert "bound only" not in plain_text(comparison.report())


def test_the_reference_may_be_the_faster_one() -> None:
    comparison = Comparison.of([slow(), fast()], names=["a", "b"], reference=1)
    assert cells(comparison)["predicted"][-1] == "2.5 (2.0–3.1)"
    assert "2.5× slower on sheet (predicted, 80 % interval 2.0 to 3.1)" in comparison.sentences[0]


def test_a_ratio_whose_interval_holds_1_is_said_to() -> None:
    """10 against 8, and against 9, each from -10 to +20 %: 1.25 and 1.11, times 0.81 to 1.23."""
    words = {
        5.0: "1.2× faster on sheet (predicted, 80 % interval 1.0 to 1.5);",
        6.0: "1.1× faster on sheet (predicted, 80 % interval 0.9 to 1.4, not significant);",
    }
    for first, said in words.items():
        near = with_predictions(small(), {"fc": first, "act": 2.0})
        assert said in Comparison.of([slow(), near]).sentences[0]


def test_what_is_wrong_with_equal_operators_is_wrong_in_both() -> None:
    """The ratio is 1, whatever the interval of each; of other operators, it is open."""
    (sentence,) = Comparison.of([slow(), slow()]).sentences
    assert "equal FLOP, equally fast on sheet (predicted); matrix product" in sentence
    turned = with_predictions(small(), {"fc": 3.0, "act": 6.0})
    (sentence,) = Comparison.of([slow(), turned]).sentences
    assert "equally fast on sheet (predicted, 80 % interval 0.8 to 1.2, not significant" in sentence


def test_a_thousand_times_is_not_the_same() -> None:
    """9 and 1 seconds against 0.009 and 1: the pass is 9.9 times as fast; measured, 1000 times."""
    tiny = with_predictions(small(), {"fc": 0.006, "act": 0.003})
    pair = [with_measurement(slow(), 5.0), with_measurement(tiny, 0.005)]
    (sentence,) = Comparison.of(pair).sentences
    assert (
        "9.9× faster on sheet (predicted, 80 % interval 8.0 to 12.2), 1000× faster (measured)"
        in sentence
    )


def test_who_is_not_predicted_has_no_ratio_and_a_line() -> None:
    half = with_predictions(small(), {"fc": 5.0})
    comparison = Comparison.of([slow(), half], names=["a", "b"])
    assert cells(comparison)["predicted"] == ("10 (9–12) s", "bound only", "–")
    assert "predicted" not in comparison.sentences[0]
    assert "bound only for b: 1 of 2 operators outside the calibration data" in in_short(comparison)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "no calibration data of this machine"),
        ({"cache": "cold"}, "cold caches are not predicted"),
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
    assert "no ceilings and no prediction for a, b: no calibration" in text
    assert "bound only" not in text


def test_measured_passes_are_compared_too() -> None:
    comparison = Comparison.of(
        [with_measurement(slow(), 8.0), with_measurement(small(), 5.0)], names=["a", "b"]
    )
    assert cells(comparison)["measured"] == ("8.0 s", "5.0 s", "0.62")
    # Nothing is predicted, and bounds are no reason of what was measured.
    assert comparison.sentences[0].endswith("equal FLOP, 1.6× faster on sheet (measured)")
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
    assert note.startswith("predictions of b have no overhead")
    assert not any("alone" in line for line in Comparison.of([alone, alone]).notes)


def test_every_form_has_the_same_times_and_unknown_is_never_zero() -> None:
    comparison = Comparison.of([slow(), small()], names=["a", "b"])
    one, other = list(csv.DictReader(io.StringIO(comparison.to_csv())))
    names = ("predicted_s", "predicted_low_s", "predicted_high_s", "measured_s")
    assert [one[name] for name in names] == ["10.0", "9.0", "12.0", ""]
    assert [other[name] for name in names] == ["", "", "", ""]
    assert (one["predicted_s_ratio"], other["predicted_s_ratio"]) == ("1.0", "")
    data = json.loads(comparison.to_json())
    assert (data["schema_version"], data["kind"]) == (1, "comparison")
    assert [data["rows"][0][name] for name in names] == [10.0, 9.0, 12.0, None]
    assert [data["rows"][1][name] for name in names] == [None] * 4
    frame = comparison.to_frame()
    assert list(frame.columns) == list(one)
    assert list(frame["predicted_high_s"].isna()) == [False, True]
    assert "| 10 (9–12) s | bound only |" in report_markdown(comparison.report())
