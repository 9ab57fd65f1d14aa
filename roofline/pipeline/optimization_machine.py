"""What a search goes by: the machine that is meant, and what graphs cost on it."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from roofline.core.progress import Progress, Say, silent
from roofline.core.sampling import Sample
from roofline.core.text import printable
from roofline.design.comparison.ratios import MeasuredRounds, RoundTime
from roofline.errors import (
    HardwareError,
    InputError,
    MeasurementError,
    ModelError,
    RooflineError,
    argument,
    error_text,
)
from roofline.latency.allocator import allocator_here
from roofline.latency.measuring.rounds import Gauges
from roofline.latency.predictor import Predictor
from roofline.latency.store import Store
from roofline.machine.hardware import HardwareProfile
from roofline.machine.measuring.pace_gauge import pace_gauge
from roofline.pipeline.fresh_processes import Runs, fresh_processes
from roofline.pipeline.machines import (
    Hardware,
    hardware_for,
    host_environment,
    host_latency_file,
    is_this_machine,
    predictor_of,
    threads_on,
)
from roofline.pipeline.measured_comparisons import (
    Candidate,
    check_here,
    measured_in_turn,
    rounds_of,
)
from roofline.pipeline.predictions import last_level_bytes
from roofline.pipeline.runs import Workload
from roofline.pipeline.timing import Bench, bench, gauged
from roofline.placement import Roof
from roofline.run import RunOptions, check_choice, machine_name
from roofline.substitution.costs import (
    BoundCosts,
    CostBasis,
    Costs,
    CountGraph,
    FusedCosts,
    MeasuredCosts,
    PredictedCosts,
    TimeCalls,
    launches_on,
)
from roofline.substitution.result import Decision, Rounds

if TYPE_CHECKING:
    import torch


DEFAULT_ROUNDS = 7
"""With fewer, one model in ten looks faster than itself: the interval leaves out a round in ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What was timed one way: the times of the original first, and its rounds with each contender.

    ``conditions`` are what was noticed meanwhile.
    """

    samples: tuple[Sample, ...]
    rounds: tuple[Rounds, ...]
    conditions: tuple[str, ...] = ()

    @property
    def fastest(self) -> int | None:
        """The number of the contender that is significantly faster than the original and gains
        most; None: none is."""
        faster = [place for place, each in enumerate(self.rounds) if each.is_faster]
        return max(faster, key=lambda place: self.rounds[place].speedup, default=None)


def decided(
    are_tried: Sequence[bool], eager: Trials | None, compiled: Trials | None
) -> tuple[int | None, Decision]:
    """Which contender is told of, and what is made of it.

    `are_tried` says which cost no less, and were only worth timing.
    """
    found = [place for place, is_tried in enumerate(are_tried) if not is_tried]
    decisive = compiled or eager
    if decisive is not None and decisive.fastest is not None:
        return decisive.fastest, "measured faster"
    if not found:
        return None, "nothing found"
    if decisive is None:
        return found[0], "predicted faster"
    # The one that came nearest.
    rounds = decisive.rounds
    return max(found, key=lambda place: rounds[place].speedup), "not faster"


def check_bench(*, force: bool, say: Say | None) -> None:
    """Refuses to begin what could not be timed."""
    with bench(force=force, say=say or silent):
        pass


def eager_trials(
    candidates: Sequence[Candidate], *, rounds: int | None = None, **how: Any
) -> Trials:
    """All of them, the original first, as eager torch runs them, each time in a new process."""
    count = DEFAULT_ROUNDS if rounds is None else rounds
    return _trials(measured_in_turn(candidates, rounds=count, **how), "eager", candidates)


class CompileError(Exception):
    """`torch.compile` cannot be timed; says why in a line."""


def compiled_trials(
    candidates: Sequence[Candidate],
    *,
    rounds: int | None = None,
    force: bool = False,
    say: Say | None = None,
    processes: Callable[[], AbstractContextManager[Runs]] = fresh_processes,
    on: Callable[..., AbstractContextManager[Bench]] = bench,
) -> Trials:
    """All of them under `torch.compile` with freezing, in turn in one new process."""
    if not any(map(shutil.which, ("g++", "gcc", "clang++", "c++", "cl"))):
        raise CompileError("torch.compile needs a C++ compiler, and there is none: install g++")
    say = say or silent
    count = DEFAULT_ROUNDS if rounds is None else rounds
    with on(force=force, say=say) as here, processes() as process:
        say(f"compiling {len(candidates)} models with torch.compile")
        try:
            found = process(compiled_rounds, here, candidates, count)
        except MeasurementError:
            raise
        except RooflineError as error:
            raise CompileError(f"torch.compile failed: {error_text(error)[:300]}") from None
    measured = MeasuredRounds(
        rounds=found,
        date=date.today().isoformat(),
        allocator=allocator_here().name,
        conditions=here.conditions,
    )
    return _trials(measured, "compile", candidates)


def compiled_rounds(
    here: Bench, candidates: Sequence[Candidate], count: int
) -> tuple[tuple[RoundTime, ...], ...]:
    """Rounds of modules, each compiled for inference; runs in a process of its own."""
    import torch
    from torch._inductor import config

    from roofline.latency.measuring.rounds import Effort
    from roofline.workload.capture.prepared_model import prepare_model
    from roofline.workload.capture.real_tensors import RealTensors

    effort = Effort(warm_ups=1, least=3, most=15, budget_s=0.5)
    with (
        # One process compiles: workers would outlive it, and take the cores of what is timed.
        config.patch({"freezing": True, "compile_threads": 1}),
        gauged(here, candidates[0].threads) as gauges,
        ExitStack() as stages,
    ):
        subjects: list[Callable[[], object]] = []
        for each in candidates:
            stage = stages.enter_context(
                prepare_model(each.model, each.inputs, each.run, RealTensors(each.run))
            )
            subjects.append(partial(torch.compile(stage.model), *stage.args, **stage.kwargs))
            try:
                # Twice: the second pass may be of other strides, and compile once more.
                subjects[-1]()
                subjects[-1]()
            except Exception as error:
                raise RooflineError(error_text(error) or type(error).__name__) from error
        return rounds_of(subjects, gauges, effort, count)


def _trials(
    measured: MeasuredRounds, baseline: Literal["eager", "compile"], candidates: Sequence[Candidate]
) -> Trials:
    samples = [measured.sample(place) for place in range(measured.models)]
    ratios = [measured.ratio(0, place) for place in range(1, len(candidates))]
    return Trials(
        samples=tuple(samples),
        rounds=tuple(
            Rounds(
                baseline=baseline,
                candidate=each.name,
                before_s=samples[0].median_s,
                after_s=sample.median_s,
                speedup=ratio.value,
                # One round says nothing of the next one.
                speedup_low=ratio.interval[0] if ratio.interval else 0.0,
                speedup_high=ratio.interval[1] if ratio.interval else ratio.value,
                rounds=len(measured.rounds),
                allocator=measured.allocator,
            )
            for each, sample, ratio in zip(candidates[1:], samples[1:], ratios, strict=True)
        ),
        conditions=measured.conditions,
    )


# -- the machine, and costs on it ------------------------------------------------------------------


def in_type_of(asked: Workload, original: torch.nn.Module) -> torch.nn.Module:
    """The model itself, or a copy of it in the type that it is to be run in."""
    if not asked.run.dtype:
        return original
    from roofline.workload.torch_dtypes import torch_dtype

    try:
        return copy.deepcopy(original).to(torch_dtype(asked.run.dtype))
    # Locks, generators and tensors that were computed cannot be copied.
    except Exception as error:
        raise ModelError(
            f"{asked.name} cannot be copied, which another type takes:"
            f" {type(error).__name__}: {printable(error_text(error)[:200])};"
            f" cast it before, and leave {argument('dtype')} out"
        ) from error


_BASES: tuple[CostBasis, ...] = ("bound", "predicted", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that a model is to be fast on, and what graphs are held against there.

    ``is_host`` says that it is this one; ``predictor`` is what was learned of it, ``basis`` what
    costs are.
    """

    profile: HardwareProfile
    roof: Roof
    predictor: Predictor | None
    basis: CostBasis
    is_fused: bool
    is_host: bool
    notes: tuple[str, ...] = ()

    @property
    def launches_said(self) -> str:
        """What launches were taken to cost; ``""`` where costs are no bounds."""
        return launches_on(self.profile).said if self.basis == "bound" else ""


