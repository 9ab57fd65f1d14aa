"""Interleaved measurements of models on this machine, each time in a fresh process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

from roofline.core.progress import Progress, Say, silent
from roofline.design.comparison.ratios import MeasuredRounds, RoundTime
from roofline.errors import InputError, MeasurementError, argument
from roofline.latency.allocator import allocator_here
from roofline.latency.measuring.rounds import Effort, Gauges, run_rounds
from roofline.pipeline.fresh_processes import RunFunction, fresh_processes, run_here
from roofline.pipeline.machines import Hardware, is_this_machine
from roofline.pipeline.runs import Workload, build_workload
from roofline.pipeline.timing import Bench, bench, materialize_model, remeasure
from roofline.run import Run, RunOptions, check_rounds, machine_name

DEFAULT_ROUNDS = 5
_EFFORT = Effort(warm_ups=2, min_rounds=3, max_rounds=15, budget_s=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Model to measure, as for `analyze`, with its run options."""

    name: str
    model: Any
    inputs: Any
    options: RunOptions

    @property
    def run(self) -> Run:
        """Run on this CPU."""
        return self.options.run()

    @property
    def threads(self) -> int:
        """Compute threads."""
        assert self.options.threads is not None
        return self.options.threads

    def workload(self) -> Workload:
        """Return the model and its inputs."""
        return build_workload(self.model, self.inputs, self.options)


def check_here(hardware: Hardware | None, name: str) -> None:
    """Raise an error for a measurement with another machine's hardware."""
    if not is_this_machine(hardware):
        raise InputError(
            f"{argument(name, True)} measures on this machine, but"
            f" {argument('hardware', machine_name(hardware))} is another; leave one of them out"
        )


def check_measurable(
    machines: Sequence[Hardware | None], options: RunOptions, *, rounds: int | None
) -> None:
    """Raise an error for runs that cannot be measured here."""
    for each in machines:
        check_here(each, "measure")
    measure = argument("measure", True)
    if options.device not in (None, "cpu"):
        raise InputError(
            f"{measure} {argument('device', options.device)}: comparisons are measured on the CPU"
            " only; use `roofline profile` for a device"
        )
    if options.train:
        raise InputError(
            f"{measure} {argument('train', True)}: comparisons are measured in inference only; use"
            " `roofline profile --train` for a training step"
        )
    if options.cold:
        cold = argument("cold", True)
        raise InputError(f"{measure} {cold}: measured passes have warm caches; leave {cold} out")
    check_rounds(rounds)


def measure_interleaved(
    candidates: Sequence[Candidate],
    *,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    processes: Callable[[], AbstractContextManager[RunFunction]] | None = None,
    on: Callable[..., AbstractContextManager[Bench]] = bench,
) -> MeasuredRounds:
    """Measure all candidates once per round, in order.

    Interleaving exposes all candidates to the same drift of clock and load. Each time is from a
    fresh process that builds, warms up and times the model, or from this one if a model cannot be
    pickled.
    """
    count = DEFAULT_ROUNDS if rounds is None else rounds
    found: list[tuple[RoundTime, ...]] = []
    stays = "" if processes is not None else unpicklable_candidate(candidates)
    where = processes or (this_process if stays else fresh_processes)
    with on(force=force, say=say or silent, progress=progress) as here, where() as process:
        for number in range(count):
            times: list[RoundTime] = []
            for place, each in enumerate(candidates):
                if progress is not None:
                    done = number * len(candidates) + place
                    what = f"{each.name}, round {number + 1} of {count}"
                    progress(done / (count * len(candidates)), what)
                times.append(_timed(process, here, each))
            found.append(tuple(times))
    notes = (*here.conditions, *((IN_THIS_PROCESS.format(stays),) if stays else ()))
    return MeasuredRounds(
        rounds=tuple(found),
        date=date.today().isoformat(),
        own_processes=not stays,
        allocator=allocator_here().name,
        conditions=notes,
    )


IN_THIS_PROCESS = (
    "measured in this process, not in fresh ones: {} is defined in __main__ or cannot be pickled"
)


@contextmanager
def this_process() -> Generator[RunFunction]:
    """Run functions in this process."""
    yield run_here


def unpicklable_candidate(candidates: Sequence[Candidate]) -> str:
    """Return the first candidate that cannot be pickled; ``""`` without one."""
    for each in candidates:
        if isinstance(each.model, str):
            continue
        try:
            content = pickle.dumps((each.model, each.inputs))
        # Pickling can raise any exception.
        except Exception:
            return each.name
        # A fresh process has another main module.
        if b"__main__" in content:
            return each.name
    return ""


def rounds_of(
    subjects: Sequence[Callable[[], object]], gauges: Gauges, effort: Effort, count: int
) -> tuple[tuple[RoundTime, ...], ...]:
    """Return rounds of interleaved functions."""
    found: list[tuple[RoundTime, ...]] = []
    for _ in range(count):
        rounds = run_rounds(subjects, gauges, effort)
        times_s = [rounds.times_s(place) for place in range(len(subjects))]
        clock_hz = rounds.core_state.clock_hz
        found.append(tuple(RoundTime(times_s=each, clock_hz=clock_hz) for each in times_s))
    return tuple(found)


def time_candidate(here: Bench, candidate: Candidate) -> RoundTime:
    """Measure one candidate; runs in a fresh process."""
    asked = candidate.workload()
    found = remeasure(
        here,
        asked,
        materialize_model(asked),
        threads=candidate.threads,
        effort=_EFFORT,
    )
    return RoundTime(times_s=found.sample.times_s, clock_hz=found.core_state.clock_hz)


def _timed(process: RunFunction, here: Bench, candidate: Candidate) -> RoundTime:
    try:
        return process(time_candidate, here, candidate)
    except MemoryError:
        raise MeasurementError(f"{candidate.name} ran out of memory") from None
    except MeasurementError as error:
        raise MeasurementError(f"{candidate.name}: {error}") from None
