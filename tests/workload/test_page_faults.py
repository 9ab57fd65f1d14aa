"""Simulated page faults of passes: sequences whose faults follow by hand, and properties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from roofline.workload.glibc_heap import PAGE_BYTE, MallocSettings
from roofline.workload.operators import OperatorRecord
from roofline.workload.page_faults import (
    Scratch,
    count_page_faults,
    fault_free_settings,
    scratch_blocks,
)
from roofline.workload.tensors import Role, TensorSpec
from tests import builders

MIB = 2**20
KEPT = MallocSettings(mmap_threshold_bytes=2**40, trim_threshold_bytes=2**40, is_dynamic=False)


def tensor(
    storage: int, *shape: int, role: Role = Role.ACTIVATION, layout: Any = "contiguous"
) -> TensorSpec:
    flat = builders.tensor(storage, math.prod(shape), role=role)
    return replace(flat, shape=shape, layout=layout)


def record(
    index: int,
    op: str,
    inputs: Sequence[TensorSpec],
    output: TensorSpec,
    freed: Sequence[int] = (),
    **attributes: Any,
) -> OperatorRecord:
    made = builders.record(inputs, [output], freed=freed, index=index, op=op)
    return replace(made, attributes=attributes)


def chain(*mebibytes: int) -> list[OperatorRecord]:
    """Operators that each write a tensor of that size and drop the one before."""
    before = tensor(0, MIB, role=Role.INPUT)
    found: list[OperatorRecord] = []
    for index, size in enumerate(mebibytes):
        after = tensor(index + 1, size * MIB // 4)
        found.append(record(index, "aten.relu", [before], after, [index] if index else []))
        before = after
    return found


def test_tensors_beyond_32_mib_are_faulted_in_every_pass() -> None:
    found = count_page_faults(chain(40, 40, 40))
    assert (found.low, found.page_faults, found.high) == (3 * (40 * MIB // PAGE_BYTE + 1),) * 3


def test_small_tensors_stay_in_the_heap() -> None:
    assert count_page_faults(chain(1, 1, 1, 1)).high == 0


def test_what_exceeds_the_trim_threshold_is_given_back() -> None:
    # Three tensors of 10 MiB at a time: more than the trim threshold of 20 MiB is free at the end.
    records = chain(10, 10, 10)
    held = [replace(each, freed=()) for each in records]
    assert count_page_faults(held).page_faults > 2 * 10 * MIB // PAGE_BYTE
    assert count_page_faults(chain(10)).high == 0


@pytest.mark.parametrize("sizes", [(40, 40), (10, 10, 10), (3, 9, 1, 20, 2)])
def test_never_more_pages_than_are_written_and_none_with_thresholds_above_everything(
    sizes: tuple[int, ...],
) -> None:
    records = [replace(each, freed=()) for each in chain(*sizes)]
    most = sum(size * MIB // PAGE_BYTE + 2 for size in sizes)
    assert 0 <= count_page_faults(records).high <= most
    assert count_page_faults(chain(*sizes), KEPT).high == 0


def test_the_same_records_have_the_same_faults() -> None:
    records = chain(3, 9, 1, 20, 2)
    assert count_page_faults(records) == count_page_faults(records)


@pytest.mark.parametrize("sizes", [(40, 40), (10, 10, 10)])
def test_settings_that_suffice(sizes: tuple[int, ...]) -> None:
    records = [replace(each, freed=()) for each in chain(*sizes)]
    found = fault_free_settings(records)
    assert count_page_faults(records, found).high == 0
    assert found.mmap_threshold_bytes > max(sizes) * MIB
    # Twice what is needed, but no more.
    half = replace(found, trim_threshold_bytes=found.trim_threshold_bytes // 2)
    assert count_page_faults(records, half).high == 0
    quarter = replace(found, trim_threshold_bytes=found.trim_threshold_bytes // 4)
    assert count_page_faults(records, quarter).high > 0


def convolution(
    channels: int, filters: int, size: int, taps: int, *, groups: int = 1, **changed: Any
) -> OperatorRecord:
    batch = changed.pop("batch", 1)
    layout = changed.pop("layout", "contiguous")
    stride = changed.get("stride", [1, 1])[0]
    image = tensor(0, batch, channels, size, size, layout=layout)
    weight = tensor(1, filters, channels // groups, taps, taps, role=Role.PARAMETER)
    result = tensor(2, batch, filters, size // stride, size // stride, layout=layout)
    attributes = {
        "stride": [1, 1],
        "padding": [taps // 2] * 2,
        "dilation": [1, 1],
        "transposed": False,
        "groups": groups,
        **changed,
    }
    return record(0, "aten.convolution", [image, weight], result, **attributes)


# Bytes as logs of malloc show them for these calls (AVX-512).
@pytest.mark.parametrize(
    ("call", "threads", "before", "around", "after"),
    [
        (convolution(60, 100, 28, 3), 1, (200704, 258048), (351232,), ()),
        (convolution(97, 97, 28, 3, groups=97), 1, (351232, 4032), (351232,), ()),
        (convolution(96, 96, 28, 3, groups=6), 1, (301056, 55296), (301056,), ()),
        (convolution(3, 32, 112, 3, stride=[2, 2]), 1, (3456,), (401408,), ()),
        (convolution(512, 512, 7, 3), 1, (100352, 9437184), (100352,), ()),
        (convolution(64, 64, 28, 3, batch=8), 2, (1605632, 147456), (1605632,), ()),
        (convolution(64, 128, 56, 1), 1, (), (), ()),
        (convolution(64, 128, 56, 1), 2, (802816, 32768), (1605632,), ()),
        (convolution(16, 32, 14, 3), 1, (), (112896,), ()),
        (convolution(64, 64, 56, 3, layout="channels-last"), 1, (), (), (147456,)),
    ],
)
def test_scratch_of_convolutions(
    call: OperatorRecord,
    threads: int,
    before: tuple[int, ...],
    around: tuple[int, ...],
    after: tuple[int, ...],
) -> None:
    found = scratch_blocks(call, threads=threads)
    assert found is not None
    assert (found.before, found.around, found.after) == (before, around, after)


@pytest.mark.parametrize(
    ("shape", "threads", "byte"),
    [
        ((1, 3, 197, 64), 1, 67328),
        ((8, 3, 197, 64), 2, 134656),
        ((1, 12, 128, 64), 1, 24832),
    ],
)
def test_scratch_of_attention(shape: tuple[int, ...], threads: int, byte: int) -> None:
    operands = [tensor(number, *shape) for number in range(4)]
    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    found = scratch_blocks(record(0, name, operands[:3], operands[3]), threads=threads)
    assert found == Scratch(after=(byte,))


def test_scratch_that_is_not_known_is_said() -> None:
    call = convolution(64, 64, 28, 3, transposed=True)
    assert scratch_blocks(call) is None
    assert count_page_faults([call]).unknown == ("aten.convolution",)


def test_a_bias_is_added_to_its_product_in_place() -> None:
    product = tensor(2, 4, 4 * MIB)
    weight = tensor(1, 4, 4, role=Role.PARAMETER)
    bias = tensor(3, 4 * MIB, role=Role.PARAMETER)
    records = [
        record(0, "aten.mm", [tensor(0, 4, 4, role=Role.INPUT), weight], product),
        record(1, "aten.add", [product, bias], tensor(4, 4, 4 * MIB), [2]),
    ]
    # Both are 64 MiB, more than glibc keeps: a tensor of its own would double the faults.
    assert count_page_faults(records).page_faults == 64 * MIB // PAGE_BYTE + 1
