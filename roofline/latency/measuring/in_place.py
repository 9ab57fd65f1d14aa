"""Times of all operators of a model, measured in place while the model runs."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.core.progress import Progress
from roofline.core.sampling import Sample
from roofline.core.units import format_bytes
from roofline.errors import MeasurementError, ModelError, RooflineError
from roofline.latency.measuring.rounds import SHORTEST_S, Effort, Gauges, Rounds, run_rounds
from roofline.machine.core_state import UNKNOWN, CoreState
from roofline.run import Run
from roofline.workload.capture.model_errors import raise_as_model_error
from roofline.workload.capture.passes import Recording, capture_lock, module_paths
from roofline.workload.capture.prepared_model import PreparedModel, prepare_model
from roofline.workload.capture.real_tensors import RealTensors
from roofline.workload.capture.recorder import operator_of
from roofline.workload.capture.training import StepListener, TrainingConfig
from roofline.workload.inputs import Inputs
from roofline.workload.operators import Capture

_DEVICE = torch.ops.prim.device.default


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """Timer of operators; the default is for a CPU, which computes synchronously.

    ``mark`` returns the time of the clock, or an event in the queue of a device. ``seconds``
    returns the seconds between pairs of marks, once all are reached.
    """

    mark: Callable[[], Any] = time.perf_counter
    seconds: Callable[[list[tuple[Any, Any]]], list[float]] = field(
        default=lambda marks: [end - start for start, end in marks]
    )


def event_stopwatch(
    make: Callable[[], Any] = lambda: torch.cuda.Event(enable_timing=True),
    synchronize: Callable[[], None] = torch.cuda.synchronize,
) -> Stopwatch:
    """Return a stopwatch of CUDA events, read after synchronization."""

    def mark() -> Any:
        event = make()
        event.record()
        return event

    def seconds(marks: list[tuple[Any, Any]]) -> list[float]:
        synchronize()
        # elapsed_time is in milliseconds.
        return [start.elapsed_time(end) / 1e3 for start, end in marks]

    return Stopwatch(mark=mark, seconds=seconds)


class OperatorTimer(TorchDispatchMode, StepListener):
    """Times the operators of a pass that a recorder records.

    ``names`` are those of the last pass, in order.
    """

    def __init__(self, stopwatch: Stopwatch) -> None:
        super().__init__()
        self.names: list[str] = []
        self._stopwatch = stopwatch
        self._marks: list[tuple[Any, Any]] = []
        self._is_paused = False

    def begin(self) -> None:
        """Begin a new pass."""
        self.names = []
        self._marks = []

    def seconds(self) -> list[float]:
        """Return the time of each operator of the pass, in seconds."""
        return self._stopwatch.seconds(self._marks)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Run operators without timing them."""
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
        start = self._stopwatch.mark()
        result = func(*args, **named)
        self._marks.append((start, self._stopwatch.mark()))
        self.names.append(operator.name)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlaceMeasurement:
    """Times of a model and of its operators, measured in place.

    ``operators`` has one sample for each record of ``capture``; ``end_to_end`` is of passes timed
    only as a whole, interleaved with the others; ``compiled`` the same under `torch.compile`.
    ``core_state`` is the core clock state. ``page_faults`` are the minor ones of a pass,
    ``operator_faults`` those of each operator. ``discarded`` rounds waited for cores;
    ``are_disturbed``: kept ones did too.
    """

    capture: Capture
    end_to_end: Sample
    operators: tuple[Sample, ...]
    page_faults: int
    operator_faults: tuple[int, ...]
    discarded: int
    are_disturbed: bool
    core_state: CoreState = UNKNOWN
    compiled: Sample | None = None
    notes: tuple[str, ...] = ()


