"""Machine and cost model of a search, and timings of its candidates."""

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
from roofline.machine.measuring.core_state_reader import core_state_reader
from roofline.pipeline.fresh_processes import RunFunction, fresh_processes
from roofline.pipeline.machines import (
    Hardware,
    host_environment,
    host_latency_file,
    is_this_machine,
    load_calibrated,
    resolve_hardware,
    threads_on,
)
from roofline.pipeline.measured_comparisons import (
    Candidate,
    check_here,
    measure_interleaved,
    rounds_of,
)
from roofline.pipeline.predictions import last_level_bytes
from roofline.pipeline.runs import Workload
from roofline.pipeline.timing import Bench, bench, gauged
from roofline.placement import Roof
from roofline.run import RunOptions, check_choice, machine_name
from roofline.substitution.costs import (
    CostBasis,
    CountGraph,
    FusedCosts,
    MeasuredCosts,
    MinimumTimeCosts,
    PredictedCosts,
    SummedCosts,
    TimeCalls,
    launch_times,
)
from roofline.substitution.result import Decision, Rounds

if TYPE_CHECKING:
    import torch


DEFAULT_ROUNDS = 7
"""Number of rounds. With fewer, one model in ten looks faster than itself: the interval excludes
one round in ten.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Timings in one runtime: samples with the original first, and rounds of each candidate."""

    samples: tuple[Sample, ...]
    rounds: tuple[Rounds, ...]
    conditions: tuple[str, ...] = ()

    @property
    def fastest(self) -> int | None:
        """Number of the candidate with the largest significant speedup; None: there is none."""
        faster = [place for place, each in enumerate(self.rounds) if each.is_faster]
        return max(faster, key=lambda place: self.rounds[place].speedup, default=None)


def decide(
    are_tried: Sequence[bool], eager: Trials | None, compiled: Trials | None
) -> tuple[int | None, Decision]:
    """Return the number of the chosen candidate, and the decision.

    `are_tried` marks candidates without lower cost, which were only worth timing.
    """
    found = [place for place, is_tried in enumerate(are_tried) if not is_tried]
    decisive = compiled or eager
    if decisive is not None and decisive.fastest is not None:
        return decisive.fastest, "measured faster"
    if not found:
        return None, "nothing found"
    if decisive is None:
        return found[0], "predicted faster"
    # The closest one.
    rounds = decisive.rounds
    return max(found, key=lambda place: rounds[place].speedup), "not faster"


def check_bench(*, force: bool, say: Say | None) -> None:
    """Check that timings are possible now; raise a MeasurementError otherwise."""
    with bench(force=force, say=say or silent):
        pass


def time_eager(candidates: Sequence[Candidate], *, rounds: int | None = None, **how: Any) -> Trials:
    """Time candidates in eager torch, original first, each in a fresh process."""
    count = DEFAULT_ROUNDS if rounds is None else rounds
    return _trials(measure_interleaved(candidates, rounds=count, **how), "eager", candidates)


class CompileError(Exception):
    """`torch.compile` cannot be timed; the message is one line."""


def time_compiled(
    candidates: Sequence[Candidate],
    *,
    rounds: int | None = None,
    force: bool = False,
    say: Say | None = None,
    processes: Callable[[], AbstractContextManager[RunFunction]] = fresh_processes,
    on: Callable[..., AbstractContextManager[Bench]] = bench,
) -> Trials:
    """Time candidates under `torch.compile` with freezing, interleaved in one fresh process."""
    if not any(map(shutil.which, ("g++", "gcc", "clang++", "c++", "cl"))):
        raise CompileError("torch.compile: no C++ compiler found; install g++")
    say = say or silent
    count = DEFAULT_ROUNDS if rounds is None else rounds
    with on(force=force, say=say) as here, processes() as process:
        say(f"compiling {len(candidates)} models with torch.compile")
        try:
            found = process(time_compiled_rounds, here, candidates, count)
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


