"""A step of training over time: what is sent while the backward pass goes on, and what is left.

A bucket may be sent when its last gradient is done; buckets are sent one after the other, in their
order. Where the cores that compute also move the bytes, computing goes on at a part of its speed
meanwhile: ``taken`` is the part that sending takes away, from 0 (a network card does it) to 1 (the
cores do nothing else).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


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

    Raises:
        ValueError: a time below 0, or a bucket that is done outside of the passes.
    """

    passes_s: float
    update_s: float
    ready_s: tuple[float, ...]

    def __post_init__(self) -> None:
        times = (self.passes_s, self.update_s, *self.ready_s)
        if min(times) < 0 or max(self.ready_s, default=0.0) > self.passes_s * (1 + 1e-9):
            raise ValueError(f"times of a step must not be negative, nor after its passes: {self}")


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
    """What a rank computes, from the seconds that its operators take.

    Args:
        times_s: of every operator, in their order.
        passes: how many of them belong to forward and backward pass; the others to the update.
        after: how many operators have run when each bucket is done.
    """
    ends = [0.0, *itertools.accumulate(times_s)]
    return Work(
        passes_s=ends[passes],
        update_s=ends[-1] - ends[passes],
        ready_s=tuple(min(ends[each], ends[passes]) for each in after),
    )


def timeline(
    work: Work, transfer_s: Sequence[float], *, before_s: float = 0.0, taken: float = 0.0
) -> Timeline:
    """The step that does this work and sends its buckets.

    Args:
        work: what a rank computes.
        transfer_s: how long each bucket takes on its way.
        before_s: what goes before the passes, other passes that send nothing among it.
        taken: the part of computing that sending takes away.

    Raises:
        ValueError: a part that is none.
    """
    if not 0 <= taken <= 1:
        raise ValueError(f"taken must be a part from 0 to 1, got {taken}")
    clock = _Clock(now_s=before_s, taken=taken)
    sent: list[Sent] = []
    for index, (ready, takes_s) in enumerate(zip(work.ready_s, transfer_s, strict=True)):
        ready_at_s = clock.compute_until(ready)
        start_s = max(ready_at_s, clock.free_s)
        clock.send(start_s, takes_s)
        sent.append(Sent(bucket=index, ready_s=ready_at_s, start_s=start_s, end_s=clock.free_s))
    passes_end_s = clock.compute_until(work.passes_s)
    all_sent_s = max(passes_end_s, clock.free_s)
    return Timeline(
        before_s=before_s,
        passes_end_s=passes_end_s,
        sent=tuple(sent),
        exposed_s=all_sent_s - passes_end_s,
        step_s=all_sent_s + work.update_s,
    )


@dataclass(slots=True, kw_only=True)
class _Clock:
    """Computing and sending side by side: how far both are."""

    now_s: float
    taken: float
    done_s: float = 0.0
    free_s: float = 0.0

    def send(self, start_s: float, takes_s: float) -> None:
        """A bucket leaves: until it has arrived the way is taken."""
        self.free_s = start_s + takes_s

    def compute_until(self, done_s: float) -> float:
        """Computes on until so much is done, and says when that is."""
        left_s = max(0.0, done_s - self.done_s)
        busy_s = max(0.0, self.free_s - self.now_s)
        slowed_s = busy_s * (1 - self.taken)
        if left_s > 0 and slowed_s < left_s:
            self.now_s += busy_s + (left_s - slowed_s)
        elif left_s > 0:
            self.now_s += left_s / (1 - self.taken)
        self.done_s = max(self.done_s, done_s)
        return self.now_s
