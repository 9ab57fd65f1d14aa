"""The one place that turns SI numbers into text for people, and shapes in text into numbers.

Inside roofline every number is in SI base units without prefix (flop, byte, s, flop/s, byte/s).
Rates and traffic take decimal prefixes (1 GB/s = 1e9 byte/s), capacities binary ones.
"""

from __future__ import annotations

import math
import re

from roofline.errors import InputError

_DECIMAL = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
_SHAPE = re.compile(r"[0-9]+(x[0-9]+)*")
_MOST_ELEMENTS = 2**60
"""torch counts the bytes of a tensor in 64 bits, and the widest elements have 16 bytes."""

MISSING = "–"
"""What tables show where a number is unknown; never 0."""


def _digits(value: float, digits: int) -> str:
    """`value` with `digits` significant digits, without exponent."""
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
    """`value` with a decimal prefix: ``format_si(1.2e12, "FLOP/s")`` is ``"1.20 TFLOP/s"``."""
    if value is None:
        return MISSING
    number, prefix = _scaled(value, digits)
    if not prefix and float(value).is_integer():
        number = f"{value:.0f}"
    return f"{number} {prefix}{unit}".rstrip()


def format_ratio(ratio: float) -> str:
    """A ratio in three digits: ``"9.11"``, ``"13.9"``, ``"139"``."""
    if ratio < 9.995:
        return f"{ratio:.2f}"
    return f"{ratio:.1f}" if ratio < 99.95 else f"{ratio:.0f}"


def format_flop(flop: float | None) -> str:
    """A count of floating-point operations: ``"8.18 GFLOP"``."""
    return format_si(flop, "FLOP")


def format_flop_per_s(rate: float | None) -> str:
    """A rate of floating-point operations: ``"265 GFLOP/s"``."""
    return format_si(rate, "FLOP/s")


def format_bytes(byte: float | None) -> str:
    """Traffic or size in bytes with decimal prefix: ``"428 MB"``."""
    return format_si(byte, "B")


def format_bytes_per_s(rate: float | None) -> str:
    """A bandwidth: ``"41.3 GB/s"``."""
    return format_si(rate, "B/s")


def format_capacity(byte: int | None) -> str:
    """A capacity with binary prefix: ``"32 MiB"``."""
    if byte is None:
        return MISSING
    for unit, factor in _BINARY:
        if byte >= factor:
            return f"{byte / factor:.4g} {unit}"
    return f"{byte} B"


def format_intensity(flop_per_byte: float | None) -> str:
    """An arithmetic intensity in FLOP per byte, without the unit: ``"12.3"``."""
    return MISSING if flop_per_byte is None else _digits(flop_per_byte, 3)


def format_s(seconds: float | None, digits: int = 3) -> str:
    """A time: ``"1.23 ms"``."""
    if seconds is None:
        return MISSING
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= factor * (1 - 0.5 * 10**-digits):
            return f"{_digits(seconds / factor, digits)} {unit}"
    return "0 s" if seconds == 0 else f"{_digits(seconds / 1e-9, digits)} ns"


def format_percent(fraction: float | None) -> str:
    """A fraction as percent; 100 % only if it is all, 0 % only if it is nothing."""
    if fraction is None:
        return MISSING
    if fraction <= 0 or fraction >= 1:
        return f"{fraction:.0%}".replace("%", " %")
    percent = 100 * fraction
    if percent >= 99.95:
        return "> 99.9 %"
    return "< 0.1 %" if percent < 0.05 else f"{_digits(percent, 3 if percent >= 10 else 2)} %"


def format_shape(shape: tuple[int, ...]) -> str:
    """A shape as the command line takes it: ``"1x3x224x224"``; a scalar is ``"scalar"``."""
    return "x".join(map(str, shape)) or "scalar"


def parse_shape(text: str) -> tuple[int, ...]:
    """The shape written as ``1x3x224x224``."""
    shown = _shown(text)
    if not _SHAPE.fullmatch(text):
        raise InputError(f"shape '{shown}' is not of the form 1x3x224x224")
    sizes = text.split("x")
    # Python reads no number of thousands of digits; those of this many are too large anyway.
    fits = max(map(len, sizes)) <= len(str(_MOST_ELEMENTS))
    shape = tuple(map(int, sizes)) if fits else ()
    if 0 in shape:
        raise InputError(f"shape '{shown}' has a size of 0; every size must be at least 1")
    if not fits or math.prod(shape) >= _MOST_ELEMENTS:
        raise InputError(f"shape '{shown}' is too large: a tensor has less than 2^60 elements")
    return shape


