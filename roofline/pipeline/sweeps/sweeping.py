"""sweep: designs at every point of a grid of sizes and options, captured and predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roofline.design.sweeps.axes import grid_of
from roofline.design.sweeps.result import SweepResult
from roofline.design.sweeps.verdicts import Cell
from roofline.errors import InputError
from roofline.foundation.progress import Progress
from roofline.latency.calibrated import no_calibration
from roofline.pipeline.machines import Hardware
from roofline.pipeline.sweeps.jobs import Job, notes_on_inputs, one_thread
from roofline.pipeline.sweeps.planning import Plan, plan_of, probed
from roofline.pipeline.sweeps.where import Where, run_jobs
from roofline.placement import classic_model_note, other_device_note
from roofline.run import RunOptions

if TYPE_CHECKING:
    import torch


def sweep(
    *designs: str | torch.nn.Module,
    axes: str | Mapping[str, object],
    inputs: Any = None,
    reference: int = 0,
    hardware: Hardware | Sequence[Hardware] | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    cold: bool = False,
    train: bool = False,
    optimizer: str | None = None,
    autocast: str | torch.dtype | None = None,
    channels_last: bool = False,
    device: str | None = None,
    executor: str | Executor | None = None,
    jobs: int | None = None,
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> SweepResult:
    """Which design wins where: work, bound and predicted time of designs over a grid of sizes.

    Nothing is measured, and results do not depend on where the work is done.

    Args:
        designs: at least two: texts with variables in them, such as
            ``"conv2d({c},{c},3,padding=1)@{size}x{size}"``, other names of models, or modules.
        axes: the values of each variable, and of the options batch, seq, threads, dtype, layout
            (contiguous, channels-last) and hardware: ``{"c": [16, 32], "size": range(7, 57, 7)}``,
            or a text, ``"c=16:1024:x2,size=7:56:+7,dtype=float32|bfloat16"``.
        reference: the index of the design that ratios refer to.
        hardware: as for `analyze`; several become an axis.
        executor: where: ``"local"`` in this process, ``"processes"`` of this machine,
            ``"dask:ADDRESS"`` on a cluster, or any `concurrent.futures.Executor`. None: here if it
            takes less than about ten seconds, else in processes.
        jobs: how many processes; 1: this one.
        names: what to call the designs; by default their texts.
        inputs, dtype, batch, seq, threads, cold, train, optimizer, autocast, channels_last, device:
            as for `analyze`, for all designs.
        progress: told how far it is.

    Raises:
        InputError: axes that no design uses, variables without one, or designs that do not differ;
            and whatever `analyze` raises for a design at every point.
        MeasurementError: a design that ends every process that captures it.
    """
    plan = plan_of(
        designs,
        grid_of(axes),
        names=names,
        reference=reference,
        hardware=hardware,
        inputs=inputs,
        batch=batch,
        seq=seq,
        threads=threads,
        cold=cold,
        options=RunOptions(
            dtype=dtype,
            train=train,
            optimizer=optimizer,
            autocast=autocast,
            channels_last=channels_last,
            device=device,
        ),
        progress=progress,
    )
    where = Where.of(executor, jobs)
    with one_thread():
        return carry_out(replace(plan, job_s=probed(plan)), where, progress=progress)


def carry_out(plan: Plan, where: Where, *, progress: Progress | None = None) -> SweepResult:
    """Runs a plan, and puts its cells where they belong.

    Raises:
        InputError: a design that cannot be built at any point; and as `sweep`.
    """
    total = plan.job_count
    cells: dict[Job, Sequence[Cell]] = {}
    for job, found in run_jobs(plan, where.settled(plan.job_mean_s * total)):
        cells[job] = found
        if progress:
            progress(len(cells) / total, f"{len(cells)} of {total} captures")
    _check_built(plan, cells)
    return _result(plan, cells)


def _check_built(plan: Plan, cells: Mapping[Job, Sequence[Cell]]) -> None:
    """Refuses designs that can be built nowhere: that is no property of a point."""
    built = {job.design for job, each in cells.items() if any(cell.is_built for cell in each)}
    for design, name in enumerate(plan.names):
        if design not in built:
            why = next(each[0].problem for job, each in cells.items() if job.design == design)
            raise InputError(f"{name} cannot be built at any point: {why}")


def _result(plan: Plan, cells: Mapping[Job, Sequence[Cell]]) -> SweepResult:
    machines = plan.machines
    places = {tuple(each.values()): i for i, each in enumerate(machines.points())}
    names = [axis.name for axis in machines.axes]
    rows = tuple(
        tuple(
            cells[plan.job_of(design, point)][places[tuple(point[name] for name in names)]]
            for design in range(len(plan.names))
        )
        for point in plan.grid.points()
    )
    learned = [each.predictor for each in plan.context.machines if each.predictor]
    is_predicted = any(cell.predicted_s is not None for row in rows for cell in row)
    return SweepResult(
        grid=plan.grid,
        designs=plan.names,
        reference=plan.reference,
        cells=rows,
        hardware=plan.hardware,
        threads=plan.threads,
        run=_run_words(plan),
        calibration=learned[0].calibration.said if learned and is_predicted else "",
        warnings=tuple(
            dict.fromkeys((*plan.notes, *_on_inputs(plan, rows), *_warnings(plan, is_predicted)))
        ),
    )


def _on_inputs(plan: Plan, rows: Sequence[Sequence[Cell]]) -> Sequence[str]:
    """What is to be said of the inputs of designs, at the first point that has all of them."""
    for point, cells in zip(plan.grid.points(), rows, strict=True):
        if all(each.is_built for each in cells):
            jobs = [plan.job_of(design, point) for design in range(len(plan.names))]
            return notes_on_inputs(plan.names, [plan.context.asked(each) for each in jobs])
    return ()


def _warnings(plan: Plan, is_predicted: bool) -> list[str]:
    notes = [classic_model_note(each) for each in plan.hardware if each.knows_only_dram]
    of_other_devices = {
        other_device_note(each.profile, run_on)
        for each in plan.context.machines
        if (run_on := plan.context.options.run(each.profile.device).device) != each.profile.device
    }
    notes += sorted(of_other_devices)
    for each in plan.context.machines:
        notes += each.predictor.notes if each.predictor else ()
    if not is_predicted:
        options = plan.context.options
        if options.train or options.autocast or plan.context.cold or _is_for_other(plan):
            notes.append(
                "bounds only: what is learned is of repeated eager inference on a CPU, without"
                " autocast"
            )
        else:
            notes += [no_calibration(each.name) for each in plan.hardware]
    return notes


def _is_for_other(plan: Plan) -> bool:
    """Whether operators of no CPU are called."""
    machines = plan.context.machines
    return any(plan.context.options.run(each.profile.device).device != "cpu" for each in machines)


def _run_words(plan: Plan) -> str:
    """How all designs are run, in words."""
    options, context = plan.context.options, plan.context
    axes = {axis.name for axis in plan.grid.axes}
    parts = [
        "training" if options.train else "",
        "" if "dtype" in axes else str(options.dtype or "").removeprefix("torch."),
        f"autocast {options.autocast}" if options.autocast else "",
        "channels-last" if options.channels_last else "",
        f"batch {context.batch}" if context.batch else "",
        f"seq {context.seq}" if context.seq else "",
        f"for {options.device}" if options.device else "",
        "cold caches" if context.cold else "",
    ]
    return ", ".join(filter(None, parts))
