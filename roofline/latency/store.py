"""SQLite store of calibration data, next to the profile of the machine.

It contains runs (models with their operators), operators that were timed alone, and short notes.
Each is a row of JSON of an environment; rows of other environments stay and are not used.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Literal, TypeVar

from roofline.core.files import refused
from roofline.core.schema import from_data, to_data
from roofline.errors import FileFormatError, InputError, RooflineError, error_text
from roofline.latency.samples import FEATURES_VERSION, IsolatedSample, Origin, RunSample
from roofline.machine.hardware import Host

T = TypeVar("T")

STORE_VERSION = 1
"""Version of the tables; files with newer ones are refused."""

_TABLES = (
    "CREATE TABLE environment (id INTEGER PRIMARY KEY, data TEXT NOT NULL)",
    # Runs have no name. ``samples`` is the number of timed operators.
    """CREATE TABLE kept (
        id INTEGER PRIMARY KEY, environment INTEGER NOT NULL REFERENCES environment,
        kind TEXT NOT NULL, name TEXT, origin TEXT, samples INTEGER NOT NULL, data TEXT NOT NULL,
        UNIQUE (environment, kind, name))""",
    f"PRAGMA user_version = {STORE_VERSION}",
)

_LOCK_TIMEOUT_S = 10.0
"""Longest wait for another process that writes; each writes for milliseconds."""

_BY_EFFECTIVE_ID = os.access in os.supports_effective_ids
_FIX = "remove it; `roofline calibrate` measures again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Host, torch and version of the features that samples depend on.

    ``torch`` is its version with the build (``"2.13.0+cpu"``), ``facts_version`` that of the
    features. Hosts are compared by fingerprint.
    """

    host: Host
    torch: str
    facts_version: int = FEATURES_VERSION

    def difference(self, other: Environment) -> str:
        """Return differences that make samples unusable, in words; ``""`` without any."""
        parts = [self.host.difference(other.host)]
        if self.torch != other.torch:
            parts.append(f"torch {self.torch} → {other.torch}")
        if self.facts_version != other.facts_version:
            parts.append(
                f"version of operator features {self.facts_version} → {other.facts_version}"
            )
        return "; ".join(part for part in parts if part)


