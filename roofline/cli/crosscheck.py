"""``roofline crosscheck MODEL``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from roofline.cli import candidates
from roofline.cli.options import (
    files_among,
    output_options,
    result_console,
    say_written,
    workload_options,
)
from roofline.cli.streams import put
from roofline.foundation.files import check_writable, write_atomically


@click.command("crosscheck")
@click.argument("model", shell_complete=candidates.models)
@workload_options
@click.option(
    "--train", is_flag=True, help="A forward and a backward pass; most counters see only the first."
)
@output_options(".json .md")
@click.option(
    "--format",
    "stdout_format",
    type=click.Choice(["json", "md"]),
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
    from roofline.presentation.reports.crosscheck_report import (
        check_suffix,
        crosscheck_report,
        render_crosscheck,
    )
    from roofline.presentation.table import print_report

    files = files_among(outputs, stdout_format)
    for path in files:
        check_suffix(path)
        check_writable(path, overwrite=force)
    from roofline.pipeline import crosscheck

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr):
        result = crosscheck(
            model, list(inputs) or None, dtype=dtype, batch=batch, seq=seq, train=train
        )
    if stdout_format is None:
        print_report(crosscheck_report(result), result_console())
    else:
        put(render_crosscheck(result, f".{stdout_format}"))
    for path in files:
        write_atomically(path, render_crosscheck(result, path.suffix), overwrite=force)
    say_written(files)
