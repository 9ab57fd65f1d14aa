"""``roofline optimize``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from roofline.cli.main import run
from tests.cli.stand_ins import StandIn, stand_in
from tests.substitution.optimizations import measured, nothing


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    module = torch.nn.Linear(4, 3).eval()
    found = replace(measured(), module=module, arguments=((torch.ones(2, 4),), {}))
    return stand_in(monkeypatch, "optimizing", "optimize", found)


def test_the_verdict_is_the_first_line_and_talk_goes_to_stderr(
    asked: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", "resnet50"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("squeezed: 1.80× faster, measured in eager torch (5 rounds")
    assert "what the model says" in said.err and "what the model says" not in said.out
    assert "\x1b" not in said.out


def test_options_reach_the_search_and_those_not_given_are_its_own(asked: StandIn) -> None:
    assert run(["optimize", "resnet50"]) == 0
    assert not {"budget", "time_limit_s", "cost", "measure"} & set(asked.given)
    assert (asked.given["alpha"], asked.given["rules"]) == (1.05, "all")
    arguments = ["--input", "1x3x8x8", "--hardware", "h100", "--cost", "bound", "--alpha", "1.1"]
    arguments += ["--budget", "7", "--time-limit", "2.5", "--rules=-enlarge-kernel", "--split", "9"]
    arguments += ["--fused", "--no-measure", "--batch", "2", "--threads", "1", "--dtype", "float32"]
    assert run(["optimize", "vgg11", *arguments]) == 0
    expected = {
        "model": "vgg11",
        "inputs": ["1x3x8x8"],
        "hardware": "h100",
        "cost": "bound",
        "alpha": 1.1,
        "budget": 7,
        "time_limit_s": 2.5,
        "rules": "-enlarge-kernel",
        "split": 9,
        "fused": True,
        "measure": False,
        "batch": 2,
        "threads": 1,
        "dtype": "float32",
        "baseline": "eager",
    }
    assert expected.items() <= asked.given.items()


def test_files_are_written_in_their_formats(
    asked: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a.json", "a.csv", "a.md", "a.html", "a.png", "a.svg", "a.pt2"]
    assert run(["optimize", "x", *(word for each in names for word in ("-o", each))]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("Wrote ")] == [f"Wrote {n}" for n in names]
    assert said[-2] == "a.pt2 contains the result; load it with torch.export.load('a.pt2').module()"
    assert said[-1].startswith("Its weights are those of x as built: random, unless")
    assert json.loads(Path("a.json").read_text())["kind"] == "optimization"
    x = torch.randn(2, 4)
    loaded = torch.export.load("a.pt2").module()
    assert torch.equal(loaded(x), asked.answer.module(x))


def test_a_model_that_is_kept_is_still_written_and_said_to_be(
    asked: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = replace(nothing(), module=asked.answer.module, arguments=asked.answer.arguments)
    asked.answer = kept
    assert run(["optimize", "x", "-o", "a.pt2"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("kept: original kept")
    assert "a.pt2 contains the original (no faster graph was found)" in said.err
    torch.export.load("a.pt2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'MODEL'"),
        (["x", "--cost", "bond"], "--cost bond: must be bound, predicted or measured; did you"),
        (["x", "--baseline", "compiled"], "must be eager or compile; did you mean 'compile'?"),
        (["x", "--hardware", "h100", "--hardware", "v100"], "takes one machine, got 2"),
        (["x", "-o", "a.onnx"], "results of kind 'optimization' are written as .json, .csv, .md"),
        (["x", "-o", "there.pt2"], "there.pt2: exists; add --force"),
        (["x", "-o", "nowhere/a.json"], "does not exist; create it first"),
        (["x", "-o", "a.md", "-o", "a.md"], "duplicate file; give it once"),
        (["x", "-o", "-"], "-o -: add the format of stdout"),
        (["x", "--alpha", "much"], "'much' is not a valid float"),
        (["--list-rules", "--rules", "merge-linear"], "did you mean 'merge-linears'?"),
    ],
)
def test_mistakes_end_in_a_line_before_anything_is_searched(
    arguments: list[str], message: str, asked: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there.pt2").write_text("mine")
    assert run(["optimize", *arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err and len(said.err.splitlines()) == 1
    assert not asked.given and not said.out
    assert Path("there.pt2").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--baseline compile --no-measure", "--baseline compile: has no effect without timings"),
        ("--baseline compile --hardware h100", "but --hardware h100 is another one"),
        ("--rounds 3 --hardware h100", "--rounds 3: requires timings on this machine"),
        ("--alpha 0.99", "--alpha 0.99: must be a number from 1"),
        ("--alpha nan", "--alpha nan: must be"),
        ("--budget 0", "--budget 0: must be a whole number of graphs from 1"),
        ("--split 1", "--split 1: must be an integer of at least 2 operators"),
        ("--time-limit 0", "--time-limit 0.0: must be a number of seconds above 0"),
    ],
)
def test_the_search_names_the_option_that_is_wrong(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", "nonsense", *arguments.split()]) == 2
    said = capsys.readouterr()
    assert message in said.err and len(said.err.splitlines()) == 1


def test_an_interrupt_writes_nothing(asked: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    asked.error = KeyboardInterrupt()
    assert run(["optimize", "x", "-o", "a.md", "-o", "a.pt2"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "roofline: interrupted"
    assert not [each for each in Path().iterdir() if each.is_file()]


def test_show_opens_the_file(asked: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", "x", "-o", "a.json"]) == 0
    report = capsys.readouterr().out
    assert run(["show", "a.json"]) == 0
    assert capsys.readouterr().out == report
    assert run(["show", "a.json", "-o", "a.pt2"]) == 2


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", "--list-rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " rules, " in lines[0]
    assert lines[0].endswith("of them safe: no added work, no change of layout")
    assert any(line.startswith("fold-batch-norm ") and " safe " in line for line in lines)
    assert any(line.startswith("enlarge-kernel ") and " adds work " in line for line in lines)
    assert run(["optimize", "--list-rules", "--rules", "fold-batch-norm"]) == 0
    assert capsys.readouterr().out.startswith("1 rule, ")


def test_help_says_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    from roofline.pipeline.optimization_machine import DEFAULT_ROUNDS
    from roofline.pipeline.optimizing import DEFAULT_TIME_LIMIT_S
    from roofline.substitution.search import DEFAULT_BUDGET

    assert run(["optimize", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"graphs to expand. [default: {DEFAULT_BUDGET}]" in said
    assert f"search time in seconds. [default: {DEFAULT_TIME_LIMIT_S:g}]" in said
    assert f"Number of rounds. [default: {DEFAULT_ROUNDS}]" in said
