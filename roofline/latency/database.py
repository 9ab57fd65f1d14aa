"""A SQLite file that several processes write at once, and that may turn out to be damaged."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Literal, TypeVar

from roofline.errors import InputError
from roofline.foundation.progress import Say
from roofline.foundation.reading import refused
from roofline.foundation.text import printable
from roofline.latency.sqlite_files import (
    BESIDE,
    DamagedError,
    alone_in,
    free_name,
    identity_of,
    real_file,
    refusals_said,
    state_of,
)

T = TypeVar("T")

_PATIENCE_S = 10.0
"""How long a process waits for another one that writes; each writes for milliseconds."""

_MADE_ANEW = "remove it, or copy it anew from where it was made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What is in a file: the statements that make its tables, and their version, from 1 on."""

    version: int
    statements: tuple[str, ...]


class Database:
    """An open file, made where there is none.

    A damaged one is set aside under another name, and a new one takes its place; that is said.

    Args:
        path: the file.
        tables: what it has to hold.
        say: called with a line if it is damaged, now or later.

    Raises:
        InputError: it, or its folder, cannot be written.
        FileFormatError: it has tables of a newer version.
        RooflineError: another process keeps it locked.
    """

    def __init__(self, path: Path, tables: Tables, *, say: Say) -> None:
        self._tables = tables
        self._say = say
        self._turn = threading.RLock()
        self._path = real_file(path, "written")
        with refusals_said(self._path, "written"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with alone_in(self._path.parent):
                self._connection = self._opened()

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` finds in one state of the file.

        Raises:
            InputError: it cannot be read, or a damaged one cannot be set aside.
        """
        return self._done("DEFERRED", work)

    def change(self, work: Callable[[Connection], T]) -> T:
        """Has `work` change the file, wholly or, if it raises, not at all; gives what it returns.

        Raises:
            InputError: it cannot be written, or a damaged one cannot be set aside.
            RooflineError: another process keeps it locked.
        """
        return self._done("IMMEDIATE", work)

    def close(self) -> None:
        """Closes the file; twice is no error."""
        with self._turn, contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _done(self, kind: Literal["DEFERRED", "IMMEDIATE"], work: Callable[[Connection], T]) -> T:
        with self._turn:
            try:
                return self._once(kind, work)
            except DamagedError as damage:
                self._renew(damage)
                return self._once(kind, work)

    def _once(self, kind: Literal["DEFERRED", "IMMEDIATE"], work: Callable[[Connection], T]) -> T:
        with refusals_said(self._path, "written"), _transaction(self._connection, kind):
            return work(self._connection)

    def _renew(self, damage: DamagedError) -> None:
        """Goes on with a new file, or with the one that another process has made meanwhile."""
        self.close()
        with refusals_said(self._path, "written"), alone_in(self._path.parent):
            if identity_of(self._path) == self._identity:
                self._set_aside(damage)
            self._connection = self._opened()

    def _opened(self) -> Connection:
        try:
            connection = _connected(self._path, self._tables)
        except DamagedError as damage:
            self._set_aside(damage)
            connection = _connected(self._path, self._tables)
        self._identity = identity_of(self._path)
        return connection

    def _set_aside(self, damage: DamagedError) -> None:
        aside = free_name(self._path)
        # The file itself last: a new one must not find the log of the old one.
        for suffix in (*BESIDE, ""):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").rename(f"{aside}{suffix}")
        self._say(
            printable(
                f"{self._path}: is damaged ({damage}); it was set aside as {aside.name}, and"
                " `roofline calibrate` learns anew"
            )
        )


def read_only(path: Path, tables: Tables, work: Callable[[Connection], T]) -> T:
    """What `work` finds in a file that is not written to, and beside which nothing is left.

    Raises:
        InputError: it cannot be read.
        FileFormatError: it is damaged, is something else, or has tables of a newer version.
    """
    path = real_file(path, "read")
    try:
        before = state_of(path)
        if not before.is_in_use:
            # Where nobody writes, SQLite need not lock, for which it would make files.
            try:
                found = _read(path, "immutable=1", tables, work)
            except DamagedError:
                if state_of(path) == before:
                    raise
            else:
                if state_of(path) == before:
                    return found
        try:
            return _read(path, "mode=ro", tables, work)
        except InputError:
            # It cannot be locked where nothing can be written; then nobody writes to it either.
            return _read(path, "immutable=1", tables, work)
    except DamagedError as damage:
        raise refused(str(path), f"is damaged ({damage})", _MADE_ANEW) from None


def _read(path: Path, options: str, tables: Tables, work: Callable[[Connection], T]) -> T:
    with refusals_said(path, "read"), contextlib.ExitStack() as stack:
        connection = sqlite3.connect(
            f"{path.as_uri()}?{options}", uri=True, timeout=_PATIENCE_S, isolation_level=None
        )
        stack.callback(connection.close)
        if _checked_version(connection, path, tables) == 0:
            raise DamagedError("it is empty")
        with _transaction(connection, "DEFERRED"):
            return work(connection)


def _connected(path: Path, tables: Tables) -> Connection:
    """A connection to a file that is sound, can be written, and has its tables."""
    with refusals_said(path, "written"), contextlib.ExitStack() as stack:
        # Each transaction has its turn, so that threads may share a connection.
        connection = sqlite3.connect(
            path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
        )
        stack.callback(connection.close)
        _checked_version(connection, path, tables)
        connection.execute("PRAGMA journal_mode = WAL")
        # After a power cut the last samples may be gone; the file is whole.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        # Begun with nothing to do too: it tells whether the file can be written.
        with _transaction(connection, "IMMEDIATE"):
            if _version(connection) == 0:
                _make_tables(connection, tables)
        stack.pop_all()
        return connection


def _checked_version(connection: Connection, path: Path, tables: Tables) -> int:
    """The version of the tables of a file that is sound; 0: it is empty."""
    version = _version(connection)
    if version > tables.version:
        raise refused(
            str(path),
            f"was written by a newer roofline (its tables have version {version}, this one reads up"
            f" to {tables.version})",
            "upgrade with `pip install --upgrade roofline`",
        )
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise DamagedError(" ".join(str(found).split()))
    columns = _columns(connection)
    is_empty = version == 0 and not columns
    if not is_empty and (version < 1 or not _columns_of(tables) <= columns):
        raise DamagedError("it has other tables")
    return version


def _version(connection: Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _make_tables(connection: Connection, tables: Tables) -> None:
    for statement in tables.statements:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {tables.version}")


@functools.cache
def _columns_of(tables: Tables) -> frozenset[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        _make_tables(connection, tables)
        return _columns(connection)


def _columns(connection: Connection) -> frozenset[tuple[str, str]]:
    """Each table with each of its columns."""
    found = connection.execute(
        "SELECT t.name, c.name FROM sqlite_master t JOIN pragma_table_info(t.name) c"
        " WHERE t.type = 'table'"
    )
    return frozenset(found.fetchall())


@contextlib.contextmanager
def _transaction(connection: Connection, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Generator[None]:
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException:
        # An interrupt may come anywhere, and some errors have SQLite roll back by itself.
        if connection.in_transaction:
            connection.rollback()
        raise
