"""What all kinds of results share where they are written: formats, suffixes, and files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from roofline.errors import InputError, nearest
from roofline.foundation.files import check_writable, write_together


def suffix_of(path: Path) -> str:
    """What chooses the format of a file, in small letters: ``.json``, ``.trace.json``."""
    return ".trace.json" if path.name.lower().endswith(".trace.json") else path.suffix.lower()


def check_suffix_among(path: Path, suffixes: Collection[str], what: str) -> None:
    """Refuses a file whose suffix is none of those that `what` is written with.

    Raises:
        InputError: naming the known ones and the nearest.
    """
    suffix = suffix_of(path)
    if suffix not in suffixes:
        known = ", ".join(suffixes)
        raise InputError(f"{path}: {what} is written as {known}{nearest(suffix, suffixes)}")


def check_files(
    paths: Sequence[Path], check_format: Callable[[Path], object], *, overwrite: bool
) -> None:
    """Refuses, before any work is done, files that could not be written in the end.

    Args:
        paths: the files.
        check_format: refuses one whose suffix chooses no format.
        overwrite: whether they may exist.

    Raises:
        InputError: as `check_format` and `check_writable`, or the same file twice.
    """
    seen: set[Path] = set()
    for path in paths:
        check_format(path)
        check_writable(path, overwrite=overwrite)
        if path.resolve() in seen:
            raise InputError(f"{path}: is named twice; give each file once")
        seen.add(path.resolve())


def check_formats(
    paths: Sequence[Path], formats: Mapping[str, str], what: str, *, overwrite: bool
) -> None:
    """Refuses, before any work is done, files that could not be written in the end.

    Args:
        paths: the files.
        formats: what `what` is written as, by suffix.
        what: the kind of result, with its article.
        overwrite: whether they may exist.

    Raises:
        InputError: a suffix that is none of `formats`, or as `check_files`.
    """
    check_format = partial(check_suffix_among, suffixes=formats, what=what)
    check_files(paths, check_format, overwrite=overwrite)


def write_formats(
    paths: Sequence[Path],
    formats: Mapping[str, str],
    what: str,
    render: Callable[[str], str | bytes],
    *,
    overwrite: bool,
) -> None:
    """Writes to each of `paths` what `render` gives for the format of its suffix: all, or none.

    Raises:
        InputError: as `check_formats` and `render`, or the disk refuses.
    """
    check_formats(paths, formats, what, overwrite=overwrite)
    contents = {path: render(formats[suffix_of(path)]) for path in paths}
    write_together(contents, overwrite=overwrite)
