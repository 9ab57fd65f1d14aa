"""Buckets against torch's own assignment, and one worked out by hand."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed

from roofline.foundation.dtypes import dtype
from roofline.scaling.buckets import CAP_BYTE, FIRST_BYTE, buckets_of, limits_of
from roofline.workload.gradients import Gradient


def gradients(sizes: list[tuple[int, str]]) -> list[Gradient]:
    return [
        Gradient(
            parameter=f"p{place}", elements=size, dtype=dtype(kind), after=place, storage=place
        )
        for place, (size, kind) in enumerate(sizes)
    ]


def by_torch(sizes: list[tuple[int, str]], first: int, cap: int) -> list[list[int]]:
    """What torch makes of them in the order in which they are done, as its reducer asks."""
    tensors = [torch.empty(size, dtype=getattr(torch, kind)) for size, kind in sizes]
    found, _ = distributed._compute_bucket_assignment_by_size(  # pyright: ignore[reportPrivateImportUsage]
        tensors, [first, cap], [], list(range(len(tensors)))
    )
    return found


@given(
    sizes=st.lists(st.tuples(st.integers(0, 400), st.just("float32")), min_size=1, max_size=40),
    first=st.integers(1, 1500),
    cap=st.integers(1, 3000),
)
def test_buckets_of_one_type_are_torchs(sizes: list[tuple[int, str]], first: int, cap: int) -> None:
    found = buckets_of(gradients(sizes), first_byte=first, cap_byte=cap)
    expected = by_torch(sizes, first, cap)
    assert [[int(name[1:]) for name in each.parameters] for each in found] == expected


@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 400), st.sampled_from(["float32", "bfloat16", "float64"])),
        min_size=1,
        max_size=40,
    ),
    first=st.integers(1, 1500),
    cap=st.integers(1, 3000),
)
def test_types_never_share_a_bucket(sizes: list[tuple[int, str]], first: int, cap: int) -> None:
    # In which order torch sends what is left at the end is that of a hash table.
    found = buckets_of(gradients(sizes), first_byte=first, cap_byte=cap)
    expected = by_torch(sizes, first, cap)
    assert sorted([int(name[1:]) for name in each.parameters] for each in found) == sorted(expected)


def test_a_classifier_by_hand() -> None:
    # 1000 x 512 of the last layer are 2.048 MB: a first bucket of their own, with the bias that is
    # done before. Then convolutions of 9.4 MB each: the third takes the bucket over 26.2 MB.
    sizes = [(1000, "float32"), (512_000, "float32"), *[(2_359_296, "float32")] * 4]
    found = buckets_of(gradients(sizes))
    assert [each.byte for each in found] == [2_052_000, 3 * 9_437_184, 9_437_184]
    assert [each.after for each in found] == [1, 4, 5]


def test_limits_are_torchs() -> None:
    first = distributed._DEFAULT_FIRST_BUCKET_BYTES  # pyright: ignore[reportPrivateImportUsage]
    assert [first, 25 * 2**20] == [FIRST_BYTE, CAP_BYTE]
    assert limits_of(None) == (FIRST_BYTE, CAP_BYTE)
    assert limits_of(1000) == (1000, 1000)
