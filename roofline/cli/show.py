"""``roofline show FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from roofline.cli.options import output_options, result_console, say_written, view_options


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@view_options
@output_options(".json .csv .md .png .svg")
def command(
    file: Path,
    by: Literal["operator", "module", "type"],
    top: int,
    outputs: tuple[Path, ...],
    force: bool,
) -> None:
    """Show the analysis saved in FILE (.json); needs no torch."""
    from roofline.analysis import read_analysis
    from roofline.presentation.output import check_targets, write
    from roofline.presentation.table import print_analysis

    check_targets(outputs, overwrite=force)
    analysis = read_analysis(file)
    print_analysis(analysis, result_console(), by=by, top=top)
    write(analysis, outputs, overwrite=force, by=by, top=top)
    say_written(outputs)
