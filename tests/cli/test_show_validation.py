"""``roofline show`` of what ``roofline validate`` saved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roofline.cli.main import run
from tests.latency.judged import judged, validation

VALUE = validation(
    *(judged(100.0, 100.0 + i, model=f"m{i}", remeasured_s=101.0) for i in range(30))
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    VALUE.save(tmp_path / "v.json")
    return tmp_path / "v.json"


def test_it_is_shown_as_it_was(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(saved)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Prediction MAPE 14.5 % over 30 runs")
    assert "… 10 more" in shown
    assert run(["show", str(saved), "--top", "3"]) == 0
    assert "… 27 more" in capsys.readouterr().out


def test_it_is_written_in_every_format(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suffixes = (".json", ".csv", ".md", ".html", ".png", ".svg")
    names = [str(saved.with_name(f"w{suffix}")) for suffix in suffixes]
    assert run(["show", str(saved), *(word for name in names for word in ("-o", name))]) == 0
    assert capsys.readouterr().err.splitlines()[-6:] == [f"Wrote {name}" for name in names]
    for name, suffix in zip(names, suffixes, strict=True):
        expected = VALUE.render(suffix.removeprefix("."))
        content = Path(name).read_bytes()
        assert content == (expected.encode() if isinstance(expected, str) else expected)
    assert run(["show", str(saved), "--format", "svg"]) == 0
    assert capsys.readouterr().out == VALUE.render("svg")


@pytest.mark.parametrize("options", [["--by", "module"], ["--fused"]])
def test_views_of_analyses_are_refused(
    options: list[str], saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", str(saved), *options]) == 2
    said = capsys.readouterr().err
    assert said == (
        f"roofline: error: {saved}: is of kind 'validation'; --by, --depth and --fused take"
        " analyses\n"
    )


def test_a_damaged_one_is_refused(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved.write_text(saved.read_text().replace('"measured_s": 100.0', '"measured_s": -1'))
    assert run(["show", str(saved)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "must be from 1e-12 to 1e12, got -1; make it again" in said


def test_torch_is_not_imported(saved: Path) -> None:
    code = (
        "import sys; from roofline.cli.main import run;"
        f"code = run(['show', {str(saved)!r}, '-o', {str(saved.with_suffix('.html'))!r}]);"
        "print('loaded', 'torch' in sys.modules, code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded False 0"
