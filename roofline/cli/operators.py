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
from roofline.cli.results import result_console, say_written
from roofline.cli.streams import put
from roofline.errors import InputError
from roofline.foundation.files import write_atomically

if TYPE_CHECKING:
    from roofline.workload.formulas.missing import Missing


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
    from roofline.presentation.formats import check_files
    from roofline.presentation.reports.operators_report import check_suffix

    files = files_among(outputs, stdout_format)
    check_files(files, check_suffix, overwrite=force)
    if missing is None:
        _refuse(context, options, "has no effect without --missing MODEL")
        contents = _known(pattern, type_, stdout_format, files)
    else:
        _refuse(context, ("pattern", "type_"), "has no effect beside --missing")
        contents = _missing(missing, options, stdout_format, files)
    for path, content in zip(files, contents, strict=True):
        write_atomically(path, content, overwrite=force)
    say_written(files)


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


def _known(
    pattern: str | None, kind: str | None, stdout_format: str | None, files: tuple[Path, ...]
) -> list[str]:
    """Prints the operators that have a formula; gives the contents of `files`."""
    from roofline.presentation.reports.operators_report import operators_report, render_operators
    from roofline.render.console import print_report
    from roofline.workload.formulas.catalogue import catalogue, matching, of_type

    every = catalogue()
    entries = every if kind is None else of_type(every, kind)
    if pattern is not None:
        entries = matching(entries, pattern)
    if stdout_format is not None:
        put(render_operators(entries, f".{stdout_format}", of=len(every)))
    else:
        console = result_console()
        width = console.width if console.is_terminal else None
        print_report(operators_report(entries, of=len(every), width=width), console)
    return [render_operators(entries, path.suffix, of=len(every)) for path in files]


def _missing(
    model: str, options: dict[str, Any], stdout_format: str | None, files: tuple[Path, ...]
) -> list[str]:
    """Prints what `model` calls that has no formula; gives the contents of `files`."""
    from roofline.pipeline.operators import missing_operators
    from roofline.pipeline.runs import RunOptions
    from roofline.presentation.reports.missing_report import render_missing

    inputs, batch, seq = (options.pop(name) for name in ("inputs", "batch", "seq"))
    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr):
        found = missing_operators(
            model, list(inputs) or None, run=RunOptions(**options), batch=batch, seq=seq
        )
    if stdout_format is not None:
        put(render_missing(found, f".{stdout_format}"))
    else:
        _print_missing(found)
    return [render_missing(found, path.suffix) for path in files]


def _print_missing(found: Missing) -> None:
    from rich.text import Text

    from roofline.presentation.reports.missing_report import missing_report, stubs_of
    from roofline.render.console import print_report

    console = result_console()
    print_report(missing_report(found), console)
    if stubs := stubs_of(found):
        # Soft wrap leaves lines whole: they are to be pasted.
        console.print(Text(f"\n{stubs}"), end="", soft_wrap=True)
