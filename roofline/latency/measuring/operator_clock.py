"""Times every operator that torch dispatches, where it is called."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.latency.measuring.gauges import process_faults
from roofline.workload.capture.dispatched import operator_of
from roofline.workload.operators import Phase

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


class OperatorClock(TorchDispatchMode):
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

    def enter(self, phase: Phase) -> None:
        """Phases are the recorder's."""

    def own(self, tensors: Any, path: str) -> None:
        """Owners are the recorder's."""

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
