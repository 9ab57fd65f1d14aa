"""Figures of a hardware profile in one form, with their sources, for lists and comparisons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from roofline.core.text import counted, printable
from roofline.core.units import (
    format_bytes_per_s,
    format_capacity,
    format_flop_per_s,
    format_intensity,
    format_s,
    format_si,
)
from roofline.machine.hardware import (
    Bandwidth,
    ComputeCeiling,
    Duration,
    HardwareProfile,
    Link,
    Provenance,
    TheoreticalRate,
)
from roofline.machine.roof import MachineRoof, ceiling_text, ridge_flop_per_byte

_ADDRESS = re.compile(r",? *https?://[^\s,;]+")


def age(day: str, today: date | None) -> str:
    """Return a date, with its age at `today`: ``"3 days ago (2026-03-04)"``."""
    try:
        then = date.fromisoformat(day[:10])
    except ValueError:
        return printable(day)
    days = (today - then).days if today else -1
    if days < 0:
        return f"on {then.isoformat()}"
    if days >= 60:
        return f"{days // 30} months ago ({then.isoformat()})"
    words = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
    return f"{words} ({then.isoformat()})"


def origin(profile: HardwareProfile, today: date | None) -> str:
    """Return the source of a profile's figures: ``"measured 3 days ago (2026-03-04)"``."""
    sources = {each.source for each in profile.provenances()}
    when = f" {age(profile.date, today)}" if profile.date else ""
    if not sources:
        return "no ceilings"
    if "measured" not in sources:
        return f"data sheet, not measured: {_references(profile)}"
    if sources != {"measured"}:
        return f"partly measured, partly from data sheets{when}"
    if profile.host is not None:
        return f"measured{when}"
    return f"measured elsewhere{when}: {_references(profile)}"


def doubts_text(profile: HardwareProfile) -> str:
    """Return the meaning of marks in plots, ``""`` if all figures are reliable."""
    figures = (*profile.compute, *(each for level in profile.memory for each in level.bandwidth))
    return "; ?: unreliable" if any(each.doubt for each in figures) else ""


def _references(profile: HardwareProfile) -> str:
    """Return the documents without addresses, which `roofline hardware show` lists."""
    names = (_ADDRESS.sub("", each.reference) for each in profile.provenances())
    return "; ".join(dict.fromkeys(map(printable, names)))