def check_costs(
    hardware: Hardware | None, *, cost: str | None, fused: bool, measure: bool | None, timings: str
) -> None:
    """Refuse costs that there cannot be, before anything is captured.

    `timings` is an argument that is for timings alone; ``""``: none is given.
    """
    if cost is not None:
        check_choice("cost", cost, _BASES)
    asked, bound = argument("cost", cost), argument("cost", "bound")
    if fused and cost not in (None, "bound"):
        raise InputError(
            f"{argument('fused', True)} {asked}: only bounds are known of fused kernels; take"
            f" {bound}, or leave {argument('fused')} out"
        )
    if timings and measure is False:
        raise InputError(f"{timings}: has no effect where nothing is timed; leave it out")
    if is_this_machine(hardware):
        return
    named = argument("hardware", machine_name(hardware))
    if cost == "measured":
        raise InputError(
            f"{asked} times operators on this machine, and {named} is another: take {bound} (or"
            f" predicted, where that machine was calibrated), or leave {argument('hardware')} out"
        )
    if timings:
        raise InputError(
            f"{timings}: is for timings on this machine, and {named} is another; leave one of both"
            " out"
        )
    if measure:
        check_here(hardware, "measure")


def machine_for(
    options: RunOptions, *, cost: CostBasis | None, fused: bool, progress: Progress | None
) -> Machine:
    """The machine that is meant, and by what its costs are known."""
    hardware = options.hardware
    profile, notes = hardware_for(hardware, progress)
    predictor = predictor_of(profile, hardware, options.run())
    is_calibrated = predictor is not None and bool(predictor.calibration.runs)
    is_host = is_this_machine(hardware)
    basis: CostBasis = cost or ("predicted" if is_calibrated and not fused else "bound")
    asked, bound = argument("cost", basis), argument("cost", "bound")
    if basis == "predicted" and not is_calibrated:
        fix = (
            f"run `roofline calibrate` first, or take {bound}"
            if is_host
            else f"take {bound}, or put the .latency.sqlite of its calibration beside its file"
        )
        raise HardwareError(
            f"{asked}: nothing was learned of hardware '{profile.name}' that can be used here;"
            f" {fix}"
        )
    if basis == "bound" and not profile.memory:
        raise HardwareError(
            f"{asked}: hardware '{profile.name}' has no ceilings; run `roofline measure` there, or"
            f" take other {argument('hardware')}"
        )
    return Machine(
        profile=profile,
        roof=Roof(profile, threads_on(profile, options.threads, alone=True)),
        predictor=predictor,
        basis=basis,
        is_fused=fused,
        is_host=is_host,
        notes=notes,
    )


