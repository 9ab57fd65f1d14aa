"""Measurement of library ceilings: choice of sizes, then interleaved rounds of all jobs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import torch

from roofline.core.dtypes import dtype
from roofline.core.progress import Progress
from roofline.core.text import counted
from roofline.core.units import format_s
from roofline.machine.hardware import MemoryKernel
from roofline.machine.hierarchy.working_sets import DRAM, WorkingSet
from roofline.machine.library.default_settings import default_settings
from roofline.machine.library.jobs import (
    Arithmetic,
    Candidate,
    Clock,
    Dispatch,
    Job,
    Run,
    Stream,
    Subject,
    Timer,
    batch_seconds,
    choose,
    team_cpu_clock,
)
from roofline.machine.library.results import (
    bandwidths,
    compute_ceilings,
    outcomes,
    overheads,
    sample_series,
)
from roofline.machine.measuring.estimation import Burst, MeasuredFigures, interleave

_ELEMENT_BYTE = 4
_LINE = 16  # elements per cache line, not shared by threads

_PIECE_BYTE = 16 << 20
"""Memory per thread and call: long against dispatch, short against disturbances."""

_STREAMS: dict[MemoryKernel, int] = {"copy": 2, "add": 3}


class Arena:
    """Memory shared by all streams, initialized.

    Cache-level calls use the same bytes every time. Main-memory calls use the next piece, so that
    all others are touched before a piece is reused.
    """

    def __init__(self, sets: Sequence[WorkingSet]) -> None:
        byte = max((each.bytes_per_thread * each.threads for each in sets), default=0)
        self._memory = torch.empty(byte // _ELEMENT_BYTE, dtype=torch.float32, device="cpu")
        self._memory.fill_(1.0)
        self._place = 0

    @property
    def byte(self) -> int:
        return self._memory.numel() * _ELEMENT_BYTE

    def in_place(self, kernel: MemoryKernel, byte: int, threads: int) -> Run:
        """Return a call over the first `byte` bytes, all streams."""
        return _call(kernel, self._memory[: byte // _ELEMENT_BYTE], threads)

    def next_piece(self, kernel: MemoryKernel, byte: int, threads: int) -> Run:
        size = byte // _ELEMENT_BYTE
        calls = [
            (start, _call(kernel, self._memory[start : start + size], threads))
            for start in range(0, self._memory.numel() - size + 1, size)
        ]

        def run() -> object:
            index = -(-self._place // size) % len(calls)
            start, call = calls[index]
            self._place = start + size
            return call()

        return run


def _call(kernel: MemoryKernel, memory: torch.Tensor, threads: int) -> Run:
    size = _stream_size(kernel, memory.numel(), threads)
    parts = [memory[i * size : (i + 1) * size] for i in range(_STREAMS[kernel])]
    if kernel == "copy":
        return partial(parts[1].copy_, parts[0])
    return partial(torch.add, parts[0], parts[1], out=parts[2])


def _stream_size(kernel: MemoryKernel, elements: int, threads: int) -> int:
    size = elements // _STREAMS[kernel]
    return size // (_LINE * threads) * _LINE * threads or size


def stream_subjects(
    sets: Sequence[WorkingSet], arena: Arena, overhead_s: Callable[[MemoryKernel], float]
) -> Iterator[Stream]:
    """Yield copy and add over each working set, all with torch's current number of threads.

    `overhead_s` is the time of a call without data.
    """
    for each in sets:
        byte, make = each.bytes_per_thread * each.threads, arena.in_place
        if each.level == DRAM:
            byte, make = min(_PIECE_BYTE * each.threads, byte), arena.next_piece
        for kernel, streams in _STREAMS.items():
            size = _stream_size(kernel, byte // _ELEMENT_BYTE, each.threads)
            candidate = Candidate(
                size=f"{streams} x {size} float32",
                work=streams * size * _ELEMENT_BYTE,
                make=partial(make, kernel, byte, each.threads),
            )
            yield Stream(
                kernel=kernel,
                working_set=each,
                candidates=(candidate,),
                overhead_s=overhead_s(kernel),
            )


def smallest(kernel: MemoryKernel) -> Run:
    """Return a call of a kernel on one element, dominated by its dispatch."""
    return _call(kernel, torch.ones(_STREAMS[kernel], dtype=torch.float32, device="cpu"), 1)


_MOST_CALL_S = 10e-3
"""Longest call: well above blocking and thread start, short for an interrupt."""

_CALLS_PER_SHARE = 12
"""Longest calls per job's share: size choice and three rounds."""