What = Literal[
    "compute", "bandwidth", "latency", "capacity", "clock", "overhead", "link", "fastest", "ridge"
]
Unit = Literal["flop/s", "byte/s", "s", "byte", "Hz", "flop/byte"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One figure of a machine, in ``measure``.

    ``subject`` is a data type, memory level, call or link; ``unit`` the vector unit of a compute
    ceiling, else ``""``. ``peak`` is the best value (the smallest for times), ``sustained`` the
    median. ``threads`` is None for capacities.
    """

    what: What
    kind: Literal["hardware", "library"] = "hardware"
    subject: str
    unit: str = ""
    kernel: str = ""
    threads: int | None
    measure: Unit
    peak: float
    sustained: float
    spread: float | None = None
    theoretical: TheoreticalRate | None = None
    write_allocate: str = ""
    doubt: str = ""
    provenance: Provenance | None

    @property
    def identity(self) -> tuple[What, str, str, str, str]:
        """Key of figures that are the same but for their threads."""
        # The fastest kernel may differ between machines.
        kernel = "" if self.what == "fastest" else self.kernel
        return (self.what, self.kind, self.subject, self.unit, kernel)

    @property
    def label(self) -> str:
        """Name in tables: ``"float32 AVX-512 FMA"``, ``"DRAM read"``, ``"DRAM torch copy"``."""
        torch = "torch" if self.what == "bandwidth" and self.kind == "library" else ""
        what = self.what if self.what in ("latency", "capacity") else ""
        words = (self.subject, self.unit, torch, self.kernel, what)
        return ceiling_text(" ".join(each for each in words if each and each != "unspecified"))

    @property
    def loss(self) -> float | None:
        """Fraction of the theoretical rate that the peak lacks: 0.1 at 90 %."""
        return None if self.theoretical is None else 1 - self.peak / self.theoretical.per_s

    @property
    def theoretical_per_s(self) -> float | None:
        return self.theoretical.per_s if self.theoretical else None

    def text(self, value: float | None) -> str:
        """Return a value with its unit: ``"265 GFLOP/s"``, ``"1 MiB"``, ``"118 ns"``."""
        return _FORMATS[self.measure](value)


_FORMATS: dict[Unit, Callable[[float | None], str]] = {
    "flop/s": format_flop_per_s,
    "byte/s": format_bytes_per_s,
    "byte": lambda value: format_capacity(None if value is None else round(value)),
    "s": format_s,
    "Hz": lambda value: format_si(value, "Hz"),
    "flop/byte": format_intensity,
}


def best_figures(profile: HardwareProfile) -> tuple[Quantity, ...]:
    """Return the highest GEMM ceiling of each data type, ridge points, and memory bandwidth."""
    roof = MachineRoof(profile, profile.threads)
    memory, found = roof.memory, list[Quantity]()

    def add(what: What, subject: str, by: str, measure: Unit, value: float) -> None:
        more: dict[str, Any] = {"threads": profile.threads, "peak": value, "sustained": value}
        found.append(
            Quantity(
                what=what, subject=subject, kernel=by, measure=measure, provenance=None, **more
            )
        )

    for unit in roof.mac_ceilings.values():
        name = unit.dtype.name
        add("fastest", name, unit.label.removeprefix(f"{name} "), "flop/s", unit.flop_per_s)
        if memory:
            add("ridge", name, "", "flop/byte", ridge_flop_per_byte(unit, memory))
    if memory:
        add("fastest", "memory", memory.label, "byte/s", memory.bytes_per_s)
    if read := read_bytes_per_s(profile):
        add("fastest", "memory read", "", "byte/s", read)
    return tuple(found)


def read_bytes_per_s(profile: HardwareProfile) -> float | None:
    """Return the peak read bandwidth of main memory on all threads; None: unknown."""
    rates = {
        each.kernel: each.peak_bytes_per_s
        for level in profile.memory[-1:]
        for each in level.bandwidth
        if each.kind == "hardware" and each.threads == profile.threads
    }
    return rates.get("read")


def quantities_of(profile: HardwareProfile) -> tuple[Quantity, ...]:
    """Return all figures of a profile but its curves, in order."""
    return tuple(_quantities(profile))


def _quantities(profile: HardwareProfile) -> Iterator[Quantity]:
    if clock := profile.clock:
        yield Quantity(
            what="clock",
            subject="clock",
            threads=1 if profile.has_threads else None,
            measure="Hz",
            peak=clock.peak_hz,
            sustained=clock.median_hz,
            provenance=clock.provenance,
        )
    for each in profile.compute:
        yield _rate("compute", each.dtype.name, "flop/s", each, kind=each.kind, unit=each.unit)
    for level in profile.memory:
        if level.capacity_bytes is not None:
            yield Quantity(
                what="capacity",
                subject=level.name,
                threads=None,
                measure="byte",
                peak=level.capacity_bytes,
                sustained=level.capacity_bytes,
                provenance=level.capacity_provenance,
            )
        if level.latency is not None:
            yield _time("latency", level.name, "", 1, level.latency)
        for each in level.bandwidth:
            stores = {"kind": each.kind, "write_allocate": each.write_allocate}
            yield _rate("bandwidth", level.name, "byte/s", each, **stores)
    for overhead in profile.overheads:
        yield _time("overhead", overhead.name, "", overhead.threads, overhead.time)
    for link in profile.links:
        way = f"{link.source} to {link.target}"
        yield _rate("link", way, "byte/s", link)
        if link.latency is not None:
            yield _time("latency", way, link.kernel, link.threads, link.latency)


def _rate(
    what: What, subject: str, measure: Unit, each: ComputeCeiling | Bandwidth | Link, **more: Any
) -> Quantity:
    unit = measure.replace("byte/", "bytes/").replace("/", "_per_")
    if not isinstance(each, Link):
        more |= {"theoretical": each.theoretical, "doubt": each.doubt}
    return Quantity(
        what=what,
        subject=subject,
        kernel=each.kernel,
        threads=each.threads,
        measure=measure,
        peak=getattr(each, f"peak_{unit}"),
        sustained=getattr(each, f"sustained_{unit}"),
        spread=each.spread,
        provenance=each.provenance,
        **more,
    )


def _time(what: What, subject: str, kernel: str, threads: int, time: Duration) -> Quantity:
    return Quantity(
        what=what,
        subject=subject,
        kernel=kernel,
        threads=threads,
        measure="s",
        peak=time.fast_s,
        sustained=time.median_s,
        spread=time.spread,
        provenance=time.provenance,
    )


Line = dict[int, Quantity]
"""Figures that differ only in their number of threads, by that number."""


def group_by_threads(quantities: Iterable[Quantity]) -> list[Line]:
    """Return figures grouped by everything but threads, in the order of the first."""
    lines: dict[tuple[str, ...], Line] = {}
    for each in quantities:
        lines.setdefault(each.identity, {})[each.threads or 1] = each
    return list(lines.values())


def first_of(line: Line) -> Quantity:
    """Return any figure of a line, for the shared fields."""
    return next(iter(line.values()))


def figure_names(quantities: Iterable[Quantity], *, threaded: bool) -> list[str]:
    """Return names of figures, with threads if `threaded`."""
    by_label: dict[str, list[int]] = {}
    for each in quantities:
        by_label.setdefault(each.label, []).extend([each.threads] if each.threads else [])
    if not threaded:
        return list(by_label)
    on = {
        label: " and ".join([*map(str, threads[:-1]), counted(threads[-1], "thread")])
        for label, threads in by_label.items()
        if threads
    }
    return [f"{label} on {on[label]}" if label in on else label for label in by_label]
