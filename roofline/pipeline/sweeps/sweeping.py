"""sweep: designs at every point of a grid of sizes and options, captured and predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.design.comparison.axes import grid_of
from roofline.design.comparison.cells import Cell
from roofline.design.comparison.result import Comparison
from roofline.errors import InputError
from roofline.foundation.progress import Progress
from roofline.latency.calibrated import no_calibration
from roofline.pipeline.machines import Hardware
from roofline.pipeline.sweeps.balances import balance_sweep
from roofline.pipeline.sweeps.jobs import Job, notes_on_inputs, one_thread
from roofline.pipeline.sweeps.planning import Plan, plan_of, probed
from roofline.pipeline.sweeps.where import Where, length_text, run_jobs
from roofline.placement import classic_model_note, other_device_note
from roofline.run import Device, OnMachinesKeywords, RunOptions, takes

if TYPE_CHECKING:
    import torch


@takes(OnMachinesKeywords)
def sweep(
    *designs: str | torch.nn.Module,
    axes: str | Mapping[str, object],
    inputs: Any = None,
    reference: int = 0,
    hardware: Hardware | Sequence[Hardware] | None = None,
    executor: str | Executor | None = None,
    jobs: int | None = None,
    names: Sequence[str] = (),
    progress: Progress | None = None,
    **run: Unpack[OnMachinesKeywords],
) -> Comparison:
    """Which design wins where: work, bound and predicted time of designs over a grid of sizes.

    Nothing is measured, and results do not depend on where the work is done.

    Over the axis ``balance``, in FLOP/byte, hypothetical machines have the compute ceilings of one,
    and a memory that makes their ridge point the balance; every operand is charged to that memory
    (the classic roofline model), so that balance alone decides. There are no predictions for
    machines that do not exist. The known machines (this one, the user's, those that come with
    roofline) stand at their own balance, with bounds of their own profile, caches and all: how far
    they are from the line is how far the abstraction holds.

    Args:
        designs: at least two: texts with variables in them, such as
            ``"conv2d({c},{c},3,padding=1)@{size}x{size}"``, other names of models, or modules.
        axes: the values of each variable, and of the options batch, seq, threads, dtype, layout
            (contiguous, channels-last) and hardware: ``{"c": [16, 32], "size": range(7, 57, 7)}``,
            or a text, ``"c=16:1024:x2,size=7:56:+7,dtype=float32|bfloat16"``. Beside ``balance``,
            all others have one value.
        inputs: as for `analyze`, for all designs.
        reference: the index of the design that ratios refer to.
        hardware: as for `analyze`; several become an axis. Of one, hypothetical machines are made.
        executor: where: ``"local"`` in this process, ``"processes"`` of this machine,
            ``"dask:ADDRESS"`` on a cluster, or any `concurrent.futures.Executor`. None: here if it
            takes less than about ten seconds, else in processes.
        jobs: how many processes; 1: this one.
        names: what to call the designs; by default their texts.
        progress: told how far it is.

    Raises:
        InputError: axes that no design uses, variables without one, balances that are no numbers
            above 0, or designs that do not differ; and whatever `analyze` raises for a design at
            every point.
        HardwareError: the machine has no ceilings for the data type.
        MeasurementError: a design that ends every process that captures it.
    """
    grid = grid_of(axes)
    where = Where.of(executor, jobs, grid=grid)
    plan = plan_of(
        designs,
        grid,
        names=names,
        reference=reference,
        hardware=hardware,
        inputs=inputs,
        options=RunOptions.of(inputs, **run),
        progress=progress,
    )
    return carry_out(plan, where, progress=progress)


def carry_out(
    plan: Plan,
    where: Where,
    *,
    warn: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Carry out a plan, and put its cells where they belong.

    Args:
        plan: what to do.
        where: where it runs.
        warn: told of a sweep that is so long that its user should be asked; may raise.
        progress: told how far it is.

    Raises:
        InputError: a design that cannot be built at any point; and as `sweep`.
    """
    if plan.balances:
        return balance_sweep(plan)
    with one_thread():
        plan = plan if plan.job_s else replace(plan, job_s=probed(plan))
        long = length_text(plan, where)
        if warn and long:
            warn(long)
        total = plan.job_count
        cells: dict[Job, Sequence[Cell]] = {}
        for job, found in run_jobs(plan, where.settled(plan.job_mean_s * total)):
            cells[job] = found
            if progress:
                progress(len(cells) / total, f"{len(cells)} of {total} captures")
        return _result(plan, cells)


