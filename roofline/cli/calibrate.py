"""``roofline calibrate``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from roofline.cli import candidates
from roofline.cli.results import progress_bar, result_console
from roofline.cli.streams import tell


@click.command("calibrate")
@click.option("--quick", is_flag=True, help="In a minute: fewer models, and wider intervals.")
@click.option(
    "--fresh", is_flag=True, help="Forget what earlier calibrations measured, and begin anew."
)
@click.option("--force", is_flag=True, help="Measure although the machine is busy.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="TYPE",
    shell_complete=candidates.calibrated_dtypes,
    help="Of parameters, buffers and inputs: float32, bfloat16, float16; or int8, in which layers"
    " are quantised; repeatable. By default those that the CPU computes in.",
)
def command(quick: bool, fresh: bool, force: bool, dtypes: tuple[str, ...]) -> None:
    """Learn how fast torch runs on this machine, in five minutes.

    Models of many families run here, and every operator of theirs is timed in place. From then on
    analyze and predict say what a model is expected to take, with an interval. What was learned is
    kept beside the machine's profile, with its error on models of families that were left out.
    Stop what else runs on the machine first. Ctrl-C keeps what is learned; the next call goes on.
    """
    from roofline.pipeline.calibrations import calibrate
    from roofline.presentation.reports.calibration_report import calibration_report
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
    print_report(calibration_report(result), result_console())
    if result.interrupted:
        raise KeyboardInterrupt
