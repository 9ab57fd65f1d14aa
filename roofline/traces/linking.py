"""Kernels of a trace linked to the operators that launched them."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from roofline.traces.reading import Details, Kind, Signature, Trace
from roofline.workload.operators import PHASES, Phase

Evidence = Literal[
    "external id", "correlation", "nesting", "graph capture", "host", "graph", "none"
]
"""Evidence that links a kernel to its operator: an id that both carry; that of the runtime call
that launched it; the place of that call within an operator; the same launch in a trace of the
graph's capture. ``host``: the operator ran on the CPU itself. ``graph`` (a graph launch without
such a trace) and ``none`` link nothing."""


class Nesting:
    """Operators, modules and annotations of one trace, each within others of its thread."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        events = trace.events
        self.parent = [-1] * len(events.kind)
        self._modules, self._phases = [*self.parent], [0] * len(events.kind)
        kinds, names, ends = events.kind.tolist(), events.name.tolist(), events.end.tolist()
        phases = [PHASES.index(_phase(name)) for name in trace.names]
        self._starts: dict[int, list[float]] = {}
        self._places: dict[int, list[int]] = {}
        self._ends = ends
        places = events.of(Kind.OPERATOR, Kind.MODULE, Kind.ANNOTATION)
        # Of events that start together, the longest holds the others.
        order = np.lexsort((-events.duration[places], events.start[places], events.track[places]))
        open_: list[int] = []
        track = -1
        for place in map(int, places[order]):
            if events.track[place] != track:
                track, open_ = int(events.track[place]), []
                self._starts[track], self._places[track] = [], []
            while open_ and ends[open_[-1]] < ends[place]:
                open_.pop()
            self._phases[place] = phases[names[place]]
            if open_:
                parent = self.parent[place] = open_[-1]
                self._phases[place] = max(self._phases[place], self._phases[parent])
                self._modules[place] = self._modules[parent]
            if kinds[place] == Kind.MODULE:
                self._modules[place] = place
            open_.append(place)
            self._starts[track].append(float(events.start[place]))
            self._places[track].append(place)

    def around(self, place: int) -> Iterator[int]:
        """Yield an event and those that it is within, innermost first."""
        while place >= 0:
            yield place
            place = self.parent[place]

    def operator_at(self, track: int, time: float) -> int:
        """Return the innermost operator of a thread at a time; -1: none."""
        starts = self._starts.get(track)
        if not starts or (before := bisect_right(starts, time)) == 0:
            return -1
        kinds = self.trace.events.kind
        for place in self.around(self._places[track][before - 1]):
            if self._ends[place] >= time and kinds[place] == Kind.OPERATOR:
                return place
        return -1

    def module_path(self, place: int) -> str:
        """Return the modules that an event runs in, outermost first; "" where none is known."""
        names: list[str] = []
        while place >= 0 and (place := self._modules[place]) >= 0:
            names.append(self.trace.name_of(place).removeprefix("nn.Module: "))
            place = self.parent[place]
        return ".".join(reversed(names))

    def phase(self, place: int) -> Phase:
        """Return the phase of a training step that an event belongs to."""
        return PHASES[self._phases[place]]


