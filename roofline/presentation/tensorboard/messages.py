"""Protocol buffers on the wire: fields by their number, each put down as its type asks.

Encoding: Protocol Buffers documentation, "Encoding" (varints, fixed sizes, length-delimited).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first; negative ones as 64 bits."""
    left = value & (2**64 - 1)
    parts = bytearray()
    while left > 0x7F:
        parts.append(left & 0x7F | 0x80)
        left >>= 7
    parts.append(left)
    return bytes(parts)


def whole(number: int, value: int) -> bytes:
    """A field of an integer, a truth or an enumeration."""
    return varint(number << 3 | _VARINT) + varint(value)


def double(number: int, value: float) -> bytes:
    """A field of 64 bits of floating point."""
    return varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    """A field of 32 bits of floating point."""
    return varint(number << 3 | _FIXED32) + struct.pack("<f", value)


def message(number: int, value: bytes) -> bytes:
    """A field of bytes, or of a message that is put down already."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def text(number: int, value: str) -> bytes:
    """A field of a string; what is not Unicode in it is spelled out."""
    return message(number, value.encode("utf-8", "backslashreplace"))


def joined(fields: Iterable[bytes]) -> bytes:
    """A message of its fields."""
    return b"".join(fields)
