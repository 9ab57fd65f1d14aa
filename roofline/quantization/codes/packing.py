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


def packed_bytes(count: int, bits: int) -> int:
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
    return _cut_anew(wide, bits, 8)[: packed_bytes(count, bits)].to(torch.uint8)


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
    sizes = tuple(shape)
    count = math.prod(sizes)
    due = packed_bytes(count, bits)
    if min(sizes, default=0) < 0:
        raise InputError(f"unpack: shape {sizes}; no size can be below 0")
    if packed.dtype != torch.uint8 or packed.dim() != 1 or packed.numel() != due:
        raise InputError(
            f"unpack: {packed.dtype} of shape {tuple(packed.shape)}; {count} codes of {bits} bits"
            f" are {due} bytes of uint8 in one dimension"
        )
    codes = _cut_anew(packed, 8, bits)
    if codes[count:].any():
        raise InputError("unpack: bits are set behind the last code; the bytes are damaged")
    return _shaped(codes, bits, sizes)


def unpacked(packed: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    """What `unpack` gives, of bytes that are known to be sound: no value of them is looked at."""
    return _shaped(_cut_anew(packed, 8, bits), bits, shape)


def _shaped(codes: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    dtype = torch.uint8 if bits <= 8 else torch.int32
    return codes[: math.prod(shape)].to(dtype).reshape(tuple(shape))


def _cut_anew(numbers: torch.Tensor, old: int, new: int) -> torch.Tensor:
    """Numbers of `old` bits, whose bits are one stream, as numbers of `new` bits.

    `new` numbers of the one kind have as many bits as `old` of the other: such a group is done at
    once. What the last group lacks is zero.
    """
    groups = -(-numbers.numel() // new)
    padded = torch.zeros(groups * new, dtype=torch.int32, device=numbers.device)
    padded[: numbers.numel()] = numbers
    sources = padded.view(groups, new)
    results = sources.new_zeros((groups, old))
    for source in range(new):
        for result in range(old):
            left = source * old - result * new
            if -old < left < new:
                results[:, result] |= _shifted(sources[:, source], left) & (2**new - 1)
    return results.view(-1)


def _shifted(values: torch.Tensor, left: int) -> torch.Tensor:
    return values << left if left >= 0 else values >> -left


def _check_bits(bits: object) -> None:
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= MOST_BITS:
        raise InputError(f"{bits!r} bits; codes have a whole number of bits from 1 to {MOST_BITS}")
