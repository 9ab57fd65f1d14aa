"""``roofline compare A B --sweep SPEC``: designs over a grid of sizes, or over machines."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.cli.results import measuring_if_needed, present_result, progress_bar
from roofline.errors import InputError, nearest

if TYPE_CHECKING:
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
    from roofline.pipeline.runs import RunOptions
    from roofline.pipeline.sweeps.jobs import one_thread
    from roofline.pipeline.sweeps.planning import plan_of, probed
    from roofline.pipeline.sweeps.sweeping import carry_out
    from roofline.pipeline.sweeps.where import Where

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
