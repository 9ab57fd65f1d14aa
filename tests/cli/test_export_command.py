"""``roofline export``, and files where models are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from roofline.cli.main import run

MAKER = """
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MAKER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_written_and_can_be_analysed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3888 multiply-adds: 4 × 6 × 6 results of 27."""
    assert run(["export", "mine.py:net", "--input", "1x3x8x8", "-o", "a.pt2"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("a.pt2: outputs of file and mine.py:net are equal; equal MACs")
    assert said.err.splitlines()[-1] == "Wrote a.pt2"
    assert run(["analyze", "a.pt2", "--hardware", "10980xe", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["totals"]["macs"] == 3888
    assert run(["export", "a.pt2", "-o", "b.pt2", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["macs"] == 3888
    assert run(["export", "a.pt2", "-o", "b.pt2"]) == 2
    assert "b.pt2: exists; add --force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "mine.py:net"], "no file to write; add -o model.onnx or -o model.pt2"),
        (["export", "mine.py:net", "-o", "-"], "a model cannot be written to stdout"),
        (["export", "mine.py:net", "-o", "a.pt"], "models are written as .onnx, .pt2"),
        (["analyze", "missing.onnx"], "missing.onnx: no such file"),
        (["analyze", "resnet18", "--allow-pickle"], "has no effect on 'resnet18'"),
        (["analyze", "mine.py:net", "--weights", "w.pt"], "w.pt: no such file"),
        (["analyze", "a.pt2", "--weights", "w.pt"], "'a.pt2' has its own weights"),
        (["analyze", "a.pt2", "--seq", "4"], "which runs on its exported inputs"),
    ],
)
def test_mistakes(
    arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert len([each for each in said if "error" in each]) == 1
    assert words in said[-1]


def test_weights_and_trust(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Options may stand on either side of the model."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    torch.save(model.state_dict(), "w.pt")
    torch.save(model, "whole.pt")
    given = ["--input", "1x3x8x8", "--hardware", "10980xe"]
    assert run(["analyze", "-v", "--weights", "w.pt", "mine.py:net", *given]) == 0
    assert "weights from w.pt" in capsys.readouterr().out
    assert run(["analyze", "whole.pt", *given]) == 2
    assert "if you trust it, add --allow-pickle" in capsys.readouterr().err
    assert run(["analyze", "-v", "whole.pt", "--allow-pickle", *given]) == 0
    assert "unpickled (--allow-pickle)" in capsys.readouterr().out
