"""One measurement at a time, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.errors import MeasurementError
from roofline.machine.system.exclusive import alone_on_this_machine, lock_file

HOLD = (
    "import sys; from pathlib import Path;"
    "from roofline.machine.system.exclusive import alone_on_this_machine;\n"
    "with alone_on_this_machine(print, folder=Path(sys.argv[1])):\n"
    "    print('holding', flush=True); sys.stdin.readline()\n"
)


def holder(folder: Path) -> subprocess.Popen[str]:
    """A process that has the lock until a line is sent to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=30)


def test_alone_nothing_is_said_and_the_lock_is_free_again(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        with alone_on_this_machine(said.append, folder=tmp_path):
            note = lock_file(tmp_path).read_text(encoding="utf-8")
            assert note.startswith(f"process {os.getpid()}, since ")
    assert said == []


def test_the_second_says_so_and_waits_for_the_first(tmp_path: Path) -> None:
    first = holder(tmp_path)
    said: list[str] = []

    def sleep(_: float) -> None:
        # Instead of waiting for the first to end, it is ended.
        assert len(said) == 1
        end(first)

    with alone_on_this_machine(said.append, folder=tmp_path, sleep=sleep):
        assert first.returncode == 0
    (line,) = said
    assert line.startswith(f"another roofline measurement is running (process {first.pid}, since ")
    assert line.endswith("; waiting for it")


def test_a_limit_ends_the_waiting(tmp_path: Path) -> None:
    first = holder(tmp_path)
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    try:
        with (
            pytest.raises(MeasurementError, match=r"still running \(process \d+, since .* after 5"),
            alone_on_this_machine(
                lambda _: None,
                folder=tmp_path,
                wait_limit_s=5.0,
                sleep=sleep,
                clock=lambda: now_s,
            ),
        ):
            pytest.fail("the lock was taken twice")
    finally:
        end(first)
    assert 5.0 <= now_s < 5.5


def test_a_process_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    first = holder(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=30)
    assert lock_file(tmp_path).exists()
    said: list[str] = []
    with alone_on_this_machine(said.append, folder=tmp_path):
        pass
    assert said == []


def test_an_interrupt_while_waiting_leaves_no_file_open(tmp_path: Path) -> None:
    first = holder(tmp_path)

    def sleep(_: float) -> None:
        raise KeyboardInterrupt

    try:
        with (
            pytest.raises(KeyboardInterrupt),
            alone_on_this_machine(lambda _: None, folder=tmp_path, sleep=sleep),
        ):
            pytest.fail("the lock was taken twice")
    finally:
        end(first)
    with alone_on_this_machine(pytest.fail, folder=tmp_path):
        pass


def test_an_error_inside_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(ValueError), alone_on_this_machine(pytest.fail, folder=tmp_path):
        raise ValueError
    with alone_on_this_machine(pytest.fail, folder=tmp_path):
        pass


def test_a_folder_that_cannot_be_written_is_said_and_no_obstacle(tmp_path: Path) -> None:
    said: list[str] = []
    with alone_on_this_machine(said.append, folder=tmp_path / "missing"):
        pass
    (line,) = said
    assert line.startswith("cannot make sure that no other roofline measurement is running: ")
    assert "cannot be written (No such file or directory)" in line


def test_a_link_that_others_put_there_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    lock_file(tmp_path).symlink_to(victim)
    said: list[str] = []
    with alone_on_this_machine(said.append, folder=tmp_path):
        pass
    assert len(said) == 1
    assert victim.read_text(encoding="utf-8") == "precious"


def test_a_system_without_such_locks_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    said: list[str] = []
    with alone_on_this_machine(said.append, folder=tmp_path):
        pass
    assert "has no locks of that kind" in said[0]


@pytest.mark.parametrize("note", ["", "garbage", "process 1, since \x1b[31m", "\xff" * 300])
def test_a_damaged_note_is_not_shown(tmp_path: Path, note: str) -> None:
    first = holder(tmp_path)
    lock_file(tmp_path).write_bytes(note.encode("latin-1"))
    said: list[str] = []
    with alone_on_this_machine(said.append, folder=tmp_path, sleep=lambda _: end(first)):
        pass
    assert said == ["another roofline measurement is running; waiting for it"]
