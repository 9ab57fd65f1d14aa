"""``roofline analyze MODEL --hardware A --hardware B``, and showing what it saved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import roofline
from roofline.cli.main import run
from roofline.machine.catalog import save_measured_profile
from roofline.machine.hardware import profile_to_toml
from tests.analysis.examples import sheet
from tests.builders import ceiling, level, profile
from tests.cli.stand_ins import error_of
from tests.design.machine_comparisons import NARROW

PAIR = ["--hardware", "10980xe", "--hardware", "v100"]
SMALL = ["analyze", "squeezenet1_1", *PAIR]


def test_one_table_for_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SMALL, "--top", "3"]) == 0
    said = capsys.readouterr().out
    assert "compute-bound on v100 and memory-bound on 10980xe" in said.splitlines()[0]
    assert "Operators with different limiters" in said


def test_the_model_is_captured_once_and_placed_as_alone() -> None:
    both = roofline.compare_machines("squeezenet1_1", hardware=["10980xe", "v100"])
    for analysis, name in zip(both.analyses, ("10980xe", "v100"), strict=True):
        alone = roofline.analyze("squeezenet1_1", hardware=name)
        assert analysis == alone


def test_saved_and_shown_again_without_torch(tmp_path: Path) -> None:
    saved = tmp_path / "machines.json"
    assert run([*SMALL, "-o", str(saved)]) == 0
    code = (
        "import sys; from roofline.cli.main import run;"
        f"code = run(['show', {str(saved)!r}, '--by', 'type', '-o', {str(tmp_path / 'a.png')!r},"
        f" '-o', {str(tmp_path / 'a.csv')!r}]);"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Operator types" in done.stdout
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").startswith("machine,index,op")
    assert len(json.loads(saved.read_text(encoding="utf-8"))["analyses"]) == 2


def test_the_host_is_one_of_the_machines(capsys: pytest.CaptureFixture[str]) -> None:
    host = profile([ceiling(1e11)], [level("DRAM", None, {"read": {1: 1e10}})])
    save_measured_profile(host, ())
    asked = ["analyze", "squeezenet1_1", "--hardware", "host", "--hardware", "10980xe"]
    assert run([*asked, "--top", "1"]) == 0
    assert "memory-bound on 10980xe" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*SMALL, "--hardware", "v100"], "--hardware v100: given twice; give it once"),
        ([*SMALL, "--hardware", "v100-pcie"], "did you mean 'v100-pcie-32gb'"),
        ([*SMALL, "-o", "a.jsn"], "unknown suffix"),
        (["profile", "resnet18", *PAIR], "takes one machine, got 2; for several"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert words in error_of(capsys, *arguments)


def test_threads_are_those_of_every_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sheets have 4 threads, the 10980xe 16; a V100 always computes as a whole."""
    narrow = tmp_path / "narrow.toml"
    narrow.write_text(profile_to_toml(NARROW), encoding="utf-8")
    pair = ["--hardware", str(narrow), "--hardware", "10980xe"]
    assert run(["analyze", "squeezenet1_1", *pair, "--threads", "4"]) == 0
    capsys.readouterr()
    assert "--threads 5 applies to every CPU, but 'narrow' has 4; leave it out" in error_of(
        capsys, "analyze", "squeezenet1_1", *pair, "--threads", "5"
    )
    assert "has no effect without a CPU" in error_of(
        capsys, "analyze", "squeezenet1_1", "--hardware", "v100", "--hardware", "a100",
        "--threads", "1",
    )  # fmt: skip
    both = roofline.compare_machines("squeezenet1_1", hardware=[NARROW, "v100"], threads=2)
    whole = roofline.load_hardware("v100").threads
    assert [each.threads for each in both.analyses] == [2, whole]


def test_show_opens_what_other_commands_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    difference, comparison = tmp_path / "d.json", tmp_path / "c.json"
    assert run(["hardware", "diff", "v100", "h100", "-o", str(difference)]) == 0
    saved = ["compare", "squeezenet1_0", "squeezenet1_1", "--hardware", "v100"]
    assert run([*saved, "-o", str(comparison)]) == 0
    capsys.readouterr()
    assert run(["show", str(comparison), "--by", "module", "--depth", "1"]) == 0
    assert "squeezenet1_1 vs squeezenet1_0: " in capsys.readouterr().out
    assert run(["show", str(difference)]) == 0
    assert "v100" in capsys.readouterr().out
    assert "roofline hardware show" in error_of(capsys, "show", "hwprofiles/v100.toml")


def test_one_machine_is_not_several() -> None:
    with pytest.raises(roofline.RooflineError, match=r"for one: roofline\.analyze"):
        roofline.compare_machines("squeezenet1_1", hardware=["v100"])


def test_coverage_is_that_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "odd.py"
    odd.write_text(
        "import torch\n"
        "from tests.unknown_operator import mystery\n"
        "class Odd(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return mystery(x + x)\n",
        encoding="utf-8",
    )
    asked = ["analyze", f"{odd}:Odd", "--input", "8x8", *PAIR]
    assert run([*asked, "--min-coverage", "100%"]) == 3
    assert "below --min-coverage 100.0%" in capsys.readouterr().err


def test_profiles_of_one_name_are_numbered() -> None:
    first, second = sheet("same", 1e12, 1e11), sheet("same", 2e12, 1e11)
    both = roofline.compare_machines("squeezenet1_1", hardware=[first, second])
    assert both.machine_names == ("same (1)", "same (2)")
