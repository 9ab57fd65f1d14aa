"""The buckets in which DistributedDataParallel sends gradients.

Its rules: gradients are taken in the order in which the backward pass finished them in the first
step; a bucket is full when it holds its limit or more, the first 1 MiB, each later one 25 MiB; what
differs in type never shares a bucket. Buckets are sent in the order in which they were filled,
what is left at the end last. (In the very first step everything is one bucket for each type: the
order is not known yet.)

Where no gradient reaches a parameter it must be told to find such parameters
(``find_unused_parameters=True``). Then it never learns the order: all parameters are taken in the
order of the model, and buckets are sent from the last to the first, with zeros for what is unused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from roofline.foundation.dtypes import DType
from roofline.workload.gradients import Gradient, Trained

FIRST_BYTE = 1024 * 1024
"""The limit of the first bucket, small so that sending begins early."""

CAP_BYTE = 25 * 1024 * 1024
"""The limit of each later one, torch's ``bucket_cap_mb`` by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are sent together.

    ``parameters`` stand in the order in which they lie in it; ``after`` is how many operators of
    the pass have run when the last of them is done.
    """

    ALSO_WRITTEN: ClassVar = ("byte",)

    index: int
    parameters: tuple[str, ...]
    dtype: DType
    elements: int
    after: int

    @property
    def byte(self) -> int:
        """Bytes of all of it."""
        return self.dtype.byte(self.elements)


class _Sized(Protocol):
    """What goes into a bucket."""

    @property
    def dtype(self) -> DType: ...
    @property
    def byte(self) -> int: ...


_T = TypeVar("_T", bound=_Sized)


def limits_of(cap_bytes: int | None) -> tuple[int, int]:
    """The limits of the first bucket and of later ones: a size that is chosen holds for all."""
    return (FIRST_BYTE, CAP_BYTE) if cap_bytes is None else (cap_bytes, cap_bytes)


def buckets_of(
    gradients: Sequence[Gradient], *, first_byte: int = FIRST_BYTE, cap_bytes: int = CAP_BYTE
) -> tuple[Bucket, ...]:
    """The buckets, in the order in which they are sent.

    Args:
        gradients: in the order in which they are done.
        first_byte: from how many bytes on the first bucket is full, of each type of data.
        cap_bytes: from how many each later one is.
    """
    after = {each.parameter: each.after for each in gradients}
    return tuple(
        _bucket(index, [gradients[place] for place in places], after)
        for index, places in enumerate(_filled(gradients, first_byte, cap_bytes))
    )


def buckets_of_all(
    trained: Sequence[Trained],
    gradients: Sequence[Gradient],
    *,
    first_byte: int = FIRST_BYTE,
    cap_bytes: int = CAP_BYTE,
) -> tuple[Bucket, ...]:
    """The buckets where unused parameters are found, in the order in which they are sent.

    Args:
        trained: all parameters, in the order of the model.
        gradients: of those that get one.
        first_byte: as for `buckets_of`.
        cap_bytes: as for `buckets_of`.
    """
    after = {each.parameter: each.after for each in gradients}
    # What has no gradient is marked as done when the first one is.
    first = min(after.values(), default=0)
    by_place = sorted(_filled(trained, first_byte, cap_bytes), key=min)
    return tuple(
        _bucket(index, [trained[place] for place in places], after, otherwise=first)
        for index, places in enumerate(reversed(by_place))
    )


def _filled(tensors: Sequence[_T], first_byte: int, cap_bytes: int) -> list[list[int]]:
    """Places of tensors that share a bucket: those that were full as they were, then the rest.

    What is left of several types stands in the order of a hash table of the standard library that
    torch is built with, where what came last is first.
    """
    open_now: dict[DType, list[int]] = {}
    held_bytes: dict[DType, int] = {}
    have_closed: set[DType] = set()
    closed: list[list[int]] = []
    for place, each in enumerate(tensors):
        held = open_now.setdefault(each.dtype, [])
        held.append(place)
        held_bytes[each.dtype] = held_bytes.get(each.dtype, 0) + each.byte
        limit = cap_bytes if each.dtype in have_closed else first_byte
        if held_bytes[each.dtype] >= limit:
            closed.append([*held])
            held.clear()
            held_bytes[each.dtype] = 0
            have_closed.add(each.dtype)
    return [*closed, *(held for held in reversed(open_now.values()) if held)]


def _bucket(
    index: int,
    held: Sequence[Gradient | Trained],
    after: Mapping[str, int],
    *,
    otherwise: int = 0,
) -> Bucket:
    return Bucket(
        index=index,
        parameters=tuple(each.parameter for each in held),
        dtype=held[0].dtype,
        elements=sum(each.elements for each in held),
        after=max(after.get(each.parameter, otherwise) for each in held),
    )
