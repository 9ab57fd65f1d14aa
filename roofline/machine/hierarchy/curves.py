"""Curves over the working set: latency of random loads and read bandwidth.

The timing function is a parameter, so that curves also run on simulated caches. Sizes lie between
cache sizes (powers of two and their multiples by 1.25 and 1.5), well above one and below the next.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from roofline.core.progress import silent
from roofline.core.units import format_capacity
from roofline.errors import MeasurementError
from roofline.machine.hardware import BandwidthCurve, LatencyCurve, MemoryKernel
from roofline.machine.measuring.estimation import BURST_S, BUSY, Burst, interleave, provenance

SMALLEST_BYTE = 16 << 10

CYCLE_BYTE = 8 << 20
"""A cycle over this many bytes exceeds the capacity of every fast level. Larger working sets are
sampled, after reading all of them once."""

_LINE_BYTE = 64

_APART = 1.05  # minimum ratio of sizes
_PLACES = (29, 35, 44, 52)  # sizes per octave, in 32nds

_COARSE_PLACES = (29, 44)

_STEEP = 1.12
"""Ratio of adjacent latencies above which intermediate sizes are measured too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Bursts over one working set, each of `work` loads or bytes on all threads."""

    work: float
    bursts: tuple[Burst, ...]


Timer = Callable[[int], Timing]
"""Brings a working set of the given bytes per thread to its level, and times it.

May return no bursts if the threads never ran at the same time.
"""

Samples = Mapping[int, tuple[float, ...]]
"""Seconds per load, or byte/s, of every valid burst, by working-set size with any."""

Curve = TypeVar("Curve", LatencyCurve, BandwidthCurve)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledCurve(Generic[Curve]):
    """A curve of medians, and its samples."""

    curve: Curve
    samples: Samples


Latencies = SampledCurve[LatencyCurve]
Bandwidths = SampledCurve[BandwidthCurve]


def curve_sizes(largest_bytes: int, places: Sequence[int] = _PLACES) -> list[int]:
    """Return working-set sizes from 16 KiB to `largest_bytes` in whole lines, four per octave."""
    end = max(SMALLEST_BYTE, largest_bytes // _LINE_BYTE * _LINE_BYTE)
    octaves = (1 << exponent for exponent in range(SMALLEST_BYTE.bit_length() - 1, 63))
    sizes = (octave * place // 32 for octave in octaves for place in places)
    between = itertools.takewhile(lambda size: size * _APART < end, sizes)
    return sorted({SMALLEST_BYTE, *(size for size in between if size > SMALLEST_BYTE), end})


def measure_latencies(
    time_chase: Timer,
    *,
    largest_bytes: int,
    deadline: float,
    clock: Callable[[], float],
) -> Latencies:
    """Measure the latency of dependent loads for working sets from 16 KiB to `largest_bytes`.

    A first round over two sizes per octave finds the rises, where intermediate sizes are added. All
    sizes are then measured in rounds until `deadline` by `clock`, at least three.
    """
    seconds = _seconds_per_load(time_chase)
    first = {size: seconds(size) for size in curve_sizes(largest_bytes, _COARSE_PLACES)}
    known = {size: min(_undisturbed(values)) for size, values in first.items() if values}
    steep = [
        (low, high) for low, high in itertools.pairwise(known) if known[high] > _STEEP * known[low]
    ]
    sizes = [
        size
        for size in curve_sizes(largest_bytes)
        if size in first or any(low < size < high for low, high in steep)
    ]
    return _latencies(_rounds(sizes, seconds, deadline, clock))


def extend_latencies(
    known: Latencies, time_chase: Timer, *, largest_bytes: int, clock: Callable[[], float]
) -> Latencies:
    """Return the curve extended to `largest_bytes`, in three rounds."""
    end = known.curve.size_bytes[-1]
    sizes = [size for size in curve_sizes(largest_bytes) if size > end]
    samples = _rounds(sizes, _seconds_per_load(time_chase), -math.inf, clock)
    _medians(samples, "latency")
    return _latencies({**known.samples, **samples})


def _latencies(samples: Samples) -> Latencies:
    medians = _medians(samples, "latency")
    return SampledCurve(
        curve=LatencyCurve(
            size_bytes=tuple(medians),
            latency_s=tuple(medians.values()),
            provenance=provenance(
                "median of interleaved bursts of dependent loads in a random cycle over all lines"
                f" of the working set, beyond {format_capacity(CYCLE_BYTE)} over a random sample;"
                " read once before",
                _range_note(medians, samples),
            ),
        ),
        samples=samples,
    )


def measure_bandwidths(
    time_read: Timer,
    *,
    kernel: MemoryKernel,
    threads: int,
    largest_bytes: int,
    deadline: float,
    clock: Callable[[], float],
) -> Bandwidths:
    """Measure the bandwidth of `kernel` for working sets from 16 KiB to `largest_bytes` per thread.

    Two sizes per octave, in rounds until `deadline` by `clock`, at least three.
    """

    def rates(size: int) -> list[_Value]:
        timing = time_read(size)
        return [_Value(timing.work / each.wall_s, each.busy) for each in timing.bursts]

    samples = _rounds(curve_sizes(largest_bytes, _COARSE_PLACES), rates, deadline, clock)
    medians = _medians(samples, f"{kernel} on {threads} threads")
    return SampledCurve(
        curve=BandwidthCurve(
            kernel=kernel,
            threads=threads,
            size_bytes=tuple(medians),
            bytes_per_s=tuple(medians.values()),
            provenance=provenance(
                f"median of interleaved bursts of {BURST_S * 1e3:g} ms, or of one pass if longer",
                _range_note(medians, samples),
            ),
        ),
        samples=samples,
    )


class _Value(NamedTuple):
    """Result of one burst, and the fraction of time that its threads had their CPUs."""

    value: float
    busy: float


def _seconds_per_load(time_chase: Timer) -> Callable[[int], list[_Value]]:
    def seconds(size: int) -> list[_Value]:
        timing = time_chase(size)
        return [_Value(each.wall_s / timing.work, each.busy) for each in timing.bursts]

    return seconds


def _undisturbed(values: Sequence[_Value]) -> tuple[float, ...]:
    """Return the values of undisturbed bursts; of all bursts if there are none."""
    clean = [each for each in values if each.busy >= BUSY]
    return tuple(each.value for each in clean or values)


def _rounds(
    sizes: Sequence[int],
    measure: Callable[[int], Sequence[_Value]],
    deadline: float,
    clock: Callable[[], float],
) -> dict[int, tuple[float, ...]]:
    results = interleave(sizes, measure, deadline=deadline, clock=clock, progress=silent)
    return {
        size: _undisturbed(values) for size, values in zip(sizes, results, strict=True) if values
    }


def _medians(samples: Samples, what: str) -> dict[int, float]:
    medians = {size: statistics.median(values) for size, values in samples.items()}
    if not medians:
        raise MeasurementError(
            f"no usable timing of {what}; stop other processes and measure again"
        )
    return medians


def _range_note(medians: Mapping[int, float], samples: Samples) -> str:
    least = min(len(samples[size]) for size in medians)
    sizes = f"{format_capacity(min(medians))} to {format_capacity(max(medians))}"
    return f"{len(medians)} sizes from {sizes}, at least {least} bursts each"
