"""Codes of few bits packed into bytes, without a bit between them.

The bits of all codes stand one behind another, each code's lowest bit first; bit *n* of that stream
is bit ``n % 8`` of byte ``n // 8``, the lowest being bit 0. What is left of the last byte is zero.
The 2-bit codes 1, 2, 3, 0, 3 are the bytes 0x39 (``00 11 10 01``) and 0x03 (``00 00 00 11``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from roofline.errors import InputError
from roofline.quantization.policy import MOST_BITS

_GROUP = 8
"""So many codes end at the end of a byte, whatever their bits."""


def packed_byte(count: int, bits: int) -> int:
    """The bytes that so many codes take, packed: ``ceil(count * bits / 8)``."""
    return (count * bits + 7) // 8


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes as bytes: one dimension of uint8, exactly ``ceil(n * bits / 8)`` of them.

    Args:
        codes: whole numbers from 0 to ``2 ** bits - 1``, of any integer type and shape.
        bits: of each code, 1 to 16.

    Raises:
        InputError: other bits, or codes that are no such numbers.
    """
    _check_bits(bits)
    if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
        raise InputError(f"pack: codes of type {codes.dtype}; give whole numbers (uint8, int32 …)")
    wide = codes.detach().reshape(-1).to(torch.int64)
    count = wide.numel()
    if count and (int(wide.min()) < 0 or int(wide.max()) >= 2**bits):
        raise InputError(
            f"pack: codes from {int(wide.min())} to {int(wide.max())}; {bits} bits hold 0 to"
            f" {2**bits - 1}"
        )
    groups = -(-count // _GROUP)
    padded = torch.zeros(groups * _GROUP, dtype=torch.int32, device=codes.device)
    padded[:count] = wide
    members = padded.view(groups, _GROUP)
    packed = members.new_zeros((groups, bits))
    for member in range(_GROUP):
        for byte in range(bits):
            shift = member * bits - byte * 8
            if -bits < shift < 8:
                packed[:, byte] |= _shifted(members[:, member], shift) & 0xFF
    return packed.to(torch.uint8).view(-1)[: packed_byte(count, bits)].clone()


def unpack(packed: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    """The codes that `pack` was given: uint8 up to 8 bits, int32 for more.

    Args:
        packed: what `pack` gave.
        bits: of each code, 1 to 16.
        shape: of the codes.

    Raises:
        InputError: other bits, or bytes that are not those of codes of that shape.
    """
    _check_bits(bits)
    count = math.prod(shape)
    due = packed_byte(count, bits)
    if packed.dtype != torch.uint8 or packed.dim() != 1 or packed.numel() != due:
        raise InputError(
            f"unpack: {packed.dtype} of shape {tuple(packed.shape)}; {count} codes of {bits} bits"
            f" are {due} bytes of uint8 in one dimension"
        )
    groups = -(-count // _GROUP)
    padded = torch.zeros(groups * bits, dtype=torch.int32, device=packed.device)
    padded[:due] = packed
    groups_of_bytes = padded.view(groups, bits)
    codes = padded.new_zeros((groups, _GROUP))
    for member in range(_GROUP):
        for byte in range(bits):
            shift = member * bits - byte * 8
            if -bits < shift < 8:
                codes[:, member] |= _shifted(groups_of_bytes[:, byte], -shift) & (2**bits - 1)
    flat = codes.view(-1)
    if flat[count:].any():
        raise InputError("unpack: bits are set behind the last code; the bytes are damaged")
    dtype = torch.uint8 if bits <= 8 else torch.int32
    return flat[:count].to(dtype).reshape(tuple(shape))


def _shifted(values: torch.Tensor, left: int) -> torch.Tensor:
    return values << left if left >= 0 else values >> -left


def _check_bits(bits: object) -> None:
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= MOST_BITS:
        raise InputError(f"{bits!r} bits; codes have a whole number of bits from 1 to {MOST_BITS}")
