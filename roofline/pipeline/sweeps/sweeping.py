"""Entry point `sweep`: designs over a grid, or over machine balance."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.core.dtypes import DType
from roofline.core.dtypes import dtype as dtype_called
from roofline.core.progress import Progress, Say
from roofline.design.comparison.axes import BALANCE, grid_of
from roofline.design.comparison.balance import Balance, Crossing, KnownMachine
from roofline.design.comparison.cells import Cell
from roofline.design.comparison.result import Comparison
from roofline.errors import HardwareError, InputError, ModelError, RooflineError, argument
from roofline.latency.calibrated import no_calibration
from roofline.machine import catalog
from roofline.machine.hardware import Bandwidth, HardwareProfile, MemoryLevel, Provenance
from roofline.pipeline.analyses import memory_peak
from roofline.pipeline.runs import CapturedPass
from roofline.pipeline.sweeps.execution import ExecutionTarget, run_jobs, workload_text
from roofline.pipeline.sweeps.jobs import Job, inputs_text, notes_on_inputs, one_thread
from roofline.pipeline.sweeps.planning import Plan, plan_of, probe_job_times
from roofline.placement import Roof, arithmetic_dtype, classic_model_note, other_device_note, place
from roofline.run import Device, Run, RunOptions, SweepKeywords, takes

if TYPE_CHECKING:
    import torch


_HALVINGS = 50
"""Bisections between two balances to find a crossover."""


def balance_sweep(plan: Plan) -> Comparison:
    """Return the minimum times of designs over machine balance."""
    (machine, *_) = plan.context.machines
    base, threads = machine.profile, machine.threads
    options = plan.context.options

    @functools.cache
    def captured_on(run: Run) -> list[CapturedPass]:
        found: list[CapturedPass] = []
        for job, name in zip(plan.jobs(), plan.names, strict=True):
            try:
                found.append(plan.context.captured(job, run.device))
            except RooflineError as error:
                raise ModelError(f"{name}: {error}") from None
        return found

    captures = captured_on(options.run(base.device))
    of = dtype_called(str(options.dtype)) if options.dtype else _dtype(captures[plan.reference])
    peak = Roof(base, threads).compute(of)
    if peak is None or not base.memory:
        raise HardwareError(
            f"hardware '{base.name}' has no ceilings for {of}; choose another"
            f" ({argument('hardware')})"
        )

    def bounds_s(balance: float) -> tuple[float, ...]:
        profile = with_bandwidth(base, peak.flop_per_s / balance, threads)
        times = _bounds_s(captures, Roof(profile, threads))
        if times is None:
            raise HardwareError(
                f"hardware '{base.name}' has no ceilings for some operators of these designs;"
                f" choose another ({argument('hardware')})"
            )
        return times

    peaks = [memory_peak(each.capture, each.reuse).byte for each in captures]

    def cells(times: Sequence[float], capacity_bytes: int | None = None) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                eager_min_time_s=time_s,
                peak_memory_bytes=byte,
                memory_capacity_bytes=capacity_bytes,
            )
            for time_s, byte in zip(times, peaks, strict=True)
        )

    rows = tuple(map(bounds_s, plan.balances))
    known: list[tuple[KnownMachine, tuple[Cell, ...]]] = []
    left_out: list[str] = []
    for entry in catalog.entries():
        profile = entry.profile
        balance = balance_of(profile, of) if profile else None
        if profile is None or balance is None:
            why = "cannot be read" if profile is None else f"no ceilings for {of}"
            left_out.append(f"{entry.name} ({why})")
            continue
        there = captured_on(options.run(profile.device))
        times = _bounds_s(there, Roof(profile, profile.threads))
        if times is None:
            left_out.append(f"{entry.name} (no ceilings for some operators)")
            continue
        caches = not profile.has_single_memory_level
        found = KnownMachine(name=entry.name, balance=balance, has_caches=caches)
        known.append((found, cells(times, profile.memory_capacity_bytes)))
    known.sort(key=lambda each: each[0].balance)
    device = captures[plan.reference].capture.run.device
    return Comparison(
        designs=plan.names,
        reference=plan.reference,
        axes={BALANCE: plan.balances},
        cells=(*map(cells, rows), *(each for _, each in known)),
        hardware=(base,),
        threads=threads,
        run=inputs_text(captures[plan.reference].inputs),
        warnings=(
            *((other_device_note(base, device),) if device != base.device else ()),
            *notes_on_inputs(plan.names, [each.inputs for each in captures]),
        ),
        balance=Balance(
            dtype=of.name,
            crossings=_crossings(plan.balances, rows, bounds_s),
            machines=tuple(machine for machine, _ in known),
            left_out=tuple(left_out),
        ),
    )


def _dtype(captured: CapturedPass) -> DType:
    """Return the data type of most FLOP of a design."""
    found: Counter[DType] = Counter()
    for record in captured.capture.records:
        of = arithmetic_dtype((*record.inputs, *record.outputs))
        if of is not None:
            found[of] += record.work.flop or 0
    return found.most_common(1)[0][0] if found else dtype_called("float32")


def _bounds_s(captures: Sequence[CapturedPass], roof: Roof) -> tuple[float, ...] | None:
    """Return the minimum time of each design in seconds; None if one is unknown."""
    found: list[float] = []
    for each in captures:
        bounds_s = [one.eager_min_time_s for one in place(each.capture.records, each.reuse, roof)]
        known = [eager_min_time_s for eager_min_time_s in bounds_s if eager_min_time_s is not None]
        if len(known) < len(bounds_s):
            return None
        found.append(sum(known))
    return tuple(found)


def with_bandwidth(base: HardwareProfile, bytes_per_s: float, threads: int) -> HardwareProfile:
    """Return a hypothetical machine: compute ceilings of `base`, one memory of that bandwidth."""
    memory = MemoryLevel(
        name=base.memory[-1].name,
        scope="shared",
        bandwidth=(
            Bandwidth(
                kernel="unspecified",
                threads=threads,
                peak_bytes_per_s=bytes_per_s,
                sustained_bytes_per_s=bytes_per_s,
                provenance=Provenance(
                    source="derived", reference=f"hypothetical, made of {base.name}", date=""
                ),
            ),
        ),
    )
    return replace(
        base,
        name=f"{base.name} with other memory",
        memory=(memory,),
        overheads=(),
        links=(),
        bandwidth_curves=(),
        latency_curve=None,
    )


def balance_of(profile: HardwareProfile, of: DType) -> float | None:
    """Return the machine balance in FLOP/B of the farthest memory; None without ceilings."""
    roof = Roof(profile, profile.threads)
    peak = roof.compute(of)
    return peak.flop_per_s / roof.levels[-1].bytes_per_s if peak and roof.levels else None


def _crossings(
    balances: Sequence[float],
    rows: Sequence[tuple[float, ...]],
    bounds_s: Callable[[float], tuple[float, ...]],
) -> tuple[Crossing, ...]:
    """Return the crossovers between neighboring balances."""
    found: list[Crossing] = []
    for i in range(len(balances) - 1):
        before, after = _best(rows[i]), _best(rows[i + 1])
        low = balances[i]
        while before != after:
            # Smallest balance with another leader.
            high = balances[i + 1]
            for _ in range(_HALVINGS):
                middle = math.sqrt(low * high)
                if _best(bounds_s(middle)) == before:
                    low = middle
                else:
                    high = middle
            then = _best(bounds_s(high))
            found.append(Crossing(balance=high, before=before, after=then))
            before, low = then, high
    return tuple(found)


def _best(times_s: Sequence[float]) -> int:
    return min(range(len(times_s)), key=lambda i: (times_s[i], i))


@takes(SweepKeywords)
def sweep(
    *designs: str | torch.nn.Module,
    axes: str | Mapping[str, object],
    inputs: Any = None,
    reference: int | str = 0,
    executor: str | Executor | None = None,
    jobs: int | None = None,
    names: Sequence[str] = (),
    progress: Progress | None = None,
    ask: Say | None = None,
    **run: Unpack[SweepKeywords],
) -> Comparison:
    """Compare designs over a grid of sizes: work, minimum and predicted time, fastest design.

    Nothing is measured, and results do not depend on the executor.

    Over the axis ``balance``, in FLOP/B, hypothetical machines have the compute ceilings of one
    machine, and one memory level whose bandwidth gives the balance; all operands cross it (classic
    roofline model). They have minimum times only. Known machines (this one, the user's, bundled
    ones) have the minimum times of their own profiles, with caches.

    Args:
        designs: at least two: expressions with variables, such as
            ``"conv2d({c},{c},3,padding=1)@{size}x{size}"``, names of models, or modules.
        axes: values of variables, and of the options batch, seq, threads, dtype, layout
            (contiguous, channels-last) and hardware: ``{"c": [16, 32], "size": range(7, 57, 7)}``,
            or ``"c=16:1024:x2,size=7:56:+7,dtype=float32|bfloat16"``. With ``balance``, all others
            have one value.
        inputs: as for `analyze`, for all designs. Several machines of ``hardware`` become an axis.
        reference: index or name of the reference design.
        executor: ``"local"``, ``"processes"``, ``"dask:ADDRESS"``, or a
            `concurrent.futures.Executor`. None: local below about ten seconds, else processes.
        jobs: number of processes; 1: local.
        names: of the designs [default: their expressions].
        progress: called with the progress.
        ask: called with the size of a long sweep; may raise.

    Raises:
        InputError: unused axes, variables without an axis, invalid balances, duplicate designs, or
            a design that fails at every point.
        HardwareError: no ceilings for the data type.
        MeasurementError: a design that crashes every process.
    """
    grid = grid_of(axes)
    target = ExecutionTarget.of(executor, jobs, grid=grid)
    plan = plan_of(
        designs,
        grid,
        names=names,
        reference=reference,
        hardware=run.get("hardware"),
        inputs=inputs,
        options=RunOptions.of(inputs, **{**run, "hardware": None}),
        progress=progress,
    )
    return carry_out(plan, target, ask=ask, progress=progress)


def carry_out(
    plan: Plan,
    target: ExecutionTarget,
    *,
    ask: Say | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run a plan and return its result; arguments as for `sweep`."""
    if plan.balances:
        return balance_sweep(plan)
    with one_thread():
        plan = plan if plan.job_s else replace(plan, job_s=probe_job_times(plan))
        long = workload_text(plan, target)
        if ask and long:
            ask(long)
        total = plan.job_count
        cells: dict[Job, Sequence[Cell]] = {}
        for job, found in run_jobs(plan, target.resolved(plan.job_mean_s * total)):
            cells[job] = found
            if progress:
                progress(len(cells) / total, f"{len(cells)} of {total} captures")
        return _result(plan, cells)


def _result(plan: Plan, cells: Mapping[Job, Sequence[Cell]]) -> Comparison:
    # A design that fails at every point is an error.
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
            # Inputs at the first point with all designs.
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
        calibration="; ".join(dict.fromkeys(each.description for each in learned * is_predicted)),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _warnings(plan: Plan, is_predicted: bool) -> list[str]:
    options, machines = plan.context.options, plan.context.machines
    run_on: list[Device] = [options.run(each.profile.device).device for each in machines]
    notes = [classic_model_note(each) for each in plan.hardware if each.has_single_memory_level]
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
        only = "calibration covers repeated eager inference on a CPU without autocast"
        return [*notes, f"minimum times only: {only}"]
    return [
        *notes,
        *(f"minimum times only on {each.name}: {no_calibration(each)}" for each in plan.hardware),
    ]


def _run_words(plan: Plan) -> str:
    """Return the run options as text."""
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
