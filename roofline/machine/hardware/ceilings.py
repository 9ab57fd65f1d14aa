"""Parts of a machine profile: compute ceilings, memory levels, links, curves, and provenance."""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from roofline.core.dtypes import DType
from roofline.core.units import format_capacity

# Profiles may be hand-written, so fields are validated.


def check_positive(name: str, value: float | None, *, or_zero: bool = False) -> None:
    """Raise ValueError unless `value` is finite and greater than 0; None (unknown) is valid."""
    if value is None or (0 < value < math.inf) or (or_zero and value == 0):
        return
    wanted = "a finite number from 0" if or_zero else "greater than 0"
    raise ValueError(f"{name} must be {wanted}, got {value}")


def check_rates(unit: str, peak: float, sustained: float, spread: float | None) -> None:
    """Raise ValueError unless rates are positive, sustained ≤ peak, and the spread not negative.

    `unit` is the suffix of the fields: ``peak_flop_per_s`` ends in ``flop_per_s``.
    """
    check_positive(f"peak_{unit}", peak)
    check_positive(f"sustained_{unit}", sustained)
    check_positive("spread", spread, or_zero=True)
    if sustained > peak:
        raise ValueError(f"sustained_{unit} ({sustained:g}) must not exceed peak_{unit} ({peak:g})")


def check_name(what: str, name: str) -> None:
    """Raise ValueError for an empty or multi-line name."""
    if not name.strip() or not name.isprintable():
        raise ValueError(f"{what} must be a one-line name, got {name!r}")


def check_unique(what: str, labels: Iterable[str]) -> None:
    """Raise ValueError for duplicate labels."""
    seen: set[str] = set()
    for label in labels:
        if label in seen:
            raise ValueError(f"{what} must differ, but '{label}' occurs twice")
        seen.add(label)


_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")


def check_date(name: str, text: str) -> None:
    """Raise ValueError unless `text` is an ISO 8601 date, month or year, or empty (unknown)."""
    if not text:
        return
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        datetime.date.fromisoformat(text + "-01" * (2 - text.count("-")))
    except ValueError:
        raise ValueError(
            f"{name} must be a date such as 2026-01-31, 2026-01 or 2026, got {text!r}"
        ) from None


MemoryKernel = Literal[
    "read",
    "write",
    "copy",
    "triad",
    "update",
    "write-nt",
    "copy-nt",
    "triad-nt",
    "add",
    "unspecified",
]
"""Stream kernels; ``add`` is torch's ``a + b``, ``unspecified`` a document without a kernel."""

Kind = Literal["hardware", "library"]
"""Hardware ceilings are measured with own kernels, library ceilings with torch."""

