"""``roofline profile MODEL``."""

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
    layers_options,
    named_model,
    output_options,
    picture_of,
    run_options,
    threads_option,
    view_options,
    workload_options,
)
from roofline.cli.results import check_analysis_files, present_result, progress_bar
from roofline.cli.streams import tell

if TYPE_CHECKING:
    from roofline.foundation.blocks import By


@click.command("profile")
@click.argument("model", callback=named_model, shell_complete=candidates.models)
@workload_options
@file_options
@run_options
@threads_option
@hardware_option
@click.option("--compiled", is_flag=True, help="Time torch.compile end to end too.")
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many passes count; default: as many as a few seconds hold.",
)
@click.option("--quick", is_flag=True, help="Fewer passes: sooner, and noisier.")
@click.option(
    "--no-learn",
    "learn",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not keep what was measured for later predictions.",
)
@view_options
@layers_options
@output_options(".json .csv .md .html .png .svg .trace.json .tfevents", force=OVERWRITE_OR_MEASURE)
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
    threads: int | None,
    hardware: str | None,
    compiled: bool,
    passes: int | None,
    quick: bool,
    learn: bool,
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
    """Run MODEL here, time every operator in place, and put it under this machine's roof.

    The model runs for real, with random weights. Passes that are timed as a whole alternate with
    passes in which every operator is timed; passes that others on the machine disturbed do not
    count. Times are medians, with their interquartile range (IQR). MODEL is what analyze takes.

    -o run.trace.json lays one pass out in time, for Perfetto (ui.perfetto.dev) or chrome://tracing.
    """
    from roofline.foundation.blocks import View

    view = View(by=by, top=top, depth=depth, fused=fused)
    files = files_among(outputs, stdout_format)
    check_analysis_files(files, overwrite=force)
    picture = picture_of(layers=layers, paper=paper, files=files, stdout_format=stdout_format)
    from roofline.pipeline.profiles import profile

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Measuring") as progress:
        result = profile(
            model,
            list(inputs) or None,
            dtype=dtype,
            batch=batch,
            seq=seq,
            threads=threads,
            hardware=hardware,
            train=train,
            optimizer=optimizer,
            autocast=autocast,
            channels_last=channels_last,
            device=device,
            compiled=compiled,
            passes=passes,
            quick=quick,
            learn=learn,
            force=force,
            progress=progress,
            say=tell,
        )
    present_result(result, files, stdout_format=stdout_format, view=view, force=force, **picture)
