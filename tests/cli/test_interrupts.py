"""Ctrl-C ends every command with 130 and one line, whoever loses the exception on its way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from roofline.cli import main
from roofline.cli.main import run
from roofline.errors import ModelError


def interrupt() -> None:
    """What Ctrl-C does to this process."""
    signal.raise_signal(signal.SIGINT)


def lost_by_code_that_returns() -> None:
    try:
        interrupt()
    except KeyboardInterrupt:
        return


def lost_by_code_that_fails() -> None:
    try:
        interrupt()
    except KeyboardInterrupt:
        raise ModelError("cannot be imported") from None


def lost_by_code_that_crashes() -> None:
    try:
        interrupt()
    except KeyboardInterrupt:
        raise SystemError("returned NULL without setting an exception") from None


def lost_by_code_that_exits() -> None:
    try:
        interrupt()
    except KeyboardInterrupt:
        sys.exit(0)


@pytest.mark.parametrize(
    "command",
    [
        interrupt,
        lost_by_code_that_returns,
        lost_by_code_that_fails,
        lost_by_code_that_crashes,
        lost_by_code_that_exits,
    ],
    ids=lambda command: command.__name__,
)
def test_an_interrupt_is_never_lost(
    command: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)

    def called(_self: object, **_options: object) -> None:
        command()

    monkeypatch.setattr(type(main.cli), "main", called)
    assert run(["show"]) == 130
    assert capsys.readouterr().err == "roofline: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_without_an_interrupt_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert run(["--version"]) == 0
    assert signal.getsignal(signal.SIGINT) is before

    def crashing(_self: object, **_options: object) -> None:
        raise SystemError("a bug")

    monkeypatch.setattr(type(main.cli), "main", crashing)
    with pytest.raises(SystemError, match="a bug"):
        run(["show"])
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().err == ""


def test_threads_leave_the_handler_alone(capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(["--version"])))
    thread.start()
    thread.join()
    assert codes == [0]


def test_a_process_that_was_started_to_ignore_interrupts_ignores_them(tmp_path: Path) -> None:
    """As shells start what runs in the background."""
    path = tmp_path / "m.py"
    path.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nM = 1\n")
    arguments = f"analyze {path}:M --input 4 --hardware 10980xe"
    done = subprocess.run(
        ["sh", "-c", f"trap '' INT; exec {sys.executable} -m roofline {arguments}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr


INTERRUPTING = """
import atexit, os, signal, sys

def interrupt():
    # In text, as where dataclasses are made.
    exec("os.kill(os.getpid(), signal.SIGINT)")

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            if WHEN == "import":
                interrupt()
            elif WHEN == "import, lost":
                try:
                    interrupt()
                except KeyboardInterrupt:
                    pass
            else:
                atexit.register(interrupt)

sys.meta_path.insert(0, Finder())
if WHEN == "last":
    atexit.register(interrupt)
"""


@pytest.mark.parametrize(
    ("module", "when", "code"),
    [
        ("click", "import", 130),
        ("roofline.errors", "import", 130),
        ("torch", "import", 130),
        ("torch", "import, lost", 130),
        ("torch", "exit", 130),
        ("", "last", 0),
    ],
)
def test_an_interrupt_at_any_time(module: str, when: str, code: int, tmp_path: Path) -> None:
    """While modules are imported, while Python exits, and when there is nothing left of it."""
    (tmp_path / "sitecustomize.py").write_text(
        f"MODULE, WHEN = {module!r}, {when!r}\n{INTERRUPTING}"
    )
    command = [sys.executable, "-m", "roofline", "analyze", "relu()@1x8", "--hardware", "10980xe"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.strip() == ("roofline: interrupted" if code else "")
    assert bool(done.stdout) == (when != "import")
