"""Buckets of gradients, and a training step over time: what overlaps, what is left.

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

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from roofline.core.dtypes import DType
from roofline.workload.operators import Gradient, Trained

# A bucket may be sent when its last gradient is done; buckets are sent one after the other, in
# their order. Where the cores that compute also move the bytes, computing goes on at a part of its
# speed meanwhile: ``taken`` is the part that sending takes away, from 0 (a network card does it) to
# 1 (the cores do nothing else).


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One bucket on its way, in seconds from the beginning of the step."""

    bucket: int
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a rank computes, in seconds: forward and backward pass, and update.

    ``ready_s`` are the moments within both passes at which buckets are done, in their order.
    """

    passes_s: float
    update_s: float
    ready_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A step: when the passes end, what was sent when, and when all of it is over, in seconds.

    ``exposed_s`` is what the update waits for after the passes.
    """

    before_s: float
    passes_end_s: float
    sent: tuple[Sent, ...]
    exposed_s: float
    step_s: float


def work_of(times_s: Sequence[float], *, passes: int, after: Sequence[int]) -> Work:
    """What a rank computes, from the seconds that its operators take."""
    ends = [0.0, *itertools.accumulate(times_s)]
    return Work(
        passes_s=ends[passes],
        update_s=ends[-1] - ends[passes],
        ready_s=tuple(min(ends[each], ends[passes]) for each in after),
    )


def timeline(
    work: Work, transfer_s: Sequence[float], *, before_s: float = 0.0, taken: float = 0.0
) -> Timeline:
    """The step that does this work and sends its buckets."""

    now_s, done_s, free_s = before_s, 0.0, 0.0

    def compute_until(until_s: float) -> float:
        """Compute on until so much is done, and return when that is."""
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

    sent: list[Sent] = []
    for index, (ready, takes_s) in enumerate(zip(work.ready_s, transfer_s, strict=True)):
        ready_at_s = compute_until(ready)
        start_s = max(ready_at_s, free_s)
        free_s = start_s + takes_s
        sent.append(Sent(bucket=index, ready_s=ready_at_s, start_s=start_s, end_s=free_s))
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
"""The limit of the first bucket, small so that sending begins early."""

CAP_BYTE = 25 * 1024 * 1024
"""The limit of each later one, torch's ``bucket_cap_mb`` by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are sent together.

    ``parameters`` stand in the order in which they lie in it; ``after`` is how many operators of
    the pass have run when the last of them is done.
    """

    ALSO_WRITTEN: ClassVar = ("size_bytes",)

    index: int
    parameters: tuple[str, ...]
    dtype: DType
    elements: int
    after: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all of it."""
        return self.dtype.byte(self.elements)


def buckets_of(
    gradients: Sequence[Gradient],
    trained: Sequence[Trained] = (),
    *,
    first_byte: int = FIRST_BYTE,
    cap_bytes: int = CAP_BYTE,
) -> tuple[Bucket, ...]:
    """Return the buckets, in the order in which they are sent.

    `gradients` come in the order in which they are done; `trained` are all parameters in the order
    of the model, where some get no gradient. The first bucket of each type is full from
    `first_byte` on, each later one from `cap_bytes`.
    """
    after = {each.parameter: each.after for each in gradients}
    # What has no gradient is marked as done when the first one is.
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
    tensors: Sequence[Gradient | Trained], first_byte: int, cap_bytes: int
) -> list[list[int]]:
    """Places of tensors that share a bucket: those that were full as they were, then the rest.

    What is left of several types stands in the order of a hash table of the standard library that
    torch is built with, where what came last is first.
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
