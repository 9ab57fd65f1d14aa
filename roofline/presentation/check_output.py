"""Checks into files and onto stdout: JSON, and the table as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roofline.design.gate import Check
from roofline.errors import InputError
from roofline.presentation.formats import check_formats, write_formats
from roofline.presentation.reports.check_report import check_report
from roofline.render.markdown import report_markdown

_FORMATS = {".json": "json", ".md": "md"}
"""What checks are written as, by suffix."""

_WHAT = "a check"


def render_check(check: Check, format: str) -> str:
    """The check in a format: json or md.

    Raises:
        InputError: another format.
    """
    match format:
        case "json":
            return check.to_json()
        case "md":
            return report_markdown(check_report(check))
        case _:
            raise InputError(f"{_WHAT} is not written as {format}")


def check_check_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: a suffix that checks are not written with, or as `check_formats`.
    """
    check_formats(paths, _FORMATS, _WHAT, overwrite=overwrite)


def write_check(check: Check, paths: Sequence[Path], *, overwrite: bool = False) -> None:
    """Writes the check to each of `paths`, in the format of its suffix: all, or none.

    Raises:
        InputError: as `check_check_targets`, or the disk refuses.
    """
    render = partial(render_check, check)
    write_formats(paths, _FORMATS, _WHAT, render, overwrite=overwrite)
