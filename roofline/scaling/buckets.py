"""Gradient buckets of DistributedDataParallel, and the timeline of a training step.

Rules of torch: gradients fill buckets in the order in which the first backward pass finished them.
A bucket is full from 1 MiB (the first) or 25 MiB (later ones). Data types never share a bucket.
Buckets are sent in the order in which they filled, incomplete ones last. (The first step has one
bucket per data type, because the order is not known yet.)

Parameters without a gradient require ``find_unused_parameters=True``. Buckets then follow the order
of the model, are sent from the last to the first, and hold zeros for unused parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from roofline.core.dtypes import DType
from roofline.workload.operators import Gradient, TrainedParameter

# A bucket is ready when its last gradient is done; transfers are serial, in bucket order. ``taken``
# is the share of compute that a transfer occupies, from 0 (a network card moves the bytes) to 1
# (the cores do nothing else).


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTransfer:
    """Transfer of one bucket, in seconds from the start of the step."""

    bucket: int
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Compute of a rank in seconds: forward and backward pass, and update.

    ``ready_s`` are the times within both passes at which buckets are ready, in bucket order.
    """

    passes_s: float
    update_s: float
    ready_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Timeline of a step in seconds; ``exposed_s`` is communication after the backward pass."""

    before_s: float
    passes_end_s: float
    sent: tuple[BucketTransfer, ...]
    exposed_s: float
    step_s: float


def work_of(times_s: Sequence[float], *, passes: int, after: Sequence[int]) -> Work:
    """Return the compute of a rank from its operator times in seconds."""
    ends = [0.0, *itertools.accumulate(times_s)]
    return Work(
        passes_s=ends[passes],
        update_s=ends[-1] - ends[passes],
        ready_s=tuple(min(ends[each], ends[passes]) for each in after),
    )


def timeline(
    work: Work, transfer_s: Sequence[float], *, before_s: float = 0.0, taken: float = 0.0
) -> Timeline:
    """Return the timeline of a step with this compute and these bucket transfers."""

    now_s, done_s, free_s = before_s, 0.0, 0.0

    def compute_until(until_s: float) -> float:
        """Advance until this much compute is done, and return the time."""
        nonlocal now_s, done_s
        left_s = max(0.0, until_s - done_s)
        busy_s = max(0.0, free_s - now_s)
        slowed_s = busy_s * (1 - taken)
        if left_s > 0 and slowed_s < left_s:
            now_s += busy_s + (left_s - slowed_s)
        elif left_s > 0:
            now_s += left_s / (1 - taken)
        done_s = max(done_s, until_s)
        return now_s

    sent: list[BucketTransfer] = []
    for index, (ready, takes_s) in enumerate(zip(work.ready_s, transfer_s, strict=True)):
        ready_at_s = compute_until(ready)
        start_s = max(ready_at_s, free_s)
        free_s = start_s + takes_s
        sent.append(BucketTransfer(bucket=index, ready_s=ready_at_s, start_s=start_s, end_s=free_s))
    passes_end_s = compute_until(work.passes_s)
    all_sent_s = max(passes_end_s, free_s)
    return Timeline(
        before_s=before_s,
        passes_end_s=passes_end_s,
        sent=tuple(sent),
        exposed_s=all_sent_s - passes_end_s,
        step_s=all_sent_s + work.update_s,
    )


FIRST_BYTE = 1024 * 1024
"""Size of the first bucket, small so that communication starts early."""

CAP_BYTE = 25 * 1024 * 1024
"""Size of later buckets, the default of torch's ``bucket_cap_mb``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients of one all-reduce.

    ``parameters`` are in memory order. ``after`` is the number of operators of the pass that have
    run when the last gradient is done.
    """

    ALSO_WRITTEN: ClassVar = ("size_bytes",)

    index: int
    parameters: tuple[str, ...]
    dtype: DType
    elements: int
    after: int

    @property
    def size_bytes(self) -> int:
        """Size in bytes."""
        return self.dtype.byte(self.elements)


def buckets_of(
    gradients: Sequence[Gradient],
    trained: Sequence[TrainedParameter] = (),
    *,
    first_byte: int = FIRST_BYTE,
    cap_bytes: int = CAP_BYTE,
) -> tuple[Bucket, ...]:
    """Return the buckets in sending order.

    `gradients` are in completion order. `trained` are all parameters in model order, if some get no
    gradient. `first_byte` and `cap_bytes` are the sizes of the first and of later buckets per type.
    """
    after = {each.parameter: each.after for each in gradients}
    # Parameters without a gradient are marked as done with the first gradient.
    first = min(after.values(), default=0)
    tensors = trained or gradients
    full = _filled(tensors, first_byte, cap_bytes)
    if trained:
        full.sort(key=min, reverse=True)
    found: list[Bucket] = []
    for index, places in enumerate(full):
        held = [tensors[place] for place in places]
        found.append(
            Bucket(
                index=index,
                parameters=tuple(each.parameter for each in held),
                dtype=held[0].dtype,
                elements=sum(each.elements for each in held),
                after=max(after.get(each.parameter, first) for each in held),
            )
        )
    return tuple(found)


def _filled(
    tensors: Sequence[Gradient | TrainedParameter], first_byte: int, cap_bytes: int
) -> list[list[int]]:
    """Return tensor indices by bucket: full buckets in filling order, then incomplete ones.

    Incomplete buckets of several types follow torch's hash table, the newest type first.
    """
    filling: dict[DType, list[int]] = {}
    held_bytes: dict[DType, int] = {}
    limits: dict[DType, int] = {}
    full: list[list[int]] = []
    for place, each in enumerate(tensors):
        of = each.dtype
        filling.setdefault(of, []).append(place)
        held_bytes[of] = held_bytes.get(of, 0) + each.byte
        if held_bytes[of] >= limits.get(of, first_byte):
            full.append(filling[of])
            filling[of], held_bytes[of], limits[of] = [], 0, cap_bytes
    return [*full, *filter(None, reversed(filling.values()))]
