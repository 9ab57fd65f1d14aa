"""``roofline advise``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.cli.main import run
from roofline.machine.hardware import profile_to_toml
from tests.analysis.examples import full_profile

MODEL = """
import torch

class Folded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 32, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(32)
    def forward(self, x):
        return self.norm(self.conv(x))
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Path("model.py").write_text(MODEL)
    Path("machine.toml").write_text(profile_to_toml(full_profile()))
    return tmp_path


ASKED = ["model.py:Folded", "--input", "1x3x64x64", "--hardware", "machine.toml"]


def test_advice_has_its_verdict_first(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", *ASKED, "-o", "a.json", "-o", "a.md", "-o", "a.csv", "-o", "a.html"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("model.py:Folded: ") and " saves " in out
    assert "foldable batch norm" in out and "fuse_conv_bn_eval" in out
    assert "Longest layers by predicted time" in out and "by the generic CPU model" in out
    assert json.loads(Path("a.json").read_text())["kind"] == "advice"
    assert "foldable batch norm" in Path("a.md").read_text()
    assert Path("a.html").read_text().startswith("<!doctype html>")


def test_analyses_have_the_section_and_their_files_are_advised_on_without_torch(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", *ASKED, "-o", "r.json"]) == 0
    assert "Savings" in capsys.readouterr().out
    assert run(["advise", *ASKED, "-o", "a.json"]) == 0
    capsys.readouterr()
    for file in ("r.json", "a.json"):
        program = (
            "import sys; from roofline.cli.main import run;"
            f"code = run(['advise', '{file}']); assert 'torch' not in sys.modules; sys.exit(code)"
        )
        shown = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert "foldable batch norm" in shown.stdout
        # A saved analysis is not measured.
        assert "Next:" not in shown.stdout


def test_formats_go_to_stdout(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", *ASKED, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("rule,operators,evidence,change,basis,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*ASKED, "--measure"], "--measure measures on this machine; leave --hardware out"),
        ([*ASKED, "--quick"], "--quick has no effect without --measure"),
        ([*ASKED, "-o", "a.png"], "are written as .json, .csv, .md, .html"),
        (["r.json", "--measure"], "--measure: r.json is a saved analysis"),
        (["r.json", "--batch", "8"], "--batch: has no effect on r.json, a saved analysis"),
        (["r.json", "--hardware", "h100"], "--hardware: has no effect on r.json, a saved analysis"),
        (["nothing.json"], "nothing.json"),
    ],
)
def test_mistakes_end_in_a_line(
    arguments: list[str], message: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("r.json").write_text("{}")
    assert run(["advise", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and len(said.splitlines()) == 1


def test_a_file_without_findings_is_not_one_in_which_nothing_was_found(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(__file__).parents[1] / "data" / "analysis-tiny.json"
    assert run(["advise", str(file), "--top", "3"]) == 0
    assert "contains no findings; `roofline advise` may not have run" in capsys.readouterr().err


def test_several_machines_have_a_line_for_each_rule(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", *ASKED, "--hardware", "h100"]) == 0
    out = capsys.readouterr().out
    (line,) = [each for each in out.splitlines() if "foldable batch norm ·" in each]
    assert "h100 " in line and line.count("(predicted)") == 2
    assert "fuse_conv_bn_eval" in line
