"""Sweeps into files, each in the format that its suffix names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roofline.design.sweeps.result import SweepResult
from roofline.design.sweeps.ridge import RidgeSweep
from roofline.errors import InputError
from roofline.foundation.files import write_atomically
from roofline.presentation.markdown import report_markdown
from roofline.presentation.output import Format, format_of
from roofline.presentation.page import page_html
from roofline.presentation.reports.report import Report
from roofline.presentation.reports.ridge_report import ridge_csv, ridge_report
from roofline.presentation.reports.sweep_report import sweep_csv, sweep_report

Sweep = SweepResult | RidgeSweep


def report_of_sweep(result: Sweep) -> Report:
    """The report on a sweep of either kind."""
    return sweep_report(result) if isinstance(result, SweepResult) else ridge_report(result)


def render_sweep(result: Sweep, format: Format) -> str | bytes:
    """The sweep in a format: text, or bytes for ``png``."""
    match format:
        case "json":
            return result.to_json()
        case "csv":
            return sweep_csv(result) if isinstance(result, SweepResult) else ridge_csv(result)
        case "md":
            return report_markdown(report_of_sweep(result))
        case "png":
            return _picture(result)
        case "svg":
            return _drawing(result)
        case "html":
            return page_html(report_of_sweep(result), _drawing(result))
        case "trace":
            raise InputError("a sweep is not a run that was timed, and has no trace")


def _picture(result: Sweep) -> bytes:
    from roofline.presentation.drawing import savefig_bytes

    return savefig_bytes(result.plot(), "png")


def _drawing(result: Sweep) -> str:
    from roofline.presentation.drawing import savefig_bytes

    return savefig_bytes(result.plot(), "svg").decode("utf-8")


def write_sweep(result: Sweep, paths: Sequence[Path], *, overwrite: bool) -> None:
    """Writes a sweep to each of `paths`; all contents are made before the first is written.

    Raises:
        InputError: a suffix that is not known, or the disk refuses.
    """
    contents = [render_sweep(result, format_of(path)) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        write_atomically(path, content, overwrite=overwrite)