class Store:
    """Samples of one machine in one environment.

    The file is created if it is missing. Processes may open it concurrently; changes are atomic.
    Methods raise FileFormatError for a damaged file, InputError if it cannot be written, and
    RooflineError if another process keeps it locked.
    """

    def __init__(self, path: Path, environment: Environment) -> None:
        self._environment = environment
        self._lock = threading.RLock()
        self._path = path
        with _named_errors(path, "written"), contextlib.ExitStack() as stack:
            _check_is_file(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Transactions take the lock, so threads may share a connection.
            self._connection = sqlite3.connect(
                path, timeout=_LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            stack.callback(self._connection.close)
            # After a power cut the last samples may be gone; the file is whole.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            # SQLite itself would only fail at the first change.
            for place in (path, path.parent):
                if not os.access(place, os.W_OK, effective_ids=_BY_EFFECTIVE_ID):
                    raise InputError(f"{path}: cannot be written: {place} is read-only; {_ROOM}")
            with self._transaction("IMMEDIATE") as connection:
                if _checked_version(connection, path) == 0:
                    for statement in _TABLES:
                        connection.execute(statement)
            stack.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def add(self, run: RunSample) -> None:
        """Store a run with all of its operators."""
        self._keep("run", None, run, origin=run.origin, samples=len(run.operators))

    def runs(self) -> tuple[RunSample, ...]:
        """Return the runs of this environment in the order they were added."""
        with self._transaction("DEFERRED") as connection:
            return _runs(connection, self._id(connection))

    def delete_runs(self, origin: Origin) -> int:
        """Delete the runs that a command measured in this environment; return their number."""
        with self._transaction("IMMEDIATE") as connection:
            query = "DELETE FROM kept WHERE environment = ? AND kind = 'run' AND origin = ?"
            return connection.execute(query, (self._id(connection), origin)).rowcount

    def unused_samples(self) -> tuple[str, ...]:
        """Return a line for each other environment: number of samples and difference."""
        with self._transaction("DEFERRED") as connection:
            query = "SELECT environment, sum(samples) FROM kept GROUP BY environment"
            counts: dict[int, int] = dict(connection.execute(query).fetchall())
            found = _environments(connection)
        lines: list[str] = []
        for number, other in found:
            count, difference = counts.get(number, 0), other.difference(self._environment)
            if difference and count:
                samples, it = ("1 sample is", "it was")
                if count > 1:
                    samples, it = f"{count:,} samples are", "they were"
                lines.append(f"{samples} not used: since {it} measured, {difference}")
        return tuple(lines)

    def isolated(self, key: str) -> IsolatedSample | None:
        """Return the times of an operator that was timed alone, by key; None without any."""
        return self._found("isolated", key, lambda data: from_data(IsolatedSample, data, file=key))

    def keep_isolated(self, key: str, sample: IsolatedSample) -> None:
        """Store the times of an operator, replacing earlier ones."""
        self._keep("isolated", key, sample, samples=1)

    def note(self, name: str) -> str | None:
        """Return the text stored under `name`, if any."""
        return self._found("note", name, str)

    def keep_note(self, name: str, text: str) -> None:
        """Store a short text, such as the progress of a calibration, replacing an earlier one."""
        self._keep("note", name, text, samples=0)

    def _keep(
        self, kind: str, name: str | None, value: object, *, samples: int, origin: str = ""
    ) -> None:
        data = _text(value)
        with self._transaction("IMMEDIATE") as connection:
            number = self._id(connection)
            if number is None:
                statement = "INSERT INTO environment (data) VALUES (?)"
                number = connection.execute(statement, (_text(self._environment),)).lastrowid
            connection.execute(
                "INSERT OR REPLACE INTO kept (environment, kind, name, origin, samples, data)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (number, kind, None if name is None else _text(name), origin, samples, data),
            )

    def _found(self, kind: str, name: str, made: Callable[[Any], T]) -> T | None:
        with self._transaction("DEFERRED") as connection:
            query = "SELECT data FROM kept WHERE environment = ? AND kind = ? AND name = ?"
            row = connection.execute(query, (self._id(connection), kind, _text(name))).fetchone()
            return None if row is None else made(json.loads(row[0]))

    def _id(self, connection: Connection) -> int | None:
        """Return the number of this environment in the file, if it is there."""
        for number, each in _environments(connection):
            if not each.difference(self._environment):
                return number
        return None

    @contextlib.contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Generator[Connection]:
        with self._lock, _named_errors(self._path, "written"):
            try:
                self._connection.execute(f"BEGIN {kind}")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # An interrupt may come anywhere, and some errors have SQLite roll back by itself.
                if self._connection.in_transaction:
                    self._connection.rollback()
                raise


def read_runs(path: Path, host: Host) -> tuple[Environment, tuple[RunSample, ...]] | None:
    """Return the latest environment of a file with its runs, without writing to the file.

    Only environments with the fingerprint of `host` and the present features count. None without
    one, or without the file.
    """
    if not os.path.lexists(path):
        return None
    with _named_errors(path, "read"):
        _check_is_file(path)
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
        ) as connection:
            connection.execute("BEGIN")
            if _checked_version(connection, path) == 0:
                raise refused(str(path), "is damaged (it is empty)", _FIX)
            query = "SELECT environment, max(id) FROM kept WHERE kind = 'run' GROUP BY environment"
            latest: dict[int, int] = dict(connection.execute(query).fetchall())
            fitting = {
                latest[number]: (number, each)
                for number, each in _environments(connection)
                if number in latest
                and not each.host.difference(host)
                and each.facts_version == FEATURES_VERSION
            }
            if not fitting:
                return None
            number, environment = fitting[max(fitting)]
            return environment, _runs(connection, number)


def _environments(connection: Connection) -> list[tuple[int, Environment]]:
    query = "SELECT id, data FROM environment ORDER BY id"
    return [
        (number, from_data(Environment, json.loads(data), file="environment"))
        for number, data in connection.execute(query)
    ]


def _runs(connection: Connection, environment: int | None) -> tuple[RunSample, ...]:
    query = "SELECT data FROM kept WHERE environment = ? AND kind = 'run' ORDER BY id"
    return tuple(
        from_data(RunSample, json.loads(data), file="run")
        for (data,) in connection.execute(query, (environment,))
    )


def _text(value: object) -> str:
    """Return JSON with all digits of numbers, and escapes for surrogates."""
    try:
        return json.dumps(to_data(value), separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ValueError("only finite numbers are kept") from None


def _checked_version(connection: Connection, path: Path) -> int:
    """Return the version of the tables of a file, checked for damage; 0 if it is empty."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > STORE_VERSION:
        raise refused(
            str(path),
            f"was written by a newer roofline (its tables have version {version}, this one reads up"
            f" to {STORE_VERSION})",
            "upgrade with `pip install --upgrade roofline`",
        )
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise refused(str(path), f"is damaged ({' '.join(str(found).split())})", _FIX)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    is_empty = version == 0 and not tables
    if not is_empty and (version != STORE_VERSION or not {"environment", "kept"} <= tables):
        raise refused(str(path), "is damaged (it has other tables)", _FIX)
    return version


def _check_is_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file; move it away")


_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_REFUSED = frozenset(
    {
        *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM),
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
    }
)
_ROOM = "make it and its folder readable and writable, and make room on its disk"


@contextlib.contextmanager
def _named_errors(path: Path, done: Literal["read", "written"]) -> Generator[None]:
    """Turn errors of SQLite, the system and JSON into errors of one line that name `path`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        # The lowest byte is the kind of error; Python itself raises for text that is not UTF-8.
        code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _LOCKED:
            raise RooflineError(
                f"{path}: locked by another process; try again when it has finished"
            ) from None
        if code in _REFUSED:
            raise InputError(f"{path}: cannot be {done}: {error_text(error)}; {_ROOM}") from None
        raise refused(str(path), f"is damaged ({error_text(error)})", _FIX) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be {done}: {error.strerror}") from None
    except FileFormatError as error:
        # Errors in rows do not name the file.
        if str(path) in str(error):
            raise
        raise refused(str(path), f"is damaged ({error})", _FIX) from None
    except (json.JSONDecodeError, TypeError, RecursionError) as error:
        raise refused(str(path), f"is damaged ({error_text(error)})", _FIX) from None
    except ValueError as error:
        # A name with a NUL.
        raise InputError(f"{path}: cannot be {done}: {error}") from None
