"""stdout and stderr that cannot take all that is written to them, and user files that cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from roofline.cli.main import run
from roofline.cli.streams import put, tell

BASE = ["analyze", "squeezenet1_1", "--hardware", "10980xe"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved analysis."""
    path = tmp_path_factory.mktemp("saved") / "a.json"
    assert run([*BASE, "-o", str(path)]) == 0
    return path


def shell(
    arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """``roofline`` as a shell starts it, redirections and all."""
    command = f"exec {sys.executable} -m roofline {arguments}"
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, env={**os.environ, **(environment or {})}
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["ascii", "C", "latin-1"],
)
@pytest.mark.parametrize(
    "arguments",
    [
        "show SAVED",
        "show SAVED --by type",
        "compare SAVED SAVED",
        "hardware show 10980xe",
        "hardware list",
        "compare --help",
        "analyze --help",
        "show naïve.json",
    ],
)
def test_characters_that_an_encoding_lacks_are_spelled_with_those_it_has(
    arguments: str, environment: dict[str, str], saved: Path
) -> None:
    done = shell(arguments.replace("SAVED", str(saved)), environment)
    said = done.stdout + done.stderr
    assert b"Traceback" not in said
    assert done.returncode == (2 if "naïve" in arguments else 0)
    assert "latin-1" in environment.values() or said.isascii()
    if arguments.startswith("show SAVED"):
        spelled = b"%s" % ("·".encode("latin-1") if not said.isascii() else b"|")
        assert b" " + spelled + b" 1x3x224x224 float32 " in said


def test_every_help_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    """click writes UTF-8 wherever an encoding is ASCII."""
    for command in ("", "analyze", "compare", "hardware", "measure", "show"):
        assert run([*command.split(), "--help"]) == 0
        assert capsys.readouterr().out.isascii()


def test_files_on_stdout_are_what_they_are_in_a_file(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.md"
    assert run(["show", str(saved), "-o", str(target)]) == 0
    done = shell(f"show {saved} --format md", {"PYTHONIOENCODING": "ascii"})
    assert done.stdout == target.read_bytes()
    assert not target.read_bytes().isascii()


@pytest.mark.parametrize("arguments", ["show SAVED", "show SAVED --format csv", "-h", "--version"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_read_by_nobody(
    arguments: str, closed: str, saved: Path
) -> None:
    done = shell(f"{arguments.replace('SAVED', str(saved))} {closed}")
    assert done.returncode == 0
    assert done.stderr == b""
    assert bool(done.stdout) == (closed == "2>&-")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_files_are_written_whole_whatever_is_closed(
    closed: str, saved: Path, tmp_path: Path
) -> None:
    """A file that is opened gets the number of a stream that is closed, and what others say."""
    (tmp_path / "talk.py").write_text(
        "import os, torch\nclass M(torch.nn.Module):\n"
        "    def forward(self, x):\n        os.system('echo talk; echo talk >&2')\n"
        "        print('talk')\n        return x + 1\n"
    )
    for model, name in (("squeezenet1_1", "a"), (f"{tmp_path}/talk.py:M --input 4", "b")):
        target = tmp_path / f"{name}.json"
        done = shell(f"analyze {model} --hardware 10980xe -o {target} {closed}")
        assert done.returncode == 0
        assert json.loads(target.read_text())["operators"]
    assert (tmp_path / "a.json").read_bytes() == saved.read_bytes()


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")


@needs_full
@pytest.mark.parametrize("arguments", ["show SAVED", "show SAVED --format json", "--help", ""])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_stdout_is_one_line(arguments: str, unbuffered: str, saved: Path) -> None:
    asked = f"{arguments.replace('SAVED', str(saved))} > /dev/full"
    done = shell(asked, {"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 1
    assert done.stderr == (b"roofline: error: stdout cannot be written: No space left on device\n")


@needs_full
def test_nobody_needs_to_hear_the_talk(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    done = shell(f"{' '.join(BASE)} -o {target} 2> /dev/full")
    assert done.returncode == 0
    assert b"squeezenet1_1" in done.stdout
    assert target.exists()


def test_files_are_written_though_the_reader_of_the_table_left(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    done = shell(f"{' '.join(BASE)} -o {target} | true")
    assert done.stderr == f"Wrote {target}\n".encode()
    assert target.exists()


@pytest.mark.parametrize("columns", ["0", "-1", "", "x"])
def test_a_width_that_is_none_is_not_taken(columns: str, saved: Path) -> None:
    for arguments in (f"show {saved}", "hardware list", "--help"):
        plain = shell(arguments, {"COLUMNS": "80"})
        assert shell(arguments, {"COLUMNS": columns}).stdout == plain.stdout != b""


def test_streams_are_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = (sys.stdout, sys.stderr, sys.stdout.errors)
    assert run(["--version"]) == 0
    assert (sys.stdout, sys.stderr, sys.stdout.errors) == before
    assert capsys.readouterr().out.startswith("roofline ")


def test_without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert run(["--version"]) == 0
    assert run(["nothing"]) == 2
    assert sys.stdout is None


def test_what_is_told_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell("a\nb\x1b[31m\u2028c")
    assert capsys.readouterr().err == "a\\nb\\x1b[31m\\u2028c\n"


def test_bytes_and_text_are_put_alike(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    put("µ\udcff")
    put("µ".encode())
    assert capsysbinary.readouterr().out == "µ\\udcffµ".encode()
