"""``roofline check``: baselines written, conditions judged, exit codes, and one line an error."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from roofline.cli.main import run

MODEL = """
import torch
def {name}():
    print("made by the user's own code")
    return torch.nn.Sequential(torch.nn.Linear(8, {width}), torch.nn.ReLU())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "before.py").write_text(MODEL.format(name="net", width=3), encoding="utf-8")
    (tmp_path / "after.py").write_text(MODEL.format(name="net", width=4), encoding="utf-8")
    return tmp_path


def check(model: str, *arguments: str) -> int:
    return run(["check", model, "--input", "4x8", "--against", "b.json", *arguments])


def saved(file: str = "b.json") -> dict[str, Any]:
    return json.loads(Path(file).read_text(encoding="utf-8"))


def test_a_first_baseline_holds_what_is_worked_out_by_hand(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("before.py:net", "--update") == 0
    said = capsys.readouterr()
    assert said.err.rstrip().endswith("Wrote b.json")
    assert "made by the user's own code" in said.err
    assert "made by the user's own code" not in said.out
    kept = saved()
    assert kept["kind"] == "baseline"
    # 4 rows of 8 times 8x3, and 3 biases; then 12 comparisons.
    assert kept["macs"] == 4 * 8 * 3
    assert kept["flop"] == 2 * 96 + 12 + 12
    assert kept["parameters"] == 27
    # Weights, biases, inputs and results of the product; results read and written by ReLU.
    assert kept["traffic_bytes"] == 4 * (24 + 3 + 32 + 12) + 4 * (12 + 12)
    assert kept["launches"] == 2
    assert kept["unknown_operators"] == 0
    # No machine was measured, and none was asked for.
    assert kept["machine"] is None and kept["eager_min_time_s"] is None
    assert "counts only, no times" in said.out


def test_the_same_model_passes_and_a_wider_one_fails_with_4(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("before.py:net", "--update") == 0
    before = (folder / "b.json").read_bytes()
    conditions = ["--fail-if", "flop>+1%", "--fail-if", "launches>+0"]
    assert check("before.py:net", *conditions) == 0
    capsys.readouterr()
    assert check("after.py:net", *conditions, "--format", "md", "-o", "c.json") == 4
    said = capsys.readouterr()
    assert said.out.startswith("# after.py:net fails 1 of 2 conditions")
    # 216 FLOP became 288.
    assert "| FLOP | 216 FLOP | 288 FLOP | +33.3 % | flop&gt;+1% | fails |" in said.out
    last = said.err.strip().splitlines()[-1]
    assert last.startswith("roofline: error: --fail-if: flop>+1%: flop is 288 FLOP, above")
    # The files are written all the same, and the baseline stays.
    assert saved("c.json")["passes"] is False
    assert (folder / "b.json").read_bytes() == before


def test_an_update_shows_what_changes_and_judges_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("before.py:net", "--update") == 0
    assert check("after.py:net", "--update", "--fail-if", "flop>+1%") == 0
    said = capsys.readouterr()
    assert "+33.3 %" in said.out and "--fail-if is not checked" in said.err
    assert saved()["flop"] == 288


def test_a_missing_baseline_is_written_with_its_folder_and_fails_only_on_absolute_limits(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = ["--against", "costs/net/b.json"]
    assert check("before.py:net", *new, "--fail-if", "flop>+0") == 3
    said = capsys.readouterr()
    assert said.out.startswith("before.py:net")
    assert "Wrote costs/net/b.json" in said.err
    assert said.err.splitlines()[-1].endswith(
        "nothing is compared: costs/net/b.json was missing; it is written now"
    )
    assert saved("costs/net/b.json")["flop"] == 216
    # From now on it is compared.
    assert check("after.py:net", *new, "--fail-if", "flop>+0") == 4
    assert saved("costs/net/b.json")["flop"] == 216
    limit = ["--fail-if", "flop>215FLOP", "--fail-if", "flop>+0"]
    assert check("before.py:net", "--against", "c.json", *limit) == 4
    assert saved("c.json")["flop"] == 216
    capsys.readouterr()


def test_any_rise_of_flop_bytes_or_minimum_time_fails_without_conditions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = ["--hardware", "epyc-9654"]
    assert check("after.py:net", *machine) == 3
    assert check("after.py:net", *machine) == 0
    # Less work is no failure.
    assert check("before.py:net", *machine) == 0
    assert check("before.py:net", "--update", *machine) == 0
    capsys.readouterr()
    assert check("after.py:net", *machine) == 4
    error = capsys.readouterr().err.splitlines()[-1]
    for name in ("flop", "traffic_bytes", "eager_min_time_s"):
        assert f"{name}>+0: {name} is " in error
    # Times of other ceilings are not comparable, counts are.
    assert check("before.py:net", "--hardware", "epyc-9755") == 0
    assert check("after.py:net", "--hardware", "epyc-9755") == 4
    assert "eager_min_time_s" not in capsys.readouterr().err
    # What is given replaces these conditions.
    assert check("after.py:net", *machine, "--fail-if", "flop>+50%") == 0


def test_limits_in_units_take_no_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["check", "before.py:net", "--input", "4x8"]
    assert run([*given, "--fail-if", "flop>216FLOP", "--fail-if", "parameters>27"]) == 0
    assert run([*given, "--fail-if", "flop>215FLOP"]) == 4
    assert not (folder / "b.json").exists()
    capsys.readouterr()


def test_bounds_are_those_of_the_machine_that_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = ["--hardware", "epyc-9654"]
    assert check("before.py:net", "--update", *machine) == 0
    assert saved()["machine"]["name"] == "epyc-9654"
    assert saved()["eager_min_time_s"] > 0
    conditions = ["--fail-if", "eager_min_time_s>+0.01%", "--fail-if", "eager_min_time_s<-0.01%"]
    assert check("before.py:net", *conditions, *machine) == 0
    capsys.readouterr()
    assert check("before.py:net", *conditions, "--hardware", "h100", "--device", "cpu") == 4
    said = capsys.readouterr()
    assert "machine 'h100', but 'epyc-9654' in the baseline" in said.err
    assert (
        check("before.py:net", "--fail-if", "eager_min_time_s>+5%", *machine, "--threads", "1") == 4
    )
    assert "1 thread, but " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--update", "--against", "b.txt"], "--against b.txt: baselines must end in .json"),
        (["--update", "--against", "before.py/b.json"], "before.py"),
        (["--against", "before.py/no/b.json"], "cannot create folder 'before.py/no'"),
        (["-o", "b.json", "--update"], "-o b.json: is the baseline; choose another file"),
        (["-o", "c.html"], "are written as .json, .md"),
        (["--fail-if", "flop"], "--fail-if: > or < is expected"),
        (["--hardware", "nowhere", "--update"], "nowhere"),
    ],
)
def test_mistakes_take_one_line_and_change_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert check("before.py:net", *arguments) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    line = next(each for each in captured.err.splitlines() if "error: " in each)
    assert line.startswith("roofline: error: ") and said in line
    assert not (folder / "b.json").exists()


def test_conditions_that_ask_for_a_baseline_say_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", "before.py:net", "--input", "4x8", "--fail-if", "flop>+1%"]) == 2
    assert "add --against FILE.json" in capsys.readouterr().err
    assert run(["check", "before.py:net", "--input", "4x8", "--update"]) == 2
    assert "--update requires a file" in capsys.readouterr().err


def test_a_wrong_condition_is_pointed_at_before_any_work(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("before.py:net", "--fail-if", "flop>1%") == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == ["  flop>1%", "       ^"]
    assert not any("made by" in line for line in said)


def test_another_batch_is_another_task(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("before.py:net", "--update") == 0
    assert check("before.py:net", "--batch", "2", "--fail-if", "flop>+1%") == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "baseline has inputs 4x8:float32, this run inputs 2x8:float32" in line
    # Writing it anew is the way out, and shows no ratios to another task.
    assert check("before.py:net", "--batch", "2", "--update") == 0
    assert "baseline" not in capsys.readouterr().out.splitlines()[2]
    assert saved()["flop"] == 108


def test_a_model_that_raises_leaves_the_baseline_as_it_was(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("before.py:net", "--update") == 0
    before = (folder / "b.json").read_bytes()
    assert run(["check", "before.py:net", "--input", "4x9", "--against", "b.json", "--update"]) == 2
    assert (folder / "b.json").read_bytes() == before
    capsys.readouterr()


def test_a_saved_analysis_is_a_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["before.py:net", "--input", "4x8", "--hardware", "epyc-9654"]
    assert run(["analyze", *given, "-o", "a.json"]) == 0
    limits = ["--fail-if", "flop>+0%", "--fail-if", "eager_min_time_s>+0.01%"]
    assert run(["check", *given, "--against", "a.json", *limits]) == 0
    capsys.readouterr()


def test_an_update_replaces_no_other_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["before.py:net", "--input", "4x8", "--hardware", "epyc-9654"]
    assert run(["analyze", *given, "-o", "b.json"]) == 0
    before = (folder / "b.json").read_bytes()
    assert check("before.py:net", "--update") == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("roofline: error: b.json: not a baseline, so --update does not")
    assert (folder / "b.json").read_bytes() == before


def test_links_in_a_circle_and_names_that_are_too_long_take_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "one.json").symlink_to("other.json")
    (folder / "other.json").symlink_to("one.json")
    for file in ("one.json", f"{'x' * 300}.json", "/proc/self/mem", "."):
        for more in ([], ["--update"], ["-o", "c.md"]):
            given = ["check", "before.py:net", "--input", "4x8", "--against", file]
            assert run([*given, *more]) == 2
            captured = capsys.readouterr()
            assert "Traceback" not in captured.err
            assert captured.err.strip().splitlines()[-1].startswith("roofline: error: ")
    assert not (folder / "c.md").exists()


def test_weights_of_a_file_may_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    layer = torch.nn.Sequential(torch.nn.Linear(8, 3), torch.nn.ReLU())
    torch.save(layer.state_dict(), folder / "w.pt")
    assert check("before.py:net", "--weights", "w.pt", "--update") == 0
    assert saved()["flop"] == 216
    torch.save({}, folder / "none.pt")
    assert check("before.py:net", "--weights", "none.pt", "--update") == 2
    capsys.readouterr()


def test_the_documented_workflow_fails_with_4_and_has_its_table(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
    workflow = page.partition("```yaml\n")[2].partition("```")[0]
    command = workflow.partition("arguments: >-")[2].partition("\n      - ")[0]
    # Its model is one whose convolution grows between the baseline and the check.
    model = "import torch\ndef Net():\n    return torch.nn.Conv2d(3, {}, 3)\n"
    (folder / "mynet.py").write_text(model.format(4), encoding="utf-8")
    (folder / "costs").mkdir()
    words = [*shlex.split(command), "-o", "roofline-check.md"]
    plain = words[: words.index("--fail-if")]
    assert run(["check", *plain, "--update"]) == 0
    assert run(["check", *words]) == 0
    (folder / "mynet.py").write_text(model.format(5), encoding="utf-8")
    assert run(["check", *words, "--force"]) == 4
    table = (folder / "roofline-check.md").read_text(encoding="utf-8")
    assert table.startswith("# mynet.py:Net fails 1 of 2 conditions")
    # Four filters became five.
    assert "| +25.0 % | flop&gt;+1% | fails |" in table
    assert "--body-file roofline-check.md" in workflow
