"""The real time of every operator of a model, in place: as the model runs, with its own data."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.errors import MeasurementError, ModelError, RooflineError
from roofline.foundation.progress import Progress
from roofline.foundation.sampling import Sample
from roofline.foundation.units import format_bytes
from roofline.latency.measuring.rounds import Effort, Gauges, Rounds, process_faults, run_rounds
from roofline.machine.pace import UNKNOWN, Pace
from roofline.run import Run
from roofline.workload.capture.failures import in_one_line
from roofline.workload.capture.passes import Recording, one_at_a_time, paths_of
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.recorder import operator_of
from roofline.workload.capture.stage import Stage, staged
from roofline.workload.capture.training import Listener, Teaching
from roofline.workload.inputs import Inputs
from roofline.workload.operators import Capture

_DEVICE = torch.ops.prim.device.default


class Stopwatch(Protocol):
    """Takes the times of operators; what it notes need not be a time yet."""

    def note(self) -> Any:
        """A mark, now: of the clock, or in the queue of a device."""
        ...

    def seconds(self, marks: list[tuple[Any, Any]]) -> list[float]:
        """The seconds between each two marks, once all of them are passed."""
        ...


class WallStopwatch:
    """For a CPU, which does what it is told before it returns.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.note = clock

    def seconds(self, marks: list[tuple[Any, Any]]) -> list[float]:
        """The seconds between each two readings."""
        return [end - start for start, end in marks]


class EventStopwatch:
    """For a CUDA device, which works through a queue: events in it, read once it is empty.

    Args:
        make: makes an event that keeps its time.
        synchronize: returns when the queue is empty.
    """

    def __init__(
        self,
        make: Callable[[], Any] = lambda: torch.cuda.Event(enable_timing=True),
        synchronize: Callable[[], None] = torch.cuda.synchronize,
    ) -> None:
        self._make = make
        self._synchronize = synchronize

    def note(self) -> Any:
        """An event behind all that was asked so far."""
        event = self._make()
        event.record()
        return event

    def seconds(self, marks: list[tuple[Any, Any]]) -> list[float]:
        """The seconds of the device between each two events."""
        self._synchronize()
        # elapsed_time is in milliseconds.
        return [start.elapsed_time(end) / 1e3 for start, end in marks]


class OperatorClock(TorchDispatchMode, Listener):
    """Times the operators of a pass, the same that a recorder writes down.

    ``names`` are those of the last pass, in order.

    Args:
        stopwatch: takes the times.
    """

    def __init__(self, stopwatch: Stopwatch) -> None:
        super().__init__()
        self.names: list[str] = []
        self._stopwatch = stopwatch
        self._marks: list[tuple[Any, Any]] = []
        self._is_paused = False

    def begin(self) -> None:
        """A new pass begins."""
        self.names = []
        self._marks = []

    def seconds(self) -> list[float]:
        """What each operator of the pass took, in seconds."""
        return self._stopwatch.seconds(self._marks)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While this is open, operators run as ever, and are not timed."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is _DEVICE:
            return args[0].device
        operator = operator_of(func)
        named = kwargs or {}
        if operator.is_bookkeeping or self._is_paused:
            return func(*args, **named)
        if operator.is_composite and torch.is_inference_mode_enabled():
            with self:
                result = func.decompose(*args, **named)
            if result is not NotImplemented:
                return result
        start = self._stopwatch.note()
        result = func(*args, **named)
        self._marks.append((start, self._stopwatch.note()))
        self.names.append(operator.name)
        return result


class FaultCounter(OperatorClock):
    """Counts the minor page faults of the operators of a pass in place of their time."""

    def __init__(self, page_faults: Callable[[], int] = process_faults) -> None:
        super().__init__(WallStopwatch(page_faults))

    def counts(self) -> list[int]:
        """The faults of each operator."""
        return [max(0, round(each)) for each in self.seconds()]


