"""Validations that were saved, read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofline.errors import FileFormatError
from roofline.latency.accuracy import RatioValidation, Skipped
from roofline.result import result_from_data
from tests.latency.judged import judged, validation

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


def data() -> dict[str, Any]:
    return json.loads(VALUE.to_json())


def test_what_was_saved_comes_back() -> None:
    assert result_from_data(data(), file="a.json") == VALUE


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
        ({"models": [{**data()["models"][0], "measured_s": -1.0}]}, "positive"),
        ({"models": [{**data()["models"][0], "fused_min_time_s": -1.0}]}, "positive"),
        (
            {"models": [{**data()["models"][0], "model_min_time_s": 1e-20}]},
            r"models\[0\]: net: times and clocks are positive numbers, 1e-12 to 1e12, got 1e-20",
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
def test_damaged_files_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FileFormatError, match=rf"^a\.json: .*{said}"):
        rest = {name: each for name, each in data().items() if name != "totals"}
        result_from_data({**rest, **change}, file="a.json")
