"""Sweeps into files, each in the format that its suffix names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roofline.design.sweeps.result import SweepResult
from roofline.design.sweeps.ridge import RidgeSweep
from roofline.errors import InputError
from roofline.foundation.blocks import Report
from roofline.foundation.files import write_atomically
from roofline.presentation.formats import rendered
from roofline.presentation.output import Format, format_of
from roofline.presentation.reports.ridge_report import ridge_csv, ridge_report
from roofline.presentation.reports.sweep_report import sweep_csv, sweep_report

Sweep = SweepResult | RidgeSweep


def report_of_sweep(result: Sweep) -> Report:
    """The report on a sweep of either kind."""
    return sweep_report(result) if isinstance(result, SweepResult) else ridge_report(result)


def render_sweep(result: Sweep, format: Format) -> str | bytes:
    """The sweep in a format: text, or bytes for ``png``.

    Raises:
        InputError: a ``trace``.
    """
    if format == "trace":
        raise InputError("a sweep is not a run that was timed, and has no trace")
    return rendered(
        result,
        format,
        what="a sweep",
        report=lambda: report_of_sweep(result),
        csv=lambda: _csv(result),
    )


def _csv(result: Sweep) -> str:
    return sweep_csv(result) if isinstance(result, SweepResult) else ridge_csv(result)


def write_sweep(result: Sweep, paths: Sequence[Path], *, overwrite: bool) -> None:
    """Writes a sweep to each of `paths`; all contents are made before the first is written.

    Raises:
        InputError: a suffix that is not known, or the disk refuses.
    """
    contents = [render_sweep(result, format_of(path)) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        write_atomically(path, content, overwrite=overwrite)
