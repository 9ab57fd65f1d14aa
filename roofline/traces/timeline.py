"""The timeline of a device: busy and idle time, gaps between kernels, copies and communication."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.core.dtypes import dtype
from roofline.core.units import sum_known
from roofline.errors import InputError
from roofline.traces.linking import Links, Nesting, details_of
from roofline.traces.reading import Kind, Trace

Array = NDArray[np.float64]

_US = 1e-6
_CLOCK = 0.01
"""Microseconds that differences of rounded times may have."""
_STEP = re.compile(r"ProfilerStep#?\s*(\d+)")
_COMMUNICATION = re.compile(r"nccl|rccl|(?:one|two)shot_all|all_?reduce|allgather", re.IGNORECASE)

WHOLE_TRACE = "whole trace"
"""Name of the only step of a trace without steps of the profiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Times of one step in seconds, of the device that is used most.

    ``busy_s`` is the time in which a kernel or copy ran, ``idle_s`` the rest of ``time_s``, of
    which ``host_bound_s`` passed before the host launched what came next (None: launches are not in
    the trace, or the host itself computes). ``overlap_s`` is the time
    that several streams ran at once, ``communication_s`` that of collectives, and
    ``exposed_communication_s`` the part of it in which nothing else ran.
    """

    name: str
    time_s: float
    busy_s: float
    idle_s: float
    host_bound_s: float | None
    overlap_s: float
    compute_s: float
    copy_s: float
    communication_s: float
    exposed_communication_s: float
    launches: int

    def __post_init__(self) -> None:
        numbers = (self.time_s, self.busy_s, self.idle_s, self.overlap_s, self.launches)
        if min(numbers) < 0 or not np.isfinite(self.time_s):
            raise ValueError(f"a step takes times from 0, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An idle stretch of the device in seconds: what ran before and after it.

    ``host_bound_s`` is the part of it before the host launched ``after``; None where that is not
    known.
    """

    time_s: float
    host_bound_s: float | None
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies and fills of one kind in a step: their number, bytes (None: not known) and seconds."""

    kind: str
    calls: int
    bytes: int | None
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Collectives of one kind in a step.

    ``bytes`` are those of the messages of one rank (None: not known), ``bus_bytes_per_s`` the
    bandwidth of the links that this asks for: that of NCCL's tests.
    """

    kind: str
    calls: int
    ranks: int | None
    bytes: int | None
    time_s: float
    bus_bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a trace: its window in microseconds, and the kernels in it by their number."""

    name: str
    start: float
    end: float
    kernels: NDArray[np.intp]


def steps_of(nesting: Nesting, links: Links) -> list[Step]:
    """Return the steps that the profiler marked; the whole trace where it marked none.

    A kernel belongs to the step in which the host launched it. Those that run before any other of
    the trace, and whose launch is not in it, were launched before it began: they are in no step.
    """
    trace = nesting.trace
    events = trace.events
    marks: dict[int, tuple[float, float]] = {}
    for place in events.of(Kind.ANNOTATION, Kind.OPERATOR).tolist():
        if match := _STEP.match(trace.name_of(place)):
            marks.setdefault(int(match[1]), (float(events.start[place]), float(events.end[place])))
    starts = (
        np.where(links.launch >= 0, events.start[links.launch], events.start[links.kernels])
        if len(links.kernels)
        else np.empty(0)
    )
    everything = np.arange(len(links.kernels))
    if (links.launch >= 0).any():
        first = events.start[links.kernels[links.launch >= 0]].min()
        everything = everything[(links.launch >= 0) | (events.start[links.kernels] >= first)]
    if not marks:
        times = events.of(*Kind)
        start = float(events.start[times].min()) if len(times) else 0.0
        end = float(events.end[times].max()) if len(times) else 0.0
        return [Step(name=WHOLE_TRACE, start=start, end=end, kernels=everything)]
    order = sorted(marks)
    found: list[Step] = []
    for position, number in enumerate(order):
        start, end = marks[number]
        following = marks[order[position + 1]][0] if position + 1 < len(order) else np.inf
        first = -np.inf if position == 0 else start
        found_in = (starts[everything] >= first) & (starts[everything] < following)
        inside = everything[found_in]
        if len(inside):
            end = max(end, float(events.end[links.kernels[inside]].max()))
        found.append(Step(name=f"step {number}", start=start, end=end, kernels=inside))
    return found


def union(starts: Array, ends: Array) -> tuple[Array, Array]:
    """Return disjoint intervals that cover the given ones, in order."""
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    begins = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((begins[1:], [True]))
    return starts[begins], ends[last]


def _length(starts: Array, ends: Array) -> float:
    one, other = union(starts, ends)
    return float((other - one).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step of a trace on the device."""

    times: StepTimes
    gaps: tuple[Gap, ...]
    copies: tuple[Copies, ...]
    collectives: tuple[Collective, ...]


