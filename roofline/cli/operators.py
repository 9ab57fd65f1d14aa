"""``roofline operators``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from roofline.cli import candidates
from roofline.cli.options import (
    file_options,
    files_among,
    named_model,
    output_options,
    run_options,
    workload_options,
)
from roofline.cli.results import present_result
from roofline.errors import InputError

if TYPE_CHECKING:
    from roofline.workload.formulas.catalogue import Missing


@click.command("operators")
@click.argument("pattern", required=False)
@click.option("--type", "type_", metavar="TYPE", help="Only those of a kind: convolution, …")
@click.option(
    "--missing",
    metavar="MODEL",
    callback=named_model,
    shell_complete=candidates.models,
    help="What this model needs and has no formula; the options below say how it is run.",
)
@workload_options
@file_options
@run_options
@output_options(".json .csv .md")
@click.option(
    "--format",
    "stdout_format",
    type=click.Choice(["json", "csv", "md"]),
    help="Write this to stdout in place of the table (with or without -o -).",
)
@click.pass_context
def command(
    context: click.Context,
    pattern: str | None,
    type_: str | None,
    missing: str | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md"] | None,
    **options: Any,
) -> None:
    """List the operators that have a formula: its FLOP and bytes in words, and where it stands.

    PATTERN is the name of an operator (aten.mm), a part of it (pool) or a pattern ('conv*').

    --missing MODEL lists instead what MODEL calls that has no formula, with the beginning of one
    to paste; MODEL and its options are what analyze takes. It exits with 0 either way: analyze
    --min-coverage is what fails.
    """
    from roofline.foundation.blocks import View
    from roofline.workload.formulas.catalogue import Operators, catalogue, matching, of_type

    files = files_among(outputs, stdout_format)
    Operators.check_files(files, overwrite=force)
    result: Operators | Missing
    if missing is None:
        _refuse(context, options, "has no effect without --missing MODEL")
        every = catalogue()
        entries = every if type_ is None else of_type(every, type_)
        if pattern is not None:
            entries = matching(entries, pattern)
        result = Operators(known=len(every), operators=entries)
    else:
        _refuse(context, ("pattern", "type_"), "has no effect beside --missing")
        from roofline.pipeline.operators import missing_operators

        inputs = options.pop("inputs")
        # What the user's model prints is not the result.
        with redirect_stdout(sys.stderr):
            result = missing_operators(missing, list(inputs) or None, **options)
    present_result(result, files, stdout_format=stdout_format, view=View(), force=force)


def _refuse(context: click.Context, names: Any, why: str) -> None:
    """Refuses options among `names` that were given.

    Raises:
        InputError: naming the first.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            what = "PATTERN" if isinstance(parameter, click.Argument) else parameter.opts[0]
            raise InputError(f"{what} {why}")
