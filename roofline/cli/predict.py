"""``roofline predict MODEL``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from roofline.cli import candidates
from roofline.cli.options import (
    OVERWRITE_OR_MEASURE,
    file_options,
    files_among,
    format_option,
    hardware_option,
    named_model,
    output_options,
    run_options,
    threads_option,
    view_options,
    workload_options,
)
from roofline.cli.results import check_analysis_files, present_result, progress_bar
from roofline.cli.streams import tell

if TYPE_CHECKING:
    from roofline.foundation.blocks import By


@click.command("predict")
@click.argument("model", callback=named_model, shell_complete=candidates.models)
@workload_options
@file_options
@run_options
@hardware_option
@threads_option
@click.option(
    "--operators",
    type=click.Choice(["learned", "measured"]),
    default="learned",
    show_default=True,
    help="Where their times come from: a calibration, or a run of each different one, here.",
)
@view_options
@output_options(".json .csv .md .html .png .svg .tfevents", force=OVERWRITE_OR_MEASURE)
@format_option
def command(
    model: str,
    inputs: tuple[str, ...],
    batch: int | None,
    seq: int | None,
    dtype: str | None,
    train: bool,
    optimizer: str | None,
    autocast: str | None,
    channels_last: bool,
    device: str | None,
    hardware: str | None,
    threads: int | None,
    operators: Literal["learned", "measured"],
    by: By,
    top: int | None,
    depth: int | None,
    fused: bool,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None,
) -> None:
    """Say how long MODEL will take, with an interval, without running it.

    What is predicted follows from what was measured on the machine (`roofline calibrate`); of a
    machine without that there are only bounds, and nothing is made up. MODEL is what analyze takes.
    """
    from roofline.foundation.blocks import View

    view = View(by=by, top=top, depth=depth, fused=fused)
    files = files_among(outputs, stdout_format)
    check_analysis_files(files, overwrite=force, is_measured=False)
    from roofline.pipeline.advising import with_findings
    from roofline.pipeline.predictions import predict

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Predicting") as progress:
        result = predict(
            model,
            list(inputs) or None,
            hardware=hardware,
            dtype=dtype,
            batch=batch,
            seq=seq,
            threads=threads,
            train=train,
            optimizer=optimizer,
            autocast=autocast,
            channels_last=channels_last,
            device=device,
            operators=operators,
            force=force,
            progress=progress,
            say=tell,
        )
    # In a loop of predictions nobody would read them.
    result = with_findings(result, hardware)
    present_result(result, files, stdout_format=stdout_format, view=view, force=force)
    if not any(each.predicted_s is not None for each in result.operators):
        name = result.hardware.name
        tell(f"No operator could be predicted on '{name}': these are bounds only")
