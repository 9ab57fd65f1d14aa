"""The GitHub Action: its steps, run as a runner would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.fixture
def steps() -> list[dict[str, Any]]:
    return yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]


def test_it_installs_the_repository_that_it_is_from(steps: list[dict[str, Any]]) -> None:
    assert steps[0]["run"] == 'python -m pip install --quiet "$GITHUB_ACTION_PATH[models]"'
    assert (ROOT / "action.yml").parent == ROOT
    assert (ROOT / "pyproject.toml").exists()


def test_a_rise_fails_and_its_table_is_in_the_summary(
    steps: list[dict[str, Any]], tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "roofline"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m roofline "$@"\n')
    program.chmod(0o755)

    def check(filters: int) -> tuple[int, str]:
        (tmp_path / "net.py").write_text(
            f"import torch\n\ndef net():\n    return torch.nn.Conv2d(3, {filters}, 3)\n"
        )
        summary = tmp_path / "summary.md"
        summary.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_STEP_SUMMARY": str(summary),
            "ARGUMENTS": "net.py:net --input 1x3x8x8\n--against costs/net.json --hardware h100"
            ' --fail-if "flop>+1%"',
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[1]["run"]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=False)
        return done.returncode, summary.read_text(encoding="utf-8")

    assert check(4)[0] == 3
    assert (tmp_path / "costs" / "net.json").exists()
    code, table = check(4)
    assert (code, "passes" in table) == (0, True)
    code, table = check(5)
    assert code == 4
    assert "| FLOP |" in table and "fails" in table
