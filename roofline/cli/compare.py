"""``roofline compare A B``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from roofline.cli import candidates
from roofline.cli.options import (
    machine_options,
    measuring_if_needed,
    output_options,
    result_console,
    run_options,
    say_written,
    workload_options,
)
from roofline.errors import InputError, nearest
from roofline.foundation.files import check_writable, write_atomically


@click.command("compare")
@click.argument(
    "models",
    nargs=-1,
    required=True,
    metavar="A B [C ...]",
    shell_complete=candidates.models_and_saved,
)
@click.option(
    "--reference",
    metavar="MODEL",
    shell_complete=candidates.models_given,
    help="What ratios refer to; default: the first.",
)
@workload_options
@run_options
@machine_options
@output_options(".json .csv .md")
def command(
    models: tuple[str, ...],
    reference: str | None,
    inputs: tuple[str, ...],
    batch: int | None,
    seq: int | None,
    dtype: str | None,
    train: bool,
    optimizer: str | None,
    autocast: str | None,
    channels_last: bool,
    device: str,
    hardware: str | None,
    threads: int | None,
    cold: bool,
    outputs: tuple[Path, ...],
    force: bool,
) -> None:
    """Hold models against each other on the same machine: FLOP, parameters, bytes, ceiling, bound.

    Each is what analyze takes as MODEL, or an analysis saved as .json. The options hold for all.
    """
    from roofline.presentation.reports.comparison_report import (
        check_suffix,
        comparison_report,
        render_comparison,
    )
    from roofline.presentation.table import print_report

    for path in outputs:
        check_suffix(path)
        check_writable(path, overwrite=force)
    if reference is not None and reference not in models:
        raise InputError(
            f"--reference '{reference}' is none of the models{nearest(reference, models)}"
        )
    from roofline.pipeline import compare

    # What the user's models print is not the result.
    with redirect_stdout(sys.stderr), measuring_if_needed() as progress:
        comparison = compare(
            *models,
            inputs=list(inputs) or None,
            reference=0 if reference is None else models.index(reference),
            hardware=hardware,
            dtype=dtype,
            train=train,
            optimizer=optimizer,
            autocast=autocast,
            channels_last=channels_last,
            device=device,
            batch=batch,
            seq=seq,
            threads=threads,
            cold=cold,
            progress=progress,
        )
    print_report(comparison_report(comparison), result_console())
    for path in outputs:
        write_atomically(path, render_comparison(comparison, path), overwrite=force)
    say_written(outputs)
