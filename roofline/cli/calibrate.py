"""``roofline calibrate``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from roofline.cli import candidates
from roofline.cli.results import progress_bar, result_console
from roofline.cli.streams import tell


@click.command("calibrate")
@click.option("--quick", is_flag=True, help="Within a minute: fewer models, wider intervals.")
@click.option("--fresh", is_flag=True, help="Discard data of earlier calibrations.")
@click.option("--force", is_flag=True, help="Measure on a busy machine.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="TYPE",
    shell_complete=candidates.calibrated_dtypes,
    help="float32, bfloat16, float16 or int8; repeatable [default: those of the CPU].",
)
def command(quick: bool, fresh: bool, force: bool, dtypes: tuple[str, ...]) -> None:
    """Calibrate predictions on this machine, in five minutes.

    Models of many families run here, and each of their operators is timed in place. From then on
    analyze and predict give predicted times with a prediction interval. The data is stored next to
    the machine's profile; its error is judged on models of families that were left out. Stop other
    processes first. Ctrl-C keeps the data; the next call continues there.
    """
    from roofline.pipeline.calibrations import calibrate
    from roofline.render.console import print_report

    # What the models print is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Calibrating") as progress:
        result = calibrate(
            quick=quick,
            fresh=fresh,
            dtypes=list(dict.fromkeys(dtypes)) or None,
            force=force,
            progress=progress,
            say=tell,
        )
    print_report(result.report(), result_console())
    if result.interrupted:
        raise KeyboardInterrupt
