"""``roofline validate [MODELS…]``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TypeVar

import click

from roofline.cli import candidates
from roofline.cli.options import (
    OVERWRITE_OR_MEASURE,
    file_options,
    files_among,
    format_option,
    named_models,
    output_options,
)
from roofline.cli.results import present_result, progress_bar
from roofline.cli.streams import tell
from roofline.errors import MeasurementError

_T = TypeVar("_T")

_FROM_ONE = click.IntRange(min=1)


@click.command("validate")
@click.argument(
    "models",
    nargs=-1,
    metavar="[MODELS]...",
    callback=named_models,
    shell_complete=candidates.models,
)
@file_options
@click.option(
    "--batch", "batches", multiple=True, type=_FROM_ONE, metavar="N", help="Batch size; repeatable."
)
@click.option(
    "--threads", multiple=True, type=_FROM_ONE, metavar="N", help="Number of threads; repeatable."
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="TYPE",
    shell_complete=candidates.dtypes,
    help="Data type: float32, bfloat16 or float16; repeatable.",
)
@click.option(
    "--channels-last",
    is_flag=True,
    help="Channels-last memory format of images and convolution weights.",
)
@click.option(
    "--seq",
    type=_FROM_ONE,
    metavar="N",
    help="Sequence length (transformers models) [default: 128].",
)
@click.option(
    "--operators",
    type=click.Choice(["measured"]),
    help="Also validate predictions from operators timed alone.",
)
@click.option(
    "--designs",
    is_flag=True,
    help="Also validate speedups of depthwise-separable over standard convolutions.",
)
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="CONDITION",
    help="Exit code 4 on 'mape>15%', 'within_10_percent<55%' …; repeatable.",
)
@click.option(
    "--top",
    type=_FROM_ONE,
    metavar="N",
    help="Number of runs in the table [default: 20].",
)
@click.option("--quick", is_flag=True, help="Fewer passes: faster, noisier.")
@output_options(".json .csv .md .html .png .svg", force=OVERWRITE_OR_MEASURE)
@format_option
def command(
    models: tuple[str, ...],
    batches: tuple[int, ...],
    threads: tuple[int, ...],
    dtypes: tuple[str, ...],
    channels_last: bool,
    seq: int | None,
    operators: str | None,
    designs: bool,
    fail_if: tuple[str, ...],
    top: int | None,
    quick: bool,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: str | None,
) -> None:
    """Compare predicted with measured times of MODELS.

    Each model runs once for each batch size, number of threads and data type. It is predicted from
    calibration data of other families (`roofline calibrate`), then measured twice. The difference
    of the two measurements is the noise floor of predictions. Without MODELS, a list of torchvision
    models runs. Models that fail are reported and skipped.
    """
    from roofline.foundation.blocks import View
    from roofline.latency.thresholds import Condition, check_thresholds
    from roofline.latency.validation import Validation

    conditions = [Condition.parse(each) for each in fail_if]
    files = files_among(outputs, stdout_format)
    Validation.check_files(files, overwrite=force)
    from roofline.pipeline.validations import validate

    # What the models print is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Validating") as progress:
        result = validate(
            _each_once(models),
            batches=_each_once(batches),
            threads=_each_once(threads),
            dtypes=_each_once(dtypes),
            channels_last=channels_last,
            seq=seq,
            operators_measured=operators == "measured",
            designs=designs,
            quick=quick,
            force=force,
            progress=progress,
            say=tell,
        )
    present_result(result, files, stdout_format=stdout_format, view=View(top=top), force=force)
    check_thresholds(conditions, result.totals)
    if not result.models and not result.ratios:
        raise MeasurementError("no model could be run: nothing was validated")


def _each_once(values: tuple[_T, ...]) -> list[_T] | None:
    """Return the values without duplicates; None for none at all."""
    return list(dict.fromkeys(values)) or None
