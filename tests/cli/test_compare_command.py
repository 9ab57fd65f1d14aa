"""``roofline compare`` on the command line: ways, machines, rows, formats, what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from roofline.cli.main import run
from roofline.design.comparison.result import Comparison
from tests.analysis.examples import small
from tests.cli.stand_ins import error_of

SHEET = ["--hardware", "10980xe"]
NET = "squeezenet1_1"


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    """A file with a standard and a separable block of 64 channels."""
    path = tmp_path / "blocks.py"
    path.write_text(
        "from torch import nn\n"
        "def Standard():\n"
        "    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.ReLU())\n"
        "def Separable():\n"
        "    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False),"
        " nn.Conv2d(64, 64, 1, bias=False), nn.ReLU())\n"
    )
    return path


def test_one_model_in_several_types(capsys: pytest.CaptureFixture[str]) -> None:
    types = ["--dtype", "float32", "--dtype", "bfloat16"]
    assert run(["compare", NET, *types, *SHEET, "--reference", f"{NET} bfloat16"]) == 0
    said = capsys.readouterr().out
    assert f"{NET} float32 vs {NET} bfloat16: " in said
    assert "Modules by largest difference (minimum time)" in said


def test_batches_threads_and_layouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    ways = ["--batch", "1", "--batch", "4", "--threads", "1", "--threads", "16"]
    layouts = ["--layout", "contiguous", "--layout", "channels-last"]
    assert run(["compare", NET, *ways, *layouts, *SHEET, "-o", str(path)]) == 0
    data = json.loads(path.read_text())
    assert [each["model"] for each in data["rows"]][:2] == [
        f"{NET} · batch 1 · 1 thread · contiguous",
        f"{NET} · batch 1 · 1 thread · channels-last",
    ]
    assert len(data["rows"]) == 8
    assert {each["flop_per_sample_ratio"] for each in data["rows"]} == {1.0}
    assert [each["threads"] for each in data["rows"]] == [1, 1, 16, 16] * 2
    assert data["rows"][1]["run"]["channels_last"]
    assert "batches differ: FLOP, traffic and times are per sample" in (capsys.readouterr().out)


def test_several_machines(blocks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [f"{blocks}:Standard", f"{blocks}:Separable", "--input", "1x64x56x56"]
    machines = [*SHEET, "--hardware", "v100"]
    assert run(["compare", *models, *machines]) == 0
    said = capsys.readouterr().out
    assert "lowest minimum time: " in said
    assert " on 10980xe (" in said
    assert run(["compare", *models, *machines, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [each["hardware"] for each in rows] == ["10980xe", "10980xe", "v100", "v100"]


def test_rows_are_chosen(blocks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [f"{blocks}:Standard", f"{blocks}:Separable", "--input", "1x64x56x56", *SHEET]

    def table(*options: str) -> list[str]:
        assert run(["compare", *models, *options]) == 0
        said = capsys.readouterr().out
        lines = said[said.index(" (minimum time)") :].split("\n\n")[0].splitlines()
        return [line.split("  ")[0] for line in lines[2:]]

    # Both have 0, a convolution; 1 is another class in the same place, 2 is one's own.
    assert table("--by", "module") == ["0", "1", "2"]
    assert table("--by", "type") == ["convolution", "depthwise convolution", "pointwise"]
    assert table("--by", "module", "--top", "1")[1:] == ["2 more"]
    assert table("--depth", "0") == ["(model)"]


def test_every_format_is_written(blocks: Path, tmp_path: Path) -> None:
    models = [f"{blocks}:Standard", f"{blocks}:Separable", "--input", "1x64x8x8", *SHEET]
    suffixes = ("json", "csv", "md", "html", "png", "svg")
    paths = [tmp_path / f"c.{suffix}" for suffix in suffixes]
    assert run(["compare", *models, *(word for path in paths for word in ("-o", str(path)))]) == 0
    starts = (b"{", b"model,", b"#", b"<!doctype html>", b"\x89PNG", b"<?xml")
    for path, start in zip(paths, starts, strict=True):
        assert path.read_bytes().startswith(start), path
    assert b"<svg" in paths[3].read_bytes()


def test_equal_things_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", NET, NET, *SHEET]) == 0
    said = capsys.readouterr().out
    assert f"{NET} (1) and {NET} (2) are identical: same model and run" in said
    assert f"{NET} (2) vs {NET} (1): equal FLOP, equal minimum time on 10980xe" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([NET], "two models or variants"),
        ([NET, NET, "--reference", "squeezenet1_0"], "did you mean 'squeezenet1_1'"),
        ([NET, "--dtype", "float32", "--dtype", "float32"], "--dtype float32: given twice"),
        (
            [NET, "--layout", "contiguous", "--layout", "contiguous"],
            "--layout contiguous: given twice",
        ),
        ([NET, "--layout", "rows"], "rows"),
        ([NET, NET, "--channels-last", "--layout", "contiguous"], "write --layout channels-last"),
        ([NET, NET, "--executor", "dask:x"], "--executor: has no effect without --sweep"),
        ([NET, NET, "--jobs", "2"], "--jobs: has no effect without --sweep"),
        ([NET, NET, "--yes"], "--yes: has no effect without --sweep"),
        ([NET, NET, "--sweep", "a=1:2", "--measure"], "--measure: has no effect with --sweep"),
        ([NET, NET, "--sweep", "a=1:2", "--rounds", "4"], "--rounds: has no effect with --sweep"),
        ([NET, NET, "--sweep", "a=1:2", "--rounds", "0"], "--rounds: has no effect with --sweep"),
        ([NET, "--sweep", "a=1:2", "--batch", "1", "--batch", "2"], "--batch: given more than"),
        ([NET, NET, "--measure"], "--hardware 10980xe is another"),
        ([NET, NET, "--rounds", "2"], "--rounds 2 has no effect without --measure"),
        ([NET, NET, "--by", "type", "--depth", "2"], "--depth 2 has no effect on rows by type"),
        ([NET, NET, "-o", "c.xlsx"], "unknown suffix"),
        ([NET, NET, "-o", "-"], "--format"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert words in error_of(capsys, "compare", *arguments, *SHEET)


def test_saved_analyses_are_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "a.json"
    assert run(["analyze", NET, *SHEET, "-o", str(saved)]) == 0
    capsys.readouterr()
    said = error_of(capsys, "compare", str(saved), NET, "--measure")
    assert f"--measure cannot change a saved analysis ({saved})" in said
    twice = error_of(capsys, "compare", str(saved), NET, *SHEET, "--hardware", "v100")
    assert "--hardware cannot change a saved analysis" in twice
    cold = error_of(capsys, "compare", str(saved), str(saved), "--cold")
    assert "--cold cannot change a saved analysis" in cold
    data: dict[str, Any] = json.loads(saved.read_text())
    saved.write_text(json.dumps({**data, "schema_version": 99}))
    assert "99" in error_of(capsys, "compare", str(saved), NET, *SHEET)


def test_a_sweep_is_handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, Any] = {}

    def sweep(*models: str, **options: Any) -> Comparison:
        given.update(models=models, **options)
        return Comparison.of([small(), small()], names=models)

    monkeypatch.setattr("roofline.pipeline.sweeps.sweeping.sweep", sweep)
    spec, file = "channels=16:64:x2", tmp_path / "s.csv"
    line = ["compare", "a", "b", "--sweep", spec, "--jobs", "2", "--yes", "--dtype", "float32"]
    assert run([*line, "--hardware", "v100", "--reference", "b", "-o", str(file)]) == 0
    assert file.read_text().startswith("model,")
    assert given["models"] == ("a", "b")
    assert (given["axes"], given["jobs"], given["executor"]) == (spec, 2, None)
    # With --yes, nothing is asked.
    given["ask"]("a million points")
    assert given["reference"] == "b"
    assert given["hardware"] == "v100"
    assert given["dtype"] == "float32"
    assert given["channels_last"] is False


def test_measuring_is_handed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def compare(*models: str, **options: Any) -> Comparison:
        asked.update(models=models, **options)
        return Comparison.of([small(), small()], names=models)

    monkeypatch.setattr("roofline.pipeline.comparisons.compare", compare)
    line = ["compare", "a", "b", "--measure", "--rounds", "3", "--threads", "1", "--threads", "2"]
    assert run([*line, "--hardware", "host", "--force", "--channels-last"]) == 0
    assert (asked["models"], asked["measure"], asked["rounds"]) == (("a", "b"), True, 3)
    assert (asked["hardware"], asked["threads"], asked["force"]) == ("host", [1, 2], True)
    assert asked["channels_last"] is True
    assert "b vs a: " in capsys.readouterr().out
