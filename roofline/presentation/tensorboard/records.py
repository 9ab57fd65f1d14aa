"""The frames of an event file: a length, what is framed, and a checksum of each.

TensorFlow documentation, "TFRecord and tf.train.Example". The checksum is CRC-32C (Castagnoli, RFC
3720, appendix B.4), turned and shifted, so that what holds checksums can be framed too.
"""

from __future__ import annotations

import struct
from functools import cache

_REFLECTED = 0x82F63B78
"""The polynomial of CRC-32C, its bits in reverse."""

_MASK = 0xA282EAD8


@cache
def _table() -> tuple[int, ...]:
    return tuple(_entry(byte) for byte in range(256))


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_REFLECTED if byte & 1 else 0)
    return byte


def crc32c(data: bytes) -> int:
    """The CRC-32C of `data`."""
    table, left = _table(), 0xFFFFFFFF
    for byte in data:
        left = left >> 8 ^ table[(left ^ byte) & 0xFF]
    return left ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF)


def framed(data: bytes) -> bytes:
    """One record of a file."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)
