"""``roofline quantize``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline.cli.main import run
from roofline.quantization.policy import Policy
from roofline.quantization.result import BANDWIDTH_ONLY
from tests.cli.stand_ins import StandIn, stand_in
from tests.quantization.quantizations import bandwidth_only

DESIGN = "conv2d(3,4,3)+relu()+conv2d(4,8,3)+relu()+conv2d(8,8,3)@1x3x12x12"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return stand_in(monkeypatch, "quantizing", "quantize", bandwidth_only())


def test_the_verdict_is_the_first_line_and_talk_goes_to_stderr(
    asked: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["quantize", "resnet18", "--weights", "2", "--activations", "2"]) == 0
    said = capsys.readouterr()
    assert " ".join(said.out.split()).startswith(" ".join(asked.answer.summary.split())[:60])
    assert "what the model says" in said.err and "what the model says" not in said.out
    assert "\x1b" not in said.out


def test_options_reach_the_analysis_and_those_not_given_are_none(asked: StandIn) -> None:
    assert run(["quantize", "resnet18"]) == 0
    of_policy = ("weights", "activations", "first_last", "shortcut", "policy")
    assert [asked.given[name] for name in of_policy] == [None] * 5
    assert asked.given["sweep"] == ()
    arguments = ["--weights", "3", "--activations", "4", "--first-last", "6", "--shortcut", "low"]
    arguments += ["--per-channel", "--sweep", "2, 3,16", "--sensitivity", "--time-budget", "5ms"]
    arguments += ["--measure", "--rounds", "9", "--input", "1x3x8x8", "--hardware", "host"]
    arguments += ["--batch", "2", "--threads", "1", "--dtype", "float32", "--force"]
    assert run(["quantize", "vgg11", *arguments]) == 0
    expected = {
        "model": "vgg11",
        "inputs": ["1x3x8x8"],
        "weights": 3,
        "activations": 4,
        "first_last": 6,
        "shortcut": "low",
        "per_channel": True,
        "policy": None,
        "sweep": (2, 3, 16),
        "sensitivity": True,
        "size_budget": None,
        "time_budget": "5ms",
        "measure": True,
        "rounds": 9,
        "hardware": "host",
        "batch": 2,
        "threads": 1,
        "dtype": "float32",
        "force": True,
    }
    assert expected.items() <= asked.given.items()
    assert run(["quantize", "vgg11", "--policy", "p.json", "--size-budget", "1MB"]) == 0
    assert (asked.given["policy"], asked.given["size_budget"]) == (Path("p.json"), "1MB")


def test_files_are_written_in_their_formats(
    asked: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a.json", "a.csv", "a.md", "a.html", "a.png", "a.svg"]
    assert run(["quantize", "x", *(word for each in names for word in ("-o", each))]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("Wrote ")] == [f"Wrote {n}" for n in names]
    assert json.loads(Path("a.json").read_text())["kind"] == "quantization"
    rows = Path("a.csv").read_text().splitlines()
    assert len(rows) == 1 + len(asked.answer.what_if.layers)
    assert Path("a.html").read_text().startswith("<!")
    assert Path("a.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'MODEL'"),
        (["x", "--weights", "two"], "'two' is not a valid integer"),
        (["x", "--shortcut", "ful"], "--shortcut ful: must be full or low; did you mean 'full'?"),
        (["x", "--sweep", "2,x"], "--sweep 2,x: must be comma-separated whole numbers"),
        (["x", "--sweep", ""], "must be comma-separated whole numbers"),
        (["x", "--sweep", "2,,3"], "must be comma-separated whole numbers"),
        (["x", "--sweep", "9" * 5000], "must be comma-separated whole numbers"),
        (["x", "--policy", ""], "the file name is empty"),
        (["x", "--hardware", "h100", "--hardware", "v100"], "takes one machine, got 2"),
        (["x", "--top", "0"], "0 is not in the range"),
        (["x", "-o", "a.pt2"], "'quantization' are written as .json, .csv, .md"),
        (["x", "-o", "there.md"], "there.md: exists; add --force"),
        (["x", "-o", "nowhere/a.json"], "does not exist; create it first"),
        (["x", "-o", "a.md", "-o", "a.md"], "duplicate file; give it once"),
        (["x", "-o", "-"], "-o -: add the format of stdout"),
        (["x", "--bits", "2"], "No such option"),
    ],
)
def test_mistakes_end_in_a_line_before_anything_is_asked(
    arguments: list[str], message: str, asked: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there.md").write_text("mine")
    assert run(["quantize", *arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err and len(said.err.splitlines()) == 1
    assert not asked.given and not said.out
    assert Path("there.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "0"], "weights: 0 bits; must be an integer from 1 to 16, or 32"),
        (["--activations", "17"], "activations: 17 bits; must be"),
        (["--first-last", "33"], "first_last: 33 bits; must be"),
        (["--sweep", "2,99"], "--sweep: 99 bits; must be"),
        (["--sweep", "4,4"], "--sweep: 4 bits given twice"),
        (["--policy", "no.json"], "no.json: no such file"),
        (["--policy", "odd.json"], "odd.json: unknown key 'weight'"),
        (["--policy", "odd.json", "--weights", "2"], "--weights has no effect with --policy"),
        (["--size-budget", "1MB"], "--size-budget has no effect without --sensitivity"),
        (["--sensitivity", "--size-budget", "1"], "--size-budget 1: must be a size"),
        (["--sensitivity", "--time-budget", "soon"], "--time-budget soon: must be a time"),
        (["--rounds", "3"], "--rounds 3 has no effect without --measure"),
        (["--measure", "--hardware", "v100"], "--hardware v100 is another"),
        (["--hardware", "v1000"], "v1000"),
        (["--dtype", "int8"], "--dtype int8"),
        (["--batch", "0"], "--batch 0"),
    ],
)
def test_mistakes_are_found_before_a_model_is_built(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is none either: nobody looks for it."""
    (folder / "odd.json").write_text('{"weight": 2}')
    beside = [] if "--hardware" in arguments else ["--hardware", "v100"]
    assert run(["quantize", "no such model", *arguments, *beside]) == 2
    said = capsys.readouterr()
    assert message in said.err and len(said.err.splitlines()) == 1
    assert not said.out


