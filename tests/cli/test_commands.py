"""The command line as its users meet it: stdout, stderr, exit codes, one-line errors."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
import torch

import roofline
from roofline.cli.main import cli, run
from roofline.machine import catalog
from roofline.machine.catalog import save_measured_profile
from roofline.machine.hardware import Host
from tests.builders import ceiling, level, profile
from tests.cli.stand_ins import error_of

BLOCKS = """
import torch

from tests.unknown_operator import mystery

class Standard(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Conv2d(64, 64, 3, padding=1, bias=False))

class Separable(torch.nn.Sequential):
    def __init__(self):
        super().__init__(
            torch.nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False),
            torch.nn.Conv2d(64, 64, 1, bias=False),
        )

class Keyword(torch.nn.Module):
    def forward(self, image, *, scale):
        return image * scale

class Raising(torch.nn.Module):
    def __init__(self):
        super().__init__()
        raise KeyError("no such size")

def number():
    return 7

class Odd(torch.nn.Module):
    def forward(self, x):
        return mystery(x)
"""


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    path = tmp_path / "blocks.py"
    path.write_text(BLOCKS)
    return path


def test_analyze_prints_the_verdict_and_writes_every_format(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = [tmp_path / f"out{suffix}" for suffix in (".json", ".csv", ".md", ".png", ".svg")]
    asked = [part for file in files for part in ("-o", str(file))]
    assert run(["analyze", "resnet18", "--hardware", "10980xe", *asked]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("resnet18: minimum 1.53 ms per forward pass (eager")
    assert [f"Wrote {file}" for file in files] == captured.err.strip().splitlines()
    assert all(file.stat().st_size > 500 for file in files)
    assert files[3].read_bytes().startswith(b"\x89PNG")


def test_show_says_what_analyze_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "a.json"
    assert run(["analyze", "squeezenet1_1", "--hardware", "10980xe", "-o", str(saved)]) == 0
    said = capsys.readouterr().out
    assert run(["show", str(saved)]) == 0
    assert said.startswith(capsys.readouterr().out), "the next steps follow"


@pytest.mark.parametrize("time_s", [1e-320, 5e-324, 1e300])
@pytest.mark.parametrize("key", ["measured_s", "eager_min_time_s", "predicted_s"])
def test_a_saved_time_that_is_none_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, time_s: float
) -> None:
    saved = tmp_path / "a.json"
    assert run(["analyze", "linear(8,4)@1x8", "--hardware", "10980xe", "-o", str(saved)]) == 0
    data = json.loads(saved.read_text())
    data["operators"][-1][key] = time_s
    saved.write_text(json.dumps(data))
    capsys.readouterr()
    assert run(["show", str(saved)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{saved}: operators[{len(data['operators']) - 1}].{key}: expected" in line


def test_an_attribute_at_the_end_of_float64_is_read_again(tmp_path: Path) -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x > 0, torch.finfo(x.dtype).min)

    given = torch.randn(4, dtype=torch.float64)
    analysis = roofline.analyze(Masked(), given, hardware="10980xe")
    analysis.save(tmp_path / "a.json")
    assert roofline.read_analysis(tmp_path / "a.json") == analysis


def test_saved_analysis_has_the_shape_that_was_promised(tmp_path: Path) -> None:
    saved = tmp_path / "a.json"
    assert run(["analyze", "squeezenet1_1", "--hardware", "10980xe", "-o", str(saved)]) == 0
    data = json.loads(saved.read_text())
    promised = {"schema_version", "model", "inputs", "hardware", "coverage", "totals", "operators"}
    assert promised | {"warnings"} <= set(data)
    row = data["operators"][0]
    for name in ("predicted_s", "predicted_low_s", "predicted_high_s", "measured_s"):
        assert row[name] is None
    for name in ("flop", "macs", "traffic_bytes", "parameter_bytes"):
        assert data["totals"][name] == sum(each[name] for each in data["operators"])


def test_show_needs_no_torch(tmp_path: Path) -> None:
    saved = tmp_path / "a.json"
    assert run(["analyze", "squeezenet1_1", "--hardware", "10980xe", "-o", str(saved)]) == 0
    code = (
        "import sys; sys.modules['torch'] = None; from roofline.cli.main import run;"
        f"sys.exit(run(['show', {str(saved)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "squeezenet1_1" in done.stdout


def test_output_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["analyze", "squeezenet1_1", "--hardware", "10980xe", "-o", "-", "--format"]
    assert run([*asked, "json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "squeezenet1_1"
    assert run([*asked, "csv"]) == 0
    assert capsys.readouterr().out.startswith("index,")


def test_options_change_what_they_say(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plain, other = tmp_path / "a.json", tmp_path / "b.json"
    base = ["analyze", "squeezenet1_1", "--hardware", "10980xe"]
    assert run([*base, "-o", str(plain)]) == 0
    changed = ["--batch", "2", "--dtype", "bfloat16", "--threads", "4", "--cold", "--by", "type"]
    assert run([*base, *changed, "-o", str(other)]) == 0
    a, b = json.loads(plain.read_text()), json.loads(other.read_text())
    assert b["totals"]["macs"] == 2 * a["totals"]["macs"]
    assert b["totals"]["parameter_size_bytes"] * 2 == a["totals"]["parameter_size_bytes"]
    assert (b["threads"], b["cache"]) == (4, "cold")
    assert b["inputs"][0] == {"name": "", "shape": [2, 3, 224, 224], "dtype": "bfloat16"}


def test_keyword_inputs_from_the_command_line(blocks: Path) -> None:
    shapes = ["--input", "1x4", "--input", "scale=4:float64"]
    assert run(["analyze", f"{blocks}:Keyword", *shapes, "--hardware", "10980xe"]) == 0


def test_compare_a_depthwise_block_with_a_standard_one(
    blocks: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """56 x 56 x 64: standard 64 * 9, separable 9 + 64 multiply-adds an output: 7.9 times fewer."""
    saved = tmp_path / "c.json"
    models = [f"{blocks}:Standard", f"{blocks}:Separable"]
    shape = ["--input", "1x64x56x56", "--hardware", "10980xe", "-o", str(saved)]
    assert run(["compare", *models, *shape]) == 0
    said = capsys.readouterr().out
    assert "7.89× fewer FLOP" in said
    rows = json.loads(saved.read_text())["rows"]
    assert rows[0]["macs"] == 64 * 56 * 56 * 64 * 9
    assert rows[1]["macs"] == 64 * 56 * 56 * (9 + 64)
    assert rows[1]["macs_ratio"] == pytest.approx((9 + 64) / (64 * 9))


def test_compare_takes_saved_analyses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "a.json"
    assert run(["analyze", "squeezenet1_1", "--hardware", "10980xe", "-o", str(saved)]) == 0
    capsys.readouterr()
    assert run(["compare", str(saved), "squeezenet1_0", "--hardware", "10980xe"]) == 0
    assert "squeezenet1_0" in capsys.readouterr().out
    other = [str(saved), "squeezenet1_0", "--hardware", "10980xe-measured"]
    assert "use one machine and cache state" in error_of(capsys, "compare", *other)


def test_hardware_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardware", "list"]) == 0
    assert "10980xe-measured" in capsys.readouterr().out
    assert run(["hardware", "show", "10980xe"]) == 0
    assert "4.61 TFLOP/s" in capsys.readouterr().out


def test_a_profile_of_this_machine_is_shown_as_far_as_it_still_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Measured elsewhere and with another torch: both are said, and its library ceilings go."""
    other = Host(
        cpu_model="Imagined 9000",
        architecture="x86_64",
        operating_system="Linux",
        instruction_sets=(),
        available_cpus=4,
        versions={"torch": "1.13.0"},
    )
    library = replace(ceiling(5e10), kind="library", kernel="gemm", unit="torch")
    dram = level("DRAM", None, {"read": {1: 1e10}})
    save_measured_profile(replace(profile([ceiling(1e11), library], [dram]), host=other), ())
    assert run(["hardware", "show"]) == 0
    captured = capsys.readouterr()
    assert "gemm" not in captured.out
    assert "FMA" in captured.out
    assert "the profile is from another host" in captured.err
    assert "measured with torch 1.13.0" in captured.err
    # A threads option is checked against that machine, and the warnings are the analysis's too.
    assert run(["analyze", "squeezenet1_1", "--threads", "1"]) == 0
    assert "run `roofline measure`" in capsys.readouterr().out


