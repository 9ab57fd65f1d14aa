"""``roofline show FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from roofline.cli.options import (
    FileName,
    files_among,
    format_option,
    layers_options,
    output_options,
    picture_of,
    view_options,
)
from roofline.cli.results import check_analysis_files, present_result
from roofline.errors import InputError

if TYPE_CHECKING:
    from roofline.foundation.blocks import By


@click.command("show")
@click.argument("file", type=FileName())
@view_options
@layers_options
@output_options(".json .csv .md .html .png .svg .trace.json .tfevents")
@format_option
def command(
    file: Path,
    by: By,
    top: int | None,
    depth: int | None,
    fused: bool,
    layers: bool,
    paper: str | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None,
) -> None:
    """Show what is saved in FILE (.json); needs no torch.

    All kinds of results are shown.
    """
    from roofline.analysis import Analysis
    from roofline.analysis.times import kind_of_time
    from roofline.foundation.blocks import View
    from roofline.foundation.files import check_named_once
    from roofline.foundation.reading import read_json
    from roofline.result import result_from_data

    view = View(by=by, top=top, depth=depth, fused=fused)
    files = files_among(outputs, stdout_format)
    check_named_once(files)
    picture = picture_of(layers=layers, paper=paper, files=files, stdout_format=stdout_format)
    if file.suffix == ".toml" and file.is_file():
        raise InputError(f"{file}: is a machine's profile; write roofline hardware show {file}")
    data = read_json(file, fix="make it again with `roofline analyze MODEL -o FILE.json`")
    result = result_from_data(data, file=str(file))
    if isinstance(result, Analysis):
        is_measured = kind_of_time(result) == "measured"
        check_analysis_files(files, overwrite=force, is_measured=is_measured)
    else:
        result.check_files(files, overwrite=force)
        if layers:
            raise InputError(f"{file}: is of kind '{result.kind}'; --layers is for analyses only")
        # Comparisons have modules and types too.
        has_rows = "comparison" in result.kind
        if not has_rows and (view.by != "operator" or view.depth is not None or view.fused):
            raise InputError(
                f"{file}: is of kind '{result.kind}'; --by, --depth and --fused are for analyses"
                " only"
            )
    present_result(result, files, stdout_format=stdout_format, view=view, force=force, **picture)
