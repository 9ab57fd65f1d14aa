"""``roofline advise MODEL``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Literal

import click
from click.core import ParameterSource

from roofline.cli import candidates
from roofline.cli.options import (
    OVERWRITE_OR_MEASURE,
    file_options,
    files_among,
    hardware_option,
    named_model,
    output_options,
    run_options,
    threads_option,
    workload_options,
)
from roofline.cli.results import present_result, progress_bar
from roofline.cli.streams import tell
from roofline.errors import InputError


@click.command("advise")
@click.argument("model", callback=named_model, shell_complete=candidates.models_and_saved)
@workload_options
@file_options
@run_options
@hardware_option
@threads_option
@click.option(
    "--measure",
    is_flag=True,
    help="Try the findings on this machine, each in turn with the model as it is.",
)
@click.option("--quick", is_flag=True, help="With --measure: measure less.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many findings are shown, and tried; default: 10.",
)
@output_options(".json .csv .md .html", force=OVERWRITE_OR_MEASURE)
@click.option(
    "--format",
    "stdout_format",
    type=click.Choice(["json", "csv", "md", "html"]),
    help="Write this to stdout in place of the table (with or without -o -).",
)
@click.pass_context
def command(
    context: click.Context,
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
    hardware: str | None,
    threads: int | None,
    measure: bool,
    quick: bool,
    top: int | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html"] | None,
) -> None:
    """Say what could be changed of MODEL to save time, that which saves most first.

    Every finding has numbers of this model on this machine, and a saving that is predicted, or
    with --measure tried. MODEL is what analyze takes, or an analysis saved as .json, of which the
    findings are shown that are in it.
    """
    from roofline.design.advice import Advice, read_advice
    from roofline.foundation.blocks import View

    view = View(top=top)
    files = files_among(outputs, stdout_format)
    Advice.check_files(files, overwrite=force)
    if model.endswith(".json"):
        if measure:
            raise InputError(f"{model} is saved, and cannot be tried; give the model itself")
        _refuse_what_changes_it(context, model)
        advice = read_advice(model)
        if not advice.findings:
            tell(f"{model} holds no findings, which is also so where nobody looked for any")
    else:
        from roofline.pipeline.advising import advise

        # What the user's model prints is not the result.
        with redirect_stdout(sys.stderr), progress_bar("Advising") as progress:
            advice = advise(
                model,
                list(inputs) or None,
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
                measure=measure,
                quick=quick,
                top=view.rows(),
                force=force,
                progress=progress,
                say=tell,
            )
    present_result(advice, files, stdout_format=stdout_format, view=view, force=force)


_OF_REPORTS = ("model", "top", "outputs", "force", "stdout_format")


def _refuse_what_changes_it(context: click.Context, file: str) -> None:
    """Refuses options that say how a model is run, of which a file is the outcome.

    Raises:
        InputError: names the option.
    """
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name not in _OF_REPORTS and source is ParameterSource.COMMANDLINE:
            raise InputError(f"{parameter.opts[0]} has no effect on {file}, which is saved")
