"""Training on several ranks in files: the formats, and what is checked before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roofline.presentation.formats import PICTURED, check_formats, rendered, write_formats
from roofline.presentation.reports.scaling_report import scaling_report
from roofline.scaling.data import points_csv
from roofline.scaling.result import Scaling

_WHAT = "training on several ranks"


def render_scaling(scaling: Scaling, format: str) -> str | bytes:
    """The result in a format: text, or bytes for ``png``.

    Raises:
        InputError: another format.
    """
    return rendered(
        scaling,
        format,
        what=_WHAT,
        report=lambda: scaling_report(scaling),
        csv=lambda: points_csv(scaling),
    )


def check_scaling_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: a suffix that such results are not written with, or as `check_formats`.
    """
    check_formats(paths, PICTURED, _WHAT, overwrite=overwrite)


def write_scaling(scaling: Scaling, paths: Sequence[Path], *, overwrite: bool = False) -> None:
    """Writes the result to each of `paths`, in the format of its suffix: all, or none.

    Raises:
        InputError: as `check_scaling_targets`, or the disk refuses.
    """
    render = partial(render_scaling, scaling)
    write_formats(paths, PICTURED, _WHAT, render, overwrite=overwrite)
