"""A sample of the zoo, one model of many families: the whole of it is in benchmarks/zoo.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ZOO = Path(__file__).parent.parent / "benchmarks" / "zoo.py"


@pytest.mark.parametrize("library", ["torchvision", "timm", "transformers"])
def test_a_sample_of_the_zoo(library: str) -> None:
    """Nothing crashes, all operators have formulas, and torch counts the same, or it is known why.

    The script itself exits with 1 otherwise.
    """
    command = [sys.executable, str(ZOO), "--sample", "--library", library]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not explained" not in done.stdout.partition("##")[2]
