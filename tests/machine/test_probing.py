"""Attempts that may end their process, made in real children."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from roofline.machine.measuring import selection
from roofline.machine.measuring.selection import failures

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no children here")

REFUSED = "instructions not supported by CPU or operating system"

# What every CPU of the architecture refuses: ud2; udf #0.
ILLEGAL = {"x86_64": b"\x0f\x0b", "aarch64": b"\x00\x00\x00\x00", "arm64": b"\x00\x00\x00\x00"}


def illegal_instruction() -> None:
    """Machine code that no CPU runs."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(ILLEGAL[platform.machine()])
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    ctypes.CFUNCTYPE(None)(address)()


def killed_by(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def fine() -> None:
    pass


def raises() -> None:
    raise MemoryError


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that were forked since."""
    forked: list[int] = []
    fork = os.fork

    def remembering() -> int:
        child = fork()
        forked.append(child)
        return child

    monkeypatch.setattr(selection.os, "fork", remembering)
    return forked


def assert_gone(children: list[int]) -> None:
    """That nothing is left of them, not even their exit status."""
    assert children
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def test_nothing_fails_that_works() -> None:
    assert failures([]) == {}
    assert failures([fine] * 300) == {}


@pytest.mark.skipif(
    platform.machine() not in ILLEGAL or sys.platform == "darwin", reason="no such code is known"
)
def test_an_illegal_instruction_ends_a_child_and_not_this_process() -> None:
    assert failures([fine, illegal_instruction, fine]) == {1: REFUSED}


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGILL, REFUSED),
        (signal.SIGSEGV, "ended by SIGSEGV"),
        (signal.SIGBUS, "ended by SIGBUS"),
        (signal.SIGKILL, "ended by SIGKILL"),
    ],
)
def test_the_reason_is_said(number: signal.Signals, reason: str) -> None:
    assert failures([fine, fine, killed_by(number)]) == {2: reason}


def test_all_that_fail_are_found_and_each_is_made_once(tmp_path: Path) -> None:
    """The first, two in a row, and the last; what is between them works."""
    made = tmp_path / "made"

    def attempt(number: int) -> Callable[[], None]:
        def run() -> None:
            with made.open("a") as file:
                file.write(f"{number} ")
            if number in (0, 3, 4, 9):
                killed_by(signal.SIGILL)()

        return run

    assert failures([attempt(number) for number in range(10)]) == dict.fromkeys(
        (0, 3, 4, 9), REFUSED
    )
    assert made.read_text().split() == [str(number) for number in range(10)]


def test_an_attempt_that_raises_condemns_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert failures([fine, raises, killed_by(signal.SIGILL)]) == {2: REFUSED}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("files", [3, 4, 5, 6, 7])
def test_a_process_that_may_open_few_files_condemns_nothing(files: int) -> None:
    """As with ``ulimit -n 6``, but for a process of its own."""
    code = f"""
from roofline.machine.measuring.selection import failures
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
print(failures([lambda: None, lambda: open("/dev/null"), lambda: None]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"


def test_nothing_is_imported_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    fork = os.fork

    def without_imports() -> int:
        child = fork()
        if child == 0:
            sys.modules["resource"] = None  # type: ignore[assignment]
        return child

    monkeypatch.setattr(selection.os, "fork", without_imports)
    assert failures([killed_by(signal.SIGILL)]) == {0: REFUSED}


def test_a_child_leaves_neither_a_process_nor_a_file_open(children: list[int]) -> None:
    def count() -> int:
        folder = Path("/proc/self/fd")
        return len(list(folder.iterdir())) if folder.exists() else 0

    before = count()
    failures([killed_by(signal.SIGILL), fine, raises])
    assert count() == before
    assert_gone(children)


def test_a_child_runs_no_handler_of_its_parent() -> None:
    """A handler would go on after the instruction, or report a crash that is none."""
    before = signal.signal(signal.SIGILL, lambda *_: os._exit(0))
    try:
        assert failures([killed_by(signal.SIGILL)]) == {0: REFUSED}
    finally:
        signal.signal(signal.SIGILL, before)


def test_an_interrupt_ends_the_child_too(children: list[int]) -> None:
    """The child would sleep for an hour; an alarm stands for Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def sleep() -> None:
        # Not while the parent forks: what raises there is lost, and the lock of logging with it.
        time.sleep(1)
        os.kill(os.getppid(), signal.SIGALRM)
        time.sleep(3600)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            failures([fine, sleep])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert_gone(children)


def refuse() -> int:
    raise OSError("no more processes")


@pytest.mark.parametrize("why", ["no fork here", "no more processes"])
def test_where_no_process_can_be_forked_all_are_held_to_work(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "no fork here":
        monkeypatch.delattr(selection.os, "fork")
    else:
        monkeypatch.setattr(selection.os, "fork", refuse)
    assert failures([killed_by(signal.SIGILL)]) == {}
