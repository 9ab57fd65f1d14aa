"""Results into files, each in the format that its suffix names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from roofline.analysis import Analysis, to_json
from roofline.design.machine_comparison import MachineComparison
from roofline.errors import InputError, nearest
from roofline.foundation.files import check_writable, write_atomically
from roofline.presentation.data import machines_csv, to_csv
from roofline.presentation.markdown import report_markdown, to_markdown
from roofline.presentation.reports.machines_report import machines_report
from roofline.presentation.reports.report import By

Format = Literal["json", "csv", "md", "png", "svg"]

FORMATS: dict[str, Format] = {
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
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


def render(result: Result, format: Format, *, by: By = "operator", top: int = 10) -> str | bytes:
    """The result in a format: text, or bytes for ``png``.

    Args:
        result: what to render; ``json`` keeps all of it, the others what they can show.
        format: one of the values of `FORMATS`.
        by: what the rows of ``md`` and ``csv`` are.
        top: how many rows ``md`` has.
    """
    match format:
        case "json":
            return to_json(result) if isinstance(result, Analysis) else result.to_json()
        case "csv":
            return to_csv(result, by=by) if isinstance(result, Analysis) else machines_csv(result)
        case "md":
            if isinstance(result, Analysis):
                return to_markdown(result, by=by, top=top)
            return report_markdown(machines_report(result, by=by, top=top))
        case "png" | "svg":
            from roofline.presentation.drawing import savefig_bytes

            picture = savefig_bytes(result.plot(), format)
            return picture if format == "png" else picture.decode("utf-8")


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
    by: By = "operator",
    top: int = 10,
) -> None:
    """Writes the result to each of `paths`, whole or not at all, in the format of its suffix.

    All targets are checked and all contents made before the first is written.

    Raises:
        InputError: as `check_targets`, or the disk refuses.
    """
    check_targets(paths, overwrite=overwrite)
    contents = [render(result, format_of(path), by=by, top=top) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        write_atomically(path, content, overwrite=overwrite)
