"""Reads the files that a user names; whatever they are, one line says why they are refused."""

from __future__ import annotations

import codecs
import json
import os
import stat
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roofline.errors import FileFormatError
from roofline.foundation.text import printable

_MOST_BYTE = 2**29
"""No analysis or profile is as large: what is, is something else, and may not fit into memory."""

_MOST_DOTS = 1000
"""In one line of TOML: its reader takes a time that grows with the square of a key's parts."""


def refused(file: str, what: str, fix: str) -> FileFormatError:
    """The error that says in one line what is wrong with a file, and what its user can do.

    Keys and values in `what` are the file's own: they may hold line ends, and be of any length.
    """
    return FileFormatError(printable(f"{file}: {cut(what, 300)}{f'; {fix}' if fix else ''}"))


def cut(text: str, longest: int = 60) -> str:
    """`text`, or as much of it as a message shows of a file's own keys and values."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def read_text(path: Path) -> str:
    """The text of a user's file, line ends as they are.

    Raises:
        FileFormatError: it is missing, not a regular file (a folder, a pipe, a device: those may
            never end), unreadable, far too large, or not UTF-8.
    """
    file = str(path)
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise refused(file, "is a folder, not a file", "")
        if not stat.S_ISREG(found.st_mode):
            raise refused(file, "is not a regular file", "save it as one first")
        if found.st_size > _MOST_BYTE:
            raise refused(file, f"is no roofline file: it has {found.st_size} bytes", "")
        content = path.read_bytes()
    except FileNotFoundError:
        if os.path.lexists(path):
            raise refused(file, "is a link to a file that does not exist", "") from None
        raise refused(file, "no such file", "") from None
    except OSError as error:
        raise refused(file, f"cannot be read: {error.strerror}", "") from None
    except ValueError as error:
        # A name with a NUL in it.
        raise refused(file, f"cannot be read: {error}", "") from None
    if content.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        what = "begins with a byte order mark"
        raise refused(file, what, "save it as UTF-8 without one")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise refused(file, "is not a text file (UTF-8)", "") from None


class _RepeatedError(Exception):
    """A table of a JSON file has a key twice."""


def _table_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        raise _RepeatedError(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return table


def read_json(path: Path, *, fix: str) -> Any:
    """The plain data of a JSON file; FileFormatError with line and column where it is damaged."""
    text = read_text(path)
    with _damage_said(str(path), fix):
        try:
            return json.loads(text, object_pairs_hook=_table_of_pairs)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise refused(str(path), f"not valid JSON at {where}: {error.msg}", fix) from None
        except _RepeatedError as error:
            # Its reader would take the last of them without a word.
            raise refused(str(path), f"key '{cut(str(error))}' stands twice", fix) from None


def read_toml(path: Path, *, fix: str) -> Any:
    """The plain data of a TOML file; FileFormatError with the place where it is damaged."""
    text = read_text(path)
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise refused(str(path), "nested too deeply", fix)
    with _damage_said(str(path), fix):
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise refused(str(path), f"not valid TOML: {error}", fix) from None


@contextmanager
def _damage_said(file: str, fix: str) -> Generator[None]:
    """Turns what a reader fails at in sound text into a FileFormatError."""
    try:
        yield
    except RecursionError:
        raise refused(file, "nested too deeply", fix) from None
    except ValueError:
        # Of sound text, the readers refuse only numbers that Python does not convert.
        raise refused(file, "holds a number of too many digits", fix) from None
