"""The pytest plugin: tests that pin costs, run by a pytest of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofline.design.gate.cost import baseline_json, read_baseline
from roofline.testing import FOLDER, RooflineCheck
from tests.design.gate_examples import cost

ROOT = Path(__file__).parents[1]

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

NEW_TEST = """
def test_new(roofline_check):
    roofline_check(torch.nn.Linear(8, WIDTH), (4, 8))
"""

REPEATING = ("CI", "BUILD_NUMBER")


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Its tests, in a process and with a configuration of their own."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p"]
    # Tests may take their costs from the examples of ours.
    search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [*command, "roofline.testing", *arguments],
        cwd=folder,
        # In a CI run, pytest's last lines repeat each message whole. For the sake of a plugin
        # that it finds itself, pytest rewrites the assertions of the whole package.
        env={
            **{name: value for name, value in os.environ.items() if name not in REPEATING},
            "PYTHONPATH": search,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
    )


def test_costs_are_written_pinned_and_held(tmp_path: Path) -> None:
    tests = tmp_path / "test_cost.py"
    tests.write_text(TESTS.format(width=3), encoding="utf-8")
    written = run_pytest(tmp_path, "--roofline-update")
    assert written.returncode == 0, written.stdout
    names = sorted(each.name for each in (tmp_path / FOLDER).iterdir())
    assert len(names) == 4
    assert "test_cost.test_model.json" in names and "test_cost.test_step.json" in names
    kept = json.loads((tmp_path / FOLDER / "test_cost.test_model.json").read_text())
    assert kept["macs"] == 4 * 8 * 3
    tests.write_text(TESTS.format(width=4) + NEW_TEST, encoding="utf-8")
    grown = run_pytest(tmp_path)
    assert grown.returncode == 1
    # A third more FLOP are within half.
    assert "3 failed, 2 passed" in grown.stdout
    missing = "test_cost.test_new.json: no baseline yet; write it with `pytest --roof"
    assert grown.stdout.count(missing) == 1
    assert not (tmp_path / FOLDER / "test_cost.test_new.json").exists()
    assert "+33.3 %" in grown.stdout and "If intended, run pytest --roofline-update" in grown.stdout
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


def test_mistakes_take_a_line_and_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    held = RooflineCheck(tmp_path / "test_x.py", "test_y", update=False)

    def said(now: object = None, **options: Any) -> str:
        with pytest.raises(pytest.fail.Exception) as caught:
            held(now or cost(), **{"against": file, **options})
        assert caught.value.pytrace is False and caught.value.__suppress_context__
        return str(caught.value)

    assert said() == f"{file}: no baseline yet; write it with `pytest --roofline-update`"
    file.write_text(baseline_json(cost())[:300], encoding="utf-8")
    assert said().startswith(f"{file}: not valid JSON at line ")
    assert said().endswith(f"\nIf intended, run pytest --roofline-update to rewrite {file}.")
    file.write_text(baseline_json(cost()), encoding="utf-8")
    assert "has inputs 1x3x8x8:float32, this run inputs none" in said(cost(inputs=()))
    assert said(fail_if=["flop>1%"]).splitlines()[-2:] == ["  flop>1%", "       ^"]
    assert said(batch=2).startswith("batch has no effect")
    # A new baseline would be of no use: its FLOP would not be known, either.
    unknown = said(cost(flop=None, macs=None, unknown_operators=2))
    assert "2 calls of operators without a formula" in unknown
    assert "--roofline-update" not in unknown


@pytest.mark.parametrize("folder", ["taken", "taken/more", "x" * 300])
def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, folder: str) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    write = RooflineCheck(tmp_path / "test_x.py", "test_y", update=True)
    with pytest.raises(pytest.fail.Exception, match=r"cannot (create|be written)") as caught:
        write(cost(), against=tmp_path / folder / "b.json")
    assert "\n" not in str(caught.value)
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "a file"


def test_a_foreign_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "package.json"
    file.write_text('{"name": "mine"}', encoding="utf-8")
    write = RooflineCheck(tmp_path / "test_x.py", "test_y", update=True)
    with pytest.raises(pytest.fail.Exception, match="not a baseline, so update=True does"):
        write(cost(), against=file)
    assert file.read_text(encoding="utf-8") == '{"name": "mine"}'


CLASSES = """
import sys
import roofline
from tests.design.gate_examples import cost

class TestOne:
    def test_cost(self, roofline_check):
        roofline_check(cost(flop={flop}))

class TestTwo:
    class TestDeep:
        def test_cost(self, roofline_check):
            roofline_check(cost(flop=2 * {flop}), fail_if="flop>+0%")

class TestThree:
    def test_cost(self, roofline_check):
        roofline_check(cost())

def test_nothing_heavy_was_loaded():
    assert not [each for each in ("torch", "pandas", "matplotlib") if each in sys.modules]
"""


def test_classes_have_baselines_of_their_own_written_by_several_processes(tmp_path: Path) -> None:
    tests = tmp_path / "test_cost.py"
    tests.write_text(CLASSES.format(flop=500), encoding="utf-8")
    written = run_pytest(tmp_path, "--roofline-update", "-p", "xdist", "-n", "2")
    assert written.returncode == 0, written.stdout
    assert sorted(each.name for each in (tmp_path / FOLDER).iterdir()) == [
        "test_cost.TestOne.test_cost.json",
        "test_cost.TestThree.test_cost.json",
        "test_cost.TestTwo.TestDeep.test_cost.json",
    ]
    assert read_baseline(tmp_path / FOLDER / "test_cost.TestOne.test_cost.json").flop == 500
    tests.write_text(CLASSES.format(flop=501), encoding="utf-8")
    (tmp_path / FOLDER / "test_cost.TestThree.test_cost.json").write_text("{", encoding="utf-8")
    grown = run_pytest(tmp_path)
    assert "3 failed, 1 passed" in grown.stdout
    assert "(+0.20 % on the baseline's 500 FLOP)" in grown.stdout
    assert "Traceback" not in grown.stdout and "pipeline/checking.py" not in grown.stdout
    assert grown.stdout.count("not valid JSON") == 1 and "During handling" not in grown.stdout