@contextmanager
def costs_on(
    machine: Machine,
    count: CountGraph,
    *,
    pass_bytes: int,
    force: bool,
    progress: Callable[[str], None],
    say: Say,
) -> Generator[Costs]:
    """What graphs cost on a machine; while operators may be timed, nothing else is measured."""
    match machine.basis:
        case "bound":
            kind = FusedCosts if machine.is_fused else BoundCosts
            yield kind(count, machine.roof, launches_on(machine.profile))
        case "predicted":
            assert machine.predictor is not None
            yield PredictedCosts(count, machine.roof, machine.predictor)
        case "measured":
            with _timed_calls(
                machine, pass_bytes=pass_bytes, force=force, progress=progress, say=say
            ) as time:
                yield MeasuredCosts(count, machine.roof, time, machine.predictor)


@contextmanager
def _timed_calls(
    machine: Machine,
    *,
    pass_bytes: int,
    force: bool,
    progress: Callable[[str], None],
    say: Say,
) -> Generator[TimeCalls]:
    """Times calls on this machine, none that it timed before."""
    from roofline.latency.measuring.isolated import measure_unique

    threads = machine.roof.threads
    with (
        bench(force=force, say=say) as here,
        Store(host_latency_file(), host_environment()) as store,
        pace_gauge(here.topology.cores[:threads]) as pace,
    ):
        yield partial(
            measure_unique,
            store=store,
            threads=threads,
            last_level_bytes=last_level_bytes(machine.profile),
            pass_bytes=pass_bytes,
            cores=here.topology.cores,
            gauges=replace(Gauges(), pace=pace),
            progress=lambda _, what: progress(what),
            say=say,
        )
