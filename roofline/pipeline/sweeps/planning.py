"""Plan of a sweep: designs, axes, jobs and estimated duration."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.core.dtypes import dtype as dtype_called
from roofline.core.progress import Progress
from roofline.design.comparison.axes import (
    BALANCE,
    LAYOUTS,
    OPTION_AXES,
    Axis,
    Grid,
    Point,
    point_text,
    text_of,
)
from roofline.errors import HardwareError, InputError, ModelError, argument, did_you_mean
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.machines import Hardware, load_predictor, resolve_hardware, threads_on
from roofline.pipeline.sweeps.jobs import Context, Design, Job, Machine, files_of_designs
from roofline.run import RunOptions, each_of, machine_name

_OF_CAPTURES = ("batch", "seq", "dtype", "layout")
"""Axes that change the capture."""

_OF_MACHINES = ("hardware", "threads")

_UNPREDICTED_S = 0.003
"""Assumed time per job without a probe, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a sweep; ``job_s`` are probed job times by design, ``balances`` machine balances."""

    grid: Grid
    names: tuple[str, ...]
    reference: int
    context: Context
    hardware: tuple[HardwareProfile, ...]
    notes: tuple[str, ...]
    threads: int | None
    balances: tuple[float, ...] = ()
    job_s: tuple[float, ...] = ()

    @property
    def design_points(self) -> int:
        """Number of points times designs."""
        return self.grid.count * len(self.names)

    @property
    def job_count(self) -> int:
        """Number of captures."""
        return sum(self.captures_of(i).count for i in range(len(self.names)))

    @property
    def job_mean_s(self) -> float:
        """Mean time per job in seconds, in one process."""
        times = self.job_s or (_UNPREDICTED_S,) * len(self.names)
        counts = [self.captures_of(i).count for i in range(len(self.names))]
        return sum(map(math.prod, zip(times, counts, strict=True))) / sum(counts)

    def captures_of(self, design: int) -> Grid:
        """Return the axes that change the capture of a design."""
        variables = self.context.designs[design].variables
        return self.grid.of((*variables, *_OF_CAPTURES))

    @property
    def machines(self) -> Grid:
        """Axes of machines and threads."""
        return self.grid.of(_OF_MACHINES)

    def jobs(self) -> Iterator[Job]:
        """Yield all captures by design."""
        for design in range(len(self.names)):
            for point in self.captures_of(design).points():
                yield Job(design=design, values=tuple(point.items()))

    def job_of(self, design: int, point: Point) -> Job:
        """Return the capture of a design at a point."""
        names = [axis.name for axis in self.captures_of(design).axes]
        return Job(design=design, values=tuple((name, point[name]) for name in names))

    def job_text(self, job: Job) -> str:
        """Return a job as text: ``"conv2d(…) at channels 64"``."""
        at = f" at {point_text(dict(job.values))}" if job.values else ""
        return f"{self.names[job.design]}{at}"


def plan_of(
    designs: Sequence[object],
    grid: Grid,
    *,
    names: Sequence[str] = (),
    reference: int | str = 0,
    hardware: Hardware | Sequence[Hardware] | None = None,
    inputs: Any = None,
    options: RunOptions,
    progress: Progress | None = None,
) -> Plan:
    """Return the plan of a sweep; errors are raised before any work."""
    designed = _designs(designs, names)
    called = tuple(each.name for each in designed)
    if isinstance(reference, str):
        if reference not in called:
            hint = did_you_mean(reference, called) or f"; there are {', '.join(called)}"
            raise InputError(f"{argument('reference', reference)}: unknown design{hint}")
        reference = called.index(reference)
    if not 0 <= reference < len(designed):
        raise InputError(f"reference {reference}: must be from 0 to {len(designed) - 1}")
    given = each_of("hardware", hardware)
    balances: tuple[float, ...] = ()
    if is_over_balance(grid, designed):
        balances = _balances(grid, given, options)
        rest = tuple(axis for axis in grid.axes if axis.name != BALANCE)
        grid = replace(grid, axes=rest)
    _check_axes(grid, designed, given, options)
    if len(given) > 1:
        # Several machines become an axis.
        machines = each_of("hardware", [machine_name(each) for each in given])
        grid = replace(grid, axes=(*grid.axes, Axis(name="hardware", values=machines)))
    _check_values(grid, designed, inputs)
    machines, profiles, notes = _machines(grid, given, options, progress)
    found = {each.threads for each in machines}
    return Plan(
        grid=grid,
        names=called,
        reference=reference,
        context=Context(
            designs=designed,
            machines=machines,
            options=options,
            inputs=inputs,
            shipped=files_of_designs(each.model for each in designed),
        ),
        hardware=profiles,
        notes=notes,
        threads=found.pop() if len(found) == 1 else None,
        balances=balances,
    )


def _designs(designs: Sequence[object], names: Sequence[str]) -> tuple[Design, ...]:
    if len(designs) < 2:
        raise InputError(f"a sweep requires at least two designs, got {len(designs)}")
    if names and len(names) != len(designs):
        raise InputError(f"{len(names)} names for {len(designs)} designs")
    found: list[Design] = []
    for index, each in enumerate(designs):
        name = names[index] if names else each if isinstance(each, str) else type(each).__name__
        if isinstance(each, str):
            if each.endswith(".json"):
                raise InputError(f"{each}: a saved analysis cannot be swept; give its model")
            from roofline.workload.models.expressions.reading import variables_in

            found.append(Design(name=name, model=each, variables=variables_in(each)))
            continue
        import torch

        if not isinstance(each, torch.nn.Module):
            what = type(each).__name__
            raise InputError(f"a sweep expects modules or names of designs, got {what}")
        found.append(Design(name=name, model=each))
    shown = [each.name for each in found]
    if len(set(shown)) < len(shown):
        again = next(name for name in shown if shown.count(name) > 1)
        raise InputError(f"duplicate design '{again}'; give different designs")
    return tuple(found)


# -- checks ----------------------------------------------------------------------------------------


def is_over_balance(grid: Grid, designs: Sequence[Design] = ()) -> bool:
    """Return True for a sweep over machine balance, not over a variable of that name."""
    variables = {name for each in designs for name in each.variables}
    return BALANCE in {axis.name for axis in grid.axes} - variables


def _balances(
    grid: Grid, hardware: Sequence[Hardware | None], options: RunOptions
) -> tuple[float, ...]:
    sweep = argument("axes")
    if len(hardware) > 1:
        raise InputError(
            f"{argument('hardware')}: a sweep over {BALANCE} derives its machines from one; give"
            " one"
        )
    if options.cold:
        raise InputError(
            f"{argument('cold', True)} has no effect on a sweep over {BALANCE}: all operands come"
            " from memory"
        )
    values: Sequence[object] = ()
    for axis in grid.axes:
        if axis.name == BALANCE:
            values = axis.values
        elif len(axis.values) > 1 or axis.name in _OF_MACHINES:
            raise InputError(
                f"{sweep}: '{axis.name}' cannot vary with {BALANCE}; give {axis.name} one value"
            )
    found = [float(each) for each in values if isinstance(each, (int, float)) and each > 0]
    if len(found) < len(values) or len(found) < 2:
        raise InputError(f"{sweep}: {BALANCE} requires two or more numbers above 0 (FLOP/B)")
    return tuple(found)


def _check_axes(
    grid: Grid,
    designs: Sequence[Design],
    hardware: Sequence[Hardware | None],
    options: RunOptions,
) -> None:
    """Raise an error for unused axes, variables without an axis, and duplicate options."""
    given = [axis.name for axis in grid.axes]
    variables = list(dict.fromkeys(name for each in designs for name in each.variables))
    fixed: dict[str, object] = {
        "hardware": hardware[0],
        "layout": options.channels_last or None,
        **options.keywords("batch", "seq", "threads", "dtype"),
    }
    for name in given:
        if name not in variables and name not in OPTION_AXES:
            known = (*variables, *OPTION_AXES)
            raise grid.refusal(
                name,
                f"{argument('axes')}: no design has a variable '{name}'{did_you_mean(name, known)}"
                f" (variables: {', '.join(variables) or 'none'};"
                f" options: {', '.join(OPTION_AXES)})",
            )
        if name not in variables and fixed.get(name) is not None:
            option = argument("channels_last" if name == "layout" else name)
            raise grid.refusal(name, f"{option} is also an axis of {argument('axes')}; give one")
    for name in variables:
        if name not in given:
            raise InputError(
                f"{argument('axes')}: the variable '{name}' of"
                f" {next(each.name for each in designs if name in each.variables)} has no axis"
                f"{did_you_mean(name, given)} (write {name}=16:1024:x2)"
            )


def _check_values(grid: Grid, designs: Sequence[Design], inputs: Any) -> None:
    """Raise an error for invalid values on axes of options."""
    for axis in grid.axes:
        name, values = axis.name, axis.values
        # A design may have a variable of that name.
        if all(name in each.variables for each in designs):
            continue
        said = f"{argument('axes')}: {name}"
        if name in ("batch", "seq", "threads"):
            ends = values if isinstance(values, tuple) else (values[0], values[-1])
            for each in ends:
                if not isinstance(each, int) or each < 1:
                    raise InputError(f"{said} {text_of(each)}: must be whole numbers from 1")
            if name == "seq":
                RunOptions.of(inputs, seq=int(values[0]))
        for each in values if name in ("dtype", "layout") else ():
            if name == "dtype" and dtype_called(str(each)).kind != "float":
                raise InputError(f"{said} {each}: must be a floating-point type")
            if name == "layout" and each not in LAYOUTS:
                raise InputError(
                    f"{said} {text_of(each)}: must be {' or '.join(LAYOUTS)}"
                    f"{did_you_mean(str(each), LAYOUTS)}"
                )


def _machines(
    grid: Grid,
    given: Sequence[Hardware | None],
    options: RunOptions,
    progress: Progress | None,
) -> tuple[tuple[Machine, ...], tuple[HardwareProfile, ...], tuple[str, ...]]:
    """Return machines by point of their axes, profiles, and notes."""
    asked = {machine_name(each or catalog.HOST): each for each in given}
    for axis in grid.axes:
        if axis.name == "hardware" and len(given) == 1:
            asked = {str(name): str(name) for name in axis.values}
    options.run()
    loaded: dict[str, tuple[HardwareProfile, Any]] = {}
    notes: list[str] = []
    for name, named in asked.items():
        profile, said = resolve_hardware(named, progress)
        notes += said
        # Calibrations are measured with warm caches.
        run, no_cache = options.run(profile.device), options.no_cache
        learned = None if options.cold else load_predictor(profile, named, run, no_cache=no_cache)
        loaded[name] = profile, learned
    found: list[Machine] = []
    for point in grid.of(_OF_MACHINES).points():
        profile, predictor = loaded[str(point.get("hardware", next(iter(loaded))))]
        count: Any = point.get("threads", options.threads)
        threads = threads_on(profile, count, alone=len(loaded) == 1)
        found.append(Machine(profile=profile, threads=threads, predictor=predictor))
    profiles = tuple(each for each, _ in loaded.values())
    if options.threads is not None and all(each.device != "cpu" for each in profiles):
        raise HardwareError(
            f"{argument('threads', options.threads)} has no effect without a CPU; leave it out"
        )
    return tuple(found), profiles, tuple(notes)


Clock = Callable[[], float]


def probe_job_times(plan: Plan, clock: Clock = time.perf_counter) -> tuple[float, ...]:
    """Return the job time of each design in seconds, from the first, middle and last point.

    The first job loads libraries, and counts only without another.
    """
    found: list[float] = []
    for design in range(len(plan.names)):
        captures = plan.captures_of(design)
        places = dict.fromkeys((0, captures.count // 2, captures.count - 1))
        times: list[float] = []
        problems: list[str] = []
        for place in places:
            job = Job(design=design, values=tuple(captures.point(place).items()))
            for _ in range(2 if design == place == 0 else 1):
                begin = clock()
                problems.append(plan.context.cells(job)[0].problem)
                times.append(clock() - begin)
        if all(problems) and len(set(problems)) == 1:
            values = ",".join(f"{name}={each}" for name, each in captures.point(0).items())
            at = f"{argument('axes', values)}: " if values else ""
            raise ModelError(f"{at}{plan.names[design]}: {problems[0]}")
        found.append(sorted(times[-len(places) :])[len(places) // 2])
    return tuple(found)
