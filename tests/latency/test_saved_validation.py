"""Validations that were saved, read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofline.errors import FileFormatError
from roofline.latency.saved_validation import is_validation, validation_from_data
from roofline.latency.validation import RatioValidation, Skipped
from tests.latency.judged import judged, validation

VALUE = validation(
    judged(
        *(100, 110),
        **dict.fromkeys(("bound_s", "eager_min_time_s"), 60.0),
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


def data() -> dict[str, Any]:
    return json.loads(VALUE.to_json())


def test_what_was_saved_comes_back() -> None:
    assert is_validation(data())
    assert validation_from_data(data(), file="a.json") == VALUE


def test_version_1_had_bounds_and_no_other_minimum_times() -> None:
    old = {**data(), "schema_version": 1}
    for run, bound_s in zip(old["models"], (50.0, None), strict=True):
        for name in ("eager", "fused", "model"):
            del run[f"{name}_min_time_s"]
        run["bound_s"] = bound_s
    first, second = validation_from_data(old, file="a.json").models
    assert (first.bound_s, first.eager_min_time_s) == (50.0, 50.0)
    assert first.fused_min_time_s is first.model_min_time_s is second.eager_min_time_s is None
    assert old["models"][0].keys() & {"eager_min_time_s", "fused_min_time_s"} == set()
    # Of the new version all is there, or what is told of a bound is not the same.
    with pytest.raises(
        FileFormatError, match=r"models\[0\]: eager_min_time_s is None, but bound_s"
    ):
        validation_from_data({**old, "schema_version": 2}, file="a.json")


def test_totals_are_those_of_the_runs() -> None:
    """An older version has other totals, and a changed file wrong ones: 10 % is what is so."""
    changed = {**data(), "totals": {"mape": 0.0}}
    assert validation_from_data(changed, file="a.json").totals == VALUE.totals
    assert validation_from_data(changed, file="a.json").totals.mape == pytest.approx(0.1)


@pytest.mark.parametrize("other", [{}, [], None, {"models": [], "reference": ""}, {"operators": 1}])
def test_other_files_are_none(other: object) -> None:
    assert not is_validation(other)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 99}, "newer roofline"),
        ({"models": 3}, "models"),
        ({"models": [{"model": "net"}]}, "missing key"),
        ({"models": [{**data()["models"][0], "measured_s": -1.0}]}, "positive"),
        ({"models": [{**data()["models"][0], "fused_min_time_s": -1.0}]}, "not negative"),
        (
            {"models": [{**data()["models"][0], "model_min_time_s": 1e-20}]},
            r"models\[0\]: a time of 1e-20",
        ),
        (
            {"models": [{**data()["models"][0], "measured_s": 1e-300}]},
            r"models\[0\]\.measured_s: expected 0 or a number from 2\^-256, got 1e-300",
        ),
        (
            {"ratios": [{**data()["ratios"][0], "predicted": 1e20}]},
            r"ratios\[0\]: a ratio of 1e\+20",
        ),
        ({"surprise": 1}, "surprise"),
        ({"totals": []}, "totals"),
    ],
)
def test_damaged_files_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FileFormatError, match=rf"^a\.json: .*{said}"):
        validation_from_data({**data(), **change}, file="a.json")
