"""Profile of a CPU from its data sheet, every figure with its arithmetic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from roofline.core.dtypes import dtype
from roofline.core.text import counted
from roofline.core.units import format_capacity, format_si, parse_capacity
from roofline.errors import InputError, did_you_mean
from roofline.machine.hardware import (
    Bandwidth,
    Clock,
    ComputeCeiling,
    HardwareProfile,
    MemoryLevel,
    Provenance,
    describe_level,
)
from roofline.machine.roof import ceiling_text
from roofline.machine.theory.microarchitectures import Core, Throughput

_TILE_BIT = 8192
_FLOATS = ("float32", "float64")
# Per unit: the width of a pipe in bits (None: machines differ), what it runs, in which data types.
_UNITS: dict[str, tuple[int | None, str, tuple[str, ...]]] = {
    "scalar": (0, "fma", _FLOATS),
    "sse": (128, "fma", _FLOATS),
    "avx2": (256, "fma", _FLOATS),
    "avx512": (512, "fma", _FLOATS),
    "avx512-fp16": (512, "fma", ("float16",)),
    "avx512-bf16": (512, "dot", ("bfloat16",)),
    "avx-vnni": (256, "dot", ("int8",)),
    "avx512-vnni": (512, "dot", ("int8",)),
    "amx": (_TILE_BIT, "tile-dot", ("bfloat16", "int8")),
    "neon": (128, "fma", _FLOATS),
    "neon-dot": (128, "dot", ("int8",)),
    "neon-bf16": (128, "dot", ("bfloat16",)),
    "neon-i8mm": (128, "mmla", ("int8",)),
    "sve": (None, "fma", _FLOATS),
}

_UNIT = re.compile(r"([a-z0-9-]+)(?::([0-9]{1,3})(?:x([0-9]{1,5}))?)?", re.IGNORECASE)
_CACHE = re.compile(r"([A-Za-z][A-Za-z0-9]{0,9})=([^/:]+)(/core)?(?::([0-9]{1,4}))?")

_MOST_PIPES = 16
_ARM = ("neon", "sve")


def parse_units(text: str) -> tuple[Throughput, ...]:
    """Return the vector units in ``avx512:2`` or ``avx512:2x256``: unit, pipes, pipe width in bits.

    Units are separated by commas. The default width is that of the registers.
    """
    found = tuple(_unit(each.strip()) for each in text.split(","))
    names = [each.unit for each in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"duplicate unit '{name}'; give the sum of its pipes")
    arm = [name for name in names if name.startswith(_ARM)]
    x86 = [name for name in names if not name.startswith((*_ARM, "scalar"))]
    if arm and x86:
        raise InputError(f"units '{x86[0]}' (x86) and '{arm[0]}' (Arm) cannot be combined")
    return found


def _unit(text: str) -> Throughput:
    match = _UNIT.fullmatch(text)
    if not match:
        raise InputError(f"invalid unit '{text}'; use the form avx512:2 or avx512:2x256")
    name = match[1].lower()
    if name not in _UNITS:
        hint = did_you_mean(name, _UNITS) or f"; known are {', '.join(_UNITS)}"
        raise InputError(f"unknown unit '{name}'{hint}")
    width, kernel, dtypes = _UNITS[name]
    if match[2] is None:
        raise InputError(f"unit '{text}' lacks the number of pipes; use the form {name}:2")
    pipes = int(match[2])
    if not 1 <= pipes <= _MOST_PIPES:
        raise InputError(f"unit '{text}' has {pipes} pipes; use 1 to {_MOST_PIPES}")
    bits = int(match[3]) if match[3] else width
    if bits is None:
        raise InputError(f"unit '{text}' lacks the width in bits; use the form {name}:{pipes}x256")
    # Widths of vector pipes are powers of two.
    possible = 64 <= bits <= 2048 and bits & (bits - 1) == 0 and width not in (0, _TILE_BIT)
    if match[3] and not possible:
        raise InputError(
            f"unit '{text}' has an invalid width of {bits} bit; use a form such as avx2:2x128"
        )
    return Throughput(kernel=kernel, unit=name, dtypes=frozenset(dtypes), pipes=pipes, bits=bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFigures:
    """A cache with the bytes that a core moves per cycle (None: unknown)."""

    name: str
    capacity_bytes: int
    private: bool
    bytes_per_cycle: int | None


def parse_cache(text: str) -> CacheFigures:
    """Return the cache in ``L1=32KiB/core``, ``L2=1MiB/core:64`` or ``L3=22MiB:16``.

    ``/core``: private to each core. The number after the colon is bytes per cycle and core.
    """
    match = _CACHE.fullmatch(text.strip())
    if not match or (match[4] and not int(match[4])):
        raise InputError(
            f"invalid cache '{text}'; use the form L1=32KiB/core, or L1=32KiB/core:64 with bytes"
            " per cycle and core"
        )
    return CacheFigures(
        name=match[1],
        capacity_bytes=parse_capacity(match[2]),
        private=bool(match[3]),
        bytes_per_cycle=int(match[4]) if match[4] else None,
    )


NO_DOCUMENT = "options of `roofline hardware fit`, no document"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSheet:
    """Data-sheet figures of a CPU: cores, clock, vector units, memory channels.

    All ceilings are for ``clock_hz``. Each core has ``units``, or those of the microarchitecture
    ``core``. Each of the ``channels`` makes ``transfer_per_s`` transfers of ``bus_bytes`` bytes per
    second.
    """

    name: str
    cores: int
    clock_hz: float
    units: tuple[Throughput, ...] = ()
    core: Core | None = None
    channels: int
    transfer_per_s: float
    bus_bytes: int = 8
    caches: tuple[CacheFigures, ...] = ()
    reference: str = ""
    date: str = ""


def datasheet_profile(sheet: DataSheet) -> HardwareProfile:
    """Return the profile of a data sheet, with ceilings for one and all cores."""
    channels = counted(sheet.channels, "channel")
    rate = sheet.channels * sheet.transfer_per_s * sheet.bus_bytes
    how = f"{channels} x {sheet.transfer_per_s / 1e6:.10g} MT/s x {sheet.bus_bytes} byte"
    core = f"{sheet.core.name}, " if sheet.core else ""
    caches = "".join(
        f", {each.name} {format_capacity(each.capacity_bytes)}{' per core' * each.private}"
        for each in sheet.caches
    )
    what = f"{core}{counted(sheet.cores, 'core')} at {_ghz(sheet)}{caches}; from its data sheet"
    try:
        return HardwareProfile(
            name=sheet.name,
            device="cpu",
            threads=sheet.cores,
            description=what,
            clock=Clock(
                peak_hz=sheet.clock_hz,
                median_hz=sheet.clock_hz,
                provenance=_provenance(sheet, f"{_ghz(sheet)} on all cores"),
            ),
            compute=tuple(_ceilings(sheet)),
            memory=(
                *_cache_levels(sheet),
                MemoryLevel(
                    name="DRAM",
                    scope="shared",
                    bandwidth=(_bandwidth(sheet, sheet.cores, rate, how),),
                ),
            ),
        )
    except ValueError as error:
        raise InputError(f"inconsistent figures: {error}") from None


def left_out(sheet: DataSheet) -> str:
    """Return the reason why caches are no levels of the profile; ``""`` otherwise.

    Traffic of a cache without a bandwidth would be charged to the next level, and the times would
    not be minimum times.
    """
    unknown = [each.name for each in sheet.caches if each.bytes_per_cycle is None]
    if not unknown:
        return ""
    return (
        f"caches omitted: unknown bandwidth of {' and '.join(unknown)}; add bytes per cycle and"
        f" core, as in --cache {unknown[0]}=SIZE:32"
    )


def _ghz(sheet: DataSheet) -> str:
    return f"{sheet.clock_hz / 1e9:.10g} GHz"


def _provenance(sheet: DataSheet, note: str, *, of_core: bool = False) -> Provenance:
    reference = sheet.reference or NO_DOCUMENT
    if of_core and sheet.core:
        reference = f"{reference}; {sheet.core.name}: {sheet.core.reference}"
    return Provenance(source="datasheet", reference=reference, date=sheet.date, note=note)


def _threads(sheet: DataSheet) -> list[int]:
    return sorted({1, sheet.cores})


def _ceilings(sheet: DataSheet) -> Iterable[ComputeCeiling]:
    throughputs = sheet.core.throughputs if sheet.core else sheet.units
    for each in throughputs:
        for element in sorted(map(dtype, each.dtypes), key=lambda one: (-one.bits, one.name)):
            for threads in _threads(sheet):
                rate = threads * sheet.clock_hz * each.flop_per_cycle(element)
                note = f"{counted(threads, 'core')} x {_ghz(sheet)} x {each.arithmetic(element)}"
                yield ComputeCeiling(
                    kind="hardware",
                    kernel=each.kernel,
                    dtype=element,
                    unit=each.unit,
                    threads=threads,
                    peak_flop_per_s=rate,
                    sustained_flop_per_s=rate,
                    provenance=_provenance(sheet, note, of_core=True),
                )


def _cache_levels(sheet: DataSheet) -> Iterable[MemoryLevel]:
    if left_out(sheet):
        return
    for cache in sorted(sheet.caches, key=lambda each: each.name):
        yield MemoryLevel(
            name=cache.name,
            capacity_bytes=cache.capacity_bytes,
            scope="private" if cache.private else "shared",
            capacity_provenance=_provenance(sheet, ""),
            bandwidth=tuple(
                _bandwidth(
                    sheet,
                    threads,
                    threads * sheet.clock_hz * (cache.bytes_per_cycle or 0),
                    f"{counted(threads, 'core')} x {_ghz(sheet)} x {cache.bytes_per_cycle} byte",
                )
                for threads in _threads(sheet)
            ),
        )


def _bandwidth(sheet: DataSheet, threads: int, bytes_per_s: float, note: str) -> Bandwidth:
    # Data sheets give the bus rate and no kernel.
    return Bandwidth(
        kernel="unspecified",
        threads=threads,
        peak_bytes_per_s=bytes_per_s,
        sustained_bytes_per_s=bytes_per_s,
        provenance=_provenance(sheet, note),
    )


def arithmetic_lines(profile: HardwareProfile) -> list[str]:
    """Return each figure of a data-sheet profile with its arithmetic and value per core."""
    figures: list[tuple[str, ComputeCeiling | Bandwidth, float, str]] = [
        (ceiling_text(each.label), each, each.peak_flop_per_s, "FLOP/s") for each in profile.compute
    ]
    figures += [
        (describe_level(level), each, each.peak_bytes_per_s, "B/s")
        for level in profile.memory
        for each in level.bandwidth
    ]
    one = {what: rate for what, each, rate, _ in figures if each.threads < profile.threads}
    return [
        f"{what}: {each.provenance.note} = {format_si(rate, unit)}"
        + (f" (1 core: {format_si(one[what], unit)})" if what in one else "")
        for what, each, rate, unit in figures
        if each.threads == profile.threads
    ]
