"""Views of an analysis from the command line: of a saved one, without torch."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from roofline.cli.main import run

LESSON = str(Path(__file__).parent.parent / "data" / "analysis-lesson.json")


def test_a_saved_training_step_is_shown_as_a_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", LESSON, "--by", "module", "--depth", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Lesson: minimum ")
    for words in (
        "training step (sgd)",
        "optimizer      1",
        "\n  linear  Linear      2          16",
    ):
        assert words in said
    assert "fused" not in said.replace("fused operators", "")
    assert run(["show", LESSON, "--by", "module", "--depth", "0", "--fused"]) == 0
    shallow = capsys.readouterr().out
    assert "Fused bytes" in shallow
    assert "\n  linear" not in shallow


def test_files_hold_the_same_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = {suffix: tmp_path / f"a.{suffix}" for suffix in ("csv", "md", "html")}
    outputs = [each for target in targets.values() for each in ("-o", str(target))]
    assert run(["show", LESSON, "--by", "module", "--depth", "1", "--fused", *outputs]) == 0
    lines = list(csv.DictReader(io.StringIO(targets["csv"].read_text(encoding="utf-8"))))
    assert [each["module"] for each in lines] == ["", "", "linear", "<loss>"]
    leaves = [each for each in lines if each["is_open"] == "false"]
    assert sum(int(each["flop"]) for each in leaves) == int(lines[0]["flop"])
    assert "&nbsp;&nbsp;linear" in targets["md"].read_text(encoding="utf-8")
    page = targets["html"].read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Fused bytes" in page


def test_a_depth_without_modules_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["show", LESSON, "--by", "type", "--depth", "1"]) == 2
    assert capsys.readouterr().err == (
        "roofline: error: --depth 1 has no effect on rows by type; add --by module\n"
    )
