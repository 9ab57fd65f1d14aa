"""What a machine reaches: compute ceilings and memory levels, each number with its provenance."""

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

# A profile's fields are written by people, too: what cannot be true is refused where it is said.


def check_positive(name: str, value: float | None, *, or_zero: bool = False) -> None:
    """Refuses what is not a finite number greater than 0; None is unknown, and no error."""
    if value is None or (0 < value < math.inf) or (or_zero and value == 0):
        return
    wanted = "a finite number from 0" if or_zero else "greater than 0"
    raise ValueError(f"{name} must be {wanted}, got {value}")


def check_rates(unit: str, peak: float, sustained: float, spread: float | None) -> None:
    """Refuses rates that are not positive, a sustained one above the peak, and a negative spread.

    `unit` is that of the fields: ``peak_flop_per_s`` ends in ``flop_per_s``.
    """
    check_positive(f"peak_{unit}", peak)
    check_positive(f"sustained_{unit}", sustained)
    check_positive("spread", spread, or_zero=True)
    if sustained > peak:
        raise ValueError(f"sustained_{unit} ({sustained:g}) must not exceed peak_{unit} ({peak:g})")


def check_name(what: str, name: str) -> None:
    """Refuses an empty name, and one that no table or command line can hold."""
    if not name.strip() or not name.isprintable():
        raise ValueError(f"{what} must be a name on one line, got {name!r}")


def check_differ(what: str, labels: Iterable[str]) -> None:
    """Refuses a label that stands twice: which of the two is meant, nobody could say."""
    seen: set[str] = set()
    for label in labels:
        if label in seen:
            raise ValueError(f"{what} must differ, but '{label}' is there twice")
        seen.add(label)


_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")


def check_date(name: str, text: str) -> None:
    """Refuses what is no date by ISO 8601; a day or month may be missing, ``""`` is unknown."""
    if not text:
        return
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        datetime.date.fromisoformat(text + "-01" * (2 - text.count("-")))
    except ValueError:
        raise ValueError(
            f"{name} must be as in 2026-01-31, 2026-01 or 2026, got {text!r}"
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
"""What was run (``add`` is torch's ``a + b``); ``unspecified`` where a document names no kernel."""

Kind = Literal["hardware", "library"]
"""What the machine can do, measured with kernels of our own; or what torch does with it."""

WriteAllocate = Literal["none", "not counted", "counted", "unspecified"]
"""Whether stores had their lines read first, and whether that traffic is in the figure.

``none``: nothing is read for ownership (loads alone, stores past the caches, stores to what was
just read, stores to the nearest level); ``not counted``: STREAM's way, the bytes are those that
loads and stores name, and the machine may have moved more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a number comes from.

    ``derived`` is arithmetic on other figures, which ``reference`` or ``note`` shows.
    ``date`` is ISO 8601 (``2026-01-31``, ``2026-01`` or ``2026``), of the measurement or the
    document, and empty where that is not known; ``reference`` names the document or the method;
    ``note`` adds what a reader must know to judge it (contention, throttling, sparsity …).
    """

    source: Literal["measured", "datasheet", "derived"]
    reference: str
    date: str
    tool_version: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.reference.strip():
            raise ValueError("reference must name a document or a method, got nothing")
        check_date("date", self.date)


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoreticalRate:
    """What a figure would be on paper: ``per_s`` flop or byte per second, and how that follows."""

    per_s: float
    provenance: Provenance

    def __post_init__(self) -> None:
        check_positive("per_s", self.per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCeiling:
    """Operations per second that one kernel reaches on `threads` threads.

    ``peak`` is a high quantile of short bursts and enters bounds; ``sustained`` is their median and
    enters predictions; ``spread`` is interquartile range over median (None for data sheets). For
    integer types the operations are multiplications and additions. ``theoretical`` is what the
    unit could do on paper (None: not known). ``clock_hz`` is the core clock at which the figure
    holds, in Hz: the boost clock for data sheets (None: not known). ``doubt`` says why the figure
    may be wrong, in words; ``""``: nothing speaks against it.
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
        """How tables and pictures name it: ``"float32 avx512 fma"``."""
        return f"{self.dtype} {self.unit} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Bytes per second that one memory kernel moves on `threads` threads.

    Bytes are those the kernel's loads and stores name; ``write_allocate`` says what that leaves
    out. ``peak``, ``sustained``, ``spread``, ``clock_hz``, ``theoretical`` and ``doubt`` as in
    `ComputeCeiling`; ``clock_hz`` is also None where the rate does not follow the core clock, as
    that of DRAM.
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
    """Seconds that something takes; ``fast_s`` is a low quantile, ``spread`` IQR over median."""

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
    """One level of memory, with the bandwidths measured from it.

    ``capacity_bytes`` is that of one instance (None: no limit known). A ``private``
    level exists once per core: k threads have k times its capacity; of a ``shared`` one it is that
    of all instances together which all threads reach. ``capacity_provenance`` says
    whether the size was found by measuring or is what the operating system reports (None: not
    said). ``latency`` is that of one load whose address the load before it gave, at random places.
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
            raise ValueError(f"memory level '{self.name}' has no bandwidth of the hardware")
        labels = (f"{each.kind} {each.kernel}, {each.threads} threads" for each in self.bandwidth)
        check_differ(f"the bandwidths of '{self.name}'", labels)

    def capacity_for(self, threads: int) -> int | None:
        """Bytes that `threads` threads can hold in this level; None: no limit known."""
        if self.capacity_bytes is None:
            return None
        return self.capacity_bytes * (threads if self.scope == "private" else 1)


def describe_level(level: MemoryLevel) -> str:
    """A memory level in words: ``"L2 (1 MiB per core)"``."""
    if level.capacity_bytes is None:
        return level.name
    per_core = " per core" if level.scope == "private" else ""
    return f"{level.name} ({format_capacity(level.capacity_bytes)}{per_core})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Cycles per second of a core while it computes, on one busy core.

    ``peak`` and ``median`` over bursts of a chain of dependent additions, each of which takes one
    cycle; or the clock that a document gives.
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