def main_device(links: Links) -> int:
    """Return the number of the device that ran most kernels."""
    devices, counts = np.unique(links.device, return_counts=True)
    return int(devices[counts.argmax()]) if len(devices) else 0


def is_communication(name: str) -> bool:
    """Return whether a kernel is one of NCCL, RCCL or a like library."""
    return _COMMUNICATION.search(name) is not None


def timeline(nesting: Nesting, links: Links, step: Step, *, most_gaps: int = 10) -> Timeline:
    """Return what the device did in a step, its longest gaps first."""
    trace, events = nesting.trace, nesting.trace.events
    # Of several devices, the one that is used most: idle time of others is no one's loss.
    chosen = links.device == main_device(links)
    numbers = step.kernels[chosen[step.kernels]]
    places = links.kernels[numbers]
    start, end = events.start[places], events.end[places]
    # What other steps launched keeps the device busy, too.
    window_start, window_end = step.start, max(step.end, float(end.max(initial=0.0)))
    outside = np.setdiff1d(np.flatnonzero(chosen), numbers)
    others_at = links.kernels[outside]
    overlaps = (events.end[others_at] > window_start) & (events.start[others_at] < window_end)
    outside = outside[overlaps]
    others_at = links.kernels[outside]
    names = [trace.name_of(each) for each in places.tolist()]
    communicates = np.array([is_communication(each) for each in names], bool)
    copies = events.kind[places] == Kind.COPY
    all_start = np.concatenate((start, np.maximum(events.start[others_at], window_start)))
    all_end = np.concatenate((end, np.minimum(events.end[others_at], window_end)))
    window_start = min(window_start, float(all_start.min(initial=window_start)))
    busy = _length(all_start, all_end)
    own = _length(start, end)
    not_communicating = _length(start[~communicates], end[~communicates])
    ran = np.sort(np.concatenate((numbers, outside))).astype(np.intp)
    gaps = list(_gaps(nesting, links, ran, (window_start, window_end)))
    computes = ~communicates & ~copies
    return Timeline(
        times=StepTimes(
            name=step.name,
            time_s=(window_end - window_start) * _US,
            busy_s=busy * _US,
            idle_s=max(0.0, window_end - window_start - busy) * _US,
            host_bound_s=sum_known([each.host_bound_s for each in gaps]),
            overlap_s=max(0.0, float((end - start).sum()) - own) * _US,
            compute_s=_length(start[computes], end[computes]) * _US,
            copy_s=_length(start[copies], end[copies]) * _US,
            communication_s=_length(start[communicates], end[communicates]) * _US,
            exposed_communication_s=max(0.0, own - not_communicating) * _US,
            launches=len(places),
        ),
        gaps=tuple(sorted(gaps, key=lambda each: -each.time_s)[:most_gaps]),
        copies=tuple(_copies(trace, places[copies].tolist())),
        collectives=tuple(_collectives(trace, places[communicates].tolist())),
    )


