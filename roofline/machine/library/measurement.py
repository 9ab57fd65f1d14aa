"""Measures what torch reaches here: sizes are chosen, then all jobs run in rounds."""

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
from roofline.machine.measuring.estimation import Burst, Findings, interleave

_ELEMENT_BYTE = 4
_LINE = 16  # elements of a cache line: threads share none

_PIECE_BYTE = 16 << 20
"""Of memory per thread and call: long against a call's cost, short enough to go undisturbed."""

_STREAMS: dict[MemoryKernel, int] = {"copy": 2, "add": 3}


class Arena:
    """The memory that all streams share, written before it is read.

    A call in a cache goes over the same bytes every time. A call in main memory goes over the next
    piece, whoever made the call before: when a piece comes again, all others were touched between.
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
        """A call over the first `byte` bytes, all streams together."""
        return _call(kernel, self._memory[: byte // _ELEMENT_BYTE], threads)

    def in_turn(self, kernel: MemoryKernel, byte: int, threads: int) -> Run:
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
    """Copy and add over each working set, all of torch's present number of threads.

    A call of a kernel takes `overhead_s` without any memory.
    """
    for each in sets:
        byte, make = each.bytes_per_thread * each.threads, arena.in_place
        if each.level == DRAM:
            byte, make = min(_PIECE_BYTE * each.threads, byte), arena.in_turn
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
    """A call of a kernel on one element: what remains is its dispatch."""
    return _call(kernel, torch.ones(_STREAMS[kernel], dtype=torch.float32, device="cpu"), 1)


_MOST_CALL_S = 10e-3
"""The longest call: past the library's blocking and thread start, short for an interrupt."""

_CALLS_PER_SHARE = 12
"""So many calls of the longest kind fit into a job's share: the choice, and three rounds."""

_LEAST_CALLS_PER_SHARE = 3  # a job that can only overdraw its share threefold or more is left out

_CHOICE = 0.4
"""Of a job's share, what choosing its size may take; what one leaves, the next ones have."""

_CALLS_PER_DISPATCH = 10.0
"""A call on memory that takes less, in times of its dispatch, measures the dispatch."""


class Planner:
    """Jobs, as they are planned one after the other, in `share_s` seconds each."""

    def __init__(self, timer: Timer, share_s: float) -> None:
        self._timer = timer
        self._share_s = share_s
        self._deadline = timer.wall()
        self._refused: dict[str, str] = {}
        self._slow: dict[str, float] = {}
        self._drowned: list[str] = []
        self.jobs: list[Job] = []

    def add(self, subject: Subject, threads: int) -> None:
        if subject.label in self._refused or subject.label in self._slow:
            return
        self._deadline += _CHOICE * self._share_s
        alone = next((job for job in self.jobs if job.subject is subject), None)
        if alone and self._timer.wall() > self._deadline:
            self.jobs.append(dataclasses.replace(alone, threads=threads, tried=1))
            return
        # For a team, sizes from the best of one thread on.
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
            # Others may hold up a team; it is not slower than one of its threads.
            least_s = alone.call_s * job.work / alone.work
            self.jobs.append(dataclasses.replace(job, call_s=min(job.call_s, least_s)))
        elif isinstance(subject, Stream) and self._drowns(job, subject.overhead_s):
            self._drowned.append(f"{subject.working_set.level} on {counted(threads, 'thread')}")
        elif threads == 1 and job.call_s > self._share_s / _LEAST_CALLS_PER_SHARE:
            self._slow[subject.label] = job.call_s
        else:
            self.jobs.append(job)

    def _drowns(self, job: Job, overhead_s: float) -> bool:
        """Whether a call is short beside its overhead; close calls are timed in batches."""
        least_s = _CALLS_PER_DISPATCH * overhead_s
        if job.call_s > 2 * least_s:
            return False
        return batch_seconds(job.run, self._timer, threads=job.threads) < least_s

    def conditions(self) -> tuple[str, ...]:
        refused = [
            f"torch cannot do {label} on this CPU: {reason}"
            for label, reason in self._refused.items()
        ]
        slow = [
            f"no library ceiling of {label}: a call of the smallest size takes"
            f" {format_s(seconds)}, more than its share of the time; measure for longer"
            for label, seconds in self._slow.items()
        ]
        levels = ", ".join(dict.fromkeys(self._drowned))
        drowned = (
            f"no library bandwidth of {levels}: a call of torch there takes less than"
            f" {_CALLS_PER_DISPATCH:g} times what it takes to start it"
        )
        return (*refused, *slow, *([drowned] if levels else []))


