"""``roofline show FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from roofline.cli.options import (
    FileName,
    files_among,
    format_option,
    output_options,
    present,
    view_options,
)


@click.command("show")
@click.argument("file", type=FileName())
@view_options
@output_options(".json .csv .md .png .svg")
@format_option
def command(
    file: Path,
    by: Literal["operator", "module", "type"],
    top: int,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "svg"] | None,
) -> None:
    """Show the analysis saved in FILE (.json); needs no torch."""
    from roofline.analysis import read_analysis
    from roofline.presentation.output import check_targets

    files = files_among(outputs, stdout_format)
    check_targets(files, overwrite=force)
    analysis = read_analysis(file)
    present(analysis, files, stdout_format=stdout_format, by=by, top=top, force=force)
