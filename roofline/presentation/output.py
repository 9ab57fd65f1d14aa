"""Results into files, each in the format that its suffix names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Unpack

from roofline.analysis import Analysis, to_json
from roofline.design.machine_comparison import MachineComparison
from roofline.errors import InputError, nearest
from roofline.foundation.files import check_writable, write_atomically
from roofline.presentation.data import machines_csv, to_csv
from roofline.presentation.markdown import report_markdown
from roofline.presentation.reports.analysis_report import report_of
from roofline.presentation.reports.machines_report import machines_report
from roofline.presentation.reports.report import Report, ViewOptions

Format = Literal["json", "csv", "md", "html", "png", "svg"]

FORMATS: dict[str, Format] = {
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".html": "html",
    ".png": "png",
    ".svg": "svg",
}
"""The format that each suffix of a file chooses."""


def format_of(path: Path) -> Format:
    """The format that the suffix of `path` chooses.

    Raises:
        InputError: an unknown suffix; the message names the known ones and the nearest.
    """
    suffix = path.suffix.lower()
    found = FORMATS.get(suffix)
    if found is None:
        known = ", ".join(FORMATS)
        what = f"unknown suffix '{suffix}'" if suffix else "no suffix"
        raise InputError(f"{path}: {what}; the known ones are {known}{nearest(suffix, FORMATS)}")
    return found


Result = Analysis | MachineComparison
"""What can be written."""


def render(result: Result, format: Format, **view: Unpack[ViewOptions]) -> str | bytes:
    """The result in a format: text, or bytes for ``png``.

    Args:
        result: what to render; ``json`` keeps all of it, the others what they can show.
        format: one of the values of `FORMATS`.
        view: how to look at it, the fields of `View`: what the rows of ``md``, ``html`` and
            ``csv`` are, and how many the first two have.
    """
    match format:
        case "json":
            return to_json(result) if isinstance(result, Analysis) else result.to_json()
        case "csv":
            if isinstance(result, Analysis):
                return to_csv(result, **view)
            return machines_csv(result)
        case "md":
            return report_markdown(_report(result, view))
        case "html":
            from roofline.presentation.drawing import savefig_bytes
            from roofline.presentation.page import page_html

            picture = savefig_bytes(result.plot(), "svg").decode("utf-8")
            return page_html(_report(result, view), picture)
        case "png" | "svg":
            from roofline.presentation.drawing import savefig_bytes

            picture = savefig_bytes(result.plot(), format)
            return picture if format == "png" else picture.decode("utf-8")


def _report(result: Result, view: ViewOptions) -> Report:
    if isinstance(result, Analysis):
        return report_of(result, **view)
    return machines_report(result, **view)


def check_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: an unknown suffix, the same file twice, or as `check_writable`.
    """
    seen: set[Path] = set()
    for path in paths:
        format_of(path)
        check_writable(path, overwrite=overwrite)
        if path.resolve() in seen:
            raise InputError(f"{path}: is named twice; give each file once")
        seen.add(path.resolve())


def write(
    result: Result,
    paths: Sequence[Path],
    *,
    overwrite: bool = False,
    **view: Unpack[ViewOptions],
) -> None:
    """Writes the result to each of `paths`, whole or not at all, in the format of its suffix.

    All targets are checked and all contents made before the first is written.

    Raises:
        InputError: as `check_targets`, or the disk refuses.
    """
    check_targets(paths, overwrite=overwrite)
    contents = [render(result, format_of(path), **view) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        write_atomically(path, content, overwrite=overwrite)
