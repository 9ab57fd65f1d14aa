"""``roofline compare A B``."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from roofline.cli import candidates
from roofline.cli.comparing_options import (
    machines_compared_options,
    measure_options,
    side_by_side_options,
    sweep_options,
    ways_options,
)
from roofline.cli.options import (
    OVERWRITE_OR_MEASURE,
    file_options,
    files_among,
    format_option,
    named_models,
    output_options,
)
from roofline.cli.results import measuring_if_needed, present_result, progress_bar
from roofline.cli.streams import tell
from roofline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofline.result import Result


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
        from roofline.cli.sweeping import run_sweep

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
