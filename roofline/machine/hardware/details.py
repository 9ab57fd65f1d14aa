"""What else is known of a machine: its clock, what a call costs, curves over size, links."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from roofline.machine.checks import check_name, check_positive, check_rates
from roofline.machine.hardware.ceilings import Duration, MemoryKernel, Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Cycles per second of a core while it computes, on one busy core.

    ``peak`` and ``median`` over bursts of a chain of dependent additions, each of which takes one
    cycle; or the clock that a document gives.

    Raises:
        ValueError: a rate that is not positive, or a median above the peak.
    """

    peak_hz: float
    median_hz: float
    provenance: Provenance

    def __post_init__(self) -> None:
        check_positive("peak_hz", self.peak_hz)
        check_positive("median_hz", self.median_hz)
        if self.median_hz > self.peak_hz:
            raise ValueError(
                f"median_hz ({self.median_hz:g}) must not exceed peak_hz ({self.peak_hz:g})"
            )


PAGE_FAULT, HUGE_PAGE_FAULT = "page fault", "huge page fault"
"""Names of overheads: minor faults of 4 KiB and of 2 MiB, with clearing and unmapping the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What a call costs whose arithmetic costs nothing: ``"dispatch of linear"``, on `threads`."""

    name: str
    threads: int
    time: Duration

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_positive("threads", self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthCurve:
    """How the bandwidth of one kernel falls as its working set grows.

    ``size_bytes`` is what each thread goes over, rising; ``bytes_per_s`` the median rate of all
    `threads` threads together at that size.

    Raises:
        ValueError: lists of different length or without entries, sizes that do not rise, or a rate
            that is not positive.
    """

    kernel: MemoryKernel
    threads: int
    size_bytes: tuple[int, ...]
    bytes_per_s: tuple[float, ...]
    provenance: Provenance

    def __post_init__(self) -> None:
        check_positive("threads", self.threads)
        _check_curve("bytes_per_s", self.size_bytes, self.bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCurve:
    """How long a load takes at random places of a working set, as that grows; on one thread.

    ``size_bytes`` rises; ``latency_s`` are medians.

    Raises:
        ValueError: as `BandwidthCurve`.
    """

    size_bytes: tuple[int, ...]
    latency_s: tuple[float, ...]
    provenance: Provenance

    def __post_init__(self) -> None:
        _check_curve("latency_s", self.size_bytes, self.latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way between two places: a CPU node and another's memory, a host and its device.

    ``peak`` and ``sustained`` as for ceilings; ``latency`` of one access or of the smallest
    transfer (None: not measured).

    Raises:
        ValueError: an empty name, a rate or thread count that is not positive, a negative spread,
            or sustained above peak.
    """

    source: str
    target: str
    kernel: str
    threads: int
    peak_bytes_per_s: float
    sustained_bytes_per_s: float
    spread: float | None = None
    latency: Duration | None = None
    provenance: Provenance

    def __post_init__(self) -> None:
        check_name("source", self.source)
        check_name("target", self.target)
        check_name("kernel", self.kernel)
        check_positive("threads", self.threads)
        check_rates("bytes_per_s", self.peak_bytes_per_s, self.sustained_bytes_per_s, self.spread)


def _check_curve(name: str, size_bytes: tuple[int, ...], values: tuple[float, ...]) -> None:
    if not size_bytes or len(size_bytes) != len(values):
        raise ValueError(
            f"size_bytes and {name} must have as many entries, and at least one each,"
            f" got {len(size_bytes)} and {len(values)}"
        )
    for each in (*size_bytes, *values):
        check_positive(f"each of size_bytes and {name}", each)
    if any(one >= other for one, other in itertools.pairwise(size_bytes)):
        raise ValueError("size_bytes must rise from entry to entry")
