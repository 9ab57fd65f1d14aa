"""``roofline compare A B``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from roofline.cli import candidates
from roofline.cli.options import (
    MEASURING,
    PASS,
    RUN,
    Output,
    command,
    models_argument,
    option,
    output_pack,
    run_option,
    run_pack,
    several_machines,
    top_option,
)
from roofline.cli.results import working
from roofline.cli.streams import tell
from roofline.errors import InputError, nearest
from roofline.foundation.blocks import View

if TYPE_CHECKING:
    from roofline.design.sweeps.axes import Grid
    from roofline.pipeline.sweeps.planning import Plan
    from roofline.result import Result

_SWEEP = "Sweep"
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
    output: Output,
) -> None:
    """Sweep designs, prints what follows, and writes files.

    Args:
        models: the designs, as `roofline.sweep` takes them.
        spec: the axes, such as ``channels=16:1024:x2,size=7:56:+7``.
        reference: the design that ratios refer to; None: the first.
        hardware: machines; none: this one; several are an axis.
        executor: where it runs; see `roofline.sweep`.
        jobs: how many processes.
        yes: whether it may take as long as it takes.
        options: how the designs are run, as `roofline.analyze` takes it.
        output: files to write; their suffixes choose the formats.

    Raises:
        InputError: whatever of it does not fit, or a long sweep without `yes`.
    """
    from roofline.design.sweeps.axes import BALANCE, grid_of
    from roofline.design.sweeps.result import SweepResult

    output.check(SweepResult)
    grid = grid_of(spec)
    if reference is not None and reference not in models:
        hint = nearest(reference, models) or f"; there are {', '.join(models)}"
        raise InputError(f"--reference '{reference}' is none of the designs{hint}")
    place = 0 if reference is None else models.index(reference)
    options = dict(options)
    if any(axis.name == BALANCE for axis in grid.axes):
        for name, given in (("--executor", executor), ("--jobs", jobs)):
            if given is not None:
                raise InputError(f"{name} has no effect on a sweep over {BALANCE}: it is short")
        result = _ridge(models, spec, place, hardware, options)
    else:
        result = _sizes(models, grid, place, hardware, executor, jobs, yes, options)
    output.present(result)


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
    with working() as progress:
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
    with working() as progress:
        plan = plan_of(
            models,
            grid,
            reference=reference,
            hardware=list(hardware) if len(hardware) > 1 else next(iter(hardware), None),
            options=RunOptions(**{name: options.pop(name) for name in _RUN if name in options}),
            progress=progress,
            **options,
        )
    with working("Sweeping") as progress, one_thread():
        plan = replace(plan, job_s=probed(plan))
        if not yes:
            _check_length(plan, where)
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


_COMPARED = "Comparison"


@command(
    "compare",
    models_argument("A B [C ...]", required=True, complete=candidates.models_and_saved),
    option(
        "--reference",
        metavar="MODEL",
        title=_COMPARED,
        shell_complete=candidates.models_given,
        help="Denominator of ratios: a model, or one way of it ('resnet50 bfloat16').",
    ),
    option(
        "--by",
        type=click.Choice(["module", "type"]),
        title=_COMPARED,
        help="Rows: modules or types.  [default: largest differences of shared modules]",
    ),
    top_option("rows, largest differences first", 8),
    option(
        "--depth",
        type=click.IntRange(min=0, max=100),
        metavar="N",
        title=_COMPARED,
        help="Levels of the tree of modules.  [default: 2]",
    ),
    run_pack(
        run_option("batch", "--batch", "batches", multiple=True, help="Batch size; repeatable."),
        "seq",
        run_option("dtype", "--dtype", "dtypes", multiple=True, help="Floating type; repeatable."),
        option(
            "--layout",
            "layouts",
            multiple=True,
            type=click.Choice(["contiguous", "channels-last"]),
            title=RUN,
            help="Memory format of images and convolution weights; repeatable.",
        ),
        *PASS[3:],
        several_machines(
            "Machine: a name (`roofline hardware list`), .toml file or host; repeatable."
        ),
        run_option("threads", "--threads", "teams", multiple=True, help="Threads; repeatable."),
        "cold",
    ),
    option(
        "--measure",
        is_flag=True,
        title=MEASURING,
        help="Time all of them here, interleaved, each time in a fresh process.",
    ),
    option(
        "--rounds",
        type=int,
        metavar="N",
        title=MEASURING,
        help="With --measure: number of rounds.  [default: 5]",
    ),
    option(
        "--sweep",
        metavar="SPEC",
        title=_SWEEP,
        help="Compare designs over sizes: channels=16:1024:x2,size=7:224:x2,batch=1:64:x2.",
    ),
    option(
        "--executor",
        metavar="WHERE",
        title=_SWEEP,
        help="Where points run, such as dask:ADDRESS.  [default: processes here]",
    ),
    option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        title=_SWEEP,
        help="Number of processes here.",
    ),
    option("--yes", is_flag=True, title=_SWEEP, help="Run a long sweep without asking."),
    output_pack(".json .csv .md .html .png .svg", measures=True),
)
def compare(
    models: tuple[str, ...],
    reference: str | None,
    by: Literal["module", "type"] | None,
    top: int | None,
    depth: int | None,
    run: dict[str, Any],
    measure: bool,
    rounds: int | None,
    sweep: str | None,
    executor: str | None,
    jobs: int | None,
    yes: bool,
    output: Output,
) -> None:
    """Compare models: FLOP, bytes, memory, ceilings, minimum, predicted and measured times.

    Each is a MODEL as for analyze, a design ('conv2d(64,64,3)@56x56'), or an analysis saved as
    .json. --dtype, --batch, --threads and --layout, given more than once, make variants: every
    model is run in every way. Several --hardware show who wins where. --measure times all of them
    here, interleaved. --sweep compares designs at many sizes.
    """
    ways: dict[str, Any] = {
        "dtype": _one_or_all(run.pop("dtypes")),
        "batch": _one_or_all(run.pop("batches")),
        "threads": _one_or_all(run.pop("teams")),
        "channels_last": _layouts(run.pop("layouts"), channels_last=run.pop("channels_last")),
    }
    hardware = run.pop("hardware")
    if sweep is not None:
        _refuse_in_sweep(
            ways,
            measure=measure,
            rounds=rounds,
            by=by,
            top=top,
            depth=depth,
            format=output.format,
        )
        run_sweep(
            models,
            spec=sweep,
            reference=reference,
            hardware=hardware,
            executor=executor,
            jobs=jobs,
            yes=yes,
            options={**run, **ways},
            output=output,
        )
        return
    for name, given in {"--executor": executor, "--jobs": jobs, "--yes": yes or None}.items():
        if given is not None:
            raise InputError(f"{name} has no effect without --sweep")
    from roofline.design.model_comparison.result import Comparison

    # Who asks for a depth means modules.
    view = View(by=by or ("module" if depth is not None else "operator"), top=top, depth=depth)
    output.check(Comparison)
    from roofline.pipeline.comparisons import compare

    with working("Measuring" if measure else "") as progress:
        options: dict[str, Any] = {
            **run,
            **ways,
            "reference": 0 if reference is None else reference,
            "hardware": list(hardware) if len(hardware) > 1 else next(iter(hardware), None),
            "measure": measure,
            "rounds": rounds,
            "force": output.force,
            "progress": progress,
            "say": tell,
        }
        # Which of both it gives depends on what the options hold.
        comparison = cast("Callable[..., Result]", compare)(*models, **options)
    output.present(comparison, view)


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
    for name, given in others.items():
        if given is not None and given is not False:
            raise InputError(f"--{name} has no effect beside --sweep; leave one of both out")
    for name, given in ways.items():
        if isinstance(given, list):
            shown = {"channels_last": "layout"}.get(name, name)
            raise InputError(
                f"--{shown} is given more than once beside --sweep: give one, or sweep over it"
            )
