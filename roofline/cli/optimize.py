"""``roofline optimize MODEL``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

import click

from roofline.cli import candidates
from roofline.cli.options import (
    OVERWRITE_OR_MEASURE,
    file_options,
    files_among,
    format_option,
    hardware_option,
    named_model,
    one_of,
    output_options,
    threads_option,
    together,
    workload_options,
)
from roofline.cli.results import print_or_put, progress_bar, say_written
from roofline.cli.streams import tell
from roofline.errors import InputError

_COSTS = ("bound", "predicted", "measured")
_BASELINES = ("eager", "compile")


_search_options = together(
    click.option(
        "--cost",
        metavar="|".join(_COSTS),
        callback=one_of(_COSTS),
        help="What graphs are held against: bounds and launches (any machine), predictions (a"
        " calibrated one), or operators' times measured here; default: predicted where the machine"
        " is calibrated, else bound.",
    ),
    click.option(
        "--alpha",
        type=float,
        default=1.05,
        show_default=True,
        metavar="X",
        help="Graphs that cost up to X times the best known are looked at too; 1: never worse.",
    ),
    click.option(
        "--budget",
        type=int,
        metavar="N",
        help="How many graphs are looked through at most; default: 300.",
    ),
    click.option(
        "--time-limit",
        "time_limit_s",
        type=float,
        metavar="S",
        help="Seconds after which the search ends with what it has; default: 60.",
    ),
    click.option(
        "--rules",
        default="all",
        show_default=True,
        metavar="all|safe|LIST",
        help="Rules by name with commas between them, or a .py file that registers some; a name"
        " with - before it is left out (--rules=-enlarge-kernel).",
    ),
    click.option("--list-rules", is_flag=True, help="List the rules, and what each does."),
    click.option(
        "--split",
        type=int,
        metavar="N",
        help="Search larger graphs in pieces of at most N operators; default: as the size asks.",
    ),
    click.option(
        "--fused",
        is_flag=True,
        help="Count activations inside their operators, as compilers and TensorRT run them; shows"
        " the counts of eager torch beside.",
    ),
)

_timing_options = together(
    click.option(
        "--baseline",
        default="eager",
        show_default=True,
        metavar="|".join(_BASELINES),
        callback=one_of(_BASELINES),
        help="How original and result are run when they are timed: by eager torch, or by"
        " torch.compile with freezing.",
    ),
    click.option(
        "--measure/--no-measure",
        default=None,
        help="Time the result here in turn with the original; default: where the machine is this"
        " one.",
    ),
    click.option(
        "--rounds", type=int, metavar="N", help="How often both are timed in turn; default: 7."
    ),
)


@click.command("optimize")
@click.argument("model", required=False, callback=named_model, shell_complete=candidates.models)
@workload_options
@file_options
@hardware_option
@threads_option
@_search_options
@_timing_options
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many rewrites are shown, and reasons against others; default: 10.",
)
@output_options(".json .csv .md .html .png .svg .pt2 (the module)", force=OVERWRITE_OR_MEASURE)
@format_option
def command(
    model: str | None,
    inputs: tuple[str, ...],
    batch: int | None,
    seq: int | None,
    dtype: str | None,
    hardware: str | None,
    threads: int | None,
    cost: Literal["bound", "predicted", "measured"] | None,
    alpha: float,
    budget: int | None,
    time_limit_s: float | None,
    rules: str,
    list_rules: bool,
    split: int | None,
    fused: bool,
    baseline: Literal["eager", "compile"],
    measure: bool | None,
    rounds: int | None,
    top: int | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None,
) -> None:
    """Search for a faster graph of MODEL that computes the same, and prove that it does.

    Operators are merged, folded and laid out anew where that costs less on the machine. On this
    one, the result is timed in turn with the original, and given up where it is not faster: what
    was only predicted is called so. MODEL is what analyze takes.
    """
    if list_rules:
        _list_rules(rules)
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    from datetime import date

    from roofline.presentation.optimization_output import (
        check_optimization_targets,
        is_module,
        module_words,
        render_optimization,
        write_optimization,
    )

    files = files_among(outputs, stdout_format)
    check_optimization_targets(files, overwrite=force)
    from roofline.pipeline.optimizing import optimize
    from roofline.presentation.reports.optimization_report import optimization_report

    _check_search(alpha=alpha, budget=budget, split=split, time_limit_s=time_limit_s)
    _check_timing(hardware, baseline=baseline, measure=measure, rounds=rounds)
    # Those that are not given are the search's own.
    limits = {"budget": budget, "time_limit_s": time_limit_s}
    options: dict[str, Any] = {name: each for name, each in limits.items() if each is not None}
    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Optimizing") as progress:
        result = optimize(
            model,
            list(inputs) or None,
            hardware=hardware,
            cost=cost,
            alpha=alpha,
            rules=rules,
            split=split,
            baseline=baseline,
            fused=fused,
            measure=measure,
            rounds=rounds,
            dtype=dtype,
            batch=batch,
            seq=seq,
            threads=threads,
            force=force,
            progress=progress,
            say=tell,
            **options,
        )
        shown = (
            render_optimization(result, stdout_format, top=top)
            if stdout_format
            else optimization_report(result, top=top, today=date.today())
        )
    print_or_put(shown)
    write_optimization(result, files, top=top, overwrite=force)
    say_written(files)
    modules = list(filter(is_module, files))
    for path in modules:
        tell(module_words(result, path))
    if modules:
        tell(
            f"Its weights are those that building {model} gives: random, unless it loads trained"
            " ones; in Python, roofline.optimize(module, inputs) keeps those of a module"
        )


def _check_search(
    *, alpha: float, budget: int | None, split: int | None, time_limit_s: float | None
) -> None:
    """Refuses, before a model is built, numbers that no search can go by.

    Raises:
        InputError: says which.
    """
    if not 1 <= alpha < float("inf"):
        raise InputError(f"--alpha {alpha:g}: must be a number from 1 (1: never a worse graph)")
    if budget is not None and budget < 1:
        raise InputError(f"--budget {budget}: must be a whole number of graphs from 1")
    if split is not None and split < 2:
        raise InputError(f"--split {split}: must be a whole number of operators from 2")
    if time_limit_s is not None and not 0 < time_limit_s < float("inf"):
        raise InputError(f"--time-limit {time_limit_s:g}: must be a number of seconds above 0")


def _check_timing(
    hardware: str | None, *, baseline: str, measure: bool | None, rounds: int | None
) -> None:
    """Refuses, before anything is searched, options on timings that will not be made.

    Raises:
        InputError: says why there are none.
    """
    from roofline.pipeline.optimization_machine import is_this_machine

    given = "--baseline compile" if baseline == "compile" else f"--rounds {rounds}"
    if baseline == "eager" and rounds is None:
        return
    if measure is False:
        raise InputError(f"{given} has no effect with --no-measure; leave one of both out")
    if not is_this_machine(hardware):
        raise InputError(
            f"{given} is about timings on this machine, and --hardware {hardware} is another: leave"
            " one of both out"
        )


def _list_rules(rules: str) -> None:
    """Prints the rules that are selected, one a line."""
    from roofline.presentation.reports.optimization_report import rules_report
    from roofline.substitution.rules.registry import rules_named

    print_or_put(rules_report(rules_named(rules)))
