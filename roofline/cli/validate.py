"""``roofline validate [MODELS…]``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TypeVar

import click

from roofline.cli import candidates
from roofline.cli.options import FileName, file_options, files_among, named_models
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
    "--batch",
    "batches",
    multiple=True,
    type=_FROM_ONE,
    metavar="N",
    help="The first size of every input; repeatable.",
)
@click.option(
    "--threads",
    multiple=True,
    type=_FROM_ONE,
    metavar="N",
    help="Threads that compute; repeatable.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="TYPE",
    shell_complete=candidates.dtypes,
    help="Of parameters, buffers and inputs: float32, bfloat16, float16; repeatable.",
)
@click.option(
    "--channels-last",
    is_flag=True,
    help="Images, and weights of convolutions, with their channels last.",
)
@click.option(
    "--seq",
    type=_FROM_ONE,
    metavar="N",
    help="How many tokens a transformers model is given; default: 128.",
)
@click.option(
    "--operators",
    type=click.Choice(["measured"]),
    help="Also judge the prediction from operators that are timed one by one.",
)
@click.option(
    "--designs",
    is_flag=True,
    help="Also depthwise-separable against standard convolutions, over a grid of sizes.",
)
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="CONDITION",
    help="End with exit code 4 if so, as 'mape>15%' or 'within_10_percent<55%'; repeatable.",
)
@click.option(
    "--top",
    type=_FROM_ONE,
    metavar="N",
    help="How many runs the table has, the worst first; default: 20.",
)
@click.option("--quick", is_flag=True, help="Fewer passes: sooner, and noisier.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=FileName(),
    metavar="FILE",
    help="Write to FILE as well; the suffix says what: .json .csv .md .html .png .svg. Repeatable.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite files that exist; measure although the machine is busy.",
)
@click.option(
    "--format",
    "stdout_format",
    type=click.Choice(["json", "csv", "md", "html", "svg"]),
    help="Write this to stdout in place of the tables (with or without -o -).",
)
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
    """Predict MODELS, measure them, and say how far off the predictions were.

    Every model runs once for each batch, number of threads and data type. It is predicted from what
    was learned of other families than its own (`roofline calibrate`), then measured twice: what
    the two measurements differ by is the noise floor, and no prediction comes closer. Without
    MODELS, it takes a list of its own. Models that fail are reported and left out.
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
        raise MeasurementError("nothing was judged: no model could be run")


def _each_once(values: tuple[_T, ...]) -> list[_T] | None:
    """The values without those that are given twice; None for none at all."""
    return list(dict.fromkeys(values)) or None
