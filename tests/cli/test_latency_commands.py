"""``roofline profile``, ``predict`` and ``calibrate`` with pipelines that take no time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roofline.cli.main import run
from roofline.core.sampling import Sample
from roofline.errors import MeasurementError
from roofline.latency.calibrated import Calibrated
from roofline.latency.prediction import RunPrediction
from roofline.latency.samples import RunMeasurement
from tests.analysis.examples import small
from tests.cli.stand_ins import StandIn, stand_in

PREDICTION = RunPrediction(
    predicted_s=2e-6,
    low_s=1.6e-6,
    high_s=2.4e-6,
    operators_s=1.5e-6,
    overhead_s=0.5e-6,
    calibration="a test",
)
MEASUREMENT = RunMeasurement(
    end_to_end=Sample(times_s=(3e-6, 3e-6, 3e-6)),
    operators_s=2e-6,
    page_faults=0,
    rounds=3,
    discarded=0,
)
LEARNED = Calibrated(
    runs=2, operators=40, models=2, families=2, new_runs=1, seconds=9.0, file="host.latency"
)


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return stand_in(monkeypatch, "profiles", "profile", replace(small(), measurement=MEASUREMENT))


@pytest.fixture
def predict(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    rows = tuple(
        replace(row, predicted_s=7.5e-7, predicted_low_s=6e-7, predicted_high_s=9e-7)
        for row in small().operators
    )
    sums = {"predicted_s": 1.5e-6, "predicted_low_s": 1.2e-6, "predicted_high_s": 1.8e-6}
    totals = replace(small().totals, **sums)
    analysis = replace(small(), operators=rows, totals=totals, prediction=PREDICTION)
    return stand_in(monkeypatch, "predictions", "predict", analysis)


@pytest.fixture
def calibrate(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return stand_in(monkeypatch, "calibrations", "calibrate", LEARNED)


def words(line: str) -> list[str]:
    """The arguments on a command line."""
    return [str(each) for each in line.split()]


MODEL_OPTIONS = {
    "dtype": None,
    "batch": None,
    "seq": None,
    "threads": None,
    "train": False,
    "optimizer": None,
    "autocast": None,
    "channels_last": False,
    "device": None,
}
GIVEN = "--input 1x8 --batch 2 --seq 3 --dtype bfloat16 --threads 1 --train --optimizer sgd"
GIVEN += " --autocast float16 --channels-last --device cuda"
OPTIONS_GIVEN = {
    "dtype": "bfloat16",
    "batch": 2,
    "seq": 3,
    "threads": 1,
    "train": True,
    "optimizer": "sgd",
    "autocast": "float16",
    "channels_last": True,
    "device": "cuda",
}


def test_profile_leaves_to_the_pipeline_what_is_not_given(
    profile: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", "net"]) == 0
    more = {"compiled": False, "passes": None, "quick": False, "learn": True, "force": False}
    more |= {"hardware": None}
    assert profile.asked == [(("net",), {"inputs": None, **MODEL_OPTIONS, **more})]
    captured = capsys.readouterr()
    said = "small: measured 3.000 µs (median of 3 passes, IQR 0 s), minimum 157 ns"
    assert captured.out.startswith(said)
    assert captured.err.splitlines() == [
        "what the model says",
        "Measuring …",
        "waiting for a quiet machine",
    ]


def test_every_option_of_profile_reaches_the_pipeline(profile: StandIn) -> None:
    line = f"profile net {GIVEN} --compiled --passes 5 --quick --no-learn --force --hardware v100"
    assert run(words(line)) == 0
    more = {"compiled": True, "passes": 5, "quick": True, "learn": False, "force": True}
    more |= {"hardware": "v100"}
    assert profile.asked == [(("net",), {"inputs": ["1x8"], **OPTIONS_GIVEN, **more})]


def test_predict_leaves_to_the_pipeline_what_is_not_given(
    predict: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", "net"]) == 0
    more = {"hardware": None, "operators": "learned", "force": False, "no_cache": False}
    assert predict.asked == [(("net",), {"inputs": None, **MODEL_OPTIONS, **more})]
    captured = capsys.readouterr()
    assert captured.out.startswith("small: predicted 2.0 µs (80 % interval 1.6–2.4 µs), ")
    assert "Top operators by predicted time" in captured.out
    assert "minimum times only" not in captured.err


def test_every_option_of_predict_reaches_the_pipeline(predict: StandIn) -> None:
    line = f"predict net {GIVEN} --hardware v100 --operators measured --force --no-cache"
    assert run(words(line)) == 0
    more = {"hardware": "v100", "operators": "measured", "force": True, "no_cache": True}
    assert predict.asked == [(("net",), {"inputs": ["1x8"], **OPTIONS_GIVEN, **more})]


def test_without_a_prediction_the_first_line_has_the_reason_and_the_code_is_3(
    predict: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    predict.answer = replace(small(), not_predicted="no calibration data of sheet")
    assert run(["predict", "net", "--hardware", "sheet"]) == 3
    captured = capsys.readouterr()
    assert captured.out.startswith(
        "small: no predicted time (no calibration data of sheet), minimum 157 ns (eager"
    )
    assert "roofline predict" not in captured.out
    assert captured.err.splitlines()[-1] == "roofline: error: no predicted time"
    # Files have no first line.
    assert run(["predict", "net", "--hardware", "sheet", "--format", "csv"]) == 3
    assert capsys.readouterr().err.splitlines()[-1] == (
        "roofline: error: no predicted time: no calibration data of sheet"
    )


@pytest.mark.parametrize("command", ["profile", "predict"])
def test_files_formats_and_views(
    command: str,
    profile: StandIn,
    predict: StandIn,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "a.json"
    arguments = [command, "net", "--by", "type", "-o", str(target)]
    assert run(arguments) == 0
    captured = capsys.readouterr()
    assert "Operator types by" in captured.out
    assert captured.err.splitlines()[-1] == f"Wrote {target}"
    saved = json.loads(target.read_text(encoding="utf-8"))
    assert (saved["measurement"] is None) == (command == "predict")
    assert run(arguments) == 2
    assert "a.json" in capsys.readouterr().err
    assert run([*arguments, "--force"]) == 0
    capsys.readouterr()
    assert run([command, "net", "--format", "json", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == saved
    assert run(["show", str(target)]) == 0
    assert capsys.readouterr().out.startswith("small: ")


def test_files_are_checked_before_anything_is_measured(profile: StandIn, tmp_path: Path) -> None:
    assert run(["profile", "net", "-o", str(tmp_path / "a.xyz")]) == 2
    assert run(["profile", "net", "--passes", "0"]) == 2
    assert run(["profile", "net", "--depth", "1"]) == 2
    assert profile.asked == []


def test_one_machine_at_a_time_is_predicted(
    predict: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words("predict net --hardware a --hardware b")) == 2
    assert "`roofline predict` takes one machine" in capsys.readouterr().err
    assert run(words("predict net --operators guessed")) == 2
    assert predict.asked == []


def test_a_busy_machine_is_one_line(profile: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    profile.error = MeasurementError("the machine is busy; --force measures all the same")
    assert run(["profile", "net"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "roofline: error: the machine is busy; --force measures all the same"
    )


def test_calibrate_reports_what_it_learned(
    calibrate: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate"]) == 0
    nothing = {"quick": False, "fresh": False, "dtypes": None, "force": False}
    assert calibrate.asked == [((), nothing)]
    captured = capsys.readouterr()
    assert captured.out.startswith("Calibrated on 40 operators of 2 models; too few families")
    assert captured.err.splitlines() == [
        "what the model says",
        "Calibrating …",
        "waiting for a quiet machine",
    ]


def test_every_option_of_calibrate_reaches_the_pipeline(calibrate: StandIn) -> None:
    line = "calibrate --quick --fresh --force --dtype float32 --dtype bfloat16 --dtype float32"
    assert run(words(line)) == 0
    given = {"quick": True, "fresh": True, "dtypes": ["float32", "bfloat16"], "force": True}
    assert calibrate.asked == [((), given)]


def test_an_interrupted_calibration_shows_what_is_kept(
    calibrate: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrate.answer = replace(LEARNED, interrupted=True)
    assert run(["calibrate"]) == 130
    captured = capsys.readouterr()
    assert "1 run in 9 s" in captured.out
    assert "`roofline calibrate` continues there" in captured.out
    assert captured.err.splitlines()[-1] == "roofline: interrupted"


def test_an_interrupt_that_comes_through_ends_the_same(
    calibrate: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrate.error = KeyboardInterrupt()
    assert run(["calibrate"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "roofline: interrupted"
