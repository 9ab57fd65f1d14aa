"""Figures of a validation: numbers worked out by hand, brute force, and what must always hold."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.conditions import Condition, parse_conditions
from roofline.core.source_errors import PlacedError
from roofline.errors import FileFormatError, ThresholdError
from roofline.latency.accuracy import (
    FIGURES,
    QUANTITIES,
    ModelValidation,
    RatioValidation,
    Setting,
    Skipped,
    ValidationTotals,
    accuracy_of,
    check_thresholds,
    failure,
)
from roofline.result import result_from_data
from tests.latency.judged import judged, validation

# -- worked out by hand ----------------------------------------------------------------------------


def test_errors_of_single_runs() -> None:
    run = judged(100, 125, operators_measured_s=90, remeasured_s=102)
    assert (run.error, run.operators_measured_error, run.remeasured_difference) == (
        0.25,
        -0.1,
        0.02,
    )
    assert judged(100).error is None
    assert run.setting == Setting(threads=1, dtype="float32", batch=1, channels_last=False)


def test_five_runs_by_hand() -> None:
    """Off by +10, -20, 0, +50 and -15 %; a sixth was not predicted and changes nothing."""
    runs = [judged(100, 110), judged(200, 160), judged(400, 400), judged(10, 15), judged(20, 17)]
    totals = ValidationTotals.of([*runs, judged(7)])
    assert totals.mape == pytest.approx(0.95 / 5)
    assert totals.median_error == pytest.approx(0.15)
    assert totals.within_10_percent == 2 / 5
    assert totals.within_20_percent == 4 / 5
    # The ratios in order are 0.8, 0.85, 1, 1.1, 1.5.
    assert totals.bias == 0.0
    assert (totals.runs, totals.predicted_runs, totals.different_models) == (6, 5, 1)


def test_bias_of_an_even_number_is_between_the_two_in_the_middle() -> None:
    """Half as long and eight times as long: the geometric mean of 0.5 and 8 is 2."""
    bias = ValidationTotals.of([judged(10, 5), judged(1, 8)]).bias
    assert bias == pytest.approx(1.0)


def test_operators_count_by_their_time() -> None:
    runs = [
        judged(1, 1, operator_abs_error_s=1.0, operators_s=4.0),
        judged(1, 1, operator_abs_error_s=3.0, operators_s=12.0),
        judged(1, 1, operator_abs_error_s=0.0, operators_s=24.0),
        judged(1, operators_s=1000.0),
    ]
    assert ValidationTotals.of(runs).operator_error == 4 / 40
    assert ValidationTotals.of(runs).operator_runs == 3


def test_bounds_hold_for_a_share_of_all_operators() -> None:
    runs = [judged(1, operators=30, below_bound=1), judged(1, operators=10), judged(1)]
    totals = ValidationTotals.of(runs)
    assert totals.bound_validity == pytest.approx(39 / 40)
    assert totals.operators == 40


def test_intervals_ratios_noise_and_operators_alone() -> None:
    runs = [
        judged(10, 9, predicted_low_s=8, predicted_high_s=10, remeasured_s=11),
        judged(10, 9, predicted_low_s=8, predicted_high_s=9.5, remeasured_s=7),
        judged(10, 9, predicted_low_s=10, predicted_high_s=12, operators_measured_s=12),
        judged(10, 9, predicted_low_s=11, predicted_high_s=12),
        judged(10, 9),
    ]
    ratios = [
        RatioValidation(name="a", predicted=2, measured=4),
        RatioValidation(name="b", predicted=5, measured=4),
        RatioValidation(name="c", predicted=None, measured=4),
    ]
    totals = ValidationTotals.of(runs, ratios)
    assert totals.interval_coverage == 2 / 4
    assert totals.noise_floor == pytest.approx(0.2)
    assert totals.measured_operators_mape == pytest.approx(0.2)
    assert totals.ratio_error == pytest.approx((0.5 + 0.25) / 2)
    counts = (totals.intervals, totals.remeasured_runs, totals.timed_alone_runs, totals.ratios)
    assert counts == (4, 2, 1, 2)


def test_close_pairs_by_hand() -> None:
    """Of 100, 104, 110, 150, 151 s: 104 is too close to 100 and 151 to 150, 151 too far from 100.

    100-110, 100-150, 104-110, 104-150, 104-151, 110-150 and 110-151 are left. Of these, 104-110 is
    predicted to be equal, 104-150 and 110-150 the other way round.
    """
    times = [(100, 1), (104, 5), (110, 5), (150, 4), (151, 9)]
    totals = ValidationTotals.of([judged(*each) for each in times])
    assert (totals.close_pairs, totals.close_pairs_right) == (7, pytest.approx(4 / 7))


@pytest.mark.parametrize(
    "other",
    [{"batch": 8}, {"batch": None}, {"dtype": "x"}, {"threads": 2}, {"channels_last": True}],
)
def test_runs_of_different_settings_are_no_pair(other: dict[str, typing.Any]) -> None:
    one, same, another = judged(10, 10), judged(12, 12), judged(12, 12, **other)
    assert ValidationTotals.of([one, same]).close_pairs == 1
    assert ValidationTotals.of([one, another]).close_pairs == 0
    assert ValidationTotals.of([one, another]).close_pairs_right is None


@pytest.mark.parametrize(
    ("fast", "slow", "pairs"), [(200, 209, 0), (200, 210, 1), (200, 300, 1), (200, 301, 0)]
)
def test_both_limits_of_a_close_pair_belong_to_it(fast: int, slow: int, pairs: int) -> None:
    assert ValidationTotals.of([judged(slow, slow), judged(fast, fast)]).close_pairs == pairs


def test_what_was_not_predicted_is_in_no_pair() -> None:
    assert ValidationTotals.of([judged(10), judged(12, 12)]).close_pairs == 0


def test_where_there_is_nothing_to_judge_there_is_no_figure() -> None:
    for totals in (ValidationTotals.of([]), ValidationTotals.of([judged(10, operators_s=0)])):
        assert {name: getattr(totals, name) for name in FIGURES} == dict.fromkeys(FIGURES)
    free = judged(1, 1, operator_abs_error_s=0.0, operators_s=0.0)
    assert ValidationTotals.of([free]).operator_error is None


def test_figures_are_all_fields_that_are_fractions() -> None:
    hints = typing.get_type_hints(ValidationTotals)
    assert {name for name, hint in hints.items() if hint == float | None} == set(FIGURES)


# -- what must always hold -------------------------------------------------------------------------

TIMES = st.integers(1, 60).map(float)
RUNS = st.lists(
    st.builds(
        lambda measured, predicted, again, threads, batch: judged(
            measured, predicted, remeasured_s=again, threads=threads, batch=batch
        ),
        TIMES,
        st.none() | TIMES,
        st.none() | TIMES,
        st.integers(1, 2),
        st.sampled_from([None, 1]),
    ),
    max_size=12,
)


@given(RUNS)
def test_close_pairs_by_brute_force(runs: list[ModelValidation]) -> None:
    right = pairs = 0
    for slow in runs:
        for fast in runs:
            if (slow.threads, slow.batch) != (fast.threads, fast.batch):
                continue
            if slow.predicted_s is None or fast.predicted_s is None:
                continue
            # In whole numbers: 21/20 is 1.05, 3/2 is 1.5.
            far_enough = 20 * int(slow.measured_s) >= 21 * int(fast.measured_s)
            if far_enough and 2 * int(slow.measured_s) <= 3 * int(fast.measured_s):
                pairs += 1
                right += slow.predicted_s > fast.predicted_s
    totals = ValidationTotals.of(runs)
    assert totals.close_pairs == pairs
    assert totals.close_pairs_right == (pytest.approx(right / pairs) if pairs else None)


@given(RUNS.filter(bool))
def test_a_perfect_prediction(runs: list[ModelValidation]) -> None:
    perfect = [
        replace(
            each,
            predicted_s=each.measured_s,
            predicted_low_s=each.measured_s,
            predicted_high_s=each.measured_s,
        )
        for each in runs
    ]
    totals = ValidationTotals.of(perfect)
    assert (totals.mape, totals.median_error, totals.bias) == (0, 0, 0)
    assert (totals.within_10_percent, totals.within_20_percent) == (1, 1)
    assert totals.interval_coverage == 1
    assert totals.close_pairs_right in (1, None)


@given(RUNS.filter(bool))
def test_predictions_twice_as_long_keep_their_order(runs: list[ModelValidation]) -> None:
    totals = ValidationTotals.of([replace(each, predicted_s=2 * each.measured_s) for each in runs])
    assert (totals.mape, totals.median_error) == (1, 1)
    assert totals.bias == pytest.approx(1)
    assert (totals.within_10_percent, totals.within_20_percent) == (0, 0)
    assert totals.close_pairs_right in (1, None)


@given(RUNS)
def test_the_unit_of_time_and_the_order_of_runs_do_not_matter(
    runs: list[ModelValidation],
) -> None:
    def scaled(time_s: float | None) -> float | None:
        return None if time_s is None else time_s / 1024

    others = [
        replace(
            each,
            measured_s=each.measured_s / 1024,
            predicted_s=scaled(each.predicted_s),
            remeasured_s=scaled(each.remeasured_s),
        )
        for each in reversed(runs)
    ]
    assert ValidationTotals.of(others) == ValidationTotals.of(runs)


@given(RUNS)
def test_noise_is_judged_as_predictions_are(runs: list[ModelValidation]) -> None:
    swapped = [replace(each, predicted_s=each.remeasured_s) for each in runs]
    noise = validation(*runs).noise
    assert noise == accuracy_of(swapped, lambda each: each.predicted_s)
    assert noise.mape == validation(*runs).totals.noise_floor


@given(RUNS)
def test_groups_are_the_runs_of_each_key_and_all_of_them(runs: list[ModelValidation]) -> None:
    whole = validation(*runs)
    groups = whole.by(lambda each: each.setting)
    assert sum(each.runs for each in groups.values()) == whole.totals.runs
    # Pairs are within a setting, so that none is lost between groups.
    assert sum(each.close_pairs for each in groups.values()) == whole.totals.close_pairs
    for setting, totals in groups.items():
        assert totals == ValidationTotals.of([each for each in runs if each.setting == setting])


# -- the value -------------------------------------------------------------------------------------


VALUE = validation(
    judged(
        *(100, 110),
        eager_min_time_s=60.0,
        fused_min_time_s=50.0,
        model_min_time_s=40.0,
        remeasured_s=102,
        predicted_low_s=90,
        predicted_high_s=120,
    ),
    judged(100, batch=None),
    skipped=(Skipped(model="huge", batch=1, dtype="float32", threads=1, problem="no memory"),),
    ratios=(RatioValidation(name="a", predicted=2, measured=4, remeasured=5),),
    warnings=("busy",),
)


def data() -> dict[str, typing.Any]:
    return json.loads(VALUE.to_json())


def test_json_has_the_figures_by_name_and_comes_back() -> None:
    found = data()
    assert found["totals"]["mape"] == pytest.approx(0.1)
    assert found["totals"]["operator_error"] is None
    assert set(FIGURES) < set(found["totals"])
    assert [each["model"] for each in found["models"]] == ["net", "net"]
    assert found["skipped"][0]["problem"] == "no memory"
    assert result_from_data(found, file="a.json") == VALUE


def test_totals_must_follow_from_the_runs() -> None:
    assert data()["totals"]["mape"] == pytest.approx(0.1)
    changed = {**data(), "totals": {"mape": 0.0}}
    with pytest.raises(FileFormatError, match=r"totals is .*, but follows as"):
        result_from_data(changed, file="a.json")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 99}, "an older version of roofline"),
        ({"models": 3}, "models"),
        ({"models": [{"model": "net"}]}, "missing key"),
        ({"models": [{**data()["models"][0], "measured_s": -1.0}]}, "from 1e-12"),
        ({"models": [{**data()["models"][0], "fused_min_time_s": -1.0}]}, "from 1e-12"),
        (
            {"models": [{**data()["models"][0], "model_min_time_s": 1e-20}]},
            r"models\[0\]: net: times and clocks must be from 1e-12 to 1e12, got 1e-20",
        ),
        (
            {"models": [{**data()["models"][0], "measured_s": 1e-300}]},
            r"models\[0\]\.measured_s: expected 0 or a number from 2\^-256, got 1e-300",
        ),
        (
            {"ratios": [{**data()["ratios"][0], "predicted": 1e20}]},
            r"ratios\[0\]: a: ratios of times .* got 1e\+20",
        ),
        ({"surprise": 1}, "surprise"),
        ({"totals": []}, "totals"),
    ],
)
def test_damaged_files_are_refused(change: dict[str, typing.Any], said: str) -> None:
    with pytest.raises(FileFormatError, match=rf"^a\.json: .*{said}"):
        rest = {name: each for name, each in data().items() if name != "totals"}
        result_from_data({**rest, **change}, file="a.json")


def test_repr_says_how_far_off() -> None:
    assert repr(VALUE).startswith("<Validation: Prediction MAPE 10.0 % over 1 run of 1 model")
    assert repr(validation()) == "<Validation: No runs to validate>"


@pytest.mark.parametrize(
    "changes",
    [
        {"measured_s": 0.0},
        {"measured_s": math.nan},
        {"remeasured_s": -1.0},
        {"predicted_s": 0.0},
        {"operators_measured_s": math.inf},
        {"predicted_low_s": 1.0},
        {"predicted_s": None, "predicted_low_s": 1.0, "predicted_high_s": 2.0},
        {"predicted_low_s": 2.0, "predicted_high_s": 1.0},
        {"below_bound": 1},
        {"operators_s": -1.0},
        {"operator_abs_error_s": math.nan},
        {"eager_min_time_s": -1.0},
        {"samples": -1},
        {"clock_hz": 0.0},
        {"core_to_core_latency_s": 0.0},
        {"predicted_usual_s": 0.0},
        {"remeasured_clock_hz": 0.0},
    ],
)
def test_runs_that_cannot_be_are_refused(changes: dict[str, typing.Any]) -> None:
    with pytest.raises(ValueError, match=r"^net: "):
        replace(judged(10, 10), **changes)


def test_ratios_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^a: "):
        RatioValidation(name="a", predicted=1, measured=0)


# -- conditions ------------------------------------------------------------------------------------


def totals_of(**figures: float | None) -> ValidationTotals:
    return dataclasses.replace(ValidationTotals.of([]), **figures)  # pyright: ignore


def parsed(text: str) -> Condition:
    (found,) = parse_conditions(text, QUANTITIES)
    return found


@pytest.mark.parametrize(
    ("text", "name", "sign", "limit"),
    [
        ("mape>15%", "mape", ">", 0.15),
        (" MAPE > 15 % ", "mape", ">", 0.15),
        ("bias<-0.05", "bias", "<", -0.05),
        ("within_10_percent<.55", "within_10_percent", "<", 0.55),
        ("noise_floor>150%", "noise_floor", ">", 1.5),
        ("bound_validity<1", "bound_validity", "<", 1.0),
    ],
)
def test_conditions_are_read(text: str, name: str, sign: str, limit: float) -> None:
    found = parsed(text)
    assert (found.quantity.name, found.sign, float(found.limit)) == (name, sign, limit)
    assert not found.is_relative


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("mape", 4, "> or < is expected, as in 'mape>15%'"),
        ("mape>=15%", 5, "write > or < alone"),
        ("mape>15%%", 7, "'%%' is no unit of mape; write 15%"),
        ("", 0, "the name of a total is expected, as in mape>15%"),
        ("mpe>15%", 0, "no total 'mpe'; did you mean 'mape'?"),
        ("runs>1%", 0, "no total 'runs'"),
        ("mape>1.2.3%", 8, "'.3%' is no unit of mape"),
        ("mape>15", 5, "15 is neither a fraction nor a percentage; add %"),
        ("bad\n>1%", 0, "no total 'bad'"),
    ],
)
def test_conditions_that_are_none_are_refused(text: str, at: int, said: str) -> None:
    with pytest.raises(PlacedError) as refused:
        parsed(text)
    assert refused.value.at == at
    assert said in refused.value.message and "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("mape>15%", 0.15, ""),
        ("mape>15%", 0.1, ""),
        ("mape>15%", 0.182, "mape is 18.2 %, above 15 %"),
        ("mape>15%", 0.15004, "mape is 15.004 %, above 15 %"),
        ("bias<-5%", -0.2, "bias is -20.0 %, below -5 %"),
        ("bound_validity<100%", 0.99997, "bound_validity is 99.997 %, below 100 %"),
        ("mape>15%", None, "mape is unknown: no run was predicted"),
        ("ratio_error<1%", None, "ratio_error is unknown: no designs were predicted"),
    ],
)
def test_conditions_are_judged(text: str, value: float | None, said: str) -> None:
    condition = parsed(text)
    found = failure(condition, totals_of(**{condition.quantity.name: value}))
    assert found.startswith(said) and bool(found) == bool(said)


def test_all_that_fail_are_said_at_once() -> None:
    conditions = [parsed(each) for each in ("mape>1%", "bias>1%", "noise_floor>1%")]
    totals = totals_of(mape=0.5, bias=0.0, noise_floor=None)
    with pytest.raises(ThresholdError) as failed:
        check_thresholds(conditions, totals)
    assert str(failed.value) == (
        "fail_if: mape is 50.0 %, above 1 %; noise_floor is unknown: no run was remeasured"
    )
    assert failed.value.exit_code == 4
    check_thresholds(conditions[1:2], totals)
    check_thresholds([], totals)


# -- how fast the cores ran ------------------------------------------------------------------------


def test_a_second_measurement_is_compared_at_the_clock_of_the_first() -> None:
    run = judged(100, 110, remeasured_s=150, clock_hz=3e9, remeasured_clock_hz=2e9)
    assert run.remeasured_at_clock_s == 100
    assert run.remeasured_difference == 0
    assert ValidationTotals.of([run]).noise_floor == 0
    # Where a clock is not known, seconds are all there is.
    assert replace(run, clock_hz=None).remeasured_difference == 0.5
    assert replace(run, remeasured_clock_hz=None).remeasured_difference == 0.5


def test_runs_are_put_in_order_at_one_clock() -> None:
    """The second took longer only because its clock was lower, and was predicted so."""
    first = judged(100, 100, clock_hz=4e9)
    second = judged(120, 122, clock_hz=3e9)
    totals = ValidationTotals.of([first, second])
    # 400 and 360 cycles were measured, 400 and 366 predicted.
    assert (totals.close_pairs, totals.close_pairs_right) == (1, 1.0)
    third = judged(120, 140, clock_hz=3e9)
    assert ValidationTotals.of([first, third]).close_pairs_right == 0.0
    # With one clock unknown, by their seconds.
    unknown = replace(third, clock_hz=None)
    assert ValidationTotals.of([first, unknown]).close_pairs_right == 1.0


def test_predictions_for_the_usual_pace_have_their_own_figure() -> None:
    totals = ValidationTotals.of([judged(100, 110, predicted_usual_s=130), judged(100, 100)])
    assert totals.mape == pytest.approx(0.05)
    assert totals.usual_clock_mape == pytest.approx(0.3)
    assert ValidationTotals.of([judged(100, 110)]).usual_clock_mape is None