def _result(plan: Plan, cells: Mapping[Job, Sequence[Cell]]) -> Comparison:
    # What can be built nowhere is no property of a point.
    built = {job.design for job, each in cells.items() if any(cell.is_built for cell in each)}
    for design, name in enumerate(plan.names):
        if design not in built:
            why = next(each[0].problem for job, each in cells.items() if job.design == design)
            raise InputError(f"{name} cannot be built at any point: {why}")
    machines = plan.machines
    places = {tuple(each.values()): i for i, each in enumerate(machines.points())}
    names = [axis.name for axis in machines.axes]
    designs = range(len(plan.names))
    rows: list[tuple[Cell, ...]] = []
    on_inputs: tuple[str, ...] | None = None
    for point in plan.grid.points():
        place = places[tuple(point[name] for name in names)]
        jobs = [plan.job_of(design, point) for design in designs]
        rows.append(tuple(cells[job][place] for job in jobs))
        if on_inputs is None and all(each.is_built for each in rows[-1]):
            # The first point that has all designs tells.
            on_inputs = notes_on_inputs(
                plan.names, [plan.context.asked(each).specs for each in jobs]
            )
    learned = [each.predictor for each in plan.context.machines if each.predictor]
    is_predicted = any(cell.predicted_s is not None for row in rows for cell in row)
    warnings = (*plan.notes, *(on_inputs or ()), *_warnings(plan, is_predicted))
    return Comparison(
        axes={each.name: each.values for each in plan.grid.axes},
        designs=plan.names,
        reference=plan.reference,
        cells=tuple(rows),
        hardware=plan.hardware,
        threads=plan.threads,
        run=_run_words(plan),
        calibration=learned[0].calibration.said if learned and is_predicted else "",
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _warnings(plan: Plan, is_predicted: bool) -> list[str]:
    options, machines = plan.context.options, plan.context.machines
    run_on: list[Device] = [options.run(each.profile.device).device for each in machines]
    notes = [classic_model_note(each) for each in plan.hardware if each.knows_only_dram]
    notes += sorted(
        {
            other_device_note(each.profile, device)
            for each, device in zip(machines, run_on, strict=True)
            if device != each.profile.device
        }
    )
    for each in machines:
        notes += each.predictor.notes if each.predictor else ()
    if is_predicted:
        return notes
    if options.train or options.autocast or options.cold or any(each != "cpu" for each in run_on):
        only = "what is learned is of repeated eager inference on a CPU, without autocast"
        return [*notes, f"bounds only: {only}"]
    return [*notes, *(no_calibration(each.name) for each in plan.hardware)]


def _run_words(plan: Plan) -> str:
    """How all designs are run, in words."""
    options = plan.context.options
    axes = {axis.name for axis in plan.grid.axes}
    parts = [
        "training" if options.train else "",
        "" if "dtype" in axes else str(options.dtype or "").removeprefix("torch."),
        f"autocast {options.autocast}" if options.autocast else "",
        "channels-last" if options.channels_last else "",
        f"batch {options.batch}" if options.batch else "",
        f"seq {options.seq}" if options.seq else "",
        f"for {options.device}" if options.device else "",
        "cold caches" if options.cold else "",
    ]
    return ", ".join(filter(None, parts))
