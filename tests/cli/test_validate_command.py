"""``roofline validate`` with a validation that takes no time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.cli.main import run
from roofline.errors import MeasurementError, ModelError
from roofline.latency.accuracy import RatioValidation, Skipped
from tests.cli.stand_ins import StandIn, stand_in
from tests.latency.judged import judged, validation

SKIPPED = Skipped(model="huge", batch=1, dtype="float32", threads=1, problem="ran out of memory")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    found = validation(judged(100, 110, remeasured_s=102), skipped=(SKIPPED,))
    return stand_in(monkeypatch, "validations", "validate", found, says="huge ran out of memory")


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The error that a failing call ends with on stderr, without a caret below it."""
    assert run(["validate", *arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    *_, error = captured.err.strip().partition("roofline: error: ")
    line, *caret = error.splitlines()
    assert not caret or caret[-1].strip() == "^"
    return f"roofline: error: {line}"


def test_the_result_goes_to_stdout_and_talk_to_stderr(
    fake: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Prediction MAPE 10.0 % over 1 run")
    assert "huge (batch 1, float32, 1 thread): ran out of memory" in captured.out
    assert "what the model says" not in captured.out
    assert captured.err.splitlines() == [
        "what the model says",
        "Validating …",
        "huge ran out of memory",
    ]


def test_nothing_given_leaves_all_to_the_pipeline(fake: StandIn) -> None:
    assert run(["validate"]) == 0
    assert fake.asked == [
        (
            (None,),
            {
                "batch": None,
                "threads": None,
                "dtype": None,
                "channels_last": False,
                "seq": None,
                "operators_measured": False,
                "designs": False,
                "quick": False,
                "force": False,
            },
        )
    ]


def test_every_option_reaches_the_pipeline(fake: StandIn) -> None:
    line = "a b a --batch 1 --batch 8 --threads 2 --dtype float32 --dtype bfloat16"
    line += " --channels-last --seq 64 --operators measured --designs --quick --force"
    assert run(["validate", *line.split()]) == 0
    assert fake.asked == [
        (
            (["a", "b"],),
            {
                "batch": [1, 8],
                "threads": 2,
                "dtype": ["float32", "bfloat16"],
                "channels_last": True,
                "seq": 64,
                "operators_measured": True,
                "designs": True,
                "quick": True,
                "force": True,
            },
        )
    ]


def test_a_value_given_twice_is_refused_as_in_other_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["validate", "resnet18", "--threads", "1", "--threads", "1"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "roofline: error: --threads 1: given twice; give it once"


def test_files_and_formats(
    fake: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(tmp_path / f"a{suffix}") for suffix in (".json", ".csv", ".md", ".html", ".svg")]
    outputs = [word for name in names for word in ("-o", name)]
    assert run(["validate", *outputs]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-5:] == [f"Wrote {name}" for name in names]
    saved = json.loads(Path(names[0]).read_text())
    assert saved["totals"]["mape"] == pytest.approx(0.1)
    assert run(["validate", *outputs, "--force"]) == 0
    capsys.readouterr()
    for stdout_format, name in zip(("json", "csv", "md", "html", "svg"), names, strict=True):
        assert run(["validate", "--format", stdout_format, "-o", "-"]) == 0
        assert capsys.readouterr().out == Path(name).read_text()
    assert run(["validate", "-o", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_top_is_how_many_runs_are_shown(fake: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answer = validation(*(judged(100, 100 + i) for i in range(30)))
    assert run(["validate"]) == 0
    assert "… 10 more" in capsys.readouterr().out
    assert run(["validate", "--top", "4"]) == 0
    assert "… 26 more" in capsys.readouterr().out
    assert run(["validate", "--top", "4", "--format", "md"]) == 0
    assert "… 26 more" in capsys.readouterr().out


def test_conditions_decide_the_exit_code(
    fake: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", "--fail-if", "mape>15%", "--fail-if", "noise_floor>0.05"]) == 0
    assert "roofline: error" not in capsys.readouterr().err
    saved = tmp_path / "a.json"
    failing = ("--fail-if", "mape>5%", "--fail-if", "bias<5%", "-o", str(saved))
    said = error_of(capsys, *failing, code=4)
    assert said == "roofline: error: --fail-if: mape is 10.0 %, above 5 %"
    assert saved.exists(), "the result is kept and shown all the same"


def test_what_cannot_be_judged_fails(fake: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "--fail-if", "ratio_error>15%"]) == 4
    captured = capsys.readouterr()
    assert captured.out.startswith("Prediction MAPE 10.0 %")
    assert captured.err.endswith(
        "roofline: error: --fail-if: ratio_error is unknown: no designs were"
        " predicted; add --designs\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fail-if", "mape"), "> or < is expected, as in 'mape>15%'"),
        (("--fail-if", "maep>15%"), "did you mean 'mape'?"),
        (("--fail-if", "mape>15"), "add %"),
        (("--top", "0"), "--top"),
        (("--operators", "guessed"), "'guessed' is not 'measured'"),
        (("-o", "-"), "-o -: add the format of stdout"),
        (
            ("-o", "a.txt"),
            "results of kind 'validation' are written as .json, .csv, .md, .html, .png, .svg",
        ),
        (("-o", "FOLDER/a.md", "-o", "FOLDER/a.md"), "duplicate file; give it once"),
        (("-o", "FOLDER/there.md"), "exists; add --force"),
    ],
)
def test_errors_come_before_anything_is_measured(
    arguments: tuple[str, ...],
    said: str,
    fake: StandIn,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "there.md").write_text("precious")
    given = [each.replace("FOLDER", str(tmp_path)) for each in arguments]
    assert said in error_of(capsys, *given)
    assert fake.asked == []
    assert (tmp_path / "there.md").read_text() == "precious"


@pytest.mark.parametrize(("option", "value"), [("--batch", "0"), ("--threads", "-1")])
def test_numbers_are_checked_before_a_model_is_looked_for(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = error_of(capsys, "nonsense", option, value)
    assert f"{option} {value}: must be a whole number from 1" in said


@pytest.mark.parametrize(
    ("error", "code"),
    [(ModelError("unknown model 'net'"), 2), (MeasurementError("the machine is busy"), 1)],
)
def test_what_the_pipeline_refuses(
    error: Exception, code: int, fake: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.error = error
    assert error_of(capsys, code=code) == f"roofline: error: {error}"


def test_an_interrupt_ends_with_130(fake: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    fake.error = KeyboardInterrupt()
    assert run(["validate"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("roofline: interrupted\n")


def test_where_all_models_failed_it_failed(
    fake: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answer = validation(skipped=(SKIPPED,))
    assert run(["validate"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("No runs to validate\n")
    assert "ran out of memory" in captured.out
    assert captured.err.endswith("roofline: error: no model could be run; nothing was validated\n")
    fake.answer = validation(ratios=(RatioValidation(name="a", predicted=1, measured=1),))
    assert run(["validate"]) == 0
