"""Results into files, each in the format that its suffix names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Unpack

from roofline.analysis import Analysis
from roofline.analysis.chrome_trace import NOT_MEASURED
from roofline.analysis.event_file import ONE_MACHINE, check_event_file
from roofline.design.machine_comparison import MachineComparison
from roofline.errors import InputError, nearest
from roofline.foundation.blocks import View, ViewOptions, safe
from roofline.foundation.files import write_atomically
from roofline.presentation.data import machines_csv
from roofline.presentation.formats import PICTURED, Pictured, check_files
from roofline.presentation.pictures import Picture
from roofline.presentation.reports.machines_report import machines_report
from roofline.render.markdown import report_markdown

Format = Pictured | Literal["trace", "tensorboard"]

FORMATS: dict[str, Format] = {
    **PICTURED,
    ".trace.json": "trace",
    ".tfevents": "tensorboard",
}
"""The format that each suffix of a file chooses; of two that fit, the longer does."""


def format_of(path: Path) -> Format:
    """The format that the suffix of `path` chooses.

    Raises:
        InputError: an unknown suffix; the message names the known ones and the nearest.
    """
    suffix = path.suffix.lower()
    fitting = [each for each in FORMATS if suffix and path.name.lower().endswith(each)]
    if not fitting:
        known = ", ".join(FORMATS)
        what = f"unknown suffix '{suffix}'" if suffix else "no suffix"
        both = "".join(path.suffixes[-2:]).lower()
        near = nearest(both, FORMATS) or nearest(suffix, FORMATS)
        raise InputError(f"{path}: {what}; the known ones are {known}{near}")
    return FORMATS[max(fitting, key=len)]


_USUAL = Picture()

Result = Analysis | MachineComparison
"""What can be written."""


def render(
    result: Result, format: Format, *, picture: Picture = _USUAL, **view: Unpack[ViewOptions]
) -> str | bytes:
    """The result in a format: text, or bytes for ``png`` and ``tensorboard``.

    Args:
        result: what to render; ``json`` keeps all of it, the others what they can show.
        format: one of the values of `FORMATS`.
        picture: how ``png`` and ``svg`` are drawn.
        view: how to look at it, the fields of `View`: what the rows of ``md``, ``html`` and
            ``csv`` are, and how many the first two have.

    Raises:
        InputError: a ``trace`` of what was not measured, an event file of several machines, or a
            picture that cannot be drawn so.
    """
    if isinstance(result, Analysis):
        return result.render(format, View(**view), **picture.options)
    match format:
        case "json":
            return result.to_json()
        case "csv":
            return machines_csv(result)
        case "md":
            return report_markdown(machines_report(result, **view))
        case "html":
            from roofline.analysis.page import machines_page

            report = safe(machines_report(result, **view))
            return machines_page(result.names, result.analyses, report)
        case "png" | "svg":
            from roofline.presentation.drawing import savefig_bytes

            drawn = savefig_bytes(picture.figure(result), format)
            return drawn if format == "png" else drawn.decode("utf-8")
        case "trace":
            raise InputError(
                f"a trace shows one measured pass, and this result is one model on"
                f" {len(result.analyses)} machines; {NOT_MEASURED}"
            )
        case "tensorboard":
            raise InputError(ONE_MACHINE)


def check_targets(
    paths: Sequence[Path],
    *,
    overwrite: bool,
    will_be_measured: bool = True,
    are_several: bool = False,
) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Args:
        paths: the files.
        overwrite: whether they may exist.
        will_be_measured: whether the result will have measured times, which a trace needs.
        are_several: whether it will be of several passes or machines, which no event file shows.

    Raises:
        InputError: an unknown suffix, a trace of what is not measured, an event file that cannot be
            made (as `check_event_file`), or as `check_files`.
    """

    def check_format(path: Path) -> None:
        if format_of(path) == "trace" and not will_be_measured:
            raise InputError(f"{path}: {NOT_MEASURED}")
        if format_of(path) == "tensorboard":
            check_event_file(path, are_several=are_several)

    check_files(paths, check_format, overwrite=overwrite)


def write(
    result: Result,
    paths: Sequence[Path],
    *,
    overwrite: bool = False,
    picture: Picture = _USUAL,
    **view: Unpack[ViewOptions],
) -> None:
    """Writes the result to each of `paths`, whole or not at all, in the format of its suffix.

    All targets are checked and all contents made before the first is written.

    Raises:
        InputError: as `check_targets` and `render`, or the disk refuses.
    """
    check_targets(paths, overwrite=overwrite)
    contents = [render(result, format_of(path), picture=picture, **view) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        write_atomically(path, content, overwrite=overwrite)
