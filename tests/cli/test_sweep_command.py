"""roofline compare A B --sweep: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.cli.main import run

STANDARD = "conv2d({channels},{channels},3,padding=1)@{size}x{size}"
SEPARABLE = (
    "conv2d({channels},{channels},3,padding=1,groups={channels})"
    "+conv2d({channels},{channels},1)@{size}x{size}"
)


def sweep(spec: str, *more: str, designs: tuple[str, ...] = (STANDARD, SEPARABLE)) -> int:
    return run(["compare", *designs, "--hardware", "v100", "--sweep", spec, *more])


def test_a_table_and_files_of_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [tmp_path / f"x{each}" for each in (".json", ".csv", ".md", ".html", ".png", ".svg")]
    assert sweep("channels=8:32:x2,size=7|14", *(f"-o{each}" for each in names)) == 0
    out, err = capsys.readouterr()
    assert out.startswith("A vs B over channels 8 to 32, size 7 to 14: ")
    assert "size down, channels across" in out and "predicted time" in out
    assert err.splitlines()[-1] == f"Wrote {names[-1]}"
    assert len(json.loads(names[0].read_text())["rows"]) == 12
    assert len(names[1].read_text().splitlines()) == 13
    assert names[4].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in names[3].read_text() and names[5].read_text().lstrip().startswith("<?xml")


def test_machines_by_their_balance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    designs = tuple(
        each.replace("{channels}", "64").replace("{size}", "28") for each in (STANDARD, SEPARABLE)
    )
    file = tmp_path / "ridge.html"
    assert sweep("balance=1:256:x2", "-o", str(file), designs=designs) == 0
    out, _ = capsys.readouterr()
    assert "Known machines by balance" in out and "h100" in out
    assert "hypothetical machines: " in out
    assert "<svg" in file.read_text()


def test_the_reference_is_one_of_the_designs(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("channels=8,size=7", "--reference", SEPARABLE) == 0
    assert f"B {SEPARABLE} (reference)" in " ".join(capsys.readouterr().out.split())
    assert sweep("channels=8,size=7", "--reference", "conv") == 2
    assert f"; there are {STANDARD}, {SEPARABLE}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spec", "more", "said"),
    [
        ("channels=8:4:x2,size=7", (), "axis 'channels': low exceeds high"),
        ("chanels=8,size=7", (), "did you mean 'channels'?"),
        ("channels=8,size=7", ("-o", "x.pdf"), "unknown suffix '.pdf'"),
        ("channels=8,size=7", ("-o", "x.trace.json"), "trace"),
        ("channels=8,size=7", ("--executor", "gpu"), "must be local, processes or dask:"),
        ("channels=8,size=7", ("--batch", "2", "--batch", "4"), "--batch"),
        ("balance=1:4:x2,channels=8,size=7", ("--jobs", "2"), "--jobs has no effect"),
        ("balance=1:4:x2,channels=8,size=7", ("--cold",), "--cold has no effect"),
    ],
)
def test_what_is_refused(
    spec: str, more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(spec, *more) == 2
    out, err = capsys.readouterr()
    assert said in err and not out and "Traceback" not in err


def test_a_million_points_need_a_yes(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("channels=1:1000:1,size=1:1000:1") == 2
    err = capsys.readouterr().err
    assert "--sweep has 1,000,000 points of 2 designs, 2,000,000 captures, about" in err
    assert "add --yes" in err


def test_a_file_that_exists_is_found_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("kept")
    assert sweep("channels=8,size=7", "-o", str(file)) == 2
    assert file.read_text() == "kept" and "--force" in capsys.readouterr().err
    assert sweep("channels=8,size=7", "-o", str(file), "--force") == 0
    assert file.read_text().startswith("channels,size,design,flop")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no groups of processes")
def test_an_interrupt_ends_the_workers_and_says_so() -> None:
    command = [sys.executable, "-m", "roofline", "compare", STANDARD, SEPARABLE]
    options = ["--hardware", "v100", "--sweep", "channels=8:4000:+1,size=7", "--yes"]
    options += ["--executor", "processes", "--jobs", "1"]
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr and process.stdout
        # Its first line is said when the first work is done.
        first = process.stderr.readline()
        assert first.startswith("Sweeping")
        os.killpg(process.pid, signal.SIGINT)
        err, out = process.stderr.read(), process.stdout.read()
    assert process.returncode == 130
    # An interrupt within the writing of that line has it written again.
    assert err.removeprefix(first).split() == ["roofline:", "interrupted"] and not out
