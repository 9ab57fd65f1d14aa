"""``roofline analyze MODEL``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Literal

import click

from roofline.cli.options import (
    files_among,
    format_option,
    machine_options,
    measuring_if_needed,
    output_options,
    present,
    view_options,
    workload_options,
)
from roofline.errors import IncompleteError, InputError


def _fraction(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> float | None:
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(f"--min-coverage '{text}': write a percentage from 0 to 100, such as 95%")
    return value


@click.command("analyze")
@click.argument("model")
@workload_options
@machine_options
@view_options
@click.option(
    "--min-coverage",
    callback=_fraction,
    metavar="PERCENT",
    help="Exit with 3 if fewer of the operator calls have a formula.",
)
@output_options(".json .csv .md .png .svg")
@format_option
def command(
    model: str,
    inputs: tuple[str, ...],
    batch: int | None,
    dtype: str | None,
    hardware: str | None,
    threads: int | None,
    cold: bool,
    by: Literal["operator", "module", "type"],
    top: int,
    min_coverage: float | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "svg"] | None,
) -> None:
    """Count MODEL's operators and place them under a machine's ceilings.

    MODEL is a torchvision name (resnet50, torchvision:resnet50), package.module:factory, or
    file.py:Model. Nothing is downloaded and no weights are allocated. The machine is this one,
    measured on first use, or --hardware.
    """
    from roofline.presentation.output import check_targets

    files = files_among(outputs, stdout_format)
    check_targets(files, overwrite=force)
    from roofline.pipeline import analyze

    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), measuring_if_needed() as progress:
        analysis = analyze(
            model,
            list(inputs) or None,
            hardware=hardware,
            dtype=dtype,
            batch=batch,
            threads=threads,
            cold=cold,
            progress=progress,
        )
    present(analysis, files, stdout_format=stdout_format, by=by, top=top, force=force)
    if min_coverage is not None and analysis.coverage.calls < min_coverage:
        raise IncompleteError(
            f"coverage is {analysis.coverage.calls:.1%} of the operator calls, below"
            f" --min-coverage {min_coverage:.1%}; add formulas with @roofline.formula"
        )