_LEAST_CALLS_PER_SHARE = 3  # jobs with longer calls are omitted

_CHOICE = 0.4
"""Share of a job's time for choosing its size; the rest passes to the next jobs."""

_CALLS_PER_DISPATCH = 10.0
"""Shorter memory calls, as a multiple of the dispatch overhead, are dispatch-bound."""


class Planner:
    """Plans jobs one by one, with `share_s` seconds each."""

    def __init__(self, timer: Timer, share_s: float) -> None:
        self._timer = timer
        self._share_s = share_s
        self._deadline = timer.wall()
        self._refused: dict[str, str] = {}
        self._slow: dict[str, float] = {}
        self._dispatch_bound_places: list[str] = []
        self.jobs: list[Job] = []

    def add(self, subject: Subject, threads: int) -> None:
        if subject.label in self._refused or subject.label in self._slow:
            return
        self._deadline += _CHOICE * self._share_s
        alone = next((job for job in self.jobs if job.subject is subject), None)
        if alone and self._timer.wall() > self._deadline:
            self.jobs.append(dataclasses.replace(alone, threads=threads, tried=1))
            return
        # For a team, start at the best size of one thread.
        sizes = [each.size for each in subject.candidates]
        place = sizes.index(alone.size) if alone else 0
        try:
            job = choose(
                subject,
                subject.candidates[place:],
                self._timer,
                threads=threads,
                most_s=min(_MOST_CALL_S, self._share_s / _CALLS_PER_SHARE),
                deadline=self._deadline,
            )
        except (RuntimeError, AttributeError) as error:
            self._refused[subject.label] = str(error).strip().partition("\n")[0]
            return
        if alone:
            # A team is not slower than one thread, unless disturbed.
            least_s = alone.call_s * job.work / alone.work
            self.jobs.append(dataclasses.replace(job, call_s=min(job.call_s, least_s)))
        elif isinstance(subject, Stream) and self._is_dispatch_bound(job, subject.overhead_s):
            self._dispatch_bound_places.append(
                f"{subject.working_set.level} on {counted(threads, 'thread')}"
            )
        elif threads == 1 and job.call_s > self._share_s / _LEAST_CALLS_PER_SHARE:
            self._slow[subject.label] = job.call_s
        else:
            self.jobs.append(job)

    def _is_dispatch_bound(self, job: Job, overhead_s: float) -> bool:
        """Return True if a call is dispatch-bound; close cases are timed in batches."""
        least_s = _CALLS_PER_DISPATCH * overhead_s
        if job.call_s > 2 * least_s:
            return False
        return batch_seconds(job.run, self._timer, threads=job.threads) < least_s

    def conditions(self) -> tuple[str, ...]:
        refused = [
            f"no library ceiling of {label}: not supported by torch on this CPU ({reason})"
            for label, reason in self._refused.items()
        ]
        slow = [
            f"no library ceiling of {label}: the smallest call takes {format_s(seconds)}, too long"
            " for the time budget; use a longer effort"
            for label, seconds in self._slow.items()
        ]
        levels = ", ".join(dict.fromkeys(self._dispatch_bound_places))
        drowned = (
            f"no library bandwidth of {levels}: calls take less than {_CALLS_PER_DISPATCH:g} times"
            " their dispatch overhead"
        )
        return (*refused, *slow, *([drowned] if levels else []))


_PRODUCT_ELEMENTS = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.float16)
_CONVOLUTION_ELEMENTS = (torch.float32, torch.bfloat16, torch.float64, torch.float16)

