"""``roofline measure`` with a measurement that takes no time."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from roofline.cli.machine import LatestRate
from roofline.cli.main import run
from roofline.core import files
from roofline.errors import InputError
from roofline.machine.catalog import host_file, load_hardware, save_measured_profile
from roofline.machine.hardware import (
    Duration,
    HardwareProfile,
    Overhead,
    profile_to_toml,
    read_profile,
)
from roofline.machine.measuring import benchmark
from roofline.machine.measuring.estimation import Burst, Finding, Series, samples_file
from roofline.machine.system.exclusive import exclusive_measurement
from tests.builders import SOURCE, ceiling, level, profile
from tests.cli.stand_ins import error_of

SERIES = (
    Series(
        label="fma float32 avx2, 1 thread",
        quantity="flop",
        work=1e6,
        bursts=(Burst(wall_s=1e-3, cpu_s=1e-3, busy=1.0),),
    ),
)


def machine(flop_per_s: float) -> HardwareProfile:
    """A measured machine."""
    dram = level("DRAM", None, {"read": {1: 1e10}})
    return replace(profile([ceiling(flop_per_s)], [dram]), name="fake", effort="default")


@dataclass
class Fake:
    """Stands for `benchmark.measure_hardware`: remembers what it was asked for."""

    found: HardwareProfile = field(default_factory=lambda: machine(2e11))
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    error: BaseException | None = None

    def __call__(self, **options: Any) -> tuple[HardwareProfile, tuple[Series, ...]]:
        progress, found = options.pop("progress"), options.pop("found")
        self.asked.append(options)
        progress(0.0, "compiling fma float32 avx2")
        found(Finding(what="float32 avx2 fma", threads=1, quantity="flop", per_s=1e11))
        found(Finding(what="DRAM read", threads=1, quantity="byte", per_s=1e10))
        progress(0.5, "fma float32 avx2, 1 thread")
        if self.error is not None:
            raise self.error
        progress(1.0, "done")
        return self.found, SERIES


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    # Whoever measures this machine for real meanwhile has another lock.
    locks = tmp_path / "locks"
    locks.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(locks))
    stands = Fake()
    monkeypatch.setattr(benchmark, "measure_hardware", stands)
    return stands


@pytest.fixture
def old(fake: Fake) -> HardwareProfile:
    """The profile of an earlier measurement, which is kept with its samples."""
    before = machine(1e11)
    save_measured_profile(before, SERIES)
    return before


def kept() -> dict[str, bytes]:
    """All that lies in the user's folder."""
    folder = host_file().parent
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


# --- what is measured ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], {"effort": "default", "threads": None}),
        (["--quick"], {"effort": "quick", "threads": None}),
        (["--thorough"], {"effort": "thorough", "threads": None}),
        (["--threads", "1"], {"effort": "default", "threads": 1}),
        (["--quick", "--threads", "2", "--device", "cpu"], {"effort": "quick", "threads": 2}),
    ],
)
def test_options_reach_the_measurement(
    fake: Fake, arguments: list[str], asked: dict[str, Any]
) -> None:
    assert run(["measure", *arguments]) == 0
    assert fake.asked == [asked]


def test_the_result_is_printed_kept_and_said_to_be(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["measure"]) == 0
    captured = capsys.readouterr()
    assert "200 GFLOP/s" in captured.out
    assert captured.err.splitlines() == ["Measuring this machine …", f"Wrote {host_file()}"]
    assert set(kept()) == {"host.toml", "host.samples.json"}
    assert load_hardware("host") == fake.found
    assert json.loads(kept()["host.samples.json"])["profile"] == "fake"


def test_progress_goes_to_stderr_and_no_live_display_into_a_pipe(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["measure"]) == 0
    captured = capsys.readouterr()
    assert "Measuring" not in captured.out
    assert "compiling" not in captured.out + captured.err
    assert "\x1b" not in captured.out + captured.err


