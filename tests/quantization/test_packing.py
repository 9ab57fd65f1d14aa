"""Codes of few bits as bytes: the bit order by hand, every width against one large number."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roofline.errors import InputError
from roofline.quantization.packed_files import pack, packed_bytes, unpack


def packed_by_one_number(codes: list[int], bits: int) -> bytes:
    """The stream of bits as one number, the first code lowest: written by Python itself."""
    number = sum(code << (place * bits) for place, code in enumerate(codes))
    return number.to_bytes(math.ceil(len(codes) * bits / 8), "little")


@pytest.mark.parametrize(
    ("bits", "codes", "packed"),
    [
        (1, [1, 0, 0, 0, 0, 0, 0, 1, 1], [0x81, 0x01]),
        # 3 is 11, 2 is 10, 1 is 01, and the first code is lowest.
        (2, [1, 2, 3, 0, 3], [0b00_11_10_01, 0b11]),
        # 7 begins in the first byte and ends in the second.
        (3, [5, 3, 7], [0b11_011_101, 0b1]),
        (4, [0xA, 0xB, 0xC], [0xBA, 0x0C]),
        (8, [0, 255, 7], [0, 255, 7]),
        (16, [0x1234, 0xFFFF], [0x34, 0x12, 0xFF, 0xFF]),
    ],
)
def test_bits_stand_where_it_is_written(bits: int, codes: list[int], packed: list[int]) -> None:
    found = pack(torch.tensor(codes), bits)
    assert found.dtype == torch.uint8
    assert found.tolist() == packed
    assert unpack(found, bits, (len(codes),)).tolist() == codes


def codes_of(bits: int) -> st.SearchStrategy[tuple[int, list[int]]]:
    codes = st.lists(st.integers(0, 2**bits - 1), max_size=50)
    return st.tuples(st.just(bits), codes)


@given(st.integers(1, 16).flatmap(codes_of))
def test_every_width_comes_back_and_is_as_one_number_would_be(case: tuple[int, list[int]]) -> None:
    bits, codes = case
    packed = pack(torch.tensor(codes, dtype=torch.int32), bits)
    assert bytes(packed.tolist()) == packed_by_one_number(codes, bits)
    assert packed.numel() == packed_bytes(len(codes), bits) == math.ceil(len(codes) * bits / 8)
    assert unpack(packed, bits, (len(codes),)).tolist() == codes


@given(st.lists(st.integers(0, 4), max_size=4), st.integers(1, 16), st.integers(0, 2**31))
def test_shapes_come_back(shape: list[int], bits: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, shape, generator=generator)
    found = unpack(pack(codes, bits), bits, shape)
    assert found.dtype == (torch.uint8 if bits <= 8 else torch.int32)
    assert torch.equal(found.to(torch.int64), codes)


def test_strided_codes_of_any_whole_type_are_packed_in_the_order_of_their_places() -> None:
    codes = torch.tensor([[0, 1, 2], [3, 2, 1]])
    expected = packed_by_one_number([0, 3, 1, 2, 2, 1], 2)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        assert bytes(pack(codes.to(dtype).t(), 2).tolist()) == expected


@pytest.mark.parametrize("bits", [0, 17, 32, -1, True, 2.0, "2"])
def test_other_widths_are_refused(bits: int) -> None:
    with pytest.raises(InputError, match="must be an integer from 1 to 16"):
        pack(torch.tensor([0]), bits)
    with pytest.raises(InputError, match="must be an integer from 1 to 16"):
        unpack(torch.tensor([0], dtype=torch.uint8), bits, (1,))


@pytest.mark.parametrize("codes", [[4], [-1], [0, 2**32]])
def test_codes_beyond_their_bits_are_refused(codes: list[int]) -> None:
    with pytest.raises(InputError, match=r"pack: codes from .*; the range of 2 bits is 0 to 3"):
        pack(torch.tensor(codes), 2)


@pytest.mark.parametrize("codes", [torch.tensor([1.0]), torch.tensor([True])])
def test_what_is_no_whole_number_is_refused(codes: torch.Tensor) -> None:
    with pytest.raises(InputError, match="use integers"):
        pack(codes, 2)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (torch.zeros(2, dtype=torch.uint8), "3 codes of 2 bits are 1 bytes"),
        (torch.zeros((1, 1), dtype=torch.uint8), "3 codes of 2 bits are 1 bytes"),
        (torch.zeros(1, dtype=torch.int32), "3 codes of 2 bits are 1 bytes"),
        (torch.tensor([0b01_00_00_00], dtype=torch.uint8), "after the last code"),
    ],
)
def test_bytes_of_other_codes_are_refused(packed: torch.Tensor, why: str) -> None:
    with pytest.raises(InputError, match=why):
        unpack(packed, 2, (3,))


@pytest.mark.parametrize("shape", [(-1,), (-1, -3), (0, -1)])
def test_sizes_below_zero_are_refused(shape: tuple[int, ...]) -> None:
    packed = torch.zeros(packed_bytes(max(0, math.prod(shape)), 2), dtype=torch.uint8)
    with pytest.raises(InputError, match="has a negative size"):
        unpack(packed, 2, shape)