# The smallest takes a millisecond at 0.5 GFLOP/s, as for types without a native path.
_PRODUCT_SIZES = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072)
# Channels and side, by work.
_IMAGES = (
    *((64, 8), (64, 16), (128, 16), (128, 24), (128, 32)),
    *((256, 32), (128, 64), (256, 64), (256, 128)),
)

_LAYOUTS = (
    ("conv", torch.contiguous_format),
    ("conv-channels-last", torch.channels_last),
)
_KERNEL = 3

_PERIOD = 997  # a prime, so that rows differ

_GOLDEN = 0.6180339887498949
_LARGEST_INT8 = 80


def arithmetic_subjects() -> Iterator[Arithmetic]:
    """Yield GEMM and 3x3 convolutions, contiguous and channels-last, per element type."""
    for element in _PRODUCT_ELEMENTS:
        yield Arithmetic(
            kernel="gemm",
            dtype=dtype(element),
            candidates=tuple(_product(n, element) for n in _PRODUCT_SIZES),
        )
    for element in _CONVOLUTION_ELEMENTS:
        for kernel, layout in _LAYOUTS:
            yield Arithmetic(
                kernel=kernel,
                dtype=dtype(element),
                candidates=tuple(_convolution(c, n, element, layout) for c, n in _IMAGES),
            )


def _product(n: int, element: torch.dtype) -> Candidate:
    def make() -> Run:
        a, b = _filled((n, n), element), _filled((n, n), element)
        if element == torch.int8:
            # The only integer GEMM with a fast path; its sums have 32 bits.
            sums = torch.empty(n, n, dtype=torch.int32, device="cpu")
            return partial(torch.ops.aten._int_mm.out, a, b, out=sums)
        out = torch.empty(n, n, dtype=element, device="cpu")
        return partial(torch.mm, a, b, out=out)

    return Candidate(size=f"{n}x{n}x{n}", work=2 * n**3, make=make)


def _convolution(
    channels: int, side: int, element: torch.dtype, layout: torch.memory_format
) -> Candidate:
    def make() -> Run:
        image = _filled((1, channels, side, side), element).contiguous(memory_format=layout)
        weight = _filled((channels, channels, _KERNEL, _KERNEL), element)
        taps = weight.contiguous(memory_format=layout)
        return partial(torch.nn.functional.conv2d, image, taps)

    # No padding, so the padding convention does not matter.
    places = (side - _KERNEL + 1) ** 2
    return Candidate(
        size=f"1x{channels}x{side}x{side}",
        work=2 * places * channels * channels * _KERNEL**2,
        make=make,
    )