BAD_CALLS = [
    (["analyze", "resnet51"], "did you mean 'resnet"),
    (["analyze", "torchvision:resnet5O"], "did you mean 'resnet50'"),
    (["analyze", "nowhere.at_all:Model"], "package 'nowhere' is not installed"),
    (["analyze", "missing.py:Model"], "missing.py: no such file"),
    (["analyze", "missing.py"], "missing.py"),
    (["analyze", "BLOCKS:Raising", "--input", "1x4"], "KeyError"),
    (
        ["analyze", "BLOCKS:number", "--input", "1x4"],
        "expected a torch.nn.Module, the factory returned int",
    ),
    (["analyze", "BLOCKS:Standart"], "did you mean 'Standard'"),
    (["analyze", "BLOCKS:Standard"], "use --input, one shape"),
    (["analyze", "BLOCKS:Standard", "--input", "1x3x8x8"], "in 0 (Conv2d)"),
    (["analyze", "resnet18", "--input", "1x4x64x64"], "in conv1 (Conv2d)"),
    (["analyze", "resnet18", "--input", "1,3,64,64"], "write 1x3x224x224"),
    (["analyze", "resnet18", "--input", "1x0x64x64"], "every size must be at least 1"),
    (["analyze", "resnet18", "--input", "1x3x64x64:float33"], "did you mean 'float32'"),
    (["analyze", "resnet18", "--threads", "0"], "--threads 0"),
    (["analyze", "resnet18", "--threads", "17"], "choose 1 to 16"),
    (["analyze", "resnet18", "--threads", "x"], "--threads"),
    (["analyze", "resnet18", "--batch", "-1"], "--batch -1"),
    (["analyze", "resnet18", "--batch", "0"], "--batch 0"),
    (["analyze", "resnet18", "--dtype", "float23"], "did you mean 'float32'"),
    (["analyze", "resnet18", "--dtype", "int4"], "must be a floating type"),
    (["analyze", "resnet18", "--by", "colour"], "--by"),
    (["analyze", "resnet18", "--top", "0"], "--top"),
    (["analyze", "resnet18", "--depth", "2"], "--depth 2 has no effect on rows by operator"),
    (["analyze", "resnet18", "--by", "module", "--depth", "-1"], "--depth"),
    (["analyze", "resnet18", "--min-coverage", "lots"], "--min-coverage lots"),
    (["analyze", "resnet18", "-o", "TMP/a.xlsx"], ".xlsx"),
    (["analyze", "resnet18", "-o", "TMP/a"], "suffix"),
    (["analyze", "resnet18", "-o", "TMP/none/a.json"], "does not exist"),
    (["analyze", "resnet18", "-o", "BLOCKS.json"], "add --force"),
    (["analyze", "resnet18", "-o", "-"], "--format"),
    (["analyze"], "MODEL"),
    (["compare", "resnet18"], "two models or variants"),
    (
        ["compare", "resnet18", "resnet34", "--reference", "resnet19"],
        "resnet19: not a compared model",
    ),
    (["compare", "resnet18", "resnet34", "-o", "TMP/c.xlsx"], ".xlsx"),
    (["hardware", "show", "10980xf"], "did you mean '10980xe"),
    (["hardware", "show", "TMP/none.toml"], "no such file"),
    (["hardware", "show"], "run `roofline measure`"),
    (["analyse", "resnet18"], "did you mean 'analyze'"),
    (["analyze", "resnet18", "--treads", "1"], "--threads"),
    (["show", "TMP/none.json"], "no such file"),
    (["show", "TMP"], "is a folder"),
    (["show", ""], "the file name is empty"),
    (["show", "TMP/" + "a" * 300], "File name too long"),
    (["show", "TMP/pipe.json"], "is not a regular file"),
    (["show", "/dev/zero"], "is not a regular file"),
    (["hardware", "show", "TMP/pipe.toml"], "is not a regular file"),
    (["hardware", "show", "TMP/loop.toml"], "symbolic links"),
    (["hardware", "show", "TMP/folder.toml"], "is a folder"),
    (["analyze", "resnet18", "--hardware", "a" * 300], "File name too long"),
    (["analyze", "TMP/" + "a" * 300 + ".py:X"], "a" * 300),
    (["analyze", "resnet18", "-o", ""], "the file name is empty"),
    (["analyze", "resnet18", "-o", "TMP/" + "a" * 300 + ".json"], "File name too long"),
    (["analyze", "resnet18", "-o", "TMP/loop.json"], "cannot be written"),
    (["analyze", "resnet18", "-o", "TMP/pipe.json", "--force"], "is not a regular file"),
    (["analyze", "resnet18", "--input", "9" * 5000], "fewer than 2^60"),
    (["analyze", "resnet18", "--input", f"{2**31}x3x{2**31}x1"], "fewer than 2^60"),
    (["analyze", "no\nsuch\x1b[31mmodel"], "no\\nsuch\\x1b[31mmodel"),
    (["analyze", "resnet18", "-o", "TMP/a\nb/c.json"], "a\\nb/c.json: the folder"),
    (["measure", "-o", ""], "the file name is empty"),
    (["measure", "-o", "TMP/host.xlsx"], ".toml"),
    (["measure", "--threads", "0"], "--threads 0"),
    (["measure", "--threads", "100000"], "--threads 100000"),
]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    BAD_CALLS,
    ids=[" ".join(call)[:60].encode("unicode_escape").decode() for call, _ in BAD_CALLS],
)
def test_bad_input_gets_one_line_with_the_fix(
    arguments: list[str],
    expected: str,
    blocks: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    existing = blocks.parent / "blocks.py.json"
    existing.write_text("precious")
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("loop.json", "loop.toml"):
        (tmp_path / name).symlink_to(name)
    (tmp_path / "folder.toml").mkdir()
    places = {"BLOCKS": str(blocks), "TMP": str(tmp_path)}
    for name, place in places.items():
        arguments = [each.replace(name, place) for each in arguments]
    if arguments[0] in ("analyze", "compare", "analyse") and "--hardware" not in arguments:
        arguments = [*arguments, "--hardware", "10980xe"]
    assert expected in error_of(capsys, *arguments)
    assert existing.read_text() == "precious"


def test_damaged_json_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "a.json"
    assert run(["analyze", "squeezenet1_1", "--hardware", "10980xe", "-o", str(saved)]) == 0
    capsys.readouterr()
    whole = saved.read_text()

    def refused(text: str) -> str:
        saved.write_text(text)
        return error_of(capsys, "show", str(saved))

    assert "not valid JSON at line" in refused(whole[: len(whole) // 2])
    assert "it has no 'kind'" in refused('{"a": 1}')
    assert "an older version" in refused(
        whole.replace('"schema_version": 1', '"schema_version": 5', 1)
    )
    assert "did you mean 'operators'" in refused(whole.replace('"operators"', '"operatros"', 1))
    assert "missing key 'totals'" in refused(
        json.dumps({k: v for k, v in json.loads(whole).items() if k != "totals"})
    )
    changed = json.loads(whole)
    changed["operators"][0]["flop"] += 1
    assert "add up to" in refused(json.dumps(changed))
    saved.write_bytes(b"\xff\x00\x00")
    assert "not a text file" in error_of(capsys, "show", str(saved))


GOOD = """
schema_version = 1
name = "mine"
device = "cpu"
threads = 2
[[memory]]
name = "DRAM"
scope = "shared"
[[memory.bandwidth]]
kernel = "read"
threads = 2
peak_bytes_per_s = 1e10
sustained_bytes_per_s = 1e10
[memory.bandwidth.provenance]
source = "measured"
reference = "made up for a test"
date = "2026-01-01"
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("peak_bytes_per_s", "peek_bytes_per_s", "unknown key 'peek_bytes_per_s'; did you mean"),
        ('name = "mine"\n', "", "missing key 'name'"),
        ("= 1e10", '= "1e10"', "expected a number, got '1e10'"),
        ("= 1e10", "= -1e10", "must be greater than 0"),
        ("= 1e10", "= 0", "must be greater than 0"),
        ("= 1e10", "= inf", "expected a finite number"),
        ("= 1e10", "= true", "expected a number, got True"),
        ("schema_version = 1", "schema_version = 9", "written by an older version"),
        ("schema_version = 1", "", "no 'schema_version'"),
        ('device = "cpu"', 'device = "abacus"', "expected one of 'cpu', 'cuda'"),
        ("threads = 2\n[[", "threads = 1\n[[", "the machine has 1"),
        ("[[memory]]", "[[memory", "not valid TOML"),
        ("= 1e10", f"= {'9' * 400}", "expected a number below 2^256"),
        ("= 1e10", f"= {'9' * 5000}", "a number with too many digits"),
        ("= 1e10", f"= 0x{'f' * 5000}", "expected a number below 2^256"),
        ("threads = 2", f"threads = {'9' * 400}", "expected a number below 2^256"),
        ('name = "mine"', '"na\\nme" = "mine"', "unknown key 'na\\nme'"),
    ],
)
def test_a_damaged_profile_is_refused_with_its_place(
    before: str, after: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert run(["hardware", "show", str(path)]) == 0
    capsys.readouterr()
    path.write_text(GOOD.replace(before, after, 1))
    said = error_of(capsys, "analyze", "resnet18", "--hardware", str(path))
    assert str(path) in said
    assert expected in said


def test_files_are_overwritten_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("precious")
    base = ["analyze", "squeezenet1_1", "--hardware", "10980xe", "-o", str(path)]
    assert run(base) == 2
    assert path.read_text() == "precious"
    assert run([*base, "--force"]) == 0
    assert path.read_text().startswith("index,")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")
def test_a_folder_in_which_no_file_can_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    """Not even root makes a file in /proc: found before any work is done."""
    said = error_of(capsys, "analyze", "resnet18", "--hardware", "10980xe", "-o", "/proc/a.json")
    assert "cannot be written" in said


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that may neither be read nor written, not even by the user who runs the tests."""
    folder, user = tmp_path / "locked", os.geteuid()
    folder.mkdir()
    for name in ("a.json", "a.toml", "a.py"):
        (folder / name).write_text("precious")
    # What is imported on the way must lie in memory, and the machines where all can read them:
    # another user may not read this checkout.
    assert run(["analyze", "squeezenet1_1", "--hardware", "10980xe"]) == 0
    for module in pkgutil.walk_packages(roofline.__path__, "roofline."):
        if module.name != "roofline.__main__":
            importlib.import_module(module.name)
    machines = Path(tempfile.mkdtemp())
    machines.chmod(0o755)
    shutil.copy(catalog.find_hardware("10980xe"), machines)
    monkeypatch.setattr(catalog, "bundled_folder", lambda: machines)
    folder.chmod(0)
    monkeypatch.setenv("XDG_DATA_HOME", "/none")
    try:
        if user == 0:
            os.seteuid(65534)
        yield folder
    finally:
        os.seteuid(user)
        folder.chmod(0o700)
        shutil.rmtree(machines)


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "LOCKED/a.json"],
        ["analyze", "LOCKED/a.py:X", "--hardware", "10980xe"],
        ["analyze", "resnet18", "--hardware", "LOCKED/a.toml"],
        ["analyze", "resnet18", "--hardware", "10980xe", "-o", "LOCKED/a.json"],
        ["analyze", "resnet18", "--hardware", "10980xe", "-o", "LOCKED/b.json"],
        ["compare", "LOCKED/a.json", "LOCKED/a.json"],
    ],
    ids=" ".join,
)
def test_a_folder_that_is_locked(
    arguments: list[str], locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    said = error_of(capsys, *(each.replace("LOCKED", str(locked)) for each in arguments))
    assert str(locked) in said
    assert "Permission denied" in said


def test_unknown_operators_lower_the_coverage_and_the_exit_code(
    blocks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["analyze", f"{blocks}:Odd", "--input", "8x8", "--hardware", "10980xe"]
    assert run(base) == 0
    said = capsys.readouterr().out
    assert "roofline_tests.mystery" in said
    assert "≥" in said
    assert run([*base, "--min-coverage", "95%"]) == 3


TALKING = """
import torch

print("import")

class Print(torch.nn.Module):
    def __init__(self):
        super().__init__()
        print("build")

    def forward(self, x):
        print("forward")
        return x + 1
"""


def test_what_a_model_prints_is_not_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talking.py"
    path.write_text(TALKING)
    base = ["--input", "4x4", "--hardware", "10980xe"]
    assert run(["analyze", f"{path}:Print", *base, "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["model"]
    assert captured.err.split() == ["import", "build", "forward"]
    assert run(["compare", f"{path}:Print", f"{path}:Print", *base]) == 0
    captured = capsys.readouterr()
    assert "forward" not in captured.out
    assert captured.err.split().count("forward") == 2


def roofline_command() -> list[str]:
    return [sys.executable, "-m", "roofline"]


def test_a_reader_that_has_had_enough_is_no_error(tmp_path: Path) -> None:
    saved = str(tmp_path / "a.json")
    assert run(["analyze", "resnet18", "--hardware", "10980xe", "-o", saved]) == 0
    command = [*roofline_command(), "show", saved, "--top", "500"]
    pipe = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert pipe.stdout is not None
    assert pipe.stderr is not None
    pipe.stdout.read(10)
    pipe.stdout.close()
    said = pipe.stderr.read().decode()
    pipe.stderr.close()
    assert pipe.wait(60) == 0
    assert said == ""


@pytest.mark.hardware
def test_an_interrupted_measurement_keeps_the_old_profile(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    probe = "from roofline.machine.catalog import host_file; print(host_file())"
    where = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True
    )
    old = Path(where.stdout.strip())
    old.parent.mkdir(parents=True)
    old.write_text(GOOD)
    measuring = subprocess.Popen(
        [*roofline_command(), "measure"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert measuring.stderr is not None
    assert "Measuring" in measuring.stderr.readline()
    measuring.send_signal(signal.SIGINT)
    out, err = measuring.communicate(timeout=30)
    assert measuring.returncode == 130, err
    assert out == ""
    assert "interrupted" in err
    assert "Traceback" not in err
    assert old.read_text() == GOOD
    assert [each.name for each in old.parent.iterdir()] == [old.name]


def test_colour_is_for_terminals() -> None:
    command = [*roofline_command(), "hardware", "list"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"\x1b[" not in done.stdout


def test_the_script_is_on_the_path() -> None:
    assert shutil.which("roofline", path=str(Path(sys.executable).parent)) is not None


@pytest.mark.parametrize(
    "error",
    [MemoryError(), ImportError("libtorch_cpu.so: failed to map segment from shared object")],
    ids=["allocation", "library"],
)
def test_too_little_memory_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("roofline.cli.main.cli.main", fail)
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
    assert run(["analyze", "x"]) == 1
    assert capsys.readouterr().err == (
        "roofline: error: out of memory: use a smaller batch, or stop other processes\n"
    )
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**30, resource.RLIM_INFINITY))
    assert run(["analyze", "x"]) == 1
    said = capsys.readouterr().err
    assert "limited to 1048576 KiB (ulimit -v); raise the limit" in said


def test_other_failed_imports_are_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ImportError("No module named x")

    monkeypatch.setattr("roofline.cli.main.cli.main", fail)
    with pytest.raises(ImportError):
        run(["analyze", "x"])


@pytest.mark.parametrize("name", ["advise", "calibrate", "optimize", "quantize", "scale"])
def test_python_takes_the_options_of_the_command_with_their_defaults(name: str):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    keywords = inspect.signature(getattr(roofline, name)).parameters
    # Models with weights are `StoredModel` in Python, reports and files methods of the result.
    apart = {"weights", "allow_pickle", "list_rules", "top", "verbose", "format", "outputs"}
    # Learning from files is `learn_times`.
    apart |= {"source", "hardware"} if name == "calibrate" else set()
    options = {each.name: each for each in command.params if each.name not in apart}
    assert options.keys() <= keywords.keys()
    given = {key: each.to_info_dict()["default"] for key, each in options.items()}
    differing = {
        key: default
        for key, default in given.items()
        if default not in (None, (), keywords[key].default)
    }
    assert not differing
