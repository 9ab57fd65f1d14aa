"""What torch itself reaches: matrix products, convolutions, and the cost of a call.

The only module of this folder that imports torch. A roof made of these is lower than the hardware's
(on AMD hosts float32 products stay at 40 % of the FMA peak), and it is what predictions need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from roofline.foundation.dtypes import dtype
from roofline.foundation.sampling import Sample, quantile
from roofline.machine.ceilings import provenance
from roofline.machine.estimation import PEAK_QUANTILE
from roofline.machine.hardware import ComputeCeiling
from roofline.machine.schedule import bursts_per_call, interleave

Clock = Callable[[], float]

_CALL_S = 15e-3
"""Wanted seconds per call: past the library's blocking and thread start, short for an interrupt."""

_PRODUCT_SIZES = (128, 256, 384, 512, 768, 1024, 1536, 2048)
_IMAGE_SIZES = (8, 16, 32, 48, 64, 96, 128)
_CHANNELS = 128
_KERNEL = 3

_OVERHEAD_CALLS = 100
_OVERHEAD_ROUNDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFindings:
    """Ceilings of the library, and its overheads in seconds per call by name."""

    compute: tuple[ComputeCeiling, ...]
    overheads: dict[str, float]


@dataclass(slots=True, kw_only=True)
class _Job:
    """A call of the library at one size, with its flop count and the seconds it took."""

    kernel: str
    element: torch.dtype
    threads: int
    size: str
    flop: int
    call: Callable[[], object]
    call_s: float


def measure_library(
    *,
    threads: int,
    budget_s: float,
    clock: Clock,
    progress: Callable[[float, str], None],
) -> LibraryFindings:
    """What torch reaches in about `budget_s` seconds, on one thread and on `threads`.

    The largest size whose call fits the budget is measured. torch's number of threads is restored.
    """
    teams = (1, threads) if threads > 1 else (1,)
    before = torch.get_num_threads()
    begin = clock()
    try:
        with torch.inference_mode():
            torch.set_num_threads(1)
            overheads = _overheads(clock)
            deadline = begin + budget_s
            jobs: list[_Job] = []
            for team in teams:
                torch.set_num_threads(team)
                for sized in _kinds():
                    progress(0.0, "torch: choosing sizes")
                    jobs.append(_sized(sized, team, clock))
            # Switching torch's thread count costs, so a round has all of one count together.
            results = interleave(
                jobs,
                lambda job: _timed(job, clock, budget_s, len(jobs)),
                deadline=deadline,
                clock=clock,
                progress=lambda done, job: progress(done, f"torch {job.kernel} {job.size}"),
            )
    finally:
        torch.set_num_threads(before)
    return LibraryFindings(
        compute=tuple(
            _ceiling(job, Sample(times_s=tuple(times)))
            for job, times in zip(jobs, results, strict=True)
        ),
        overheads=overheads,
    )


_Made = tuple[str, int, Callable[[], object]]
_Kind = tuple[str, torch.dtype, tuple[int, ...], Callable[[int], _Made]]


def _kinds() -> Iterator[_Kind]:
    """Kernel name, element type, sizes to choose from, and what makes a call of a size."""
    for element in (torch.float32, torch.float64, torch.bfloat16):
        yield "gemm", element, _PRODUCT_SIZES, lambda n, element=element: _product(n, element)
    for name, layout in (
        ("conv", torch.contiguous_format),
        ("conv-channels-last", torch.channels_last),
    ):
        yield name, torch.float32, _IMAGE_SIZES, lambda n, layout=layout: _convolution(n, layout)


def _product(n: int, element: torch.dtype) -> _Made:
    a, b = torch.randn(n, n).to(element), torch.randn(n, n).to(element)
    out = torch.empty(n, n, dtype=element)
    return f"{n}x{n}x{n}", 2 * n**3, lambda: torch.mm(a, b, out=out)


def _convolution(n: int, layout: torch.memory_format) -> _Made:
    image = torch.randn(1, _CHANNELS, n, n).contiguous(memory_format=layout)
    weight = torch.randn(_CHANNELS, _CHANNELS, _KERNEL, _KERNEL).contiguous(memory_format=layout)
    # Without padding every tap counts: the convention on padding makes no difference here.
    places = (n - _KERNEL + 1) ** 2
    flop = 2 * places * _CHANNELS * _CHANNELS * _KERNEL**2
    size = f"1x{_CHANNELS}x{n}x{n}"
    return size, flop, lambda: torch.nn.functional.conv2d(image, weight)


def _seconds(call: Callable[[], object], clock: Clock) -> float:
    start = clock()
    call()
    return clock() - start


def _shortest(call: Callable[[], object], clock: Clock) -> float:
    """The shortest of a few calls: the first also plans and packs, any may lose its CPU."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < 5 and sum(times) < _CALL_S):
        times.append(_seconds(call, clock))
    return min(times)


def _sized(kind: _Kind, threads: int, clock: Clock) -> _Job:
    """The job of the largest size whose call is expected to stay within `_CALL_S`."""
    kernel, element, sizes, make = kind
    chosen: _Job | None = None
    for n in sizes:
        size, flop, call = make(n)
        if chosen and chosen.call_s * flop / chosen.flop > 1.5 * _CALL_S:
            break
        call_s = _shortest(call, clock)
        chosen = _Job(
            kernel=kernel,
            element=element,
            threads=threads,
            size=size,
            flop=flop,
            call=call,
            call_s=max(call_s, 1e-9),
        )
    assert chosen is not None
    return chosen


def _timed(job: _Job, clock: Clock, budget_s: float, jobs: int) -> list[float]:
    if torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)
    calls = min(bursts_per_call(budget_s, jobs, job.call_s), 50)
    job.call()
    return [max(_seconds(job.call, clock), 1e-9) for _ in range(calls)]


def _ceiling(job: _Job, sample: Sample) -> ComputeCeiling:
    sustained = job.flop / sample.median_s
    fastest_s = quantile(sample.times_s, 1 - PEAK_QUANTILE)
    return ComputeCeiling(
        kind="library",
        kernel=job.kernel,
        dtype=dtype(str(job.element)),
        unit="torch",
        threads=job.threads,
        peak_flop_per_s=max(sustained, job.flop / fastest_s),
        sustained_flop_per_s=sustained,
        spread=sample.spread,
        provenance=provenance(
            f"{PEAK_QUANTILE * 100:.0f}th percentile (peak) and median (sustained) of calls of"
            f" torch {torch.__version__}",
            f"{job.size}; {len(sample.times_s)} calls",
        ),
    )


def _overheads(clock: Clock) -> dict[str, float]:
    """Seconds that a call takes whose arithmetic takes none, on one thread."""
    one, weight = torch.ones(1, 1), torch.ones(1, 1)
    image, taps = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1)
    calls: dict[str, Callable[[], object]] = {
        "dispatch_add_s": lambda: torch.add(one, one),
        "dispatch_linear_s": lambda: torch.nn.functional.linear(one, weight),
        "dispatch_conv_s": lambda: torch.nn.functional.conv2d(image, taps),
    }
    return {name: _overhead(call, clock) for name, call in calls.items()}


def _overhead(call: Callable[[], object], clock: Clock) -> float:
    def batch() -> None:
        for _ in range(_OVERHEAD_CALLS):
            call()

    batch()
    times = tuple(max(_seconds(batch, clock), 1e-12) for _ in range(_OVERHEAD_ROUNDS))
    return Sample(times_s=times).median_s / _OVERHEAD_CALLS
