"""Buckets against torch's own assignment, and one worked out by hand."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed

from roofline.core.dtypes import dtype
from roofline.scaling.buckets import CAP_BYTE, FIRST_BYTE, Bucket, buckets_of
from roofline.workload.operators import Gradient, TrainedParameter
from tests.scaling.gradients import gradient

Sizes = list[tuple[int, str]]


def gradients(sizes: Sizes) -> list[Gradient]:
    return [gradient(place, size, place, kind) for place, (size, kind) in enumerate(sizes)]


def trained(sizes: Sizes) -> list[TrainedParameter]:
    return [
        TrainedParameter(parameter=f"p{place}", elements=size, dtype=dtype(kind))
        for place, (size, kind) in enumerate(sizes)
    ]


def places(buckets: tuple[Bucket, ...]) -> list[list[int]]:
    return [[int(name[1:]) for name in each.parameters] for each in buckets]


def by_torch(sizes: Sizes, first: int, cap: int, *, is_order_known: bool = True) -> list[list[int]]:
    """What torch makes of them in the order in which they are done, or in the model's."""
    tensors = [torch.empty(size, dtype=getattr(torch, kind)) for size, kind in sizes]
    indices = list(range(len(tensors))) if is_order_known else []
    found, _ = distributed._compute_bucket_assignment_by_size(  # pyright: ignore[reportPrivateImportUsage]
        tensors, [first, cap], [], indices
    )
    return found


def of_types(*kinds: str) -> st.SearchStrategy[Sizes]:
    sizes = st.tuples(st.integers(0, 400), st.sampled_from(kinds))
    return st.lists(sizes, min_size=1, max_size=40)


FIRST, CAP = st.integers(1, 1500), st.integers(1, 3000)
TYPES = ("float32", "bfloat16", "float64")


@given(sizes=of_types("float32"), first=FIRST, cap=CAP)
def test_buckets_of_one_type_are_torchs(sizes: Sizes, first: int, cap: int) -> None:
    found = buckets_of(gradients(sizes), first_byte=first, cap_bytes=cap)
    assert places(found) == by_torch(sizes, first, cap)


@pytest.mark.skipif(sys.platform != "linux", reason="another standard library, another order")
@given(sizes=of_types(*TYPES[:2]), first=FIRST, cap=CAP)
def test_buckets_of_two_types_are_torchs(sizes: Sizes, first: int, cap: int) -> None:
    found = buckets_of(gradients(sizes), first_byte=first, cap_bytes=cap)
    assert places(found) == by_torch(sizes, first, cap)


@given(sizes=of_types(*TYPES), first=FIRST, cap=CAP)
def test_types_never_share_a_bucket(sizes: Sizes, first: int, cap: int) -> None:
    # In which order torch sends what is left at the end of three types is that of a hash table.
    found = buckets_of(gradients(sizes), first_byte=first, cap_bytes=cap)
    assert sorted(places(found)) == sorted(by_torch(sizes, first, cap))


@given(sizes=of_types(*TYPES), first=FIRST, cap=CAP)
def test_where_the_order_is_never_known_the_last_parameters_go_first(
    sizes: Sizes, first: int, cap: int
) -> None:
    done = gradients(sizes)[::2]
    found = buckets_of(done, trained(sizes), first_byte=first, cap_bytes=cap)
    expected = by_torch(sizes, first, cap, is_order_known=False)
    assert places(found) == expected[::-1]
    assert sum(each.elements for each in found) == sum(size for size, _ in sizes)


def test_what_is_unused_is_done_when_the_first_gradient_is() -> None:
    sizes = [(10, "float32")] * 4
    done = [gradient(3, 10, 5), gradient(1, 10, 9)]
    found = buckets_of(done, trained(sizes), first_byte=1, cap_bytes=1)
    assert [(each.parameters, each.after) for each in found] == [
        (("p3",), 5),
        (("p2",), 5),
        (("p1",), 9),
        (("p0",), 5),
    ]


def test_a_classifier_by_hand() -> None:
    # 1000 x 512 of the last layer are 2.048 MB: a first bucket of their own, with the bias that is
    # done before. Then convolutions of 9.4 MB each: the third takes the bucket over 26.2 MB.
    sizes = [(1000, "float32"), (512_000, "float32"), *[(2_359_296, "float32")] * 4]
    found = buckets_of(gradients(sizes))
    assert [each.size_bytes for each in found] == [2_052_000, 3 * 9_437_184, 9_437_184]
    assert [each.after for each in found] == [1, 4, 5]


def test_limits_are_torchs() -> None:
    first = distributed._DEFAULT_FIRST_BUCKET_BYTES  # pyright: ignore[reportPrivateImportUsage]
    assert (first, 25 * 2**20) == (FIRST_BYTE, CAP_BYTE)
