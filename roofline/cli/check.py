"""``roofline check MODEL``."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Literal

import click

from roofline.cli import candidates
from roofline.cli.options import (
    FileName,
    file_options,
    files_among,
    hardware_option,
    named_model,
    output_options,
    run_options,
    threads_option,
    together,
    workload_options,
)
from roofline.cli.results import measuring_if_needed, present_result, say_written
from roofline.cli.streams import tell
from roofline.errors import InputError

_gate_options = together(
    click.option(
        "--against",
        type=FileName(),
        metavar="FILE.json",
        help="Baseline: written by --update, or a saved analysis.",
    ),
    click.option(
        "--fail-if",
        "fail_if",
        multiple=True,
        metavar="CONDITION",
        help="End with exit code 4: 'flop>+1%' and 'launches>+3' (more than the baseline),"
        " 'predicted_s>5ms'; repeatable.",
    ),
    click.option(
        "--update",
        is_flag=True,
        help="Write the cost of MODEL as the new baseline.",
    ),
)


@click.command("check")
@click.argument("model", callback=named_model, shell_complete=candidates.models)
@_gate_options
@workload_options
@file_options
@run_options
@hardware_option
@threads_option
@output_options(".json .md")
@click.option(
    "--format",
    "stdout_format",
    type=click.Choice(["json", "md"]),
    help="Write this to stdout in place of the table (with or without -o -).",
)
def command(
    model: str,
    against: Path | None,
    fail_if: tuple[str, ...],
    update: bool,
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
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "md"] | None,
) -> None:
    """Compare the cost of MODEL with a baseline; fail where it exceeds limits.

    Conditions are on flop, macs, traffic_bytes, parameters, peak_memory_bytes, launches,
    unknown_operators, eager_min_time_s, fused_min_time_s, model_min_time_s and predicted_s. Counts
    are those of the model alone and the same everywhere; times belong to a machine: give the same
    --hardware as for the baseline. What cannot be judged fails. MODEL is what analyze takes.
    """
    from roofline.design.gate import Check
    from roofline.foundation.blocks import View

    files = files_among(outputs, stdout_format)
    Check.check_files(files, overwrite=force)
    if against is not None and os.path.realpath(against) in map(os.path.realpath, files):
        raise InputError(f"{against}: is the baseline; give -o another name")
    from roofline.pipeline.checking import check

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), measuring_if_needed() as progress:
        result = check(
            model,
            list(inputs) or None,
            against=against,
            fail_if=fail_if,
            update=update,
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
            progress=progress,
        )
    # Files first: what is printed may end early, in a pipe that closes.
    view = View()
    result.write(files, view, overwrite=force)
    present_result(result, (), stdout_format=stdout_format, view=view, force=force)
    if update and against is not None:
        if fail_if:
            tell("--update: conditions are not judged against the baseline that is written")
        say_written((against,))
    say_written(files)
    result.raise_if_failed()