WriteAllocate = Literal["none", "not counted", "counted", "unspecified"]
"""Write-allocate traffic of stores.

``none``: no read for ownership (loads only, non-temporal stores, stores to data just read, stores
to the nearest level). ``not counted``: as in STREAM, bytes are those of loads and stores; actual
traffic may be higher.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Source of a figure.

    ``derived`` figures are arithmetic on others, shown in ``reference`` or ``note``. ``date`` is
    ISO 8601 (day, month or year) of measurement or document, empty if unknown. ``reference`` names
    document or method. ``note`` adds caveats (contention, throttling, sparsity …).
    """

    source: Literal["measured", "datasheet", "derived"]
    reference: str
    date: str
    tool_version: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.reference.strip():
            raise ValueError("reference must name a document or method, got an empty one")
        check_date("date", self.date)


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoreticalRate:
    """Theoretical peak ``per_s``, in FLOP/s or byte/s, with its derivation."""

    per_s: float
    provenance: Provenance

    def __post_init__(self) -> None:
        check_positive("per_s", self.per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCeiling:
    """Rate of one compute kernel on `threads` threads, in FLOP/s.

    ``peak`` is a high quantile of short bursts, used for minimum times; ``sustained`` is their
    median, used for predictions; ``spread`` is interquartile range over median (None for data
    sheets). For integer types, operations are additions and multiplications. ``theoretical`` is the
    unit's theoretical peak (None: unknown). ``clock_hz`` is the core clock in Hz at which the
    figure holds, the boost clock for data sheets (None: unknown). ``doubt`` is the reason why the
    figure may be wrong, or ``""``.
    """

    kind: Kind
    kernel: str
    dtype: DType
    unit: str
    threads: int
    peak_flop_per_s: float
    sustained_flop_per_s: float
    spread: float | None = None
    clock_hz: float | None = None
    theoretical: TheoreticalRate | None = None
    doubt: str = ""
    provenance: Provenance

    def __post_init__(self) -> None:
        check_name("kernel", self.kernel)
        check_name("unit", self.unit)
        check_positive("threads", self.threads)
        check_rates("flop_per_s", self.peak_flop_per_s, self.sustained_flop_per_s, self.spread)
        check_positive("clock_hz", self.clock_hz)

    @property
    def label(self) -> str:
        """Name in tables and plots: ``"float32 avx512 fma"``."""
        return f"{self.dtype} {self.unit} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Rate of one memory kernel on `threads` threads, in byte/s.

    Bytes are those of the kernel's loads and stores; ``write_allocate`` tells what they omit. Other
    fields as in `ComputeCeiling`; ``clock_hz`` is also None where the rate does not follow the core
    clock, as for DRAM.
    """

    kind: Kind = "hardware"
    kernel: MemoryKernel
    threads: int
    peak_bytes_per_s: float
    sustained_bytes_per_s: float
    spread: float | None = None
    clock_hz: float | None = None
    write_allocate: WriteAllocate = "unspecified"
    theoretical: TheoreticalRate | None = None
    doubt: str = ""
    provenance: Provenance

    def __post_init__(self) -> None:
        check_positive("threads", self.threads)
        check_rates("bytes_per_s", self.peak_bytes_per_s, self.sustained_bytes_per_s, self.spread)
        check_positive("clock_hz", self.clock_hz)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """Seconds: ``fast_s`` a low quantile, ``spread`` interquartile range over median."""

    fast_s: float
    median_s: float
    spread: float | None = None
    provenance: Provenance

    def __post_init__(self) -> None:
        for name in ("fast_s", "median_s", "spread"):
            check_positive(name, getattr(self, name), or_zero=True)
        if self.median_s < self.fast_s:
            raise ValueError(
                f"median_s ({self.median_s:g}) must not be below fast_s ({self.fast_s:g})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One memory level with its measured bandwidths.

    ``capacity_bytes`` is that of one instance (None: unlimited). A ``private`` level exists once
    per core: k threads have k times its capacity. For a ``shared`` level it is the sum of all
    instances. ``capacity_provenance``: measured, or reported by the operating system (None:
    unknown). ``latency`` is that of dependent loads at random addresses.
    """

    name: str
    capacity_bytes: int | None = None
    scope: Literal["private", "shared"]
    capacity_provenance: Provenance | None = None
    latency: Duration | None = None
    bandwidth: tuple[Bandwidth, ...]

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_positive("capacity_bytes", self.capacity_bytes)
        if not any(each.kind == "hardware" for each in self.bandwidth):
            raise ValueError(f"memory level '{self.name}' has no hardware bandwidth")
        labels = (f"{each.kind} {each.kernel}, {each.threads} threads" for each in self.bandwidth)
        check_unique(f"bandwidths of '{self.name}'", labels)

    def capacity_for(self, threads: int) -> int | None:
        """Return the capacity of this level for `threads` threads, in bytes; None: unlimited."""
        if self.capacity_bytes is None:
            return None
        return self.capacity_bytes * (threads if self.scope == "private" else 1)


def describe_level(level: MemoryLevel) -> str:
    """Return a memory level with its size: ``"L2 (1 MiB per core)"``."""
    if level.capacity_bytes is None:
        return level.name
    per_core = " per core" if level.scope == "private" else ""
    return f"{level.name} ({format_capacity(level.capacity_bytes)}{per_core})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Core clock under load on one busy core, in Hz.

    ``peak`` and ``median`` over bursts of dependent additions of one cycle each, or the clock of a
    document.
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
"""Overhead names: minor faults of 4 KiB and 2 MiB, with clearing and unmapping the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Time of a call with negligible arithmetic, such as ``"dispatch of linear"``."""

    name: str
    threads: int
    time: Duration

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_positive("threads", self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthCurve:
    """Bandwidth of one kernel over its working set.

    ``size_bytes`` is the working set per thread, ascending; ``bytes_per_s`` the median rate of all
    `threads` threads.
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
    """Median latency of dependent random loads over the working set, on one thread."""

    size_bytes: tuple[int, ...]
    latency_s: tuple[float, ...]
    provenance: Provenance

    def __post_init__(self) -> None:
        _check_curve("latency_s", self.size_bytes, self.latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Connection between a CPU node and a memory, a host and its device, or two processes.

    ``peak`` and ``sustained`` as for ceilings; ``latency`` of one access or of the smallest
    transfer (None: not measured).
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
            f"size_bytes and {name} must have equal length, at least 1, got {len(size_bytes)} and"
            f" {len(values)}"
        )
    for each in (*size_bytes, *values):
        check_positive(f"entries of size_bytes and {name}", each)
    if any(one >= other for one, other in itertools.pairwise(size_bytes)):
        raise ValueError("size_bytes must be ascending")
