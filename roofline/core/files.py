"""Files: strict reading with errors in one line, and atomic writing."""

from __future__ import annotations

import codecs
import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from roofline.core.text import printable
from roofline.errors import FileFormatError, InputError, argument

_MOST_BYTE = 2**29
"""Size limit of input files: no analysis or profile is as large."""

_MOST_DOTS = 1000
"""Limit of dots in a line of TOML: parsing takes time quadratic in the parts of a key."""


def refused(file: str, what: str, fix: str) -> FileFormatError:
    """Return an error on a file in one line: what is wrong, and the fix.

    Keys and values of the file in `what` are escaped and cut.
    """
    return FileFormatError(printable(f"{file}: {cut(what, 300)}{f'; {fix}' if fix else ''}"))


def cut(text: str, longest: int = 60) -> str:
    """Return `text`, cut to the length of a message."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def read_text(path: Path) -> str:
    """Return the text of a file; line ends are kept."""
    file = str(path)
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise refused(file, "is a folder, not a file", "")
        if not stat.S_ISREG(found.st_mode):
            raise refused(file, "is not a regular file", "save it as one first")
        if found.st_size > _MOST_BYTE:
            raise refused(file, f"is too large for a roofline file: {found.st_size} bytes", "")
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
    """Return the data of a JSON file; errors name line and column."""
    text = read_text(path)
    with _damage_said(str(path), fix):
        try:
            return json.loads(text, object_pairs_hook=_table_of_pairs)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise refused(str(path), f"not valid JSON at {where}: {error.msg}", fix) from None
        except _RepeatedError as error:
            # json would silently take the last one.
            raise refused(str(path), f"key '{cut(str(error))}' is given twice", fix) from None


def read_toml(path: Path, *, fix: str) -> Any:
    """Return the data of a TOML file; errors name the place."""
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
    """Turn other failures of a parser into a FileFormatError."""
    try:
        yield
    except RecursionError:
        raise refused(file, "nested too deeply", fix) from None
    except ValueError:
        # Python refuses to convert numbers of thousands of digits.
        raise refused(file, "contains a number with too many digits", fix) from None


def check_named_once(paths: Sequence[Path]) -> None:
    """Raise an error if a file is named twice."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise InputError(f"{path}: duplicate file; give it once")
        seen.add(path.resolve())


def check_writable(path: Path, *, overwrite: bool) -> None:
    """Raise an error if a file cannot be written, before any work is done."""
    with _refusals_said(path):
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file in it")
        with suppress(FileNotFoundError):
            # Circular links: from Python 3.13 on, `resolve` takes them.
            path.stat()
        if path.exists() and not overwrite:
            raise _exists(path)
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is not a regular file; name another file")
        folder = path.resolve().parent
        if not folder.is_dir():
            raise InputError(f"{path}: the folder '{folder}' does not exist; create it first")
    # Permissions do not suffice: file systems can be read-only or full.
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{path}: the folder '{path.parent}' cannot be written ({error.strerror});"
            " choose another file"
        ) from None


def write_atomically(path: Path, content: str | bytes, *, overwrite: bool) -> None:
    """Write `content` to `path` completely, or leave the old file."""
    write_together({path: content}, overwrite=overwrite)


def write_together(contents: Mapping[Path, str | bytes], *, overwrite: bool) -> None:
    """Write all files completely, or leave all old files.

    Without `overwrite`, a file that another process created in the meantime is not replaced.
    """
    for path in contents:
        check_writable(path, overwrite=overwrite)
    written: list[tuple[Path, Path]] = []
    created: list[Path] = []
    try:
        for path, content in contents.items():
            written.append(_temporary_file(path, content))
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
        # A successful replace removed the temporary file; otherwise it is removed here.
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


def _create(temporary: Path, target: Path) -> None:
    """Rename `temporary` to `target`, which must not exist."""
    try:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):
            # No hard links on this file system: reserve the name with an empty file.
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            try:
                temporary.replace(target)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise _exists(target) from None


def _exists(path: Path) -> InputError:
    return InputError(f"{path}: exists; add {argument('overwrite', True)} to overwrite it")


def _temporary_file(path: Path, content: str | bytes) -> tuple[Path, Path]:
    """Write `content` to a temporary file next to `path`; return it and its target."""
    # File names in the content need not be valid Unicode.
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with _refusals_said(path):
        # Replace the target of a link, not the link.
        target = path.resolve()
        # The target's name may already have the maximum length.
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
    """Turn errors of the system on `path` into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}; choose another file"
        ) from None
    except (RuntimeError, ValueError) as error:
        # Circular links before Python 3.13, and names with a NUL.
        raise InputError(f"{path}: cannot be written: {error}; choose another file") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
