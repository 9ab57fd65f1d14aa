"""Models measured in turn on this machine, each in each round in a process of its own."""

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
    """A model that is measured, as `analyze` takes it; its options say how many threads compute."""

    name: str
    model: Any
    inputs: Any
    options: RunOptions

    @property
    def run(self) -> Run:
        """How it is run, on this CPU."""
        return self.options.run()

    @property
    def threads(self) -> int:
        """Threads that compute."""
        assert self.options.threads is not None
        return self.options.threads

    def workload(self) -> Workload:
        """The model and its inputs."""
        return build_workload(self.model, self.inputs, self.options)


def check_here(hardware: Hardware | None, name: str) -> None:
    """Refuse an argument that times models on this machine, where another one is meant."""
    if not is_this_machine(hardware):
        raise InputError(
            f"{argument(name, True)} times the models on this machine, and"
            f" {argument('hardware', machine_name(hardware))} is another: leave one of both out"
        )


def check_measurable(
    machines: Sequence[Hardware | None], options: RunOptions, *, rounds: int | None
) -> None:
    """Refuse what cannot be measured here, before anything is analysed."""
    for each in machines:
        check_here(each, "measure")
    measure = argument("measure", True)
    if options.device not in (None, "cpu"):
        raise InputError(
            f"{measure} {argument('device', options.device)}: models are measured in turn on the"
            " CPU only; `roofline profile` times one on a device"
        )
    if options.train:
        raise InputError(
            f"{measure} {argument('train', True)}: passes of inference are measured in turn;"
            " `roofline profile --train` times a step of training"
        )
    if options.cold:
        cold = argument("cold", True)
        raise InputError(f"{measure} {cold}: repeated passes are measured; leave {cold} out")
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
    """What the candidates take: all of them once in each round, in their order.

    What drifts from minute to minute, the clock and the neighbours, so meets all of them. Every
    time is from a new process, which builds the model, warms it up and times whole passes; or from
    this one where one of the models cannot leave it.
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
    "measured in this process, not in new ones: {} is defined in __main__ or cannot be pickled, so"
    " that what ran before may matter"
)


@contextmanager
def this_process() -> Generator[RunFunction]:
    """Run functions in this process."""
    yield run_here


def unpicklable_candidate(candidates: Sequence[Candidate]) -> str:
    """The first candidate that another process could not load; ``""`` if there is none."""
    for each in candidates:
        if isinstance(each.model, str):
            continue
        try:
            content = pickle.dumps((each.model, each.inputs))
        # Models may say in any way that they cannot be pickled.
        except Exception:
            return each.name
        # A new process has a main module of its own.
        if b"__main__" in content:
            return each.name
    return ""


def rounds_of(
    subjects: Sequence[Callable[[], object]], gauges: Gauges, effort: Effort, count: int
) -> tuple[tuple[RoundTime, ...], ...]:
    """Rounds of functions that are called in turn."""
    found: list[tuple[RoundTime, ...]] = []
    for _ in range(count):
        rounds = run_rounds(subjects, gauges, effort)
        times_s = [rounds.times_s(place) for place in range(len(subjects))]
        clock_hz = rounds.core_state.clock_hz
        found.append(tuple(RoundTime(times_s=each, clock_hz=clock_hz) for each in times_s))
    return tuple(found)


def time_candidate(here: Bench, candidate: Candidate) -> RoundTime:
    """One candidate in one round; runs in a process of its own."""
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