def _gaps(
    nesting: Nesting, links: Links, numbers: NDArray[np.intp], window: tuple[float, float]
) -> Iterator[Gap]:
    """Yield idle stretches of a window, each with the operators before and after it."""
    events = nesting.trace.events
    places = links.kernels[numbers]
    starts, ends = events.start[places].tolist(), events.end[places].tolist()
    until, before = window[0], "start of the step"
    launched = events.start[links.kernels[links.launch >= 0]]
    # Kernels before the first of these were launched before the trace began.
    begin = float(launched.min(initial=np.inf))
    for number, start, end in zip(numbers.tolist(), starts, ends, strict=True):
        launch = int(links.launch[number])
        name = _operator_or_kernel(nesting, links, number)
        if start - until > _CLOCK:
            wait_s: float | None = None
            if launch >= 0:
                wait = min(max(0.0, float(events.start[launch]) - until), start - until)
                wait_s = wait * _US
            elif len(launched) and start < begin:
                wait_s = 0.0
            yield Gap(
                time_s=(start - until) * _US,
                host_bound_s=wait_s,
                before=before,
                after=name,
            )
        if end > until:
            until, before = end, name
    if len(numbers) and window[1] - until > _CLOCK:
        rest_s = (window[1] - until) * _US
        # Nothing was launched any more.
        wait_s = rest_s if len(launched) else None
        yield Gap(time_s=rest_s, host_bound_s=wait_s, before=before, after="end of the step")


def _operator_or_kernel(nesting: Nesting, links: Links, number: int) -> str:
    place = int(links.operator[number])
    if place >= 0 and links.path[number] != "graph capture":
        return nesting.trace.name_of(place)
    return nesting.trace.name_of(int(links.kernels[number]))


def _copies(trace: Trace, places: list[int]) -> Iterator[Copies]:
    kinds: dict[str, list[int]] = {}
    for place in places:
        kinds.setdefault(trace.name_of(place), []).append(place)
    for kind, each in sorted(kinds.items()):
        sizes = [details_of(trace, place).bytes for place in each]
        known = [size for size in sizes if size is not None]
        yield Copies(
            kind=kind,
            calls=len(each),
            bytes=sum(known) if len(known) == len(sizes) else None,
            time_s=float(trace.events.duration[each].sum()) * _US,
        )


def _collectives(trace: Trace, places: list[int]) -> Iterator[Collective]:
    kinds: dict[tuple[str, int | None], list[tuple[int, int | None]]] = {}
    for place in places:
        said = dict(details_of(trace, place).collective)
        name = str(said.get("Collective name") or trace.name_of(place).split("(")[0])
        ranks = said.get("Group size")
        size = _bytes_of(str(said.get("dtype", "")).lower().removeprefix("c10::"))
        elements = [said.get(each) for each in ("In msg nelems", "Out msg nelems")]
        known = [each for each in elements if isinstance(each, int)]
        # Reductions are named by what goes in, gathers by what comes out: the larger of the two.
        byte = max(known) * size if known and size else None
        key = name, ranks if isinstance(ranks, int) else None
        kinds.setdefault(key, []).append((place, byte))
    for (name, ranks), each in sorted(kinds.items(), key=str):
        time_s = float(sum(trace.events.duration[place] for place, _ in each)) * _US
        sizes = [byte for _, byte in each if byte is not None]
        byte = sum(sizes) if len(sizes) == len(each) else None
        factor = _bus_factor(name, ranks)
        rate = byte * factor / time_s if byte is not None and factor and time_s else None
        yield Collective(
            kind=name, calls=len(each), ranks=ranks, bytes=byte, time_s=time_s, bus_bytes_per_s=rate
        )


def _bytes_of(type_: str) -> int | None:
    """Return the bytes of an element by the name that collectives give its type."""
    try:
        return dtype({"byte": "uint8", "char": "int8"}.get(type_, type_)).byte(1)
    except InputError:
        return None


def _bus_factor(name: str, ranks: int | None) -> float | None:
    """Return bytes on the busiest link per byte of a message (PERFORMANCE.md of NCCL's tests)."""
    plain = name.lower().replace("_", "")
    if ranks is None or ranks < 1:
        return None
    if "allreduce" in plain:
        return 2 * (ranks - 1) / ranks
    if any(each in plain for each in ("allgather", "reducescatter", "alltoall")):
        return (ranks - 1) / ranks
    return 1.0
