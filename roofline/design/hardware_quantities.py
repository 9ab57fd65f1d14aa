"""Every number of a hardware profile in one form, so that all can be listed and compared alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from roofline.machine.hardware import (
    Bandwidth,
    Duration,
    HardwareProfile,
    Link,
    MemoryLevel,
    Provenance,
    TheoreticalRate,
)

What = Literal["compute", "bandwidth", "latency", "capacity", "clock", "overhead", "link"]
Unit = Literal["flop/s", "byte/s", "s", "byte", "Hz"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One number of a machine, in ``measure``.

    ``subject`` is a data type, a memory level, a call or the way of a link; ``unit`` the
    instruction set of a compute ceiling, ``""`` for all else. ``peak`` is the best, ``typical`` the
    median: of a time, peak is the smaller. ``threads`` is None where nothing runs (a capacity).
    """

    what: What
    kind: Literal["hardware", "library"] = "hardware"
    subject: str
    unit: str = ""
    kernel: str = ""
    threads: int | None
    measure: Unit
    peak: float
    typical: float
    spread: float | None = None
    theoretical: TheoreticalRate | None = None
    write_allocate: str = ""
    doubt: str = ""
    provenance: Provenance | None

    @property
    def identity(self) -> tuple[str, ...]:
        """What two quantities must share to be the same, apart from their threads."""
        return (self.what, self.kind, self.subject, self.unit, self.kernel)

    @property
    def label(self) -> str:
        """What it is of: ``"float32 avx512 fma"``, ``"DRAM read"``, ``"DRAM torch copy"``."""
        names = {"latency": "latency", "capacity": "capacity"}
        torch = "torch" if self.what == "bandwidth" and self.kind == "library" else ""
        words = (self.subject, self.unit, torch, self.kernel, names.get(self.what, ""))
        return " ".join(each for each in words if each and each != "unspecified")

    @property
    def loss(self) -> float | None:
        """The part of the theoretical rate that the peak lacks, negative if above; None: no such.

        0.1 is a peak of 90 % of the theoretical rate.
        """
        return None if self.theoretical is None else 1 - self.peak / self.theoretical.per_s


def quantities_of(profile: HardwareProfile) -> tuple[Quantity, ...]:
    """Every number of a profile but its curves, in its order."""
    return tuple(_quantities(profile))


def _quantities(profile: HardwareProfile) -> Iterator[Quantity]:
    clock = profile.clock
    if clock is not None:
        yield Quantity(
            what="clock",
            subject="clock",
            threads=1 if profile.has_threads else None,
            measure="Hz",
            peak=clock.peak_hz,
            typical=clock.median_hz,
            provenance=clock.provenance,
        )
    for each in profile.compute:
        yield Quantity(
            what="compute",
            kind=each.kind,
            subject=each.dtype.name,
            unit=each.unit,
            kernel=each.kernel,
            threads=each.threads,
            measure="flop/s",
            peak=each.peak_flop_per_s,
            typical=each.sustained_flop_per_s,
            spread=each.spread,
            theoretical=each.theoretical,
            doubt=each.doubt,
            provenance=each.provenance,
        )
    for level in profile.memory:
        yield from _of_level(level)
    for overhead in profile.overheads:
        yield _time("overhead", overhead.name, "", overhead.threads, overhead.time)
    for link in profile.links:
        yield from _of_link(link)


def _of_level(level: MemoryLevel) -> Iterator[Quantity]:
    if level.capacity_byte is not None:
        yield Quantity(
            what="capacity",
            subject=level.name,
            threads=None,
            measure="byte",
            peak=level.capacity_byte,
            typical=level.capacity_byte,
            provenance=level.capacity_provenance,
        )
    if level.latency is not None:
        yield _time("latency", level.name, "", 1, level.latency)
    for each in level.bandwidth:
        yield _bandwidth(level.name, each)


def _bandwidth(level: str, each: Bandwidth) -> Quantity:
    return Quantity(
        what="bandwidth",
        kind=each.kind,
        subject=level,
        kernel=each.kernel,
        threads=each.threads,
        measure="byte/s",
        peak=each.peak_byte_per_s,
        typical=each.sustained_byte_per_s,
        spread=each.spread,
        theoretical=each.theoretical,
        write_allocate=each.write_allocate,
        doubt=each.doubt,
        provenance=each.provenance,
    )


def _of_link(link: Link) -> Iterator[Quantity]:
    way = f"{link.source} to {link.target}"
    yield Quantity(
        what="link",
        subject=way,
        kernel=link.kernel,
        threads=link.threads,
        measure="byte/s",
        peak=link.peak_byte_per_s,
        typical=link.sustained_byte_per_s,
        spread=link.spread,
        provenance=link.provenance,
    )
    if link.latency is not None:
        yield _time("latency", way, link.kernel, link.threads, link.latency)


def _time(
    what: Literal["latency", "overhead"], subject: str, kernel: str, threads: int, time: Duration
) -> Quantity:
    return Quantity(
        what=what,
        subject=subject,
        kernel=kernel,
        threads=threads,
        measure="s",
        peak=time.fast_s,
        typical=time.median_s,
        spread=time.spread,
        provenance=time.provenance,
    )
