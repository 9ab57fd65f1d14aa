"""A machine's profile into files, each in the format that its suffix names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from roofline.errors import InputError, nearest
from roofline.foundation.files import write_atomically
from roofline.foundation.rows import json_text
from roofline.foundation.schema import to_data
from roofline.machine.hardware import HardwareProfile, profile_to_toml
from roofline.presentation.data import hardware_csv
from roofline.presentation.formats import check_files
from roofline.presentation.reports.hardware_report import hardware_report
from roofline.render.markdown import report_markdown

HARDWARE_SUFFIXES = (".toml", ".json", ".csv", ".md", ".html", ".png", ".svg")
"""What a profile can be written as; only ``.toml`` is read back."""


def check_suffix(path: Path) -> None:
    """Refuses a file whose suffix is none of `HARDWARE_SUFFIXES`.

    Raises:
        InputError: naming the known ones and the nearest.
    """
    suffix = path.suffix.lower()
    if suffix not in HARDWARE_SUFFIXES:
        what = f"unknown suffix '{suffix}'" if suffix else "no suffix"
        raise InputError(
            f"{path}: {what}; a machine is written as {', '.join(HARDWARE_SUFFIXES)}"
            f"{nearest(suffix, HARDWARE_SUFFIXES)}"
        )


def check_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before anything is measured, targets that could not be written in the end.

    Raises:
        InputError: an unknown suffix, or as `check_files`.
    """
    check_files(paths, check_suffix, overwrite=overwrite)


def render(profile: HardwareProfile, suffix: str) -> str | bytes:
    """The profile in the format of `suffix`, one of `HARDWARE_SUFFIXES`; bytes for ``.png``.

    ``.toml`` and ``.json`` hold all of it, ``.csv`` one line a figure without the curves.
    """
    match suffix.lower():
        case ".toml":
            return profile_to_toml(profile)
        case ".json":
            return json_text(to_data(profile))
        case ".csv":
            return hardware_csv(profile)
        case ".md":
            return report_markdown(hardware_report(profile))
        case ".html":
            from roofline.render.pages import page_html

            return page_html(hardware_report(profile), _picture(profile, "svg").decode("utf-8"))
        case ".png":
            return _picture(profile, "png")
        case _:
            return _picture(profile, "svg").decode("utf-8")


def write(profile: HardwareProfile, path: Path, *, overwrite: bool = False) -> None:
    """Writes the profile to `path`, whole or not at all, in the format of its suffix.

    Raises:
        InputError: as `check_targets`, or the disk refuses.
    """
    check_targets([path], overwrite=overwrite)
    write_atomically(path, render(profile, path.suffix), overwrite=overwrite)


def _picture(profile: HardwareProfile, format: Literal["png", "svg"]) -> bytes:
    from roofline.presentation.drawing import savefig_bytes
    from roofline.presentation.hardware_figure import plot_hardware

    return savefig_bytes(plot_hardware(profile), format)
