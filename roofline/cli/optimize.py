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
from roofline.cli.results import present_result, print_or_put, progress_bar
from roofline.cli.streams import tell
from roofline.errors import InputError
from roofline.foundation.text import counted

_COSTS = ("bound", "predicted", "measured")
_BASELINES = ("eager", "compile")


_search_options = together(
    click.option(
        "--cost",
        metavar="|".join(_COSTS),
        callback=one_of(_COSTS),
        help="Time that graphs are compared by: minimum with launches, predicted, or sum of"
        " operators measured here.  [default: predicted if calibrated, else bound]",
    ),
    click.option(
        "--alpha",
        type=float,
        default=1.05,
        show_default=True,
        metavar="X",
        help="Expand graphs of up to X times the lowest cost (1: improvements only).",
    ),
    click.option(
        "--budget",
        type=int,
        metavar="N",
        help="Maximum number of graphs to expand.  [default: 300]",
    ),
    click.option(
        "--time-limit",
        "time_limit_s",
        type=float,
        metavar="S",
        help="Maximum search time in seconds.  [default: 60]",
    ),
    click.option(
        "--rules",
        default="all",
        show_default=True,
        metavar="all|safe|LIST",
        help="Rules, separated by commas; -NAME leaves one out (--rules=-enlarge-kernel), FILE.py"
        " registers more.",
    ),
    click.option("--list-rules", is_flag=True, help="List the rules."),
    click.option(
        "--split",
        type=int,
        metavar="N",
        help="Search larger graphs in pieces of at most N operators.  [default: by size]",
    ),
    click.option(
        "--fused",
        is_flag=True,
        help="Count activations as fused into their operators; eager counts are shown too.",
    ),
)

_timing_options = together(
    click.option(
        "--baseline",
        default="eager",
        show_default=True,
        metavar="|".join(_BASELINES),
        callback=one_of(_BASELINES),
        help="Time original and result in eager torch, or under torch.compile with freezing.",
    ),
    click.option(
        "--measure/--no-measure",
        default=None,
        help="Time original and result here, alternately.  [default: if --hardware is this"
        " machine]",
    ),
    click.option("--rounds", type=int, metavar="N", help="Number of rounds.  [default: 7]"),
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
    help="Number of applied and of rejected rewrites in the report.  [default: 10]",
)
@output_options(".json .csv .md .html .png .svg .pt2 (the module)", force=OVERWRITE_OR_MEASURE)
@format_option
def command(
    model: str | None,
    inputs: tuple[str, ...],
    list_rules: bool,
    top: int | None,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None,
    **options: Any,
) -> None:
    """Search for a faster graph of MODEL, and prove that it computes the same.

    Rules merge and fold operators and change layouts where that costs less on the machine. On this
    machine, original and result are timed alternately; without a significant speedup, the original
    is kept. Speedups that were not timed are marked as predicted. MODEL as for analyze.
    """
    if list_rules:
        _list_rules(options["rules"])
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    from roofline.foundation.blocks import View
    from roofline.substitution.result import Optimization

    files = files_among(outputs, stdout_format)
    Optimization.check_files(files, overwrite=force)
    from roofline.pipeline.optimizing import optimize

    _check_search(**{name: options[name] for name in ("alpha", "budget", "split", "time_limit_s")})
    _check_timing(**{name: options[name] for name in ("hardware", "baseline", "measure", "rounds")})
    # Those that are not given have the defaults of the search.
    given = {name: each for name, each in options.items() if each is not None}
    # What the user's model prints is not the result.
    with redirect_stdout(sys.stderr), progress_bar("Optimizing") as progress:
        result = optimize(
            model, list(inputs) or None, force=force, progress=progress, say=tell, **given
        )
    present_result(result, files, stdout_format=stdout_format, view=View(top=top), force=force)
    modules = [str(path) for path in files if path.suffix.lower() == ".pt2"]
    content = "the original, for no faster graph was found" if result.is_kept else "the result"
    for path in modules:
        tell(f"{path} holds {content}; load it with torch.export.load({path!r}).module()")
    if modules:
        tell(
            f"Its weights are those that building {model} gives: random, unless it loads trained"
            " ones; in Python, roofline.optimize(module, inputs) keeps those of a module"
        )


def _check_search(
    *, alpha: float, budget: int | None, split: int | None, time_limit_s: float | None
) -> None:
    """Refuse, before a model is built, numbers out of range.

    Raises:
        InputError: names the option.
    """
    if not 1 <= alpha < float("inf"):
        raise InputError(f"--alpha {alpha:g}: must be a number from 1 (1: improvements only)")
    if budget is not None and budget < 1:
        raise InputError(f"--budget {budget}: must be a whole number of graphs from 1")
    if split is not None and split < 2:
        raise InputError(f"--split {split}: must be a whole number of operators from 2")
    if time_limit_s is not None and not 0 < time_limit_s < float("inf"):
        raise InputError(f"--time-limit {time_limit_s:g}: must be a number of seconds above 0")


def _check_timing(
    *, hardware: str | None, baseline: str, measure: bool | None, rounds: int | None
) -> None:
    """Refuse, before the search, options of timings that will not be made.

    Raises:
        InputError: gives the reason.
    """
    from roofline.pipeline.machines import is_this_machine

    given = "--baseline compile" if baseline == "compile" else f"--rounds {rounds}"
    if baseline == "eager" and rounds is None:
        return
    if measure is False:
        raise InputError(f"{given} has no effect with --no-measure; leave one of both out")
    if not is_this_machine(hardware):
        raise InputError(
            f"{given} is for timings on this machine, and --hardware {hardware} is another; leave"
            " one of both out"
        )


def _list_rules(names: str) -> None:
    """Print the rules that are selected, one a line."""
    from roofline.foundation.blocks import Report, safe, table
    from roofline.substitution.rules.registry import rules_named

    rules = rules_named(names)
    columns = {"rule": "name", "safety": "safety", "effect": "summary"}
    print_or_put(
        safe(
            Report(
                headline=f"{counted(len(rules), 'rule')},"
                f" {sum(each.safety == 'safe' for each in rules)} of them safe: no added work, no"
                " change of layout",
                blocks=(table("", rules, columns, left=columns),),
            )
        )
    )
