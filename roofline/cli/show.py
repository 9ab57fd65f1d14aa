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
from roofline.cli.results import present, present_result
from roofline.errors import InputError

if TYPE_CHECKING:
    from roofline.foundation.blocks import By, View
    from roofline.result import Result


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
    from roofline.design.machine_comparison import (
        MachineComparison,
        is_machine_comparison,
        machine_comparison_from_data,
    )
    from roofline.foundation.blocks import View
    from roofline.foundation.reading import read_json
    from roofline.presentation.output import check_targets
    from roofline.result import result_from_data

    view = View(by=by, top=top, depth=depth, fused=fused)
    files = files_among(outputs, stdout_format)
    check_targets(files, overwrite=force)
    picture = picture_of(layers=layers, paper=paper, files=files, stdout_format=stdout_format)
    if file.suffix == ".toml" and file.is_file():
        raise InputError(f"{file}: is a machine's profile; write roofline hardware show {file}")
    data = read_json(file, fix="make it anew with `roofline analyze MODEL -o FILE.json`")
    several = is_machine_comparison(data)
    result = (machine_comparison_from_data if several else result_from_data)(data, file=str(file))
    if not isinstance(result, (Analysis, MachineComparison)):
        _show_result(result, file, files, stdout_format, view, force=force, layers=layers)
        return
    # Refused before anything is printed.
    was_measured = isinstance(result, Analysis) and kind_of_time(result) == "measured"
    check_targets(files, overwrite=force, will_be_measured=was_measured, are_several=several)
    present(
        result,
        files,
        stdout_format=stdout_format,
        view=view,
        force=force,
        picture=picture,
    )


def _show_result(
    result: Result,
    file: Path,
    files: tuple[Path, ...],
    stdout_format: str | None,
    view: View,
    *,
    force: bool,
    layers: bool,
) -> None:
    if layers:
        raise InputError(f"{file}: is of kind '{result.kind}'; --layers is for analyses only")
    if view.by != "operator" or view.depth is not None or view.fused:
        raise InputError(
            f"{file}: is of kind '{result.kind}'; --by, --depth and --fused are for analyses only"
        )
    result.check_files(files, overwrite=force)
    present_result(result, files, stdout_format=stdout_format, view=view, force=force)