def _filled(shape: tuple[int, ...], element: torch.dtype) -> torch.Tensor:
    """Return values from 0.5 to 1.5 of both signs: no denormals, overflow or random state."""
    index = torch.arange(_PERIOD, dtype=torch.float64, device="cpu")
    values = (index * _GOLDEN % 1 + 0.5) * (1 - 2 * (index % 2))
    if element == torch.int8:
        values = (values * _LARGEST_INT8).round()
    elements = torch.Size(shape).numel()
    rows = -(-elements // _PERIOD)
    return values.to(element).repeat(rows)[:elements].reshape(shape)


REGION = "parallel region"

_GRAIN = 32768
"""at::internal::GRAIN_SIZE: elements per thread of torch's parallel operators."""


def dispatch_subjects() -> Iterator[Dispatch]:
    """Yield calls on at most one element on one thread, from a view to a convolution."""
    one = torch.ones(1, device="cpu", dtype=torch.float32)
    matrix, image = one.reshape(1, 1), one.reshape(1, 1, 1, 1)
    # A view passes the dispatcher, and neither allocates nor computes.
    yield _dispatch("dispatch of view", "detach of one element", one.detach)
    yield _dispatch("dispatch of add", "1 + 1 element", partial(torch.add, one, one))
    linear, conv = torch.nn.functional.linear, torch.nn.functional.conv2d
    yield _dispatch("dispatch of linear", "1x1 by 1x1", partial(linear, matrix, matrix))
    yield _dispatch("dispatch of convolution", "1x1x1x1, 1 tap", partial(conv, image, image))


def region(threads: int) -> Dispatch:
    """Return the cheapest operator on `threads` threads: dispatch, parallel start and end."""
    size = _GRAIN * threads
    memory = torch.ones(size, dtype=torch.int8, device="cpu")
    return _dispatch(REGION, f"zero_ of {size} int8, threads awake", memory.zero_)


def _dispatch(name: str, note: str, run: Run) -> Dispatch:
    candidate = Candidate(size=note, work=1, make=lambda: run)
    return Dispatch(label=name, note=note, candidates=(candidate,))


_PATIENCE = 2.0  # multiple of the budget after which jobs run once only


def measure_library(
    *,
    threads: int,
    budget_s: float,
    clock: Clock,
    progress: Progress,
    working_sets: Sequence[WorkingSet] = (),
    thread_clock: Clock = time.thread_time,
    cpu_clock: Clock | None = None,
) -> MeasuredFigures:
    """Measure library ceilings in about `budget_s` seconds, on one thread and on `threads`.

    Copy and add use the working sets, with memory for the largest. Clocks return wall seconds, and
    CPU seconds of the calling thread and of all threads (None: exact ones). torch's settings are
    set to defaults and restored, as is its number of threads.
    """
    teams = (1, threads) if threads > 1 else (1,)
    timer = Timer(
        wall=clock, thread_cpu=thread_clock, team_cpu=lambda: cpu_clock or team_cpu_clock()
    )
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.enter_context(torch.inference_mode())
        stack.enter_context(default_settings())
        begin = timer.wall()
        sets = [each for each in working_sets if each.threads in teams]
        version = torch.__version__

        def report(what: str) -> None:
            progress(min(1.0, (timer.wall() - begin) / budget_s), what)

        report("torch: choosing sizes")
        arithmetic = list(arithmetic_subjects())
        dispatches = list(dispatch_subjects())
        expected = len(arithmetic) * len(teams) + 2 * len(sets) + len(dispatches)
        arena = Arena(sets)
        planner = Planner(timer, budget_s / expected)
        # Changing the number of threads is expensive: jobs are grouped by it.
        for team in teams:
            torch.set_num_threads(team)
            calls = dispatches if team == 1 else [region(team)]
            own = [each for each in sets if each.threads == team]
            streams = stream_subjects(own, arena, _call_overhead(timer, team))
            for subject in (*calls, *streams, *arithmetic):
                report(f"torch: choosing the size of {subject.label}")
                planner.add(subject, team)
        deadline = begin + budget_s
        share_s = max(0.0, deadline - timer.wall()) / max(1, len(planner.jobs))

        started: set[str] = set()
        patience = begin + _PATIENCE * budget_s

        def run(job: Job) -> list[Burst]:
            # One burst if other processes slow down every call.
            if job.label in started and timer.wall() > patience:
                return []
            started.add(job.label)
            if torch.get_num_threads() != job.threads:
                torch.set_num_threads(job.threads)
            return job.bursts(timer, share_s)

        bursts = interleave(
            planner.jobs,
            run,
            deadline=deadline,
            clock=timer.wall,
            progress=lambda _, job: report(job.label),
        )
        found = outcomes(planner.jobs, bursts)
        return MeasuredFigures(
            compute=compute_ceilings(found, version),
            bandwidth=bandwidths(found, version),
            overheads=overheads(found, version),
            conditions=planner.conditions(),
            series=tuple(sample_series(each) for each in found),
        )


def _call_overhead(timer: Timer, threads: int) -> Callable[[MemoryKernel], float]:
    if threads == 1:
        return lambda kernel: batch_seconds(smallest(kernel), timer, threads=1)
    (only,) = region(threads).candidates
    seconds = batch_seconds(only.make(), timer, threads=threads)
    return lambda kernel: seconds
