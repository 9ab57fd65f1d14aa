"""The pytest plugin: tests that pin costs, run by a pytest of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.design.gate import read_baseline
from roofline.testing import FOLDER, RooflineCheck
from tests.design.gate_examples import cost

TESTS = """
import pytest
import roofline
import torch

WIDTH = {width}

def test_model(roofline_check):
    roofline_check(torch.nn.Linear(8, WIDTH), (4, 8))

@pytest.mark.parametrize("batch", [1, 2])
def test_batches(roofline_check, batch):
    roofline_check(torch.nn.Linear(8, WIDTH), (batch, 8), fail_if=["flop>+50%"])

def test_step(roofline_check):
    model = torch.nn.Linear(8, WIDTH)
    with roofline.track(model) as tracked:
        model(torch.ones(4, 8)).sum().backward()
    roofline_check(tracked)
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Its tests, in a process and with a configuration of their own."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p"]
    return subprocess.run(
        [*command, "roofline.testing", *arguments], cwd=folder, capture_output=True, text=True
    )


def test_costs_are_written_pinned_and_held(tmp_path: Path) -> None:
    tests = tmp_path / "test_cost.py"
    tests.write_text(TESTS.format(width=3), encoding="utf-8")
    missing = run_pytest(tmp_path, "-k", "test_model")
    assert missing.returncode == 1
    assert "there is no baseline yet; write it with `pytest --roofline-update`" in missing.stdout
    written = run_pytest(tmp_path, "--roofline-update")
    assert written.returncode == 0, written.stdout
    names = sorted(each.name for each in (tmp_path / FOLDER).iterdir())
    assert len(names) == 4
    assert "test_cost.test_model.json" in names and "test_cost.test_step.json" in names
    kept = json.loads((tmp_path / FOLDER / "test_cost.test_model.json").read_text())
    assert kept["multiply_add"] == 4 * 8 * 3
    tests.write_text(TESTS.format(width=4), encoding="utf-8")
    grown = run_pytest(tmp_path)
    assert grown.returncode == 1
    # A third more FLOP are within half.
    assert "2 failed, 2 passed" in grown.stdout
    assert (
        "+33.3 %" in grown.stdout and "If that is meant: pytest --roofline-update" in grown.stdout
    )
    assert "Traceback" not in grown.stdout


@pytest.fixture
def pinned(tmp_path: Path) -> RooflineCheck:
    RooflineCheck(tmp_path / "test_x.py", "test_y", update=True)(cost())
    return RooflineCheck(tmp_path / "test_x.py", "test_y", update=False)


def test_a_failing_check_says_the_whole_table(pinned: RooflineCheck) -> None:
    with pytest.raises(pytest.fail.Exception) as caught:
        pinned(cost(flop=1001))
    said = str(caught.value)
    assert said.startswith("net fails 1 of 6 conditions") and "1,001" in said


def test_less_is_no_failure_and_the_check_is_given(pinned: RooflineCheck) -> None:
    found = pinned(cost(flop=900, launches=9))
    assert found.passes and len(found.changes) == 2


def test_a_second_call_has_a_baseline_of_its_own(tmp_path: Path) -> None:
    write = RooflineCheck(tmp_path / "test_x.py", "test_y[a/b c]", update=True)
    write(cost())
    write(cost(flop=5))
    names = sorted(each.name for each in (tmp_path / FOLDER).iterdir())
    assert len(names) == 2 and all(" " not in name and "/" not in name for name in names)
    found = [read_baseline(tmp_path / FOLDER / name).flop for name in names]
    assert sorted(each or 0 for each in found) == [5, 1000]


def test_names_that_look_alike_have_files_of_their_own(tmp_path: Path) -> None:
    for number, name in enumerate(("test_y[a/b]", "test_y[a b]", "test_y[a-b]")):
        RooflineCheck(tmp_path / "test_x.py", name, update=True)(cost(launches=number))
    assert len(list((tmp_path / FOLDER).iterdir())) == 3


def test_a_baseline_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "costs" / "net.json"
    RooflineCheck(tmp_path / "test_x.py", "test_y", update=True)(cost(), against=file)
    assert read_baseline(file) == cost()


def test_the_plugin_loads_nothing_heavy() -> None:
    probe = (
        "import roofline.testing, sys;"
        "print([m for m in ('torch', 'pandas', 'numpy', 'click', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