_CLOCK = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([GM])Hz", re.IGNORECASE)
_TRANSFERS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([GM])T/s", re.IGNORECASE)
_CAPACITY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([KMGT])iB", re.IGNORECASE)
_CAPACITIES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_GIGA_MEGA = {"G": 1_000_000_000, "M": 1_000_000}


def parse_clock(text: str) -> float:
    """The clock in Hz written as ``3.0GHz`` or ``2600 MHz``."""
    hz = _scaled_number(text, _CLOCK)
    if hz is None:
        raise InputError(f"clock '{_shown(text)}' is not of the form 3.0GHz or 2600MHz")
    if not 1e8 <= hz <= 1e10:
        raise InputError(f"clock '{_shown(text)}' is none that a CPU has; 100MHz to 10GHz are")
    return hz


def parse_transfer_rate(text: str) -> float:
    """The transfers per second of a memory channel written as ``2933MT/s`` or ``6.4GT/s``."""
    rate = _scaled_number(text, _TRANSFERS)
    if rate is None:
        raise InputError(
            f"transfer rate '{_shown(text)}' is not of the form 2933MT/s or 6.4GT/s;"
            " DDR4-2933 makes 2933MT/s"
        )
    if not 1e8 <= rate <= 5e10:
        raise InputError(
            f"transfer rate '{_shown(text)}' is none that a memory has; 100MT/s to 50GT/s are"
        )
    return rate


def parse_capacity(text: str) -> int:
    """The bytes of a capacity written as ``32KiB``, ``1.25 MiB`` or ``2GiB``."""
    match = _CAPACITY.fullmatch(text.strip())
    byte = float(match[1]) * _CAPACITIES[match[2].upper()] if match else 0.0
    if not byte or not byte.is_integer():
        raise InputError(
            f"capacity '{_shown(text)}' is not of the form 32KiB, 1.25MiB or 2GiB;"
            " the KB and MB of data sheets are KiB and MiB"
        )
    return int(byte)


_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([kKMGT]?)(i?)B")
_SIZES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s|ms|us|µs|μs|ns)")
_DURATIONS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


def parse_bytes(text: str) -> int:
    """The bytes of a size written as ``1MB`` (a million), ``1.5MiB``, ``800kB`` or ``4096B``."""
    match = _SIZE.fullmatch(text.strip())
    byte = 0
    if match:
        base = 1024 if match[3] else 1000
        byte = round(float(match[1]) * base ** _SIZES[match[2].upper()])
    if not byte:
        raise InputError(f"size '{_shown(text)}' is not of the form 1MB, 1.5MiB or 800kB")
    return byte


def parse_duration(text: str) -> float:
    """The seconds of a time written as ``5ms``, ``800us``, ``1.5 s`` or ``90ns``."""
    match = _DURATION.fullmatch(text.strip())
    duration_s = float(match[1]) * _DURATIONS[match[2]] if match else 0.0
    if not duration_s:
        raise InputError(f"time '{_shown(text)}' is not of the form 5ms, 800us or 1.5s")
    return duration_s


_BYTE_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([kKMGT]?)(i?)(B|bit)/s")


def parse_bytes_per_s(text: str) -> float:
    """The bytes per second of a rate written as ``25GB/s``, ``1.5 GiB/s`` or ``100Gbit/s``."""
    match = _BYTE_RATE.fullmatch(text.strip())
    rate = 0.0
    if match:
        base = 1024 if match[3] else 1000
        rate = float(match[1]) * base ** _SIZES[match[2].upper()] / (8 if match[4] == "bit" else 1)
    if not rate:
        raise InputError(
            f"rate '{_shown(text)}' is not of the form 25GB/s, 1.5GiB/s or 100Gbit/s (B: bytes,"
            " bit: bits)"
        )
    return rate


def _scaled_number(text: str, form: re.Pattern[str]) -> float | None:
    match = form.fullmatch(text.strip())
    return float(match[1]) * _GIGA_MEGA[match[2].upper()] if match else None


def _shown(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
