"""What torch itself reaches: matrix products, convolutions, and the cost of a call.

The only module of this folder that imports torch. A roof made of these is lower than the hardware's
(on AMD hosts float32 products stay at 40 % of the FMA peak), and it is what predictions need.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from roofline.foundation.dtypes import dtype
from roofline.foundation.sampling import Sample
from roofline.machine.ceilings import provenance
from roofline.machine.estimation import PEAK_QUANTILE, Burst, estimate
from roofline.machine.hardware import ComputeCeiling
from roofline.machine.schedule import bursts_per_call, interleave

Clock = Callable[[], float]

_MOST_CALL_S = 15e-3
"""The longest call: past the library's blocking and thread start, short for an interrupt."""

_MOST_CALLS = 50

_BEST_CALLS = 3
"""So many calls are held to be undisturbed in any case: those that had the most CPU time."""

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
    cpu_clock: Clock = time.process_time,
) -> LibraryFindings:
    """What torch reaches in about `budget_s` seconds, on one thread and on `threads`.

    Args:
        threads: what "all threads" means.
        budget_s: seconds for all timing together.
        clock: wall seconds.
        progress: called with the fraction done, 0 to 1, and what is measured next.
        cpu_clock: CPU seconds of this process, all threads together.

    torch's number of threads is restored.
    """
    teams = (1, threads) if threads > 1 else (1,)
    before = torch.get_num_threads()
    begin = clock()
    jobs: list[_Job] = []
    try:
        with torch.inference_mode():
            torch.set_num_threads(1)
            overheads = _overheads(clock)
            sized: list[list[_Job]] = []
            for kind in _kinds():
                progress(0.0, "torch: choosing sizes")
                sized.append(_candidates(kind, clock, most_s=_MOST_CALL_S * threads))
            # Switching torch's thread count costs, so a round has all of one count together.
            for team in teams:
                jobs += [_on_team(candidates, team) for candidates in sized]
            results = interleave(
                jobs,
                lambda job: _timed(job, clock, cpu_clock, budget_s / len(jobs)),
                deadline=begin + budget_s,
                clock=clock,
                progress=lambda done, job: progress(done, f"torch {job.kernel} {job.size}"),
            )
    finally:
        torch.set_num_threads(before)
    return LibraryFindings(
        compute=tuple(_ceiling(job, calls) for job, calls in zip(jobs, results, strict=True)),
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
    while len(times) < 2 or (len(times) < 5 and sum(times) < _MOST_CALL_S):
        times.append(_seconds(call, clock))
    return min(times)


def _candidates(kind: _Kind, clock: Clock, *, most_s: float) -> list[_Job]:
    """Jobs of rising size on one thread, as long as a call is expected to take `most_s` or less."""
    kernel, element, sizes, make = kind
    jobs: list[_Job] = []
    for n in sizes:
        size, flop, call = make(n)
        if jobs and jobs[-1].call_s * flop / jobs[-1].flop > most_s:
            break
        jobs.append(
            _Job(
                kernel=kernel,
                element=element,
                threads=1,
                size=size,
                flop=flop,
                call=call,
                call_s=max(_shortest(call, clock), 1e-9),
            )
        )
    return jobs


def _on_team(candidates: list[_Job], threads: int) -> _Job:
    """The largest candidate for a team; its time is deduced: others may hold up a team for long."""
    fitting = [job for job in candidates if job.call_s <= _MOST_CALL_S * threads]
    job = fitting[-1] if fitting else candidates[0]
    return dataclasses.replace(job, threads=threads, call_s=job.call_s / threads)


def _timed(job: _Job, clock: Clock, cpu_clock: Clock, budget_s: float) -> list[Burst]:
    if torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)
    job.call()
    bursts: list[Burst] = []
    for _ in range(min(bursts_per_call(budget_s, 1, job.call_s), _MOST_CALLS)):
        cpu_start = cpu_clock()
        wall_s = max(_seconds(job.call, clock), 1e-9)
        cpu_s = cpu_clock() - cpu_start
        # Waiting workers spin, also between two readings: no call has more than all of its CPUs.
        busy = min(1.0, cpu_s / wall_s / job.threads)
        bursts.append(Burst(wall_s=wall_s, cpu_s=cpu_s, busy=busy))
    return bursts


def _ceiling(job: _Job, calls: list[Burst]) -> ComputeCeiling:
    # A library need not keep all threads busy, so a call is disturbed when others got more CPU.
    usual = sorted(call.busy for call in calls)[-_BEST_CALLS:][0] or 1.0
    rate = estimate(job.flop, [dataclasses.replace(c, busy=c.busy / usual) for c in calls])
    return ComputeCeiling(
        kind="library",
        kernel=job.kernel,
        dtype=dtype(str(job.element)),
        unit="torch",
        threads=job.threads,
        peak_flop_per_s=rate.peak,
        sustained_flop_per_s=rate.sustained,
        spread=rate.spread,
        provenance=provenance(
            f"{PEAK_QUANTILE * 100:.0f}th percentile (peak) and median (sustained) of calls of"
            f" torch {torch.__version__}",
            f"{job.size}; {rate.bursts} calls"
            + (f", {rate.disturbed} disturbed" if rate.disturbed else ""),
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
