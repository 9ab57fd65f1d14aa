"""SI numbers as text, text as SI numbers, and sums of numbers that may be unknown.

Numbers inside roofline are in SI base units without prefix (flop, byte, s, flop/s, byte/s). Rates
and traffic are shown with decimal prefixes (1 GB/s = 1e9 byte/s), capacities with binary ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from roofline.errors import InputError, argument

_DECIMAL = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
_N = TypeVar("_N", int, float)
_SHAPE = re.compile(r"[0-9]+(x[0-9]+)*")
_MOST_ELEMENTS = 2**60
"""Limit of the elements of a tensor: torch counts bytes in 64 bits, elements have up to 16."""

MISSING = "–"
"""Table cell of an unknown number; never 0."""


def sum_known(values: Iterable[_N | None]) -> _N | None:
    """Return the sum of `values`; None if one of them is unknown."""
    total: Any = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _digits(value: float, digits: int) -> str:
    """Return `value` with `digits` significant digits, without exponent."""
    if value == 0:
        return "0"
    value = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)) + 1e-12))
    return f"{value:.{decimals}f}"


def _scaled(value: float, digits: int) -> tuple[str, str]:
    for prefix, factor in _DECIMAL:
        # 999.6 with three digits prints as 1000: it belongs to the next prefix.
        if abs(value) >= factor * (1 - 0.5 * 10**-digits) or factor == 1.0:
            return _digits(value / factor, digits), prefix
    raise AssertionError("unreachable: the last factor is 1")


def format_si(value: float | None, unit: str, digits: int = 3) -> str:
    """Return `value` with a decimal prefix, such as ``"1.20 TFLOP/s"``."""
    if value is None:
        return MISSING
    number, prefix = _scaled(value, digits)
    if not prefix and float(value).is_integer():
        number = f"{value:.0f}"
    return f"{number} {prefix}{unit}".rstrip()


def format_ratio(ratio: float) -> str:
    """Return a ratio in three digits: ``"9.11"``, ``"13.9"``, ``"139"``."""
    if ratio < 9.995:
        return f"{ratio:.2f}"
    return f"{ratio:.1f}" if ratio < 99.95 else f"{ratio:.0f}"


def format_flop(flop: float | None) -> str:
    """Return a number of FLOP as text: ``"8.18 GFLOP"``."""
    return format_si(flop, "FLOP")


def format_flop_per_s(rate: float | None) -> str:
    """Return a rate as text: ``"265 GFLOP/s"``."""
    return format_si(rate, "FLOP/s")


def format_bytes(byte: float | None) -> str:
    """Return bytes with a decimal prefix: ``"428 MB"``."""
    return format_si(byte, "B")


def format_bytes_per_s(rate: float | None) -> str:
    """Return a bandwidth as text: ``"41.3 GB/s"``."""
    return format_si(rate, "B/s")


def format_capacity(byte: int | None) -> str:
    """Return a capacity with a binary prefix: ``"32 MiB"``."""
    if byte is None:
        return MISSING
    for unit, factor in _BINARY:
        if byte >= factor:
            return f"{byte / factor:.4g} {unit}"
    return f"{byte} B"


def format_memory(byte: int | None) -> str:
    """Return a memory capacity in the unit that it is round in: ``"80 GiB"``, ``"25.3 GB"``."""
    is_binary = byte is not None and byte % 2**28 == 0
    return format_capacity(byte) if is_binary else format_bytes(byte)


def format_intensity(flop_per_byte: float | None) -> str:
    """Return an arithmetic intensity in FLOP/B, without the unit: ``"12.3"``."""
    return MISSING if flop_per_byte is None else _digits(flop_per_byte, 3)


def format_s(seconds: float | None, digits: int = 3) -> str:
    """Return a time as text: ``"1.23 ms"``."""
    if seconds is None:
        return MISSING
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= factor * (1 - 0.5 * 10**-digits):
            return f"{_digits(seconds / factor, digits)} {unit}"
    return "0 s" if seconds == 0 else f"{_digits(seconds / 1e-9, digits)} ns"


def format_percent(fraction: float | None) -> str:
    """Return a fraction in percent; ``"100 %"`` and ``"0 %"`` only for exactly 1 and 0."""
    if fraction is None:
        return MISSING
    if fraction <= 0 or fraction >= 1:
        return f"{fraction:.0%}".replace("%", " %")
    percent = 100 * fraction
    if percent >= 99.95:
        return "> 99.9 %"
    return "< 0.1 %" if percent < 0.05 else f"{_digits(percent, 3 if percent >= 10 else 2)} %"


def format_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as on the command line: ``"1x3x224x224"``, or ``"scalar"``."""
    return "x".join(map(str, shape)) or "scalar"


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the shape written as ``1x3x224x224``."""
    shown = _shown(text)
    if not _SHAPE.fullmatch(text):
        raise InputError(f"shape '{shown}': must be sizes such as 1x3x224x224")
    sizes = text.split("x")
    # Python refuses numbers of thousands of digits.
    fits = max(map(len, sizes)) <= len(str(_MOST_ELEMENTS))
    shape = tuple(map(int, sizes)) if fits else ()
    if 0 in shape:
        raise InputError(f"shape '{shown}': every size must be at least 1")
    if not fits or math.prod(shape) >= _MOST_ELEMENTS:
        raise InputError(f"shape '{shown}': must have fewer than 2^60 elements")
    return shape


_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(\S+)")
_PREFIXES = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_BYTES = {
    f"{prefix}{binary}B": (1024 if binary else 1000) ** power
    for prefix, power in _PREFIXES.items()
    for binary in ("", "i")
}
_CAPACITIES = {f"{prefix}IB": 1024 ** _PREFIXES[prefix] for prefix in "KMGT"}
_DURATIONS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


def _amount(text: str, units: Mapping[str, float]) -> float | None:
    """Return a number followed by one of `units`, in their base unit; None: another form."""
    match = _AMOUNT.fullmatch(text.strip())
    factor = units.get(match[2]) if match else None
    return None if match is None or factor is None else float(match[1]) * factor


def parse_clock(text: str) -> float:
    """Return the clock written as ``3.0GHz`` or ``2600 MHz``, in Hz."""
    hz = _amount(text.upper(), {"GHZ": 1_000_000_000, "MHZ": 1_000_000})
    if hz is None:
        raise InputError(f"clock '{_shown(text)}': must be a frequency such as 3.0GHz or 2600MHz")
    if not 1e8 <= hz <= 1e10:
        raise InputError(f"clock '{_shown(text)}': must be from 100MHz to 10GHz")
    return hz


def parse_transfer_rate(text: str) -> float:
    """Return the transfer rate written as ``2933MT/s`` or ``6.4GT/s``, in transfers/s."""
    rate = _amount(text.upper(), {"GT/S": 1_000_000_000, "MT/S": 1_000_000})
    if rate is None:
        raise InputError(
            f"transfer rate '{_shown(text)}': must be a rate such as 2933MT/s (DDR4-2933)"
        )
    if not 1e8 <= rate <= 5e10:
        raise InputError(f"transfer rate '{_shown(text)}': must be from 100MT/s to 50GT/s")
    return rate


def parse_capacity(text: str) -> int:
    """Return the capacity written as ``32KiB``, ``1.25 MiB`` or ``2GiB``, in bytes."""
    byte = _amount(text.upper(), _CAPACITIES)
    if not byte or not byte.is_integer():
        raise InputError(
            f"capacity '{_shown(text)}': must be a size such as 32KiB, 1.25MiB or 2GiB"
            " (KB and MB of data sheets are KiB and MiB)"
        )
    return int(byte)


def parse_bytes(text: str, name: str = "size") -> int:
    """Return the size of argument `name`, written as ``1MB`` or ``1.5MiB``, in bytes."""
    byte = round(_amount(text, _BYTES) or 0)
    if not byte:
        raise InputError(f"{argument(name, _shown(text))}: must be a size such as 1MB or 1.5MiB")
    return byte


def parse_duration(text: str, name: str = "time") -> float:
    """Return the time of argument `name`, written as ``5ms`` or ``800us``, in seconds."""
    duration_s = _amount(text, _DURATIONS)
    if not duration_s:
        raise InputError(f"{argument(name, _shown(text))}: must be a time such as 5ms or 800us")
    return duration_s


def parse_bytes_per_s(text: str, name: str = "rate") -> float:
    """Return the rate of argument `name`, written as ``25GB/s`` or ``100Gbit/s``, in bytes/s."""
    in_bytes = {f"{unit}/s": factor for unit, factor in _BYTES.items()}
    in_bits = {f"{unit[:-1]}bit/s": factor / 8 for unit, factor in _BYTES.items()}
    rate = _amount(text, {**in_bytes, **in_bits})
    if not rate:
        raise InputError(
            f"{argument(name, _shown(text))}: must be a rate such as 25GB/s or 100Gbit/s"
        )
    return rate


def _shown(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
