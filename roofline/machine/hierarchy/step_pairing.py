"""Which step of the latency curve shows which of the caches that the operating system reports."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.machine.hierarchy.latency_steps import Step
from roofline.machine.system.topology import Cache

_MEMORY_S = 80e-9
"""What takes so long is memory: the slowest last caches, those of Sapphire Rapids in a guest, take
71 ns. A step from there on is of translation buffers."""

_LIKELY_MEMORY_S = 50e-9
"""What takes so long is memory where all caches are reported, and shown by other steps."""

_USUAL_LEVELS = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """What is reported of a level, and the step that shows it; one of them may be missing."""

    cache: Cache | None
    step: Step | None


def cache_steps(steps: Sequence[Step], reported: Sequence[Cache]) -> list[Step]:
    """`steps` without those whose nearer side is at the latency of memory already."""
    found = list(steps)
    while found:
        is_surplus = len(found) > len(reported) >= _USUAL_LEVELS
        if found[-1].near_s < (_LIKELY_MEMORY_S if is_surplus else _MEMORY_S):
            break
        found.pop()
    return found


def paired(reported: Sequence[Cache], steps: Sequence[Step]) -> list[Pair]:
    """Caches and steps in order; as many as possible are paired, those most alike."""
    fewer = min(len(reported), len(steps))

    def unlike(choice: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
        return sum(_distance(reported[i], steps[j]) for i, j in zip(*choice, strict=True))

    caches, shown = min(
        itertools.product(
            itertools.combinations(range(len(reported)), fewer),
            itertools.combinations(range(len(steps)), fewer),
        ),
        key=unlike,
    )
    of = dict(zip(caches, shown, strict=True))
    pairs = [Pair(cache, steps[of[i]] if i in of else None) for i, cache in enumerate(reported)]
    # Caches keep their order; steps without one come between them, by size.
    places = list(itertools.accumulate(map(_place, pairs), max))
    alone = [Pair(None, step) for j, step in enumerate(steps) if j not in shown]
    placed = [*zip(places, pairs, strict=True), *((_place(pair), pair) for pair in alone)]
    return [pair for _, pair in sorted(placed, key=lambda item: item[0])]


def _place(pair: Pair) -> float:
    """About how large the cache is."""
    if pair.step:
        return math.sqrt(pair.step.lower_byte * pair.step.upper_byte)
    return pair.cache.size_byte if pair.cache else 0


def _distance(cache: Cache, step: Step) -> float:
    """How far a reported size lies outside a step, in octaves."""
    return math.log2(max(1.0, step.lower_byte / cache.size_byte, cache.size_byte / step.upper_byte))