def test_progress_names_the_latest_rate() -> None:
    shown: list[str] = []
    latest = LatestRate(lambda _fraction, text: shown.append(text))
    latest.report(0.1, "sizing")
    for threads, rate in ((1, 1e11), (2, 2e11)):
        what = "float32 avx2 fma"
        latest.found(Finding(what=what, threads=threads, quantity="flop", per_s=rate))
        latest.report(0.2, "next")
    latest.found(Finding(what="L1 copy", threads=1, quantity="byte", per_s=4e11))
    latest.report(0.5, "L1 copy avx, 1 thread")
    assert shown == [
        "sizing",
        "next (float32 avx2 fma: 100 GFLOP/s on 1 thread)",
        "next (float32 avx2 fma: 200 GFLOP/s on 2 threads)",
        "L1 copy avx, 1 thread (L1 copy: 400 GB/s on 1 thread)",
    ]


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".toml", ".json", ".csv", ".md", ".html", ".svg", ".png"])
def test_every_kind_of_file(
    fake: Fake, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"mine{suffix}"
    assert run(["measure", "-o", str(path)]) == 0
    assert path.stat().st_size > 0
    written = [host_file(), path]
    if suffix == ".toml":
        assert read_profile(path) == fake.found
        samples = json.loads(samples_file(path).read_text(encoding="utf-8"))
        assert samples["series"][0]["wall_ns"] == [1_000_000]
        written.append(samples_file(path))
    said = capsys.readouterr().err.splitlines()
    assert said[-len(written) :] == [f"Wrote {each}" for each in written]


def test_a_file_that_exists_is_refused_before_anything_is_measured(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("precious", encoding="utf-8")
    assert "exists; add --force" in error_of(capsys, "measure", "-o", str(path))
    assert fake.asked == []
    assert path.read_text(encoding="utf-8") == "precious"
    assert run(["measure", "-o", str(path), "--force"]) == 0
    assert read_profile(path) == fake.found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-o", "TMP/mine.txt"], ".toml"),
        (["-o", "TMP"], "TMP"),
        (["-o", "TMP/none/mine.toml"], "does not exist; create it first"),
        (["--threads", "two"], "'two' is not a valid integer"),
        (["--device", "tpu"], "'tpu' is not one of 'cpu', 'cuda'"),
        (["--device", "cuda", "--threads", "2"], "--threads has no effect on a cuda device"),
        (["--compare", "10980x"], "unknown hardware '10980x'; did you mean '10980xe'?"),
        (["--compare", "host"], "no profile of this machine"),
        (["--compare", "TMP/none.toml"], "no such file"),
        (["--explain", "-o", "TMP/mine.md"], "mine.md: has no effect with --explain"),
        (["--explain", "--quick"], "--quick: has no effect with --explain"),
        (["--explain", "--device", "cuda"], "--device: has no effect with --explain"),
        (["--explain", "--threads", "0"], "--threads: has no effect with --explain"),
        (["--compare", "h100"], "--compare h100: is a cuda device, the measured one is cpu"),
        (["--quick", "--thorough"], "--quick --thorough: exclude each other"),
        (["--compare"], "requires an argument"),
        (["resnet50"], "unexpected extra argument"),
    ],
)
def test_bad_input_gets_one_line_before_anything_is_measured(
    fake: Fake,
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [each.replace("TMP", str(tmp_path)) for each in arguments]
    assert expected.replace("TMP", str(tmp_path)) in error_of(capsys, "measure", *given)
    assert fake.asked == []
    assert kept() == {}


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(
    fake: Fake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Permissions do not stop root, but a file where the folder should be does."""
    (tmp_path / "data").write_text("a file", encoding="utf-8")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "data"))
    said = error_of(capsys, "measure")
    assert str(tmp_path / "data") in said
    assert "cannot create folder" in said
    assert fake.asked == []


def test_a_device_that_is_not_there_gets_one_line(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert run(["measure", "--device", "cuda"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.splitlines()[-1].startswith("roofline: error: --device cuda: ")
    assert fake.asked == []
    assert kept() == {}


# --- compare -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("old")
def test_compare_reads_the_old_profile_before_it_is_overwritten(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["measure", "--compare", "host"]) == 0
    captured = capsys.readouterr()
    _, _, change = captured.out.partition("200 GFLOP/s")
    assert "100 GFLOP/s" in change
    assert load_hardware("host") == fake.found


def test_compare_takes_a_file(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "before.toml"
    path.write_text(profile_to_toml(machine(1e11)), encoding="utf-8")
    assert run(["measure", "--compare", str(path)]) == 0
    assert "100 GFLOP/s" in capsys.readouterr().out
    assert read_profile(path) == machine(1e11)


def test_a_damaged_old_profile_is_said_before_anything_is_measured(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    host_file().parent.mkdir(parents=True)
    host_file().write_text("name = ", encoding="utf-8")
    assert str(host_file()) in error_of(capsys, "measure", "--compare", "host")
    assert fake.asked == []
    # Without --compare the damaged one is replaced.
    assert run(["measure"]) == 0
    assert load_hardware("host") == fake.found


# --- explain -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_before", ["nothing", "a profile", "a damaged profile"])
def test_explain_measures_nothing(
    fake: Fake, kept_before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kept_before == "a profile":
        save_measured_profile(machine(1e11), SERIES)
    elif kept_before == "a damaged profile":
        host_file().parent.mkdir(parents=True)
        host_file().write_text("name = ", encoding="utf-8")
    before = kept()
    assert run(["measure", "--explain"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "thread" in captured.out
    assert fake.asked == []
    assert kept() == before


def test_explain_imports_no_torch() -> None:
    code = (
        "import sys; from roofline.cli.main import run; code = run(['measure', '--explain']);"
        "print('loaded', [m for m in ('torch', 'pandas', 'matplotlib') if m in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded [] 0", done.stderr


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.usefixtures("old")
def test_an_interrupt_leaves_the_old_profile_byte_for_byte(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept()
    fake.error = KeyboardInterrupt()
    assert run(["measure"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.split("\n")[0] == "Measuring this machine …"
    assert captured.err.endswith("roofline: interrupted\n")
    assert kept() == before
    # And the next one need not wait for a lock that was left behind.
    fake.error = None
    assert run(["measure"]) == 0
    assert "waiting" not in capsys.readouterr().err


@pytest.mark.usefixtures("old")
def test_a_full_disk_leaves_the_old_profile(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    assert run(["measure"]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("roofline: error: ")
    assert "No space left on device" in captured.err
    assert "Traceback" not in captured.err
    assert kept() == before


@pytest.mark.usefixtures("old")
def test_a_disk_that_is_full_after_the_samples_leaves_the_old_profile(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept()
    fsync, calls = os.fsync, 0

    def full(file: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(files.os, "fsync", full)
    assert run(["measure"]) == 2
    assert kept()["host.toml"] == before["host.toml"]
    assert set(kept()) == set(before), "no temporary files"


# --- two at once ---------------------------------------------------------------------------------

SECOND = """
import sys
from tests.cli.test_measure_command import Fake
from roofline.machine.measuring import benchmark
benchmark.measure_hardware = Fake()
from roofline.cli.main import run
sys.exit(run(["measure", "--quick"]))
"""


@contextlib.contextmanager
def second(folder: Path) -> Generator[subprocess.Popen[str]]:
    """Another process that measures; it waits for as long as the context lasts."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    with exclusive_measurement(pytest.fail, folder=folder):
        process = subprocess.Popen(
            [sys.executable, "-c", SECOND],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith(
            f"roofline: waiting for another roofline measurement (process {os.getpid()}, since "
        )
        assert said.endswith(")\n")
        assert not host_file().exists()
        try:
            yield process
        except BaseException:
            process.kill()
            process.communicate()
            raise


def test_an_interrupt_ends_the_waiting(tmp_path: Path) -> None:
    with second(tmp_path) as waiting:
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (130, "")
    assert err.endswith("roofline: interrupted\n")
    assert kept() == {}


def test_the_second_of_two_goes_on_when_the_first_is_done(tmp_path: Path) -> None:
    with second(tmp_path) as waiting:
        pass
    out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 0, err
    assert "200 GFLOP/s" in out
    assert err.splitlines()[-1] == f"Wrote {host_file()}"
    assert load_hardware("host") == machine(2e11)


def test_samples_of_another_file_are_not_overwritten(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "mine.samples.json"
    precious.write_text("precious", encoding="utf-8")
    said = error_of(capsys, "measure", "-o", str(tmp_path / "mine.toml"))
    assert "mine.samples.json: exists; add --force" in said
    assert precious.read_text(encoding="utf-8") == "precious"
    assert not (tmp_path / "mine.toml").exists()


def test_a_full_disk_loses_neither_the_table_nor_the_files(
    fake: Fake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> Path:
        raise InputError("host.toml: cannot be written: No space left on device")

    monkeypatch.setattr("roofline.machine.catalog.save_measured_profile", full)
    assert run(["measure", "-o", str(tmp_path / "mine.toml")]) == 2
    captured = capsys.readouterr()
    assert "Compute ceilings" in captured.out
    assert "cannot save the profile: host.toml: cannot be written: No space left" in captured.err
    assert (tmp_path / "mine.toml").exists()


def test_times_of_nothing_are_not_compared(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zero = Duration(fast_s=0.0, median_s=0.0, provenance=SOURCE)
    before = machine(1e11)
    overhead = (Overhead(name="dispatch of add", threads=1, time=zero),)
    path = tmp_path / "zero.toml"
    path.write_text(profile_to_toml(replace(before, overheads=overhead)), encoding="utf-8")
    fake.found = replace(fake.found, overheads=overhead)
    assert run(["measure", "--compare", str(path)]) == 0
    assert "1 of 2 figures changed" in capsys.readouterr().out
