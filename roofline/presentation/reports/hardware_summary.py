"""A machine in a few lines: what it computes, what memory gives, what torch makes of it."""

from __future__ import annotations

from roofline.foundation.dtypes import DType, dtype
from roofline.foundation.units import (
    format_byte_per_s,
    format_flop_per_s,
    format_intensity,
    format_percent,
)
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.placement import ComputeRoof, Roof

_READ = "read"

Line = tuple[str, str]


def memory_byte_per_s(profile: HardwareProfile) -> float | None:
    """Reading from the farthest level with all threads, else its fastest kernel; None: unknown.

    What documents give for a memory, and what weights take; an update moves twice as many bytes.
    """
    if not profile.memory:
        return None
    rates = {
        each.kernel: each.peak_byte_per_s
        for each in profile.memory[-1].bandwidth
        if each.kind == "hardware" and each.threads == profile.threads
    }
    return rates.get(_READ, max(rates.values(), default=None))


def summary(profile: HardwareProfile) -> tuple[Line, ...]:
    """The first lines of the report: one a subject that is known."""
    roof = Roof(profile, profile.threads)
    memory = memory_byte_per_s(profile)
    lines: list[Line] = []
    best = sorted(roof.of_products.values(), key=lambda each: -each.flop_per_s)
    if best:
        lines.append(("Computes", ", ".join(map(_rate, best))))
    library = _library(profile, roof)
    if library:
        lines.append(("torch", "; ".join(library)))
    if memory is not None:
        level = profile.memory[-1]
        reads = any(each.kernel == _READ for each in level.bandwidth)
        name = f"{level.name} {_READ}" if reads else level.name
        lines.append(("Memory", f"{name} {format_byte_per_s(memory)}"))
    unit = roof.of_products.get(dtype("float32"))
    if unit is not None and memory is not None:
        ridge = format_intensity(unit.flop_per_s / memory)
        lines.append(
            (
                "Ridge",
                f"float32 work below {ridge} FLOP/byte of {profile.memory[-1].name} is bound by"
                " memory",
            )
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
