"""Files: those of a user, read or refused in one line, and those written, whole or not at all."""

from __future__ import annotations

import codecs
import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roofline.core.text import printable
from roofline.errors import FileFormatError, InputError

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
    """The text of a user's file, line ends as they are."""
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


def check_named_once(paths: Sequence[Path]) -> None:
    """Refuse the same file twice."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise InputError(f"{path}: is named twice; give each file once")
        seen.add(path.resolve())


def check_writable(path: Path, *, overwrite: bool) -> None:
    """Refuses, before any work is done, a file that could not be written in the end."""
    with _refusals_said(path):
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file in it")
        if path.exists() and not overwrite:
            raise _exists(path)
        if path.exists() and not path.is_file():
            raise InputError(
                f"{path}: is not a regular file; name one, or write to stdout with -o -"
            )
        folder = path.resolve().parent
        if not folder.is_dir():
            raise InputError(f"{path}: the folder '{folder}' does not exist; make it first")
    # Permissions do not tell: file systems are read-only or full, and root may write anywhere.
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{path}: the folder '{path.parent}' cannot be written ({error.strerror});"
            " choose another with -o"
        ) from None


def write_atomically(path: Path, content: str | bytes, *, overwrite: bool) -> None:
    """Writes `content` to `path` whole, or leaves what was there."""
    write_together({path: content}, overwrite=overwrite)


def write_together(contents: Mapping[Path, str | bytes], *, overwrite: bool) -> None:
    """Writes files that belong together: all of them whole, or what was there is left.

    Without `overwrite` a file that another process made in the meantime is never replaced.
    """
    for path in contents:
        check_writable(path, overwrite=overwrite)
    written: list[tuple[Path, Path]] = []
    created: list[Path] = []
    try:
        for path, content in contents.items():
            written.append(_beside(path, content))
        for temporary, target in written:
            with _refusals_said(target):
                if overwrite:
                    temporary.replace(target)
                else:
                    _create(temporary, target)
                    created.append(target)
    except BaseException:
        for target in created:
            target.unlink(missing_ok=True)
        raise
    finally:
        # After a successful replace the temporary name is gone; after anything else it must go.
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


def _create(temporary: Path, target: Path) -> None:
    """Gives what lies at `temporary` the name of a file that does not exist."""
    try:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):
            # No hard links on this file system: the name is taken first, by an empty file.
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            try:
                temporary.replace(target)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise _exists(target) from None


def _exists(path: Path) -> InputError:
    return InputError(f"{path}: exists; add --force to overwrite it (in Python: overwrite=True)")


def _beside(path: Path, content: str | bytes) -> tuple[Path, Path]:
    """`content` in a temporary file in the folder of `path`, and what it shall replace."""
    # Names of files need not be Unicode, and come here in what was made of them.
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with _refusals_said(path):
        # What a link points to is replaced, not the link.
        target = path.resolve()
        # Not named like the target, whose name may be as long as a name can be.
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".roofline-", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o666 & ~_umask())
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    return Path(name), target


@contextmanager
def _refusals_said(path: Path) -> Generator[None]:
    """Turns what the system says against `path` into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}; choose another with -o"
        ) from None
    except (RuntimeError, ValueError) as error:
        # Links in a circle are no OSError before Python 3.13, and a name with a NUL never is.
        raise InputError(f"{path}: cannot be written: {error}; choose another with -o") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
