"""Designs written on the command line, with the commands that take models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from roofline.cli.main import run
from roofline.cli.streams import print_stderr
from tests.forked_programs import ROOFLINE, forked

SEPARABLE = "conv2d(8,8,3,groups=8)+conv2d(8,8,1)@9x9"
ON = ["--hardware", "10980xe"]


def out_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_analyze(capsys: pytest.CaptureFixture[str]) -> None:
    said = out_of(capsys, "analyze", SEPARABLE, *ON)
    assert re.search(rf"Model +{re.escape(SEPARABLE)} · float32 1x8x9x9", said)
    assert "conv2d_2" in said
    said = out_of(capsys, "analyze", SEPARABLE, *ON, "--batch", "4", "--dtype", "bfloat16")
    assert "bfloat16 4x8x9x9" in said
    assert "channels last" in out_of(capsys, "analyze", SEPARABLE, *ON, "--channels-last")
    assert "backward" in out_of(capsys, "analyze", SEPARABLE, *ON, "--train")
    said = out_of(capsys, "analyze", "conv2d(8,8,3)", *ON, "--input", "2x8x9x9")
    assert "conv2d(8,8,3) · float32 2x8x9x9" in said


def test_predict(capsys: pytest.CaptureFixture[str]) -> None:
    # A published machine has no calibration data.
    assert run(["predict", SEPARABLE, *ON]) == 3
    assert SEPARABLE in capsys.readouterr().out


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    said = out_of(capsys, "compare", "conv2d(8,8,3)@9x9", SEPARABLE, *ON)
    assert "× fewer FLOP" in said
    assert "conv2d_2" in said


def test_several_machines(capsys: pytest.CaptureFixture[str]) -> None:
    said = out_of(capsys, "analyze", SEPARABLE, *ON, "--hardware", "epyc-9654")
    assert SEPARABLE in said


def test_a_file_keeps_the_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(["analyze", " relu ( ) @ 1 x 8 ", *ON, "-o", "a.json"])
    assert json.loads((tmp_path / "a.json").read_text())["model"] == "relu()@1x8"
    assert "relu()@1x8" in out_of(capsys, "show", "a.json")


# -- what is said of mistakes ----------------------------------------------------------------------


def test_the_caret_stands_under_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", "conv2d(8,8,3)+conv2d(4,8,3)@9x9", *ON]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "roofline: error: conv2d(4,8,3) expects 4 input channels, got 8 from the previous layer:"
        " 1x8x7x7",
        "  conv2d(8,8,3)+conv2d(4,8,3)@9x9",
        "                ^",
    ]


@pytest.mark.parametrize("command", ["analyze", "predict", "profile", "crosscheck"])
def test_every_command_says_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "conv2d(8,8,3"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == ["  conv2d(8,8,3", "        ^"]


def test_no_escape_code_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", "relu(\x1b[31m\n)@1x8", *ON]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == ["  relu(\\x1b[31m\\n)@1x8", "                 ^"]
    assert run(["analyze", "relu()+'\x1b[31m\n':Net@1x8", *ON]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() for line in lines)
    assert lines[1:] == ["  relu()+'\\x1b[31m\\n':Net@1x8", "         ^"]


def test_other_errors_stay_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", "a\nb", *ON]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    print_stderr("a\nb")
    assert capsys.readouterr().err == "a\\nb\n"


def refused_in(environment: dict[str, str], design: str) -> list[str]:
    """What another process says of a design, of which a layer is unknown, as it is displayed."""
    done = forked(ROOFLINE, ["analyze", design, *ON], environment=environment)
    assert done.returncode == 2
    encoding = environment["PYTHONIOENCODING"]
    return done.stderr.decode(encoding).splitlines()


@pytest.mark.parametrize(
    ("encoding", "lines"),
    [
        ("utf-8", ["  linear(1,2,'中文')+conv9d(3)", "                     ^"]),
        (
            "ascii",
            ["  linear(1,2,'\\u4e2d\\u6587')+conv9d(3)", "                             ^"],
        ),
    ],
)
def test_carets_in_the_encoding_of_the_stream(encoding: str, lines: list[str]) -> None:
    environment = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    said = refused_in(environment, "linear(1,2,'中文')+conv9d(3)")
    assert said[0].startswith("roofline: error: unknown layer 'conv9d'; did you mean")
    assert said[1:] == lines


def test_a_long_design_is_cut_in_a_pipe() -> None:
    design = "+".join(["linear(8,8)"] * 50) + "+linear(9,9)" + "+linear(8,8)" * 50 + "@1x8"
    said = refused_in({"PYTHONIOENCODING": "utf-8"}, design)
    assert "expects 9 input features, got 8 from the previous layer: 1x8" in said[0]
    assert len(said[1]) <= 100
    assert said[1][len(said[2]) - 1 :].startswith("linear(9,9)")


def test_texts_that_are_too_much(capsys: pytest.CaptureFixture[str]) -> None:
    for design in ("(" * 1_000_000, "1000000000*relu()@1x8", "relu()+" * 100_000):
        assert run(["analyze", design, *ON]) == 2
        said = capsys.readouterr().err
        assert "too long" in said or "too many" in said
        assert len(said) < 400


def test_a_shape_is_missing_or_there_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", "conv2d(8,8,3)", *ON]) == 2
    assert capsys.readouterr().err == (
        "roofline: error: 'conv2d(8,8,3)' has no input shape: write it after an @, as in"
        " conv2d(64,64,3)@56x56 or linear(64,10)@1x64, or use --input\n"
    )
    assert run(["analyze", "conv2d(8,8,3)@9x9", *ON, "--input", "1x8x9x9"]) == 2
    assert "has an input shape already" in capsys.readouterr().err


def test_a_layer_alone_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", "conv2d", *ON]) == 2
    assert "'conv2d' is a layer of torch.nn; write its arguments" in capsys.readouterr().err
