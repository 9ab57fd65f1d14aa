"""stdout and stderr that cannot take all that is written to them, and user files that cannot be."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from roofline.cli import streams
from roofline.cli.main import run
from roofline.cli.streams import print_stderr, write_stdout
from tests.forked_programs import ROOFLINE, forked

BASE = ["analyze", "conv2d(3,8,3)@1x3x224x224", "--hardware", "10980xe"]


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


ENVIRONMENTS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
}
ASKED = (
    "show SAVED",
    "show SAVED --by type",
    "compare SAVED SAVED",
    "hardware show 10980xe",
    "hardware list",
    "compare --help",
    "analyze --help",
    "show naïve.json",
)
# The streams of a process have one encoding, whatever is written to them one after the other.
ONE_AFTER_THE_OTHER = """
import os, sys
from roofline.cli.main import run
for asked in sys.argv[1:]:
    code = run(asked.split())
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(1, f"\\0{code}\\0".encode())
"""


@pytest.fixture(scope="module")
def outcomes(saved: Path) -> Callable[[str], dict[str, tuple[int, bytes]]]:
    """The exit codes of commands, and what they say, where streams have an encoding."""

    @functools.cache
    def outcomes_in(encoding: str) -> dict[str, tuple[int, bytes]]:
        commands = [each.replace("SAVED", str(saved)) for each in ASKED]
        done = subprocess.run(
            [sys.executable, "-c", ONE_AFTER_THE_OTHER, *commands],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENTS[encoding]},
        )
        *parts, rest = done.stdout.split(b"\0")
        assert (done.returncode, rest) == (0, b""), rest
        codes = [int(each) for each in parts[1::2]]
        return dict(zip(ASKED, zip(codes, parts[::2], strict=True), strict=True))

    return outcomes_in


@pytest.mark.parametrize("encoding", ENVIRONMENTS)
@pytest.mark.parametrize("arguments", ASKED)
def test_characters_that_an_encoding_lacks_are_spelled_with_those_it_has(
    arguments: str, encoding: str, outcomes: Callable[[str], dict[str, tuple[int, bytes]]]
) -> None:
    code, said = outcomes(encoding)[arguments]
    assert b"Traceback" not in said
    assert said
    assert code == (2 if "naïve" in arguments else 0)
    assert encoding == "latin-1" or said.isascii()
    if arguments.startswith("show SAVED"):
        spelled = b"%s" % ("·".encode("latin-1") if not said.isascii() else b"|")
        assert b" " + spelled + b" float32 1x3x224x224 " in said


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


TALKING = """
import os, torch

class Plain(torch.nn.Module):
    def forward(self, x):
        return x + 1

class Talking(Plain):
    def forward(self, x):
        os.system("echo talk; echo talk >&2")
        print("talk")
        return x + 1
"""


@pytest.fixture
def talking(tmp_path: Path) -> Path:
    """A file of two models that do the same."""
    path = tmp_path / "talk.py"
    path.write_text(TALKING)
    return path


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_files_are_written_whole_whatever_is_closed(
    closed: tuple[int, ...], saved: Path, talking: Path, tmp_path: Path
) -> None:
    """A file that is opened gets the number of a stream that is closed, and what others say."""
    for model, name in ((BASE[1:2], "a"), ([f"{talking}:Talking", "--input", "4"], "b")):
        target = tmp_path / f"{name}.json"
        arguments = ["analyze", *model, *BASE[2:], "-o", str(target)]
        done = forked(ROOFLINE, arguments, closed=closed)
        assert done.returncode == 0, done.stderr
        assert json.loads(target.read_text())["operators"]
    assert (tmp_path / "a.json").read_bytes() == saved.read_bytes()


def test_files_are_written_whole_where_a_shell_closes_all(talking: Path, tmp_path: Path) -> None:
    """As above, with torch imported where nothing is open."""
    target = tmp_path / "a.json"
    asked = f"--input 4 --hardware 10980xe -o {target}"
    assert run(f"analyze {talking}:Plain {asked}".split()) == 0
    plain = target.read_text()
    target.unlink()
    done = shell(f"analyze {talking}:Talking {asked} <&- >&- 2>&-")
    assert done.returncode == 0
    assert target.read_text() == plain.replace("Plain", "Talking")


FULL_STDERR = """
import os
os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
"""

UNREAD_STDOUT = """
import os
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 1)
"""

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
    done = forked(FULL_STDERR + ROOFLINE, [*BASE, "-o", str(target)])
    assert done.returncode == 0
    assert BASE[1].encode() in done.stdout
    assert target.exists()


def test_files_are_written_though_the_reader_of_the_table_left(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    done = forked(UNREAD_STDOUT + ROOFLINE, [*BASE, "-o", str(target)])
    assert done.stderr == f"Wrote {target}\n".encode()
    assert target.exists()


@pytest.mark.parametrize("arguments", ["show SAVED", "hardware list", "--help"])
def test_a_width_that_is_none_is_not_taken(arguments: str, saved: Path) -> None:
    asked = arguments.replace("SAVED", str(saved))
    plain = shell(asked, {"COLUMNS": "80"})
    for columns in ("0", "-1", "", "x"):
        assert shell(asked, {"COLUMNS": columns}).stdout == plain.stdout != b""


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
    print_stderr("a\nb\x1b[31m\u2028c")
    assert capsys.readouterr().err == "a\\nb\\x1b[31m\\u2028c\n"


def test_bytes_and_text_are_put_alike(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write_stdout("µ\udcff")
    write_stdout("µ".encode())
    assert capsysbinary.readouterr().out == "µ\\udcffµ".encode()


def test_progress_in_a_file_is_a_line_at_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(streams, "_LINES_APART_S", 0.0)
    with streams.progress_bar("Calibrating") as report:
        report(0.0, "resnet18")
        report(0.25, "resnet50 float32")
        monkeypatch.setattr(streams, "_LINES_APART_S", 1e9)
        report(0.5, "vgg16")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Calibrating …", "Calibrating: 25 %, resnet50 float32"]
    assert not any("vgg16" in each for each in lines)
