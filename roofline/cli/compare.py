"""``roofline compare A B``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click

from roofline.cli import candidates
from roofline.cli.options import (
    OVERWRITE_OR_MEASURE,
    file_options,
    files_among,
    format_option,
    named_models,
    output_options,
    run_options,
    together,
)
from roofline.cli.results import measuring_if_needed, present_result, progress_bar
from roofline.cli.streams import tell
from roofline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofline.design.sweeps.axes import Grid
    from roofline.pipeline.sweeps.planning import Plan
    from roofline.result import Result


_RUN = ("dtype", "train", "optimizer", "autocast", "channels_last", "device")
"""The options that are of the run, and not of the design or machine."""


def run_sweep(
    models: tuple[str, ...],
    *,
    spec: str,
    reference: str | None,
    hardware: tuple[str, ...],
    executor: str | None,
    jobs: int | None,
    yes: bool,
    options: dict[str, Any],
    outputs: tuple[Path, ...],
    force: bool,
) -> None:
    """Sweeps designs, prints what follows, and writes files.

    Args:
        models: the designs, as `roofline.sweep` takes them.
        spec: the axes, such as ``channels=16:1024:x2,size=7:56:+7``.
        reference: the design that ratios refer to; None: the first.
        hardware: machines; none: this one; several are an axis.
        executor: where it runs; see `roofline.sweep`.
        jobs: how many processes.
        yes: whether it may take as long as it takes.
        options: how the designs are run, as `roofline.analyze` takes it.
        outputs: files to write; their suffixes choose the formats.
        force: whether files may be overwritten.

    Raises:
        InputError: whatever of it does not fit, or a long sweep without `yes`.
    """
    from roofline.design.sweeps.axes import BALANCE, grid_of
    from roofline.design.sweeps.result import SweepResult
    from roofline.foundation.blocks import View

    SweepResult.check_files(outputs, overwrite=force)
    grid = grid_of(spec)
    if reference is not None and reference not in models:
        hint = nearest(reference, models) or f"; there are {', '.join(models)}"
        raise InputError(f"--reference '{reference}' is none of the designs{hint}")
    place = 0 if reference is None else models.index(reference)
    options = dict(options)
    if any(axis.name == BALANCE for axis in grid.axes):
        for option, given in (("--executor", executor), ("--jobs", jobs)):
            if given is not None:
                raise InputError(f"{option} has no effect on a sweep over {BALANCE}: it is short")
        result = _ridge(models, spec, place, hardware, options)
    else:
        result = _sizes(models, grid, place, hardware, executor, jobs, yes, options)
    present_result(result, outputs, stdout_format=None, view=View(), force=force)


def _ridge(
    models: tuple[str, ...],
    spec: str,
    reference: int,
    hardware: tuple[str, ...],
    options: dict[str, Any],
) -> Result:
    from roofline.design.sweeps.axes import BALANCE
    from roofline.pipeline.sweeps import ridge_sweep

    if len(hardware) > 1:
        raise InputError(
            f"--hardware: a sweep over {BALANCE} makes its machines of one; name one"
            " (the known ones are marked anyway)"
        )
    if options.pop("cold", False):
        raise InputError(
            f"--cold has no effect on a sweep over {BALANCE}: every operand comes from memory"
        )
    # What the user's models print is not the result.
    with redirect_stdout(sys.stderr), measuring_if_needed() as progress:
        return ridge_sweep(
            *models,
            axes=spec,
            reference=reference,
            hardware=hardware[0] if hardware else None,
            progress=progress,
            **options,
        )


def _sizes(
    models: tuple[str, ...],
    grid: Grid,
    reference: int,
    hardware: tuple[str, ...],
    executor: str | None,
    jobs: int | None,
    yes: bool,
    options: dict[str, Any],
) -> Result:
    from roofline.pipeline.sweeps.jobs import one_thread
    from roofline.pipeline.sweeps.planning import plan_of, probed
    from roofline.pipeline.sweeps.sweeping import carry_out
    from roofline.pipeline.sweeps.where import Where
    from roofline.run import RunOptions

    where = Where.of(executor, jobs)
    with redirect_stdout(sys.stderr):
        with measuring_if_needed() as progress:
            plan = plan_of(
                models,
                grid,
                reference=reference,
                hardware=list(hardware) if len(hardware) > 1 else next(iter(hardware), None),
                options=RunOptions(**{name: options.pop(name) for name in _RUN if name in options}),
                progress=progress,
                **options,
            )
        with one_thread():
            plan = replace(plan, job_s=probed(plan))
            if not yes:
                _check_length(plan, where)
            with progress_bar("Sweeping") as progress:
                return carry_out(plan, where, progress=progress)


def _check_length(plan: Plan, where: Any) -> None:
    """Refuses what is so long that its user should have been asked.

    Raises:
        InputError: says how many points there are, and about how long they take.
    """
    from roofline.pipeline.sweeps.where import duration_text, estimate_s, needs_consent

    seconds = estimate_s(plan, where)
    if not needs_consent(plan, seconds):
        return
    takes = "" if seconds is None else f", and takes {duration_text(seconds)}"
    designs, points = len(plan.names), plan.grid.count
    raise InputError(
        f"--sweep has {points:,} points of {designs} designs, {plan.job_count:,} captures{takes};"
        " add --yes to do it, or take larger steps"
    )


F = TypeVar("F", bound=Callable[..., Any])


ways_options = together(
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="SHAPE",
        help="An input: 1x3x224x224, 1x128:int64, name=1x128:int64 for a keyword, [3x8x8, 3x9x9],"
        " {key=1x8}, name=true; repeatable: each is one more input of every model.",
    ),
    click.option(
        "--batch",
        "batches",
        multiple=True,
        type=int,
        metavar="N",
        help="The first size of every input; repeatable, to compare several.",
    ),
    click.option(
        "--seq",
        type=int,
        metavar="N",
        help="How many tokens a transformers model is given; default: 128.",
    ),
    click.option(
        "--dtype",
        "dtypes",
        multiple=True,
        metavar="TYPE",
        shell_complete=candidates.dtypes,
        help="Of parameters, buffers and inputs: float32, bfloat16, float16; repeatable, to compare"
        " several.",
    ),
    click.option(
        "--layout",
        "layouts",
        multiple=True,
        type=click.Choice(["contiguous", "channels-last"]),
        help="How images and weights of convolutions are laid out; repeatable, to compare both.",
    ),
    run_options,
)

machines_compared_options = together(
    click.option(
        "--hardware",
        multiple=True,
        metavar="NAME|FILE",
        shell_complete=candidates.machines,
        help="A machine: a name (`roofline hardware list`), a .toml file, or host; repeatable, to"
        " see who wins where; default: this one.",
    ),
    click.option(
        "--threads",
        "teams",
        multiple=True,
        type=int,
        metavar="N",
        help="Threads that compute; default: all it has; repeatable, to compare several.",
    ),
    click.option(
        "--cold", is_flag=True, help="Bounds of a first pass, with nothing in the caches."
    ),
)

measure_options = together(
    click.option(
        "--measure",
        is_flag=True,
        help="Time all of them here too, in turn, each time in a process of its own.",
    ),
    click.option(
        "--rounds",
        type=int,
        metavar="N",
        help="With --measure: how many times each; default: 5.",
    ),
)

side_by_side_options = together(
    click.option(
        "--by",
        type=click.Choice(["module", "type"]),
        help="What stands side by side, all of it: modules, or types of operators; default: the"
        " largest differences between modules the models share, else between types.",
    ),
    click.option(
        "--top",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many rows stand side by side, the largest differences first; default: 8.",
    ),
    click.option(
        "--depth",
        type=click.IntRange(min=0, max=100),
        metavar="N",
        help="How far down the tree of modules goes; default: 2.",
    ),
)

sweep_options = together(
    click.option(
        "--sweep",
        metavar="SPEC",
        help="Compare at many sizes: channels=16:1024:x2,size=7:224:x2,batch=1:64:x2.",
    ),
    click.option(
        "--executor",
        metavar="WHERE",
        help="With --sweep: where its points are worked out, such as dask:ADDRESS; default:"
        " processes here.",
    ),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --sweep: how many processes here.",
    ),
    click.option("--yes", is_flag=True, help="With --sweep: do not ask before a long one."),
)


@click.command("compare")
@click.argument(
    "models",
    nargs=-1,
    required=True,
    metavar="A B [C ...]",
    callback=named_models,
    shell_complete=candidates.models_and_saved,
)
@file_options
@click.option(
    "--reference",
    metavar="MODEL",
    shell_complete=candidates.models_given,
    help="What ratios refer to: a model (in its first way), or one way of it ('resnet50 bfloat16');"
    " default: the first.",
)
@ways_options
@machines_compared_options
@measure_options
@side_by_side_options
@sweep_options
@output_options(".json .csv .md .html .png .svg", force=OVERWRITE_OR_MEASURE)
@format_option
def command(
    models: tuple[str, ...],
    reference: str | None,
    inputs: tuple[str, ...],
    batches: tuple[int, ...],
    seq: int | None,
    dtypes: tuple[str, ...],
    layouts: tuple[str, ...],
    train: bool,
    optimizer: str | None,
    autocast: str | None,
    channels_last: bool,
    device: str | None,
    hardware: tuple[str, ...],
    teams: tuple[int, ...],
    cold: bool,
    measure: bool,
    rounds: int | None,
    by: Literal["module", "type"] | None,
    top: int | None,
    depth: int | None,
    sweep: str | None,
    executor: str | None,
    jobs: int | None,
    yes: bool,
    outputs: tuple[Path, ...],
    force: bool,
    stdout_format: Literal["json", "csv", "md", "html", "svg"] | None,
) -> None:
    """Hold models against each other: FLOP, bytes, memory, ceilings, bound, prediction, time.

    Each is what analyze takes as MODEL, a design ('conv2d(64,64,3)@56x56'), or an analysis saved as
    .json. --dtype, --batch, --threads and --layout, given more than once, make variants: every
    model is run in every way. Several --hardware show who wins where. --measure times all of them
    here, in turn. --sweep compares designs at many sizes.
    """
    channels = _layouts(layouts, channels_last=channels_last)
    how: dict[str, Any] = {
        "inputs": list(inputs) or None,
        "seq": seq,
        "cold": cold,
        "train": train,
        "optimizer": optimizer,
        "autocast": autocast,
        "device": device,
    }
    ways: dict[str, Any] = {
        "dtype": _one_or_all(dtypes),
        "batch": _one_or_all(batches),
        "threads": _one_or_all(teams),
        "channels_last": channels,
    }
    if sweep is not None:
        _refuse_in_sweep(
            ways,
            measure=measure,
            rounds=rounds,
            by=by,
            top=top,
            depth=depth,
            format=stdout_format,
        )

        run_sweep(
            models,
            spec=sweep,
            reference=reference,
            hardware=hardware,
            executor=executor,
            jobs=jobs,
            yes=yes,
            options={**how, **ways},
            outputs=outputs,
            force=force,
        )
        return
    for option, given in {"--executor": executor, "--jobs": jobs, "--yes": yes or None}.items():
        if given is not None:
            raise InputError(f"{option} has no effect without --sweep")
    from roofline.design.model_comparison.result import Comparison
    from roofline.foundation.blocks import View

    # Who asks for a depth means modules.
    rows = by or ("module" if depth is not None else "operator")
    view = View(by=rows, top=top, depth=depth)
    files = files_among(outputs, stdout_format)
    Comparison.check_files(files, overwrite=force)
    from roofline.pipeline import compare

    bar: AbstractContextManager[Any] = (
        progress_bar("Measuring") if measure else measuring_if_needed()
    )
    # What the user's models print is not the result.
    with redirect_stdout(sys.stderr), bar as progress:
        options: dict[str, Any] = {
            **how,
            **ways,
            "reference": 0 if reference is None else reference,
            "hardware": list(hardware) if len(hardware) > 1 else next(iter(hardware), None),
            "measure": measure,
            "rounds": rounds,
            "force": force,
            "progress": progress,
            "say": tell,
        }
        # Which of both it gives depends on what the options hold.
        comparison = cast("Callable[..., Result]", compare)(*models, **options)
    present_result(comparison, files, stdout_format=stdout_format, view=view, force=force)


def _one_or_all(given: tuple[Any, ...]) -> Any:
    """The one value of an option, or the list of several; None where it is not given."""
    return list(given) if len(given) > 1 else next(iter(given), None)


def _layouts(layouts: tuple[str, ...], *, channels_last: bool) -> bool | list[bool]:
    """Whether channels come last, in one way or in several."""
    if channels_last and layouts:
        raise InputError("--channels-last beside --layout: write --layout channels-last")
    found = [each == "channels-last" for each in layouts]
    return found if len(found) > 1 else found[0] if found else channels_last


def _refuse_in_sweep(ways: dict[str, Any], **others: Any) -> None:
    """Refuses what a sweep has its own way for, or none."""
    for option, given in others.items():
        if given is not None and given is not False:
            raise InputError(f"--{option} has no effect beside --sweep; leave one of both out")
    for option, given in ways.items():
        if isinstance(given, list):
            shown = {"channels_last": "layout"}.get(option, option)
            raise InputError(
                f"--{shown} is given more than once beside --sweep: give one, or sweep over it"
            )