def _phase(name: str) -> Phase:
    """Return the phase of a training step that an event begins, by its name."""
    if "Optimizer.step" in name or "optimizer" in name:
        return "optimizer"
    is_backward = "autograd::engine::evaluate_function" in name or "Backward" in name
    return "backward" if is_backward else "forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Kernels and copies of a trace by their start, with the operators that launched them.

    ``operator`` is the place of the innermost operator in its trace (-1: none); ``in_capture`` says
    that this is the trace of a graph's capture. ``launch`` is the place of the runtime call.
    """

    kernels: NDArray[np.intp]
    operator: NDArray[np.int64]
    path: list[Evidence]
    launch: NDArray[np.int64]
    device: NDArray[np.int64]


def _first(places: NDArray[np.intp], keys: NDArray[np.int64]) -> dict[int, int]:
    """Return places by their keys, the last of equal ones."""
    return {
        key: place
        for place, key in zip(places.tolist(), keys[places].tolist(), strict=True)
        if key > 0
    }


def link(nesting: Nesting, capture: Nesting | None = None) -> Links:
    """Return the kernels of a trace with their operators; `capture` is that of its graphs."""
    trace = nesting.trace
    events = trace.events
    kernels = events.of(Kind.KERNEL, Kind.COPY)
    operators = _first(events.of(Kind.OPERATOR), events.external)
    launches = _first(events.of(Kind.LAUNCH), events.correlation)
    found = np.full(len(kernels), -1, np.int64)
    called = np.full(len(kernels), -1, np.int64)
    paths: list[Evidence] = []
    graphs: dict[int, list[int]] = {}
    for number, kernel in enumerate(kernels.tolist()):
        path: Evidence = "none"
        launch = launches.get(int(events.correlation[kernel]), -1)
        called[number] = launch
        if (place := operators.get(int(events.external[kernel]), -1)) >= 0:
            path = "external id"
        elif launch >= 0 and "GraphLaunch" in trace.name_of(launch):
            path = "graph"
            graphs.setdefault(launch, []).append(number)
        elif launch >= 0:
            if (place := operators.get(int(events.external[launch]), -1)) >= 0:
                path = "correlation"
            else:
                start = float(events.start[launch])
                place = nesting.operator_at(int(events.track[launch]), start)
                path = "nesting" if place >= 0 else "none"
        found[number] = place
        paths.append(path)
    if capture is not None:
        for numbers in graphs.values():
            for number, place in _captured(trace, kernels[numbers].tolist(), capture):
                found[numbers[number]] = place
                paths[numbers[number]] = "graph capture"
    return Links(
        kernels=kernels,
        operator=found,
        path=paths,
        launch=called,
        device=np.array([details_of(trace, place).device for place in kernels.tolist()], np.int64),
    )


def on_host(
    nesting: Nesting, is_counted: Callable[[str], bool], is_opaque: Callable[[str], bool]
) -> Links:
    """Return operators of a CPU as their own kernels.

    They are the outermost that are counted, and opaque ones that hold none of these.
    """
    trace = nesting.trace
    operators = trace.events.of(Kind.OPERATOR).tolist()
    # Without any shapes, names alone say what is counted.
    has_shapes = any(signature_of(trace, each) for each in operators)
    chosen = {
        place
        for place in operators
        if (not has_shapes or signature_of(trace, place)) and is_counted(trace.name_of(place))
    }
    holding = {each for place in chosen for each in nesting.around(nesting.parent[place])}
    chosen |= {
        place for place in operators if place not in holding and is_opaque(trace.name_of(place))
    }
    found = [
        place
        for place in operators
        if place in chosen and chosen.isdisjoint(nesting.around(nesting.parent[place]))
    ]
    return Links(
        kernels=np.array(found, np.intp),
        operator=np.array(found, np.int64),
        path=["host"] * len(found),
        launch=np.full(len(found), -1, np.int64),
        device=np.zeros(len(found), np.int64),
    )


def _captured(trace: Trace, kernels: Iterable[int], capture: Nesting) -> Iterator[tuple[int, int]]:
    """Yield numbers of a graph's kernels with operators of its capture, by order and name."""
    events = capture.trace.events
    launched: list[tuple[str, int]] = []
    by_id = _first(events.of(Kind.OPERATOR), events.external)
    for place in events.of(Kind.LAUNCH).tolist():
        if kernel := details_of(capture.trace, place).kernel:
            operator = by_id.get(int(events.external[place]), -1)
            if operator < 0:
                operator = capture.operator_at(int(events.track[place]), float(events.start[place]))
            launched.append((kernel, operator))
    matcher = difflib.SequenceMatcher(
        None,
        [trace.name_of(each) for each in kernels],
        [name for name, _ in launched],
        autojunk=False,
    )
    for one, other, length in matcher.get_matching_blocks():
        for step in range(length):
            if (operator := launched[other + step][1]) >= 0:
                yield one + step, operator


def signature_of(trace: Trace, place: int) -> Signature | None:
    """Return the arguments of an operator; None where shapes were not recorded."""
    found = trace.details[trace.events.detail[place]]
    return found if isinstance(found, Signature) else None


def details_of(trace: Trace, place: int) -> Details:
    """Return the arguments of a kernel, copy or launch."""
    found = trace.details[trace.events.detail[place]]
    return found if isinstance(found, Details) else Details()
