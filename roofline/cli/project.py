"""Commands check, crosscheck, operators and completion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from roofline.cli import candidates
from roofline.cli.options import (
    PASS,
    SIZES,
    FileName,
    Option,
    Output,
    command,
    flag,
    given_options,
    model_argument,
    output_pack,
    run_option,
    run_pack,
    value,
)
from roofline.cli.streams import present_result, print_stderr, print_written, progress_bar
from roofline.core.blocks import View
from roofline.errors import IncompleteError, InputError

if TYPE_CHECKING:
    from roofline.workload.formulas.catalog import Missing


@command(
    "check",
    model_argument(),
    value(
        "--against FILE.json",
        "Baseline, written if missing, or a saved analysis.",
        type=FileName(),
    ),
    value(
        "--fail-if CONDITION",
        "Exit code 4 on 'flop>+1%', 'predicted_s>5ms' ...; repeatable.",
        multiple=True,
    ),
    flag("--update", "Write the cost of MODEL as the new baseline."),
    run_pack(*PASS, "hardware", "threads"),
    output_pack(".json .md"),
)
def check(
    model: str,
    against: Path | None,
    fail_if: tuple[str, ...],
    update: bool,
    run: dict[str, Any],
    output: Output,
) -> None:
    """Compare the cost of MODEL with a baseline; fail above limits.

    Without --fail-if, any rise of FLOP, bytes or minimum time fails. Quantities: flop, macs,
    traffic_bytes, parameters, peak_memory_bytes, launches, unknown_operators, eager_min_time_s,
    fused_min_time_s, model_min_time_s and predicted_s. Times need the --hardware of the baseline.
    Conditions on unknown quantities fail. MODEL as for analyze.
    """
    from roofline.design.gate.result import Check

    output.check(Check)
    if against is not None and os.path.realpath(against) in map(os.path.realpath, output.files):
        raise InputError(f"-o {against}: is the baseline; choose another file")
    from roofline.pipeline.checking import check

    with progress_bar() as progress:
        result = check(
            model, against=against, fail_if=fail_if, update=update, progress=progress, **run
        )
    # Files first: what is printed may end early, in a pipe that closes.
    result.write(output.files, View(), overwrite=output.force)
    present_result(result, stdout_format=output.format, view=View(verbose=output.verbose))
    if update and against is not None:
        if fail_if:
            print_stderr("--update: --fail-if is not checked against a new baseline")
        print_written((against,))
    elif result.is_new and against is not None:
        print_written((against,))
    print_written(output.files)
    result.raise_if_failed()
    if result.is_new and not update:
        # In CI a misspelled file must not pass.
        raise IncompleteError(f"nothing is compared: {against} was missing; it is written now")


@command(
    "crosscheck",
    model_argument(),
    run_pack(*SIZES, run_option("train", help="A forward and a backward pass.")),
    output_pack(".json .csv .md .html"),
)
def crosscheck(model: str, run: dict[str, Any], output: Output) -> None:
    """Compare FLOP and MACs of MODEL with those of other counters.

    Counters: torch's FlopCounterMode, fvcore, DeepSpeed and torchlens, if installed (pip install
    'roofline[crosscheck]'; DeepSpeed separately). They run the model with random weights that must
    fit into memory. MODEL as for analyze.
    """
    from roofline.counters import Crosscheck

    output.check(Crosscheck)
    from roofline.pipeline.crosschecks import crosscheck

    with progress_bar("Counting"):
        result = crosscheck(model, **run)
    output.present(result)


def _missing_option() -> Any:
    """Return ``--missing MODEL`` with its options."""
    pack = model_argument()
    named = Option(
        ["--missing", "model"],
        metavar="MODEL",
        shell_complete=candidates.models,
        help="List operators of MODEL without a formula.",
    )
    return type(pack)(pack.name, (named, *pack.params[1:]), pack.make)


@command(
    "operators",
    click.Argument(["pattern"], required=False),
    value("--type TYPE", "Operators of a type: convolution ...", to="type_"),
    _missing_option(),
    run_pack(*PASS),
    output_pack(".json .csv .md"),
)
@click.pass_context
def operators(
    context: click.Context,
    pattern: str | None,
    type_: str | None,
    model: str | None,
    run: dict[str, Any],
    output: Output,
) -> None:
    """List the operators that have a formula, with FLOP, bytes and source.

    PATTERN is the name of an operator (aten.mm), a part of it (pool) or a pattern ('conv*').

    --missing MODEL lists the operators of MODEL without a formula, each with a template. The exit
    code is 0; to fail, use analyze --min-coverage.
    """
    from roofline.workload.formulas.catalog import (
        Operators,
        catalog,
        filter_by_name,
        filter_by_type,
    )

    output.check(Operators)
    result: Operators | Missing
    if model is None:
        _refuse(context, run, "has no effect without --missing MODEL")
        every = catalog()
        entries = every if type_ is None else filter_by_type(every, type_)
        if pattern is not None:
            entries = filter_by_name(entries, pattern)
        result = Operators(known=len(every), operators=entries)
    else:
        _refuse(context, ("pattern", "type_"), "has no effect with --missing")
        from roofline.pipeline.crosschecks import missing_operators

        with progress_bar("Counting"):
            result = missing_operators(model, **run)
    output.present(result)


def _refuse(context: click.Context, names: Any, why: str) -> None:
    """Raise an error if one of the options `names` was given."""
    for name, written in given_options(context):
        if name in names:
            raise InputError(f"{written} {why}")


@command("completion", click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"])))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: in ~/.bashrc:  eval "$(roofline completion bash)"
    zsh:  in ~/.zshrc, after compinit:  eval "$(roofline completion zsh)"
    fish: roofline completion fish > ~/.config/fish/completions/roofline.fish
    """
    from roofline.cli.main import COMPLETE, cli

    found = get_completion_class(shell)
    assert found is not None, shell
    script = found(cli, {}, "roofline", COMPLETE).source()
    if shell == "bash":
        # bash splits words at the colons of model names; file names may need quotes, and folders
        # take no space after them.
        cuts = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"
        script = cuts + script.replace("-o nosort", "-o nosort -o filenames")
    click.echo(script, nl=False)
