"""Comparisons of models into files and onto stdout, each in the format that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.result import Comparison
from roofline.errors import InputError
from roofline.foundation.files import write_atomically
from roofline.presentation.formats import rendered
from roofline.presentation.output import FORMATS, check_targets, format_of
from roofline.presentation.reports.comparison_report import comparison_csv, report_of_comparison
from roofline.presentation.reports.comparison_tables import CompareView

_FORMATS = ("json", "csv", "md", "html", "png", "svg")

_WHAT = "a comparison"

Compared = Comparison | ComparisonGrid
"""Models on one machine, or on several."""


def render_comparison(
    comparison: Compared, format: str, view: CompareView | None = None
) -> str | bytes:
    """The comparison in a format: text, or bytes for ``png``.

    Args:
        comparison: what to render; ``json`` keeps all of it.
        format: json, csv, md, html, png or svg.
        view: which modules ``md`` and ``html`` put side by side.

    Raises:
        InputError: another format.
    """
    return rendered(
        comparison,
        format,
        what=_WHAT,
        report=lambda: report_of_comparison(comparison, view),
        csv=lambda: comparison_csv(comparison),
    )


def check_comparison_targets(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: a format that comparisons are not written in, or as `check_targets`.
    """
    for path in paths:
        if format_of(path) not in _FORMATS:
            known = ", ".join(suffix for suffix, name in FORMATS.items() if name in _FORMATS)
            raise InputError(f"{path}: {_WHAT} is written as {known}")
    check_targets(paths, overwrite=overwrite)


def write_comparison(
    comparison: Compared,
    paths: Sequence[Path],
    *,
    overwrite: bool = False,
    view: CompareView | None = None,
) -> None:
    """Writes the comparison to each of `paths`, in the format of its suffix.

    All targets are checked and all contents made before the first is written.

    Raises:
        InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
    """
    check_comparison_targets(paths, overwrite=overwrite)
    contents = [render_comparison(comparison, format_of(path), view) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        write_atomically(path, content, overwrite=overwrite)
