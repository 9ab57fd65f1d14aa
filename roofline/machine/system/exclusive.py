"""Lock for one measurement at a time, and child processes that exit with their parent."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import re
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

from roofline.core.progress import Say


def exit_with_parent(pipe: int) -> None:
    """Exit this process, and its session if it leads one, once the other end of a pipe is closed.

    The other end must be held by the parent alone. On Windows the pipe is the parent's handle.
    """

    def wait_and_end() -> None:
        if hasattr(select, "poll"):
            closed = select.poll()
            # No event but the hang-up.
            closed.register(pipe, 0)
            closed.poll()
        else:
            from multiprocessing.connection import wait

            wait([pipe])
        if hasattr(os, "getsid") and os.getsid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()


_POLL_S = 0.2

_LONGEST_NOTE_BYTE = 200
_NOTE = re.compile(
    r"(roofline (?P<command>[a-z]{1,20}), )?"
    r"(?P<of>process (?P<process>\d{1,9}), since [0-9 :-]+)"
)
_DURATIONS = {"measure": "10 s", "calibrate": "up to 8 minutes"}

_LOCKED = "locked"

_held: list[int] = []


@contextlib.contextmanager
def exclusive_measurement(
    say: Say,
    *,
    before_waiting: Callable[[int], object] = lambda _: None,
    folder: Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Generator[None]:
    """Context in which no other measurement of this user runs on this machine.

    The lock is released with the processes that hold it: this one, and those started with
    `held_locks`. Without file locks or a writable folder, warn and continue. If another measurement
    runs, `before_waiting` is called with its process.
    """
    without = "cannot exclude other roofline measurements"
    # The folder may be shared, so symbolic links are not followed.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        file = os.open(lock_file(folder), flags, 0o600)
    except OSError as error:
        where = "the folder for temporary files" if folder is None else str(folder)
        say(f"{without}: {where} is not writable ({error.strerror})")
        yield
        return
    waiting = False
    try:
        while (obstacle := _try(file)) == _LOCKED:
            if not waiting:
                other = _other(file)
                if other:
                    before_waiting(int(other["process"]))
                say(_waiting_text(other))
                waiting = True
            sleep(_POLL_S)
        if obstacle:
            say(f"{without}: {obstacle}")
        _held.append(file)
        yield
    finally:
        if file in _held:
            _held.remove(file)
        os.close(file)  # and with it the lock


def held_locks() -> tuple[int, ...]:
    """Return the lock file descriptors that measuring child processes must inherit."""
    return tuple(_held)


def lock_file(folder: Path | None = None) -> Path:
    """Return the lock file of this user; it includes the machine name, for shared folders."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    machine = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:64]
    return (folder or Path(tempfile.gettempdir())) / f"roofline-{machine}-{user}.lock"


def _try(file: int) -> str:
    """Take the lock: return ``""``, `_LOCKED` if another process has it, or an error."""
    try:
        import fcntl
    except ImportError:
        return "this system has no file locks"
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _LOCKED
    except OSError as error:
        return f"no file locks in the folder for temporary files ({error.strerror})"
    since = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    # The note is optional; the disk may be full.
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        command = sys.argv[1] if len(sys.argv) > 1 else ""
        name = f"roofline {command}, " if re.fullmatch("[a-z]{1,20}", command) else ""
        os.pwrite(file, f"{name}process {os.getpid()}, since {since}\n".encode(), 0)
    return ""


def _other(file: int) -> re.Match[str] | None:
    """Return the note of the measurement that has the lock; None: missing or damaged."""
    try:
        text = os.pread(file, _LONGEST_NOTE_BYTE, 0).decode("ascii", errors="replace").strip()
    except OSError:
        return None
    return _NOTE.fullmatch(text)


def _waiting_text(other: re.Match[str] | None) -> str:
    """Return the message on what is waited for, and how long it takes."""
    if other is None:
        return "waiting for another roofline measurement"
    command = other["command"]
    takes = f"; takes {_DURATIONS[command]}" if command in _DURATIONS else ""
    what = f"`roofline {command}`" if command else "another roofline measurement"
    return f"waiting for {what} ({other['of']}{takes})"
