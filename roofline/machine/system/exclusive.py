"""Lock for one measurement at a time, and child processes that end with their parent."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import re
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

from roofline.core.progress import Say


def exit_with_parent(pipe: int) -> None:
    """Ends this process, and its session if it leads one, once the other end of a pipe is closed.

    The system closes that with the process that holds it, which must be one alone. On Windows the
    pipe is the handle of the process.
    """

    def wait_and_end() -> None:
        if hasattr(select, "poll"):
            closed = select.poll()
            # For nothing that comes or could be sent: only that the other end is gone.
            closed.register(pipe, 0)
            closed.poll()
        else:
            from multiprocessing.connection import wait

            wait([pipe])
        if hasattr(os, "getsid") and os.getsid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()


_POLL_S = 0.2  # between two looks at the lock

_LONGEST_NOTE_BYTE = 200
_NOTE = re.compile(r"process \d+, since [0-9 :-]+")

_LOCKED = "locked"

_held: list[int] = []


@contextlib.contextmanager
def exclusive_measurement(
    say: Say,
    *,
    folder: Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Generator[None]:
    """A context in which no other measurement of this user runs on this machine.

    It rests on a lock that ends with the processes that hold it: this one, and those that it starts
    with `held_locks`. Where there are no such locks, or the folder cannot be written, it says so
    and goes on without.
    """
    without = "cannot make sure that no other roofline measurement is running"
    # Others may write to the folder too: what they put there under that name is not followed.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        file = os.open(lock_file(folder), flags, 0o600)
    except OSError as error:
        where = "the folder for temporary files" if folder is None else str(folder)
        say(f"{without}: {where} cannot be written ({error.strerror})")
        yield
        return
    waiting = False
    try:
        while (obstacle := _try(file)) == _LOCKED:
            if not waiting:
                say(f"another roofline measurement is running{_other(file)}; waiting for it")
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
    """File descriptors that a process which measures for this one inherits, to hold its locks."""
    return tuple(_held)


def lock_file(folder: Path | None = None) -> Path:
    """Where the lock of this user on this machine is; folders may be shared between machines."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    machine = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:64]
    return (folder or Path(tempfile.gettempdir())) / f"roofline-{machine}-{user}.lock"


def _try(file: int) -> str:
    """Takes the lock: ``""`` if that worked, `_LOCKED` if another has it, else why not."""
    try:
        import fcntl
    except ImportError:
        return "this system has no locks of that kind"
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _LOCKED
    except OSError as error:
        return f"the folder for temporary files takes no locks ({error.strerror})"
    since = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    # The note is for people; the lock holds without it, on a full disk too.
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()}, since {since}\n".encode(), 0)
    return ""


def _other(file: int) -> str:
    try:
        text = os.pread(file, _LONGEST_NOTE_BYTE, 0).decode("ascii", errors="replace").strip()
    except OSError:
        return ""
    return f" ({text})" if _NOTE.fullmatch(text) else ""