def test_a_model_end_to_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that runs without a clock, on a machine of a data sheet."""
    arguments = ["--weights", "2", "--activations", "2", "--hardware", "v100", "--sweep", "4,8"]
    arguments += ["--sensitivity", "--size-budget", "1kB", "-o", "a.json", "-o", "a.html"]
    assert run(["quantize", DESIGN, *arguments]) == 0
    said = capsys.readouterr()
    assert BANDWIDTH_ONLY in " ".join(said.out.split())
    assert said.err.splitlines()[-2:] == ["Wrote a.json", "Wrote a.html"]
    data = json.loads(Path("a.json").read_text())
    assert [each["policy"]["weights"] for each in data["what_ifs"]] == [2, 4, 8]
    proposal = data["sensitivity"]["proposal"]
    assert proposal["policy"]
    # The proposed policy is asked for by the file's name.
    assert (
        run(["quantize", DESIGN, "--hardware", "v100", "--policy", "a.json", "-o", "b.json"]) == 0
    )
    again = json.loads(Path("b.json").read_text())["what_ifs"][0]
    assert again["policy"] == proposal["policy"]
    assert again["model_bytes_after"] == proposal["model_bytes"]


def test_a_model_without_layers_ends_in_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["quantize", "relu()@1x4", "--hardware", "v100"]) == 2
    said = capsys.readouterr()
    assert "has no layer to quantize" in said.err
    assert len(said.err.splitlines()) == 1


def test_help_says_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    from roofline.core.blocks import View
    from roofline.pipeline.native_variants import DEFAULT_ROUNDS

    assert run(["quantize", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"last layer. [default: {Policy().first_last}]" in said
    assert f"[default: {Policy().weights}; 32 with only" in said
    assert f"number of rounds. [default: {DEFAULT_ROUNDS}]" in said
    assert f"largest change first. [default: {View().rows()}]" in said
