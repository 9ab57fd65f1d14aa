"""The two-layer picture and traces from the command line, without torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roofline.analysis import Analysis
from roofline.cli.main import run
from roofline.machine.catalog import load_hardware
from tests.analysis.examples import analysis_of, measured, resnet, resnet_like
from tests.design.machine_comparisons import pair


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A measured analysis in a file."""
    path = tmp_path / "saved.json"
    measured(resnet()).save(path)
    return path


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that was said, without its head."""
    said = capsys.readouterr().err
    assert said.startswith("roofline: error: ")
    assert said.count("\n") == 1
    return said.removeprefix("roofline: error: ").strip()


def test_show_draws_layers_into_pictures(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, layered = tmp_path / "plain.svg", tmp_path / "layered.svg"
    assert run(["show", str(saved), "-o", str(plain)]) == 0
    assert run(["show", str(saved), "--layers", "-o", str(layered)]) == 0
    assert "software loss" in layered.read_text(encoding="utf-8")
    assert "software loss" not in plain.read_text(encoding="utf-8")
    capsys.readouterr()
    assert run(["show", str(saved), "--layers", "--format", "svg"]) == 0
    assert capsys.readouterr().out == layered.read_text(encoding="utf-8")


def test_paper_figures_of_another_profile(tmp_path: Path) -> None:
    saved, picture = tmp_path / "a.json", tmp_path / "a.svg"
    analysis_of(resnet_like((1,)), load_hardware("10980xe-measured")).save(saved)
    assert run(["show", str(saved), "--layers", "--paper", "10980xe", "-o", str(picture)]) == 0
    assert "-37.9 %" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--layers"], "--layers: has no effect without a plot; add -o FILE.png or -o FILE.svg"),
        (["--layers", "-o", "a.html"], "--layers: has no effect without a plot"),
        (["--layers", "--format", "csv"], "--layers: has no effect without a plot"),
        (["--paper", "h100", "-o", "a.png"], "--paper h100: has no effect without --layers"),
        (
            ["--layers", "--paper", "10980x", "-o", "a.png"],
            "unknown hardware '10980x'; did you mean",
        ),
    ],
)
def test_what_has_no_effect_is_refused_before_anything_is_read(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["show", "missing.json"], ["analyze", "resnet18"], ["profile", "resnet18"]):
        assert run([*command, *options]) == 2
        assert words in error_of(capsys)


def test_layers_are_of_one_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = ["--hardware", "h100", "--hardware", "a100"]
    picture = str(tmp_path / "a.png")
    assert run(["analyze", "resnet18", *several, "--layers", "-o", picture]) == 2
    assert "--layers: takes one machine, got 2 --hardware" in error_of(capsys)
    saved = tmp_path / "several.json"
    saved.write_text(pair().to_json(), encoding="utf-8")
    assert run(["show", str(saved), "--layers", "-o", picture]) == 2
    assert "--layers takes analyses" in capsys.readouterr().err
    assert not Path(picture).exists()


def test_show_writes_the_trace_of_a_measured_analysis(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "run.trace.json"
    assert run(["show", str(saved), "-o", str(trace)]) == 0
    assert f"Wrote {trace}" in capsys.readouterr().err
    data = json.loads(trace.read_text(encoding="utf-8"))
    assert {"B", "E", "C", "M"} <= {event["ph"] for event in data["traceEvents"]}
    assert run(["show", str(saved), "-o", str(trace)]) == 2
    assert "exists; add --force" in error_of(capsys)
    assert run(["show", str(saved), "-o", str(trace), "--force"]) == 0


def test_a_trace_of_what_was_not_measured_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fix = "a trace needs measured operators: roofline profile MODEL -o run.trace.json"
    trace = tmp_path / "run.trace.json"
    # Before anything is counted.
    assert run(["analyze", "resnet18", "-o", str(trace)]) == 2
    assert error_of(capsys) == f"{trace}: {fix}"
    saved = tmp_path / "bounds.json"
    resnet().save(saved)
    assert run(["show", str(saved), "-o", str(trace)]) == 2
    said = capsys.readouterr()
    # Before anything is shown.
    assert (said.out, said.err) == ("", f"roofline: error: {trace}: {fix}\n")
    assert not trace.exists()


def test_profile_writes_pictures_and_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def profiled(*_given: Any, **_options: Any) -> Analysis:
        return replace(measured(resnet()), model="net")

    monkeypatch.setattr("roofline.pipeline.profiles.profile", profiled)
    trace, picture = tmp_path / "run.trace.json", tmp_path / "net.svg"
    outputs = ["-o", str(trace), "-o", str(picture)]
    assert run(["profile", "net", "--layers", *outputs]) == 0
    assert json.loads(trace.read_text(encoding="utf-8"))["otherData"]["model"] == "net"
    assert "software loss" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["profile", "show"])
def test_help_names_traces(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert ".trace.json" in " ".join(said.split())
    assert "--layers" in said
