"""What all kinds of results share where they are written: formats, suffixes, and files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from roofline.errors import InputError, nearest
from roofline.foundation.files import check_writable
from roofline.presentation.markdown import report_markdown
from roofline.presentation.reports.report import Report


class Drawable(Protocol):
    """A result that knows its data and its picture."""

    def to_json(self) -> str:
        """All of it."""
        ...

    def plot(self) -> Any:
        """Its picture as a matplotlib Figure."""
        ...


def rendered(
    result: Drawable,
    format: str,
    *,
    what: str,
    report: Callable[[], Report],
    csv: Callable[[], str],
) -> str | bytes:
    """A result in a format: text, or bytes for ``png``.

    Args:
        result: what to render.
        format: json, csv, md, html, png or svg.
        what: what it is called, with its article.
        report: makes what ``md`` and ``html`` say.
        csv: makes its rows.

    Raises:
        InputError: another format.
    """
    match format:
        case "json":
            return result.to_json()
        case "csv":
            return csv()
        case "md":
            return report_markdown(report())
        case "html":
            from roofline.presentation.page import page_html

            return page_html(report(), _svg(result))
        case "svg":
            return _svg(result)
        case "png":
            from roofline.presentation.drawing import savefig_bytes

            return savefig_bytes(result.plot(), "png")
        case _:
            raise InputError(f"{what} is not written as {format}")


def _svg(result: Drawable) -> str:
    from roofline.presentation.drawing import savefig_bytes

    return savefig_bytes(result.plot(), "svg").decode("utf-8")


def check_suffix_among(path: Path, suffixes: Collection[str], what: str) -> None:
    """Refuses a file whose suffix is none of those that `what` is written with.

    Raises:
        InputError: naming the known ones and the nearest.
    """
    suffix = path.suffix.lower()
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