_PRODUCT_ELEMENTS = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.float16)
_CONVOLUTION_ELEMENTS = (torch.float32, torch.bfloat16, torch.float64, torch.float16)

# From what takes a millisecond at 0.5 GFLOP/s, as types without a native path do.
_PRODUCT_SIZES = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072)
# Channels and side, in the order of their work.
_IMAGES = (
    *((64, 8), (64, 16), (128, 16), (128, 24), (128, 32)),
    *((256, 32), (128, 64), (256, 64), (256, 128)),
)

_LAYOUTS = (
    ("conv", torch.contiguous_format),
    ("conv-channels-last", torch.channels_last),
)
_KERNEL = 3

_PERIOD = 997  # a prime, so that rows differ; so few values that filling a matrix is copying

_GOLDEN = 0.6180339887498949
_LARGEST_INT8 = 80


def arithmetic_subjects() -> Iterator[Arithmetic]:
    """Matrix products and 3x3 convolutions, contiguous and channels-last, per element type."""
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
            # The only integer product that has a fast path; its sums are 32 bits wide.
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

    # Without padding every tap counts: the convention on padding makes no difference here.
    places = (side - _KERNEL + 1) ** 2
    return Candidate(
        size=f"1x{channels}x{side}x{side}",
        work=2 * places * channels * channels * _KERNEL**2,
        make=make,
    )


def _filled(shape: tuple[int, ...], element: torch.dtype) -> torch.Tensor:
    """Values from 0.5 to 1.5 of both signs: no denormals, no overflow, no random state used."""
    index = torch.arange(_PERIOD, dtype=torch.float64, device="cpu")
    values = (index * _GOLDEN % 1 + 0.5) * (1 - 2 * (index % 2))
    if element == torch.int8:
        values = (values * _LARGEST_INT8).round()
    elements = torch.Size(shape).numel()
    rows = -(-elements // _PERIOD)
    return values.to(element).repeat(rows)[:elements].reshape(shape)


REGION = "parallel region"

_GRAIN = 32768
"""at::internal::GRAIN_SIZE: elements from which on torch gives an operator another thread."""


def dispatch_subjects() -> Iterator[Dispatch]:
    """Calls on one element, or none, on one thread: from the emptiest operator to a convolution."""
    one = torch.ones(1, device="cpu", dtype=torch.float32)
    matrix, image = one.reshape(1, 1), one.reshape(1, 1, 1, 1)
    # A view goes through the dispatcher like any operator, and neither allocates nor computes.
    yield _dispatch("dispatch of view", "detach of one element", one.detach)
    yield _dispatch("dispatch of add", "1 + 1 element", partial(torch.add, one, one))
    linear, conv = torch.nn.functional.linear, torch.nn.functional.conv2d
    yield _dispatch("dispatch of linear", "1x1 by 1x1", partial(linear, matrix, matrix))
    yield _dispatch("dispatch of convolution", "1x1x1x1, 1 tap", partial(conv, image, image))


def region(threads: int) -> Dispatch:
    """The cheapest operator that takes `threads` threads: its dispatch, the start and the end."""
    size = _GRAIN * threads
    memory = torch.ones(size, dtype=torch.int8, device="cpu")
    return _dispatch(REGION, f"zero_ of {size} int8, threads awake", memory.zero_)


def _dispatch(name: str, note: str, run: Run) -> Dispatch:
    candidate = Candidate(size=note, work=1, make=lambda: run)
    return Dispatch(label=name, note=note, candidates=(candidate,))


_PATIENCE = 2.0  # in times of the budget: after so long, no job gets a second turn


def measure_library(
    *,
    threads: int,
    budget_s: float,
    clock: Clock,
    progress: Progress,
    working_sets: Sequence[WorkingSet] = (),
    thread_clock: Clock = time.thread_time,
    cpu_clock: Clock | None = None,
) -> Findings:
    """Ceilings of torch in about `budget_s` seconds, on one thread and on `threads`.

    Copy and add go over the working sets; memory for the largest is allocated. The clocks give wall
    seconds, and CPU seconds of the calling thread and of all threads (None: exact ones). torch's
    settings are the defaults meanwhile; they and its number of threads are restored.
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
        # Switching torch's thread count costs: all of one count come together, in every round.
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
            # Where others hold up every call, one burst must do.
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
        return Findings(
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
