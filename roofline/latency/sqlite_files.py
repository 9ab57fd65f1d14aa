"""SQLite's files as the system has them: names, locks, what changes, and what is refused."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roofline.errors import InputError, RooflineError, said_by

BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite appends to a file's name for what belongs to it."""


class DamagedError(RooflineError):
    """The file holds what it cannot hold; its text says what.

    Users see it only where a file is damaged again as soon as it was made anew.
    """


def real_file(path: Path, done: Literal["read", "written"]) -> Path:
    """What `path` leads to: SQLite keeps its other files beside that, not beside a link to it."""
    try:
        found = path.resolve()
        is_other = found.exists() and not found.is_file()
    except OSError as error:
        raise InputError(f"{path}: cannot be {done}: {error.strerror}") from None
    except (RuntimeError, ValueError) as error:
        # Links in a circle are no OSError before Python 3.13, and a name with a NUL never is.
        raise InputError(f"{path}: cannot be {done}: {error}") from None
    if is_other:
        raise InputError(f"{path}: is not a regular file; move it away")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What changes of a file when another process writes to it."""

    identity: tuple[int, int]
    size_bytes: int
    modified_ns: int
    is_in_use: bool


def state_of(path: Path) -> FileState:
    """The state of a file that is there.

    Raises:
        InputError: it cannot be read.
    """
    with refusals_said(path, "read"):
        found = path.stat()
        logs = (Path(f"{path}{suffix}") for suffix in ("-wal", "-journal"))
        return FileState(
            identity=(found.st_dev, found.st_ino),
            size_bytes=found.st_size,
            modified_ns=found.st_mtime_ns,
            is_in_use=any(log.exists() for log in logs),
        )


@contextlib.contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """Lets one process at a time open or set aside files in a folder, where there are such locks.

    Otherwise, of two that find a file damaged, the second would set aside what the first made anew.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):
            import fcntl

            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)  # and with it the lock
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def identity_of(path: Path) -> tuple[int, int] | None:
    """Which file has that name, whatever it is called later; None: there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def free_name(path: Path) -> Path:
    """``host.latency.sqlite.damaged``, or the first of ``….damaged-2`` and so on that is free."""
    names = (f"{path}.damaged{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
    return Path(
        next(
            name
            for name in names
            if not any(os.path.lexists(f"{name}{suffix}") for suffix in ("", *BESIDE))
        )
    )


_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_FIXES = {
    sqlite3.SQLITE_READONLY: "make it and its folder writable",
    sqlite3.SQLITE_CANTOPEN: "make it and its folder readable and writable",
    sqlite3.SQLITE_PERM: "make it and its folder writable",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_IOERR: "see whether its disk is full, or fails",
}


@contextlib.contextmanager
def refusals_said(path: Path, done: Literal["read", "written"]) -> Generator[None]:
    """Turns what SQLite and the system say against `path` into our errors.

    Raises:
        DamagedError: it is damaged, or is none of SQLite's.
        InputError: it cannot be read or written.
        RooflineError: another process keeps it locked.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        # The lowest byte is the kind of error; text that is no UTF-8 is Python's own finding.
        code: int | None = getattr(error, "sqlite_errorcode", None)
        kind = None if code is None else code & 0xFF
        is_text = kind is None and isinstance(error, sqlite3.OperationalError)
        if kind in _DAMAGED or is_text:
            raise DamagedError(said_by(error)) from None
        if kind in _LOCKED:
            raise RooflineError(
                f"{path}: another process keeps it locked; try again when that is done"
            ) from None
        if kind in _FIXES:
            raise InputError(
                f"{path}: cannot be {done}: {said_by(error)}; {_FIXES[kind]}"
            ) from None
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be {done}: {error.strerror}") from None
