"""What was measured and is learned from, kept in a SQLite file beside the profile of the machine.

There are runs (models with each of their operators), a cache of operators that were timed on their
own, and short notes. Each is a row of JSON and belongs to an environment; those of another one stay
where they are, and are not used.
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
from roofline.latency.samples import FACTS_VERSION, IsolatedSample, Origin, RunSample
from roofline.machine.hardware import Host

T = TypeVar("T")

STORE_VERSION = 1
"""Of the tables; a file with newer ones is refused."""

_TABLES = (
    "CREATE TABLE environment (id INTEGER PRIMARY KEY, data TEXT NOT NULL)",
    # Runs have no name. ``samples`` are the operators that were timed.
    """CREATE TABLE kept (
        id INTEGER PRIMARY KEY, environment INTEGER NOT NULL REFERENCES environment,
        kind TEXT NOT NULL, name TEXT, origin TEXT, samples INTEGER NOT NULL, data TEXT NOT NULL,
        UNIQUE (environment, kind, name))""",
    f"PRAGMA user_version = {STORE_VERSION}",
)

_PATIENCE_S = 10.0
"""How long a process waits for another one that writes; each writes for milliseconds."""

_BY_EFFECTIVE_ID = os.access in os.supports_effective_ids
_FIX = "remove it; `roofline calibrate` measures again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What samples depend on and do not say themselves.

    ``torch`` is its version with its build (``"2.13.0+cpu"``), ``facts_version`` says what the
    numbers of their facts mean. Of the ``host``, its fingerprint counts.
    """

    host: Host
    torch: str
    facts_version: int = FACTS_VERSION

    def difference(self, other: Environment) -> str:
        """What makes samples of the one useless in the other, in words; ``""`` if nothing does."""
        parts = [self.host.difference(other.host)]
        if self.torch != other.torch:
            parts.append(f"torch {self.torch} became {other.torch}")
        if self.facts_version != other.facts_version:
            parts.append(
                "what is told of an operator changed"
                f" (version {self.facts_version} became {other.facts_version})"
            )
        return "; ".join(part for part in parts if part)


class Store:
    """The samples of one machine, as far as they were measured in one environment.

    The file is made if there is none. Any number of processes may have it open at once; each change
    is made whole or not at all. Every method raises FileFormatError where the file turns out to be
    damaged, InputError where it cannot be written, and RooflineError where another process keeps it
    locked.
    """

    def __init__(self, path: Path, environment: Environment) -> None:
        self._environment = environment
        self._turn = threading.RLock()
        self._path = path
        with _refusals_told(path, "written"), contextlib.ExitStack() as stack:
            _check_is_file(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Each transaction has its turn, so that threads may share a connection.
            self._connection = sqlite3.connect(
                path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
            )
            stack.callback(self._connection.close)
            # After a power cut the last samples may be gone; the file is whole.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            # SQLite itself would only tell at the first change.
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
        """Close the file; twice is no error."""
        with self._turn, contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def add(self, run: RunSample) -> None:
        """Keep a run with all of its operators."""
        self._keep("run", None, run, origin=run.origin, samples=len(run.operators))

    def runs(self) -> tuple[RunSample, ...]:
        """Return the runs of this environment in the order they were added."""
        with self._transaction("DEFERRED") as connection:
            return _runs(connection, self._id(connection))

    def forget_runs(self, origin: Origin) -> int:
        """Drop the runs that a command measured in this environment, and return their number."""
        with self._transaction("IMMEDIATE") as connection:
            query = "DELETE FROM kept WHERE environment = ? AND kind = 'run' AND origin = ?"
            return connection.execute(query, (self._id(connection), origin)).rowcount

    def unused(self) -> tuple[str, ...]:
        """Return a line for each other environment: what is not used here, and why."""
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
        """Return the times of the operator of that key, timed on its own; None: it was not."""
        return self._found("isolated", key, lambda data: from_data(IsolatedSample, data, file=key))

    def keep_isolated(self, key: str, sample: IsolatedSample) -> None:
        """Keep the times of an operator, in place of earlier ones."""
        self._keep("isolated", key, sample, samples=1)

    def note(self, name: str) -> str | None:
        """Return the text that was kept under `name`; None: there is none."""
        return self._found("note", name, str)

    def keep_note(self, name: str, text: str) -> None:
        """Keep a short text, such as how far a calibration came, in place of an earlier one."""
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
        """The number of this environment in the file; None: nothing of it is there."""
        for number, each in _environments(connection):
            if not each.difference(self._environment):
                return number
        return None

    @contextlib.contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Generator[Connection]:
        with self._turn, _refusals_told(self._path, "written"):
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
    """Return the runs of one environment in a file that is only read, such as one that came with a
    machine's profile.

    Of the environments that have the fingerprint of `host` and facts as they are told today, it is
    the one that was measured in last. None: there is none, or no such file.
    """
    if not os.path.lexists(path):
        return None
    with _refusals_told(path, "read"):
        _check_is_file(path)
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None)
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
                and each.facts_version == FACTS_VERSION
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
    """A value as JSON, every digit of its numbers; of characters that are not Unicode, escapes."""
    try:
        return json.dumps(to_data(value), separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ValueError("only finite numbers are kept") from None


def _checked_version(connection: Connection, path: Path) -> int:
    """The version of the tables of a file that is sound; 0: it is empty."""
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
def _refusals_told(path: Path, done: Literal["read", "written"]) -> Generator[None]:
    """Turn what SQLite, the system and JSON have against `path` into one line."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        # The lowest byte is the kind of error; text that is no UTF-8 is Python's own finding.
        code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _LOCKED:
            raise RooflineError(
                f"{path}: another process keeps it locked; try again when that is done"
            ) from None
        if code in _REFUSED:
            raise InputError(f"{path}: cannot be {done}: {error_text(error)}; {_ROOM}") from None
        raise refused(str(path), f"is damaged ({error_text(error)})", _FIX) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be {done}: {error.strerror}") from None
    except FileFormatError as error:
        # Of what stands in a row: the file is not in its message.
        if str(path) in str(error):
            raise
        raise refused(str(path), f"is damaged ({error})", _FIX) from None
    except (json.JSONDecodeError, TypeError, RecursionError) as error:
        raise refused(str(path), f"is damaged ({error_text(error)})", _FIX) from None
    except ValueError as error:
        # A name with a NUL.
        raise InputError(f"{path}: cannot be {done}: {error}") from None
