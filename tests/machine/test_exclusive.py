"""One measurement at a time, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roofline.errors import MeasurementError
from roofline.machine.system.exclusive import exclusive_measurement, lock_file

HOLD = (
    "import sys; from pathlib import Path;"
    "from roofline.machine.system.exclusive import exclusive_measurement;\n"
    "with exclusive_measurement(print, folder=Path(sys.argv[1])):\n"
    "    print('holding', flush=True); sys.stdin.readline()\n"
)


@pytest.fixture
def first(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock until a line is sent to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    yield process
    if process.returncode is None:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=30)


def said_alone(folder: Path, **options: Any) -> list[str]:
    """What is said by a measurement that gets the lock, or goes on without."""
    said: list[str] = []
    with exclusive_measurement(said.append, folder=folder, **options):
        pass
    return said


def test_alone_nothing_is_said_and_the_lock_is_free_again(tmp_path: Path) -> None:
    for _ in range(2):
        with (
            pytest.raises(ValueError, match="inside"),
            exclusive_measurement(pytest.fail, folder=tmp_path),
        ):
            note = lock_file(tmp_path).read_text(encoding="utf-8")
            assert f"process {os.getpid()}, since " in note
            raise ValueError("inside")
    assert said_alone(tmp_path) == []


def test_the_second_says_so_and_waits_for_the_first(
    tmp_path: Path, first: subprocess.Popen[str]
) -> None:
    # Instead of waiting for the first to end, it is ended.
    (line,) = said_alone(tmp_path, sleep=lambda _: end(first))
    assert first.returncode == 0
    assert line.startswith("waiting for another roofline measurement (")
    assert f"(process {first.pid}, since " in line and line.endswith(")")


def test_waiting_names_the_command_and_its_duration(
    tmp_path: Path, first: subprocess.Popen[str]
) -> None:
    note = f"roofline calibrate, process {first.pid}, since 2026-01-02 03:04:05\n"
    lock_file(tmp_path).write_text(note, encoding="utf-8")
    processes: list[int] = []
    (line,) = said_alone(tmp_path, before_waiting=processes.append, sleep=lambda _: end(first))
    assert processes == [first.pid]
    assert line == (
        f"waiting for `roofline calibrate` (process {first.pid}, since 2026-01-02 03:04:05;"
        " takes up to 8 minutes)"
    )


def test_a_busy_machine_is_refused_before_waiting(
    tmp_path: Path, first: subprocess.Popen[str]
) -> None:
    def refuse(_: int) -> None:
        raise MeasurementError("busy")

    with pytest.raises(MeasurementError, match="busy"):
        said_alone(tmp_path, before_waiting=refuse)
    end(first)
    assert said_alone(tmp_path) == []


def test_a_process_that_was_killed_leaves_no_lock(
    tmp_path: Path, first: subprocess.Popen[str]
) -> None:
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=30)
    assert lock_file(tmp_path).exists()
    assert said_alone(tmp_path) == []


def test_an_interrupt_while_waiting_leaves_no_file_open(
    tmp_path: Path, first: subprocess.Popen[str]
) -> None:
    def sleep(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        said_alone(tmp_path, sleep=sleep)
    end(first)
    assert said_alone(tmp_path) == []


@pytest.mark.parametrize("note", ["", "garbage", "process 1, since \x1b[31m", "\xff" * 300])
def test_a_damaged_note_is_not_shown(
    tmp_path: Path, first: subprocess.Popen[str], note: str
) -> None:
    lock_file(tmp_path).write_bytes(note.encode("latin-1"))
    said = said_alone(tmp_path, sleep=lambda _: end(first))
    assert said == ["waiting for another roofline measurement"]


def test_a_folder_that_cannot_be_written_is_said_and_no_obstacle(tmp_path: Path) -> None:
    (line,) = said_alone(tmp_path / "missing")
    assert line.startswith("cannot exclude other roofline measurements: ")
    assert "is not writable (No such file or directory)" in line


def test_a_link_that_others_put_there_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    lock_file(tmp_path).symlink_to(victim)
    assert len(said_alone(tmp_path)) == 1
    assert victim.read_text(encoding="utf-8") == "precious"


def test_a_system_without_such_locks_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    (line,) = said_alone(tmp_path)
    assert "has no file locks" in line