def time_compiled_rounds(
    here: Bench, candidates: Sequence[Candidate], count: int
) -> tuple[tuple[RoundTime, ...], ...]:
    """Time modules compiled for inference, in rounds; runs in a separate process."""
    import torch
    from torch._inductor import config

    from roofline.latency.measuring.rounds import Effort
    from roofline.workload.capture.prepared_model import prepare_model
    from roofline.workload.capture.real_tensors import RealTensors

    effort = Effort(warm_ups=1, min_rounds=3, max_rounds=15, budget_s=0.5)
    with (
        # Compile in this process: workers would outlive it, and disturb timings.
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
                # Twice: the second pass may have other strides, and compile again.
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
                # One round has no spread.
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


def cast_model(asked: Workload, original: torch.nn.Module) -> torch.nn.Module:
    """Return the model, or a copy of it in the data type of the run."""
    if not asked.run.dtype:
        return original
    from roofline.workload.torch_dtypes import torch_dtype

    try:
        return copy.deepcopy(original).to(torch_dtype(asked.run.dtype))
    # Locks, generators and non-leaf tensors cannot be copied.
    except Exception as error:
        raise ModelError(
            f"{asked.name} cannot be copied for {argument('dtype')}:"
            f" {type(error).__name__}: {printable(error_text(error)[:200])};"
            f" cast it first, and omit {argument('dtype')}"
        ) from error


_BASES: tuple[CostBasis, ...] = ("bound", "predicted", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Target machine and the cost basis of the search; ``is_host``: it is this one."""

    profile: HardwareProfile
    roof: Roof
    predictor: Predictor | None
    basis: CostBasis
    is_fused: bool
    is_host: bool
    notes: tuple[str, ...] = ()

    @property
    def launch_source(self) -> str:
        """Launch overhead with its source; ``""`` unless costs are minimum times."""
        return launch_times(self.profile).source if self.basis == "bound" else ""


def check_costs(
    hardware: Hardware | None, *, cost: str | None, fused: bool, measure: bool | None, timings: str
) -> None:
    """Check the cost options before the capture; raise an InputError if impossible.

    `timings` is an option that requires timings; ``""``: none is given.
    """
    if cost is not None:
        check_choice("cost", cost, _BASES)
    asked, bound = argument("cost", cost), argument("cost", "bound")
    if fused and cost not in (None, "bound"):
        raise InputError(
            f"{argument('fused', True)} {asked}: fused kernels have minimum times only; use"
            f" {bound}, or omit {argument('fused')}"
        )
    if timings and measure is False:
        raise InputError(f"{timings}: has no effect without timings; omit it")
    if is_this_machine(hardware):
        return
    named = argument("hardware", machine_name(hardware))
    if cost == "measured":
        raise InputError(
            f"{asked} times operators on this machine, but {named} is another one; use {bound} (or"
            f" predicted, if that machine is calibrated), or omit {argument('hardware')}"
        )
    if timings:
        raise InputError(
            f"{timings}: requires timings on this machine, but {named} is another one; omit one of"
            " them"
        )
    if measure:
        check_here(hardware, "measure")


def machine_for(
    options: RunOptions, *, cost: CostBasis | None, fused: bool, progress: Progress | None
) -> Machine:
    hardware = options.hardware
    profile, notes = resolve_hardware(hardware, progress)
    predictor = load_calibrated(profile, hardware, options.run())
    is_calibrated = predictor is not None and predictor.calibration.has_runs
    is_host = is_this_machine(hardware)
    basis: CostBasis = cost or ("predicted" if is_calibrated and not fused else "bound")
    asked, bound = argument("cost", basis), argument("cost", "bound")
    if basis == "predicted" and not is_calibrated:
        fix = (
            f"run `roofline calibrate` first, or use {bound}"
            if is_host
            else f"use {bound}, or put the .latency.sqlite of its calibration next to its file"
        )
        raise HardwareError(f"{asked}: no usable calibration of hardware '{profile.name}'; {fix}")
    if basis == "bound" and not profile.memory:
        raise HardwareError(
            f"{asked}: hardware '{profile.name}' has no ceilings; run `roofline measure` there, or"
            f" use other {argument('hardware')}"
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
def open_costs(
    machine: Machine,
    count: CountGraph,
    *,
    pass_bytes: int,
    force: bool,
    progress: Callable[[str], None],
    say: Say,
) -> Generator[SummedCosts]:
    """Open the cost model of a machine; no other measurement may run meanwhile."""
    match machine.basis:
        case "bound":
            kind = FusedCosts if machine.is_fused else MinimumTimeCosts
            yield kind(count, machine.roof, launch_times(machine.profile))
        case "predicted":
            assert machine.predictor is not None
            yield PredictedCosts(count, machine.roof, machine.predictor)
        case "measured":
            with _open_timer(
                machine, pass_bytes=pass_bytes, force=force, progress=progress, say=say
            ) as time:
                yield MeasuredCosts(count, machine.roof, time, machine.predictor)


@contextmanager
def _open_timer(
    machine: Machine,
    *,
    pass_bytes: int,
    force: bool,
    progress: Callable[[str], None],
    say: Say,
) -> Generator[TimeCalls]:
    """Open a function that times operator calls on this machine, with cached times."""
    from roofline.latency.measuring.isolated import measure_isolated

    threads = machine.roof.threads
    with (
        bench(force=force, say=say) as here,
        Store(host_latency_file(), host_environment()) as store,
        core_state_reader(here.topology.cores[:threads]) as core_state,
    ):
        yield partial(
            measure_isolated,
            store=store,
            threads=threads,
            last_level_bytes=last_level_bytes(machine.profile),
            pass_bytes=pass_bytes,
            cores=here.topology.cores,
            gauges=replace(Gauges(), core_state=core_state),
            progress=lambda _, what: progress(what),
            say=say,
        )
