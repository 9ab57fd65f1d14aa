"""``roofline crosscheck MODEL``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from roofline.cli import candidates
from roofline.cli.options import (
    file_options,
    files_among,
    named_model,
    output_options,
    workload_options,
)
from roofline.cli.results import present_result


@click.command("crosscheck")
@click.argument("model", callback=named_model, shell_complete=candidates.models)
@workload_options
@file_options
@click.option(
    "--train", is_flag=True, help="A forward and a backward pass; most counters see only the first."
)
@output_options(".json .csv .md .html")
@click.option(
    "--format",
    "stdout_format",
    type=click.Choice(["json", "csv", "md", "html"]),
    help="Write this to stdout in place of the tables (with or without -o -).",
)
def command(
    model: str,
    inputs: tuple[str, ...],
    batch: int | None,
    seq: int | None,
    dtype: str | None,
    train: bool,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: str | None,
) -> None:
    """Count MODEL with other counters as well, and say why their numbers differ.

    torch's FlopCounterMode, fvcore, DeepSpeed's profiler and torchlens are asked, as far as they
    are installed (pip install 'roofline[crosscheck]'; DeepSpeed by itself). They run the model for
    real, with random weights, where these fit into memory. MODEL is what analyze takes.
    """
    from roofline.counters import Crosscheck
    from roofline.foundation.blocks import View

    files = files_among(outputs, stdout_format)
    Crosscheck.check_files(files, overwrite=force)
    from roofline.pipeline import crosscheck

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr):
        result = crosscheck(
            model, list(inputs) or None, dtype=dtype, batch=batch, seq=seq, train=train
        )
    present_result(result, files, stdout_format=stdout_format, view=View(), force=force)
