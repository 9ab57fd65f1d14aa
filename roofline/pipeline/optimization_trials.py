"""Whole passes of a model and of what it was rewritten to, in turn, in fresh processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from roofline.design.model_comparison.measured_rounds import MeasuredRounds, RoundTime
from roofline.errors import MeasurementError, RooflineError, said_by
from roofline.foundation.progress import Progress, Say, silent
from roofline.foundation.sampling import Sample
from roofline.latency.allocator import allocator_here
from roofline.pipeline.fresh_processes import Runs, fresh_processes
from roofline.pipeline.measured_comparisons import Candidate, measured_in_turn
from roofline.pipeline.timing import Bench, bench
from roofline.substitution.result import Decision, Rounds
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch

    from roofline.workload.inputs import Inputs

DEFAULT_ROUNDS = 7
"""With fewer, one model in ten looks faster than itself: the interval leaves out a round in ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A module that is timed, and what the report calls it."""

    name: str
    module: torch.nn.Module


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """What is timed: the original, those that may be faster, and how they are run."""

    original: Contender
    contenders: tuple[Contender, ...]
    inputs: Inputs
    run: Run
    threads: int


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

    Args:
        are_tried: of each contender whether it costs no less, and was only worth timing.
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
    """Refuses to begin what could not be timed.

    Raises:
        MeasurementError: others compute, and `force` is not set.
    """
    with bench(force=force, say=say or silent):
        pass


def eager_trials(
    subjects: Subjects,
    *,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    processes: Callable[[], AbstractContextManager[Runs]] | None = None,
    on: Callable[..., AbstractContextManager[Bench]] = bench,
) -> Trials:
    """All of them as eager torch runs them, once in each round, each time in a new process.

    Args:
        rounds: how many rounds; None: 7.

    Raises:
        MeasurementError: the machine is busy, or a process died.
        ModelError: a model raised.
    """
    measured = measured_in_turn(
        [
            Candidate(
                name=each.name,
                model=each.module,
                inputs=subjects.inputs,
                batch=None,
                seq=None,
                run=subjects.run,
                threads=subjects.threads,
            )
            for each in (subjects.original, *subjects.contenders)
        ],
        rounds=DEFAULT_ROUNDS if rounds is None else rounds,
        force=force,
        progress=progress,
        say=say,
        processes=processes,
        on=on,
    )
    return _trials(measured, "eager", subjects)


class CompileError(Exception):
    """`torch.compile` cannot be timed; says why in a line."""


def compiled_trials(
    subjects: Subjects,
    *,
    rounds: int | None = None,
    force: bool = False,
    say: Say | None = None,
    processes: Callable[[], AbstractContextManager[Runs]] = fresh_processes,
    on: Callable[..., AbstractContextManager[Bench]] = bench,
) -> Trials:
    """All of them under `torch.compile` with freezing, in turn in one new process.

    Args:
        rounds: how many rounds; None: 7.

    Raises:
        CompileError: there is no compiler, or it failed.
        MeasurementError: the machine is busy, or the process died.
    """
    if not any(map(shutil.which, ("g++", "gcc", "clang++", "c++", "cl"))):
        raise CompileError("torch.compile needs a C++ compiler, and there is none: install g++")
    say = say or silent
    count = DEFAULT_ROUNDS if rounds is None else rounds
    modules = [subjects.original.module, *(each.module for each in subjects.contenders)]
    with on(force=force, say=say) as here, processes() as process:
        say(f"compiling {len(modules)} models with torch.compile")
        try:
            found = process(
                compiled_rounds,
                here,
                modules,
                subjects.inputs,
                subjects.run,
                subjects.threads,
                count,
            )
        except MeasurementError:
            raise
        except RooflineError as error:
            raise CompileError(f"torch.compile failed: {said_by(error)[:300]}") from None
    measured = MeasuredRounds(
        rounds=found,
        date=date.today().isoformat(),
        allocator=allocator_here().name,
        conditions=here.conditions,
    )
    return _trials(measured, "compile", subjects)


def compiled_rounds(
    here: Bench,
    modules: Sequence[torch.nn.Module],
    inputs: Inputs,
    run: Run,
    threads: int,
    count: int,
) -> tuple[tuple[RoundTime, ...], ...]:
    """Rounds of modules, each compiled for inference; runs in a process of its own.

    Raises:
        RooflineError: one of them cannot be compiled.
    """
    import torch
    from torch._inductor import config

    from roofline.latency.measuring.gauges import Gauges
    from roofline.latency.measuring.rounds import Effort, run_rounds
    from roofline.latency.measuring.team import team
    from roofline.machine.measuring.pace_gauge import pace_gauge
    from roofline.workload.capture.reals import Reals
    from roofline.workload.capture.stage import staged

    effort = Effort(warm_ups=1, least=3, most=15, budget_s=0.5)
    cores = here.topology.cores
    found: list[tuple[RoundTime, ...]] = []
    # One process compiles: workers would outlive it, and take the cores of what is timed.
    settings = config.patch({"freezing": True, "compile_threads": 1})
    with (
        settings,
        team(threads, cores),
        pace_gauge(cores[:threads]) as pace,
        ExitStack() as stages,
    ):
        subjects: list[Callable[[], object]] = []
        for module in modules:
            stage = stages.enter_context(staged(module, inputs, run, Reals(run)))
            compiled: Any = torch.compile(stage.model)
            args, kwargs = stage.args, dict(stage.kwargs)
            subjects.append(
                lambda compiled=compiled, args=args, kwargs=kwargs: compiled(*args, **kwargs)
            )
            try:
                # Twice: the second pass may be of other strides, and compile once more.
                subjects[-1]()
                subjects[-1]()
            except Exception as error:
                raise RooflineError(said_by(error) or type(error).__name__) from error
        gauges = replace(Gauges(), pace=pace)
        for _ in range(count):
            rounds = run_rounds(subjects, gauges, effort)
            clock_hz = rounds.pace.clock_hz
            found.append(
                tuple(
                    RoundTime(times_s=rounds.times_s(place), clock_hz=clock_hz)
                    for place in range(len(subjects))
                )
            )
    return tuple(found)


def _trials(
    measured: MeasuredRounds, baseline: Literal["eager", "compile"], subjects: Subjects
) -> Trials:
    rounds: list[Rounds] = []
    for place, each in enumerate(subjects.contenders, start=1):
        ratio = measured.ratio(0, place)
        low, high = ratio.interval or (ratio.value, ratio.value)
        rounds.append(
            Rounds(
                baseline=baseline,
                candidate=each.name,
                before_s=measured.sample(0).median_s,
                after_s=measured.sample(place).median_s,
                speedup=ratio.value,
                # One round says nothing of the next one.
                speedup_low=low if ratio.interval else 0.0,
                speedup_high=high,
                rounds=len(measured.rounds),
                allocator=measured.allocator,
            )
        )
    return Trials(
        samples=tuple(measured.sample(place) for place in range(measured.models)),
        rounds=tuple(rounds),
        conditions=measured.conditions,
    )
