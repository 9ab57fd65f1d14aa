"""``roofline compare A B``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

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
from roofline.cli.streams import tell, working
from roofline.errors import InputError, nearest
from roofline.foundation.blocks import View

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

_SWEEP = "Sweep"


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
        "no_cache",
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
    run["hardware"] = _one_or_all(run.pop("hardware"))
    from roofline.design.comparison.result import Comparison

    output.check(Comparison)
    at_sweep: dict[str, Any] = {"executor": executor, "jobs": jobs, "yes": yes}
    if sweep is not None:
        _refuse_in_sweep(ways, measure=measure, rounds=rounds, by=by, top=top, depth=depth)
        result = run_sweep(models, spec=sweep, reference=reference, run={**run, **ways}, **at_sweep)
        output.present(result)
        return
    for name, given in at_sweep.items():
        if given:
            raise InputError(f"--{name} has no effect without --sweep")
    # Who asks for a depth means modules.
    view = View(by=by or ("module" if depth is not None else "operator"), top=top, depth=depth)
    from roofline.pipeline.comparisons import compare

    with working("Measuring" if measure else "") as progress:
        result = compare(
            *models,
            **run,
            **ways,
            reference=0 if reference is None else reference,
            measure=measure,
            rounds=rounds,
            force=output.force,
            progress=progress,
            say=tell,
        )
    output.present(result, view)


def run_sweep(
    models: tuple[str, ...],
    *,
    spec: str,
    reference: str | None,
    executor: str | None,
    jobs: int | None,
    yes: bool,
    run: dict[str, Any],
) -> Comparison:
    """Return the sweep of designs over the axes that `spec` writes; see `roofline.sweep`.

    Raises:
        InputError: whatever of it does not fit, or a long sweep without `yes`.
    """
    from roofline.design.comparison.axes import grid_of
    from roofline.pipeline.sweeps.planning import plan_of
    from roofline.pipeline.sweeps.sweeping import carry_out
    from roofline.pipeline.sweeps.where import Where
    from roofline.run import RunOptions

    grid = grid_of(spec)
    if reference is not None and reference not in models:
        hint = nearest(reference, models) or f"; there are {', '.join(models)}"
        raise InputError(f"--reference '{reference}' is none of the designs{hint}")
    where = Where.of(executor, jobs, grid=grid)
    hardware, inputs = run.pop("hardware"), run.pop("inputs")
    with working() as progress:
        plan = plan_of(
            models,
            grid,
            reference=0 if reference is None else models.index(reference),
            hardware=hardware,
            inputs=inputs,
            options=RunOptions.of(inputs, **run),
            progress=progress,
        )

    def ask(long: str) -> None:
        if not yes:
            raise InputError(f"--sweep has {long}; add --yes to do it, or take larger steps")

    with working("Sweeping") as progress:
        return carry_out(plan, where, warn=ask, progress=progress)


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