def measure_in_place(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    name: str,
    run: Run,
    effort: Effort,
    training: TrainingConfig | None = None,
    compiled: bool = False,
    gauges: Gauges | None = None,
    stopwatch: Stopwatch | None = None,
    progress: Progress | None = None,
) -> InPlaceMeasurement:
    """Run `model` on copies of its tensors, and time it and each of its operators.

    ``name`` is for messages; ``compiled`` also times it under `torch.compile`. Operators are
    recorded and timed after a warm-up, without tensors cached by the first pass (masks, tables).
    """
    is_on_cuda = run.device == "cuda"
    if gauges is None:
        of_device = Gauges(synchronize=torch.cuda.synchronize, is_asynchronous=True)
        gauges = of_device if is_on_cuda else Gauges()
    if stopwatch is None:
        stopwatch = event_stopwatch() if is_on_cuda else Stopwatch()
    if any(each.is_meta for each in (*model.parameters(), *model.buffers())):
        raise ModelError(f"{name}: has no weights (meta device); give a model with weights")
    paths = module_paths(model)
    training_step = (training or TrainingConfig()).new_step() if run.train else None
    with capture_lock, torch.random.fork_rng(devices=[]), raise_as_model_error(name, paths):
        # The same command runs with the same noise.
        torch.manual_seed(0)
        # Tensors are copied to other devices.
        device = torch.device(run.device) if run.device != "cpu" else None
        with prepare_model(model, inputs, run, RealTensors(run, device), training_step) as stage:
            stage.prepare(StepListener())
            stage.step(StepListener())
            recording = Recording(stage, paths, is_first=False)
            expected = [each.op for each in recording.recorder.records]
            clock, silence = OperatorTimer(stopwatch), StepListener()
            seconds: list[list[float]] = []
            resident_bytes: list[int] = []

            def operators() -> None:
                seconds.append(_operator_pass(stage, clock, expected, name))
                resident_bytes.append(psutil.Process().memory_info().rss)

            subjects: list[Callable[[], object]] = [lambda: stage.step(silence), operators]
            notes: list[str] = []
            if compiled:
                try:
                    optimized: Any = torch.compile(stage.model)
                    compiled_stage = replace(stage, model=optimized)
                    # Its first step compiles it.
                    compiled_stage.step(silence)
                    subjects.append(lambda: compiled_stage.step(silence))
                except (KeyboardInterrupt, RooflineError):
                    raise
                except BaseException as error:
                    reason = " ".join(str(error).split()) or type(error).__name__
                    notes.append(f"torch.compile failed, not timed: {reason[:200]}")
            fault_counter = OperatorTimer(Stopwatch(mark=gauges.page_faults))
            page_faults = _operator_pass(stage, fault_counter, expected, name)
            rounds = run_rounds(subjects, gauges, effort, progress=progress, what=f"timing {name}")
        # Warm-ups ran before all rounds.
        kept = [seconds[effort.warm_ups + number] for number in rounds.kept]
        return InPlaceMeasurement(
            capture=recording.capture(),
            end_to_end=Sample(times_s=rounds.times_s(0)),
            operators=tuple(
                Sample(times_s=tuple(max(each, SHORTEST_S) for each in times))
                for times in zip(*kept, strict=True)
            ),
            page_faults=round(median(rounds.page_faults(0))),
            operator_faults=tuple(max(0, round(each)) for each in page_faults),
            discarded=rounds.discarded,
            are_disturbed=rounds.are_disturbed,
            core_state=rounds.core_state,
            compiled=Sample(times_s=rounds.times_s(2)) if len(subjects) > 2 else None,
            notes=(*notes, *memory_growth_notes(resident_bytes, len(subjects))),
        )


def measure_whole(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    name: str,
    run: Run,
    effort: Effort,
    compiled: bool = False,
    gauges: Gauges | None = None,
) -> Rounds:
    """Time whole passes of `model`, on copies of its tensors; also under `torch.compile`."""
    paths = module_paths(model)
    silence = StepListener()
    with capture_lock, torch.random.fork_rng(devices=[]), raise_as_model_error(name, paths):
        torch.manual_seed(0)
        with prepare_model(model, inputs, run, RealTensors(run)) as stage:
            if compiled:
                stage = replace(stage, model=torch.compile(stage.model))
                # Its first step compiles it.
                stage.step(silence)
            return run_rounds([lambda: stage.step(silence)], gauges or Gauges(), effort)


def _operator_pass(
    stage: PreparedModel, clock: OperatorTimer, expected: Sequence[str], name: str
) -> list[float]:
    """Return the readings of `clock` for each operator of a pass, checked against the record."""
    clock.begin()
    with clock:
        alive = stage.step(clock)
    del alive
    if clock.names == expected:
        return clock.seconds()
    pairs = enumerate(zip(clock.names, expected, strict=False))
    differing = (place for place, (here, there) in pairs if here != there)
    place = next(differing, min(len(clock.names), len(expected)))
    there, here = (
        names[place] if place < len(names) else "none" for names in (expected, clock.names)
    )
    raise MeasurementError(
        f"{name}: operators differ between passes (operator {place} was {there}, then {here}), so"
        " they cannot be timed"
    )


_GROWTH_BYTE = 2**16
_LEAST_ROUNDS = 4


def memory_growth_notes(resident_bytes: Sequence[int], passes: int) -> tuple[str, ...]:
    """Return a note if memory grows after every round."""
    more = [after - before for before, after in itertools.pairwise(resident_bytes)]
    if len(more) < _LEAST_ROUNDS or min(more) < _GROWTH_BYTE:
        return ()
    return (
        f"memory of the process grows by {format_bytes(round(median(more) / passes))} per pass:"
        " page faults and times grow with the number of passes",
    )