_SHORTEST_S = 1e-9
"""Less than clocks tell apart: what took none of their ticks is not taken to take no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """A model's operators, and how long each of them took while the model ran.

    ``operators`` has one sample for each record of ``capture``, ``end_to_end`` is of passes in
    which nothing was timed but the whole, in turn with the others; ``compiled`` the same under
    `torch.compile`. ``pace`` is that of the cores meanwhile. ``faults`` are the minor page faults
    of a pass, ``operator_faults`` those of each operator, ``discarded`` the rounds that did not get
    the cores; where none did ``are_disturbed`` is true. ``notes`` say what else was noticed.
    """

    capture: Capture
    end_to_end: Sample
    operators: tuple[Sample, ...]
    page_faults: int
    operator_faults: tuple[int, ...]
    discarded: int
    are_disturbed: bool
    pace: Pace = UNKNOWN
    compiled: Sample | None = None
    notes: tuple[str, ...] = ()


def measure_in_place(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    name: str,
    run: Run,
    effort: Effort,
    teaching: Teaching | None = None,
    compiled: bool = False,
    gauges: Gauges | None = None,
    stopwatch: Callable[[], Stopwatch] | None = None,
    progress: Progress | None = None,
) -> InPlace:
    """Runs `model` for real, on copies of its tensors, and times it and each of its operators.

    Operators are recorded and timed on the same model in the same state, after it is warm: what it
    keeps from its first pass (masks, tables) is not made again.

    Args:
        model: any module, with its weights.
        inputs: what it is called with.
        name: what messages call it.
        run: in which types and layout, and whether it is trained.
        effort: how many passes.
        teaching: how it is trained, if it is.
        compiled: times it under `torch.compile` too.
        gauges: what is read around each pass.
        stopwatch: makes what takes the times of operators.
        progress: told how far it is.

    Raises:
        ModelError: the model raised, or is not there with its weights.
        MeasurementError: it calls other operators every time, so that none can be timed.
    """
    is_on_cuda = run.device == "cuda"
    if gauges is None:
        gauges = Gauges(wait=torch.cuda.synchronize, waits=True) if is_on_cuda else Gauges()
    if stopwatch is None:
        stopwatch = EventStopwatch if is_on_cuda else WallStopwatch
    if any(each.is_meta for each in (*model.parameters(), *model.buffers())):
        raise ModelError(f"{name} has no weights (it is on the meta device), so it cannot run")
    paths = paths_of(model)
    lesson = (teaching or Teaching()).lesson() if run.train else None
    with one_at_a_time, torch.random.fork_rng(devices=[]), in_one_line(name, paths):
        # The same noise every time, so that the same command runs the same.
        torch.manual_seed(0)
        with staged(model, inputs, run, Reals(run, _device_of(run)), lesson) as stage:
            stage.prepare(Listener())
            stage.step(Listener())
            recording = Recording(stage, paths, is_first=False)
            timed = _Timed(stage, recording, name, gauges, stopwatch(), effort)
            found = timed.measured(compiled=compiled, progress=progress)
        return replace(found, capture=recording.capture())


def _device_of(run: Run) -> torch.device | None:
    """Where the copies of a model's tensors are to be; None: where the model's own are."""
    return torch.device(run.device) if run.device != "cpu" else None


def measure_whole(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    name: str,
    run: Run,
    effort: Effort,
    gauges: Gauges | None = None,
) -> Rounds:
    """Times passes of `model` as a whole, on copies of its tensors, and nothing else.

    Args:
        model, inputs, name, run, effort, gauges: as for `measure_in_place`; inference only.

    Raises:
        ModelError: the model raised.
    """
    paths = paths_of(model)
    silence = Listener()
    with one_at_a_time, torch.random.fork_rng(devices=[]), in_one_line(name, paths):
        torch.manual_seed(0)
        with staged(model, inputs, run, Reals(run)) as stage:
            return run_rounds([lambda: stage.step(silence)], gauges or Gauges(), effort)


class _Timed:
    """The passes of a model on its stage."""

    def __init__(
        self,
        stage: Stage,
        recording: Recording,
        name: str,
        gauges: Gauges,
        stopwatch: Stopwatch,
        effort: Effort,
    ) -> None:
        self._stage = stage
        self._recording = recording
        self._name = name
        self._gauges = gauges
        self._effort = effort
        self._clock = OperatorClock(stopwatch)
        self._silence = Listener()
        self._seconds: list[list[float]] = []
        self._resident_bytes: list[int] = []
        self._expected = [each.op for each in recording.recorder.records]

    def measured(self, *, compiled: bool, progress: Progress | None) -> InPlace:
        """All of it; the capture is the recording's, asked for when the stage is over."""
        subjects: list[Callable[[], object]] = [self._whole, self._operators]
        notes: list[str] = []
        if compiled:
            try:
                subjects.append(self._compiled())
            except (KeyboardInterrupt, RooflineError):
                raise
            except BaseException as error:
                said = " ".join(str(error).split()) or type(error).__name__
                notes.append(f"torch.compile failed, so it was not timed: {said[:200]}")
        page_faults = self._faults()
        rounds = run_rounds(
            subjects, self._gauges, self._effort, progress=progress, what=f"timing {self._name}"
        )
        seconds = self._of_kept(rounds)
        notes += growth(self._resident_bytes, len(subjects))
        return InPlace(
            # Replaced when the model has its own tensors again.
            capture=_NO_CAPTURE,
            end_to_end=Sample(times_s=rounds.times_s(0)),
            operators=tuple(
                Sample(times_s=tuple(max(each, _SHORTEST_S) for each in times))
                for times in zip(*seconds, strict=True)
            ),
            page_faults=round(median(rounds.page_faults(0))),
            operator_faults=tuple(page_faults),
            discarded=rounds.discarded,
            are_disturbed=rounds.are_disturbed,
            pace=rounds.pace,
            compiled=Sample(times_s=rounds.times_s(2)) if len(subjects) > 2 else None,
            notes=tuple(notes),
        )

    def _of_kept(self, rounds: Rounds) -> list[list[float]]:
        """The times of operators in the rounds that count; warm-ups ran before all rounds."""
        return [self._seconds[self._effort.warm_ups + number] for number in rounds.kept]

    def _whole(self) -> object:
        return self._stage.step(self._silence)

    def _operators(self) -> None:
        clock = self._clock
        clock.begin()
        with clock:
            alive = self._stage.step(clock)
        del alive
        self._check(clock.names)
        self._seconds.append(clock.seconds())
        self._resident_bytes.append(psutil.Process().memory_info().rss)

    def _faults(self) -> list[int]:
        """The page faults of each operator, in a pass of their own."""
        counter = FaultCounter()
        counter.begin()
        with counter:
            alive = self._stage.step(counter)
        del alive
        self._check(counter.names)
        return counter.counts()

    def _check(self, names: list[str]) -> None:
        """Refuses a pass that called other operators than the one that was recorded."""
        if names == self._expected:
            return
        place = next(
            (i for i, (a, b) in enumerate(zip(names, self._expected, strict=False)) if a != b),
            min(len(names), len(self._expected)),
        )
        here = names[place] if place < len(names) else "none"
        there = self._expected[place] if place < len(self._expected) else "none"
        raise MeasurementError(
            f"{self._name} calls other operators from pass to pass (operator {place} was {there},"
            f" then {here}), so they cannot be timed one by one"
        )

    def _compiled(self) -> Callable[[], object]:
        """A step under `torch.compile`, once run, so that it is compiled."""
        model = self._stage.model
        compiled: Any = torch.compile(model)
        stage = Stage(
            model=compiled,
            args=self._stage.args,
            kwargs=self._stage.kwargs,
            given=self._stage.given,
            run=self._stage.run,
            tensors=self._stage.tensors,
            lesson=self._stage.lesson,
            optimizer=self._stage.optimizer,
        )
        stage.step(self._silence)
        return lambda: stage.step(self._silence)


_GROWTH_BYTE = 2**16
_LEAST_ROUNDS = 4


def growth(resident_bytes: Sequence[int], passes: int) -> tuple[str, ...]:
    """A note on a model that keeps more memory after every round.

    Args:
        resident_bytes: of the process, after each round.
        passes: how many passes a round has.
    """
    more = [after - before for before, after in itertools.pairwise(resident_bytes)]
    if len(more) < _LEAST_ROUNDS or min(more) < _GROWTH_BYTE:
        return ()
    return (
        f"the model keeps {format_bytes(round(median(more) / passes))} more after every pass: it"
        " page faults and times that grow with the number of passes",
    )


_NO_CAPTURE = Capture(
    run=Run(), records=(), parameters=0, parameter_size_bytes=0, buffer_size_bytes=0, input_bytes=0
)
