"""Steps in a latency curve: where a working set outgrows a cache.

What is used of caches holds for every replacement policy. Of a working set S that is visited in
random order, a cache of C bytes can serve no more than the fraction C / S. So where a fraction h of
the loads of S is as fast as the nearer level, that level has at least S x h bytes: the lower edge.
Lines of a set that fits may still collide, but not most of them: the upper edge is the first size
at which less than half is served.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.machine.hardware import LatencyCurve

CLEAR_RATIO = 1.6
"""Between the latencies of one level and the next, at least.

Neighbouring levels differ by 2.5 and more, a last cache and memory by 2, of which 1.75 shows where
a quarter of the curve's last working set is still in the cache. A miss in a translation buffer adds
7 cycles to a second level's 14, or 25 to a last level's 50: 1.5.
"""

_SERVED = 0.5

_BEYOND_ONE_CACHE = 1.25
"""A single cache holds no more than up to its upper edge; what seems to, by more than the noise of
a curve, is two."""

_HALF_WINDOW = math.sqrt(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A rise from one level's latency to the next one's; the nearer holds ``lower`` to ``upper``.

    ``lower_bytes`` it holds whatever the replacement; at ``upper_byte`` it serves less than half.
    """

    lower_bytes: int
    upper_byte: int
    near_s: float
    far_s: float


def find_steps(curve: LatencyCurve) -> list[Step]:
    """The steps of a curve, smallest working set first; none where latency hardly rises.

    A level between two others is believed where its latency is clear of both (``CLEAR_RATIO``) and
    flat, and the curve is faster than the nearer one alone could make it. So gradual steps, as of
    random replacement or of neighbours that hold a part of the cache, are no levels.
    """
    sizes, latencies = curve.size_bytes, _rising(curve.latency_s)
    last = len(sizes) - 1
    if latencies[last] < CLEAR_RATIO * latencies[0]:
        return []
    plateaus = [0, *_between(sizes, latencies, 0, last), last]
    return [_step(sizes, latencies, i, j) for i, j in itertools.pairwise(plateaus)]


def _rising(values: Sequence[float]) -> list[float]:
    """`values` without single outliers, and nowhere falling: neighbours that do share a median."""
    calm = [
        statistics.median(values[max(0, min(i - 1, len(values) - 3)) :][:3])
        for i in range(len(values))
    ]
    blocks: list[list[float]] = []
    for value in calm:
        blocks.append([value])
        while len(blocks) > 1 and statistics.median(blocks[-2]) > statistics.median(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [statistics.median(block) for block in blocks for _ in block]


def _between(sizes: Sequence[int], latencies: Sequence[float], first: int, last: int) -> list[int]:
    """Indices of the plateaus between those at `first` and `last`.

    The flattest place, if latency rises by less than ``CLEAR_RATIO`` in an octave; then those on
    both sides of it.
    """
    near, far = latencies[first], latencies[last]
    reach = _reach(sizes, latencies, first, last)
    candidates = [
        i
        for i in range(first + 1, last)
        if latencies[i] >= CLEAR_RATIO * near
        and far >= CLEAR_RATIO * latencies[i]
        and _slope(sizes, latencies, i) < math.log2(CLEAR_RATIO)
        and reach > _BEYOND_ONE_CACHE * _step(sizes, latencies, first, i).upper_byte
    ]
    if not candidates:
        return []
    best = min(candidates, key=lambda i: _slope(sizes, latencies, i))
    return [
        *_between(sizes, latencies, first, best),
        best,
        *_between(sizes, latencies, best, last),
    ]


def _slope(sizes: Sequence[int], latencies: Sequence[float], i: int) -> float:
    """How steeply latency rises round size i: logarithm over logarithm, across an octave."""
    low = min(i - 1, bisect.bisect_left(sizes, sizes[i] / _HALF_WINDOW))
    high = max(i + 1, bisect.bisect_right(sizes, sizes[i] * _HALF_WINDOW) - 1)
    return math.log(latencies[high] / latencies[low]) / math.log(sizes[high] / sizes[low])


def _served(latencies: Sequence[float], first: int, last: int) -> list[float]:
    """Fractions of the loads that are as fast as at `first`, the others being as slow as at `last`.

    Of the sizes from `first` to `last`; the fractions fall from 1 to 0.
    """
    near, far = latencies[first], latencies[last]
    return [(far - latency) / (far - near) for latency in latencies[first : last + 1]]


def _reach(sizes: Sequence[int], latencies: Sequence[float], first: int, last: int) -> float:
    """Bytes that what is as fast as at `first` must hold, if all else is as slow as at `last`."""
    served = _served(latencies, first, last)
    return max(size * h for size, h in zip(sizes[first:], served, strict=False))


def _step(sizes: Sequence[int], latencies: Sequence[float], first: int, last: int) -> Step:
    served = _served(latencies, first, last)
    beyond = next(i for i, h in enumerate(served) if h < _SERVED)
    # Beyond the upper edge a little noise of the fraction would be many bytes.
    held = max(size * h for size, h in zip(sizes[first:], served[:beyond], strict=False))
    return Step(
        lower_bytes=round(held),
        upper_byte=sizes[first + beyond],
        near_s=latencies[first],
        far_s=latencies[last],
    )
