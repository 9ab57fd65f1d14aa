"""Compilations into files and onto stdout, each in the format that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roofline.design.compilation import Compilation
from roofline.errors import InputError
from roofline.presentation.formats import check_formats, write_formats
from roofline.presentation.reports.compilation_report import compilation_report
from roofline.render.markdown import report_markdown

_FORMATS = {".json": "json", ".csv": "csv", ".md": "md", ".html": "html"}
"""What compilations are written as, by suffix."""

_WHAT = "what --compiled finds"


def render_compilation(
    compilation: Compilation, format: str, *, top: int | None = None
) -> str | bytes:
    """The compilation in a format, as text.

    Args:
        compilation: what to render; ``json`` keeps all of it, ``csv`` all kernels.
        format: json, csv, md or html.
        top: how many kernels ``md`` and ``html`` show.

    Raises:
        InputError: another format.
    """
    match format:
        case "json":
            return compilation.to_json()
        case "csv":
            return compilation.to_csv()
        case "md":
            return report_markdown(compilation_report(compilation, top=top))
        case "html":
            from roofline.presentation.drawing import savefig_bytes
            from roofline.render.pages import page_html

            picture = savefig_bytes(compilation.analysis.plot(), "svg").decode("utf-8")
            return page_html(compilation_report(compilation, top=top), picture)
        case _:
            raise InputError(
                f"{_WHAT} has no picture and is not written as {format}: there are"
                f" {', '.join(_FORMATS.values())}; leave --compiled out for a picture of the"
                " eager pass"
            )


def check_compilation_targets(
    paths: Sequence[Path], *, overwrite: bool, stdout_format: str | None = None
) -> None:
    """Refuses, before any work is done, targets that could not be written in the end.

    Raises:
        InputError: a suffix or format that there is not, or as `check_formats`.
    """
    if stdout_format is not None and stdout_format not in _FORMATS.values():
        raise InputError(
            f"--format {stdout_format}: {_WHAT} has no picture; there are"
            f" {', '.join(_FORMATS.values())}"
        )
    check_formats(paths, _FORMATS, _WHAT, overwrite=overwrite)


def write_compilation(
    compilation: Compilation,
    paths: Sequence[Path],
    *,
    top: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the compilation to each of `paths`, in the format of its suffix: all, or none.

    Raises:
        InputError: as `check_compilation_targets`, or the disk refuses.
    """
    render = partial(render_compilation, compilation, top=top)
    write_formats(paths, _FORMATS, _WHAT, render, overwrite=overwrite)
