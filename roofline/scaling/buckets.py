"""The buckets in which DistributedDataParallel sends gradients.

Its rules: gradients are taken in the order in which the backward pass finished them in the first
step; a bucket is full when it holds its limit or more, the first 1 MiB, each later one 25 MiB; what
differs in type never shares a bucket. Buckets are sent in the order in which they were filled,
what is left at the end last. (In the very first step everything is one bucket for each type: the
order is not known yet.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.foundation.dtypes import DType
from roofline.workload.gradients import Gradient

FIRST_BYTE = 1024 * 1024
"""The limit of the first bucket, small so that sending begins early."""

CAP_BYTE = 25 * 1024 * 1024
"""The limit of each later one, torch's ``bucket_cap_mb`` by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are sent together.

    ``parameters`` stand in the order in which they were done; ``after`` is how many operators of
    the pass have run when the last of them is.
    """

    index: int
    parameters: tuple[str, ...]
    dtype: DType
    elements: int
    after: int

    @property
    def byte(self) -> int:
        """Bytes of all of it."""
        return self.dtype.byte(self.elements)


def limits_of(cap_byte: int | None) -> tuple[int, int]:
    """The limits of the first bucket and of later ones: a size that is chosen holds for all."""
    return (FIRST_BYTE, CAP_BYTE) if cap_byte is None else (cap_byte, cap_byte)


def buckets_of(
    gradients: Sequence[Gradient], *, first_byte: int = FIRST_BYTE, cap_byte: int = CAP_BYTE
) -> tuple[Bucket, ...]:
    """The buckets, in the order in which they are sent.

    Args:
        gradients: in the order in which they are done.
        first_byte: from how many bytes on the first bucket is full, of each type of data.
        cap_byte: from how many each later one is.
    """
    open_now: dict[DType, list[Gradient]] = {}
    have_closed: set[DType] = set()
    closed: list[list[Gradient]] = []
    for each in gradients:
        held = open_now.setdefault(each.dtype, [])
        held.append(each)
        limit = cap_byte if each.dtype in have_closed else first_byte
        if sum(one.byte for one in held) >= limit:
            closed.append(open_now.pop(each.dtype))
            have_closed.add(each.dtype)
    closed += open_now.values()
    return tuple(_bucket(index, held) for index, held in enumerate(closed))


def _bucket(index: int, held: Sequence[Gradient]) -> Bucket:
    return Bucket(
        index=index,
        parameters=tuple(each.parameter for each in held),
        dtype=held[0].dtype,
        elements=sum(each.elements for each in held),
        after=max(each.after for each in held),
    )
