"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from roofline.errors import InputError


def check_named_once(paths: Sequence[Path]) -> None:
    """Refuse the same file twice.

    Raises:
        InputError: naming it.
    """
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise InputError(f"{path}: is named twice; give each file once")
        seen.add(path.resolve())


def check_writable(path: Path, *, overwrite: bool) -> None:
    """Refuses, before any work is done, a file that could not be written in the end.

    Raises:
        InputError: it exists and `overwrite` is false, it is a folder, its folder is missing or
            not writable, or no file can have that name.
    """
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
    """Writes `content` to `path` whole, or leaves what was there.

    Raises:
        InputError: as `check_writable`, or the disk refuses.
    """
    write_together({path: content}, overwrite=overwrite)


def write_together(contents: Mapping[Path, str | bytes], *, overwrite: bool) -> None:
    """Writes files that belong together: all of them whole, or what was there is left.

    Without `overwrite` a file that another process made in the meantime is never replaced.

    Raises:
        InputError: as `check_writable`, or the disk refuses; nothing was replaced then, unless the
            disk fails between two replacements.
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
    """Gives what lies at `temporary` the name of a file that does not exist.

    Raises:
        InputError: it exists by now.
    """
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
