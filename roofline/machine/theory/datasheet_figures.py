"""Figures of data sheets as a person writes them: vector units and caches."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roofline.errors import InputError, nearest
from roofline.foundation.units import parse_capacity
from roofline.machine.theory.microarchitectures import Throughput

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
    """What ``avx512:2`` or ``avx512:2x256`` says: the unit, its pipes, and their width in bits.

    Several stand with commas between them. Without a width the pipes are as wide as the registers.

    Raises:
        InputError: not of that form, an unknown unit (the message names the nearest), pipes that no
            core has, a unit that is there twice, or units of x86 and of Arm.
    """
    found = tuple(_unit(each.strip()) for each in text.split(","))
    names = [each.unit for each in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"unit '{name}' is there twice; give the pipes of both together")
    arm = [name for name in names if name.startswith(_ARM)]
    x86 = [name for name in names if not name.startswith((*_ARM, "scalar"))]
    if arm and x86:
        raise InputError(f"unit '{x86[0]}' is of x86 and '{arm[0]}' of Arm; no CPU has both")
    return found


def _unit(text: str) -> Throughput:
    match = _UNIT.fullmatch(text)
    if not match:
        raise InputError(f"unit '{text}' is not of the form avx512:2 or avx512:2x256")
    name = match[1].lower()
    if name not in _UNITS:
        hint = nearest(name, _UNITS) or f"; known are {', '.join(_UNITS)}"
        raise InputError(f"unknown unit '{name}'{hint}")
    width, kernel, dtypes = _UNITS[name]
    if match[2] is None:
        raise InputError(f"unit '{text}' does not say how many pipes it has, as in {name}:2")
    pipes = int(match[2])
    if not 1 <= pipes <= _MOST_PIPES:
        raise InputError(f"unit '{text}' has {pipes} pipes; 1 to {_MOST_PIPES} can be")
    bits = int(match[3]) if match[3] else width
    if bits is None:
        raise InputError(f"unit '{text}' does not say how wide it is, as in {name}:{pipes}x256")
    if match[3] and (not width_is_possible(bits) or width in (0, _TILE_BIT)):
        raise InputError(f"unit '{text}' cannot have pipes of {bits} bit; it can as in avx2:2x128")
    return Throughput(kernel=kernel, unit=name, dtypes=frozenset(dtypes), pipes=pipes, bits=bits)


def width_is_possible(bits: int) -> bool:
    """Whether vector pipes of this width are built: powers of two from 64 to 2048 bits."""
    return 64 <= bits <= 2048 and bits & (bits - 1) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFigures:
    """A cache of the data sheet.

    ``private``: each core has one of ``capacity_bytes``. ``bytes_per_cycle`` is what each core
    moves to and from it each cycle; None: that is not known.
    """

    name: str
    capacity_bytes: int
    private: bool
    bytes_per_cycle: int | None


def parse_cache(text: str) -> CacheFigures:
    """What ``L1=32KiB/core``, ``L2=1MiB/core:64`` or ``L3=22MiB:16`` says.

    ``/core``: each core has its own. After the colon, bytes per cycle and core.

    Raises:
        InputError: not of that form.
    """
    match = _CACHE.fullmatch(text.strip())
    if not match or (match[4] and not int(match[4])):
        raise InputError(
            f"cache '{text}' is not of the form L1=32KiB/core, or L1=32KiB/core:64 with the bytes"
            " that a core moves each cycle"
        )
    return CacheFigures(
        name=match[1],
        capacity_bytes=parse_capacity(match[2]),
        private=bool(match[3]),
        bytes_per_cycle=int(match[4]) if match[4] else None,
    )
