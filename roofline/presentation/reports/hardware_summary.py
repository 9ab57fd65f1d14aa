"""A machine in a few lines: what it computes, what memory gives, what torch makes of it."""

from __future__ import annotations

from roofline.foundation.dtypes import DType, dtype
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_byte_per_s,
    format_flop_per_s,
    format_intensity,
    format_percent,
)
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.placement import ComputeRoof, LevelRoof, Roof, ridge_flop_per_byte

_READ = "read"

Line = tuple[str, str]


def read_byte_per_s(profile: HardwareProfile) -> float | None:
    """Return the peak read bandwidth of the farthest level on all threads; None: not known."""
    rates = {
        each.kernel: each.peak_byte_per_s
        for level in profile.memory[-1:]
        for each in level.bandwidth
        if each.kind == "hardware" and each.threads == profile.threads
    }
    return rates.get(_READ)


def memory_rate(memory: LevelRoof | None) -> str:
    """Return a level's fastest kernel and its rate: ``"DRAM update 65.0 GB/s"``."""
    if memory is None:
        return MISSING
    return f"{printable(memory.label)} {format_byte_per_s(memory.byte_per_s)}"


def summary(profile: HardwareProfile) -> tuple[Line, ...]:
    """The first lines of the report: one a subject that is known."""
    roof = Roof(profile, profile.threads)
    memory = roof.levels[-1] if roof.levels else None
    lines: list[Line] = []
    best = sorted(roof.of_products.values(), key=lambda each: -each.flop_per_s)
    if best:
        lines.append(("Computes", ", ".join(map(_rate, best))))
    library = _library(profile, roof)
    if library:
        lines.append(("torch", "; ".join(library)))
    if memory is not None:
        read = read_byte_per_s(profile) if memory.kernel != _READ else None
        beside = f", {_READ} {format_byte_per_s(read)}" if read is not None else ""
        lines.append(("Memory", memory_rate(memory) + beside))
    unit = roof.of_products.get(dtype("float32"))
    if unit is not None and memory is not None:
        ridge = format_intensity(ridge_flop_per_byte(unit, memory))
        name = printable(memory.level.name)
        lines.append(
            ("Ridge", f"float32 work below {ridge} FLOP/byte of {name} is bound by memory")
        )
    doubtful = sum(bool(each.doubt) for each in profile.compute) + sum(
        bool(each.doubt) for level in profile.memory for each in level.bandwidth
    )
    if doubtful:
        figures = len(profile.compute) + sum(len(level.bandwidth) for level in profile.memory)
        lines.append(("Doubt", f"about {doubtful} of {figures} figures, marked ? below"))
    if lines:
        lines.insert(0, ("With", f"{describe_threads(profile, profile.threads)}, at the peak"))
    return tuple(lines)


def _rate(unit: ComputeRoof) -> str:
    rate = format_flop_per_s(unit.flop_per_s)
    return f"{unit.dtype} {rate.replace('FLOP', 'OP') if _is_whole(unit.dtype) else rate}"


def _is_whole(of: DType) -> bool:
    return of.kind in ("int", "uint")


def _library(profile: HardwareProfile, roof: Roof) -> list[str]:
    """By kernel what part of the float32 ceiling torch reaches, the most first."""
    unit = roof.of_products.get(dtype("float32"))
    if unit is None:
        return []
    found = {
        each.kernel: each.peak_flop_per_s / unit.flop_per_s
        for each in profile.compute
        if each.kind == "library"
        and each.dtype.name == "float32"
        and each.threads == profile.threads
    }
    return [
        f"{format_percent(share)} of float32 in {kernel}"
        for kernel, share in sorted(found.items(), key=lambda each: -each[1])
    ]
