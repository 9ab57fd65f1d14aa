"""What a machine reaches: compute ceilings and memory levels, each number with its provenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.foundation.dtypes import DType
from roofline.foundation.units import format_capacity
from roofline.machine.checks import (
    check_date,
    check_differ,
    check_from_zero,
    check_name,
    check_positive,
)

MemoryKernel = Literal[
    "read", "write", "copy", "triad", "update", "write-nt", "copy-nt", "triad-nt", "unspecified"
]
"""What was run; ``unspecified`` where a document gives one figure for a level and no kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a number comes from.

    ``date`` is ISO 8601 (``2026-01-31``, ``2026-01`` or ``2026``), of the measurement or the
    document, and empty where that is not known; ``reference`` names the document or the method;
    ``note`` adds what a reader must know to judge it (contention, throttling, sparsity …).

    Raises:
        ValueError: no reference, or a date that is none.
    """

    source: Literal["measured", "datasheet"]
    reference: str
    date: str
    tool_version: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.reference.strip():
            raise ValueError("reference must name a document or a method, got nothing")
        check_date("date", self.date)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCeiling:
    """Floating-point operations per second that one kernel reaches on `threads` threads.

    ``peak`` is a high quantile of short bursts and enters bounds; ``sustained`` is their median and
    enters predictions; ``spread`` is interquartile range over median (None for data sheets).

    Raises:
        ValueError: a rate or thread count that is not positive, a negative spread, sustained above
            peak, or an empty name.
    """

    kind: Literal["hardware", "library"]
    kernel: str
    dtype: DType
    unit: str
    threads: int
    peak_flop_per_s: float
    sustained_flop_per_s: float
    spread: float | None = None
    provenance: Provenance

    def __post_init__(self) -> None:
        check_name("kernel", self.kernel)
        check_name("unit", self.unit)
        check_positive("threads", self.threads)
        check_positive("peak_flop_per_s", self.peak_flop_per_s)
        check_positive("sustained_flop_per_s", self.sustained_flop_per_s)
        check_from_zero("spread", self.spread)
        if self.sustained_flop_per_s > self.peak_flop_per_s:
            raise ValueError(
                f"sustained_flop_per_s ({self.sustained_flop_per_s:g}) must not exceed"
                f" peak_flop_per_s ({self.peak_flop_per_s:g})"
            )

    @property
    def label(self) -> str:
        """How tables and pictures name it: ``"float32 avx512 fma"``."""
        return f"{self.dtype} {self.unit} {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Bytes per second that one memory kernel moves on `threads` threads.

    Bytes are those the kernel's loads and stores name (STREAM's counting: the read for ownership of
    a plain store is not counted). ``peak``, ``sustained`` and ``spread`` as in `ComputeCeiling`.

    Raises:
        ValueError: a rate or thread count that is not positive, a negative spread, or sustained
            above peak.
    """

    kernel: MemoryKernel
    threads: int
    peak_byte_per_s: float
    sustained_byte_per_s: float
    spread: float | None = None
    provenance: Provenance

    def __post_init__(self) -> None:
        check_positive("threads", self.threads)
        check_positive("peak_byte_per_s", self.peak_byte_per_s)
        check_positive("sustained_byte_per_s", self.sustained_byte_per_s)
        check_from_zero("spread", self.spread)
        if self.sustained_byte_per_s > self.peak_byte_per_s:
            raise ValueError(
                f"sustained_byte_per_s ({self.sustained_byte_per_s:g}) must not exceed"
                f" peak_byte_per_s ({self.peak_byte_per_s:g})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One level of memory, with the bandwidths measured from it.

    ``capacity_byte`` is that of one instance (None: no limit known, as for DRAM). A ``private``
    level exists once per core: k threads have k times its capacity.

    Raises:
        ValueError: an empty name, a capacity that is not positive, no bandwidth, or two of the same
            kernel and thread count.
    """

    name: str
    capacity_byte: int | None = None
    scope: Literal["private", "shared"]
    bandwidth: tuple[Bandwidth, ...]

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_positive("capacity_byte", self.capacity_byte)
        if not self.bandwidth:
            raise ValueError(f"memory level '{self.name}' has no bandwidth")
        labels = (f"{each.kernel}, {each.threads} threads" for each in self.bandwidth)
        check_differ(f"the bandwidths of '{self.name}'", labels)

    def capacity_for(self, threads: int) -> int | None:
        """Bytes that `threads` threads can hold in this level; None: no limit known."""
        if self.capacity_byte is None:
            return None
        return self.capacity_byte * (threads if self.scope == "private" else 1)


def describe_level(level: MemoryLevel) -> str:
    """A memory level in words: ``"L2 (1 MiB per core)"``."""
    if level.capacity_byte is None:
        return level.name
    per_core = " per core" if level.scope == "private" else ""
    return f"{level.name} ({format_capacity(level.capacity_byte)}{per_core})"
